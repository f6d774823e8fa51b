"""Operators on the bits of numbers, below the opsets that have them: arithmetic on int64 stands for them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import adapter
from relu_tools.report import RefusedError

SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64)
UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
INT64 = np.iinfo(np.int64)
# 2 to the power of 0 to 63; the last one is the sign of an int64.
POWERS = np.left_shift(np.int64(1), np.arange(64))


def bits(dtype) -> int:
    return 8 * helper.tensor_dtype_to_np_dtype(dtype).itemsize


def unsigned(op, x):
    """The bits of an integer as an int64: a number from 0 on, but for those of 64 bits."""
    dtype = op.dtype(x)
    wide = x if dtype == T.INT64 else op.Cast(x, to=T.INT64)
    # Not by way of the unsigned type: onnxruntime 1.10 leaves out the first of two casts in a row.
    return op.Mod(wide, np.int64(2 ** bits(dtype))) if dtype in SIGNED[:3] else wide


# --- shifts ----------------------------------------------------------------------------------
@adapter("BitShift", 11, None, opset=13)
def bit_shift(op, X, Y, *, direction):
    """11 is its first version.

    To the left it is a product with a power of 2, modulo 2^64 and then of the type. To the right it is a quotient; that
    of a number of 64 bits with the highest set, which is negative as an int64, is rounded down, and freed of its sign.
    """
    dtype = op.dtype(X)
    amount, wide = op.Cast(Y, to=T.INT64), op.Cast(X, to=T.INT64)
    known = op.known(Y)
    if known is None or (known >= 64).any():
        beyond = op.Or(op.Less(amount, np.int64(0)), op.Greater(amount, np.int64(63)))
        amount = op.Where(beyond, np.int64(64), amount)
    if direction == "LEFT":
        return op.Cast(op.Mul(wide, op.Gather(np.append(POWERS, 0), amount)), to=dtype)
    # Nothing but 0 is left after 63 places; 2^63 is no int64, its negative does as well.
    power = op.Gather(np.append(POWERS, INT64.min), amount)
    if dtype != T.UINT64:
        return op.Cast(op.Div(wide, power), to=dtype)
    negative = op.Less(wide, np.int64(0))
    quotient = op.Div(op.Where(negative, op.Sub(np.int64(-1), wide), wide), power)
    # Places that come in are 0, and not copies of the sign.
    above = np.append(np.append(0, POWERS[:0:-1]), 1)
    rounded = op.Add(op.Sub(np.int64(-1), quotient), op.Gather(above, amount))
    return op.Cast(op.Where(negative, rounded, quotient), to=dtype)


# --- bit by bit ------------------------------------------------------------------------------
@adapter("BitwiseNot", 18, None, opset=13)
def bitwise_not(op, X):
    """18 is its first version.

    It is -1 - X, modulo 2^n.
    """
    dtype = op.dtype(X)
    if dtype in (T.INT32, T.INT64):
        return op.Sub(op.like(-1, X), X)
    return op.Cast(op.Sub(np.int64(-1), op.Cast(X, to=T.INT64)), to=dtype)


@adapter("BitwiseAnd BitwiseOr BitwiseXor", 18, None, opset=13)
def bitwise(op, A, B):
    """18 is their first version.

    The numbers are taken apart into truth values, a last axis of them, and put together again.
    """
    dtype = op.dtype(A)
    both = getattr(op, op.type.removeprefix("Bitwise"))(_apart(op, A), _apart(op, B))
    if bits(dtype) < 64:
        return op.Cast(_together(op, both, bits(dtype)), to=dtype)
    # Runtimes sum int64 in double.
    halves = [op.Slice(both, np.array([k]), np.array([k + 32]), np.array([-1])) for k in (0, 32)]
    low, high = (_together(op, half, 32) for half in halves)
    result = op.Add(low, op.Mul(high, np.int64(2**32)))
    return result if dtype == T.INT64 else op.Cast(result, to=dtype)


def _together(op, truths, count):
    """The number that so many truth values, up to 32, along the last axis are the bits of."""
    return op.ReduceSum(op.Mul(op.Cast(truths, to=T.INT64), POWERS[:count]), np.array([-1]), keepdims=0)


def _apart(op, x):
    """The bits of an integer, the lowest first, as truth values along a new last axis."""
    count = bits(op.dtype(x))
    known = op.known(x)
    if known is not None:
        raw = known.astype(np.int64)[..., None]
        return np.right_shift(raw, np.arange(count)) & 1 == 1
    wide = op.Unsqueeze(unsigned(op, x), np.array([-1]))
    if count < 64:
        return op.Cast(op.Mod(op.count(op.Div(wide, POWERS[:count])), np.int64(2)), to=T.BOOL)
    negative = op.Less(wide, np.int64(0))
    wide = op.Where(negative, op.Sub(wide, np.int64(INT64.min)), wide)
    lower = op.Cast(op.Mod(op.count(op.Div(wide, POWERS[:63])), np.int64(2)), to=T.BOOL)
    return op.Concat(lower, negative, axis=-1)


# --- other types for the same bits -----------------------------------------------------------
@adapter("BitCast", 26, None, opset=13)
def bit_cast(op, input, *, to):
    """26 is its first version.

    Between integers of a size it is a Cast, which keeps the bits that there are. A float is built from its sign,
    exponent and digits. The bits of a NaN cannot be had from a float: that way is refused.
    """
    dtype = op.dtype(input)
    if dtype == to:
        return op.Identity(input)
    if dtype == T.BOOL and to in (T.INT8, T.UINT8):
        return op.Cast(input, to=to)
    if dtype not in SIGNED + UNSIGNED:
        raise RefusedError(f"before 26 nothing gives the bits of {T.DataType.Name(dtype).lower()}, NaN included")
    if to in SIGNED + UNSIGNED:
        return op.Cast(input, to=to)
    if to not in DIGITS:
        raise RefusedError(f"before 26 nothing makes {T.DataType.Name(to).lower()} from bits")
    return _float(op, input, to)


# How many digits of the fraction a float type has.
DIGITS = {T.FLOAT16: 10, T.BFLOAT16: 7, T.FLOAT: 23, T.DOUBLE: 52}


def _float(op, x, to):
    """The float that bits stand for: (-1)^sign * digits * 2^exponent, which a double holds."""
    digits, top = DIGITS[to], 2 ** (bits(to) - 1)
    wide = unsigned(op, x)
    if bits(to) < 64:
        sign, wide = op.Cast(op.Div(wide, np.int64(top)), to=T.DOUBLE), op.Mod(op.count(wide), np.int64(top))
    else:
        negative = op.Less(wide, np.int64(0))
        sign, wide = op.Cast(negative, to=T.DOUBLE), op.Where(negative, op.Sub(wide, np.int64(INT64.min)), wide)
    exponent, fraction = op.Div(wide, np.int64(2**digits)), op.Mod(op.count(wide), np.int64(2**digits))
    last = top // 2**digits - 1
    scales = np.ldexp(1.0, np.maximum(np.arange(last + 1), 1) - last // 2 - digits)
    scales[last] = np.inf
    # All but the smallest numbers have a first digit that is not written.
    first = op.Mul(op.Cast(op.Cast(exponent, to=T.BOOL), to=T.INT64), np.int64(2**digits))
    size = op.Mul(op.Cast(op.Add(fraction, first), to=T.DOUBLE), op.Gather(scales, exponent))
    is_nan = op.And(op.Equal(exponent, np.int64(last)), op.Cast(fraction, to=T.BOOL))
    value = op.Mul(op.Where(is_nan, np.float64(np.nan), size), op.Sub(np.float64(1), op.Add(sign, sign)))
    return value if to == T.DOUBLE else op.Cast(value, to=to)
