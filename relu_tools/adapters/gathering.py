"""What reads by index, below the opsets that have it: all of it is Gather from data laid in a row."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import arange, from_front, known_size, scalar, size
from relu_tools.report import RefusedError


# --- places in a row -------------------------------------------------------------------------
def strides(op, data, rank):
    """How far apart neighbours on each axis lie in a row: a number where it is known, else a value of one element."""
    found, product = [], 1
    for axis in reversed(range(rank)):
        found.append(product)
        product = times(op, product, size(op, data, axis))
    return found[::-1]


def times(op, a, b):
    """The product of integers, each a number, an array or a value."""
    if not isinstance(a, str) and not isinstance(b, str):
        return a * b
    a, b = (a, b) if isinstance(a, str) else (b, a)
    if isinstance(b, int):
        return a if b == 1 else op.Mul(a, np.int64(b))
    return op.Mul(a, b)


def vector(op, numbers):
    """Integers, each a number or a value of one element, as one array or value."""
    if all(isinstance(number, int) for number in numbers):
        return np.array(numbers, np.int64)
    parts = [np.array([number]) if isinstance(number, int) else number for number in numbers]
    return op.Concat(*parts, axis=0)


def along(op, numbers, rank, axis):
    """A row of numbers turned into an axis of so many."""
    others = [k for k in range(rank) if k != axis]
    if isinstance(numbers, np.ndarray):
        return np.expand_dims(numbers, others)
    return op.Unsqueeze(numbers, np.array(others)) if others else numbers


def own_places(op, shaped, steps, left_out=None):
    """The sum of each element's coordinates times `steps`, but for one axis: an array or a value that broadcasts."""
    rank, fixed, moving = len(steps), np.zeros([1] * len(steps), np.int64), []
    for axis in (k for k in range(rank) if k != left_out):
        count = size(op, shaped, axis)
        if isinstance(count, int) and isinstance(steps[axis], int):
            fixed = fixed + along(op, np.arange(count) * steps[axis], rank, axis)
        else:
            moving.append(along(op, times(op, arange(op, count), steps[axis]), rank, axis))
    total = None if moving and not fixed.any() and fixed.size == 1 else fixed
    for part in moving:
        total = part if total is None else op.Add(part, total)
    return total


def places(op, data, indices, axis, rank):
    """Where in a row the elements of `data` lie that have `indices`, from 0 on, on an axis, their own on others."""
    steps = strides(op, data, rank)
    place = times(op, indices, steps[axis])
    own = own_places(op, indices, steps, axis)
    return op.count(place if isinstance(own, np.ndarray) and not own.any() else op.Add(place, own))


def row_numbers(op, data, indices, depth):
    """The numbers of the rows, laid out over the first axes of `data`, that the last axis of `indices` points at."""
    if not op.nonnegative(indices):
        indices = op.count(from_front(op, indices, vector(op, [size(op, data, axis) for axis in range(depth)])))
    indices = as_int64(op, indices)
    if depth == 1:
        return op.Squeeze(indices, np.array([-1]))
    steps, product = [], 1
    for axis in reversed(range(depth)):
        steps.append(product)
        product = times(op, product, size(op, data, axis))
    return op.count(op.ReduceSum(op.Mul(indices, vector(op, steps[::-1])), np.array([-1]), keepdims=0))


def pointed_along(op, indices, result, data):
    """The size of the last axis of indices, from the shapes of the result and the data if need be."""
    depth, rank = known_size(op, indices, -1), op.rank(indices)
    if depth is None and result is not None and data is not None:
        depth = len(data) + rank - 1 - len(result)
    if depth is None:
        raise RefusedError(f"before 11 the size of the last axis of '{indices}' must be known")
    return depth


def merged(op, data, depth):
    """The data with the first axes, so many of them, as one. For opset 14."""
    rank = op.rank(data)
    if depth == rank:
        return op.Reshape(data, np.array([-1]))
    count = 1
    for axis in range(depth):
        count = times(op, count, size(op, data, axis))
    return shaped(op, data, [count, *(size(op, data, axis) for axis in range(depth, rank))])


def shaped(op, data, sizes):
    """The data in other dimensions, each a number or a value of one element. For opset 14."""
    known = [number for number in sizes if isinstance(number, int)]
    if len(sizes) - len(known) == 1 and 0 not in known:
        return op.Reshape(data, np.array([number if isinstance(number, int) else -1 for number in sizes]))
    return op.Reshape(data, vector(op, sizes), allowzero=1)


def as_int64(op, value):
    return value if op.dtype(value) == T.INT64 else op.Cast(value, to=T.INT64)


# --- Gather ----------------------------------------------------------------------------------
@adapter("GatherElements", 11, None, opset=13)
def gather_elements(op, data, indices, *, axis):
    """11 is its first version.

    The data are laid in a row, and each index becomes the place there.
    """
    rank = op.rank(data)
    if rank == 1:
        return op.Gather(data, indices)
    axis %= rank
    front = indices if op.nonnegative(indices) else from_front(op, indices, size(op, data, axis))
    where = places(op, data, as_int64(op, front), axis, rank)
    return op.Gather(op.Reshape(data, np.array([-1])), where)


@adapter("GatherND", 11, None, opset=14)
def gather_nd(op, data, indices):
    """11 is its first version.

    The axes that the indices point along become one, and each index becomes the place on it.
    """
    depth = pointed_along(op, indices, op.known_shape(op.outputs[0]), op.known_shape(data))
    if depth == 1:
        return op.Gather(data, op.Squeeze(indices, np.array([-1])))
    rows = row_numbers(op, data, indices, depth)
    return op.Gather(merged(op, data, depth), rows)


@adapter("ReverseSequence", 10, None, opset=14)
def reverse_sequence(op, input, sequence_lens, *, batch_axis, time_axis):
    """10 is its first version.

    An element of the first `sequence_lens` of its batch comes from as far before the end of these as it is behind the
    start; the two axes become one, from which it is gathered.
    """
    lengths = along(op, as_int64(op, sequence_lens), 2, batch_axis)
    time = along(op, arange(op, size(op, input, time_axis)), 2, time_axis)
    mirrored = op.Sub(op.Sub(lengths, np.int64(1)), time)
    source = op.Where(op.Less(mirrored, np.int64(0)), time, mirrored)
    inner = size(op, input, 1)
    batch = along(op, arange(op, size(op, input, batch_axis)), 2, batch_axis)
    first, second = (source, batch) if time_axis == 0 else (batch, source)
    rows = op.Add(times(op, first, inner), second)
    return op.Gather(merged(op, input, 2), op.count(rows))


# --- what is chosen by a condition --------------------------------------------------------------
@adapter("Compress", 9, None, opset=9)
def compress(op, input, condition, *, axis):
    """9 is its first version.

    What the condition holds for is gathered.
    """
    chosen = op.Reshape(op.NonZero(condition), np.array([-1]))
    if axis is None:
        return op.Gather(op.Reshape(input, np.array([-1])), chosen)
    return op.Gather(input, chosen, axis=axis)


@adapter("NonZero", 9, None, opset=13)
def non_zero(op, X):
    """9 is its first version.

    A Loop finds one after the other in the data laid in a row: the first one that lies behind the last that was found.
    The place there is divided by the strides for the coordinates.
    """
    if op.dtype(X) == T.STRING:
        raise RefusedError("before 9 nothing tells an empty string from others")
    rank = op.rank(X)
    found = _found(op, op.Reshape(op.Cast(X, to=T.BOOL), np.array([-1])))
    rows = []
    for axis, step in enumerate(strides(op, X, rank)):
        row = found
        if axis < rank - 1:
            step = _divisor(op, step)
            row = op.Div(found, step)
            found = op.Sub(found, op.Mul(row, step))
        rows.append(op.Unsqueeze(row, np.array([0])))
    if not rows:
        return op.Slice(op.Unsqueeze(found, np.array([0])), np.array([0]), np.array([0]))
    return op.Concat(*rows, axis=0)


def _divisor(op, step):
    """A stride; 1 in place of the 0 where a size is 0, and nothing is found."""
    if isinstance(step, int):
        return np.int64(max(step, 1))
    return op.Add(step, op.Cast(op.Not(op.Cast(step, to=T.BOOL)), to=T.INT64))


def _found(op, mask):
    """The places of a row of truth values that are true."""
    numbers = arange(op, size(op, mask, 0))
    numbers = numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else op.Cast(numbers, to=T.DOUBLE)

    def turn(_, go_on, last):
        rest = op.And(mask, op.Less(op.Cast(last, to=T.DOUBLE), numbers))
        first = op.ArgMax(op.Cast(rest, to=T.FLOAT), axis=0, keepdims=0)
        return op.Identity(go_on), first, op.Identity(first)

    types = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL, T.INT64)]
    count = op.ReduceSum(op.Cast(mask, to=T.INT64), keepdims=0)
    return op.Loop(count, None, np.int64(-1), body=op.branch(turn, types), outputs=2)[1]


# --- what is made by comparing with numbers -----------------------------------------------------
@adapter("OneHot", 9, None, opset=13)
def one_hot(op, indices, depth, values, *, axis):
    """9 is its first version.

    Each index is compared with the numbers up to `depth`; what comes out chooses between the two values.
    """
    count = op.known(depth)
    numbers = np.arange(int(count.reshape(-1)[0])) if count is not None else arange(op, _row(op, depth))
    rank = op.rank(indices) + 1
    hits = op.Equal(op.Unsqueeze(as_int64(op, indices), np.array([axis])), along(op, numbers, rank, axis % rank))
    return op.Gather(values, op.count(op.Cast(hits, to=T.INT64)))


def _row(op, value):
    return op.Reshape(scalar(op, value), np.array([1]))


@adapter("EyeLike", 9, None, opset=13)
def eye_like(op, input, *, dtype, k):
    """9 is its first version.

    It is 1 where the number of the row plus k is that of the column.
    """
    rows, columns = (along(op, arange(op, size(op, input, axis)), 2, axis) for axis in (0, 1))
    rows = rows + k if isinstance(rows, np.ndarray) else op.Add(rows, np.int64(k))
    return op.Cast(op.Equal(rows, columns), to=dtype or op.dtype(input))
