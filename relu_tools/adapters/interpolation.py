"""Resize written out: weighted sums of values that are gathered axis by axis."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters.indexing import arange
from relu_tools.report import RefusedError

ZERO, HALF, ONE, TWO = map(np.float32, (0, 0.5, 1, 2))
WIDE = {T.FLOAT: T.FLOAT, T.DOUBLE: T.DOUBLE, T.FLOAT16: T.FLOAT, T.BFLOAT16: T.FLOAT}


class Numpy:
    """The operators of the formulas on arrays, so that what is known needs no nodes."""

    Add, Sub, Mul, Div, Floor, Ceil = np.add, np.subtract, np.multiply, np.divide, np.floor, np.ceil
    Min, Max, Less, Greater, Equal, Where = np.minimum, np.maximum, np.less, np.greater, np.equal, np.where

    @staticmethod
    def Cast(x, to):
        return np.asarray(x).astype(helper.tensor_dtype_to_np_dtype(to))


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of the data: its lengths and scale as floats, names of values where they are not known.

    `place` is its place among the `named` axes of a node, None for one that is not named.
    """

    index: int
    place: int | None
    length: Any
    size: Any
    scale: Any
    named: int

    @property
    def known(self) -> bool:
        return is_known(self.length, self.size, self.scale)

    @property
    def stays(self) -> bool:
        alone = is_known(self.length, self.size) and self.length == self.size == 1
        return alone or (is_known(self.scale) and self.scale == 1)

    @property
    def exact(self) -> bool:
        """Whether the new length is the old one times the scale without rounding."""
        return self.stays or (self.known and self.size == self.length * self.scale)


def axes_of(op, X, scales, sizes, policy: str = "stretch", axes: list[int] | None = None) -> list[Axis]:
    """The axes of X, resized by `scales`, or else to `sizes` read by `policy`."""
    dims = op.shape(X)
    axes = list(range(len(dims))) if axes is None else [axis % len(dims) for axis in axes]
    shape = op.Shape(X)
    whole = [_number(dim) or _element(op, shape, axis) for axis, dim in enumerate(dims)]
    lengths = [whole[axis] for axis in axes]
    given = op.known(scales or sizes)
    values = [_element(op, scales or sizes, k) if given is None else np.float32(given[k]) for k in range(len(axes))]
    # What the model says of the result's shape tells sizes that nothing else does.
    out = op.known_shape(op.outputs[0]) or [None] * len(dims)
    told = [_number(out[axis]) for axis in axes]
    if scales:
        sized = [_on(op, n, s).Floor(_on(op, n, s).Mul(n, s)) for n, s in zip(lengths, values, strict=True)]
        ratios = values
    else:
        if policy == "stretch":
            values = [r or size for r, size in zip(told, values, strict=True)]
        ratios = [_on(op, n, r).Div(r, n) for n, r in zip(lengths, values, strict=True)]
        sized = values
    if policy != "stretch":
        m = _on(op, *lengths, *ratios)
        ratio = functools.reduce(m.Min if policy == "not_larger" else m.Max, ratios)
        ratios = [ratio] * len(axes)
        sized = [_on(op, n, ratio).Floor(_on(op, n, ratio).Add(_on(op, n, ratio).Mul(n, ratio), HALF)) for n in lengths]
    sized = [r if is_known(r) else t or r for r, t in zip(sized, told, strict=True)]
    named = {axis: (k, size, ratio) for k, (axis, size, ratio) in enumerate(zip(axes, sized, ratios, strict=True))}
    found = []
    for axis, length in enumerate(whole):
        place, size, ratio = named.get(axis, (None, length, ONE))
        found.append(Axis(axis, place, length, size, ratio, len(axes)))
    return found


def _number(dim) -> np.float32 | None:
    """A dimension as a float; None where it is not known, or 0, which is not resized."""
    return np.float32(dim) if isinstance(dim, int) and dim else None


def _element(op, values: str, index: int) -> str:
    return op.Cast(op.Gather(values, np.array([index]), axis=0), to=T.FLOAT)


def is_known(*values) -> bool:
    return not any(isinstance(value, str) for value in values)


def _on(op, *values):
    return Numpy if is_known(*values) else op


def _chosen(m, condition, a, b):
    """Of two finite numbers the one or the other."""
    if m is Numpy or m.version("Where"):
        return m.Where(condition, a, b)
    share = m.Cast(condition, to=T.FLOAT)
    return m.Add(m.Mul(share, a), m.Mul(m.Sub(ONE, share), b))


# --- where a value of the output lies in the input ------------------------------------------
def _coordinates(op, axis: Axis, how: dict):
    length, size, scale, rule = axis.length, axis.size, axis.scale, how["coordinate_transformation_mode"]
    m = _on(op, length, size, scale)
    if is_known(size):
        x = np.arange(int(size), dtype=np.float32)
    else:
        x = op.Cast(arange(op, op.Cast(size, to=T.INT64)), to=T.FLOAT)
    if rule == "asymmetric":
        return m.Div(x, scale)
    if rule == "align_corners":
        steps = _on(op, size).Sub(size, ONE)
        return m.Div(m.Mul(x, _last(op, axis)), _on(op, size).Max(steps, ONE))
    if rule == "tf_crop_and_resize":
        return _cropped(op, x, axis, how["roi"])
    centred = m.Div(m.Add(x, HALF), scale)
    if rule == "tf_half_pixel_for_nn":
        # An axis that keeps its length is not moved.
        return _chosen(m, m.Less(scale, ONE), centred, _chosen(m, m.Greater(scale, ONE), centred, x))
    centred = m.Sub(centred, HALF)
    if rule == "pytorch_half_pixel":
        return m.Mul(centred, m.Cast(m.Greater(size, ONE), to=T.FLOAT))
    if rule == "half_pixel_symmetric":
        offset = m.Mul(m.Mul(length, HALF), m.Sub(ONE, m.Div(size, m.Mul(length, scale))))
        return m.Add(offset, centred)
    return centred


def _cropped(op, x, axis: Axis, roi):
    """The part of the axis that the region names, its ends included; its middle where one value is asked for."""
    place = axis.place or 0
    start, end = (_element(op, roi, place + offset) for offset in (0, axis.named))
    last, m = _last(op, axis), _on(op, axis.size)
    middle = op.Mul(op.Mul(op.Add(start, end), HALF), last)
    steps = m.Max(m.Sub(axis.size, ONE), ONE)
    spread = op.Add(op.Mul(start, last), op.Div(op.Mul(op.Mul(x, op.Sub(end, start)), last), steps))
    if is_known(axis.size):
        return spread if axis.size > 1 else middle
    return _chosen(op, op.Greater(axis.size, ONE), spread, middle)


def _last(op, axis: Axis):
    return _on(op, axis.length).Sub(axis.length, ONE)


def _within(op, x, axis: Axis):
    last = _last(op, axis)
    m = _on(op, x, last)
    return m.Max(m.Min(x, last), ZERO)


def position(op, axis: Axis, how: dict):
    """Where along the axis each value of the result lies, within the data."""
    return _within(op, _coordinates(op, axis, how), axis)


def nearest(op, axis: Axis, how: dict):
    """The index of the value that is nearest to each position."""
    x = position(op, axis, how)
    m = _on(op, x, axis.scale)
    down, up, rule = m.Floor(x), m.Ceil(x), how["nearest_mode"]
    if rule == "simple":
        return _chosen(m, m.Less(axis.scale, ONE), up, down)
    if rule in ("floor", "ceil"):
        return down if rule == "floor" else up
    if rule == "round_prefer_ceil":
        return m.Add(down, m.Floor(m.Mul(m.Sub(x, down), TWO)))
    return m.Sub(up, m.Floor(m.Mul(m.Sub(up, x), TWO)))


def _taps(op, axis: Axis, how: dict) -> list[tuple[Any, Any]]:
    """The values that each value of the output is the sum of: their indices and weights, None where that is 1."""
    if how["mode"] == "nearest":
        return [(nearest(op, axis, how), None)]
    if how["mode"] == "linear" and not how.get("antialias"):
        x = position(op, axis, how)
        m = _on(op, x)
        left = m.Floor(x)
        right = _within(op, m.Add(left, ONE), axis)
        # At the end they are one, and a weight of 0 for it would make NaN of infinity.
        apart = m.Less(left, right)
        return [(left, _chosen(m, apart, m.Sub(right, x), HALF)), (right, _chosen(m, apart, m.Sub(x, left), HALF))]
    x = _coordinates(op, axis, how)
    m = _on(op, x, axis.scale)
    stretch, reach = ONE, 2 if how["mode"] == "cubic" else 1
    if how.get("antialias"):
        if not is_known(axis.size, axis.length):
            raise RefusedError("before 18 there is no antialias, and without the sizes no filter to write out for it")
        # A scale that is not known is at least the ratio of the lengths.
        reach = int(-np.floor(-reach / np.minimum(np.maximum(axis.size, ONE) / axis.length, ONE)))
        stretch = m.Min(axis.scale, ONE)
    left = m.Floor(x)
    taps = []
    for k in range(1 - reach, reach + 1):
        index = m.Add(left, np.float32(k))
        inner = _within(op, index, axis)
        weight = _weight(m, m.Mul(m.Sub(x, index), stretch), how)
        if how.get("exclude_outside"):
            inside = m.Equal(m.Cast(index, to=T.INT32), m.Cast(inner, to=T.INT32))
            weight = m.Mul(weight, m.Cast(inside, to=T.FLOAT))
        taps.append((inner, weight))
    total = functools.reduce(m.Add, [weight for _, weight in taps])
    taps = [(index, m.Div(weight, total)) for index, weight in taps]
    return _without_zeros(taps) if how.get("antialias") and m is Numpy else taps


def _without_zeros(taps: list) -> list:
    """A filter stops where it is 0: what lies there has no part in the sum, not even as infinity times 0."""
    indices, weights = (np.stack(parts) for parts in zip(*taps, strict=True))
    main = (np.abs(weights).argmax(axis=0), np.arange(weights.shape[1]))
    nothing = weights == 0
    nothing[main] = True
    share = weights[main] / nothing.sum(axis=0).astype(np.float32)
    return list(zip(np.where(nothing, indices[main], indices), np.where(nothing, share, weights), strict=True))


def _weight(m, distance, how: dict):
    """The filter at a distance from its middle: a triangle, or the cubic of two pieces."""
    x = m.Max(distance, m.Sub(ZERO, distance))
    if how["mode"] == "linear":
        return m.Max(m.Sub(ONE, x), ZERO)
    a = np.float32(how["cubic_coeff_a"])
    inner = m.Add(m.Mul(m.Mul(m.Sub(m.Mul(x, a + 2), a + 3), x), x), ONE)
    outer = m.Mul(m.Sub(m.Mul(m.Add(m.Mul(m.Sub(x, np.float32(5)), x), np.float32(8)), x), np.float32(4)), a)
    return _chosen(m, m.Less(x, ONE), inner, _chosen(m, m.Less(x, TWO), outer, m.Mul(x, ZERO)))


def _moving(axes: list[Axis], how: dict) -> list[Axis]:
    """The axes along which values are gathered."""
    if how["coordinate_transformation_mode"] == "tf_crop_and_resize":
        return [axis for axis in axes if axis.place is not None]
    moving = [axis for axis in axes if not axis.stays]
    if how["mode"] == "nearest" or how.get("antialias"):
        return moving
    # Means are taken over all spatial axes together: what weighs 0 along one that stays makes NaN of infinity, too.
    count = min(len(axes), 3 if len(axes) == 5 else 2)
    for first in (len(axes) - count, 1):
        spatial = axes[first : first + count]
        if moving and all(axis in spatial for axis in moving):
            return spatial
    return moving


def sampled(op, X, axes: list[Axis], how: dict):
    """Resize as Gather and weighted sums, one axis after the other."""
    dtype = op.dtype(X)
    if how["mode"] != "nearest" and dtype not in WIDE:
        raise RefusedError(f"a {how['mode']} mean of integers cannot be written out without rounding it otherwise")
    wide = dtype if how["mode"] == "nearest" else WIDE[dtype]
    Y = X if wide == dtype else op.Cast(X, to=wide)
    crops = how["coordinate_transformation_mode"] == "tf_crop_and_resize"
    for axis in _moving(axes, how):
        shape = np.array([-1] + [1] * (op.rank(X) - 1 - axis.index))
        parts = []
        for index, weight in _taps(op, axis, how):
            part = op.Gather(Y, _on(op, index).Cast(index, to=T.INT64), axis=axis.index)
            if weight is not None:
                weight = weight if wide == T.FLOAT else _on(op, weight).Cast(weight, to=wide)
                part = op.Mul(part, weight.reshape(shape) if is_known(weight) else op.Reshape(weight, shape))
            parts.append(part)
        Y = functools.reduce(op.Add, parts)
        if crops:
            x = op.Reshape(_coordinates(op, axis, how), shape)
            outside = op.Or(op.Less(x, ZERO), op.Greater(x, _last(op, axis)))
            Y = op.Where(outside, np.asarray(how["extrapolation_value"], op.like(0, Y).dtype), Y)
    return Y if wide == dtype and Y != X else op.Cast(Y, to=dtype)
