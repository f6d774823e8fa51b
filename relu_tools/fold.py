"""Values that are computed from constants: the shape arithmetic that exporters leave in graphs, done in numpy."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from relu_tools import schemas

LIMIT = 1024
"""No value of more elements is computed."""

_Inputs = list[np.ndarray | None]


def fold(node: NodeProto, version: schemas.Version, inputs: _Inputs) -> np.ndarray | None:
    """The first output of a node whose inputs are known, None where the operator is none that computes shapes."""
    make = OPERATORS.get(node.op_type)
    if make is None or len(node.output) != 1:
        return None
    attributes = schemas.bind(node, version)[1]
    if any(isinstance(value, schemas.AttributeReference) for value in attributes.values()):
        return None
    if any(value is None for value, name in zip(inputs, node.input, strict=True) if name):
        return None
    try:
        result = make(attributes, inputs)
    except (ValueError, TypeError, IndexError, ArithmeticError):
        return None  # an invalid node has no value
    return result if result is not None and result.size <= LIMIT else None


def _binary(function: Callable[[Any, Any], Any]):
    def make(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
        if attributes.get("broadcast"):
            return None  # the rules of before opset 7
        with np.errstate(all="ignore"):
            return np.asarray(function(inputs[0], inputs[1])).astype(inputs[0].dtype)  # type: ignore[union-attr]

    return make


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    if a.dtype.kind not in "iu":
        return a / b
    if not b.all():
        raise ZeroDivisionError
    return np.trunc(a / b) if a.size == 0 else np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _cast(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
    to = attributes["to"]
    to = TensorProto.DataType.Value(to) if isinstance(to, str) else to
    if to == TensorProto.STRING or inputs[0].dtype.kind not in "biuf":  # type: ignore[union-attr]
        return None
    with np.errstate(invalid="raise"):  # what no integer stands for becomes what the machine likes
        return inputs[0].astype(helper.tensor_dtype_to_np_dtype(to))  # type: ignore[union-attr]


def _axes(attributes: dict[str, Any], inputs: _Inputs) -> list[int] | None:
    axes = attributes.get("axes")
    if axes is None and len(inputs) > 1 and inputs[1] is not None:
        axes = inputs[1].reshape(-1).tolist()
    return axes


def _squeeze(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray:
    axes = _axes(attributes, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))  # type: ignore[arg-type]


def _unsqueeze(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
    axes = _axes(attributes, inputs)
    return None if axes is None else np.expand_dims(inputs[0], tuple(axes))  # type: ignore[arg-type]


def _slice(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray:
    data = inputs[0]
    assert data is not None
    if "starts" in attributes:
        starts, ends, axes, steps = attributes["starts"], attributes["ends"], attributes["axes"], None
    else:
        starts, ends, axes, steps = (
            None if k >= len(inputs) or inputs[k] is None else inputs[k].tolist()  # type: ignore[union-attr]
            for k in (1, 2, 3, 4)
        )
    cut = [slice(None)] * data.ndim
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = (axes[k] if axes else k), (steps[k] if steps else 1)
        # An end below the first element, counted downwards, is what Python writes as None.
        cut[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(cut)]


def _reshape(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray:
    data = inputs[0]
    assert data is not None
    shape = attributes["shape"] if "shape" in attributes else inputs[1].tolist()  # type: ignore[union-attr]
    if not attributes.get("allowzero"):
        shape = [data.shape[k] if dim == 0 else dim for k, dim in enumerate(shape)]
    return data.reshape(shape)


def _constant_of_shape(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
    value = attributes["value"]
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    if np.prod(inputs[0], dtype=float) > LIMIT:  # type: ignore[arg-type]
        return None
    return np.full(tuple(inputs[0]), fill.reshape(()))  # type: ignore[arg-type]


def _expand(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist()))  # type: ignore[union-attr]
    return np.broadcast_to(inputs[0], shape) if np.prod(shape, dtype=float) <= LIMIT else None  # type: ignore[arg-type]


def _range(attributes: dict[str, Any], inputs: _Inputs) -> np.ndarray | None:
    start, limit, delta = (value.reshape(()).item() for value in inputs)  # type: ignore[union-attr]
    if not delta or (limit - start) / delta > LIMIT:
        return None
    return np.arange(start, limit, delta, dtype=inputs[0].dtype)  # type: ignore[union-attr]


OPERATORS: dict[str, Callable[[dict[str, Any], _Inputs], np.ndarray | None]] = {
    "Add": _binary(operator.add),
    "Sub": _binary(operator.sub),
    "Mul": _binary(operator.mul),
    "Div": _binary(_divide),
    "Neg": lambda attributes, inputs: -inputs[0],  # type: ignore[operator]
    "Ceil": lambda attributes, inputs: np.ceil(inputs[0]),  # type: ignore[arg-type]
    "Max": lambda attributes, inputs: functools.reduce(np.maximum, inputs),  # type: ignore[arg-type]
    "Equal": lambda attributes, inputs: None if attributes.get("broadcast") else np.equal(inputs[0], inputs[1]),
    "Where": lambda attributes, inputs: np.where(*inputs),
    "Identity": lambda attributes, inputs: inputs[0],
    "Cast": _cast,
    "Concat": lambda attributes, inputs: np.concatenate(
        inputs, 1 if attributes["axis"] is None else attributes["axis"]
    ),
    "Gather": lambda attributes, inputs: np.take(inputs[0], inputs[1], attributes["axis"]),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Range": _range,
}
