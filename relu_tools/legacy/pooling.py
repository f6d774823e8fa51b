"""Pooling over windows and over everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..compare import is_float
from .registry import meaning, widened
from .windows import seen_by_windows, window_plan


def _without_late(plan: tuple, size: Sequence[int], silent: bool) -> tuple:
    """A window that would begin in the padding at the end is left out; of that the older texts say nothing."""
    strides, dilations, before, after, windows = plan
    kept = [w - ((w - 1) * s >= n + b) for w, s, n, b in zip(windows, strides, size, before, strict=True)]
    if kept != windows and silent:
        raise NotImplementedError("before opset 22 a window that begins in the padding at the end has no meaning")
    return strides, dilations, before, after, kept


def _average_pool(silent: bool) -> Callable:
    def run(
        node,
        x,
        *,
        kernel_shape,
        auto_pad,
        pads=None,
        strides=None,
        dilations=None,
        ceil_mode=0,
        count_include_pad=0,
    ):
        size = x.shape[2:]
        plan = window_plan(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        strides, dilations, before, after, windows = plan = _without_late(plan, size, silent)
        axes = tuple(range(-len(kernel_shape), 0))
        inside, plan_inside = np.ones((1, 1, *size), np.float32), plan
        if count_include_pad:
            inside = np.pad(
                inside,
                [(0, 0), (0, 0), *zip(before, after, strict=True)],
                constant_values=1,
            )
            plan_inside = (
                strides,
                dilations,
                [0] * len(size),
                [0] * len(size),
                windows,
            )
        counted = seen_by_windows(inside, kernel_shape, plan_inside, 0).sum(axes)
        return (seen_by_windows(widened(x), kernel_shape, plan, 0).sum(axes) / counted).astype(x.dtype)

    return run


def _max_pool(silent: bool) -> Callable:
    def run(
        node,
        x,
        *,
        kernel_shape,
        auto_pad,
        pads=None,
        strides=None,
        dilations=None,
        ceil_mode=0,
        storage_order=0,
    ):
        size = x.shape[2:]
        plan = window_plan(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        plan = _without_late(plan, size, silent)
        lowest = -np.inf if is_float(x.dtype) else np.iinfo(x.dtype).min
        seen = seen_by_windows(x, kernel_shape, plan, lowest)
        seen = seen.reshape(*seen.shape[: x.ndim], -1)
        if len(node.output) == 1:
            return seen.max(-1)
        place = np.arange(int(np.prod(size)), dtype=np.int64).reshape(size, order="F" if storage_order else "C")
        places = seen_by_windows(place[None, None], kernel_shape, plan, -1)
        places = np.broadcast_to(places.reshape(1, 1, *seen.shape[2:]), seen.shape)
        best = np.argmax((seen == seen.max(-1, keepdims=True)) & (places >= 0), -1)[..., None]
        channel = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *(1 for _ in size))
        values, indices = (np.take_along_axis(v, best, -1)[..., 0] for v in (seen, places))
        return values, indices + channel * place.size

    return run


for _name, _pool in (("AveragePool", _average_pool), ("MaxPool", _max_pool)):
    meaning(_name, 1, 22)(_pool(silent=True))
    meaning(_name, 22)(_pool(silent=False))


@meaning("GlobalMaxPool", 1)
def _global_max_pool(node, x):
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


def _lp_pool(silent: bool) -> Callable:
    def run(node, x, *, kernel_shape, auto_pad, p, pads=None, strides=None, dilations=None, ceil_mode=0):
        size = x.shape[2:]
        plan = window_plan(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        plan = _without_late(plan, size, silent)
        seen = np.abs(seen_by_windows(widened(x), kernel_shape, plan, 0)) ** p
        return (seen.sum(tuple(range(-len(kernel_shape), 0))) ** (1 / p)).astype(x.dtype)

    return run


meaning("LpPool", 1, 22)(_lp_pool(silent=True))
meaning("LpPool", 22)(_lp_pool(silent=False))


@meaning("GlobalLpPool", 1, 2)
def _global_lp_pool(node, x, *, p):
    axes = tuple(range(2, x.ndim))
    return ((np.abs(widened(x)) ** p).sum(axes, keepdims=True) ** (1 / p)).astype(x.dtype)
