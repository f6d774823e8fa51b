"""Steps of the operators in ONNX's defs/reduction, and of TopK, which picks along an axis as ArgMax does."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx.helper import make_tensor_type_proto as tensor

from relu_tools.adapters import FLOATS, KEEP, WIDE_INTEGERS, adapter, same
from relu_tools.adapters.indexing import known_size, turns
from relu_tools.report import RefusedError

REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare ReduceSum"
)
ALL_BUT_SUM = REDUCTIONS.removesuffix(" ReduceSum")
# Those that leave a set of one element as it is.
PLAIN = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
FIRST = np.iinfo(np.int64).min

same("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSumSquare", 1, 11, 13)
same("ReduceMax ReduceMin", 1, 11, 12, 13)
same("ReduceMax ReduceMin", 18, 20)
same("ReduceLogSum ReduceLogSumExp", 18, 28)
same("ReduceSum", 1, 11)
same("ArgMax ArgMin", 1, 11, 12, 13)
same("TopK", 10, 11, 24)


# --- axes ----------------------------------------------------------------------------------
@adapter(REDUCTIONS, 11, 1)
def axes_from_front(op, data, *, axes, keepdims):
    """11 lets the axes count from the back.

    They are counted from the front.
    """
    if all(axis >= 0 for axis in axes or []):
        return KEEP
    return op.again(data, axes=[axis % op.rank(data) for axis in axes], keepdims=keepdims)


@adapter(ALL_BUT_SUM, 13, 18)
@adapter("ReduceSum", 11, 13)
def axes_input(op, data, *, axes, keepdims):
    """The older version has the axes as an attribute, the newer as an input.

    They become a constant; no axes are all axes in both.
    """
    return op.again(data, np.array(axes, np.int64) if axes else None, keepdims=keepdims)


@adapter(ALL_BUT_SUM, 18, 13)
@adapter("ReduceSum", 13, 11)
def axes_attribute(op, data, axes, *, keepdims, noop_with_empty_axes):
    """The newer version has the axes as an input, the older as an attribute; `noop_with_empty_axes` is new.

    Constant axes become the attribute. Others are looked up as the model runs, and one axis after the other is reduced
    where it is among them. To reduce no axis is to reduce a new one of one element.
    """
    known = op.known(axes)
    if axes is None or op.known_shape(axes) == [0]:
        known = np.zeros(0, np.int64)
    if known is None:
        return _axis_by_axis(op, data, axes, keepdims, noop_with_empty_axes)
    if known.size or not noop_with_empty_axes:
        return op.again(data, axes=known.reshape(-1) if known.size else None, keepdims=keepdims)
    return op.Identity(data) if op.type in PLAIN else _of_each(op, data)


def _of_each(op, data):
    """The reduction of each element by itself."""
    return op.again(op.Unsqueeze(data, np.array([0])), axes=[0], keepdims=0)


def _axis_by_axis(op, data, axes, keepdims, noop):
    """A reduction over axes that are not known.

    A Loop runs no times or once; an If would have to give one shape before 11. It begins with the last axis, so that an
    axis that is gone moves none that are still to come.
    """
    rank, floats = op.rank(data), op.dtype(data) in FLOATS
    if not floats and op.type in ("ReduceL2", "ReduceLogSumExp", "ReduceMean"):
        raise RefusedError(f"'{axes}' is no constant, and reducing integers one axis at a time would round each time")
    if floats and op.type not in ("ReduceMax", "ReduceMin"):
        op.rounds()
    count = (op.known_shape(axes) or [None])[0]
    none = None if noop or isinstance(count, int) else op.Equal(op.Size(axes), np.array(0))
    if op.type in ("ReduceL1", "ReduceL2", "ReduceSumSquare"):
        data = _of_each(op, data)
    summed = op.type in ("ReduceL1", "ReduceLogSum", "ReduceSum", "ReduceSumSquare")
    types = [tensor(T.INT64, []), tensor(T.BOOL, []), tensor(op.dtype(data), None)]
    for axis in reversed(range(rank)):

        def turn(_, go_on, part, axis=axis):
            one = _sum(op, part, axis, keepdims) if summed else op.again(part, axes=[axis], keepdims=keepdims)
            return op.Identity(go_on), one

        found = op.Or(op.Equal(axes, np.array(axis)), op.Equal(axes, np.array(axis - rank)))
        found = op.Cast(_sum(op, op.Cast(found, to=T.INT64), 0, 0), to=T.BOOL)
        times = op.Cast(op.Or(found, none) if none else found, to=T.INT64)
        data = op.Loop(times, None, data, body=op.branch(turn, types))
    return _of_each(op, data) if op.type == "ReduceLogSum" else data


def _sum(op, data, axis, keepdims):
    if op.type == "ReduceSum":
        return op.ReduceSum(data, axes=[axis], keepdims=keepdims)
    return op.ReduceSum(data, np.array([axis]), keepdims=keepdims)


# --- element types -------------------------------------------------------------------------
@adapter("ReduceMax ReduceMin", 12, 11)
def reduce_small_integers(op, data, *, axes, keepdims):
    """12 adds int8 and uint8.

    A float holds them. An empty set has the limit of the type as its result, which in float is an infinity.
    """
    dtype = op.dtype(data)
    if dtype not in (T.INT8, T.UINT8):
        return KEEP
    result = op.again(op.Cast(data, to=T.FLOAT), axes=axes, keepdims=keepdims)
    shape = op.known_shape(data)
    if shape is None or not all(isinstance(dim, int) and dim > 0 for dim in shape):
        limits = np.iinfo(op.like(0, data).dtype)
        result = op.Clip(result, np.float32(limits.min), np.float32(limits.max))
    return op.Cast(result, to=dtype)


@adapter("ReduceLogSum ReduceLogSumExp", 18, 28, accuracy="rounding")
def reduce_log_of_integers(op, data, axes, **same):
    """28 takes away the integers.

    The logarithm is taken in double and its fraction dropped.
    """
    if op.dtype(data) in FLOATS:
        return KEEP
    return op.Cast(op.again(op.Cast(data, to=T.DOUBLE), axes, **same), to=op.dtype(data))


# --- ArgMax, ArgMin ------------------------------------------------------------------------
@adapter("ArgMax ArgMin", 12, 11)
def last_index(op, data, *, axis, keepdims, select_last_index):
    """12 can give the last one of several equal indices.

    It is the first one of the data turned round, counted from the end.
    """
    if not select_last_index:
        return op.again(data, axis=axis, keepdims=keepdims)
    shape = op.known_shape(data)
    if shape is not None and isinstance(shape[axis], int):
        backwards = np.arange(shape[axis])[::-1].copy()
        turned = op.Gather(data, backwards, axis=axis)
        return op.Gather(backwards, op.again(turned, axis=axis, keepdims=keepdims))
    last = op.Sub(op.Gather(op.Shape(data), np.array(axis)), np.array(1))
    turned = op.Slice(data, np.array([-1]), np.array([FIRST]), np.array([axis]), np.array([-1]))
    return op.Sub(last, op.again(turned, axis=axis, keepdims=keepdims))


@adapter("ArgMax ArgMin", 11, 1)
def index_axis(op, data, *, axis, keepdims):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.again(data, axis=axis + op.rank(data), keepdims=keepdims)


# --- TopK ----------------------------------------------------------------------------------
@adapter("TopK", 1, 10)
def k_input(op, X, *, axis, k):
    """1 has k as an attribute, 10 as an input.

    It becomes a constant.
    """
    return op.TopK(X, np.array([k]), axis=axis, outputs=2)


@adapter("TopK", 10, 1)
def k_attribute(op, X, K, *, axis):
    """10 has k as an input, 1 as an attribute.

    It becomes the attribute where it is a constant; else all are sorted, which needs their number, and k of them taken.
    The axis is counted from the front, but for the last one, which is 1's default.
    """
    axis = axis if axis >= -1 else axis + op.rank(X)
    known = op.known(K)
    k = None if known is None else int(known.reshape(-1)[0])
    if k == 0 or known_size(op, X, axis) == 0:
        # 1 takes none but a k above 0.
        nothing = op.Slice(X, starts=[0], ends=[0], axes=[axis if axis >= 0 else axis + op.rank(X)])
        return nothing, op.Cast(nothing, to=T.INT64)
    if k is not None:
        return op.TopK(X, k=k, axis=axis, outputs=2)
    size = op.shape(X)[axis]
    if not isinstance(size, int):
        raise RefusedError(f"before 10 '{K}' must be a constant, or else the size of axis {axis}, which is {size}")
    first = turns(op, op.Squeeze(K, axes=[0]))
    return tuple(op.Gather(every, first, axis=axis) for every in op.TopK(X, k=size, axis=axis, outputs=2))


@adapter("TopK", 11, 10, opset=11)
def largest_and_sorted(op, X, K, *, axis, largest, sorted):
    """11 adds `largest`, `sorted` and the integers; 10 gives the largest, sorted, of floats.

    The smallest are the largest of the negated, with their sign turned back; what need not be sorted may be. Floats
    hold the integers of up to 32 bits.
    """
    dtype = op.dtype(X)
    if dtype in WIDE_INTEGERS:
        return _of_wide_integers(op, X, K, axis, largest)
    floats = dtype in (T.FLOAT, T.DOUBLE, T.FLOAT16)
    if floats and largest:
        return KEEP if sorted else op.TopK(X, K, axis=axis, outputs=2)
    key = X if floats else op.Cast(X, to=T.DOUBLE if dtype in (T.INT32, T.UINT32) else T.FLOAT)
    values, indices = op.TopK(key if largest else op.Neg(key), K, axis=axis, outputs=2)
    values = values if largest else op.Neg(values)
    return values if floats else op.Cast(values, to=dtype), indices


def _of_wide_integers(op, X, K, axis, largest):
    """TopK by the upper half and, among equals, by the rank of the lower half: both are exact in double."""
    size = op.Gather(op.Shape(X), np.array([axis]))
    upper = op.Div(X, op.like(2**32, X))
    lower = op.Cast(op.Sub(X, op.Mul(upper, op.like(2**32, X))), to=T.DOUBLE)
    upper = op.Cast(upper, to=T.DOUBLE)
    if not largest:
        upper, lower = op.Neg(upper), op.Neg(lower)
    order = op.TopK(lower, size, axis=axis, outputs=2)[1]
    # The order of an order is each element's rank.
    rank = op.TopK(op.Neg(op.Cast(order, to=T.DOUBLE)), size, axis=axis, outputs=2)[1]
    key = op.Sub(op.Mul(upper, op.Cast(size, to=T.DOUBLE)), op.Cast(rank, to=T.DOUBLE))
    indices = op.TopK(key, K, axis=axis, outputs=2)[1]
    return _taken(op, X, indices, axis) if op.outputs[0] else None, indices


def _taken(op, X, indices, axis):
    """The elements at these indices along an axis; where all sizes are known, older operators can take them."""
    shape = op.shape(X)
    if not all(isinstance(dim, int) for dim in shape):
        return op.GatherElements(X, indices, axis=axis)
    places = np.take(np.arange(np.prod(shape, dtype=np.int64)).reshape(shape), [0], axis)
    stride = int(np.prod(shape[axis % len(shape) + 1 :], dtype=np.int64))
    return op.Gather(op.Reshape(X, np.array([-1])), op.Add(op.Mul(indices, np.array(stride)), places))
