"""Steps of the operators that read and write by index: Gather, Scatter and their kin, Compress, OneHot, NonZero."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from relu_tools.adapters import KEEP, adapter, same

END = np.iinfo(np.int64).max
ADDS_INTEGERS = 6
"""The first version of Add that takes integers."""

same("Gather", 1, 11, 13)
same("GatherElements", 11, 13)
same("GatherND", 11, 12, 13)
same("ScatterElements ScatterND", 11, 13, 16, 18)
same("Compress", 9, 11, 28)
same("OneHot", 11, 28)
same("NonZero", 9, 13)
same("Unique", 11, 28)
same("ReverseSequence", 10, 28)


def arange(op, count):
    """0, 1, ... of int64, as many as a number or a value of one element says. For opsets from 9 on."""
    if isinstance(count, int):
        return np.arange(count)
    if op.version("NonZero"):
        ones = op.ConstantOfShape(count, value=numpy_helper.from_array(np.ones(1, np.int64)))
        return op.Reshape(op.NonZero(ones), np.array([-1]))
    numbers = op.places(turns(op, scalar(op, op.places(count))))
    op.tell(numbers, T.INT64, [numbers])
    return numbers


def turns(op, count):
    """The numbers that a Loop gives its turns, as many as a scalar says. For opsets from 1 on."""

    def turn(number, go_on, zero):
        # onnxruntime up to 1.4 hands out the last number each time where it is handed out as it is.
        return go_on, zero, op.Add(number, zero) if op.version("Add") >= ADDS_INTEGERS else number

    # The first Loop must carry something along.
    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL, T.INT64)]
    return op.Loop(count, None, np.int64(0), body=op.branch(turn, formals), outputs=2)[1]


def scalar(op, value):
    """An integer of one element as an int64 without dimensions."""
    known = op.known(value)
    if known is not None:
        return np.int64(known.reshape(-1)[0])
    value = value if op.dtype(value) == T.INT64 else op.Cast(value, to=T.INT64)
    return value if op.known_shape(value) == [] else op.Reshape(value, np.zeros(0, np.int64))


def known_size(op, value, axis):
    """The size of an axis, None where it is not known."""
    shape = op.known_shape(value)
    return shape[axis] if shape is not None and isinstance(shape[axis], int) else None


def size(op, value, axis):
    """The size of an axis: a number where it is known, else a value of one element. For opsets from 10 on."""
    known = known_size(op, value, axis)
    return op.Slice(op.Shape(value), np.array([axis]), np.array([axis + 1 or END])) if known is None else known


def gathered(op, data, places, axis):
    """The data at places along an axis. Of strings, onnxruntime's Gather is right along the last axis alone."""
    if op.dtype(data) != T.STRING or axis == op.rank(data) - 1:
        return op.Gather(data, places, axis=axis)
    perm = list(range(op.rank(data)))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return op.Transpose(op.Gather(op.Transpose(data, perm=perm), places, axis=len(perm) - 1), perm=perm)


def from_front(op, values, length):
    """Integers of which those below 0 count from the back of a length, as int64."""
    values = values if op.dtype(values) == T.INT64 else op.Cast(values, to=T.INT64)
    length = np.int64(length) if isinstance(length, int) else length
    return op.Where(op.Less(values, np.int64(0)), op.Add(values, length), values)


# --- Gather ----------------------------------------------------------------------------------
@adapter("Gather", 11, 1)
@adapter("Scatter", 11, 9)
def indices_from_front(op, data, indices, *updates, axis):
    """11 lets indices count from the back.

    Constants are counted from the front; others that may be negative are taken modulo the size of the axis, or that is
    added to those below 0 where it is not known (it may be 0, with no index at all).
    """
    if op.nonnegative(indices):
        return KEEP
    length, known = size(op, data, axis), op.known(indices)
    if known is not None and isinstance(length, int):
        return op.again(data, np.where(known < 0, known + length, known).astype(known.dtype), *updates, axis=axis)
    if isinstance(length, int):
        length = op.like(length, indices)
        if length and op.version("Mod"):
            return op.again(data, op.Mod(indices, length), *updates, axis=axis)
    else:
        length = op.Cast(scalar(op, length), to=op.dtype(indices))
    behind = op.Less(indices, op.like(0, indices))
    return op.again(data, op.Where(behind, op.Add(indices, length), indices), *updates, axis=axis)


@adapter("GatherND", 12, 11)
def gather_batches(op, data, indices, *, batch_dims):
    """12 can take each batch from its own part of the data (`batch_dims`).

    The number of the batch, one for each of its dimensions, comes before the indices.
    """
    if not batch_dims:
        return KEEP
    rank = op.rank(indices)
    lengths = op.Slice(op.Shape(indices), np.array([0]), np.array([rank - 1]))
    spread = op.Concat(lengths, np.array([1]), axis=0)
    numbers = []
    for k in range(batch_dims):
        others = [axis for axis in range(rank) if axis != k]
        numbers.append(op.Expand(op.Unsqueeze(arange(op, size(op, indices, k)), axes=others), spread))
    return op.GatherND(data, op.Concat(*numbers, indices, axis=-1))


# --- Scatter ---------------------------------------------------------------------------------
@adapter("Scatter", 9, 11)
def scatter_elements(op, data, indices, updates, *, axis):
    """11 deprecates it in favour of ScatterElements, which does the same."""
    return op.ScatterElements(data, indices, updates, axis=axis)


@adapter("ScatterElements ScatterND", 18, 16)
def scatter_extremes(op, data, indices, updates, *, reduction, **axis):
    """18 can write the greater or the smaller one of what is there and what it writes (`reduction`).

    What is there is gathered, and the result of both is written. Where an index may occur twice, a Loop writes one
    after the other.
    """
    return _reduced(op, data, indices, updates, axis, reduction) if reduction in ("max", "min") else KEEP


@adapter("ScatterElements ScatterND", 16, 13)
def scatter_sums(op, data, indices, updates, *, reduction, **axis):
    """16 can add what it writes to what is there, or multiply both (`reduction`).

    What is there is gathered, and the result of both is written. Where an index may occur twice, a Loop writes one
    after the other.
    """
    return _reduced(op, data, indices, updates, axis, reduction) if reduction != "none" else KEEP


# The extremes are chosen as onnxruntime does it, which takes what is written where one of both is NaN.
REDUCTIONS = {
    "add": lambda op, old, new: op.Add(old, new),
    "mul": lambda op, old, new: op.Mul(old, new),
    "max": lambda op, old, new: op.Where(op.Greater(old, new), old, new),
    "min": lambda op, old, new: op.Where(op.Less(old, new), old, new),
}


def _reduced(op, data, indices, updates, along, reduction):
    gather = op.GatherND if op.type == "ScatterND" else op.GatherElements

    def write(there, at, new):
        old = gather(there, at, **along)
        return op.again(there, at, REDUCTIONS[reduction](op, old, new), **along)

    known = op.known(indices)
    if op.type == "ScatterElements":
        axis = along["axis"]
        # Places that differ in another axis never meet.
        if known_size(op, indices, axis) == 1 or (known is not None and _distinct(known, axis)):
            return write(data, indices, updates)
        return _one_by_one(op, data, indices, updates, axis, write)
    rank = op.rank(indices)
    if rank == 1 or (known is not None and _distinct_rows(known)):
        return write(data, indices, updates)
    if rank > 2:
        some, depth = np.array([-1]), size(op, indices, -1)
        rest = op.Slice(op.Shape(updates), np.array([rank - 1]), np.array([END]))
        rows = np.array([-1, depth]) if isinstance(depth, int) else op.Concat(some, depth, axis=0)
        indices, updates = op.Reshape(indices, rows), op.Reshape(updates, op.Concat(some, rest, axis=0))
    return _one_by_one(op, data, indices, updates, 0, write)


def _distinct(indices, axis) -> bool:
    return not (indices < 0).any() and bool((np.diff(np.sort(indices, axis), axis=axis) != 0).all())


def _distinct_rows(indices) -> bool:
    rows = indices.reshape(-1, indices.shape[-1])
    return not (rows < 0).any() and len(np.unique(rows, axis=0)) == len(rows)


def _one_by_one(op, data, indices, updates, axis, write):
    """What `write` makes of the data with one place of the axis of indices and updates after the other."""

    def turn(number, go_on, there):
        place = op.Reshape(number, np.array([1]))
        new = op.Gather(updates, place, axis=axis)
        return go_on, write(there, op.Gather(indices, place, axis=axis), new)

    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL)]
    formals.append(helper.make_tensor_type_proto(op.dtype(data), op.known_shape(data)))
    count = size(op, indices, axis)
    count = np.int64(count) if isinstance(count, int) else scalar(op, count)
    return op.Loop(count, None, data, body=op.branch(turn, formals))


# --- Compress and OneHot -----------------------------------------------------------------------
@adapter("Compress", 11, 9)
def compress_axis(op, input, condition, *, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis is None or axis >= 0 else op.Compress(input, condition, axis=axis + op.rank(input))


@adapter("OneHot", 9, 11)
def one_hot_of_negatives(op, indices, depth, values, *, axis):
    """9 gives no 1 for an index below 0, 11 counts it from the back.

    One that may be below 0 becomes `depth`, which neither gives a 1 for.
    """
    if op.nonnegative(indices):
        return KEEP
    indices, depth = _integers(op, indices), scalar(op, depth)
    return op.OneHot(op.Where(op.Less(indices, np.int64(0)), depth, indices), depth, values, axis=axis)


@adapter("OneHot", 11, 9)
def one_hot_from_front(op, indices, depth, values, *, axis):
    """11 lets indices and the axis count from the back, 9 gives no 1 for an index below 0; its axis -1 is the last one.

    Both are counted from the front. An index that is still below 0 then becomes `depth`, which neither gives a 1 for.
    """
    front = axis if axis >= -1 else axis + op.rank(indices) + 1
    if op.nonnegative(indices):
        return KEEP if front == axis else op.OneHot(indices, depth, values, axis=front)
    indices, depth = _integers(op, indices), scalar(op, depth)
    turned = op.Add(indices, depth)
    turned = op.Where(op.Less(turned, np.int64(0)), depth, turned)
    return op.OneHot(op.Where(op.Less(indices, np.int64(0)), turned, indices), depth, values, axis=front)


def _integers(op, value):
    return value if op.dtype(value) == T.INT64 else op.Cast(value, to=T.INT64)
