"""Operators that take values from between the places of an image: GridSample, RoiAlign, DeformConv, AffineGrid."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import arange, known_size, size
from relu_tools.adapters.interpolation import WIDE, Numpy
from relu_tools.report import RefusedError

TAPS = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic"}
CUBIC = -0.75


def on(op, *values):
    """What computes with values: numpy where all are known."""
    return op if any(isinstance(value, str) for value in values) else Numpy


def number(op, value, dtype: int):
    """A number, or a value of one element, in a type."""
    return on(op, value).Cast(value, to=dtype)


def counted(op, count):
    """0, 1, ... as many as a number or a value of one element says."""
    return arange(op, count if isinstance(count, str) else int(count))


def along(op, value, rank: int, axis: int):
    """A vector with as many dimensions as to lie along one axis of a rank."""
    shape = [-1 if k == axis else 1 for k in range(rank)]
    return op.Reshape(value, np.array(shape)) if isinstance(value, str) else np.reshape(value, shape)


class Pixels:
    """The values of images (N, C, D1, ..., Dn) as the rows of a matrix, in which one Gather takes them at any places.

    `padding` says what lies beyond the images: "zeros", "border" for what is nearest, or "reflection", about the
    middle of the outermost values where `aligned`, else about their outer ends. Places are of the float type `dtype`.
    """

    def __init__(self, op, X, dtype: int, padding: str, aligned: bool = False):
        self._op, self._dtype, self._padding, self._aligned = op, dtype, padding, aligned
        self.axes = op.rank(X) - 2
        self.lengths = [size(op, X, 2 + k) for k in range(self.axes)]
        self._ring = int(padding == "zeros")
        if self._ring:
            X = op.Pad(X, np.array([0, 0, *[1] * self.axes] * 2))
        channels = size(op, X, 1)
        shape = op.Concat(np.array([-1]), channels, axis=0) if isinstance(channels, str) else np.array([-1, channels])
        self.rows = op.Reshape(op.Transpose(X, perm=[0, *range(2, self.axes + 2), 1]), shape)
        strides, step = [], np.int64(1)
        for length in reversed(self.lengths):
            strides.append(step)
            around = on(op, length).Add(length, np.int64(2 * self._ring))
            step = on(op, step, around).Mul(step, around)
        self._strides, self._image = strides[::-1], step

    def length(self, axis: int):
        return number(self._op, self.lengths[axis], self._dtype)

    def base(self, batch):
        """The number of the row at which the images with these numbers begin."""
        op, start = self._op, np.int64(0)
        for stride in self._strides if self._ring else ():
            start = on(op, start, stride).Add(start, stride)
        first = on(op, batch, self._image).Mul(batch, self._image)
        return on(op, first, start).Add(first, start)

    def place(self, axis: int, x: str):
        """What a whole number along an axis, as a float, adds to the number of a row."""
        op, length = self._op, self.length(axis)
        m, one = on(op, length), number(op, 1, self._dtype)
        low, high = number(op, -self._ring, self._dtype), length if self._ring else m.Sub(length, one)
        if self._padding == "reflection":
            period = m.Max(m.Add(high, high), one) if self._aligned else m.Add(length, length)
            x = op.Sub(x, op.Mul(op.Floor(op.Div(x, period)), period))
            x = op.Min(x, op.Sub(period if self._aligned else m.Sub(period, one), x))
        # Comparisons bring NaN into the image too.
        x = op.Where(op.Greater(x, low), op.Where(op.Less(x, high), x, high), low)
        return op.Mul(op.Cast(x, to=T.INT64), self._strides[axis])

    def taps(self, axis: int, x: str, mode: str):
        """The places that a value at x is the weighted sum of, with their weights; None where that is 1."""
        op, one = self._op, number(self._op, 1, self._dtype)
        if mode == "nearest":
            return [(self.place(axis, op.Round(x)), None)]
        left = op.Floor(x)
        right = op.Sub(x, left)
        if mode == "linear":
            weights, first = [op.Sub(one, right), right], 0
        else:
            back = op.Sub(one, right)
            outer = [_outer(op, op.Add(way, one)) for way in (right, back)]
            weights, first = [outer[0], _inner(op, right), _inner(op, back), outer[1]], -1
        places = [op.Add(left, number(op, first + k, self._dtype)) if first + k else left for k in range(len(weights))]
        return [(self.place(axis, at), weight) for at, weight in zip(places, weights, strict=True)]

    def sum(self, base, taps, dtype: int, add=None):
        """The weighted sums over all axes, channels last, or what else `add` makes of the weighted values.

        `dtype` is the type of the images.
        """
        op, parts = self._op, []
        for chosen in itertools.product(*taps):
            row = functools.reduce(op.Add, [place for place, _ in chosen])
            part = op.Gather(self.rows, row if _is_zero(base) else op.Add(row, base), axis=0)
            weights = [weight for _, weight in chosen if weight is not None]
            if weights:
                weight = op.Unsqueeze(functools.reduce(op.Mul, weights), np.array([-1]))
                part = op.Mul(part, weight if dtype == self._dtype else op.Cast(weight, to=dtype))
            parts.append(part)
        return functools.reduce(add or op.Add, parts)


def _is_zero(value) -> bool:
    return not isinstance(value, str) and not np.any(value)


def _inner(op, x):
    """The cubic filter at a distance from 0 to 1."""
    a, b, one = (op.like(c, x) for c in (CUBIC + 2, CUBIC + 3, 1))
    return op.Add(op.Mul(op.Mul(op.Sub(op.Mul(x, a), b), x), x), one)


def _outer(op, x):
    """The cubic filter at a distance from 1 to 2."""
    a, b, c, d = (op.like(c, x) for c in (CUBIC, 5 * CUBIC, 8 * CUBIC, 4 * CUBIC))
    return op.Sub(op.Mul(op.Add(op.Mul(op.Sub(op.Mul(x, a), b), x), c), x), d)


def channels_first(op, value, axes: int):
    return op.Transpose(value, perm=[0, axes + 1, *range(1, axes + 1)])


# --- GridSample ------------------------------------------------------------------------------
@adapter("GridSample", 16, None, accuracy="rounding")
def grid_sample(op, X, grid, *, mode, padding_mode, align_corners):
    """16 is its first version.

    The rows of pixels at the places of the grid are gathered, and their weighted sums taken.
    """
    return grid_sampled(op, X, grid, mode, padding_mode, align_corners)


def grid_sampled(op, X, grid, mode, padding_mode, align_corners):
    """GridSample of any number of spatial axes, for opsets from 13 on."""
    dtype, mode = op.dtype(X), TAPS[mode]
    if mode != "nearest" and dtype not in WIDE:
        raise RefusedError(f"a {mode} mean of values of this type cannot be written out without rounding it otherwise")
    wide = dtype if mode == "nearest" else WIDE[dtype]
    places = WIDE[op.dtype(grid)]
    grid = grid if places == op.dtype(grid) else op.Cast(grid, to=places)
    pixels = Pixels(op, X if wide == dtype else op.Cast(X, to=wide), places, padding_mode, bool(align_corners))
    one, two = number(op, 1, places), number(op, 2, places)
    taps = []
    for axis in range(pixels.axes):
        # The last axis comes first in the grid.
        x = op.Add(op.Gather(grid, np.array(pixels.axes - 1 - axis), axis=pixels.axes + 1), one)
        length = pixels.length(axis)
        if align_corners:
            x = op.Mul(op.Div(x, two), on(op, length).Sub(length, one))
        else:
            x = op.Div(op.Sub(op.Mul(x, length), one), two)
        taps.append(pixels.taps(axis, x, mode))
    batch = along(op, arange(op, size(op, X, 0)), pixels.axes + 1, 0)
    Y = channels_first(op, pixels.sum(pixels.base(batch), taps, wide), pixels.axes)
    return Y if wide == dtype else op.Cast(Y, to=dtype)


# --- RoiAlign --------------------------------------------------------------------------------
@adapter("RoiAlign", 10, None, accuracy="rounding", opset=13)
def roi_align(op, X, rois, batch_indices, **how):
    """10 is its first version.

    The values at the sampled places are gathered; what each bin holds of them is averaged, or their maximum taken.
    """
    return roi_aligned(op, X, rois, batch_indices, half_pixel=False, **how)


def roi_aligned(op, X, rois, batch_indices, *, half_pixel, sampling_ratio, **how):
    """RoiAlign, for opsets from 13 on. Where the number of samples follows from each region, a Loop goes over these."""
    dtype = op.dtype(X)
    wide = WIDE[dtype]
    X, rois = (x if wide == dtype else op.Cast(x, to=wide) for x in (X, rois))
    pixels = Pixels(op, X, wide, "border")
    if sampling_ratio > 0:
        Y = _pooled(op, pixels, rois, batch_indices, half_pixel, sampling_ratio, **how)
    else:

        def turn(number, go_on, carried):
            at = op.Reshape(number, np.array([1]))
            regions, batch = op.Gather(rois, at, axis=0), op.Gather(batch_indices, at, axis=0)
            bins = _pooled(op, pixels, regions, batch, half_pixel, 0, **how)
            return go_on, carried, op.Squeeze(bins, np.array([0]))

        count = op.Reshape(op.Shape(batch_indices), np.zeros(0, np.int64))
        formals = [helper.make_tensor_type_proto(kind, []) for kind in (T.INT64, T.BOOL, T.INT64)]
        Y = op.Loop(count, None, count, body=op.branch(turn, formals), outputs=2)[1]
    Y = channels_first(op, Y, 2)
    return Y if wide == dtype else op.Cast(Y, to=dtype)


def _pooled(op, pixels, rois, batch, half_pixel, ratio, *, mode, output_height, output_width, spatial_scale):
    """The bins (regions, height, width, channels); without a ratio for one region, which tells how many samples."""
    taps, insides, counts = [], [], []
    bounds = op.Mul(rois, op.like(spatial_scale, rois))
    bounds = op.Sub(bounds, op.like(0.5, rois)) if half_pixel else bounds
    zero, one = op.like(0, rois), op.like(1, rois)
    for axis, bins in enumerate((output_height, output_width)):
        start, end = (op.Gather(bounds, np.array([1 - axis + 2 * k]), axis=1) for k in (0, 1))
        length = op.Sub(end, start)
        step = op.Div(length if half_pixel else op.Max(length, one), op.like(bins, rois))
        if ratio:
            count, samples = op.like(ratio, rois), np.arange(ratio).astype(one.dtype)
        else:
            count = op.Reshape(op.Ceil(step), np.array([1]))
            counts.append(count)
            count = op.Max(count, one)
            samples = op.Cast(arange(op, op.Cast(count, to=T.INT64)), to=op.dtype(rois))
        start, step = (op.Unsqueeze(x, np.array([2])) for x in (start, step))
        fine = op.Div(op.Mul(on(op, samples).Add(samples, op.like(0.5, rois)), step), count)
        x = op.Add(op.Add(start, op.Mul(np.arange(bins).astype(one.dtype)[:, None], step)), fine)
        last = on(op, pixels.length(axis)).Sub(pixels.length(axis), one)
        inside = op.And(op.Not(op.Less(x, -one)), op.Not(op.Greater(x, pixels.length(axis))))
        others = np.array([1, 2] if axis else [3, 4])
        insides.append(op.Unsqueeze(inside, others))
        x = op.Unsqueeze(op.Min(op.Max(x, zero), last), others)
        taps.append(pixels.taps(axis, x, "linear"))
    base = pixels.base(op.Reshape(_int64(op, batch), np.array([-1, 1, 1, 1, 1])))
    inside = op.Unsqueeze(op.And(*insides), np.array([5]))
    # The maximum is that of the weighted values, not of their sums: so it is in runtimes and in the reference.
    values = pixels.sum(base, taps, op.dtype(rois), op.Max if mode == "max" else op.Add)
    values = op.Where(inside, values, zero)
    if mode == "max":
        values = op.ReduceMax(values, axes=[2, 4], keepdims=0)
    else:
        values = op.ReduceMean(values, axes=[2, 4], keepdims=0)
    # A region of no extent has no samples, and its bins are 0.
    return op.Where(op.Less(op.Mul(*counts), one), zero, values) if counts and half_pixel else values


def _int64(op, value):
    return value if op.dtype(value) == T.INT64 else op.Cast(value, to=T.INT64)


# --- DeformConv ------------------------------------------------------------------------------
@adapter("DeformConv", 19, None, accuracy="rounding")
def deform_conv(op, X, W, offset, B, mask, *, dilations, group, kernel_shape, offset_group, pads, strides):
    """19 is its first version.

    What lies at the moved places of the kernel is gathered into channels, over which a Conv of extent 1 sums.
    """
    dtype, axes = op.dtype(X), op.rank(X) - 2
    channels, kernel = op.shape(X)[1], kernel_shape or op.shape(W)[2:]
    if not all(isinstance(n, int) for n in (channels, *kernel)):
        raise RefusedError("the number of channels and the shape of the kernel must be known")
    wide = WIDE[dtype]
    X, W, offset, B, mask = (x if not x or wide == dtype else op.Cast(x, to=wide) for x in (X, W, offset, B, mask))
    places = int(np.prod(kernel))
    out = op.Slice(op.Shape(offset), np.array([2]), np.array([axes + 2]))
    if offset_group > 1:
        spatial = op.Slice(op.Shape(X), np.array([2]), np.array([axes + 2]))
        X = op.Reshape(X, op.Concat(np.array([-1, channels // offset_group]), spatial, axis=0))
    moved = op.Reshape(offset, op.Concat(np.array([-1, places, axes]), out, axis=0))
    pixels, taps = Pixels(op, X, wide, "zeros"), []
    for axis, inner in enumerate(np.indices(kernel).reshape(axes, places)):
        x = op.Gather(moved, np.array(axis), axis=2)
        first = inner * (dilations or ONES)[axis] - (pads or ZEROS)[axis]
        steps = op.Cast(arange(op, size(op, offset, 2 + axis)), to=wide)
        steps = along(op, op.Mul(steps, op.like((strides or ONES)[axis], X)), axes, axis)
        x = op.Add(x, op.Add(along(op, first.astype(op.like(0, X).dtype), axes + 1, 0), steps))
        taps.append(pixels.taps(axis, x, "linear"))
    batch = along(op, arange(op, size(op, moved, 0)), axes + 2, 0)
    values = pixels.sum(pixels.base(batch), taps, wide)
    if mask:
        values = op.Mul(values, op.Reshape(mask, op.Concat(np.array([-1, places]), out, np.array([1]), axis=0)))
    values = op.Reshape(channels_first(op, values, axes + 1), op.Concat(np.array([-1, channels * places]), out, axis=0))
    weights = op.Reshape(W, np.array([0, channels // group * places, *[1] * axes]))
    Y = op.Conv(values, weights, B, group=group)
    return Y if wide == dtype else op.Cast(Y, to=dtype)


ONES, ZEROS = [1] * 9, [0] * 9


# --- AffineGrid ------------------------------------------------------------------------------
@adapter("AffineGrid", 20, None, accuracy="rounding")
def affine_grid(op, theta, size, *, align_corners):
    """20 is its first version.

    The coordinates along each axis, times a column of the matrix, are added to its last column. An axis of one place
    is refused with align_corners.
    """
    dtype, rows = op.dtype(theta), op.shape(theta)[1]
    axes = rows if isinstance(rows, int) else (known_size(op, size, 0) or 0) - 2
    if axes not in (2, 3):
        raise RefusedError(f"the shape of '{theta}' or the number of elements of '{size}' must be known")
    wide = WIDE[dtype]
    theta = theta if wide == dtype else op.Cast(theta, to=wide)
    known = op.known(size)
    one, two = op.like(1, theta), op.like(2, theta)
    columns = [op.Unsqueeze(op.Gather(theta, np.array(k), axis=2), np.arange(1, axes + 1)) for k in range(axes + 1)]
    grid = columns[-1]
    for axis in range(axes):
        count = op.Gather(size, np.array([2 + axis]), axis=0) if known is None else int(known[2 + axis])
        x, m = number(op, arange(op, count), wide), on(op, count)
        length = number(op, count, wide)
        if align_corners:
            if known is not None and known[2 + axis] == 1:
                raise RefusedError("runtimes differ in where a single place lies when align_corners is set")
            x = m.Sub(m.Div(m.Mul(x, two), m.Max(m.Sub(length, one), one)), one)
        else:
            x = m.Sub(m.Div(m.Add(m.Mul(x, two), one), length), one)
        # The last axis comes first in the matrix.
        grid = op.Add(grid, op.Mul(along(op, x, axes + 1, axis), columns[axes - 1 - axis]))
    return grid if wide == dtype else op.Cast(grid, to=dtype)
