"""Steps of the linear algebra in ONNX's defs/math: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, KEEP, WIDE_INTEGERS, adapter, same
from relu_tools.adapters.logical import HALF, halves
from relu_tools.report import RefusedError

same("MatMul", 1, 9, 13)
same("Gemm", 1, 6, 7, 9, 11, 13)
same("Einsum", 12, 28)
same("Det", 11, 22)

# Sums of so many products of halves are exact in double.
LONGEST = 2**20


# --- MatMul --------------------------------------------------------------------------------
@adapter("MatMul", 9, 1)
def matmul_of_integers(op, A, B):
    """9 adds integers.

    Those of 32 bits are split into halves, whose products' sums are exact in double, and put together modulo 2^32;
    for those of 64, and sums of unknown length, each product is made and added as an integer.
    """
    dtype = op.dtype(A)
    if dtype in FLOATS:
        return KEEP
    length = op.shape(A)[-1]
    if dtype in WIDE_INTEGERS or not isinstance(length, int) or length > LONGEST:
        return _products(op, A, B)
    (a_high, a_low), (b_high, b_low) = halves(op, op.Cast(A, to=T.DOUBLE)), halves(op, op.Cast(B, to=T.DOUBLE))
    cross = op.Add(op.MatMul(a_high, b_low), op.MatMul(a_low, b_high))
    total = op.Add(op.MatMul(a_low, b_low), op.Mul(halves(op, cross)[1], np.float64(HALF)))
    return op.Cast(op.Cast(total, to=T.INT64), to=dtype)


def _products(op, A, B):
    a, b = op.rank(A), op.rank(B)
    left = op.Unsqueeze(A, axes=[0, 2] if a == 1 else [a])
    right = op.Unsqueeze(B, axes=[0, 2] if b == 1 else [b - 2])
    rank = max(a, b, 2) + 1
    total = op.ReduceSum(op.Mul(left, right), axes=[rank - 2], keepdims=0)
    single = [rank - 3] * (a == 1) + [rank - 2] * (b == 1)
    return op.Squeeze(total, axes=single) if single else total


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
