"""What writes by index, below the opsets that have it."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import adapter
from relu_tools.adapters.gathering import (
    along,
    as_int64,
    merged,
    own_places,
    places,
    pointed_along,
    row_numbers,
    shaped,
    strides,
    times,
)
from relu_tools.adapters.indexing import arange, from_front, known_size, size
from relu_tools.report import RefusedError


@adapter("ScatterElements", 11, None)
def scatter_elements(op, data, indices, updates, *, axis):
    """11 is its first version.

    Scatter, as it was called before, does the same, but for indices that count from the back.
    """
    front = indices if op.nonnegative(indices) else from_front(op, indices, size(op, data, axis))
    return op.Scatter(data, front, updates, axis=axis if axis >= 0 else axis + op.rank(data))


@adapter("ScatterND", 11, None, opset=14)
def scatter_nd(op, data, indices, updates):
    """11 is its first version.

    The axes that the indices point along become one, on which ScatterElements writes a row at each place.
    """
    shape = op.shape(data)
    depth, rank = pointed_along(op, indices, op.known_shape(updates), shape), len(shape)
    rows = op.Reshape(row_numbers(op, data, indices, depth), np.array([-1]))
    if depth == rank:
        written = op.ScatterElements(merged(op, data, rank), rows, op.Reshape(updates, np.array([-1])), axis=0)
        return shaped(op, written, [size(op, data, axis) for axis in range(rank)])
    new = updates if op.rank(indices) == 2 else merged(op, updates, op.rank(indices) - 1)
    rows = op.Expand(op.Unsqueeze(rows, np.arange(1, rank - depth + 1)), op.Shape(new))
    op.tell(op.count(rows), T.INT64, [None, *shape[depth:]])
    if depth == 1:
        return op.ScatterElements(data, rows, new, axis=0)
    table = merged(op, data, depth)
    op.tell(table, op.dtype(data), [None, *shape[depth:]])
    written = op.ScatterElements(table, rows, new, axis=0)
    return shaped(op, written, [size(op, data, axis) for axis in range(rank)])


@adapter("Scatter", 9, None, opset=13)
def scatter(op, data, indices, updates, *, axis):
    """9 is its first version.

    Each place is compared with the indices that may point at it: the result is gathered from the data and the updates
    laid in one row, at the last update that does, or else at the place itself.
    """
    rank, count = op.rank(data), known_size(op, indices, axis)
    axis %= rank
    if count == 0:
        return op.Identity(data)
    given, written = op.shape(data), op.shape(indices)
    if any(given[k] is None or given[k] != written[k] for k in range(rank) if k != axis):
        raise RefusedError(f"before 9 the data, {given}, and the indices, {written}, must be alike but along the axis")
    front = indices if op.nonnegative(indices) else from_front(op, indices, size(op, data, axis))
    numbers = along(op, arange(op, size(op, data, axis)), rank + 1, axis + 1)
    hits = op.Equal(op.Unsqueeze(as_int64(op, front), np.array([axis + 1])), numbers)
    order = along(op, arange(op, size(op, indices, axis)), rank + 1, axis)
    order = order + 1 if isinstance(order, np.ndarray) else op.Add(order, np.int64(1))
    order = order.astype(np.float64) if isinstance(order, np.ndarray) else op.Cast(order, to=T.DOUBLE)
    hitting = op.Mul(op.Cast(hits, to=T.DOUBLE), order)
    if count is None:
        # The greatest of nothing is no 0, which the sum of nothing is.
        none = op.Mul(op.ReduceSum(hitting, np.array([axis])), np.float64(0))
        hitting = op.Concat(hitting, none, axis=axis)
    last = op.ReduceMax(hitting, axes=[axis], keepdims=0)
    hit, last = op.Cast(last, to=T.BOOL), op.Sub(op.Cast(last, to=T.INT64), np.int64(1))
    steps = strides(op, data, rank)
    total = times(op, steps[0], size(op, data, 0))
    update = op.Add(places(op, updates, last, axis, rank), np.int64(total) if isinstance(total, int) else total)
    where = op.Where(hit, update, own_places(op, data, steps))
    row = op.Concat(op.Reshape(data, np.array([-1])), op.Reshape(updates, np.array([-1])), axis=0)
    return op.Gather(row, op.count(where))
