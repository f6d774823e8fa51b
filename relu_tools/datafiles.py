"""Where the data of a written model's external tensors goes."""

from __future__ import annotations

import dataclasses
import filecmp
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

import onnx
from onnx import TensorProto, numpy_helper

from relu_tools import external, textformats, wire
from relu_tools.modelfile import ModelFile
from relu_tools.outline import Outline
from relu_tools.report import ModelFileError
from relu_tools.sources import Part, Source

MODES = ("keep", "copy", "embed")
# The endings of models, which no data file takes the place of.
_MODELS = (".onnx", ".pb", ".ort", *textformats.FORMATS)
ALIGNMENT = 4096
"""Of offsets in a new data file, in bytes, so that runtimes can map the data (onnx.proto, `external_data`)."""

_Content = Callable[[], bytes | Part]


class DataFile(NamedTuple):
    """A file to write beside the model."""

    path: Path
    pieces: Iterable[bytes | Part]


def settle(file: ModelFile, target: Path, how: str | None, overwrite: bool) -> tuple[ModelFile, list[DataFile]]:
    """The model as it is to be written, and the files to write with it; `how` is as for `write_model`."""
    if how is not None and how not in MODES:
        return _gathered(file, target, how, overwrite)
    tensors = [] if isinstance(file.content, Outline) else external.external_tensors(file.model)
    if not tensors:
        return file, []
    if how == "embed":
        return _embedded(file), []
    for tensor in tensors:
        _check_place(file, target, tensor)
    if file.base is not None and target.parent.is_dir() and os.path.samefile(file.base, target.parent):
        return _copied_here(file, target, overwrite) if how == "copy" else (file, [])
    if how == "keep":
        _check_found(file, target, tensors)
        return file, []
    return file, _copied(file, target, tensors, overwrite)


def without_folder(file: ModelFile, how: str | None) -> ModelFile:
    """The model as it is to be written where no file can lie beside it."""
    if how == "embed":
        return _embedded(file)
    if how in (None, "keep"):
        return file
    raise ModelFileError("--external-data needs a file to write the model to, and a folder beside it")


def _check_place(file: ModelFile, target: Path, tensor: TensorProto) -> None:
    name = external.check(tensor, file.base)
    copy = target.parent / external.check(tensor, target.parent)
    here = (file.base or target.parent) / name
    if os.path.realpath(target) in (os.path.realpath(copy), os.path.realpath(here)):
        raise ModelFileError(f"cannot write {target}: tensor {tensor.name!r} keeps its data there")
    if here.exists():
        external.locate(tensor, file.base or target.parent)


def _check_found(file: ModelFile, target: Path, tensors: list[TensorProto]) -> None:
    """Refuses what would part the model from its data, which is looked for beside the target alone."""
    for name, tensor in {external.location(tensor): tensor for tensor in tensors}.items():
        there = target.parent / name
        here = file.base / name if file.base is not None else there
        if not there.is_file() or (here.is_file() and not filecmp.cmp(here, there, shallow=False)):
            what = "other data is" if there.is_file() else "nothing is"
            raise ModelFileError(
                f"cannot write {target}: the data of {tensor.name!r} would stay in {here}, and {what} in {there}; "
                "--external-data copy takes it there"
            )


# --- whole files -----------------------------------------------------------------------------
def _copied(file: ModelFile, target: Path, tensors: list[TensorProto], overwrite: bool) -> list[DataFile]:
    """The data files of another folder, under the names that they have there."""
    copies = {}
    for tensor in tensors:
        name = external.location(tensor)
        copy = target.parent / name
        if name in copies:
            continue
        if file.base is None:
            if not copy.is_file():
                raise ModelFileError(
                    f"tensor {tensor.name!r}: its data is external, and the folder of the model is unknown"
                )
            continue
        data = file.base / name
        if not data.is_file():
            raise external.missing(tensor, data)
        if copy.exists():
            if filecmp.cmp(data, copy, shallow=False):
                continue
            if not overwrite:
                raise ModelFileError(f"{copy}, for the data of {tensor.name!r}, exists; --force overwrites it")
        copies[name] = DataFile(copy, _whole(data))
    return list(copies.values())


def _copied_here(file: ModelFile, target: Path, overwrite: bool) -> tuple[ModelFile, list[DataFile]]:
    """A copy of each data file beside it, named after the model that is written."""
    model = _copy(file.model)
    copies = {}
    for tensor in external.external_tensors(model):
        name = PurePosixPath(external.location(tensor))
        data = target.parent / name
        copy = data.with_name(f"{target.stem}.{name.name}")
        if not data.is_file():
            raise external.missing(tensor, data)
        if copy.exists() and not overwrite:
            raise ModelFileError(f"{copy}, for the data of {tensor.name!r}, exists; --force overwrites it")
        copies[name] = DataFile(copy, _whole(data))
        external.tell(tensor, location=str(name.with_name(copy.name)))
    written = {os.path.realpath(copy.path) for copy in copies.values()}
    for name in copies:
        if os.path.realpath(target.parent / name) in written:
            raise ModelFileError(f"cannot write {target}: a copy of its data would take the place of {name}")
    return dataclasses.replace(file, content=model), list(copies.values())


def _whole(path: Path) -> Iterator[Part]:
    source = _opened(path)
    yield Part(source, 0, source.size)


# --- tensors into the model --------------------------------------------------------------------
def _embedded(file: ModelFile) -> ModelFile:
    tensors = external.external_tensors(file.model)
    if not tensors:
        return file
    model = _copy(file.model)
    sources: dict[Path, Source] = {}
    for tensor in external.external_tensors(model):
        part = _external_part(file, tensor, sources)
        for field in ("external_data", "data_location"):
            tensor.ClearField(field)
        part.source.parts.append((part.start, part.size))
        tensor.raw_data = wire.token(part.source.salt, len(part.source.parts) - 1) if part.size else b""
    return dataclasses.replace(file, content=model, others=(*file.others, *sources.values()))


# --- tensors into one file ---------------------------------------------------------------------
def _gathered(file: ModelFile, target: Path, name: str, overwrite: bool) -> tuple[ModelFile, list[DataFile]]:
    """All large tensors in the file of that name beside the model."""
    path = _beside(target, name)
    model = _copy(file.model)
    sources: dict[Path, Source] = {}
    places: dict[object, int] = {}
    contents: list[tuple[int, int, _Content]] = []
    end = 0
    for original, tensor in zip(*(external.tensors(m, sparse=False) for m in (file.model, model)), strict=True):
        found = _content(file, original, sources)
        if found is None:
            continue
        key, size, content = found
        start = places.get(key)
        if start is None:
            start = places[key] = math.ceil(end / ALIGNMENT) * ALIGNMENT
            contents.append((start, size, content))
            end = start + size
        for field in external.PAYLOADS:
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        # What is said of the file that the data was in does not hold of the new one.
        for entry in [entry for entry in tensor.external_data if entry.key in ("checksum", "basepath")]:
            tensor.external_data.remove(entry)
        external.tell(tensor, location=name, offset=str(start), length=str(size))
    if not contents:
        return file, []
    if path.exists():
        if path.suffix.lower() in _MODELS or (file.path is not None and os.path.samefile(path, file.path)):
            raise ModelFileError(f"cannot write {path}: it is a model, not a file of data")
        if not overwrite:
            raise ModelFileError(f"{path} exists; --force overwrites it")
        if any(os.path.samefile(path, used) for used in sources):
            raise ModelFileError(f"cannot write {path}: the model that is read keeps its data there")
    return dataclasses.replace(file, content=model), [DataFile(path, _laid_out(contents))]


def _beside(target: Path, name: str) -> Path:
    pure = PureWindowsPath(name)
    if not pure.parts or pure.root or pure.drive or ".." in pure.parts or "\0" in name:
        raise ModelFileError(f"{name!r} is no name for a data file, which lies in the folder of the model or below")
    path = target.parent / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(target.parent)):
        raise ModelFileError(f"{name!r} is a link out of the folder of the model, and can hold no data of it")
    if path.exists() and not path.is_file():
        raise ModelFileError(f"cannot write {path}: it is no regular file")
    if os.path.realpath(path) == os.path.realpath(target):
        raise ModelFileError(f"cannot write {target}: its data is to be there")
    return path


def _content(file: ModelFile, tensor: TensorProto, sources: dict[Path, Source]) -> tuple[object, int, _Content] | None:
    """What tells a tensor's content from others, its size in bytes and how to get it; None where it stays inside."""
    if external.is_external(tensor):
        part = _external_part(file, tensor, sources)
        return (id(part.source), part.start, part.size), part.size, lambda: part
    size = external.byte_size(tensor)
    if size is None or size < wire.THRESHOLD or (size <= wire.SHAPE_LIMIT and wire.is_shape(tensor)):
        return None
    token = wire.read_token(tensor.raw_data) if tensor.HasField("raw_data") else None
    if token is None:
        return id(tensor), size, lambda: _raw(file.tensor(tensor), size)
    weight = file.part(*token)
    _check_size(tensor, weight.size, size)
    return token, size, lambda: weight


def _raw(tensor: TensorProto, size: int) -> bytes:
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        try:
            raw = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
        except ValueError as error:
            raise ModelFileError(f"tensor {tensor.name!r}: {error}") from None
    _check_size(tensor, len(raw), size)
    return raw


def _check_size(tensor: TensorProto, size: int, needed: int) -> None:
    if size != needed:
        raise ModelFileError(f"tensor {tensor.name!r} has {size} bytes where its shape takes {needed}")


def _laid_out(contents: list[tuple[int, int, _Content]]) -> Iterator[bytes | Part]:
    end = 0
    for start, size, content in contents:
        yield b"\0" * (start - end)
        yield content()
        end = start + size


# --- both --------------------------------------------------------------------------------------
def _external_part(file: ModelFile, tensor: TensorProto, sources: dict[Path, Source]) -> Part:
    """Where the data of an external tensor lies; `sources` are the files opened so far."""
    if file.base is None:
        raise ModelFileError(f"tensor {tensor.name!r}: its data is external, and the folder of the model is unknown")
    place = external.locate(tensor, file.base)
    real = Path(os.path.realpath(place.file))
    if real not in sources:
        sources[real] = _opened(real)
    return Part(sources[real], place.start, place.size)


def _opened(path: Path) -> Source:
    try:
        return Source(open(path, "rb", buffering=0), path)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from None


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
