"""Where windows lie that slide over the spatial dimensions, and what they see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def window_plan(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: Any,
    ceil: int = 0,
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides, dilations, padding before and after, and the number of windows along each spatial axis."""
    count = len(size)
    strides, dilations = list(strides or [1] * count), list(dilations or [1] * count)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    before, after = [0] * count, [0] * count
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        windows = [-(-n // s) for n, s in zip(size, strides, strict=True)]
        for i in range(count):
            total = max(0, (windows[i] - 1) * strides[i] + extent[i] - size[i])
            before[i] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            after[i] = total - before[i]
        return strides, dilations, before, after, windows
    if auto_pad != "VALID" and pads:
        before, after = list(pads[:count]), list(pads[count:])
    windows = []
    for i in range(count):
        room = size[i] + before[i] + after[i] - extent[i]
        windows.append((-(-room // strides[i]) if ceil else room // strides[i]) + 1)
    return strides, dilations, before, after, windows


def seen_by_windows(x: np.ndarray, kernel: Sequence[int], plan: tuple, fill: Any) -> np.ndarray:
    """Of shape (N, C, windows..., kernel...): every element that each window sees, `fill` outside of `x`."""
    strides, dilations, before, after, windows = plan
    spatial = range(len(kernel))
    reach = [(windows[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in spatial]
    late = [max(after[i], reach[i] - x.shape[2 + i] - before[i]) for i in spatial]
    padded = np.pad(
        x,
        [(0, 0), (0, 0), *((before[i], late[i]) for i in spatial)],
        constant_values=fill,
    )
    for i in spatial:
        index = np.arange(windows[i])[:, None] * strides[i] + np.arange(kernel[i])[None] * dilations[i]
        padded = np.take(padded, index, axis=2 + 2 * i)
    order = [0, 1, *(2 + 2 * i for i in spatial), *(3 + 2 * i for i in spatial)]
    return padded.transpose(order)
