"""Opens a model without reading its weights and writes one by copying them from file to file."""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import hashlib
import mmap
import os
import secrets
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import onnx
from google.protobuf.message import EncodeError, Message

from relu_tools import external, textformats, wire
from relu_tools.report import ModelFileError

_CHUNK = 1 << 20
_KERNEL_CHUNK = 1 << 28
_KERNEL_WORTH = 1 << 16
_Message = TypeVar("_Message", bound=Message)
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x89PNG": "a PNG image",
    b"\x89HDF": "an HDF5 file",
    b"version https://git-lfs": "a pointer of Git LFS; `git lfs pull` fetches the file itself",
}


class Source:
    """A file that weights are copied from: kept open, and checked to be what it was when it was opened."""

    def __init__(self, file: BinaryIO, path: Path | None):
        self.file, self.path = file, path
        self.salt = secrets.token_hex(8).encode()
        self.spans: list[wire.Span] = []
        self.digest = b""
        self._stamp = _stamp(os.fstat(file.fileno()))
        weakref.finalize(self, file.close)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._stamp[2]

    def check(self) -> None:
        """ModelFileError if the file has changed since."""
        try:
            now = [os.fstat(self.file.fileno()), *([os.stat(self.path)] if self.path else [])]
        except OSError as error:
            raise ModelFileError(f"{self.path} has gone since it was opened: {error.strerror}") from None
        if any(_stamp(status) != self._stamp for status in now):
            raise ModelFileError(f"{self.path or 'the input'} has changed since it was opened")

    def read(self, span: wire.Span) -> bytes:
        self.check()
        return b"".join(_chunks(self.file, span))


@dataclasses.dataclass
class ModelFile:
    """A model and where its weights are.

    `model` lacks the payloads of its large tensors; such a tensor may be copied, moved and dropped like any other.
    External data is looked for in `base`, the folder of `path` unless given.
    """

    model: onnx.ModelProto
    path: Path | None = None
    base: Path | None = None
    source: Source | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.base is None and self.path is not None:
            self.base = self.path.parent

    def tensor(self, proto: onnx.TensorProto) -> onnx.TensorProto:
        """The tensor with its data inside, read from where it lies; itself if it has it."""
        if external.is_external(proto):
            return self._read_external(proto)
        return self._filled(proto)

    def whole(self) -> onnx.ModelProto:
        """The model with the weights inside, all but external data, in memory."""
        return self._filled(self.model)

    def pieces(self) -> list[wire.Piece]:
        """The serialized model: bytes, and spans of the source."""
        skeleton = _serialize(self.model)
        if self.source is not None and hashlib.sha256(skeleton).digest() == self.source.digest:
            # Protobuf puts fields into an order of its own; a model that nobody changed stays in that of its file.
            return [wire.Span(0, self.source.size)]
        return wire.put_in(skeleton, onnx.ModelProto, self._weight)

    def _weight(self, salt: bytes, index: int) -> wire.Span:
        if self.source is None or salt != self.source.salt or index >= len(self.source.spans):
            raise ModelFileError("the model holds a tensor of another file, without its data")
        return self.source.spans[index]

    def _filled(self, proto: _Message) -> _Message:
        serialized = _serialize(proto)
        if not wire.has_token(serialized):
            return proto
        pieces = wire.put_in(serialized, type(proto), self._weight)
        if wire.size(pieces) >= 1 << 31:
            raise ModelFileError("more than 2 GB of weights do not fit into one protobuf message in memory")
        try:
            return wire.parse(type(proto), b"".join(map(self._read, pieces)))
        except wire.WireError as error:
            raise ModelFileError(f"the data of a tensor is damaged: {error}") from None

    def _read(self, piece: wire.Piece) -> bytes:
        if isinstance(piece, bytes):
            return piece
        assert self.source is not None
        return self.source.read(piece)

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
                full.raw_data = b"".join(_chunks(file, wire.Span(place.start, place.size)))
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
    origin = None
    try:
        if path is not None and path.suffix.lower() in textformats.FORMATS:
            model = textformats.from_text(path.read_text("utf-8"), path.suffix.lower())
        else:
            stream = sys.stdin.buffer if isinstance(source, (str, os.PathLike)) else source
            origin = Source(_open_path(path) if path is not None else _open_stream(stream), path)
            model = _skeleton(origin)
    except OSError as error:
        raise ModelFileError(f"cannot read {name}: {error.strerror or error}") from None
    except wire.WireError as error:
        raise ModelFileError(f"{name} is not an ONNX model, or is damaged: {error}") from None
    except (ModelFileError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{name} is not an ONNX model: {error}") from None
    if not model.HasField("graph"):
        raise ModelFileError(f"{name} is not an ONNX model: it has no graph")
    return ModelFile(model, path, base, origin)


def write_model(file: ModelFile, target: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Writes the model with its weights, in the format of the target's ending; "-" is standard output, binary.

    The target gets its content whole or keeps what it had. External data stays where it is if the target lies in the
    same folder and is copied beside the target if not. Raises ModelFileError, also where the target, or a data file
    that differs, exists and `overwrite` is false.
    """
    if str(target) == "-":
        with _one_sentence("cannot write to standard output"):
            _emit(file.pieces(), file.source, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    with _one_sentence(f"cannot write {target}"):
        _write_path(file, Path(target), overwrite)


def _write_path(file: ModelFile, target: Path, overwrite: bool) -> None:
    # A link stays, and what it points at is replaced.
    real = Path(os.path.realpath(target))
    if not real.parent.is_dir():
        raise ModelFileError(f"cannot write {target}: there is no folder {real.parent}")
    existing = real.stat().st_mode if real.exists() else None
    if existing is not None and stat.S_ISREG(existing) and not overwrite:
        raise ModelFileError(f"{target} exists; --force overwrites it")
    ending = target.suffix.lower()
    is_text = ending in textformats.FORMATS
    pieces = [textformats.to_text(file.whole(), ending).encode()] if is_text else file.pieces()
    if existing is not None and not stat.S_ISREG(existing):
        with open(real, "wb") as out:
            _emit(pieces, file.source, out)
        return
    with contextlib.ExitStack() as undo:
        renames: list[tuple[Path, Path]] = []
        for data, copy in _data_copies(file, target, overwrite):
            with open(data, "rb", buffering=0) as origin, _stage(copy, undo, renames) as out:
                _copy(origin, wire.Span(0, data.stat().st_size), out)
        with _stage(real, undo, renames) as out:
            _emit(pieces, file.source, out)
        for temporary, final in renames:
            os.replace(temporary, final)
    if file.source is not None and file.source.path is not None and os.path.realpath(file.source.path) == str(real):
        # The name now belongs to what was written; the source lives on, nameless.
        file.source.path = None


def _data_copies(file: ModelFile, target: Path, overwrite: bool) -> list[tuple[Path, Path]]:
    """The files of external data to copy, from where to where."""
    copies = []
    seen: set[str] = set()
    for tensor in external.external_tensors(file.model):
        name = external.check(tensor, file.base)
        if name in seen:
            continue
        seen.add(name)
        copy = target.parent / external.check(tensor, target.parent)
        if os.path.realpath(target) in (os.path.realpath(copy), os.path.realpath((file.base or target.parent) / name)):
            raise ModelFileError(f"cannot write {target}: tensor {tensor.name!r} keeps its data there")
        if file.base is None:
            if not copy.is_file():
                raise ModelFileError(
                    f"tensor {tensor.name!r}: its data is external, and the folder of the model is unknown"
                )
        elif not os.path.samefile(file.base, target.parent):
            data = file.base / name
            if not data.is_file():
                raise ModelFileError(f"tensor {tensor.name!r}: its data in {data} is missing")
            if not copy.exists():
                copies.append((data, copy))
            elif not filecmp.cmp(data, copy, shallow=False):
                if not overwrite:
                    raise ModelFileError(f"{copy}, for the data of {tensor.name!r}, exists; --force overwrites it")
                copies.append((data, copy))
    return copies


@contextlib.contextmanager
def _stage(target: Path, undo: contextlib.ExitStack, renames: list[tuple[Path, Path]]) -> Iterator[BinaryIO]:
    """A temporary file to be renamed to `target`, with its mode; `undo` removes what has not been renamed."""
    for folder in reversed([folder for folder in target.parents if not folder.exists()]):
        folder.mkdir()
        undo.callback(_forgiving, folder.rmdir)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    undo.callback(_forgiving, temporary.unlink)
    with open(temporary, "xb") as out:
        if target.exists():
            shutil.copymode(target, temporary)
        yield out
    renames.append((temporary, target))


def _forgiving(action: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        action()


@contextlib.contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{what}: {error.strerror or error}") from None


def _emit(pieces: Sequence[wire.Piece], source: Source | None, out: BinaryIO) -> None:
    """Writes the pieces, the spans among them from the source."""
    if source is not None:
        source.check()
    for piece in pieces:
        if isinstance(piece, bytes):
            out.write(piece)
        elif source is not None:
            _copy(source.file, piece, out)
    if source is not None:
        source.check()


def _copy(file: BinaryIO, span: wire.Span, out: BinaryIO) -> None:
    """Copies the span, by the kernel where it can."""
    start, left = span
    if left >= _KERNEL_WORTH and hasattr(os, "copy_file_range"):
        # Any failure, such as a pipe or another file system, is left to the plain copy below, which knows its own.
        with contextlib.suppress(OSError):
            out.flush()
            while left and (done := os.copy_file_range(file.fileno(), out.fileno(), min(left, _KERNEL_CHUNK), start)):
                start, left = start + done, left - done
    for chunk in _chunks(file, wire.Span(start, left)):
        out.write(chunk)


def _chunks(file: BinaryIO, span: wire.Span) -> Iterator[bytes]:
    start, left = span
    file.seek(start)
    while left:
        chunk = file.read(min(left, _CHUNK))
        if not chunk:
            raise ModelFileError("a file with weights has become shorter while it was read")
        left -= len(chunk)
        yield chunk


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
    shutil.copyfileobj(stream, file, _CHUNK)
    return file


def _skeleton(source: Source) -> onnx.ModelProto:
    if source.size == 0:
        raise ModelFileError("it is empty")
    head = source.read(wire.Span(0, min(source.size, 64)))
    try:
        with mmap.mmap(source.file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            skeleton, source.spans = wire.take_out(buffer, source.salt)
        model = wire.parse(onnx.ModelProto, skeleton)
    except wire.WireError:
        if guess := _guess(head):
            raise ModelFileError(f"it is {guess}") from None
        raise
    source.digest = hashlib.sha256(_serialize(model)).digest()
    return model


def _guess(head: bytes) -> str | None:
    """What a file that is no model seems to be."""
    for start, kind in _FOREIGN.items():
        if head.startswith(start):
            return kind
    is_text = all(0x20 <= byte < 0x7F or byte in b"\t\n\r" for byte in head)
    return f"text; models in text end in {', '.join(textformats.FORMATS)}" if is_text else None


def _serialize(proto: Message) -> bytes:
    try:
        return proto.SerializeToString()
    except (ValueError, EncodeError) as error:
        raise ModelFileError(f"the model cannot be serialized: {error}") from None


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
