"""Steps of the linear algebra in ONNX's defs/math: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, KEEP, WIDE_INTEGERS, adapter, same
from relu_tools.adapters.logical import split, wrapped
from relu_tools.report import RefusedError

same("MatMul", 1, 9, 13)
same("Gemm", 1, 6, 7, 9, 11, 13)
same("Einsum", 12, 28)
same("Det", 11, 22)

# Sums of so many products of digits of 16 bits are exact in double, even a few of them.
LONGEST = 2**18


# --- MatMul --------------------------------------------------------------------------------
@adapter("MatMul", 9, 1)
def matmul_of_integers(op, A, B):
    """9 adds integers.

    They are split into digits of 16 bits (of 8, for sums that are longer or of unknown length), whose products' sums
    are exact in double, and put together modulo the type's size.
    """
    dtype, length = op.dtype(A), op.shape(A)[-1]
    if dtype in FLOATS:
        return KEEP
    bits = 16 if isinstance(length, int) and length <= LONGEST else 8
    digits = _wide_digits if dtype in WIDE_INTEGERS else _digits
    a, b = digits(op, A, bits), digits(op, B, bits)
    total = None
    for place in reversed(range(len(a))):
        part = op.MatMul(a[0], b[place])
        for k in range(1, place + 1):
            part = op.Add(part, op.MatMul(a[k], b[place - k]))
        if dtype in WIDE_INTEGERS:
            part = op.Cast(part, to=T.INT64)
            total = op.Add(op.Mul(total, np.int64(2**bits)), part) if total else part
        else:
            total = op.Add(op.Mul(split(op, total, 32)[1], np.float64(2**bits)), part) if total else part
    return op.Cast(total, to=dtype) if dtype in WIDE_INTEGERS else wrapped(op, total, dtype)


def _digits(op, x, bits):
    """The digits to the base 2^bits of integers of 32 bits, the lowest first, as doubles; the highest has the sign."""
    high, digits = op.Cast(x, to=T.DOUBLE), []
    for _ in range(32 // bits - 1):
        high, low = split(op, high, bits)
        digits.append(low)
    return [*digits, high]


def _wide_digits(op, x, bits):
    """The digits to the base 2^bits of integers of 64 bits, the lowest first, as doubles; each has the sign."""
    high, digits = op.Cast(x, to=T.INT64), []
    for _ in range(64 // bits - 1):
        x, high = high, op.Div(high, np.int64(2**bits))
        digits.append(op.Cast(op.Sub(x, op.Mul(high, np.int64(2**bits))), to=T.DOUBLE))
    return [*digits, op.Cast(high, to=T.DOUBLE)]


# --- Gemm ----------------------------------------------------------------------------------
@adapter("Gemm", 6, 7)
def gemm(op, A, B, C, *, broadcast, **same):
    """6 broadcasts C where `broadcast` says so, 7 always does.

    What 6 broadcasts, 7 broadcasts alike.
    """
    return op.Gemm(A, B, C, **same)


@adapter("Gemm", 7, 6)
def gemm_broadcast(op, A, B, C, *, transB, **same):
    """7 broadcasts C as numpy does, 6 where `broadcast` says so, and not along its columns.

    A C with one column is multiplied by a row of ones.
    """
    shape = op.shape(C)
    columns = op.shape(B)[0 if transB else 1]
    if len(shape) == 2 and shape[0] == 1:
        C = op.Reshape(C, np.array([-1]))
    elif len(shape) == 2 and shape[1] in (1, None) and columns != 1:
        if shape[1] is None or not isinstance(columns, int):
            raise RefusedError(f"before 7 Gemm cannot broadcast '{C}' of shape {shape} to {columns} columns")
        C = op.MatMul(C, op.like(1, C) * np.ones((1, columns), op.like(1, C).dtype))
    return op.Gemm(A, B, C, broadcast=1, transB=transB, **same)


@adapter("Gemm", 9, 7, opset=9)
def gemm_of_integers(op, A, B, C, *, alpha, beta, transA, transB):
    """9 adds integers.

    They go by MatMul, Mul and Add; a factor that is no integer is refused.
    """
    if op.dtype(A) in FLOATS:
        return KEEP
    if alpha != int(alpha) or beta != int(beta):
        raise RefusedError(f"before 9 Gemm takes no integers, and there is no integer alpha {alpha} or beta {beta}")
    A = op.Transpose(A, perm=[1, 0]) if transA else A
    B = op.Transpose(B, perm=[1, 0]) if transB else B
    product, added = op.MatMul(A, B), C
    if alpha != 1:
        product = op.Mul(product, op.like(int(alpha), A))
    if beta != 1:
        added = op.Mul(C, op.like(int(beta), A))
    return op.Add(product, added)


@adapter("Gemm", 11, 9)
def gemm_with_c(op, A, B, C, **same):
    """11 lets C be left out.

    A scalar 0 in its place adds nothing.
    """
    return KEEP if C else op.Gemm(A, B, op.like(0, A), **same)
