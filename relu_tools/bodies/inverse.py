"""The body of com.microsoft's inverse of matrices."""

from __future__ import annotations

import numpy as np
from onnxscript import opset18 as op

from relu_tools.bodies.precision import widened
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError

# It takes a dozen nodes for each row.
MOST = 64


@body
def Inverse(X):
    """The inverse of each square matrix, by elimination: in each column by the row with the greatest element left."""
    size = next((dim for dim in X.shape[-2:] if isinstance(dim, int)), None)
    if size is None:
        raise RefusedError("the size of the matrices is not known")
    if size > MOST:
        raise RefusedError(f"its body is for matrices of at most {MOST} rows, here are {size}")
    x = widened(X)
    unit = np.eye(size, dtype=x.dtype.numpy())
    rows = op.Concat(x, op.Expand(unit, op.Shape(x)), axis=-1)
    done, pivots = np.zeros((size, 1), bool), []
    for k in range(size):
        column = op.Slice(rows, [k], [k + 1], [-1])
        left = op.Where(done, x.like(-1), op.Abs(column))
        pivot = op.Equal(np.arange(size)[:, None], op.ArgMax(left, axis=-2, keepdims=1))
        row = op.ReduceSum(op.Where(pivot, rows, x.like(0)), [-2])
        row = row / op.Slice(row, [k], [k + 1], [-1])
        rows = op.Where(pivot, row, rows - column * row)
        done = op.Or(done, pivot)
        pivots.append(op.Where(pivot, x.like(1), x.like(0)))
    # Row k of the inverse lies where the pivot of column k was.
    places = op.Concat(*pivots, axis=-1)
    inverse = op.Slice(rows, [size], [2 * size], [-1])
    order = [*range(X.rank - 2), X.rank - 1, X.rank - 2]
    return op.MatMul(op.Transpose(places, perm=order), inverse).to(X.dtype)
