"""A model as protobuf bytes: takes the weights out of them, and puts them back, without parsing or copying a weight.

Where a payload was, a token stands: 32 ASCII bytes in the very field that held it. ASCII is a valid content of every
payload field (bytes, packed varints of one byte each, packed floats and doubles that are finite), it comes out of
protobuf as it went in, and dims and data_type stay readable beside it. The format walked here is described in
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import bisect
import functools
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import onnx
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

THRESHOLD = 1024
"""Bytes from which on a payload is taken out."""
SHAPE_LIMIT = 64 * 1024
"""Bytes up to which a tensor that may be a shape is never taken out."""
GRAPHS = 64
"""Graphs that may lie within one another in a model, the outermost not counted."""
_RESIDENT = 16 << 20
# A graph, its node and the attribute that holds the next graph are three messages; types and tensors have some more.
_MAX_DEPTH = 3 * GRAPHS + 8
_PAYLOADS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_TOKEN = re.compile(rb"~weight~([0-9a-f]{16})([0-9a-f]{8})")

Buffer = bytes | mmap.mmap
Layout = dict[int, Any]
_Message = TypeVar("_Message", bound=message.Message)


class WireError(ValueError):
    """Bytes that are no protobuf message, or not one that onnx can read; a clause that says why."""


class Span(NamedTuple):
    """`size` bytes from byte `start` of the file that a model came from."""

    start: int
    size: int


class Sized(Protocol):
    """Bytes that lie elsewhere, such as a `Span`."""

    @property
    def size(self) -> int: ...


Piece = bytes | Sized


def token(salt: bytes, index: int) -> bytes:
    """What stands for a payload."""
    return b"~weight~%s%08x" % (salt, index)


def read_token(data: bytes) -> tuple[bytes, int] | None:
    """The salt and the index of a token; None where the bytes are no token, or not one alone."""
    match = _TOKEN.fullmatch(data)
    return (match[1], int(match[2], 16)) if match else None


def take_out(model: Buffer, salt: bytes, small: Span | None = None) -> tuple[bytes, list[Span]]:
    """A serialized ModelProto with tokens for its large payloads, and where those lie.

    `salt`, 16 hexadecimal digits, tells the tokens of one file from those of another. What shape inference may read
    stays: integers of at most one dimension and 64 KiB. `small` are fields known to hold no large payload.
    """
    spans: list[Span] = []
    forgotten = 0

    def wanted(start: int, size: int, layout: Layout | None) -> bool:
        return size >= THRESHOLD and not (
            layout is _TENSOR and size <= SHAPE_LIMIT and is_shape(parse(onnx.TensorProto, model[start : start + size]))
        )

    def replaced(start: int, size: int) -> list[Piece]:
        nonlocal forgotten
        if start - forgotten > _RESIDENT and isinstance(model, mmap.mmap) and hasattr(model, "madvise"):
            # One touched byte can map 2 MiB, and what has been walked is not needed again.
            model.madvise(mmap.MADV_DONTNEED)
            forgotten = start
        spans.append(Span(start, size))
        return [token(salt, len(spans) - 1)]

    pieces = _rewrite(model, onnx.ModelProto, wanted, replaced, THRESHOLD, small)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes)), spans


def put_in(skeleton: bytes, kind: type[message.Message], weight: Callable[[bytes, int], Sized]) -> list[Any]:
    """The serialized message with each token replaced by `weight(salt, index)` and all lengths made right."""
    found = [match.start() for match in _TOKEN.finditer(skeleton)]
    if not found:
        return [skeleton]

    def wanted(start: int, size: int, layout: Layout | None) -> bool:
        at = bisect.bisect_left(found, start)
        return at < len(found) and found[at] < start + size

    def weights(start: int, size: int) -> list[Piece]:
        # Two chunks of a packed field are one field once they are parsed, so a token may have neighbours.
        pieces: list[Piece] = []
        position = start
        for match in _TOKEN.finditer(skeleton, start, start + size):
            pieces += [skeleton[position : match.start()], weight(match[1], int(match[2], 16))]
            position = match.end()
        return [*pieces, skeleton[position : start + size]]

    return _rewrite(skeleton, kind, wanted, weights)


def size(pieces: Sequence[Piece]) -> int:
    """What the pieces take together, in bytes."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)


def fields(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message that protobuf can read: tag, where the length stands, content from where to where.

    The content of a field without a length begins where the length would stand.
    """
    while position < end:
        tag, position = varint(buffer, position, end)
        prefix = start = position
        wire = tag & 7
        if wire == _DELIMITED:
            length, start = varint(buffer, position, end)
            position = start + length
        elif wire == _VARINT:
            _, position = varint(buffer, position, end)
        else:
            position += 8 if wire == _FIXED64 else 4
        yield tag, prefix, start, position


def has_token(data: bytes) -> bool:
    """Whether the bytes hold a token of any file."""
    return _TOKEN.search(data) is not None


def parse(kind: type[_Message], data: bytes) -> _Message:
    """The message; WireError where protobuf cannot read it or a string is not UTF-8, which protobuf lets through."""
    deeper = lift_depth.cache_info().currsize > 0
    if deeper:
        _check_depth(data, kind.DESCRIPTOR)
    try:
        _strict(kind.DESCRIPTOR.full_name).FromString(data)
        return kind.FromString(data)
    except message.DecodeError as error:
        if deeper or "depth" not in str(error).lower():
            raise WireError(str(error).rsplit(": ", 1)[-1]) from None
    _check_depth(data, kind.DESCRIPTOR)
    lift_depth()
    return parse(kind, data)


@functools.cache
def lift_depth() -> None:
    """Lets protobuf read and copy more than 100 messages within one another, which is 32 graphs, in this process.

    Raises WireError where protobuf cannot be told. Its new limit would be of no use against a message made to overflow
    the stack, so that how deep a message is has to be known before it is read.
    """
    try:
        from google._upb import _message

        _message.SetAllowOversizeProtos(True)
    except (ImportError, AttributeError):
        raise WireError("it is nested more than 100 messages deep, which this protobuf cannot read") from None


def _check_depth(data: bytes, kind: Any) -> None:
    waiting = [(0, len(data), kind, 1)]
    while waiting:
        position, end, kind, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise WireError(f"it is nested more than {_MAX_DEPTH} messages deep")
        kinds = message_fields(kind)
        for tag, _, start, after in fields(data, position, end):
            if tag & 7 not in (_VARINT, _FIXED64, _DELIMITED, _FIXED32):
                raise WireError("it holds a group, which ONNX has not")
            if tag & 7 == _DELIMITED and tag >> 3 in kinds:
                waiting.append((start, min(after, end), kinds[tag >> 3], depth + 1))


@functools.cache
def message_fields(kind: Any) -> dict[int, Any]:
    """The fields of a message descriptor that hold messages, by number, with their descriptors."""
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


@functools.cache
def tensor_fields(kind: Any) -> list[Any]:
    """The fields of a message descriptor through which a TensorProto can be reached."""
    return [f for f in kind.fields if f.message_type is not None and _reaches_tensor(f.message_type, frozenset())]


def _reaches_tensor(kind: Any, seen: frozenset[str]) -> bool:
    return kind.full_name == "onnx.TensorProto" or any(
        field.message_type.full_name not in seen and _reaches_tensor(field.message_type, seen | {kind.full_name})
        for field in kind.fields
        if field.message_type is not None
    )


_LAYOUTS: dict[str, Layout] = {}


def _layout(kind: Any) -> Layout:
    """By tag, what to look into: the layout of a sub-message that may hold tensors, None for a payload."""
    if kind.full_name in _LAYOUTS:
        return _LAYOUTS[kind.full_name]
    layout = _LAYOUTS[kind.full_name] = {}
    if kind.full_name == "onnx.TensorProto":
        layout |= {field.number << 3 | _DELIMITED: None for field in kind.fields if field.name in _PAYLOADS}
    else:
        layout |= {field.number << 3 | _DELIMITED: _layout(field.message_type) for field in tensor_fields(kind)}
    return layout


_TENSOR = _layout(onnx.TensorProto.DESCRIPTOR)


def is_shape(tensor: onnx.TensorProto) -> bool:
    """Shape inference fails where the values of an operand such as Reshape's have been taken out."""
    return len(tensor.dims) <= 1 and tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


@functools.cache
def _strict(name: str) -> type[message.Message]:
    """The message class under the rules of proto3, which differ for reading in that strings must be UTF-8."""
    file = descriptor_pb2.FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _rewrite(
    buffer: Buffer,
    kind: type[message.Message],
    wanted: Callable[[int, int, Layout | None], bool],
    replace: Callable[[int, int], list[Piece]],
    least: int = 0,
    unwanted: Span | None = None,
) -> list[Piece]:
    """The message in pieces, each payload that is wanted, in a sub-message that is wanted, replaced.

    What has fewer than `least` bytes is not wanted, nor what the fields of `unwanted` hold.
    """
    short = least > 0x7F
    passed, jump = unwanted or Span(0, 0)

    def walk(position: int, end: int, layout: Layout, depth: int) -> list[Piece]:
        if depth > _MAX_DEPTH:
            raise WireError(f"it is nested more than {_MAX_DEPTH} messages deep")
        pieces: list[Piece] = []
        kept = position
        while position < end:
            field = position
            if field == passed and jump:
                position += jump
                continue
            tag = buffer[position]
            if short and tag & 0x87 == _DELIMITED and (length := buffer[position + 1]) <= 0x7F:
                # Most fields take a hundred bytes or so: nothing to look into.
                position += 2 + length
                if position > end:
                    raise WireError(f"the field at byte {field} runs past the end")
                continue
            position += 1
            if tag > 0x7F:
                tag, position = varint(buffer, field, end)
            wire = tag & 7
            if wire == _DELIMITED:
                prefix = position
                length = buffer[position]
                position += 1
                if length > 0x7F:
                    length, position = varint(buffer, prefix, end)
                after = position + length
                if after > end:
                    raise WireError(f"the field at byte {field} runs past the end")
                if tag in layout and wanted(position, length, layout[tag]):
                    inner = layout[tag]
                    new = replace(position, length) if inner is None else walk(position, after, inner, depth + 1)
                    pieces += [buffer[kept:prefix], encode(size(new)), *new]
                    kept = after
                position = after
            elif wire == _VARINT:
                _, position = varint(buffer, position, end)
            elif wire == _FIXED64:
                position += 8
            elif wire == _FIXED32:
                position += 4
            else:
                raise WireError(f"byte {field} starts a group, which ONNX has not")
        return [*pieces, buffer[kept:end]] if kept < end else pieces

    try:
        return walk(0, len(buffer), _layout(kind.DESCRIPTOR), 1)
    except IndexError:
        raise WireError("it ends in the middle of a field") from None


def varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The value of the varint at `position`, and the position behind it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"the number before byte {position} has no end")


def encode(value: int) -> bytes:
    """`value` as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
