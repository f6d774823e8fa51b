"""Bodies of com.microsoft's operators on the elements of arrays, most of which ai.onnx took over later."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset18 as op

from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


@body
def Trilu(X, k=None, upper: int = 1):
    """The upper or the lower triangle, as ai.onnx has it from opset 14 on."""
    return op.Trilu(X, k, upper=upper)


@body
def Unique(x):
    """The distinct elements as they first occur, the place of each element among them, and their counts."""
    y, _, idx, counts = op.Unique(x, sorted=0)
    return y, idx, counts


@body
def ExpandDims(X, axis):
    """Unsqueeze at one axis, a scalar or a vector of one element."""
    return op.Unsqueeze(X, op.Reshape(axis.to(T.INT64), [1]))


@body
def GatherND(data, indices):
    """The slices that the last axis of `indices` leads to, as ai.onnx has it from opset 11 on."""
    return op.GatherND(data, indices.to(T.INT64))


@body
def TorchEmbedding(weight, indices, padding_idx=None, scale_grad_by_freq=None):
    """The rows that the indices name; the other inputs matter in training only."""
    return op.Gather(weight, indices)


@body
def Pad(data, pads, value=None, mode: str = "constant"):
    """Pad of ai.onnx, whose pads may be a matrix of one row here, and whose value a vector of one element."""
    if pads.known_shape is None or len(pads.known_shape) != 1:
        pads = op.Reshape(pads, [-1])
    return op.Pad(data, pads, None if value is None else value.scalar(), mode=mode)


@body
def Range(start, limit, delta=None):
    """start, start + delta and so on up to before the limit; a delta that is left out is 1."""
    return op.Range(start.scalar(), limit.scalar(), start.like(1) if delta is None else delta.scalar())


@body
def UnfoldTensor(input, size: int, dim: int = -1, step: int = 1):
    """All windows of a size along an axis, at this step, their elements along a new last axis."""
    dim %= input.rank
    length = input.shape[dim]
    if not isinstance(length, int):
        raise RefusedError(f"how many windows there are is not known: axis {dim} has no fixed size")
    windows = np.arange(0, length - size + 1, step)[:, None] + np.arange(size)
    unfolded = op.Gather(input, windows, axis=dim)
    return op.Transpose(unfolded, perm=[k for k in range(input.rank + 1) if k != dim + 1] + [dim + 1])


@body
def ReduceSumInteger(data, *, axes: list[int], keepdims: int):
    """ReduceSum of 8-bit integers in 32 bits."""
    dtype = T.INT32 if data.dtype == T.INT8 else T.UINT32
    return op.ReduceSum(data.to(T.INT64), axes, keepdims=keepdims).to(dtype)


@body
def CDist(A, B, metric: str = "sqeuclidean"):
    """The distance of each row of A to each of B, squared or not, as |a|^2 - 2ab + |b|^2, no less than 0."""
    if metric not in ("sqeuclidean", "euclidean"):
        raise RefusedError(f"its body knows no metric '{metric}'")
    squares = op.ReduceSumSquare(A, [1]) + op.Transpose(op.ReduceSumSquare(B, [1]), perm=[1, 0])
    distance = op.Max(squares - op.MatMul(A, op.Transpose(B, perm=[1, 0])) * 2, A.like(0))
    return op.Sqrt(distance) if metric == "euclidean" else distance


@body
def GridSample(X, Grid, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: int = 0):
    """The values at the places that the grid tells, as ai.onnx has it from opset 16 on."""
    return op.GridSample(X, Grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@body
def SampleOp(X):
    """X itself."""
    return op.Identity(X)
