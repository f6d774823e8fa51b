"""Elements that change their places, and those that are picked or put by an index."""

from __future__ import annotations

import numpy as np

from .registry import demand, meaning


def _depth_to_space(x, size, mode):
    n, c, h, w = x.shape
    demand(c % size**2 == 0, f"{c} channels do not make blocks of {size} by {size}")
    if mode == "DCR":
        return (
            x.reshape(n, size, size, c // size**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * size, w * size)
        )
    return x.reshape(n, c // size**2, size, size, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * size, w * size)


@meaning("DepthToSpace", 1)
def _depth_to_space_(node, x, *, blocksize, mode="DCR"):
    return _depth_to_space(x, blocksize, mode)


@meaning("SpaceToDepth", 1, 28)
def _space_to_depth(node, x, *, blocksize):
    """The place in the block counts more than the channel."""
    n, c, h, w = x.shape
    demand(
        h % blocksize == 0 and w % blocksize == 0,
        f"{h} by {w} is no multiple of {blocksize}",
    )
    blocks = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, h // blocksize, w // blocksize)


def _top(x, k, axis):
    """The greatest first, of equals the one with the lower index."""
    demand(
        -x.ndim <= axis < x.ndim and 0 <= k <= x.shape[axis],
        f"{k} along axis {axis} of {x.shape}",
    )
    order = np.argsort(np.flip(x, axis), axis, kind="stable")
    order = x.shape[axis] - 1 - np.flip(order, axis)
    index = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, index, axis), index.astype(np.int64)


@meaning("TopK", 1, 10)
def _top_k_1(node, x, *, axis, k):
    return _top(x, k, axis)


@meaning("TopK", 10, 11)
def _top_k_10(node, x, k, *, axis):
    return _top(x, int(k.item()), axis)


@meaning("OneHot", 9, 11)
def _one_hot_9(node, indices, depth, values, *, axis):
    """An index outside of [0, depth) sets nothing."""
    size = int(np.asarray(depth).item())
    axis = axis % (indices.ndim + 1)
    wanted = np.arange(size).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    hit = np.expand_dims(indices.astype(np.int64), axis) == wanted
    return np.where(hit, values[1], values[0]).astype(values.dtype)


_COMBINE = {"none": None, "add": np.add, "mul": np.multiply}


@meaning("Scatter", 9)
@meaning("ScatterElements", 11, 18)
def _scatter_elements(node, data, indices, updates, *, axis, reduction="none"):
    result, size = data.copy(), data.shape[axis]
    demand(
        indices.shape == updates.shape,
        f"indices {indices.shape} for updates {updates.shape}",
    )
    demand(
        not indices.size or (indices.min() >= -size and indices.max() < size),
        f"an index is not within {size}",
    )
    place = list(np.indices(indices.shape))
    place[axis] = indices % size if size else indices
    return _put(result, tuple(place), updates, reduction)


@meaning("ScatterND", 11, 18)
def _scatter_nd(node, data, indices, updates, *, reduction="none"):
    result = data.copy()
    sizes = np.array(data.shape[: indices.shape[-1]])
    demand(
        not indices.size or ((indices >= -sizes) & (indices < sizes)).all(),
        "an index is not within the data",
    )
    return _put(result, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _put(result, place, updates, reduction):
    combine = _COMBINE[reduction]
    if combine is None:
        result[place] = updates
    else:
        combine.at(result, place, updates)
    return result


@meaning("Compress", 9, 11)
def _compress_9(node, x, condition, *, axis=None):
    demand(axis is None or axis >= 0, f"axis {axis} may not be negative")
    return np.compress(condition, x, axis)


@meaning("EyeLike", 9)
def _eye_like(node, x, *, dtype=None, k):
    import onnx

    demand(x.ndim == 2, f"rank {x.ndim} is not 2")
    element = x.dtype if dtype is None else onnx.helper.tensor_dtype_to_np_dtype(dtype)
    return np.eye(*x.shape, k).astype(element)


@meaning("BitShift", 11)
def _bit_shift(node, x, y, *, direction):
    """What is shifted by its width and more has no result in the text."""
    width = 8 * x.dtype.itemsize
    if np.asarray(y >= width).any():
        raise NotImplementedError("BitShift by the width of the type and more has no meaning")
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)
