"""Steps of Resize and Upsample, and both written out: weighted sums of values that are gathered axis by axis."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

ZERO, HALF, ONE, TWO = map(np.float32, (0, 0.5, 1, 2))
WIDE = {T.FLOAT: T.FLOAT, T.DOUBLE: T.DOUBLE, T.FLOAT16: T.FLOAT, T.BFLOAT16: T.FLOAT}
SIMPLE = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple"}
"""What 10 does: down by a ceiling, up by a floor."""


class Numpy:
    """The operators of the formulas on arrays, so that what is known needs no nodes."""

    Add, Sub, Mul, Div, Floor, Ceil = np.add, np.subtract, np.multiply, np.divide, np.floor, np.ceil
    Min, Max, Less, Greater, Equal, Where = np.minimum, np.maximum, np.less, np.greater, np.equal, np.where

    @staticmethod
    def Cast(x, to):
        return np.asarray(x).astype(helper.tensor_dtype_to_np_dtype(to))


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis to resize, the `place`th named: its lengths and scale as floats, names where they are not known."""

    index: int
    place: int
    length: Any
    size: Any
    scale: Any

    @property
    def known(self) -> bool:
        return _known(self.length, self.size, self.scale)

    @property
    def stays(self) -> bool:
        return _known(self.scale) and self.scale == 1

    @property
    def exact(self) -> bool:
        """Whether the new length is the old one times the scale without rounding."""
        return self.stays or (self.known and self.size == self.length * self.scale)


def axes_of(op, X, scales, sizes, policy: str = "stretch", axes: list[int] | None = None) -> list[Axis]:
    """The axes of X that `scales`, or else `sizes` read by `policy`, resize."""
    dims = op.shape(X)
    axes = list(range(len(dims))) if axes is None else [axis % len(dims) for axis in axes]
    shape = op.Shape(X)
    lengths = [_number(dims[axis]) or _element(op, shape, axis) for axis in axes]
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
    sized = [r if _known(r) else t or r for r, t in zip(sized, told, strict=True)]
    return [Axis(*parts) for parts in zip(axes, range(len(axes)), lengths, sized, ratios, strict=True)]


def _number(dim) -> np.float32 | None:
    """A dimension as a float; None where it is not known, or 0, which is not resized."""
    return np.float32(dim) if isinstance(dim, int) and dim else None


def _element(op, values: str, index: int) -> str:
    return op.Cast(op.Gather(values, np.array([index]), axis=0), to=T.FLOAT)


def _known(*values) -> bool:
    return not any(isinstance(value, str) for value in values)


def _on(op, *values):
    return Numpy if _known(*values) else op


# --- where a value of the output lies in the input ------------------------------------------
def _coordinates(op, axis: Axis, how: dict):
    length, size, scale, rule = axis.length, axis.size, axis.scale, how["coordinate_transformation_mode"]
    m = _on(op, length, size, scale)
    if _known(size):
        x = np.arange(int(size), dtype=np.float32)
    else:
        one = numpy_helper.from_array(np.array([1]))
        there = op.NonZero(op.ConstantOfShape(op.Cast(size, to=T.INT64), value=one))
        x = op.Cast(op.Reshape(there, np.array([-1])), to=T.FLOAT)
    if rule == "asymmetric":
        return m.Div(x, scale)
    if rule == "align_corners":
        return m.Div(m.Mul(x, m.Sub(length, ONE)), m.Max(m.Sub(size, ONE), ONE))
    if rule == "tf_crop_and_resize":
        return _cropped(op, x, axis, how["roi"])
    centred = m.Div(m.Add(x, HALF), scale)
    if rule == "tf_half_pixel_for_nn":
        # An axis that keeps its length is not moved.
        return m.Where(m.Less(scale, ONE), centred, m.Where(m.Greater(scale, ONE), centred, x))
    centred = m.Sub(centred, HALF)
    if rule == "pytorch_half_pixel":
        return m.Mul(centred, m.Cast(m.Greater(size, ONE), to=T.FLOAT))
    if rule == "half_pixel_symmetric":
        offset = m.Mul(m.Mul(length, HALF), m.Sub(ONE, m.Div(size, m.Mul(length, scale))))
        return m.Add(offset, centred)
    return centred


def _cropped(op, x, axis: Axis, roi: str):
    """The part of the axis that the region names, its ends included; its middle where one value is asked for."""
    start = _element(op, roi, axis.place)
    end = _element(op, roi, axis.place + op.shape(roi)[0] // 2)
    last = _on(op, axis.length).Sub(axis.length, ONE)
    spread = op.Div(op.Mul(op.Mul(x, op.Sub(end, start)), last), op.Max(op.Sub(axis.size, ONE), ONE))
    middle = op.Mul(op.Mul(op.Add(start, end), HALF), last)
    return op.Where(op.Greater(axis.size, ONE), op.Add(op.Mul(start, last), spread), middle)


def _within(m, x, length):
    return m.Max(m.Min(x, m.Sub(length, ONE)), ZERO)


def _nearest(op, axis: Axis, how: dict):
    x = _coordinates(op, axis, how)
    m = _on(op, x, axis.length, axis.scale)
    x = _within(m, x, axis.length)
    down, up, rule = m.Floor(x), m.Ceil(x), how["nearest_mode"]
    if rule == "simple":
        return m.Where(m.Less(axis.scale, ONE), up, down)
    if rule in ("floor", "ceil"):
        return down if rule == "floor" else up
    if rule == "round_prefer_ceil":
        return m.Add(down, m.Floor(m.Mul(m.Sub(x, down), TWO)))
    return m.Sub(up, m.Floor(m.Mul(m.Sub(up, x), TWO)))


def _taps(op, axis: Axis, how: dict) -> list[tuple[Any, Any]]:
    """The values that each value of the output is the sum of: their indices and weights, None where that is 1."""
    if how["mode"] == "nearest":
        return [(_nearest(op, axis, how), None)]
    x = _coordinates(op, axis, how)
    m = _on(op, x, axis.length, axis.scale)
    if how["mode"] == "linear" and not how.get("antialias"):
        x = _within(m, x, axis.length)
        left = m.Floor(x)
        return [(left, m.Sub(m.Add(left, ONE), x)), (_within(m, m.Add(left, ONE), axis.length), m.Sub(x, left))]
    stretch, reach = ONE, 2 if how["mode"] == "cubic" else 1
    if how.get("antialias"):
        if not _known(axis.size, axis.length):
            raise RefusedError("before 18 there is no antialias, and without the sizes no filter to write out for it")
        # A scale that is not known is at least the ratio of the lengths.
        reach = int(-np.floor(-reach / np.minimum(np.maximum(axis.size, ONE) / axis.length, ONE)))
        stretch = m.Min(axis.scale, ONE)
    left = m.Floor(x)
    taps = []
    for k in range(1 - reach, reach + 1):
        index = m.Add(left, np.float32(k))
        inner = _within(m, index, axis.length)
        weight = _weight(m, m.Mul(m.Sub(x, index), stretch), how)
        if how.get("exclude_outside"):
            inside = m.Equal(m.Cast(index, to=T.INT32), m.Cast(inner, to=T.INT32))
            weight = m.Mul(weight, m.Cast(inside, to=T.FLOAT))
        taps.append((inner, weight))
    total = functools.reduce(m.Add, [weight for _, weight in taps])
    return [(index, m.Div(weight, total)) for index, weight in taps]


def _weight(m, distance, how: dict):
    """The filter at a distance from its middle: a triangle, or the cubic of two pieces."""
    x = m.Max(distance, m.Sub(ZERO, distance))
    if how["mode"] == "linear":
        return m.Max(m.Sub(ONE, x), ZERO)
    a = np.float32(how["cubic_coeff_a"])
    inner = m.Add(m.Mul(m.Mul(m.Sub(m.Mul(x, a + 2), a + 3), x), x), ONE)
    outer = m.Mul(m.Sub(m.Mul(m.Add(m.Mul(m.Sub(x, np.float32(5)), x), np.float32(8)), x), np.float32(4)), a)
    return m.Where(m.Less(x, ONE), inner, m.Where(m.Less(x, TWO), outer, m.Mul(x, ZERO)))


def sampled(op, X, axes: list[Axis], how: dict):
    """Resize as Gather and weighted sums, one axis after the other."""
    dtype = op.dtype(X)
    if how["mode"] != "nearest" and dtype not in WIDE:
        raise RefusedError(f"a {how['mode']} mean of integers cannot be written out without rounding it otherwise")
    wide = dtype if how["mode"] == "nearest" else WIDE[dtype]
    Y = X if wide == dtype else op.Cast(X, to=wide)
    crops = how["coordinate_transformation_mode"] == "tf_crop_and_resize"
    for axis in axes:
        if axis.stays and not crops:
            continue
        shape = np.array([-1] + [1] * (op.rank(X) - 1 - axis.index))
        parts = []
        for index, weight in _taps(op, axis, how):
            part = op.Gather(Y, _on(op, index).Cast(index, to=T.INT64), axis=axis.index)
            if weight is not None:
                weight = weight if wide == T.FLOAT else _on(op, weight).Cast(weight, to=wide)
                part = op.Mul(part, weight.reshape(shape) if _known(weight) else op.Reshape(weight, shape))
            parts.append(part)
        Y = functools.reduce(op.Add, parts)
        if crops:
            x = op.Reshape(_coordinates(op, axis, how), shape)
            outside = op.Or(op.Less(x, ZERO), op.Greater(x, _on(op, axis.length).Sub(axis.length, ONE)))
            Y = op.Where(outside, np.asarray(how["extrapolation_value"], op.like(0, Y).dtype), Y)
    return Y if wide == dtype and Y != X else op.Cast(Y, to=dtype)


# --- what Resize of 10 can do ------------------------------------------------------------------
def _simple(op, axis: Axis, how: dict) -> bool:
    """Whether 10 takes the same values with the same weights along an axis."""
    linear, where = how["mode"] == "linear", how["coordinate_transformation_mode"]
    if axis.stays or (linear and where == "asymmetric"):
        return True
    if axis.known:
        if linear:
            both = [_within(Numpy, _coordinates(op, axis, rule), axis.length) for rule in (how, SIMPLE)]
        else:
            both = [_nearest(op, axis, rule) for rule in (how, SIMPLE)]
        return np.array_equal(*both)
    if linear or not _known(axis.scale):
        return False
    if where == "asymmetric":
        return how["nearest_mode"] == ("floor" if axis.scale > 1 else "ceil")
    # Up by a whole number: the middle of each copy is nearer to its origin than to anything else.
    whole = axis.scale > 1 and float(axis.scale).is_integer()
    return where == "half_pixel" and how["nearest_mode"].startswith("round") and whole


def _as_scales(axes: list[Axis]) -> np.ndarray | None:
    """Scales that give just the sizes when 10 multiplies and rounds down."""
    if not all(axis.known for axis in axes):
        return None
    scales = []
    for axis in axes:
        scale = np.float32(axis.scale)
        if np.floor(axis.length * scale) < axis.size:
            scale = np.nextafter(scale, np.float32(np.inf))
        scales.append(scale)
    fits = all(np.floor(a.length * s) == a.size for a, s in zip(axes, scales, strict=True))
    return np.array(scales, np.float32) if fits else None


# --- the steps -----------------------------------------------------------------------------------
same("Resize", 11, 13, 18, 19)
same("Upsample", 9, 10)


def _empty(op, value) -> bool:
    """Whether an optional input says nothing: left out, or a tensor without elements."""
    return not value or op.known_shape(value) == [0] or ((known := op.known(value)) is not None and not known.size)


@adapter("Resize", 10, 11)
def resize_asymmetric(op, X, scales, *, mode):
    """10 puts a value at its index over the scale; nearest to it is the one before going up, the one after going down.

    11 can be told so, with one of the two; where both are needed, or the scales are not known, the values are gathered.
    """
    roi = np.zeros(0, np.float32)
    how = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode != "nearest":
        return op.Resize(X, roi, scales, **how)
    known = op.known(scales)
    if known is not None and ((known >= 1).all() or (known <= 1).all()):
        return op.Resize(X, roi, scales, nearest_mode="floor" if (known >= 1).all() else "ceil", **how)
    return sampled(op, X, axes_of(op, X, scales, None), SIMPLE)


@adapter("Resize", 11, 10, accuracy="rounding")
def resize_to_asymmetric(op, X, roi, scales, sizes, **how):
    """11 adds sizes, cubic, and the ways to place and to choose values; 10 has one (see there).

    Where that takes the same values 10 does it, else they are gathered.
    """
    scales = None if _empty(op, scales) or not _empty(op, sizes) else scales
    if scales and how["mode"] == "linear" and how["coordinate_transformation_mode"] == "asymmetric":
        return op.Resize(X, scales, mode="linear")
    axes = axes_of(op, X, scales, sizes)
    if how["coordinate_transformation_mode"] == "tf_crop_and_resize":
        if scales:
            raise RefusedError("before 11 there is no crop, and scales do not tell the size of one")
    elif how["mode"] != "cubic" and all(_simple(op, axis, how) for axis in axes):
        fits = scales or _as_scales(axes)
        if fits is not None:
            return op.Resize(X, fits, mode=how["mode"])
    return sampled(op, X, axes, {"roi": roi, **how})


@adapter("Resize", 11, 13, accuracy="rounding")
def resize_without_tf(op, X, roi, scales, sizes, **how):
    """11 requires all inputs, empty ones for none; 13 lets them out, and has no tf_half_pixel_for_nn any more.

    That is half_pixel moved by half a pixel, which another rounding makes up for where it is nearest floor or
    round_prefer_floor; else the values are gathered.
    """
    sizes = None if _empty(op, sizes) else sizes
    scales = None if sizes else scales
    if how["coordinate_transformation_mode"] == "tf_half_pixel_for_nn":
        instead = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}.get(how["nearest_mode"])
        if how["mode"] != "nearest" or instead is None:
            return sampled(op, X, axes_of(op, X, scales, sizes), how)
        how.update(coordinate_transformation_mode="half_pixel", nearest_mode=instead)
    return op.Resize(X, roi, scales, sizes, **how)


@adapter("Resize", 13, 11, accuracy="rounding")
def resize_with_empties(op, X, roi, scales, sizes, **how):
    """13 lets inputs out, 11 requires all but sizes, empty ones for none; 13 adds bfloat16.

    A float holds every bfloat16, and the result is rounded once.
    """
    nothing = np.zeros(0, np.float32)
    small = op.dtype(X) == T.BFLOAT16
    if roi and scales and not small:
        return KEEP
    Y = op.Resize(op.Cast(X, to=T.FLOAT) if small else X, roi or nothing, scales or nothing, sizes, **how)
    return op.Cast(Y, to=T.BFLOAT16) if small else Y


@adapter("Resize", 18, 13, accuracy="rounding")
def resize_all_axes(op, X, roi, scales, sizes, *, antialias, axes, keep_aspect_ratio_policy, **how):
    """18 adds `axes`, `keep_aspect_ratio_policy` for sizes, and `antialias`, a wider filter for going down.

    The other axes stay as they are; the sizes that the policy leads to are computed; the filter's values are gathered.
    """
    sizes = None if _empty(op, sizes) else sizes
    scales = None if sizes else scales
    policy = keep_aspect_ratio_policy if sizes else "stretch"
    antialias = antialias and how["mode"] != "nearest"
    if antialias or policy != "stretch":
        found = axes_of(op, X, scales, sizes, policy, axes)
        down = not all(_known(axis.scale) and axis.scale >= 1 for axis in found)
        if (antialias and down) or (policy != "stretch" and not all(axis.exact for axis in found)):
            return sampled(op, X, found, {"antialias": antialias, "roi": roi, **how})
        if policy != "stretch":
            sizes = np.array([int(axis.size) for axis in found])
    if axes is not None:
        rank = op.rank(X)
        place = [[k for k, axis in enumerate(axes) if axis % rank == d] for d in range(rank)]
        if how["coordinate_transformation_mode"] == "tf_crop_and_resize":
            whole = op.Concat(op.Cast(np.array([0, 1], np.float32), to=op.dtype(roi)), roi, axis=0)
            picks = [at[0] + 2 + e * len(axes) if at else e for e in (0, 1) for at in place]
            roi = op.Gather(whole, np.array(picks), axis=0)
        picks = np.array([at[0] + 1 if at else 0 for at in place])
        if scales:
            scales = op.Gather(op.Concat(np.ones(1, np.float32), scales, axis=0), picks, axis=0)
        else:
            picks = np.array([at[0] + rank if at else d for d, at in enumerate(place)])
            sizes = op.Gather(op.Concat(op.Shape(X), sizes, axis=0), picks, axis=0)
    return op.Resize(X, roi, scales, sizes, **how)


@adapter("Resize", 19, 18, accuracy="rounding")
def resize_symmetric(op, X, roi, scales, sizes, *, antialias, axes, keep_aspect_ratio_policy, **how):
    """19 adds half_pixel_symmetric, which is half_pixel but for an offset where a size was rounded.

    Where none was it is written as half_pixel; else the values are gathered.
    """
    if how["coordinate_transformation_mode"] != "half_pixel_symmetric":
        return KEEP
    scales = None if not _empty(op, sizes) else scales
    new = {"antialias": antialias, "axes": axes, "keep_aspect_ratio_policy": keep_aspect_ratio_policy}
    found = axes_of(op, X, scales, sizes, "stretch" if scales else keep_aspect_ratio_policy, axes)
    stretched = not scales and keep_aspect_ratio_policy == "stretch"
    if stretched or all(axis.exact for axis in found):
        how["coordinate_transformation_mode"] = "half_pixel"
        return op.Resize(X, roi, scales, sizes, **new, **how)
    if not scales:
        raise RefusedError("runtimes differ in half_pixel_symmetric where keep_aspect_ratio_policy rounds a size")
    return sampled(op, X, found, {"antialias": antialias, **how})


@adapter("Resize", 10, None, accuracy="rounding")
def resize_by_upsample(op, X, scales, *, mode):
    """10 is its first version, the successor of Upsample, which does not go down.

    Going up it is Upsample; else the values are gathered.
    """
    known = op.known(scales)
    if known is not None and (known >= 1).all():
        return op.Upsample(X, scales, mode=mode)
    return sampled(op, X, axes_of(op, X, scales, None), {**SIMPLE, "mode": mode})


@adapter("Upsample", 9, 10)
def upsample(op, X, scales, *, mode):
    """10 has Resize in its place, which does the same and goes down as well."""
    return op.Resize(X, scales, mode=mode)


@adapter("Upsample", 7, 9)
def upsample_scales_input(op, X, *, scales, mode):
    """7 has the scales as an attribute, 9 as an input.

    They become a constant.
    """
    return op.Upsample(X, np.array(scales, np.float32), mode=mode)


@adapter("Upsample", 9, 7, accuracy="rounding")
def upsample_scales_attribute(op, X, scales, *, mode):
    """9 has the scales as an input, 7 as an attribute.

    Where they are no constant, but the sizes are known, the values are gathered.
    """
    known = op.known(scales)
    if known is not None:
        return op.Upsample(X, scales=known.tolist(), mode=mode)
    return sampled(op, X, axes_of(op, X, scales, None), {**SIMPLE, "nearest_mode": "floor", "mode": mode})


@adapter("Upsample", 1, 7)
def upsample_all_axes(op, X, *, height_scale, width_scale, mode):
    """1 has the scales of height and width, 7 those of all axes; it says bilinear for linear."""
    return op.Upsample(X, scales=[1.0, 1.0, height_scale, width_scale], mode="linear" if mode == "bilinear" else mode)


@adapter("Upsample", 7, 1)
def upsample_height_and_width(op, X, *, scales, mode):
    """7 scales all axes, 1 height and width alone, of images; it says bilinear for linear.

    Other scales are refused, and so are linear means of integers that 1 does not have.
    """
    if len(scales) != 4 or scales[:2] != [1.0, 1.0]:
        raise RefusedError(f"before 7 Upsample scales height and width alone, here the scales are {scales}")
    if mode != "nearest" and op.dtype(X) not in WIDE:
        raise RefusedError("before 7 integers of this type have no linear mean")
    mode = "bilinear" if mode == "linear" else mode
    return op.Upsample(X, height_scale=scales[2], width_scale=scales[3], mode=mode)
