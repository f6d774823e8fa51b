"""Ranges, running sums and products, and triangles, below the opsets that have them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools import fold
from relu_tools.adapters import FLOATS, adapter, body
from relu_tools.adapters.gathering import along, as_int64
from relu_tools.adapters.indexing import arange, from_front, known_size, scalar, size
from relu_tools.adapters.shapes import blank

FIRST = np.iinfo(np.int64).min


# --- Range ---------------------------------------------------------------------------------
@adapter("Range", 11, None, opset=13)
@body("Range", 11, opset=13)
def range_of_numbers(op, start, limit, delta):
    """11 is its first version.

    It is start + i * delta for i from 0 on, integers in int64 and floats in double, and rounded once. Its length is
    computed as runtimes do it: the difference in the type itself, the quotient in double. Where all is known, so are
    the numbers.
    """
    dtype = op.dtype(start)
    wide = T.DOUBLE if dtype in FLOATS else T.INT64
    if dtype in FLOATS:
        op.rounds()
    start, limit, delta = (_scalar(op, x) for x in (start, limit, delta))
    if wide == T.DOUBLE:
        way = op.Cast(op.Sub(limit, start), to=T.DOUBLE)
        start, delta = op.Cast(start, to=wide), op.Cast(delta, to=wide)
        count = op.Cast(op.Ceil(op.Div(way, delta)), to=T.INT64)
    else:
        start, limit, delta = (op.Cast(x, to=wide) if dtype != wide else x for x in (start, limit, delta))
        count = _quotient(op, op.Sub(limit, start), delta)
    count = op.Reshape(op.Max(count, np.int64(0)), np.array([1]))
    known = op.known(count)
    numbers = arange(op, int(known[0]) if known is not None and known[0] <= fold.LIMIT else count)
    numbers = numbers if wide == T.INT64 else op.Cast(numbers, to=wide)
    numbers = numbers if _is(op, delta, 1) else op.Mul(numbers, delta)
    numbers = numbers if _is(op, start, 0) else op.Add(numbers, start)
    numbers = numbers if dtype == wide else op.Cast(numbers, to=dtype)
    whole = numbers if isinstance(numbers, np.ndarray) else op.known(numbers)
    return numbers if whole is None else op.Identity(whole)


@body("Range", 27, opset=13)
def range_by_stash(op, start, limit, delta, *, stash_type):
    """27 adds float16 and bfloat16, counted in the type that `stash_type` names.

    The function body computes the length in float, whatever the type.
    """
    dtype = op.dtype(start)
    if dtype not in (T.FLOAT16, T.BFLOAT16):
        return range_of_numbers(op, start, limit, delta)
    return op.Cast(range_of_numbers(op, *(op.Cast(x, to=stash_type) for x in (start, limit, delta))), to=dtype)


def _scalar(op, value):
    return value if op.known_shape(value) == [] else op.Reshape(value, np.zeros(0, np.int64))


def _is(op, value, number) -> bool:
    known = op.known(value)
    return known is not None and bool((known == number).all())


def _quotient(op, way, delta):
    """The quotient of two integers, rounded up where it is above 0."""
    known = op.known(delta)
    if known is not None and known in (1, -1):
        return way if known == 1 else op.Neg(way)
    sign = np.sign(known) if known is not None else op.Sign(delta)
    return op.Div(op.Add(way, op.Sub(delta, sign)), delta)


# --- running sums and products -----------------------------------------------------------------
@adapter("CumSum", 11, None, opset=14)
@adapter("CumProd", 26, None, opset=14)
def cumulative(op, x, axis, *, exclusive, reverse):
    """11 is the first version of CumSum, 26 that of CumProd.

    A Loop takes one element along the axis after the other, as runtimes do. Integers are computed modulo 2^64, and
    then of their type. Where the axis is no constant, the axes before it and those behind it become one each.
    """
    dtype, shape = op.dtype(x), op.shape(x)
    if 0 in shape:
        return op.Identity(x)
    if dtype in (T.FLOAT16, T.BFLOAT16):
        op.rounds()  # runtimes may keep more digits between two nodes
    wide = x if dtype in (*FLOATS, T.INT32, T.INT64) else op.Cast(x, to=T.INT64)
    known = op.known(axis) if len(shape) > 1 else np.array(0)
    if known is not None:
        result = _along(op, wide, int(known.reshape(-1)[0]) % len(shape), exclusive, reverse)
    else:
        positive = all(isinstance(dim, int) for dim in shape)
        block = op.Reshape(wide, _around(op, x, axis, len(shape)), allowzero=None if positive else 1)
        op.tell(block, op.dtype(wide), [None, None, None])
        result = op.Reshape(_along(op, block, 1, exclusive, reverse), op.Shape(x), allowzero=None if positive else 1)
    return result if wide is x else op.Cast(result, to=dtype)


def _around(op, x, axis, rank):
    """How many places there are on the axes before one that is no constant, on it, and on those behind it."""
    axis = op.count(from_front(op, op.Reshape(axis, np.array([1])), rank))
    shape, numbers, one = op.Shape(x), np.arange(rank), np.int64(1)
    before = op.ReduceProd(op.Where(op.Less(numbers, axis), shape, one), axes=[0])
    behind = op.ReduceProd(op.Where(op.Less(axis, numbers), shape, one), axes=[0])
    return op.Concat(before, op.Gather(shape, axis), behind, axis=0)


def _along(op, x, axis, exclusive, reverse):
    rank = op.rank(x)
    data = _turned(op, x, axis) if reverse else x

    def turn(number, go_on, before):
        combine = op.Add if op.type == "CumSum" else op.Mul
        after = combine(before, op.Gather(data, op.count(number), axis=axis))
        return op.Identity(go_on), after, op.Identity(before if exclusive else after)

    rest = [dim for k, dim in enumerate(op.shape(x)) if k != axis]
    types = [helper.make_tensor_type_proto(T.INT64, []), helper.make_tensor_type_proto(T.BOOL, [])]
    types.append(helper.make_tensor_type_proto(op.dtype(x), rest))
    neutral = _filled(op, op.like(op.type == "CumProd", x), x, axis, rest)
    count = known_size(op, x, axis)
    if count is None:
        # A Loop of no turns gives a wrong shape, so there is one more, which is dropped.
        if isinstance(neutral, str):
            data = op.Concat(data, op.Unsqueeze(neutral, np.array([axis])), axis=axis)
        else:
            data = op.Concat(data, np.expand_dims(neutral, axis), axis=axis)
    turns = np.int64(count) if count is not None else scalar(op, size(op, data, axis))
    rows = op.Loop(turns, None, neutral, body=op.branch(turn, types), outputs=2)[1]
    if count is None:
        rows = op.Slice(rows, np.array([0]), np.array([-1]), np.array([0]))
    result = op.Transpose(rows, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)]) if axis else rows
    return _turned(op, result, axis) if reverse else result


def _turned(op, data, axis):
    return op.Slice(data, np.array([-1]), np.array([FIRST]), np.array([axis]), np.array([-1]))


def _filled(op, number, x, axis, rest):
    """A number for each place on the other axes."""
    if all(isinstance(dim, int) for dim in rest):
        return np.full(rest, number)
    others = [k for k in range(len(rest) + 1) if k != axis]
    return op.Expand(number, op.Gather(op.Shape(x), np.array(others)))


# --- triangles -------------------------------------------------------------------------------
@adapter("Trilu", 14, None, opset=13)
def triangle(op, input, k, *, upper):
    """14 is its first version.

    The numbers of the row and the column tell what is kept; the rest becomes 0.
    """
    row, column = (along(op, arange(op, size(op, input, axis)), 2, axis + 2) for axis in (-2, -1))
    # Of whole numbers, a <= b is a - 1 < b.
    shift, known = -1 if upper else 1, op.known(k) if k else np.array(0)
    if known is not None:
        offset = np.int64(int(known.reshape(-1)[0]) + shift)
    else:
        offset = op.Add(as_int64(op, scalar(op, k)), np.int64(shift))
    both_known = isinstance(row, np.ndarray) and isinstance(offset, np.integer)
    edge = row + offset if both_known else op.Add(row, offset)
    kept = op.Less(edge, column) if upper else op.Less(column, edge)
    return op.And(kept, input) if op.dtype(input) == T.BOOL else op.Where(kept, input, blank(op, input))
