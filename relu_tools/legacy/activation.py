"""Activations, Softmax and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .registry import demand, limits, meaning, widened


@meaning("Relu", 1)
def _relu(node, x):
    return np.maximum(x, x.dtype.type(0))


@meaning("ThresholdedRelu", 10)
def _thresholded_relu(node, x, *, alpha=1.0):
    return np.where(x > x.dtype.type(alpha), x, x.dtype.type(0))


def _as_in(x, *attributes):
    """Attributes rounded to the element type of x, as the function bodies do it."""
    return tuple(float(x.dtype.type(attribute)) for attribute in attributes)


@meaning("LeakyRelu", 1)
def _leaky_relu(node, x, *, alpha):
    (alpha,) = _as_in(x, alpha)
    return np.where(x < 0, widened(x) * alpha, x).astype(x.dtype)


@meaning("Elu", 1)
def _elu(node, x, *, alpha):
    (alpha,) = _as_in(x, alpha)
    return np.where(x < 0, alpha * np.expm1(widened(x)), x).astype(x.dtype)


@meaning("Selu", 1)
def _selu(node, x, *, alpha, gamma):
    wide = widened(x)
    alpha, gamma = _as_in(x, alpha, gamma)
    return (gamma * np.where(wide > 0, wide, alpha * np.expm1(wide))).astype(x.dtype)


@meaning("Celu", 12)
def _celu(node, x, *, alpha):
    wide = widened(x)
    (alpha,) = _as_in(x, alpha)
    return (np.maximum(wide, 0) + np.minimum(0, alpha * np.expm1(wide / alpha))).astype(x.dtype)


@meaning("HardSigmoid", 1)
def _hard_sigmoid(node, x, *, alpha, beta):
    alpha, beta = _as_in(x, alpha, beta)
    return np.clip(alpha * widened(x) + beta, 0, 1).astype(x.dtype)


@meaning("HardSwish", 14)
def _hard_swish(node, x):
    wide = widened(x)
    return (wide * np.clip(wide / 6 + 0.5, 0, 1)).astype(x.dtype)


@meaning("Mish", 18)
def _mish(node, x):
    wide = widened(x)
    return (wide * np.tanh(np.logaddexp(wide, 0))).astype(x.dtype)


@meaning("Gelu", 20)
def _gelu(node, x, *, approximate):
    wide = widened(x)
    if approximate == "tanh":
        return (0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)
    return (0.5 * wide * (1 + _error_function(wide / math.sqrt(2)))).astype(x.dtype)


_error_function = np.vectorize(math.erf, otypes=[float])


@meaning("Erf", 9)
def _erf(node, x):
    """onnx.reference computes it in float, whatever the type."""
    return _error_function(x).astype(x.dtype)


@meaning("PRelu", 1, 7)
def _prelu_by_channel(node, x, slope):
    """One slope for all, or one for each channel (the second dimension)."""
    if slope.size > 1:
        demand(
            x.ndim > 1 and slope.size == x.shape[1] == max(slope.shape),
            f"slope {slope.shape} for {x.shape}",
        )
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope.reshape(slope.shape if slope.size > 1 else ()), x).astype(x.dtype)


@meaning("PRelu", 7)
def _prelu(node, x, slope):
    demand(
        np.broadcast_shapes(x.shape, slope.shape) == x.shape,
        f"slope {slope.shape} is no part of {x.shape}",
    )
    return np.where(x < 0, x * slope, x).astype(x.dtype)


@meaning("Clip", 1, 11)
def _clip_between(node, x, *, min=None, max=None):
    for bound, limit in ((min, np.maximum), (max, np.minimum)):
        x = x if bound is None else limit(x, np.asarray(bound).astype(x.dtype))
    return x


@meaning("Clip", 11)
def _clip(node, x, low=None, high=None):
    """A bound left out is the least or the greatest number, which an infinity is beyond."""
    least, most = limits(x.dtype)
    low, high = (
        np.asarray(v, x.dtype).reshape(()) for v in (least if low is None else low, most if high is None else high)
    )
    return np.minimum(np.maximum(x, low), high)


def rows(x: np.ndarray, axis: int) -> tuple[np.ndarray, int]:
    """Before opset 13 all dimensions from `axis` on are one row."""
    axis += x.ndim if axis < 0 else 0
    demand(0 <= axis <= x.ndim, f"axis {axis} for rank {x.ndim}")
    first = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(first, int(np.prod(x.shape[axis:], dtype=np.int64))), 1


def _softmax(node, x, axis):
    if x.size == 0:
        return x
    wide = widened(x)
    if node.op_type == "Hardmax":
        return (np.expand_dims(np.argmax(wide, axis), axis) == _along(wide.shape, axis)).astype(x.dtype)
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return (np.exp(shifted) / total if node.op_type == "Softmax" else shifted - np.log(total)).astype(x.dtype)


def _along(shape: Sequence[int], axis: int) -> np.ndarray:
    index = np.arange(shape[axis])
    return index.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


@meaning("Softmax LogSoftmax Hardmax", 1, 13)
def _softmax_of_rows(node, x, *, axis):
    matrix, within = rows(x, axis)
    return _softmax(node, matrix, within).reshape(x.shape)


@meaning("Softmax LogSoftmax Hardmax", 13)
def _softmax_along(node, x, *, axis):
    demand(-x.ndim <= axis < x.ndim, f"axis {axis} for rank {x.ndim}")
    return _softmax(node, x, axis)
