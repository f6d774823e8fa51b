"""`op`: makes nodes of one opset for an adapter, and answers its questions or refuses in uniform words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from relu_tools import magnitudes, schemas, signs
from relu_tools.facts import Dimensions, Scope, dimensions
from relu_tools.graphs import free_names
from relu_tools.inlining import Instance
from relu_tools.report import TELL_SHAPE, TELL_TYPE, RefusedError

if TYPE_CHECKING:
    from relu_tools.repeating import Record


class Builder:
    """`op.Max(a, b)` adds a node and returns its output's name.

    With `outputs=n` it returns a tuple of names; `outputs` may also be a list, in which "" leaves an output out.
    Nodes are of ai.onnx, or of `domain`.
    `op.again(...)` does so for the operator of the node that is being replaced, `op.type`; `op.outputs` are the names
    of its outputs, "" for one that nothing reads.
    Inputs are names of values, None for one that is left out, or numpy arrays, which become Constants.
    Attributes that are None are left out.
    """

    def __init__(
        self,
        scope: Scope,
        opsets: Mapping[str, int],
        node: NodeProto,
        is_read: Callable[[str], bool],
        fresh: Callable[[str], str],
        targets: Mapping[str, int],
        stored: bool = False,
        record: Record | None = None,
    ):
        self._scope, self._opsets, self._fresh, self._targets = scope, dict(opsets), fresh, targets
        self._base = node.name or next((name for name in node.output if name), node.op_type)
        self.type, self._domain = node.op_type, schemas.normal(node.domain)
        self._node, self._is_read = node, is_read
        self._may_store = stored
        self._record = record
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.asked: list[str] = []
        self.asked_more = False
        self.branches: set[str] = set()
        self.branching: set[str] = set()
        self.settled: set[str] = set()  # nodes that are legal at the goal already
        self.rounding = False

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        own = ""
        if op_type == "again":
            op_type, own = self.type, self._domain

        def make(
            *inputs: str | np.ndarray | None, outputs: int | Sequence[str] = 1, domain: str = own, **attributes: Any
        ):
            if op_type == "Loop" and inputs[1] is None:
                # onnxruntime up to 1.10 crashes at a Loop without a condition.
                inputs = (inputs[0], np.array(True), *inputs[2:])
            names = _without_end([self._name(given) for given in inputs])
            wanted = [True] * outputs if isinstance(outputs, int) else list(map(bool, outputs))
            made = [self._fresh(f"{self._base}/{op_type}") if output else "" for output in wanted]
            name = next(filter(None, made), None) or self._fresh(f"{self._base}/{op_type}")
            node = NodeProto(op_type=op_type, name=name, input=names, output=_without_end(made), domain=domain)
            version = schemas.at(domain, op_type, self._opsets.get(domain, 0))
            known = version.attributes if version else {}
            if op_type == "Cast" and version is not None and version.since < 6:
                attributes["to"] = TensorProto.DataType.Name(attributes["to"])  # then a word, now a number
            node.attribute.extend(
                _attribute(key, v, known.get(key)) for key, v in sorted(attributes.items()) if v is not None
            )
            if any(isinstance(value, GraphProto) and value.name in self.branches for value in attributes.values()):
                self.branching.add(node.name)
            self.nodes.append(node)
            self._scope.define([node], self._opsets)
            return made[0] if outputs == 1 else tuple(made)

        return make

    def _name(self, given: str | np.ndarray | np.generic | None) -> str:
        if given is None or isinstance(given, str):
            return given or ""
        tensor = numpy_helper.from_array(np.asarray(given))
        constant = schemas.at("", "Constant", self._opsets[""])
        assert constant is not None
        if schemas.tensor_text(tensor.data_type) not in constant.outputs[0].types:
            return self.initializer(tensor)
        return self.Constant(value=tensor)

    def branch(self, make: Callable[..., str | Sequence[str]], inputs: Sequence[TypeProto] = ()) -> GraphProto:
        """The nodes that `make` adds as a graph, for If, Loop and Scan: its outputs are the values that it returns.

        `make` is given the names of the graph's inputs, which have the types in `inputs`.
        """
        outer, self.nodes = self.nodes, []
        formals = [self._fresh(f"{self._base}/input") for _ in inputs]
        self._scope.types.update(zip(formals, inputs, strict=True))
        results = make(*formals)
        results = (results,) if isinstance(results, str) else results
        made = {name for node in self.nodes for name in node.output}
        # A branch gives out what it makes itself.
        outputs = [name if name in made else self.Identity(name) for name in results]
        graph = GraphProto(name=self._fresh(f"{self._base}/branch"), node=self.nodes)
        for infos, names in ((graph.input, formals), (graph.output, outputs)):
            for name in names:
                infos.add(name=name).type.CopyFrom(self._scope.type(name) or TypeProto())
        self.nodes = outer
        self.branches.add(graph.name)
        return graph

    def giving(self, graph: GraphProto, make: Callable[..., Sequence[str]]) -> GraphProto:
        """A copy of a graph that gives what `make` makes of its outputs, by nodes that are legal at the goal."""
        ends = self.branch(lambda: make(*(info.name for info in graph.output)))
        self.branches.remove(ends.name)
        whole = GraphProto()
        whole.CopyFrom(graph)
        whole.node.extend(ends.node)
        del whole.output[:]
        whole.output.extend(ends.output)
        return whole

    def given(self, graph: GraphProto) -> list[Dimensions | None]:
        """The dimensions of a legalized graph's outputs; None for those whose rank is not known."""
        self.asked_more = True
        scope = Scope(self._scope.model, graph, self._targets, self._scope, None)
        return [_known(info, scope) for info in graph.output]

    def splice(self, graph: GraphProto, *inputs: str) -> tuple[str, ...]:
        """Adds the nodes of a graph that is legal at the goal already, and gives what it makes of these inputs."""
        kept = {tensor.name: self._name(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
        bound = dict(zip([info.name for info in graph.input], inputs, strict=True)) | kept
        outer = [name for name in free_names(graph.node) if name not in bound]
        bound.update(zip(outer, outer, strict=True))
        body = FunctionProto(name=graph.name, node=graph.node, input=bound, output=[info.name for info in graph.output])
        results = [self._fresh(f"{self._base}/{info.name}") for info in graph.output]
        call = NodeProto(name=self._base, input=bound.values(), output=results)
        instance = Instance(call, body, self._fresh)
        self.nodes.extend(instance.nodes)
        self.settled.update(node.name for node in instance.nodes)
        self._scope.define(instance.nodes, {**self._opsets, **self._targets})
        for name, info in zip(results, graph.output, strict=True):
            if info.type.WhichOneof("value"):
                self._scope.types.setdefault(name, info.type)
        # What stands for an output of the node that is replaced is renamed, which the graph's own nodes must not be.
        return tuple(self.Identity(name) for name in results)

    def initializer(self, tensor: TensorProto) -> str:
        """Stores a tensor in the graph, or makes it by a Cast where the graph cannot hold one."""
        name = self._fresh(f"{self._base}/value")
        if self._may_store:
            kept = TensorProto()
            kept.CopyFrom(tensor)
            kept.name = name
            self.initializers.append(kept)
            self._scope.initializers[name] = kept
            return name
        data = numpy_helper.to_array(self._scope.model.read(tensor))
        with np.errstate(invalid="ignore"):
            wide = data.astype(np.float64) if data.dtype.kind in "biuf" else None
            exact = wide is not None and (np.abs(wide) < 2**63).all() and (wide.astype(data.dtype) == data).all()
        if not exact and data.dtype == np.int64 and self._opsets[""] >= 6:
            # A double holds either half of it.
            upper, lower = (self.Cast(half.astype(np.float64), to=tensor.data_type) for half in np.divmod(data, 2**32))
            scale = self.Cast(np.full(data.shape, 2.0**32), to=tensor.data_type)
            return self.Add(self.Mul(upper, scale), lower)
        if not exact:
            raise RefusedError(
                f"a Constant of {schemas.tensor_text(tensor.data_type)} has no form here before opset 9",
                "--ir-version 4 or later lets it become an initializer",
            )
        return self.Cast(wide, to=tensor.data_type)

    @property
    def outputs(self) -> tuple[str, ...]:
        self.asked_more = True
        return tuple(name if self._about(self._says_read, name) else "" for name in self._node.output)

    def _says_read(self, _: Scope, name: str) -> bool:
        return self._is_read(name)

    @property
    def listed(self) -> int:
        """How many outputs the node lists, whether or not something reads them."""
        return len(_without_end(list(self._node.output)))

    def rounds(self) -> None:
        """Says that what an adapter declares to be exact is so but for rounding, for this node."""
        self.rounding = True

    def maker(self, value: str) -> tuple[str, list[str | None], dict[str, Any]] | None:
        """The operator of ai.onnx that makes a value, its inputs and its attributes; None where there is none."""
        self.asked_more = True
        self._scope.model.questions += 1
        owner = self._scope.owner(value)
        entry = owner.producers.get(value) if owner is not None else None
        if entry is None or schemas.normal(entry[0].domain) != "":
            return None
        version = schemas.at("", entry[0].op_type, entry[1].get("", 0))
        return None if version is None else (entry[0].op_type, *schemas.bind(entry[0], version))

    def maker_output(self, value: str) -> int:
        """Which of its maker's outputs a value is."""
        owner = self._scope.owner(value)
        assert owner is not None
        return list(owner.producers[value][0].output).index(value)

    # --- questions -----------------------------------------------------------------
    def _about(self, ask: Callable[[Scope, str], Any], value: str) -> Any:
        """What the scope answers, and is told, about a value."""
        return ask(self._scope, value) if self._record is None else self._record.ask(self._scope, ask, value)

    def dtype(self, value: str) -> int:
        """The element type, as in TensorProto.DataType."""
        found = self._scope.dtype(value)
        if found is None:
            raise RefusedError(f"the element type of '{value}' is not known", TELL_TYPE)
        return found

    def text(self, value: str) -> str:
        """The type as schemas write it, such as "seq(tensor(float))"."""
        found = self._scope.text(value)
        if found is None:
            raise RefusedError(f"the type of '{value}' is not known", TELL_TYPE)
        return found

    def item(self, value: str) -> TypeProto:
        """The type of what lies at an index of a tensor's first axis."""
        shape = self.known_shape(value)
        return helper.make_tensor_type_proto(self.dtype(value), shape and shape[1:])

    def count(self, value: str) -> str:
        """Says of a value that it holds no integer below 0; gives it back."""
        self._about(_say_count, value)
        return value

    def places(self, value: str | np.ndarray) -> str | np.ndarray:
        """Says of a value that its integers count a tensor's places, axes or dimensions; gives it back."""
        if isinstance(value, str):
            self._about(_say_places, value)
        return value

    def tell(self, value: str, dtype: int, shape: Sequence[int | str | None]) -> None:
        """Makes the type of a value known that its operator does not infer."""
        type_ = helper.make_tensor_type_proto(dtype, shape)
        self._about(lambda scope, name: scope.tell(name, type_), value)

    def shape(self, value: str) -> Dimensions:
        """The dimensions, symbolic ones by name and unknown ones as None."""
        self.asked_more = True
        found = self.known_shape(value)
        if found is None:
            raise RefusedError(f"the rank of '{value}' is not known", TELL_SHAPE)
        return found

    def rank(self, value: str) -> int:
        return len(self.shape(value))

    def length(self, vector: str) -> int:
        """How many elements a vector has."""
        self.asked_more = True
        found = self._about(Scope.length, vector)
        if found is None:
            raise RefusedError(f"the number of elements of '{vector}' is not known", TELL_SHAPE)
        return found

    def known_shape(self, value: str) -> Dimensions | None:
        """The dimensions where the rank is known, None where it is not."""
        self.asked_more = True
        return self._about(Scope.shape, value)

    def known(self, value: str | None) -> np.ndarray | None:
        """The value where it is a constant, None where it is not (or left out)."""
        self.asked_more = True
        tensor = self._about(Scope.constant, value) if value else None
        if tensor is None:
            return None
        self.asked.append(value)  # type: ignore[arg-type]
        return numpy_helper.to_array(tensor)

    def const(self, value: str) -> np.ndarray:
        """The value of a constant."""
        found = self.known(value)
        if found is None:
            raise RefusedError(
                f"'{value}' must be a constant", "make it an initializer, or fold constants before converting"
            )
        return found

    def nonnegative(self, value: str) -> bool:
        """Whether it is known of integers that none is below 0."""
        self.asked_more = True
        return self._about(signs.nonnegative, value)

    def in_double(self, value: str) -> bool:
        """Whether it is known of integers that a double holds each of them, and each of the next ones."""
        self.asked_more = True
        size = self._about(magnitudes.bits, value)
        return size is not None and size <= magnitudes.DOUBLE

    @staticmethod
    def value(given: Any) -> Any:
        """The value of an attribute, refused where it is a reference to the function's own."""
        if isinstance(given, schemas.AttributeReference):
            given.unknown()
        return given

    def version(self, op_type: str) -> int:
        """The version of an operator at the opset that is the goal of it all; 0 where it does not exist there."""
        found = schemas.at("", op_type, self._targets[""])
        return 0 if found is None or found.deprecated else found.since

    def like(self, number: float | int | bool, value: str) -> np.ndarray:
        """A scalar of the element type of `value`."""
        return np.asarray(number).astype(helper.tensor_dtype_to_np_dtype(self.dtype(value)))


def _say_count(scope: Scope, value: str) -> None:
    scope.counts.add(value)


def _say_places(scope: Scope, value: str) -> None:
    scope.places.add(value)


def _without_end(names: list[str]) -> list[str]:
    """The names up to the last one that is not ""."""
    return names[: max((k + 1 for k, name in enumerate(names) if name), default=0)]


def _known(info: ValueInfoProto, scope: Scope) -> Dimensions | None:
    """The dimensions of an output of a graph, which may declare less, or more, than its nodes tell."""
    declared = dimensions(info.type)
    if declared is not None and all(isinstance(size, int) for size in declared):
        return declared
    found = scope.shape(info.name)
    if found is None or declared is None or len(found) != len(declared):
        return declared if found is None else found
    return [a if isinstance(a, int) else b for a, b in zip(found, declared, strict=True)]


def _attribute(name: str, value: Any, known: schemas.Attribute | None) -> AttributeProto:
    if isinstance(value, schemas.AttributeReference):
        return AttributeProto(name=name, type=value.type, ref_attr_name=value.name)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    elif isinstance(value, list) and value and isinstance(value[0], str):
        value = [v.encode("utf-8", "surrogateescape") for v in value]
    kind = known.type if known is not None else None
    if kind == AttributeProto.FLOAT:
        value = float(value)
    return helper.make_attribute(name, value, attr_type=kind)
