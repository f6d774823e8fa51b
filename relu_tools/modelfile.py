"""Opens a model without reading its weights."""

from __future__ import annotations

import dataclasses
import mmap
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import onnx
from google.protobuf.message import DecodeError, EncodeError, Message

from relu_tools import external, textformats, wire
from relu_tools.outline import Outline, nodes_in, outline
from relu_tools.report import ModelFileError
from relu_tools.sources import CHUNK, Part, Source
from relu_tools.verbatim import Verbatim

LIMIT = 1 << 31
"""Bytes that a protobuf message stays below."""
_Message = TypeVar("_Message", bound=Message)
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x89PNG": "a PNG image",
    b"\x89HDF": "an HDF5 file",
    b"version https://git-lfs": "a pointer of Git LFS; `git lfs pull` fetches the file itself",
}


class Origin(NamedTuple):
    """The file that a model was read from, in the format of an ending, "" for binary.

    `canonical` is the model as protobuf serializes it; `skeleton` the binary file without weights where it differs from
    that.
    """

    source: Source
    ending: str
    canonical: bytes
    skeleton: bytes | None = None


@dataclasses.dataclass
class ModelFile:
    """A model and where its weights are.

    `content` is the model without the payloads of its large tensors; such a tensor may be copied, moved and dropped
    like any other. External data is looked for in `base`, the folder of `path` unless given. The payloads are in the
    file that the model comes from and in `others`.
    """

    content: onnx.ModelProto | Outline
    path: Path | None = None
    base: Path | None = None
    origin: Origin | None = dataclasses.field(default=None, repr=False)
    others: tuple[Source, ...] = dataclasses.field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.base is None and self.path is not None:
            self.base = self.path.parent

    @property
    def model(self) -> onnx.ModelProto:
        """The content as a message."""
        if isinstance(self.content, Outline):
            try:
                self.content = onnx.ModelProto.FromString(self.content.serialize())
            except DecodeError as error:
                raise ModelFileError(f"{self.path or 'the model'} cannot be read whole: {error}") from None
        return self.content

    @property
    def top(self) -> onnx.ModelProto:
        """The model, which may lack the nodes of its graph; a model with functions does not."""
        return self.content.model if isinstance(self.content, Outline) else self.content

    def tensor(self, proto: onnx.TensorProto) -> onnx.TensorProto:
        """The tensor with its data inside, read from where it lies; itself if it has it."""
        if external.is_external(proto):
            return self._read_external(proto)
        return self._filled(proto)

    def whole(self) -> onnx.ModelProto:
        """The model with the weights inside, all but external data, in memory."""
        return self._filled(self.model)

    def pieces(self, ending: str = "") -> list[bytes | Part]:
        """The file in the format of an ending, "" for binary: bytes, and parts of other files."""
        origin = self.origin
        skeleton = _serialize(self.content)
        if origin is not None and origin.ending == ending and skeleton == origin.canonical:
            return [Part(origin.source, 0, origin.source.size)]
        if ending:
            return [textformats.to_text(self.whole(), ending).encode()]
        if origin is not None and origin.skeleton is not None:
            skeleton = Verbatim(origin.skeleton, origin.canonical).restore(skeleton)
        return wire.put_in(skeleton, onnx.ModelProto, self.part)

    def is_unchanged(self) -> bool:
        """Whether the model is what the file holds that it was read from."""
        return self.origin is not None and _serialize(self.content) == self.origin.canonical

    def part(self, salt: bytes, index: int) -> Part:
        """The payload that a token stands for."""
        for source in (*([self.origin.source] if self.origin is not None else []), *self.others):
            if salt == source.salt and index < len(source.parts):
                return Part(source, *source.parts[index])
        raise ModelFileError("the model holds a tensor of another file, without its data")

    def _filled(self, proto: _Message) -> _Message:
        serialized = _serialize(proto)
        if not wire.has_token(serialized):
            return proto
        pieces = wire.put_in(serialized, type(proto), self.part)
        if wire.size(pieces) >= LIMIT:
            raise ModelFileError("more than 2 GB of weights do not fit into one protobuf message in memory")
        try:
            return wire.parse(type(proto), b"".join(p if isinstance(p, bytes) else p.read() for p in pieces))
        except wire.WireError as error:
            raise ModelFileError(f"the data of a tensor is damaged: {error}") from None

    def _read_external(self, proto: onnx.TensorProto) -> onnx.TensorProto:
        if self.base is None:
            raise ModelFileError(f"tensor {proto.name!r}: its data is external, and the folder of the model is unknown")
        place = external.locate(proto, self.base)
        full = onnx.TensorProto()
        full.CopyFrom(proto)
        full.ClearField("external_data")
        full.ClearField("data_location")
        try:
            with open(place.file, "rb", buffering=0) as file:
                full.raw_data = Part(Source(file, place.file), place.start, place.size).read()
        except OSError as error:
            raise ModelFileError(f"tensor {proto.name!r}: cannot read {place.file}: {error.strerror}") from None
        return full


def open_model(source: str | os.PathLike[str] | BinaryIO, *, base: Path | None = None) -> ModelFile:
    """The model in a file or a binary stream; "-" is standard input.

    The ending of a path tells the format: `.onnxtxt`, `.json` and `.textproto` are text, all others binary. `base` is
    the folder of external data where that is not the folder of the file. Raises ModelFileError.
    """
    path = Path(source) if isinstance(source, (str, os.PathLike)) and str(source) != "-" else None
    name = "the input" if path is None else str(path)
    ending = path.suffix.lower() if path is not None else ""
    try:
        if path is not None:
            stream = _open_path(path)
        else:
            stream = _open_stream(sys.stdin.buffer if isinstance(source, (str, os.PathLike)) else source)
        # What came through a pipe is in a file without a name.
        opened = Source(stream, path if path is not None and path.is_file() else None)
        if ending in textformats.FORMATS:
            content = textformats.from_text(Part(opened, 0, opened.size).read().decode("utf-8"), ending)
            origin = Origin(opened, ending, _serialize(content))
        else:
            content, origin = _skeleton(opened)
    except OSError as error:
        raise ModelFileError(f"cannot read {name}: {error.strerror or error}") from None
    except wire.WireError as error:
        raise ModelFileError(f"{name} is not an ONNX model, or is damaged: {error}") from None
    except (ModelFileError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{name} is not an ONNX model: {error}") from None
    file = ModelFile(content, path, base, origin)
    if not file.top.HasField("graph"):
        raise ModelFileError(f"{name} is not an ONNX model: it has no graph")
    return file


def _open_path(path: Path) -> BinaryIO:
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise ModelFileError("it is a device")
    file = open(path, "rb", buffering=0)  # noqa: SIM115
    return file if stat.S_ISREG(mode) else _spool(file)


def _open_stream(stream: BinaryIO) -> BinaryIO:
    """The stream itself where it is a whole file, else a temporary file with what it yields."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # A stream in memory has no file.
        return _spool(stream)
    if stat.S_ISCHR(mode):
        raise ModelFileError("it is a terminal or another device")
    if stat.S_ISREG(mode) and stream.tell() == 0:
        return os.fdopen(os.dup(stream.fileno()), "rb", buffering=0)
    return _spool(stream)


def _spool(stream: BinaryIO) -> BinaryIO:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    shutil.copyfileobj(stream, file, CHUNK)
    return file


def _skeleton(source: Source) -> tuple[onnx.ModelProto | Outline, Origin]:
    if source.size == 0:
        raise ModelFileError("it is empty")
    head = Part(source, 0, min(source.size, 64)).read()
    try:
        with mmap.mmap(source.file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            nodes = nodes_in(buffer, wire.THRESHOLD)
            skeleton, spans = wire.take_out(buffer, source.salt, nodes.span if nodes else None)
        content = outline(skeleton, nodes) or wire.parse(onnx.ModelProto, skeleton)
    except wire.WireError:
        if guess := _guess(head):
            raise ModelFileError(f"it is {guess}") from None
        raise
    source.parts += spans
    canonical = _serialize(content)
    return content, Origin(source, "", canonical, None if skeleton == canonical else skeleton)


def _guess(head: bytes) -> str | None:
    """What a file that is no model seems to be."""
    for start, kind in _FOREIGN.items():
        if head.startswith(start):
            return kind
    is_text = all(0x20 <= byte < 0x7F or byte in b"\t\n\r" for byte in head)
    return f"text; models in text end in {', '.join(textformats.FORMATS)}" if is_text else None


def _serialize(content: Message | Outline) -> bytes:
    try:
        return content.serialize() if isinstance(content, Outline) else content.SerializeToString()
    except (ValueError, EncodeError) as error:
        raise ModelFileError(f"the model cannot be serialized: {error}") from None
