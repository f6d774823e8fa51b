"""Steps of Resize and Upsample."""

from __future__ import annotations

import numpy as np

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.adapters.interpolation import WIDE, Axis, axes_of, is_known, nearest, position, sampled
from relu_tools.report import RefusedError

SIMPLE = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple"}
"""What 10 does: down by a ceiling, up by a floor."""


def _simple(op, axis: Axis, how: dict) -> bool:
    """Whether 10 takes the same values with the same weights along an axis."""
    linear, where = how["mode"] == "linear", how["coordinate_transformation_mode"]
    if axis.stays or (linear and where == "asymmetric"):
        return True
    if axis.known:
        place = position if linear else nearest
        return np.array_equal(place(op, axis, how), place(op, axis, SIMPLE))
    if linear or not is_known(axis.scale):
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


same("Resize", 11, 13, 18, 19)
same("Upsample", 9, 10)


def _empty(op, value) -> bool:
    """Whether an optional input says nothing: left out, or a tensor without elements."""
    known = op.known(value)
    return not value or op.known_shape(value) == [0] or (known is not None and not known.size)


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
    by_sizes = _empty(op, scales) or not _empty(op, sizes)
    scales = None if by_sizes else scales
    if how["coordinate_transformation_mode"] != "tf_crop_and_resize":
        op.known(roi)  # a constant that nothing reads any more may go
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


@adapter("Resize", 13, 11)
def resize_with_empties(op, X, roi, scales, sizes, **how):
    """13 lets inputs out, 11 requires all but sizes, empty ones for none."""
    nothing = np.zeros(0, np.float32)
    return KEEP if roi and scales else op.Resize(X, roi or nothing, scales or nothing, sizes, **how)


@adapter("Resize", 18, 13, accuracy="rounding")
def resize_all_axes(op, X, roi, scales, sizes, *, antialias, axes, keep_aspect_ratio_policy, **how):
    """18 adds `axes`, `keep_aspect_ratio_policy` for sizes, and `antialias`, a wider filter for going down.

    The other axes stay as they are; the sizes that the policy leads to are computed; what the filter sees is gathered.
    """
    sizes = None if _empty(op, sizes) else sizes
    scales = None if sizes else scales
    policy = keep_aspect_ratio_policy if sizes else "stretch"
    antialias = antialias and how["mode"] != "nearest"
    if antialias or policy != "stretch":
        found = axes_of(op, X, scales, sizes, policy, axes)
        if antialias or (policy != "stretch" and not all(axis.exact for axis in found)):
            return sampled(op, X, found, {"antialias": antialias, "roi": roi, **how})
        if policy != "stretch":
            sizes = np.array([int(axis.size) for axis in sorted(found, key=_place) if axis.place is not None])
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


def _place(axis: Axis) -> int:
    return -1 if axis.place is None else axis.place


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

    Where they are no constant the values are gathered.
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
