"""Whether a model is one at all: values defined once and before they lead back to themselves, data that fills shapes.

Onnx's own checker has no say in this, since it also rejects what runtimes take, such as nodes in another order than
that of their values.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto

from relu_tools import external, schemas, wire
from relu_tools.census import Census, given_in, tensors_in
from relu_tools.graphs import subgraphs
from relu_tools.modelfile import ModelFile
from relu_tools.report import ModelFileError, qualified

# By attribute type, the field that holds the value.
_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_MESSAGES = (AttributeProto.TENSOR, AttributeProto.GRAPH, AttributeProto.SPARSE_TENSOR, AttributeProto.TYPE_PROTO)
_TYPED: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 1),
    TensorProto.COMPLEX64: ("float_data", 2),
    TensorProto.DOUBLE: ("double_data", 1),
    TensorProto.COMPLEX128: ("double_data", 2),
    TensorProto.INT64: ("int64_data", 1),
    TensorProto.UINT32: ("uint64_data", 1),
    TensorProto.UINT64: ("uint64_data", 1),
    TensorProto.STRING: ("string_data", 1),
}
_PACKED = 8  # bits; of smaller elements an entry of int32_data holds as many as fit into these


_READ = 32  # Graphs within one another, the outermost not counted, that protobuf reads by itself.


def check(file: ModelFile, opsets: Mapping[str, int], census: Census) -> str:
    """What keeps a sound model, of which this is the census, from being read by others; empty where nothing does.

    Raises ModelFileError with the first thing that is wrong with one that is not.
    """
    try:
        _check_stored(file.top.graph, file)
        whole = _Check(file)
        if census.in_order and all(op for _, op in census.counts) and not file.top.functions:
            _check_given(file.top.graph)
            for node in census.attributed:
                whole.node(node, opsets)
        else:
            whole.model(opsets)
    except _Malformed as error:
        raise ModelFileError(f"{file.path or 'the model'} is malformed: {error}") from None
    if whole.deepest <= _READ:
        return ""
    return f"{whole.deepest} graphs lie within one another, of which onnx and onnxruntime, with protobuf, read {_READ}"


def _lift_depth() -> None:
    try:
        wire.lift_depth()
    except wire.WireError as error:
        raise _Malformed(str(error)) from None


class _Malformed(Exception):
    """A clause that says what is wrong."""


class _Check:
    def __init__(self, file: ModelFile):
        self.file = file
        # The first version of the format had no field for the type of an attribute.
        self.typed = file.top.ir_version > 1
        self.deepest = 0  # graphs within one another, the outermost not counted

    def model(self, opsets: Mapping[str, int]) -> None:
        self.graph(self.file.model.graph, [], opsets)
        for function in self.file.model.functions:
            own = {schemas.normal(entry.domain): entry.version for entry in function.opset_import}
            try:
                self.graph(function, [], own)
            except _Malformed as error:
                raise _Malformed(f"{error}, in function {qualified(function.domain, function.name)}") from None

    def graph(self, graph: GraphProto | FunctionProto, outer: list[set[str]], opsets: Mapping[str, int]) -> set[str]:
        """Checks a graph within others; the values of those that it reads."""
        if len(outer) > wire.GRAPHS:
            raise _Malformed(f"more than {wire.GRAPHS} graphs lie within one another")
        self.deepest = max(self.deepest, len(outer))
        if len(outer) > _READ:
            _lift_depth()
        if isinstance(graph, GraphProto) and outer:
            _check_stored(graph, self.file)
        _check_given(graph)
        given = set(given_in(graph))
        makers: dict[str, int] = {}
        for index, node in enumerate(graph.node):
            for name in node.output:
                if name and (name in given or makers.setdefault(name, index) != index):
                    raise _Malformed(f"value '{name}' is defined twice")
        scopes = [*outer, given | makers.keys()]
        captured: set[str] = set()
        reads: list[set[int]] = []
        in_order = True
        for index, node in enumerate(graph.node):
            self.node(node, opsets)
            names = set(node.input)
            for _, _, inner in subgraphs(node):
                names |= self.graph(inner, scopes, opsets)
            before = set()
            for name in names:
                if name in makers:
                    before.add(makers[name])
                elif name and name not in given:
                    _find(name, outer, _called(node))
                    captured.add(name)
            reads.append(before)
            in_order = in_order and all(maker < index for maker in before)
        for name in graph.output if isinstance(graph, FunctionProto) else (info.name for info in graph.output):
            if name not in scopes[-1]:
                _find(name, outer, "an output of the graph")
                captured.add(name)
        if not in_order and (node := _in_cycle(reads)) is not None:
            raise _Malformed(f"{_called(graph.node[node])} reads what is made of its own results")
        return captured

    def node(self, node: NodeProto, opsets: Mapping[str, int]) -> None:
        if not node.op_type:
            raise _Malformed(f"{_called(node)} has no operator")
        domain = schemas.normal(node.domain)
        version = schemas.meant_at(domain, node.op_type, opsets.get(domain, 0)) if domain in opsets else None
        if len({attribute.name for attribute in node.attribute}) < len(node.attribute):
            raise _Malformed(f"{_called(node)} has an attribute twice")
        for attribute in node.attribute:
            formal = version.attributes.get(attribute.name) if version is not None else None
            self.attribute(node, attribute, None if formal is None else formal.type)

    def attribute(self, node: NodeProto, attribute: AttributeProto, wanted: int | None) -> None:
        what = f"attribute '{attribute.name}' of {_called(node)}"
        if not attribute.type and not self.typed:
            return
        if attribute.type not in _FIELDS:
            raise _Malformed(f"{what} has no type that onnx {onnx.__version__} knows")
        if wanted is not None and attribute.type != wanted:
            kinds = [AttributeProto.AttributeType.Name(kind) for kind in (attribute.type, wanted)]
            raise _Malformed(f"{what} is of type {kinds[0]}, not {kinds[1]}")
        held = {field.name for field, _ in attribute.ListFields()} & set(_FIELDS.values())
        # A value of zero need not be written.
        if held and held != {_FIELDS[attribute.type]}:
            raise _Malformed(f"{what} holds a value of another type than it says")
        if not held and attribute.type in _MESSAGES and not attribute.ref_attr_name:
            raise _Malformed(f"{what} holds no value")
        for tensor in external.tensors(attribute.t) if attribute.HasField("t") else attribute.tensors:
            _check_tensor(tensor, self.file)
        for sparse in [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else attribute.sparse_tensors:
            _check_sparse(sparse, self.file)


def _check_given(graph: GraphProto | FunctionProto) -> None:
    """Whether each value that no node makes is there once; but an initializer may be the default of an input."""
    inputs = list(graph.input) if isinstance(graph, FunctionProto) else [info.name for info in graph.input]
    stored = [] if isinstance(graph, FunctionProto) else [tensor.name for tensor in tensors_in(graph)]
    for names in (inputs, stored):
        if len(set(names)) < len(names):
            raise _Malformed(f"value '{Counter(names).most_common(1)[0][0]}' is defined twice")


def _find(name: str, scopes: Iterable[set[str]], reader: str) -> None:
    if not any(name in scope for scope in scopes):
        raise _Malformed(f"nothing makes the value '{name}', which is read by {reader}")


def _called(node: NodeProto) -> str:
    name = node.name or next((name for name in node.output if name), "")
    return f"node '{name}' ({qualified(node.domain, node.op_type) or 'no operator'})"


def _in_cycle(reads: list[set[int]]) -> int | None:
    """A node that is made from its own results; `reads` are, for each node, those that it reads from."""
    readers: list[list[int]] = [[] for _ in reads]
    missing = [len(before) for before in reads]
    for index, before in enumerate(reads):
        for maker in before:
            readers[maker].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    while ready:
        for reader in readers[ready.pop()]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return next((index for index, count in enumerate(missing) if count), None)


def _check_stored(graph: GraphProto, file: ModelFile) -> None:
    for tensor in graph.initializer:
        _check_tensor(tensor, file)
    for sparse in graph.sparse_initializer:
        _check_sparse(sparse, file)


def _check_sparse(sparse: SparseTensorProto, file: ModelFile) -> None:
    """Whether there is a place in the shape for each value; which it is is looked at where it is read."""
    what = f"sparse tensor '{sparse.values.name}'"
    if min(sparse.dims, default=0) < 0:
        raise _Malformed(f"{what} has a size below 0")
    for tensor in (sparse.values, sparse.indices):
        _check_tensor(tensor, file)
    count = list(sparse.values.dims)
    if len(count) != 1 or list(sparse.indices.dims) not in (count, [*count, len(sparse.dims)]):
        raise _Malformed(f"{what} has not as many indices as values")
    if sparse.indices.data_type != TensorProto.INT64:
        raise _Malformed(f"{what} has indices that are no int64")


def _check_tensor(tensor: TensorProto, file: ModelFile) -> None:
    """Whether the data of a tensor fills its shape; external data is looked at where it is read or written."""
    if tensor.data_type not in _known():
        raise _Malformed(f"tensor '{tensor.name}' has an element type that onnx {onnx.__version__} does not know")
    if min(tensor.dims, default=0) < 0:
        raise _Malformed(f"tensor '{tensor.name}' has a size below 0")
    if external.is_external(tensor):
        return
    if tensor.HasField("raw_data"):
        needed = external.byte_size(tensor)
        token = wire.read_token(tensor.raw_data)
        held = len(tensor.raw_data) if token is None else file.part(*token).size
        unit = "bytes"
    else:
        field, per_element = _TYPED.get(tensor.data_type, ("int32_data", 1))
        values = getattr(tensor, field)
        if wire.has_token(tensor.SerializeToString()):
            return  # it is long, and how long tells when it is read
        bits = external.bits_of(tensor.data_type) or _PACKED
        count = math.prod(tensor.dims)
        needed = math.ceil(count * per_element * min(1, bits / _PACKED))
        held, unit = len(values), "values"
        if bits == 6 and held == count:
            return  # the writers of the format do not agree on whether 6 bits are packed there
    if held != needed:
        raise _Malformed(f"tensor '{tensor.name}' has {held} {unit} where its shape takes {needed}")


@functools.cache
def _known() -> frozenset[int]:
    return frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
