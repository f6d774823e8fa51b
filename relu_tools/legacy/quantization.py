"""Quantization to 8 bits, for one tensor or along an axis."""

from __future__ import annotations

import numpy as np

from .registry import demand, meaning, widened


def _along(x, parameter, axis):
    if parameter.ndim == 0 or parameter.shape == (1,):
        return parameter.reshape(())
    demand(
        parameter.shape == (x.shape[axis],),
        f"{parameter.shape} for axis {axis} of {x.shape}",
    )
    return parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


@meaning("QuantizeLinear", 10, 19)
def _quantize(node, x, scale, zero_point=None, *, axis=0):
    """Halves are rounded to even, and what is beyond the type becomes its limit."""
    zero_point = np.zeros((), np.uint8) if zero_point is None else zero_point
    scale, zero = (_along(x, parameter, axis) for parameter in (scale, zero_point))
    limits = np.iinfo(zero.dtype)
    rounded = np.rint(widened(x) / widened(scale)) + zero.astype(np.float32)
    return np.clip(rounded, limits.min, limits.max).astype(zero.dtype)


@meaning("DequantizeLinear", 10, 19)
def _dequantize(node, x, scale, zero_point=None, *, axis=0):
    zero_point = np.zeros((), x.dtype) if zero_point is None else zero_point
    scale, zero = (_along(x, parameter, axis) for parameter in (scale, zero_point))
    return (x.astype(np.int64) - zero.astype(np.int64)).astype(scale.dtype) * scale
