"""Tensors whose data lies in files beside the model: where exactly, and whether it may be read from there."""

from __future__ import annotations

import math
import os
import pathlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import Message
from onnx import SparseTensorProto, TensorProto

from relu_tools import wire
from relu_tools.report import ModelFileError

_BITS = {
    bits: {getattr(TensorProto, name) for name in names.split() if hasattr(TensorProto, name)}
    for bits, names in {
        2: "UINT2 INT2",
        4: "UINT4 INT4 FLOAT4E2M1",
        6: "FLOAT6E2M3 FLOAT6E3M2",
        8: "UINT8 INT8 BOOL FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0",
        16: "UINT16 INT16 FLOAT16 BFLOAT16",
        32: "UINT32 INT32 FLOAT",
        64: "UINT64 INT64 DOUBLE COMPLEX64",
        128: "COMPLEX128",
    }.items()
}
_WIDTH = {kind: bits for bits, kinds in _BITS.items() for kind in kinds}
KEY = b"\n\x08location"
"""What every serialized model with external data holds: the entry that names the file."""


PAYLOADS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
"""The fields of a tensor that hold its data."""


class Location(NamedTuple):
    """`size` bytes from byte `start` of `file`; `name` is the file as the model spells it."""

    file: Path
    name: str
    start: int
    size: int


def external_tensors(model: onnx.ModelProto) -> list[TensorProto]:
    """Every tensor of the model, in graphs, functions and attributes, whose data is external."""
    # Nearly no model has one, and to look at every node of a large model takes longer than to write it.
    return [t for t in tensors(model) if is_external(t)] if KEY in model.SerializeToString() else []


def is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def locate(tensor: TensorProto, folder: Path) -> Location:
    """Where the data of an external tensor lies; the file is there, and long enough."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = check(tensor, folder)
    file = folder / name
    try:
        available = file.stat().st_size
    except FileNotFoundError:
        raise missing(tensor, file) from None
    except OSError as error:
        raise ModelFileError(f"{_title(tensor)}: cannot read its data in {file}: {error.strerror}") from None
    start = _number(tensor, entries, "offset", 0)
    needed = byte_size(tensor)
    size = _number(tensor, entries, "length", needed or 0)
    if needed is not None and size != needed:
        raise ModelFileError(f"{_title(tensor)}: its external data has {size} bytes where its shape takes {needed}")
    if start + size > available:
        raise ModelFileError(
            f"{_title(tensor)}: bytes {start} to {start + size} of its data lie outside {file}, which has {available}"
        )
    return Location(file, name, start, size)


def check_data(model: onnx.ModelProto, folder: Path) -> None:
    """Raises ModelFileError where the data of an external tensor cannot be read from the folder."""
    for tensor in external_tensors(model):
        locate(tensor, folder)


def faults(model: onnx.ModelProto, folder: Path) -> Iterator[str]:
    """What keeps the data of external tensors from being read from the folder."""
    for tensor in external_tensors(model):
        try:
            locate(tensor, folder)
        except ModelFileError as error:
            yield str(error)


def missing(tensor: TensorProto, file: Path) -> ModelFileError:
    return ModelFileError(f"{_title(tensor)}: its data in {file} is missing")


def location(tensor: TensorProto) -> str:
    """The file of an external tensor's data, as the model spells it."""
    return {entry.key: entry.value for entry in tensor.external_data}.get("location", "")


def tell(tensor: TensorProto, **entries: str) -> None:
    """Says where the data of an external tensor lies; what it says besides stays."""
    found = {entry.key: entry for entry in tensor.external_data}
    for key, value in entries.items():
        (found.get(key) or tensor.external_data.add(key=key)).value = value


def check(tensor: TensorProto, folder: Path | None) -> str:
    """The location of an external tensor; refused where it leaves `folder` or names what is no regular file."""
    name = location(tensor)
    path = pathlib.PureWindowsPath(name)
    if not path.parts or "\0" in name:
        raise ModelFileError(f"{_title(tensor)}: its external data has no location")
    if path.root or path.drive or ".." in path.parts:
        raise ModelFileError(f"{_title(tensor)}: its external data is at {name!r}, outside the folder of the model")
    if folder is None:
        return name
    file = folder / name
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise ModelFileError(f"{_title(tensor)}: {name!r}, its external data, is a link out of the folder of the model")
    if real.exists() and not stat.S_ISREG(real.stat().st_mode):
        raise ModelFileError(f"{_title(tensor)}: {name!r}, its external data, is not a regular file")
    return name


def _number(tensor: TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ModelFileError(f"{_title(tensor)}: the {key} of its external data is {text!r}, not a number of bytes")
    return int(text)


def bits_of(data_type: int) -> int | None:
    """How many bits an element takes; None for a string and for a type that is not known."""
    return _WIDTH.get(data_type)


def byte_size(tensor: TensorProto) -> int | None:
    """What a tensor's elements take as raw data; None where it holds strings or elements of a type not known."""
    if min(tensor.dims, default=0) < 0:
        raise ModelFileError(f"{_title(tensor)}: its shape has a negative size")
    if tensor.data_type not in _WIDTH:
        return None
    return math.ceil(math.prod(tensor.dims) * _WIDTH[tensor.data_type] / 8)


def _title(tensor: TensorProto) -> str:
    return f"tensor {tensor.name!r}"


def tensors(message: Message, sparse: bool = True) -> Iterator[TensorProto]:
    """Every tensor in a message; with `sparse` also those that a sparse tensor consists of."""
    if isinstance(message, TensorProto):
        yield message
        return
    if isinstance(message, SparseTensorProto) and not sparse:
        return
    for field in wire.tensor_fields(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if not isinstance(value, Message):
            for child in value:
                yield from tensors(child, sparse)
        elif message.HasField(field.name):
            yield from tensors(value, sparse)
