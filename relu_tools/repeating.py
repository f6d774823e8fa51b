"""What was made of one node is made of the next one like it, by other names.

What becomes of a node is decided by its operator, attributes and types, and by the answers to whatever its rewriting
asks besides. A `Record` notes those. Where it has all of them, and another node of the same kind gives the same answers
in the same order, what stands for the one stands for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from onnx import NodeProto, TensorProto

from relu_tools.facts import Scope
from relu_tools.graphs import subgraphs
from relu_tools.model import SMALL, elements
from relu_tools.rewriting import inherit

Ask = Callable[[Scope, str], Any]
Place = int | str
"""Where a name comes from: the place of one of the node's own values, or what follows on the node's own name."""

NO_VALUE = -1
_OF_ONE_NODE = ("input", "output", "name", "doc_string", "metadata_props")


def values_of(node: NodeProto) -> tuple[str, ...]:
    """A node's own values, and at `NO_VALUE` what stands for one that is left out."""
    return (*node.input, *node.output, "")


def base_of(node: NodeProto) -> str:
    """What all names begin with that are made for a node; "" where they can begin with several."""
    return node.name or (node.output[0] if len(node.output) == 1 else "")


class Record:
    """What the rewriting of a node asks about its values and says of them, in order, and the names that it makes."""

    def __init__(self, node: NodeProto, scope: Scope):
        self.node, self.scope = node, scope
        self.places = {"": NO_VALUE}
        pattern = tuple([self.places.setdefault(value, k) for k, value in enumerate((*node.input, *node.output))])
        self.kind = (scope.rules, pattern, tuple([scope.text(name) if name else "" for name in node.output]))
        self.asked: list[tuple[Ask, int, Hashable]] = []
        self.names: dict[str, str] = {}  # each with what it was to be, were that not taken
        self.copy: NodeProto | None = None  # of the node itself, with other attributes
        self.complete = True
        self._unheard = scope.model.questions

    def ask(self, scope: Scope, ask: Ask, value: str) -> Any:
        """The answer to a question, or to something said, about a value."""
        before = scope.model.questions
        answer = ask(scope, value)
        if value in self.places:
            self.asked.append((ask, self.places[value], _frozen(answer)))
        elif value not in self.names or not _is_constant(scope, value):
            return answer  # what is known of a value in between can come from anywhere
        scope.model.questions = before
        return answer

    def rewriting(self, result: Sequence[NodeProto], **details: Any) -> Rewriting | None:
        """The rewriting as it can be repeated; None where something can have decided on it that was not noted."""
        base, baked = base_of(self.node), details.pop("baked")
        named = all(name.startswith(f"{base}/") and self._is_own(name, hint) for name, hint in self.names.items())
        if not (self.complete and self.scope.model.questions == self._unheard and base and named):
            return None
        copied = len(result) == 1 and result[0] is self.copy
        parts = []
        for node in result:
            own = node is result[-1] and node.name == self.node.name
            values = (*node.input, *node.output, *baked)
            if node is self.node or not (own or node.name in self.names) or any(True for _ in subgraphs(node)):
                return None
            if any(value not in self.places and value not in self.names for value in values):
                return None
            if not copied and _holds_more(node):
                return None
            bare = NodeProto()
            bare.CopyFrom(node)
            for field in _OF_ONE_NODE:
                bare.ClearField(field)
            name = "" if own else node.name[len(base) :]
            parts.append(Part(bare, name, self._places(node.input, base), self._places(node.output, base)))
        if not parts or parts[-1].name:
            return None
        names = [name[len(base) :] for name in self.names]
        return Rewriting(parts, copied, names, self._places(baked, base), **details)

    def _places(self, names: Sequence[str], base: str) -> list[Place]:
        return [self.places.get(name, name[len(base) :]) for name in names]

    def _is_own(self, name: str, hint: str) -> bool:
        """Whether a name would be the same in a model without other names."""
        if name == hint:
            return True
        number = int(name[len(hint) + 1 :])
        return hint in self.names and all(f"{hint}_{k}" in self.names for k in range(2, number))


class Part(NamedTuple):
    """One of the nodes that stand for a node: all but its names, and where those come from."""

    bare: NodeProto
    name: str
    inputs: Sequence[Place]
    outputs: Sequence[Place]


class Rewriting(NamedTuple):
    """What stands for nodes of a kind.

    `copied` says that it is the node itself but for its attributes. `names` are all that were made, those included that
    nothing bears any more; `baked` the constants that became attributes; `expanded` counts the nodes of bodies.
    """

    parts: Sequence[Part]
    copied: bool
    names: Sequence[str]
    baked: Sequence[Place]
    means: Sequence[str]
    accuracy: str
    expanded: int

    def names_for(self, node: NodeProto) -> list[str]:
        base = base_of(node)
        return [base + rest for rest in self.names]

    def baked_for(self, node: NodeProto) -> list[str]:
        return _named(self.baked, base_of(node), values_of(node))

    def result_for(self, node: NodeProto) -> list[NodeProto]:
        """What stands for a node."""
        base, values = base_of(node), values_of(node)
        if self.copied:
            copy = NodeProto()
            copy.CopyFrom(node)
            del copy.attribute[:]
            copy.attribute.extend(self.parts[0].bare.attribute)
            return [copy]
        made = []
        for part in self.parts:
            copy = NodeProto()
            copy.CopyFrom(part.bare)
            copy.name = base + part.name
            copy.input.extend(_named(part.inputs, base, values))
            copy.output.extend(_named(part.outputs, base, values))
            made.append(copy)
        inherit(node, made)
        return made


class Rewritings:
    """The rewritings of kinds of nodes, each found by the answers that a node gives in turn."""

    def __init__(self) -> None:
        self._next: dict[tuple[Hashable, tuple], tuple[Ask, int, Hashable] | tuple[Rewriting]] = {}

    def find(self, kind: Hashable, node: NodeProto, scope: Scope) -> Rewriting | None:
        values, before = values_of(node), scope.model.questions
        answers: tuple = ()
        while (found := self._next.get((kind, answers))) is not None and len(found) > 1:
            ask, place, _ = found
            answers = (*answers, _frozen(ask(scope, values[place])))
        scope.model.questions = before
        return None if found is None else found[0]

    def learn(self, kind: Hashable, record: Record, rewriting: Rewriting) -> None:
        answers: tuple = ()
        for question in record.asked:
            self._next.setdefault((kind, answers), question)
            answers = (*answers, question[2])
        self._next.setdefault((kind, answers), (rewriting,))


def _holds_more(node: NodeProto) -> bool:
    """Whether a node holds what rewritings have no say in, such as devices and fields that are not known."""
    rest = NodeProto()
    rest.CopyFrom(node)
    for field in (*_OF_ONE_NODE, "op_type", "domain", "overload", "attribute"):
        rest.ClearField(field)
    return rest.ByteSize() > 0


def _named(places: Sequence[Place], base: str, values: Sequence[str]) -> list[str]:
    return [values[place] if place.__class__ is int else base + place for place in places]


def _is_constant(scope: Scope, value: str) -> bool:
    entry = scope.producers.get(value)
    return entry is not None and entry[0].op_type == "Constant"


def _frozen(answer: Any) -> Hashable:
    """An answer as it can be compared; a constant without its name, and a large one equal to none."""
    if isinstance(answer, list):
        return tuple(answer)
    if isinstance(answer, TensorProto):
        if elements(answer.dims) > SMALL:
            return object()
        value = TensorProto()
        value.CopyFrom(answer)
        value.ClearField("name")
        return value.SerializeToString(deterministic=True)
    return answer
