"""What is known of a graph's values: element types, shapes and constants, each found when it is asked for.

Element types are followed from a value to what it was made from, by the operators' schemas alone, since most
questions need no more; shapes and the rest come from one run of ONNX's own inference over the whole model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper, shape_inference

from relu_tools import fold, ranks, schemas
from relu_tools.census import told_type
from relu_tools.graphs import refers, subgraphs
from relu_tools.model import SMALL, Model, elements, sized

MOST_CALLS = 20

_FLOAT = AttributeProto.FLOAT

Dimensions: TypeAlias = "list[int | str | None]"

_CONSTANT_FIELDS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def _of_branch(node: NodeProto, place: int) -> TypeProto | None:
    """The type that the graphs of an If, Loop or Scan declare for an output of it, right but for its shape."""
    if node.op_type not in ("If", "Loop", "Scan"):
        return None
    place += node.op_type == "Loop"  # its graph begins with a condition
    graphs = [graph for _, _, graph in subgraphs(node) if place < len(graph.output)]
    return next((g.output[place].type for g in graphs if schemas.type_text(g.output[place].type) is not None), None)


class Scope:
    """A graph or a function body with the scopes around it.

    `path` leads to the same graph in the inferred model: (node, attribute, graph) for each level; None in a function.
    """

    def __init__(
        self,
        model: Model,
        graph: GraphProto | onnx.FunctionProto,
        opsets: Mapping[str, int],
        parent: Scope | None = None,
        path: tuple[tuple[int, int, int], ...] | None = (),
        formal_types: Mapping[str, TypeProto] | None = None,
    ):
        self.model, self.graph, self.opsets, self.parent, self.path = model, graph, opsets, parent, path
        self._calls = 0  # of functions that lead here
        self.is_function = isinstance(graph, onnx.FunctionProto)
        self.types: dict[str, TypeProto | None] = dict(formal_types or {})
        self.counts: set[str] = set()  # values that are said to hold no integer below 0
        self.places: set[str] = set()  # values that are said to count, or to lead to, places of a tensor
        self._texts: dict[str, str | None] = {}
        self._inferred_types: dict[str, TypeProto] | None = None
        self.initializers: dict[str, TensorProto] = {}
        self._sparse: dict[str, Any] = {}
        self.formals = set(graph.input) if self.is_function else {i.name for i in graph.input}
        self._lengths: dict[str, int | None] = {}
        self._ranks: dict[str, int | None] = {}
        self._walked = False  # whether the ranks of all values have been asked for
        self._constants: dict[str, TensorProto | None] = {}
        if self.is_function:
            self.types = {i.name: sized(i.type) for i in graph.value_info} | self.types
        else:
            self.initializers.update((t.name, t) for t in graph.initializer)
            self._sparse.update((t.values.name, t) for t in graph.sparse_initializer)
            self.types.update((i.name, sized(i.type)) for i in graph.input if i.type.WhichOneof("value"))

    @functools.cached_property
    def rules(self) -> tuple:
        """What decides on the nodes of a graph beside what they hold."""
        return self.in_function, frozenset(self.opsets.items())

    @functools.cached_property
    def told(self) -> set[str]:
        """The values whose types the graph itself tells."""
        infos = (*self.graph.value_info, *self.graph.output) if isinstance(self.graph, GraphProto) else ()
        return {info.name for info in infos if info.type.WhichOneof("value")}

    @functools.cached_property
    def producers(self) -> dict[str, tuple[NodeProto, Mapping[str, int]]]:
        """The node that makes a value, and the opsets at which that is written; it is found when it is asked for."""
        producers: dict[str, tuple[NodeProto, Mapping[str, int]]] = {}
        for node in self.graph.node:
            entry = (node, self.opsets)
            for name in node.output:
                producers.setdefault(name, entry)
        return producers

    @functools.cached_property
    def in_function(self) -> bool:
        return self.is_function or (self.parent is not None and self.parent.in_function)

    def define(self, nodes: Iterable[NodeProto], opsets: Mapping[str, int], *, instead: bool = False) -> None:
        """Makes nodes known as the producers of their outputs, at the opsets at which they are written.

        A value keeps its first producer, since what replaces that has the same type and older schemas tell less of
        it; not so with `instead`, for producers that no schema knows.
        """
        producers = self.producers
        for node in nodes:
            entry = (node, opsets)
            for name in node.output:
                if instead:
                    producers[name] = entry
                    if self.types.get(name, entry) is None:
                        del self.types[name]
                        self._texts.pop(name, None)
                else:
                    producers.setdefault(name, entry)
        if instead:
            self._forget_unknown()

    def _forget_unknown(self) -> None:
        """Lets what was not known of values be asked for again."""
        for answers in (self._ranks, self._lengths, self._constants):
            for name in [name for name, answer in answers.items() if answer is None]:
                del answers[name]
        self._walked = False

    def owner(self, name: str) -> Scope | None:
        """The innermost scope that defines a value."""
        scope: Scope | None = self
        while scope is not None:
            if (
                name in scope.producers
                or name in scope.types
                or name in scope.initializers
                or name in scope._sparse
                or name in scope.formals
            ):
                return scope
            scope = scope.parent
        return None

    # --- types ---------------------------------------------------------------------
    def text(self, name: str) -> str | None:
        """The type of a value as schemas write it, such as "tensor(float)"; None where it is not known."""
        if name in self._texts:
            return self._texts[name]
        scope = self.owner(name)
        return scope._own_text(name) if scope else None

    def _own_text(self, name: str) -> str | None:
        # A chain of nodes can be a hundred thousand long: walk it, do not recurse.
        chain: list[str] = []
        scope: Scope | None = self
        current = name
        found: str | None = None
        while scope is not None:
            texts = scope._texts
            if current in texts:
                found = texts[current]
                break
            found, follow = scope._step(current)
            if follow is None or len(chain) > len(scope.producers) + 1000:
                texts[current] = found
                break
            if scope is self:
                chain.append(current)
            current = follow
            scope = scope.owner(current)
        for link in chain:
            self._texts[link] = found
        return self._texts.setdefault(name, found)

    def _step(self, name: str) -> tuple[str | None, str | None]:
        """The type of a value, or another value of this scope or an outer one that has the same type."""
        proto = self.types.get(name)
        if proto is not None:
            return schemas.type_text(proto), None
        if name in self.initializers:
            return schemas.tensor_text(self.initializers[name].data_type), None
        if name in self._sparse:
            return schemas.tensor_text(self._sparse[name].values.data_type), None
        entry = self.producers.get(name)
        if entry is None:
            return None, None
        node, opsets = entry
        domain = schemas.normal(node.domain)
        place = 0 if node.output[0] == name else list(node.output).index(name)
        fixed, same = _rule(domain, node.op_type, opsets.get(domain, 0), place)
        if fixed is not None:
            return fixed, None
        count = len(node.input)
        for k in same:
            if k < count and node.input[k]:
                return None, node.input[k]
        told = told_type(node)
        if told:
            return schemas.tensor_text(told), None
        if domain == "" and (proto := _of_branch(node, place)) is not None:
            return schemas.type_text(proto), None
        proto = self._ask(name)
        return (schemas.type_text(proto) if proto is not None else None), None

    def tell_type_of_all(self, node: NodeProto) -> None:
        """Makes known what the values of a node of the model are, where all values of the model have one type."""
        types = self.model.census.types
        if types is not None and len(types) == 1:
            self._texts.update(dict.fromkeys((*node.input, *node.output), *types))

    def dtype(self, name: str) -> int | None:
        """The element type of a tensor value as in TensorProto.DataType; None where it is not known."""
        text = self.text(name)
        if text is None or not text.startswith("tensor("):
            return None
        return TensorProto.DataType.Value(text[7:-1].upper())

    def type(self, name: str) -> TypeProto | None:
        """All that is known of a value's type, its shape included."""
        self.model.questions += 1
        scope = self.owner(name)
        if scope is None:
            return None
        proto = scope.types.get(name)
        if proto is None:
            proto = scope._ask(name)
        if proto is None or (proto.HasField("tensor_type") and not proto.tensor_type.elem_type):
            dtype = scope.dtype(name)
            if dtype:
                shape = proto.tensor_type.shape if proto is not None and proto.tensor_type.HasField("shape") else None
                proto = TypeProto()
                proto.tensor_type.elem_type = dtype
                if shape is not None:
                    proto.tensor_type.shape.CopyFrom(shape)
        return proto

    def tell(self, name: str, type_: TypeProto) -> None:
        """Makes the type of a value defined here known."""
        self.types[name] = type_
        self._texts[name] = schemas.type_text(type_)

    def shape(self, name: str) -> Dimensions | None:
        """A tensor's dimensions, symbolic ones by name, unknown ones as None; None where the rank is not known."""
        proto = self.type(name)
        told = dimensions(proto) if proto is not None else None
        if told is not None or (rank := self._rank(name)) is None:
            return told
        return [None] * rank

    def _rank(self, name: str) -> int | None:
        """The rank of a value whose shape inference does not tell."""
        self.model.questions += 1
        scope = self.owner(name)
        if scope is None:
            return None
        if not scope._walked:
            # One walk over the nodes in their order: a chain of them can be long.
            scope._walked = True
            for made in [made for made in scope.producers if made not in scope._ranks]:
                scope._ranks[made] = scope._rank_here(made)
        if name not in scope._ranks:
            scope._ranks[name] = None  # an unknown that a cycle would come back to
            scope._ranks[name] = scope._rank_here(name)
        return scope._ranks[name]

    def _rank_here(self, name: str) -> int | None:
        proto = self.types.get(name) or self._from_inference(name)
        if proto is not None and proto.tensor_type.HasField("shape"):
            return len(proto.tensor_type.shape.dim)
        if name in self.initializers:
            return len(self.initializers[name].dims)
        if name not in self.producers:
            return None
        node, _ = self.producers[name]
        if schemas.normal(node.domain) != "" or (name != node.output[0] and node.op_type not in ranks.OF_ALL_OUTPUTS):
            return None
        if node.op_type == "Constant":
            tensor = self.constant(name)
            return None if tensor is None else len(tensor.dims)
        return ranks.rank_of(node, self._rank, self.length)

    def length(self, name: str) -> int | None:
        """How many elements a vector has."""
        self.model.questions += 1
        scope = self.owner(name)
        if scope is None:
            return None
        tensor = scope.initializers.get(name)
        if tensor is None:
            proto = scope.types.get(name) or scope._from_inference(name)
            dims = proto.tensor_type.shape.dim if proto is not None else []
            if len(dims) == 1 and dims[0].HasField("dim_value"):
                return dims[0].dim_value
            tensor = scope.constant(name, fold.LIMIT)
        if tensor is not None:
            return elements(tensor.dims)
        scope._rank(name)  # the walk over all ranks comes first: what it asks for must not be half known
        if name not in scope._lengths:
            scope._lengths[name] = None  # an unknown that a cycle would come back to
            node, _ = scope.producers.get(name, (None, None))
            if node is not None and schemas.normal(node.domain) == "":
                scope._lengths[name] = ranks.length_of(node, scope._rank, scope.length, scope._array)
        return scope._lengths[name]

    def _array(self, name: str) -> np.ndarray | None:
        tensor = self.constant(name, fold.LIMIT)
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)

    def _ask(self, name: str) -> TypeProto | None:
        """The type of a value defined here: of an initializer, from inference, or by the operator's own inference."""
        self.model.questions += 1
        if name in self.types:
            return self.types[name]
        found: TypeProto | None = None
        if name in self.initializers:
            tensor = self.initializers[name]
            found = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        elif name in self._sparse:
            sparse = self._sparse[name]
            found = helper.make_tensor_type_proto(sparse.values.data_type, sparse.dims)
        else:
            found = self._from_inference(name)
            # The operator may tell more: inference over the model does not know all constants.
            if found is None or not _has_shape(found):
                found = self._from_operator(name) or found
        self.types[name] = found
        return found

    def _from_inference(self, name: str) -> TypeProto | None:
        if self.path is None:
            return None
        if self._inferred_types is None:
            graph = self.model.inferred().graph
            for node, attribute, index in self.path:
                if node >= len(graph.node):  # it lies deeper than inference goes
                    return None
                at = graph.node[node].attribute[attribute]
                graph = at.g if at.type == AttributeProto.GRAPH else at.graphs[index]
            self._inferred_types = {v.name: sized(v.type) for v in (*graph.value_info, *graph.output, *graph.input)}
        return self._inferred_types.get(name)

    def _from_operator(self, name: str) -> TypeProto | None:
        entry = self.producers.get(name)
        if entry is None:
            return None
        node, opsets = entry
        domain = schemas.normal(node.domain)
        version = schemas.meant_at(domain, node.op_type, opsets.get(domain, 0))
        function = self.model.functions.get((domain, node.op_type, node.overload))
        if function is not None and schemas.exists(domain, node.op_type, opsets.get(domain, 0)):
            function = None
        bodied = version is None and (domain, node.op_type) in self.model.bodies
        if version is None and function is None and not bodied:
            return None
        if version is not None and _waits_for_attribute(node):
            return _but_for_attribute(node)
        self.types[name] = None  # an unknown that a cycle would come back to
        self._ask_earlier(node)
        if bodied:
            body = self.model.bodies.find(domain, node.op_type)
            if body.traced:
                return body.type_of(self, node, opsets, name)
            function = body.proto
        if function is not None:
            return self._from_function(node, function, name)
        known: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for given in node.input:
            if not given:
                continue
            proto = self.type(given)
            if proto is None:
                return None
            known[given] = proto
            tensor = self.constant(given, SMALL)
            if tensor is not None and elements(tensor.dims) <= SMALL:
                data[given] = tensor
        imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
        try:
            types = shape_inference.infer_node_outputs(version.schema, node, known, data, opset_imports=imports)
        except Exception:  # inference raises whatever the operator's own code raises; the type stays unknown
            return None
        found = types.get(name)
        return found if found is not None and found.WhichOneof("value") else None  # without inference it is empty

    def _ask_earlier(self, node: NodeProto) -> None:
        """Asks for the types of all that a node is made from, earliest first: a chain can be too long to recurse."""
        waiting = [given for given in node.input if given]
        seen: set[str] = set()
        while waiting:
            current = waiting[-1]
            scope = self.owner(current)
            if scope is None or current in seen or current in scope.types or current not in scope.producers:
                waiting.pop()
                if scope is not None:
                    scope._ask(current)
                continue
            seen.add(current)
            found = scope._from_inference(current)
            if found is None or not _has_shape(found):
                waiting.extend(given for given in scope.producers[current][0].input if given and given not in seen)

    def _from_function(self, node: NodeProto, function: onnx.FunctionProto, name: str) -> TypeProto | None:
        """The type of what a model-local function gives for the types that this call gives it."""
        if self._calls > MOST_CALLS:
            return None  # functions that call each other without end are refused elsewhere
        given = {
            formal: type_
            for formal, actual in zip(function.input, node.input, strict=False)
            if actual and (type_ := self.type(actual)) is not None
        }
        place = list(node.output).index(name)
        # Functions that call two others each can be called more often than can be looked at.
        key = (node.domain, node.op_type, node.overload, place, *((k, v.SerializeToString()) for k, v in given.items()))
        if key not in self.model.of_calls:
            opsets = {schemas.normal(o.domain): o.version for o in function.opset_import}
            scope = Scope(self.model, function, opsets, path=None, formal_types=given)
            scope._calls = self._calls + 1
            type_ = scope.type(function.output[place]) if place < len(function.output) else None
            self.model.of_calls[key] = type_
        return self.model.of_calls[key]

    # --- constants -----------------------------------------------------------------
    def constant(self, name: str, limit: int | None = None) -> TensorProto | None:
        """The value, where it is an initializer, a Constant, or computed from such; None where it is not.

        With a limit, an initializer of more elements is not read and None.
        """
        self.model.questions += 1
        scope = self.owner(name)
        if scope is None:
            return None
        tensor = scope.initializers.get(name)
        if tensor is not None:
            return None if limit is not None and elements(tensor.dims) > limit else self.model.read(tensor)
        if name not in scope._constants:
            scope._compute_earlier(name)
        return scope._constants[name]

    def _compute_earlier(self, name: str) -> None:
        """Computes what a value is made from and then the value itself: a chain can be too long to recurse."""
        waiting, seen = [name], set()
        while waiting:
            current = waiting[-1]
            scope = self.owner(current)
            if scope is None or current in scope._constants or current in scope.initializers:
                waiting.pop()
                continue
            node, _ = scope.producers.get(current, (None, None))
            if node is not None and node.op_type in fold.OPERATORS and current not in seen:
                seen.add(current)
                waiting.extend(given for given in node.input if given and given not in seen)
                continue
            waiting.pop()
            scope._constants[current] = None  # an unknown that a cycle would come back to
            scope._constants[current] = scope._compute(current)

    def _compute(self, name: str) -> TensorProto | None:
        entry = self.producers.get(name)
        if entry is None:
            return None
        node, opsets = entry
        domain = schemas.normal(node.domain)
        version = schemas.at(domain, node.op_type, opsets.get(domain, 0))
        if domain != "" or version is None:
            return None
        if node.op_type == "Constant":
            return constant_of(node, self.model.read)
        if node.op_type in ("Shape", "Size"):
            shape = self.shape(node.input[0])
            if shape is None or not all(isinstance(dim, int) for dim in shape) or refers(node):
                return None
            start, end = (next((a.i for a in node.attribute if a.name == key), None) for key in ("start", "end"))
            value = np.array(shape[start:end] if node.op_type == "Shape" else elements(shape), np.int64)  # type: ignore[arg-type]
            return onnx.numpy_helper.from_array(value)
        if node.op_type not in fold.OPERATORS:
            return None
        tensors = [self.constant(given, fold.LIMIT) if given else None for given in node.input]
        arrays = [None if tensor is None else onnx.numpy_helper.to_array(tensor) for tensor in tensors]
        value = fold.fold(node, version, arrays)
        return None if value is None else onnx.numpy_helper.from_array(np.ascontiguousarray(value))

    def roots(self, name: str) -> Iterator[str]:
        """The initializers that a constant is computed from."""
        waiting, seen = [name], {name}
        while waiting:
            current = waiting.pop()
            scope = self.owner(current)
            if scope is None:
                continue
            if current in scope.initializers:
                yield current
            elif current in scope.producers and scope.producers[current][0].op_type not in ("Shape", "Size"):
                fresh = [given for given in scope.producers[current][0].input if given and given not in seen]
                seen.update(fresh)
                waiting.extend(fresh)


def dimensions(type_: TypeProto) -> Dimensions | None:
    """What `Scope.shape` gives, as far as a type tells."""
    if not type_.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in type_.tensor_type.shape.dim
    ]


def constant_of(node: NodeProto, read: Callable[[TensorProto], TensorProto]) -> TensorProto | None:
    """The tensor that a Constant node yields; None for other nodes and for sparse or unknown values."""
    if node.op_type != "Constant" or schemas.normal(node.domain) != "":
        return None
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            return read(attribute.t)
        if attribute.name in _CONSTANT_FIELDS:
            value = helper.get_attribute_value(attribute)
            return onnx.numpy_helper.from_array(np.asarray(value, _CONSTANT_FIELDS[attribute.name]))
    return None


@functools.cache
def _rule(domain: str, op: str, opset: int, place: int) -> tuple[str | None, tuple[int, ...]]:
    """What an operator's schema tells of an output's type: the one it has, or the inputs that it shares it with."""
    version = schemas.meant_at(domain, op, opset)
    formal = version.output(place) if version is not None else None
    if formal is None or not formal.homogeneous:
        return None, ()
    if len(formal.types) == 1:
        return next(iter(formal.types)), ()
    return None, tuple(k for k, p in enumerate(version.inputs) if p.var == formal.var and p.homogeneous)


def _waits_for_attribute(node: NodeProto) -> bool:
    """Whether a node's types may depend on an attribute of the function around it, which inference takes for 0."""
    # No shape but that of a first Upsample depends on a single float.
    return any(a.ref_attr_name and (a.type != _FLOAT or node.op_type == "Upsample") for a in node.attribute)


def _but_for_attribute(node: NodeProto) -> TypeProto | None:
    """What is known of the output of a node whatever the attribute is that it waits for."""
    if node.op_type == "Shape":
        return helper.make_tensor_type_proto(TensorProto.INT64, [None])
    dtype = told_type(node) if node.op_type == "Constant" else 0
    return helper.make_tensor_type_proto(dtype, [None] * node.attribute[0].name.endswith("s")) if dtype else None


def _has_shape(proto: TypeProto) -> bool:
    """Whether a type says all that inference could; a type that is no tensor has no shape to tell."""
    return proto.tensor_type.HasField("shape") if proto.HasField("tensor_type") else bool(proto.WhichOneof("value"))
