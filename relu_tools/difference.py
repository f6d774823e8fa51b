"""What differs between two models, in words; weights are compared by the hash of their data, read in chunks."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)

from relu_tools import external, opening, schemas, wire
from relu_tools.inlining import function_key
from relu_tools.modelfile import ModelFile
from relu_tools.report import ModelFileError, qualified
from relu_tools.sources import CHUNK, Part, Source

if TYPE_CHECKING:
    import onnx_ir

_LONG = 60
_OF_MESSAGES = (
    AttributeProto.TENSOR,
    AttributeProto.TENSORS,
    AttributeProto.SPARSE_TENSOR,
    AttributeProto.SPARSE_TENSORS,
    AttributeProto.GRAPH,
    AttributeProto.GRAPHS,
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that differs: what it belongs to, such as "node" or "initializer", its name, and how it differs."""

    kind: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}{f' {self.name}' if self.name else ''}: {self.text}"


def diff(
    a: str | os.PathLike[str] | ModelProto | onnx_ir.Model, b: str | os.PathLike[str] | ModelProto | onnx_ir.Model
) -> list[Difference]:
    """Everything that differs between two models; empty where they are the same.

    Nodes are matched by their outputs, then by name. How a tensor is stored is no difference: raw, in numbers, or in
    another file. Raises ModelFileError where a model or its data cannot be read.
    """
    return list(_Pair(opening.opened(a)[0], opening.opened(b)[0]).all())


class _Pair:
    def __init__(self, a: ModelFile, b: ModelFile):
        self.a, self.b = a, b

    def all(self) -> Iterator[Difference]:
        a, b = self.a.model, self.b.model
        for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
            yield from _plain("model", "", field.replace("_", " "), getattr(a, field), getattr(b, field))
        yield from _maps("opset", _opsets(a), _opsets(b))
        yield from _maps("metadata", _metadata(a), _metadata(b))
        yield from self._graphs("", a.graph, b.graph)
        ours, theirs = ({function_key(f): f for f in model.functions} for model in (a, b))
        for key in _both(ours, theirs):
            name = qualified(key[0], key[1]) + (f" ({key[2]})" if key[2] else "")
            if key not in theirs or key not in ours:
                yield Difference("function", name, "only in A" if key in ours else "only in B")
            else:
                yield from self._functions(name, ours[key], theirs[key])
        yield from _others("model", "", a, b, ("training_info", "configuration"))

    def _functions(self, name: str, a: FunctionProto, b: FunctionProto) -> Iterator[Difference]:
        for field in ("input", "output", "attribute"):
            yield from _plain("function", name, f"{field}s", list(getattr(a, field)), list(getattr(b, field)))
        yield from _plain("function", name, "doc string", a.doc_string, b.doc_string)
        yield from _maps(f"function {name}: opset", _opsets(a), _opsets(b))
        yield from _maps(f"function {name}: metadata", _metadata(a), _metadata(b))
        yield from self._infos(f"function {name}: value", a.value_info, b.value_info)
        defaults = ({d.name: d for d in function.attribute_proto} for function in (a, b))
        yield from self._attributes("function", name, *defaults)
        yield from self._nodes(f"function {name}: ", a.node, b.node)

    def _graphs(self, where: str, a: GraphProto, b: GraphProto) -> Iterator[Difference]:
        yield from _plain(f"{where}graph", "", "name", a.name, b.name)
        yield from _plain(f"{where}graph", "", "doc string", a.doc_string, b.doc_string)
        yield from _maps(f"{where}graph: metadata", _metadata(a), _metadata(b))
        for kind, ours, theirs in (("input", a.input, b.input), ("output", a.output, b.output)):
            yield from self._infos(f"{where}{kind}", ours, theirs)
            yield from _order(f"{where}{kind}s", *([info.name for info in infos] for infos in (ours, theirs)))
        yield from self._infos(f"{where}value", a.value_info, b.value_info)
        yield from self._initializers(where, a, b)
        yield from self._nodes(where, a.node, b.node)
        notes = [
            {
                note.tensor_name: ", ".join(sorted(f"{e.key} = {e.value}" for e in note.quant_parameter_tensor_names))
                for note in notes
            }
            for notes in (a.quantization_annotation, b.quantization_annotation)
        ]
        yield from _maps(f"{where}quantization annotation", *notes)

    def _infos(self, kind: str, a: Sequence[ValueInfoProto], b: Sequence[ValueInfoProto]) -> Iterator[Difference]:
        yield from _maps(kind, *({info.name: _type(info.type) for info in infos} for infos in (a, b)))
        theirs = {info.name: info for info in b}
        for info in a:
            other = theirs.get(info.name, info)
            yield from _plain(kind, info.name, "doc string", info.doc_string, other.doc_string)
            yield from _plain(kind, info.name, "denotation", _denotation(info.type), _denotation(other.type))
            yield from _maps(f"{kind} {info.name}: metadata", _metadata(info), _metadata(other))

    # --- initializers ----------------------------------------------------------------------
    def _initializers(self, where: str, a: GraphProto, b: GraphProto) -> Iterator[Difference]:
        ours, theirs = ({t.name: t for t in graph.initializer} for graph in (a, b))
        kind = f"{where}initializer"
        for name in _both(ours, theirs):
            if name not in theirs or name not in ours:
                yield _lone(kind, name, name in ours, _shape(ours.get(name) or theirs[name]))
            else:
                yield from self._tensors(kind, name, ours[name], theirs[name])
        sparse = [{t.values.name: t for t in graph.sparse_initializer} for graph in (a, b)]
        for name in _both(*sparse):
            if name not in sparse[0] or name not in sparse[1]:
                yield _lone(f"{where}sparse initializer", name, name in sparse[0])
                continue
            yield from self._sparse(f"{where}sparse initializer", name, sparse[0][name], sparse[1][name])

    def _tensors(self, kind: str, name: str, a: TensorProto, b: TensorProto, what: str = "") -> Iterator[Difference]:
        if _shape(a) != _shape(b):
            yield Difference(kind, name, f"{what}{_shape(a)} became {_shape(b)}")
        elif digest(self.a, a) != digest(self.b, b):
            yield Difference(kind, name, f"{what}other values, {_shape(a)}")
        yield from _plain(kind, name, f"{what}doc string", a.doc_string, b.doc_string)
        yield from _maps(f"{kind} {name}: {what}metadata", _metadata(a), _metadata(b))

    # --- nodes -----------------------------------------------------------------------------
    def _nodes(self, where: str, a: Sequence[NodeProto], b: Sequence[NodeProto]) -> Iterator[Difference]:
        pairs = _matched(a, b)
        taken = {id(other) for _, other in pairs}
        matched = {id(node) for node, _ in pairs}
        for node in a:
            if id(node) not in matched:
                yield _lone(f"{where}node", _name(node), True, _operator(node))
        for node in b:
            if id(node) not in taken:
                yield _lone(f"{where}node", _name(node), False, _operator(node))
        for node, other in pairs:
            yield from self._node(where, node, other)
        place = {id(node): k for k, node in enumerate(b)}
        order = [place[id(other)] for _, other in pairs]
        if order != sorted(order):
            yield Difference(f"{where}nodes", "", "they stand in another order")

    def _node(self, where: str, a: NodeProto, b: NodeProto) -> Iterator[Difference]:
        kind, name = f"{where}node", _name(a)
        yield from _plain(kind, name, "operator", _operator(a), _operator(b))
        for field in ("name", "overload", "doc_string"):
            yield from _plain(kind, name, field.replace("_", " "), getattr(a, field), getattr(b, field))
        for field in ("input", "output"):
            yield from _plain(kind, name, f"{field}s", list(getattr(a, field)), list(getattr(b, field)))
        yield from _maps(f"{kind} {name}: metadata", _metadata(a), _metadata(b))
        attributes = ({attribute.name: attribute for attribute in node.attribute} for node in (a, b))
        yield from self._attributes(kind, f"{name} ({_operator(a)})", *attributes)
        yield from _others(kind, name, a, b, ("device_configurations",))

    def _attributes(self, kind: str, name: str, a: Mapping, b: Mapping) -> Iterator[Difference]:
        for key in _both(a, b):
            if key not in b:
                yield Difference(kind, name, f"attribute {key} = {_value(a[key])} only in A")
            elif key not in a:
                yield Difference(kind, name, f"attribute {key} = {_value(b[key])} only in B")
            else:
                yield from self._attribute(kind, name, a[key], b[key])

    def _attribute(self, kind: str, name: str, a: AttributeProto, b: AttributeProto) -> Iterator[Difference]:
        if a.type != b.type or a.ref_attr_name or b.ref_attr_name:
            if a != b:
                yield Difference(kind, name, f"attribute {a.name} {_value(a)} became {_value(b)}")
            return
        what = f"attribute {a.name}: "
        if a.type in _OF_MESSAGES:
            yield from _plain(kind, name, f"{what}doc string", a.doc_string, b.doc_string)
        for field in ("t", "sparse_tensor", "g"):
            if a.HasField(field) and b.HasField(field):
                yield from self._messages(kind, name, what, getattr(a, field), getattr(b, field))
            elif a.HasField(field) or b.HasField(field):
                yield Difference(kind, name, f"{what}a value only in {'A' if a.HasField(field) else 'B'}")
        for field in ("tensors", "sparse_tensors", "graphs"):
            ours, theirs = getattr(a, field), getattr(b, field)
            yield from _plain(kind, name, f"{what}number of {field.replace('_', ' ')}", len(ours), len(theirs))
            for one, other in zip(ours, theirs, strict=False):
                yield from self._messages(kind, name, what, one, other)
        if a.type not in _OF_MESSAGES and a != b:
            yield Difference(kind, name, f"attribute {a.name} {_value(a)} became {_value(b)}")

    def _messages(self, kind: str, name: str, what: str, a: Any, b: Any) -> Iterator[Difference]:
        """Of two tensors, sparse ones or graphs that stand in an attribute."""
        if isinstance(a, TensorProto):
            yield from self._tensors(kind, name, a, b, what)
        elif isinstance(a, GraphProto):
            yield from self._graphs(f"{what.removeprefix('attribute ').removesuffix(': ')} of {name}: ", a, b)
        else:
            yield from self._sparse(kind, name, a, b, what)

    def _sparse(self, kind: str, name: str, a: Any, b: Any, what: str = "") -> Iterator[Difference]:
        yield from _plain(kind, name, f"{what}dims", list(a.dims), list(b.dims))
        for part in ("values", "indices"):
            yield from self._tensors(kind, name, getattr(a, part), getattr(b, part), f"{what}{part}: ")


# --- data ------------------------------------------------------------------------------------
def digest(file: ModelFile, tensor: TensorProto) -> str:
    """The hash of a tensor's elements as ONNX stores them raw, however they are stored."""
    found = hashlib.sha256()
    for piece in _payload(file, tensor):
        found.update(piece)
    return found.hexdigest()


def _payload(file: ModelFile, tensor: TensorProto) -> Iterator[bytes]:
    if external.is_external(tensor):
        place = external.locate(tensor, file.base or Path())
        try:
            data = Source(open(place.file, "rb", buffering=0), place.file)  # noqa: SIM115
        except OSError as error:
            raise ModelFileError(f"tensor {tensor.name!r}: cannot read {place.file}: {error.strerror}") from None
        yield from _in_chunks(Part(data, place.start, place.size))
        return
    if tensor.HasField("raw_data"):
        token = wire.read_token(tensor.raw_data)
        if token is None:
            yield tensor.raw_data
        else:
            yield from _in_chunks(file.part(*token))
        return
    if tensor.data_type == TensorProto.STRING:
        for text in file.tensor(tensor).string_data:
            yield len(text).to_bytes(8, "little") + text
        return
    try:
        yield numpy_helper.from_array(numpy_helper.to_array(file.tensor(tensor))).raw_data
    except ValueError as error:
        raise ModelFileError(f"tensor {tensor.name!r}: {error}") from None


def _in_chunks(part: Part) -> Iterator[bytes]:
    for start in range(part.start, part.start + part.size, CHUNK):
        yield Part(part.source, start, min(CHUNK, part.start + part.size - start)).read()


# --- words -----------------------------------------------------------------------------------
def _matched(a: Sequence[NodeProto], b: Sequence[NodeProto]) -> list[tuple[NodeProto, NodeProto]]:
    """Nodes that belong together: those that make the same value, then those of the same name."""
    pairs: list[tuple[NodeProto, NodeProto]] = []
    ours, theirs = list(a), list(b)
    for keys in (_outputs, _names):
        by_key: dict[str, NodeProto] = {}
        for node in theirs:
            for key in keys(node):
                by_key.setdefault(key, node)
        taken: set[int] = set()
        matched: set[int] = set()
        for node in ours:
            other = next((by_key[key] for key in keys(node) if key in by_key and id(by_key[key]) not in taken), None)
            if other is not None:
                pairs.append((node, other))
                taken.add(id(other))
                matched.add(id(node))
        ours = [node for node in ours if id(node) not in matched]
        theirs = [node for node in theirs if id(node) not in taken]
    place = {id(node): k for k, node in enumerate(a)}
    return sorted(pairs, key=lambda pair: place[id(pair[0])])


def _outputs(node: NodeProto) -> list[str]:
    return [name for name in node.output if name]


def _names(node: NodeProto) -> list[str]:
    return [node.name] if node.name else []


def _name(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), node.op_type)


def _operator(node: NodeProto) -> str:
    return qualified(schemas.normal(node.domain), node.op_type)


def _opsets(model: ModelProto | FunctionProto) -> dict[str, str]:
    return {schemas.normal(o.domain) or "ai.onnx": str(o.version) for o in model.opset_import}


def _metadata(message: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in message.metadata_props}


def _type(proto: TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return f"{'seq' if kind == 'sequence_type' else 'optional'}({_type(getattr(proto, kind).elem_type)})"
    text = schemas.type_text(proto) or "no type"
    tensor = proto.sparse_tensor_type if kind == "sparse_tensor_type" else proto.tensor_type
    if not tensor.HasField("shape"):
        return text
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return f"{text}[{', '.join(dims)}]"


def _denotation(proto: TypeProto) -> str:
    """What a tensor and its dimensions are said to mean."""
    dims = [dim.denotation for dim in proto.tensor_type.shape.dim]
    return f"{proto.denotation}[{', '.join(dims)}]" if any(dims) else proto.denotation


def _shape(tensor: TensorProto) -> str:
    known = tensor.data_type in TensorProto.DataType.values()
    element = TensorProto.DataType.Name(tensor.data_type).lower() if known else f"type {tensor.data_type}"
    return f"{element}[{', '.join(map(str, tensor.dims))}]"


def _value(attribute: AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    if attribute.type == AttributeProto.TENSOR:
        return _shape(attribute.t)
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return "a graph"
    return _brief(schemas.value_of(attribute))


def _brief(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else " ".join(_text(value).split())
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float):
        return str(np.float32(value))  # of the digits only those that tell it from its neighbours
    if isinstance(value, str) and not re.fullmatch(r"[^\s,'\[\]]+", value):
        return repr(value)
    return str(value)


def _both(a: Iterable, b: Iterable) -> list:
    """The keys of both, those of A first."""
    return list(dict.fromkeys((*a, *b)))


def _lone(kind: str, name: str, in_a: bool, what: str = "") -> Difference:
    return Difference(kind, name, f"{f'{what} ' if what else ''}only in {'A' if in_a else 'B'}")


def _plain(kind: str, name: str, what: str, a: Any, b: Any) -> Iterator[Difference]:
    if a != b:
        yield Difference(kind, name, f"{what} {_brief(a)} became {_brief(b)}")


def _others(kind: str, name: str, a: Any, b: Any, fields: Iterable[str]) -> Iterator[Difference]:
    """Fields that are only said to differ; older versions of onnx lack some."""
    for field in fields:
        if field in a.DESCRIPTOR.fields_by_name and getattr(a, field) != getattr(b, field):
            yield Difference(kind, name, f"another {field.replace('_', ' ')}")


def _maps(kind: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    for name in _both(a, b):
        if name not in b or name not in a:
            yield _lone(kind, name, name in a, _brief_or_bare(a.get(name, b.get(name, ""))))
        elif a[name] != b[name]:
            yield Difference(kind, name, f"{_brief_or_bare(a[name])} became {_brief_or_bare(b[name])}")


def _brief_or_bare(text: str) -> str:
    return text if len(text) <= _LONG else _brief(text)


def _order(kind: str, a: list[str], b: list[str]) -> Iterator[Difference]:
    if a != b and sorted(a) == sorted(b):
        yield Difference(kind, "", f"in the order {_brief(a)}, then {_brief(b)}")
