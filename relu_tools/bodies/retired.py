"""Bodies of operators that ai.onnx tried and dropped before its first release, and that onnxruntime still runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset18 as op

from relu_tools.bodies.tracing import former
from relu_tools.report import RefusedError

END = np.iinfo(np.int64).max


@former
def Affine(X, alpha: float = 1.0, beta: float = 0.0):
    """alpha * X + beta."""
    return X * alpha + beta


@former
def Scale(input, scale: float = 1.0):
    """scale * input."""
    return input * scale


@former
def ScaledTanh(input, *, alpha: float, beta: float):
    """alpha times the tanh of beta times the input."""
    return op.Tanh(input * beta) * alpha


@former
def ParametricSoftplus(X, *, alpha: float, beta: float):
    """alpha * ln(exp(beta * X) + 1)."""
    return op.Softplus(X * beta) * alpha


@former
def ImageScaler(input, *, bias: Sequence[float], scale: float = 1.0):
    """scale * input, and to each channel, the second axis, its bias added."""
    return input * scale + np.array(bias, input.dtype.numpy()).reshape(1, -1, 1, 1)


@former
def Crop(input, *, border: Sequence[int], scale: Sequence[int] = ()):
    """Images without their borders, left, top, right and bottom, or so many rows and columns from the first two on."""
    if len(border) != 4:
        raise RefusedError(f"it has {len(border)} borders instead of 4")
    left, top, right, bottom = border
    ends = [top + scale[0], left + scale[1]] if scale else [-bottom or END, -right or END]
    return op.Slice(input, [top, left], ends, [2, 3])


@former
def DynamicSlice(data, starts, ends, axes=None):
    """Slice with its starts, ends and axes as inputs, the first axes where none are given."""
    starts, ends = starts.to(T.INT64), ends.to(T.INT64)
    return op.Slice(data, starts, ends, None if axes is None else axes.to(T.INT64))
