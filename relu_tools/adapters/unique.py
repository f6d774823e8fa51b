"""Unique below the opset that has it: each element is compared with each."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, adapter
from relu_tools.adapters.indexing import arange, size
from relu_tools.report import RefusedError


@adapter("Unique", 11, None, opset=13)
def unique(op, X, *, axis, sorted):
    """11 is its first version.

    What is along the axis, or each element, is compared with each other. The first of those that are equal is kept; how
    many of these are less tells its place. A NaN is equal to others and comes last.
    """
    if op.dtype(X) == T.STRING:
        raise RefusedError("before 11 there is no order of strings")
    data, rows = _rows(op, X, axis)
    equal, less = _compared(op, rows)
    numbers = arange(op, size(op, rows, 0))
    first = op.ArgMax(op.Cast(equal, to=T.FLOAT), axis=1, keepdims=0)
    kept = op.Reshape(op.NonZero(op.Equal(first, numbers)), np.array([-1]))
    if sorted:
        ranks = op.ReduceSum(op.Cast(_both(op, less, kept), to=T.INT64), np.array([0]), keepdims=1)
        places = op.Unsqueeze(arange(op, size(op, kept, 0)), np.array([1]))
        order = op.ArgMax(op.Cast(op.Equal(ranks, places), to=T.FLOAT), axis=1, keepdims=0)
        kept = op.Gather(kept, order)
    alike = op.Gather(equal, kept, axis=1)
    inverse = op.ArgMax(op.Cast(alike, to=T.FLOAT), axis=1, keepdims=0)
    counts = op.ReduceSum(op.Cast(alike, to=T.INT64), np.array([0]), keepdims=0)
    made = (op.Gather(data, kept, axis=axis or 0), kept, inverse, counts)
    return tuple(value if name else None for value, name in zip(made, op.outputs, strict=False))


def _rows(op, X, axis):
    """The data to take from, and what is compared, a row each."""
    if axis is None:
        data = op.Reshape(X, np.array([-1]))
        return data, op.Unsqueeze(data, np.array([1]))
    rank = op.rank(X)
    perm = [axis % rank, *(k for k in range(rank) if k != axis % rank)]
    turned = X if perm == [*range(rank)] else op.Transpose(X, perm=perm)
    return X, op.Reshape(turned, np.array([0, -1]) if rank > 1 else np.array([0, 1]))


def _compared(op, rows):
    """For each row and each other, whether they are equal, and whether the first is the lesser one."""
    dtype = op.dtype(rows)
    rows = op.Cast(rows, to=T.INT32) if dtype == T.BOOL else rows
    one, other = op.Unsqueeze(rows, np.array([1])), op.Unsqueeze(rows, np.array([0]))
    less = op.Less(one, other)
    if dtype in FLOATS:
        less = op.Or(less, op.And(op.Not(op.IsNaN(one)), op.IsNaN(other)))
    differ = op.Cast(op.Or(less, op.Transpose(less, perm=[1, 0, 2])), to=T.FLOAT)
    # The first place where they differ decides, and after it one where they do not.
    place = op.ArgMax(differ, axis=2, keepdims=1)
    less = op.Squeeze(op.GatherElements(less, place, axis=2), np.array([2]))
    return op.Not(op.Cast(op.ReduceMax(differ, axes=[2], keepdims=0), to=T.BOOL)), less


def _both(op, table, places):
    return op.Gather(op.Gather(table, places, axis=0), places, axis=1)
