"""Operators that take values from between the places of an image: GridSample, RoiAlign, DeformConv, AffineGrid."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import arange, size
from relu_tools.adapters.resize import WIDE, Numpy
from relu_tools.report import RefusedError

TAPS = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic"}
CUBIC = -0.75


def on(op, *values):
    """What computes with values: numpy where all are known."""
    return op if any(isinstance(value, str) for value in values) else Numpy


def number(op, value, dtype: int):
    """A number, or a value of one element, in a type."""
    return op.Cast(value, to=dtype) if isinstance(value, str) else np.asarray(value, helper.tensor_dtype_to_np_dtype(dtype))


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
        self.rows = op.Flatten(op.Transpose(X, perm=[0, *range(2, self.axes + 2), 1]), axis=self.axes + 1)
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
            weights = [_outer(op, op.Add(right, one)), _inner(op, right), _inner(op, back), _outer(op, op.Add(back, one))]
            first = -1
        places = [op.Add(left, number(op, first + k, self._dtype)) if first + k else left for k in range(len(weights))]
        return [(self.place(axis, at), weight) for at, weight in zip(places, weights, strict=True)]

    def sum(self, base, taps, dtype: int):
        """The weighted sums over all axes, channels last; `dtype` is that of the images."""
        op, parts = self._op, []
        for chosen in itertools.product(*taps):
            row = functools.reduce(op.Add, [place for place, _ in chosen])
            part = op.Gather(self.rows, row if _is_zero(base) else op.Add(row, base), axis=0)
            weights = [weight for _, weight in chosen if weight is not None]
            if weights:
                weight = op.Unsqueeze(functools.reduce(op.Mul, weights), np.array([-1]))
                part = op.Mul(part, weight if dtype == self._dtype else op.Cast(weight, to=dtype))
            parts.append(part)
        return functools.reduce(op.Add, parts)


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


def channels_first(op, value):
    rank = op.rank(value)
    return op.Transpose(value, perm=[0, rank - 1, *range(1, rank - 1)])


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
    Y = channels_first(op, pixels.sum(pixels.base(batch), taps, wide))
    return Y if wide == dtype else op.Cast(Y, to=dtype)
