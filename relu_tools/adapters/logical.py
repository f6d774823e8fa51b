"""Steps of the operators in ONNX's defs/logical, and of the arithmetic that broadcasts as they do."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, KEEP, WIDE_INTEGERS, adapter, same

UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)

same("Add Sub Mul Div", 1, 6, 7, 13, 14)
same("Greater Less", 1, 7, 9, 13)
same("Equal", 1, 7, 11, 13, 19)
same("And Or Xor", 1, 7)
same("LessOrEqual GreaterOrEqual", 12, 16)
same("Pow", 1, 7)


# --- broadcasting ------------------------------------------------------------------------
@adapter("Add Sub Mul Div", 6, 7)
@adapter("Pow And Or Xor Greater Less Equal", 1, 7)
def broadcast(op, A, B, *, axis, broadcast):
    """Before 7 B is laid along the axes of A from `axis` on, where `broadcast` allows it; 7 does as numpy does.

    B gets as many trailing dimensions as A has after it.
    """
    trailing = 0
    if broadcast and axis is not None:
        first = axis + op.rank(A) if axis < 0 else axis
        trailing = op.rank(A) - first - op.rank(B)
    if trailing > 0:
        return op.again(A, op.Unsqueeze(B, axes=list(range(op.rank(B), op.rank(B) + trailing))))
    return op.again(A, B)


SWAPPED = {
    "Add": "Add",
    "Mul": "Mul",
    "And": "And",
    "Or": "Or",
    "Xor": "Xor",
    "Equal": "Equal",
    "Greater": "Less",
    "Less": "Greater",
}


@adapter("Add Sub Mul Div", 7, 6)
@adapter("Pow And Or Xor Greater Less Equal", 7, 1)
def broadcast_one_way(op, A, B):
    """7 broadcasts as numpy does; before it B is laid along axes of A that follow each other.

    Where A is the smaller one the operands change places, or it is added to zeros of B's shape. Where it is not known
    which dimensions are 1, both are repeated as often as the other one's size says. The ranks must be known.
    """
    shapes = op.known_shape(A), op.known_shape(B)
    if shapes[0] is not None and shapes[0] == shapes[1] and None not in shapes[0]:
        return KEEP
    if shapes[1] == [] or (shapes[1] == [1] and op.rank(A) > 0):
        return op.again(A, B, broadcast=1)
    a, b = op.shape(A), op.shape(B)
    if len(b) < len(a) or (len(a) == len(b) and not _covers(b, a)):
        return lay(op, op.again, A, B, a, b)
    if op.type in SWAPPED:
        return lay(op, getattr(op, SWAPPED[op.type]), B, A, b, a)
    if op.type == "Sub" and op.dtype(B) not in UNSIGNED:
        return lay(op, op.Add, op.Neg(B), A, b, a)
    # A comparison of a float with itself is false even for NaN and infinity.
    zeros = op.Cast(op.Less(B, B), to=op.dtype(B)) if op.dtype(B) in FLOATS else op.Sub(B, B)
    return op.again(lay(op, op.Add, zeros, A, b, a), B)


def lay(op, make, A, B, a, b):
    """`make` of A and B, which have these shapes, with B laid along axes of A.

    Dimensions of 1 are taken away from B, and A is turned so that the others follow each other. Where A has a 1 and B
    has not, A is repeated.
    """
    aligned = [1] * (len(a) - len(b)) + b
    inner = [k for k, dim in enumerate(aligned) if dim != 1]
    repeats = [aligned[k] if k in inner and a[k] == 1 else 1 for k in range(len(a))]
    a = [dim if times == 1 else times for dim, times in zip(a, repeats, strict=True)]
    if any(aligned[k] is None or aligned[k] != a[k] for k in inner) or not all(isinstance(n, int) for n in repeats):
        new = list(range(len(a) - len(b)))
        return make(*_spread(op, A, op.Unsqueeze(B, axes=new) if new else B, len(a)))
    if any(times != 1 for times in repeats):
        A = op.Tile(A, np.array(repeats))
    between = range(inner[0], inner[-1] + 1) if inner else []
    if all(aligned[k] == a[k] for k in between):
        inner = list(between)
    ones = [k - len(a) + len(b) for k in range(len(a) - len(b), len(a)) if k not in inner]
    B = op.Squeeze(B, axes=ones) if ones else B
    if inner == list(between):
        return make(A, B, broadcast=1, axis=inner[0] if inner else None)
    perm = inner + [k for k in range(len(a)) if k not in inner]
    turned = make(op.Transpose(A, perm=perm), B, broadcast=1, axis=0)
    return op.Transpose(turned, perm=np.argsort(perm))


def _spread(op, A, B, rank):
    """Both operands in the result's shape: along an axis of 1 each is repeated as often as the other one is long."""
    ones = np.ones(rank, np.int64)
    sizes = op.Shape(A), op.Shape(B)
    spread = []
    for operand, own, other in ((A, *sizes), (B, *sizes[::-1])):
        is_one = op.Cast(op.Equal(own, ones), to=T.INT64)
        spread.append(op.Tile(operand, op.Add(op.Mul(is_one, op.Sub(other, ones)), ones)))
    return spread


@adapter("Add Sub Mul Div", 6, 1)
def arithmetic_of_integers(op, A, B, *, axis, broadcast):
    """6 adds the integers of 32 and 64 bits.

    Those of 32 bits are exact in double: sums, differences, quotients (the Cast drops the fraction), and products of
    one with the halves of the other; they are put together modulo 2^32.
    """
    dtype = op.dtype(A)
    if dtype in FLOATS or dtype in WIDE_INTEGERS:
        return KEEP
    A, B = op.Cast(A, to=T.DOUBLE), op.Cast(B, to=T.DOUBLE)
    if op.type == "Mul":
        high, low = split(op, B, 16, broadcast=1)
        high = split(op, op.Mul(A, high, axis=axis, broadcast=broadcast), 16, broadcast=1)[1]
        low = op.Mul(A, low, axis=axis, broadcast=broadcast)
        result = op.Add(low, op.Mul(high, np.float64(2**16), broadcast=1))
    else:
        result = op.again(A, B, axis=axis, broadcast=broadcast)
    return wrapped(op, result, dtype, broadcast=1)


def wrapped(op, x, dtype, **scalar):
    """A double as an integer of 32 bits, modulo 2^32; `scalar` lets a scalar spread.

    Not by Casts to int64 and from there: onnxruntime makes one of two that follow each other, and that one saturates.
    """
    lowest = np.float64(0 if dtype == T.UINT32 else -(2**31))
    turns = split(op, op.Sub(x, lowest, **scalar), 32, **scalar)[0]
    return op.Cast(op.Sub(x, op.Mul(turns, np.float64(2**32), **scalar)), to=dtype)


def split(op, x, bits, **scalar):
    """The quotient of a double by 2^bits, rounded down, and the rest; `scalar` lets a scalar spread."""
    high = op.Floor(op.Mul(x, np.float64(2.0**-bits), **scalar))
    return high, op.Sub(x, op.Mul(high, np.float64(2**bits), **scalar))


def _covers(a: list, b: list) -> bool:
    """Whether b broadcasts to a shape without changing it."""
    return all(x == y or y == 1 for x, y in zip(a, b, strict=True))


# --- integers in comparisons ---------------------------------------------------------------
@adapter("Greater Less", 9, 7)
def compare(op, A, B):
    """9 adds integers.

    Rounding 64-bit ones to double keeps their order; where two become equal, their difference tells.
    """
    if op.dtype(A) not in WIDE_INTEGERS:
        return KEEP
    a, b = op.Cast(A, to=T.DOUBLE), op.Cast(B, to=T.DOUBLE)
    if op.in_double(A) or op.in_double(B):
        return op.again(a, b)
    difference = op.Cast(op.Cast(op.Sub(A, B), to=T.INT64), to=T.DOUBLE)
    equal = op.Not(op.Or(op.Greater(a, b), op.Less(a, b)))
    return op.Or(op.again(a, b), op.And(equal, op.again(difference, np.float64(0))))


@adapter("Equal", 11, 7)
def equal(op, A, B):
    """11 adds floats and the other integers.

    Two floats that are numbers are equal where neither is the greater one; an uint64 is equal where its bits are.
    """
    dtype = op.dtype(A)
    if dtype == T.UINT64:
        return op.Equal(op.Cast(A, to=T.INT64), op.Cast(B, to=T.INT64))
    if dtype not in FLOATS:
        return KEEP
    unequal = op.Or(op.Greater(A, B), op.Less(A, B))
    return op.And(op.Not(unequal), op.And(_is_number(op, A), _is_number(op, B)))


@adapter("LessOrEqual GreaterOrEqual", 12, None)
def or_equal(op, A, B):
    """12 is their first version.

    They hold where the opposite comparison does not, and both are numbers.
    """
    opposite = op.Greater if op.type == "LessOrEqual" else op.Less
    if op.dtype(A) not in FLOATS:
        return op.Not(opposite(A, B))
    return op.And(op.Not(opposite(A, B)), op.And(_is_number(op, A), _is_number(op, B)))


def _is_number(op, x):
    """True where x is not NaN."""
    return op.Or(op.Less(x, op.like(1, x)), op.Greater(x, op.like(0, x)))
