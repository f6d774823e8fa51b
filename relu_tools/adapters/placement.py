"""Operators that put values at places of something larger: Col2Im, MaxUnpool, TensorScatter."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import arange, known_size, size
from relu_tools.adapters.sampling import along, counted, on
from relu_tools.report import RefusedError


@adapter("Col2Im", 18, None, accuracy="rounding")
def col_to_im(op, input, image_shape, block_shape, *, dilations, pads, strides):
    """18 is its first version.

    Each pixel is the sum of what is gathered for it, along each axis from as many blocks as may overlap there, or from
    a zero behind the last one.
    """
    axes = known_size(op, image_shape, 0) or known_size(op, block_shape, 0)
    if axes is None:
        raise RefusedError(f"the number of elements of '{image_shape}' must be known")
    image, block = ([_number(op, shape, k) for k in range(axes)] for shape in (image_shape, block_shape))
    found = [
        _sources(op, image[k], block[k], (pads or [0] * 2 * axes)[k::axes], (dilations or [1] * axes)[k],
                 (strides or [1] * axes)[k])
        for k in range(axes)
    ]  # fmt: skip
    counts = [count for count, _ in found]
    apart = op.Reshape(input, _shape(op, 0, -1, *block, *counts))
    x = op.Transpose(apart, perm=[0, 1, *np.arange(2, 2 * axes + 2).reshape(2, axes).T.reshape(-1)])
    rows = [on(op, k, n).Mul(k, n) for k, n in zip(block, counts, strict=True)]
    x = op.Pad(op.Reshape(x, _shape(op, 0, 0, *rows)), np.array([0] * (axes + 4) + [1] * axes))
    for axis, (_, sources) in enumerate(found):
        x = op.Gather(x, sources, axis=axis + 2)
    shape = _shape(op, 0, 0, *(n for pair in zip(image, block, strict=True) for n in pair))
    return op.ReduceSum(op.Reshape(x, shape), np.arange(3, 2 * axes + 2, 2), keepdims=0)


def _sources(op, size, block, pads, dilation, stride):
    """How many blocks an axis has, and for each of its places the places (place in the block, block) to add there.

    Where a place of the block does not meet it, that is the place after all of these.
    """
    m = on(op, size, block)
    div = op.Div if m is op else np.floor_divide
    around = m.Sub(m.Add(size, np.int64(sum(pads))), m.Mul(np.int64(dilation), m.Sub(block, np.int64(1))))
    count = m.Add(div(m.Sub(around, np.int64(1)), np.int64(stride)), np.int64(1))
    inner = along(op, counted(op, block), 2, 1)
    way = m.Sub(m.Add(along(op, counted(op, size), 2, 0), np.int64(pads[0])), m.Mul(inner, np.int64(dilation)))
    which = div(way, np.int64(stride))
    which = m.Where(m.Equal(m.Mul(which, np.int64(stride)), way), which, count)
    which = m.Where(m.Less(way, np.int64(0)), count, which)
    none = m.Mul(block, count)
    places = m.Where(m.Less(which, count), m.Add(m.Mul(inner, count), which), none)
    return count, places.reshape(-1) if isinstance(places, np.ndarray) else op.Reshape(places, np.array([-1]))


def _number(op, values, k):
    """An element: a number where it is known, else a vector of one."""
    known = op.known(values)
    return op.Slice(values, np.array([k]), np.array([k + 1])) if known is None else np.int64(known.reshape(-1)[k])


def _shape(op, *dims):
    if on(op, *dims) is op:
        return op.Concat(*(dim if isinstance(dim, str) else np.array([dim]) for dim in dims), axis=0)
    return np.array(dims)


@adapter("MaxUnpool", 9, None, opset=13)
def max_unpool(op, X, I, output_shape, *, kernel_shape, pads, strides):  # noqa: E741
    """9 is its first version.

    The values are scattered into zeros; an output shape beyond what the kernel leads to is filled up with zeros.
    """
    axes = len(kernel_shape)
    pads, strides = pads or [0] * 2 * axes, strides or [1] * axes
    shape = op.Shape(X)
    known = op.known_shape(X)
    known = known is not None and all(isinstance(n, int) for n in known)
    fixed = [k - s - a - b for k, s, a, b in zip(kernel_shape, strides, pads[:axes], pads[axes:], strict=True)]
    if known:
        shape = np.array(op.known_shape(X)) * np.array([1, 1, *strides]) + np.array([0, 0, *fixed])
        total = np.array([shape.prod()])
    else:
        shape = op.Add(op.Mul(shape, np.array([1, 1, *strides])), np.array([0, 0, *fixed]))
        total = op.ReduceProd(shape, axes=[0])
    zeros = op.ConstantOfShape(total, value=numpy_helper.from_array(op.like(0, X).reshape(1)))
    flat = (op.Reshape(value, np.array([-1])) for value in (I, X))
    Y = op.Reshape(op.ScatterElements(zeros, *flat, axis=0), shape)
    if not output_shape:
        return Y
    wanted = op.known(output_shape)
    wanted = output_shape if wanted is None else wanted
    more = on(op, wanted, shape).Sub(wanted, shape)
    before = np.zeros(axes + 2, np.int64)
    pads = op.Concat(before, more, axis=0) if isinstance(more, str) else np.concatenate([before, more])
    return op.Pad(Y, pads)


@adapter("TensorScatter", 24, None, opset=18)
def tensor_scatter(op, past_cache, update, write_indices, *, mode, axis):
    """24 is its first version.

    It is ScatterElements, at the places that follow each other from each sample's write index.
    """
    rank = op.rank(update)
    axis %= rank
    places = along(op, arange(op, size(op, update, axis)), rank, axis)
    if write_indices:
        places = op.Add(along(op, write_indices, rank, 0), places)
        if mode == "circular":
            length = size(op, past_cache, axis)
            places = op.Mod(places, length if isinstance(length, str) else np.int64(length))
    return op.ScatterElements(past_cache, op.Expand(places, op.Shape(update)), update, axis=axis)
