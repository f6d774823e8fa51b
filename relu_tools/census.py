"""Which operators a model holds, and what element types its values can have at all: one look at each node."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from relu_tools import schemas

if TYPE_CHECKING:
    from relu_tools.outline import Outline

# The types of what these hand on are those of values in their graphs.
_OF_THEIR_GRAPHS = ("If", "Loop", "Scan")
_TOLD = ("Cast", "Constant", "ConstantOfShape")
_KNOWN = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}


class Answers(dict):
    """Answers to a question, each found once."""

    def __init__(self, ask: Callable[[Any], Any]):
        self._ask = ask

    def __missing__(self, key: Any) -> Any:
        answer = self[key] = self._ask(key)
        return answer


class Census(NamedTuple):
    """`counts` are the nodes of each operator, by domain and name, those in subgraphs and functions included.

    `types` are the types that values can have, as schemas write them; None where that cannot be told. `in_order` says
    that no graph lies in another, and that all values are made once and before they are read; `attributed` are then the
    nodes that have attributes.
    """

    counts: Counter[tuple[str, str]]
    types: frozenset[str] | None
    in_order: bool
    attributed: Sequence[NodeProto]


def census(model: ModelProto, opsets: Mapping[str, int]) -> Census:
    """Counts a model's operators and gathers the types that enter it or that its operators bring in."""
    counts: Counter[tuple[str, str]] = Counter()
    types: set[str | None] = {None} if model.functions else set()
    in_order = True
    attributed: list[NodeProto] = []
    may_have = Answers(_may_have_attributes)
    waiting: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        given = given_in(graph)
        known = {"", *given}
        made = len(given) + 1
        kinds: list[tuple[str, str]] = []
        for node in graph.node:
            kind = (node.domain, node.op_type)
            kinds.append(kind)
            if may_have[kind] and (attributes := node.attribute):
                attributed.append(node)
                for attribute in attributes:
                    inner = [attribute.g] if attribute.HasField("g") else attribute.graphs
                    if inner:
                        in_order = False
                        waiting.extend(inner)
                if node.op_type in _TOLD:
                    types.add(_text(told_type(node)))
            if in_order:
                in_order = known.issuperset(node.input)
                outputs = [name for name in node.output if name]
                made += len(outputs)
                known.update(outputs)
        counts.update(kinds)
        in_order = in_order and len(known) == made and known.issuperset(_wanted(graph))
        if isinstance(graph, GraphProto):
            types |= _types_given(graph)
    return _census(counts, types, opsets, in_order, attributed)


def census_of_outline(outline: Outline, opsets: Mapping[str, int]) -> Census:
    """The census of a model of which most nodes are bytes."""
    counts = Counter({("", op): number for op, number in outline.operators.items()})
    counts.update((node.domain, node.op_type) for node in outline.others)
    types = _types_given(outline.model.graph)
    attributed = [node for node in outline.others if node.attribute]
    types.update(_text(told_type(node)) for node in attributed if node.op_type in _TOLD)
    return _census(counts, types, opsets, outline.in_order, attributed)


def _census(counts, types, opsets, in_order, attributed) -> Census:
    for domain, op in counts:
        types |= _brought_in(schemas.normal(domain), op, opsets.get(schemas.normal(domain), 0))
    return Census(counts, None if None in types else frozenset(types), in_order, attributed)


def _types_given(graph: GraphProto) -> set[str | None]:
    return {
        *(schemas.type_text(info.type) for info in graph.input),
        *(_text(tensor.data_type) for tensor in tensors_in(graph)),
    }


def given_in(graph: GraphProto | FunctionProto) -> set[str]:
    """The values of a graph that no node makes."""
    if isinstance(graph, FunctionProto):
        return set(graph.input)
    return {info.name for info in graph.input} | {tensor.name for tensor in tensors_in(graph)}


def tensors_in(graph: GraphProto) -> list[TensorProto]:
    """The initializers of a graph; of sparse ones the values, which have their name."""
    return [*graph.initializer, *(tensor.values for tensor in graph.sparse_initializer)]


def _wanted(graph: GraphProto | FunctionProto) -> Iterable[str]:
    return graph.output if isinstance(graph, FunctionProto) else (info.name for info in graph.output)


@functools.cache
def _brought_in(domain: str, op: str, opset: int) -> frozenset[str | None]:
    """The types that an operator's outputs can have whatever its inputs have; None among them where nobody knows."""
    version = schemas.meant_at(domain, op, opset)
    if version is None:
        return frozenset({None})
    if op in _OF_THEIR_GRAPHS or op in _TOLD:
        # A ConstantOfShape without a value makes floats.
        return frozenset({"tensor(float)"} if op == "ConstantOfShape" else ())
    of_inputs = {formal.var for formal in version.inputs if formal.homogeneous and not formal.optional}
    return frozenset(
        type_
        for formal in version.outputs
        if formal.var not in of_inputs or not formal.homogeneous
        for type_ in formal.types
    )


def _may_have_attributes(kind: tuple[str, str]) -> bool:
    domain, op = kind
    versions = schemas.history(schemas.normal(domain), op)
    return not versions or any(version.attributes for version in versions)


def _text(dtype: int) -> str | None:
    return schemas.tensor_text(dtype) if dtype in _KNOWN else None


def told_type(node: NodeProto) -> int:
    """The element type that a node's attributes tell of its output; 0 where they do not."""
    attributes = {a.name: a for a in node.attribute}
    if node.op_type == "Cast" and "to" in attributes:
        to = attributes["to"]
        return to.i or dict(TensorProto.DataType.items()).get(to.s.decode("ascii", "replace").upper(), 0)
    if node.op_type in ("Constant", "ConstantOfShape"):
        if "value" in attributes:
            return attributes["value"].t.data_type  # none where it refers to an attribute of a function
        for name, dtype in (("value_float", 1), ("value_int", 7), ("value_string", 8)):
            if name in attributes or f"{name}s" in attributes:
                return dtype
        return TensorProto.FLOAT if node.op_type == "ConstantOfShape" else 0
    return 0
