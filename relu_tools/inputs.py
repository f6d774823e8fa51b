"""Sets of inputs that a user has: read from files, checked against a model, and said in words."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from relu_tools.report import ModelFileError
from relu_tools.schemas import type_text

Given = Mapping[str, Any] | str | os.PathLike[str]
"""Values by input name, or a file of `read`."""


def read(path: str | os.PathLike[str], inputs: Mapping[str, onnx.TypeProto]) -> dict[str, Any]:
    """One set of inputs by name: an .npz file, or a folder that holds input_0.pb and so on, as ONNX's test cases do.

    Tensors in a folder go by their names where each is the name of one of `inputs`, else by their number.
    Raises `ModelFileError`.
    """
    place = Path(path)
    if place.is_dir():
        return _from_folder(place, inputs)
    try:
        arrays = np.load(place, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ModelFileError(f"{place} holds one array without a name; an .npz file has one for each input")
        with arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise ModelFileError(f"cannot read {place}: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelFileError(f"{place} is neither an .npz file nor a folder with input_0.pb: {error}") from None


_TENSOR: tuple[Any, Any] = (onnx.TensorProto, numpy_helper.to_array)
_STORED: dict[str | None, tuple[Any, Any]] = {
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def _from_folder(folder: Path, inputs: Mapping[str, onnx.TypeProto]) -> dict[str, Any]:
    files = {int(match[1]): file for file in folder.iterdir() if (match := re.fullmatch(r"input_(\d+)\.pb", file.name))}
    if sorted(files) != list(range(len(files))) or not files:
        raise ModelFileError(f"{folder} holds no input_0.pb, input_1.pb and so on")
    if len(files) > len(inputs):
        raise ModelFileError(f"{folder} holds {len(files)} inputs, and the model takes {_these(inputs)}")
    by_number, named = list(inputs), {}
    for number, file in sorted(files.items()):
        message, values = _STORED.get(inputs[by_number[number]].WhichOneof("value"), _TENSOR)
        try:
            proto = message.FromString(file.read_bytes())
            named[number] = proto.name, values(proto)
        except OSError as error:
            raise ModelFileError(f"cannot read {file}: {error.strerror}") from None
        except (DecodeError, ValueError, TypeError) as error:
            raise ModelFileError(f"{file} holds no value for input '{by_number[number]}': {error}") from None
    names = [name for name, _ in named.values()]
    if len(set(names)) == len(names) and set(names) <= set(inputs):
        return dict(named.values())
    return {by_number[number]: value for number, (_, value) in named.items()}


def check(values: Mapping[str, Any], model: onnx.GraphProto, where: str) -> dict[str, Any]:
    """The values as the graph takes them; `where` says whose they are. Raises `ModelFileError` where they do not fit.

    An initializer that is an input too may be left out. Arrays of bytes that numpy has no type for become what the
    model takes.
    """
    own = {tensor.name for tensor in model.initializer} | {tensor.values.name for tensor in model.sparse_initializer}
    types = {value.name: value.type for value in model.input}
    needed = {name: type_ for name, type_ in types.items() if name not in own}
    strange, missing = [name for name in values if name not in types], [name for name in needed if name not in values]
    if strange or missing:
        said = [f"{_quoted(strange)} is no input of the model"] if strange else []
        said += [f"{_quoted(missing)} is missing"] if missing else []
        raise ModelFileError(f"{where}: {' and '.join(said)}; the model takes {_these(needed)}")
    sizes: dict[str, tuple[int, str]] = {}
    return {name: _checked(name, value, types[name], sizes, where) for name, value in values.items()}


def _checked(name: str, value: Any, type_: onnx.TypeProto, sizes: dict[str, tuple[int, str]], where: str) -> Any:
    if not type_.HasField("tensor_type"):
        return value
    tensor = type_.tensor_type
    value = np.asarray(value)
    if tensor.elem_type == onnx.TensorProto.STRING:
        value = value.astype(object) if value.dtype.kind in "USO" else value
        fits = value.dtype.kind == "O"
    else:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize:
            value = value.view(dtype)
        fits = value.dtype == dtype
    dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
    if tensor.HasField("shape"):
        fits = fits and len(dims) == value.ndim
        for dim, size in zip(tensor.shape.dim, value.shape) if fits else ():  # noqa: B905
            if dim.HasField("dim_value"):
                fits = fits and dim.dim_value in (size, -1)
            elif dim.dim_param:
                other, first = sizes.setdefault(dim.dim_param, (size, name))
                if other != size:
                    raise ModelFileError(
                        f"{where}: {dim.dim_param} is {other} in '{first}' and {size} in '{name}', "
                        f"which is {described(value)}"
                    )
    if not fits:
        raise ModelFileError(f"{where}: '{name}' is {described(value)}, and the model takes {described_type(type_)}")
    return value


def _these(inputs: Mapping[str, onnx.TypeProto]) -> str:
    return ", ".join(f"'{name}' ({described_type(type_)})" for name, type_ in inputs.items()) or "none"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def described_type(type_: onnx.TypeProto) -> str:
    """A type as a model declares it, such as float[N, 3]; a dimension that has no name is a question mark."""
    tensor = type_.tensor_type
    if not type_.HasField("tensor_type") or not tensor.elem_type:
        return type_text(type_) or "of unknown type"
    dims = [dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in tensor.shape.dim]
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{element} of any shape"
    return f"{element}[{', '.join(dims)}]" if dims else element


def described(value: Any) -> str:
    """Type and shape of a value, such as float[2, 3]."""
    if isinstance(value, list | tuple):
        return f"{len(value)} in sequence" + (f", the first {described(value[0])}" if value else "")
    if not isinstance(value, np.ndarray):
        return "nothing" if value is None else type(value).__name__
    if value.dtype.kind in "OUS":
        element = "string"
    else:
        try:
            element = onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(value.dtype)).lower()
        except (KeyError, ValueError):
            element = str(value.dtype)
    return f"{element}[{', '.join(map(str, value.shape))}]" if value.ndim else element


def save(values: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Writes every value as an OptionalProto, which unlike .npy knows all types; the files by name."""
    folder.mkdir()
    paths = {}
    for number, (name, value) in enumerate(values.items()):
        value = value if value is None or isinstance(value, list | dict) else np.asarray(value)
        path = folder / f"{number}.pb"
        path.write_bytes(numpy_helper.from_optional(value).SerializeToString())
        paths[name] = str(path)
    return paths


def load(path: str | os.PathLike[str]) -> Any:
    """A value that `save` wrote."""
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(Path(path).read_bytes()))
