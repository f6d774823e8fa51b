"""Quantized arithmetic below the opsets that have it: sums of products of small integers, which floats hold."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import adapter
from relu_tools.report import RefusedError


# --- to integers and back --------------------------------------------------------------------
@adapter("QuantizeLinear", 10, None, opset=13)
def quantize(op, x, y_scale, y_zero_point):
    """10 is its first version.

    The quotient is rounded to even, moved by the zero point, and clipped to the limits of the type.
    """
    x = op.Cast(x, to=T.FLOAT) if op.dtype(x) != T.FLOAT else x
    return _saturated(op, op.Div(x, y_scale), y_zero_point)


def _saturated(op, value, zero_point):
    dtype = op.dtype(zero_point) if zero_point else T.UINT8
    value = op.Round(value)
    if zero_point:
        value = op.Add(value, op.Cast(zero_point, to=T.FLOAT))
    low, high = (0, 255) if dtype == T.UINT8 else (-128, 127)
    return op.Cast(op.Clip(value, np.float32(low), np.float32(high)), to=dtype)


@adapter("DequantizeLinear", 10, None)
def dequantize(op, x, x_scale, x_zero_point):
    """10 is its first version.

    It is the difference from the zero point times the scale; a float holds the difference of small integers.
    """
    if op.dtype(x) == T.INT32:
        value = op.Cast(op.Sub(x, x_zero_point) if x_zero_point else x, to=T.FLOAT)
    else:
        value = _centred(op, x, x_zero_point, T.FLOAT)
    return op.Mul(value, x_scale)


def _centred(op, value, zero_point, dtype):
    value = op.Cast(value, to=dtype)
    return op.Sub(value, op.Cast(zero_point, to=dtype)) if zero_point else value


# --- matrix products -------------------------------------------------------------------------
@adapter("MatMulInteger", 10, None, opset=13)
def matmul_integer(op, A, B, a_zero_point, b_zero_point):
    """10 is its first version.

    It is the product of int32 matrices.
    """
    a_zero_point = a_zero_point and _of_rows(op, a_zero_point, A)
    return op.MatMul(_centred(op, A, a_zero_point, T.INT32), _centred(op, B, b_zero_point, T.INT32))


def _of_rows(op, numbers, matrix):
    """A vector with a number for each row, as a column."""
    vector = op.rank(numbers) == 1 and op.rank(matrix) > 1
    return op.Unsqueeze(numbers, np.array([-1])) if vector else numbers


@adapter("QLinearMatMul", 10, None, opset=13)
def qlinear_matmul(op, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """10 is its first version.

    The product of the integers is scaled as runtimes do it, by the product of the scales over the result's, and
    rounded to even.
    """
    total = op.MatMulInteger(a, b, a_zero_point, b_zero_point)
    a_scale, y_scale = _of_rows(op, a_scale, a), _of_rows(op, y_scale, a)
    scale = op.Div(op.Mul(a_scale, b_scale), y_scale)
    return _saturated(op, op.Mul(op.Cast(total, to=T.FLOAT), scale), y_zero_point)


# --- convolutions ----------------------------------------------------------------------------
@adapter("ConvInteger", 10, None, opset=13)
def conv_integer(op, x, w, x_zero_point, w_zero_point, **same):
    """10 is its first version.

    It is a Conv of floats, which hold every sum up to 2^24. Where there may be greater ones, the weights are taken
    apart into digits, each sum being small enough, and the sums are put together as int32.
    """
    x = _centred(op, x, x_zero_point, T.FLOAT)
    w = _centred(op, w, w_zero_point and _of_channels(op, w_zero_point, w), T.FLOAT)
    shape = op.shape(w)[1:]
    if not all(isinstance(dim, int) for dim in shape):
        raise RefusedError("before 10 the size of the kernel must be known", "give it in the model's value_info")
    base, count = _digits(int(np.prod(shape)))
    total = None
    for k in range(count):
        digit = w
        if k < count - 1:
            w = op.Floor(op.Mul(w, np.float32(1 / base)))
            digit = op.Sub(digit, op.Mul(w, np.float32(base)))
        part = op.Cast(op.Conv(x, digit, **same), to=T.INT32)
        part = op.Mul(part, np.int32(base**k)) if k else part
        total = op.Add(total, part) if k else part
    return total


def _digits(products):
    """A base and how many digits of it a weight has, so that a float holds each sum of so many products."""
    for base, count, largest in ((256, 1, 255), (16, 2, 16), (4, 4, 4), (2, 8, 2)):
        if products * 255 * largest <= 2**24:
            return base, count
    raise RefusedError(f"before 10 nothing adds up {products} products of integers exactly")


def _of_channels(op, numbers, w):
    """A vector with a number for each output channel, so that it broadcasts over weights."""
    return op.Unsqueeze(numbers, np.arange(1, op.rank(w))) if op.rank(numbers) == 1 else numbers


@adapter("QLinearConv", 10, None, opset=13)
def qlinear_conv(op, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **same):
    """10 is its first version.

    The convolution of the integers, with the bias, is scaled as runtimes do it, by the product of the scales over the
    result's, and rounded to even.
    """
    total = op.ConvInteger(x, w, x_zero_point, w_zero_point, **same)
    spatial = np.arange(1, op.rank(w) - 1)
    total = op.Add(total, op.Unsqueeze(B, spatial)) if B else total
    scale = op.Div(op.Mul(x_scale, w_scale), y_scale)
    if op.rank(w_scale) == 1:
        scale = op.Unsqueeze(op.Reshape(scale, np.array([-1])), spatial)
    return _saturated(op, op.Mul(op.Cast(total, to=T.FLOAT), scale), y_zero_point)
