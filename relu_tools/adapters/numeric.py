"""Steps of the arithmetic in ONNX's defs/math that only newer opsets have: Pow and Mod by type, shifts, DFT, losses."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, KEEP, adapter, same

same("Pow", 7, 12, 13, 15)
same("Mod", 10, 13, 28)
same("Round", 11, 22)
same("BitShift", 11, 28)
same("CumSum", 11, 14)
same("IsInf", 10, 20)
same("IsNaN", 9, 13, 20)
same("NegativeLogLikelihoodLoss", 12, 13, 22)
same("SoftmaxCrossEntropyLoss", 12, 13)

# Types whose values a float holds.
HELD_BY_FLOAT = (T.FLOAT, T.FLOAT16, T.BFLOAT16, T.INT8, T.UINT8, T.INT16, T.UINT16)


# --- Pow -----------------------------------------------------------------------------------
@adapter("Pow", 15, 13)
def pow_exponent(op, X, Y):
    """15 adds bfloat16 exponents.

    A float holds them.
    """
    return op.Pow(X, op.Cast(Y, to=T.FLOAT)) if op.dtype(Y) == T.BFLOAT16 else KEEP


@adapter("Pow", 12, 7, accuracy="rounding")
def pow_of_one_type(op, X, Y):
    """12 adds integers, and an exponent of another type than the base; the result has the base's.

    A constant exponent is written in the base's type where that holds it, and a small power of an integer as products.
    Others are computed in a float type that holds both (double rounds an int64 beyond 2^53, as runtimes do).
    """
    dtype = op.dtype(X)
    if dtype == op.dtype(Y) and dtype in FLOATS:
        return KEEP
    exponent = op.known(Y)
    if exponent is not None and dtype in FLOATS:
        with np.errstate(over="ignore"):
            same = exponent.astype(op.like(0, X).dtype)
        if (same == exponent).all():
            return op.Pow(X, same)
    if exponent is not None and exponent.shape == () and exponent in (1, 2, 3):
        result = X
        for _ in range(int(exponent) - 1):
            result = op.Mul(result, X)
        return result
    wide = T.FLOAT if {dtype, op.dtype(Y)} <= set(HELD_BY_FLOAT) else T.DOUBLE
    return op.Cast(op.Pow(op.Cast(X, to=wide), op.Cast(Y, to=wide)), to=dtype)


# --- Mod and BitShift ----------------------------------------------------------------------
@adapter("Mod", 28, 13, accuracy="rounding")
def mod_of_floats(op, A, B, *, fmod):
    """28 lets floats have the remainder of a floored quotient, before it they had that of a truncated one alone.

    Where the two differ the signs of the remainder and the divisor do, and the divisor is added.
    """
    if fmod or op.dtype(A) not in FLOATS:
        return KEEP
    rest, zero = op.Mod(A, B, fmod=1), op.like(0, A)
    differ = op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(rest, zero), op.Less(B, zero)))
    return op.Where(differ, op.Add(rest, B), rest)


@adapter("BitShift", 28, 11)
def shift_of_signed(op, X, Y, *, direction):
    """28 adds signed integers, and says what a shift by more bits than there are, or less than none, gives.

    In 64 bits there are no more bits to lose: to the left the high ones are dropped by a Cast, to the right a negative
    number is shifted as its complement, which is not.
    """
    dtype = op.dtype(X)
    bits = 8 * op.like(0, X).dtype.itemsize
    signed = dtype in (T.INT8, T.INT16, T.INT32, T.INT64)
    known = op.known(Y)
    if not signed and known is not None and (known < bits).all():
        return KEEP
    wide, amount = op.Cast(X, to=T.INT64), op.Cast(Y, to=T.INT64)
    # An amount of 2^63 and more is negative now.
    beyond = op.Or(op.Less(amount, np.int64(0)), op.Not(op.Less(amount, np.int64(bits))))
    amount = op.Cast(op.Where(beyond, np.int64(0), amount), to=T.UINT64)
    complement = signed and direction == "RIGHT"
    if complement:
        negative = op.Less(wide, np.int64(0))
        wide = op.Where(negative, op.Sub(np.int64(-1), wide), wide)
    shifted = op.Cast(op.BitShift(op.Cast(wide, to=T.UINT64), amount, direction=direction), to=T.INT64)
    shifted = op.Where(beyond, np.int64(0), shifted)
    if complement:
        shifted = op.Where(negative, op.Sub(np.int64(-1), shifted), shifted)
    return op.Cast(shifted, to=dtype)


# --- DFT -----------------------------------------------------------------------------------
@adapter("DFT", 17, 20)
def dft_axis_input(op, input, dft_length, *, axis, **same):
    """17 has the axis as an attribute, 1 by default; 20 as an input, the last but one by default.

    It becomes a constant.
    """
    return op.DFT(input, dft_length, np.array(axis), **same)


@adapter("DFT", 20, 17)
def dft_axis_attribute(op, input, dft_length, axis, **same):
    """20 has the axis as an input, the last but one by default; 17 as an attribute.

    A constant becomes the attribute; for one that is not, each axis is transformed if it is the one.
    """
    known = np.array(-2) if axis is None else op.known(axis)
    if known is not None:
        return op.DFT(input, dft_length, axis=int(known.reshape(-1)[0]), **same)
    result, rank = input, op.rank(input)
    axis = op.Reshape(axis, np.zeros(0, np.int64))
    for k in range(rank - 1):
        chosen = op.Or(op.Equal(axis, np.array(k)), op.Equal(axis, np.array(k - rank)))
        transformed = op.branch(lambda k=k, x=result: op.DFT(x, dft_length, axis=k, **same))
        result = op.If(chosen, then_branch=transformed, else_branch=op.branch(lambda x=result: x))
    return result
