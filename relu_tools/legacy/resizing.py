"""Upsample and Resize."""

from __future__ import annotations

import numpy as np

from .registry import demand, meaning


def _nearest(x, scales):
    """Each output element is the input element at its index divided by the scale, rounded down where that enlarges.

    Up where it shrinks: no text says so, but the release that brought it (a case of ONNX 1.5).
    """
    for axis, scale in enumerate(scales):
        size = int(np.floor(x.shape[axis] * np.float32(scale)))
        turn = np.floor if scale >= 1 else np.ceil
        index = turn(np.arange(size) / np.float64(scale)).astype(np.int64)
        x = np.take(x, np.minimum(index, x.shape[axis] - 1), axis)
    return x


def _upsampled(x, scales, mode):
    if mode != "nearest":
        raise NotImplementedError("the specification of Upsample does not say where linear samples lie")
    demand(len(scales) == x.ndim and min(scales) >= 1, f"scales {scales} for rank {x.ndim}")
    return _nearest(x, scales)


@meaning("Upsample", 1, 7)
def _upsample_1(node, x, *, height_scale, width_scale, mode):
    return _upsampled(x, [1, 1, height_scale, width_scale], mode)


@meaning("Upsample", 7, 9)
def _upsample_7(node, x, *, scales, mode):
    return _upsampled(x, scales, mode)


@meaning("Upsample", 9, 10)
def _upsample_9(node, x, scales, *, mode):
    return _upsampled(x, scales.tolist(), mode)


@meaning("Resize", 10, 11)
def _resize_10(node, x, scales, *, mode):
    if mode != "nearest":
        raise NotImplementedError("the specification of Resize 10 does not say where linear samples lie")
    demand(len(scales) == x.ndim and min(scales) > 0, f"scales {scales} for rank {x.ndim}")
    return _nearest(x, scales.tolist())
