"""Steps of the operators that give or change a shape: Reshape, Shape, Squeeze, Expand, Tile, DepthToSpace and so on."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import KEEP, WIDE_INTEGERS, adapter, same
from relu_tools.adapters.indexing import END, arange, from_front, known_size
from relu_tools.report import RefusedError

same("Expand", 8, 13)
same("Reshape", 5, 13, 14, 19, 21, 23, 24, 25)
same("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
same("Size", 1, 13, 19, 21, 23, 24, 25)
same("Squeeze Unsqueeze", 1, 11)
same("Squeeze Unsqueeze", 13, 21, 23, 24, 25)
same("Tile", 6, 13)
same("DepthToSpace", 1, 11, 13, 28)
same("SpaceToDepth", 1, 13, 28)


def blank(op, value):
    """A zero, False or empty string of the element type of a value."""
    return np.array("", object) if op.dtype(value) == T.STRING else op.like(0, value)


# --- Reshape -----------------------------------------------------------------------------------
@adapter("Reshape", 1, 5)
def reshape_input(op, data, *, shape):
    """1 has the shape as an attribute, 5 as an input.

    It becomes a constant.
    """
    if shape is None:
        raise RefusedError("it has no shape")
    return op.Reshape(data, np.array(shape, np.int64))


@adapter("Reshape", 5, 1)
def reshape_attribute(op, data, shape):
    """5 has the shape as an input, 1 as an attribute.

    Where it is no constant, the data are gathered in a vector's places, which are laid out in that shape.
    """
    known = op.known(shape)
    if known is not None or op.length(shape) == 0:
        return op.Reshape(data, shape=[] if known is None else known.tolist())
    dims = _dimensions(op, data, shape)
    sizes = [op.Squeeze(op.Slice(dims, starts=[k], ends=[k + 1]), axes=[0]) for k in range(op.length(shape))]
    along = [op.Cast(arange(op, op.Cast(size, to=T.INT64)), to=T.DOUBLE) for size in sizes]
    places = along[0]
    for rank in range(1, len(sizes)):
        # The number of a place, one axis further: what it was times the size, plus that along the axis.
        more = op.Unsqueeze(along[rank], axes=[0])
        times = op.Add(op.Mul(more, ZERO, broadcast=1), sizes[rank], broadcast=1)
        before = op.Unsqueeze(places, axes=[rank])
        ones = op.Add(op.Mul(before, ZERO, broadcast=1), ONE, broadcast=1)
        places = op.MatMul(op.Concat(before, ones, axis=rank), op.Concat(times, more, axis=0))
    return op.Gather(op.Reshape(data, shape=[-1]), op.Cast(places, to=T.INT64))


ZERO, ONE = np.float64(0), np.float64(1)


def _dimensions(op, data, shape):
    """The dimensions that a shape asks for, in double: 0 copies one of the data, -1 takes what is left of them."""
    count, asked = op.length(shape), op.Cast(shape, to=T.DOUBLE)
    given = op.Cast(op.Shape(data), to=T.DOUBLE)
    if op.rank(data) < count:
        given = op.Concat(given, np.zeros(count - op.rank(data)), axis=0)
    given = op.Slice(given, starts=[0], ends=[count])
    copied = op.Sub(np.ones(count), op.Min(op.Abs(asked), np.ones(count)))
    asked = op.Add(asked, op.Mul(copied, given))
    left = op.Max(op.Neg(asked), np.zeros(count))
    others = op.ReduceProd(op.Cast(op.Add(asked, op.Add(left, left)), to=T.INT64), keepdims=1)
    others = op.Squeeze(op.Max(op.Cast(others, to=T.DOUBLE), np.ones(1)), axes=[0])  # 0 leaves nothing for the -1
    rest = op.Div(op.Cast(op.Size(data), to=T.DOUBLE), others)
    dims = op.Add(asked, op.Mul(left, op.Add(rest, ONE), broadcast=1))
    op.tell(dims, T.DOUBLE, [count])
    return dims


@adapter("Reshape", 14, 13)
def reshape_allowzero(op, data, shape, *, allowzero):
    """14 can take a 0 in the shape for a dimension of 0 (`allowzero`), before it always copies the dimension.

    Both are the same where the dimension that is copied is the one that is asked for. A single dimension that may be
    0 can be left to be inferred, since no other one is then; where there are more, If looks whether one is 0.
    """
    if not allowzero:
        return KEEP
    known = op.known(shape)
    if known is not None:
        return op.Reshape(data, shape) if known.all() else op.Expand(blank(op, data), shape)
    given, result = op.known_shape(data) or [], op.known_shape(op.outputs[0])
    if result is None:
        return reshape_to(op, data, shape)
    open_ = [k for k, dim in enumerate(result) if not isinstance(dim, int) or dim == 0]
    if all(result[k] and k < len(given) and result[k] == given[k] for k in open_):
        return op.Reshape(data, shape)
    if len(open_) == 1:
        return op.Reshape(data, op.Where(op.Equal(shape, np.int64(0)), np.int64(-1), shape))
    return reshape_to(op, data, shape)


def reshape_to(op, data, shape):
    """A Reshape in which a 0 is a dimension of 0, for opsets up to 13: with one, the result is empty."""
    zeros = op.ReduceSum(op.Cast(op.Equal(shape, np.int64(0)), to=T.INT64), keepdims=0)
    return op.If(
        op.Cast(zeros, to=T.BOOL),
        then_branch=op.branch(lambda: op.Expand(blank(op, data), shape)),
        else_branch=op.branch(lambda: op.Reshape(data, shape)),
    )


@adapter("Shape", 15, 13)
def shape_slice(op, data, *, start, end):
    """15 can give a part of the shape, from `start` to `end`.

    The part is sliced from the whole; bounds beyond it are clamped by both.
    """
    if not start and end is None:
        return KEEP
    whole = op.Shape(data)
    return op.Slice(whole, np.array([start or 0]), np.array([END if end is None else end]), np.array([0]))


# --- Squeeze and Unsqueeze -----------------------------------------------------------------------
@adapter("Squeeze Unsqueeze", 11, 13)
def axes_input(op, data, *, axes):
    """11 has the axes as an attribute, 13 as an input.

    They become a constant.
    """
    return op.again(data, None if axes is None else np.array(axes, np.int64))


@adapter("Squeeze Unsqueeze", 13, 11)
def axes_attribute(op, data, axes):
    """13 has the axes as an input, 11 as an attribute.

    Where they are no constant, the data are reshaped to the shape that the axes lead to.
    """
    if not axes or op.known(axes) is not None:
        return op.again(data, axes=op.const(axes).reshape(-1) if axes else None)
    given, count = op.shape(data), known_size(op, axes, 0)
    if count is None:
        raise RefusedError(f"before 13 the number of elements of '{axes}' must be known")
    shape = (_squeezed if op.type == "Squeeze" else _unsqueezed)(op, data, axes, len(given), count)
    positive = all(isinstance(dim, int) and dim for dim in given)
    return op.Reshape(data, shape) if positive else reshape_to(op, data, shape)


def _squeezed(op, data, axes, rank, count):
    """The shape without the axes: TopK puts what stays in front, in its order."""
    if count == rank:
        return np.zeros(0, np.int64)
    stays = op.Mul(_others(op, axes, rank), np.arange(rank, 0, -1, dtype=np.float32))
    _, order = op.TopK(stays, np.array([rank - count]), outputs=2)
    op.tell(order, T.INT64, [rank - count])
    return op.Gather(op.Shape(data), order)


def _unsqueezed(op, data, axes, rank, count):
    """The shape with a 1 at the axes: each other place takes the dimension whose number is that of those before it."""
    stays = _others(op, axes, rank + count)
    before = op.MatMul(stays, np.triu(np.ones((rank + count, rank + count), np.float32), 1))
    # The 1 comes after the dimensions.
    source = op.Add(op.Mul(stays, before), op.Mul(op.Sub(np.float32(1), stays), np.float32(rank)))
    return op.Gather(op.Concat(op.Shape(data), np.array([1]), axis=0), op.Cast(source, to=T.INT64))


def _others(op, axes, rank):
    """For each axis of a rank, 1.0 where it is none of `axes`, else 0.0."""
    front = op.Unsqueeze(from_front(op, axes, rank), axes=[1])
    hits = op.Cast(op.Equal(front, np.arange(rank)[None]), to=T.FLOAT)
    return op.Sub(np.float32(1), op.ReduceSum(hits, axes=[0], keepdims=0))


@adapter("Squeeze Unsqueeze", 11, 1)
def axes_from_front(op, data, *, axes):
    """11 lets axes count from the back.

    They are counted from the front, for Unsqueeze that of the output; older shape inference wants them in order. Where
    the rank is not known, a Reshape adds dimensions at the end.
    """
    if not axes or (axes[0] >= 0 and sorted(axes) == axes):
        return KEEP
    at_end = op.type == "Unsqueeze" and sorted(axes) == list(range(-len(axes), 0))
    if at_end and op.known_shape(data) is None:
        return op.Reshape(data, op.Concat(op.Shape(data), np.ones(len(axes), np.int64), axis=0))
    rank = op.rank(data) + (len(axes) if op.type == "Unsqueeze" else 0) if min(axes) < 0 else 0
    return op.again(data, axes=sorted(axis + rank if axis < 0 else axis for axis in axes))


# --- Expand and Tile -----------------------------------------------------------------------------
@adapter("Expand", 8, None)
def expand(op, input, shape):
    """8 is its first version.

    Tile repeats the dimensions that are 1. A number whose dimensions are not known is added to a zero that is repeated.
    """
    given, rank = op.shape(input), op.length(shape)
    dims = [1] * (rank - len(given)) + given
    if not dims:
        return op.Identity(input)
    if len(given) > rank:
        shape = op.Concat(np.ones(len(given) - rank, np.int64), shape, axis=0) if rank else np.ones_like(dims)
    if all(isinstance(dim, int) for dim in dims):
        new = len(dims) - len(given)
        data = op.Unsqueeze(input, axes=list(range(new))) if new else input
        if 1 not in dims:
            return op.Identity(data)
        once = (np.array(dims) != 1).astype(np.int64)
        return op.Tile(data, op.Add(op.Mul(shape, 1 - once), once) if once.any() else shape)
    if op.dtype(input) == T.STRING:
        raise RefusedError(f"before 8 there is no Expand, and the dimensions of '{input}' are not known")
    zero = op.Tile(op.like(0, input).reshape([1] * len(dims)), shape)
    return op.Or(input, zero) if op.dtype(input) == T.BOOL else op.Add(input, zero)


@adapter("Tile", 1, 6)
def tile_every_axis(op, input, tiles, axis):
    """1 repeats along one axis, both the number and the axis being inputs of the data's type; 6 along each.

    The axis must be a constant; the other axes are repeated once.
    """
    rank, known = op.rank(input), op.known(tiles)
    repeats = np.ones(rank, np.int64)
    axis = int(op.const(axis).reshape(-1)[0]) % rank
    if known is not None:
        repeats[axis] = known.reshape(-1)[0]
        return op.Tile(input, repeats)
    number = op.Cast(op.Reshape(tiles, np.array([1])), to=T.INT64)
    parts = [part for part in (repeats[:axis], number, repeats[axis + 1 :]) if len(part)]
    return op.Tile(input, op.Concat(*parts, axis=0))


@adapter("Tile", 6, 1)
def tile_one_axis(op, input, repeats):
    """6 repeats along each axis, 1 along one, both the number and the axis being of the data's type.

    One axis follows the other, in a float type that holds the data.
    """
    dtype, known = op.dtype(input), op.known(repeats)
    wide = dtype if dtype in (T.FLOAT, T.DOUBLE) else HOLDS.get(dtype)
    if dtype in WIDE_INTEGERS and op.in_double(input):
        wide = T.DOUBLE
    if wide is None:
        raise RefusedError(f"before 6 Tile takes floats, and none holds {T.DataType.Name(dtype).lower()}")
    result = input if wide == dtype else op.Cast(input, to=wide)
    for axis in range(op.rank(input)):
        if known is not None and known[axis] == 1:
            continue
        if known is None:
            number = op.Cast(op.Slice(repeats, starts=[axis], ends=[axis + 1]), to=wide)
        else:
            number = op.like(known[axis], result)
        result = op.Tile(result, number, op.like(axis, result))
    return result if wide == dtype else op.Cast(result, to=dtype)


HOLDS = {
    **dict.fromkeys((T.FLOAT16, T.BOOL, T.INT8, T.UINT8, T.INT16, T.UINT16), T.FLOAT),
    **dict.fromkeys((T.INT32, T.UINT32), T.DOUBLE),
}


# --- DepthToSpace and SpaceToDepth -----------------------------------------------------------------
@adapter("DepthToSpace", 11, 1)
def depth_to_space(op, input, *, blocksize, mode):
    """11 can take a block's places from neighbouring channels (CRD) instead of from distant ones (DCR).

    The channels are put into the other order first.
    """
    if mode == "DCR":
        return op.DepthToSpace(input, blocksize=blocksize)
    order = np.arange(channels_of(op, input)).reshape(-1, blocksize**2).T.reshape(-1)
    return op.DepthToSpace(op.Gather(input, order, axis=1), blocksize=blocksize)


@adapter("SpaceToDepth", 28, 13)
def space_to_depth(op, input, *, blocksize, mode):
    """28 can lay a block's places into neighbouring channels (CRD) instead of distant ones (DCR).

    The channels are put into the other order afterwards.
    """
    if mode == "DCR":
        return op.SpaceToDepth(input, blocksize=blocksize)
    order = np.arange(channels_of(op, input) * blocksize**2).reshape(blocksize**2, -1).T.reshape(-1)
    return op.Gather(op.SpaceToDepth(input, blocksize=blocksize), order, axis=1)


def channels_of(op, value) -> int:
    channels = known_size(op, value, 1)
    if channels is None:
        raise RefusedError(f"the number of channels of '{value}' is not known", "give it in the model's value_info")
    return channels
