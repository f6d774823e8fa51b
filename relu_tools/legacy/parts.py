"""Parts of tensors and padding around them."""

from __future__ import annotations

import numpy as np

from .registry import demand, meaning


def _cut(x, starts, ends, axes, steps):
    axes = range(len(starts)) if axes is None else [a + (x.ndim if a < 0 else 0) for a in axes]
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        n = x.shape[axis]
        start, end = (v + n if v < 0 else v for v in (start, end))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        start, end = min(max(start, max(low, 0)), high), min(max(end, low), high)
        index[axis] = slice(start, end if end >= 0 else None, step)
        if step < 0 and n == 0:
            index[axis] = slice(0, 0)
    return x[tuple(index)]


@meaning("Slice", 1, 10)
def _slice_1(node, x, *, starts, ends, axes=None):
    return _cut(x, starts, ends, axes, None)


@meaning("Slice", 10)
def _slice(node, x, starts, ends, axes=None, steps=None):
    return _cut(x, *(None if v is None else v.tolist() for v in (starts, ends, axes, steps)))


def _parts(x, axis, sizes, count):
    if sizes is None:
        demand(
            x.shape[axis] % count == 0,
            f"{x.shape[axis]} does not split into {count} equal parts",
        )
        sizes = [x.shape[axis] // count] * count
    demand(sum(sizes) == x.shape[axis], f"parts of {sizes} for {x.shape[axis]}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


@meaning("Split", 1, 2)
def _split_1(node, x, sizes=None, *, axis=None, split=None):
    sizes = split if sizes is None else sizes.tolist()
    return _parts(x, axis or 0, sizes, len(node.output))


@meaning("Split", 2, 13)
def _split_2(node, x, *, axis, split=None):
    return _parts(x, axis, split, len(node.output))


@meaning("Split", 13, 18)
def _split_13(node, x, split=None, *, axis):
    return _parts(x, axis, None if split is None else split.tolist(), len(node.output))


@meaning("Split", 18)
def _split(node, x, split=None, *, axis, num_outputs=None):
    """Of `num_outputs` parts the last one is smaller where they cannot be equal."""
    if split is None:
        count, size = num_outputs or len(node.output), x.shape[axis]
        chunk = -(-size // count)
        return _parts(x, axis, [chunk] * (count - 1) + [size - chunk * (count - 1)], count)
    return _parts(x, axis, split.tolist(), len(node.output))


def _padded(x, pads, value, mode, axes=None):
    axes = range(x.ndim) if axes is None else [a % x.ndim for a in axes]
    widths = [[0, 0] for _ in range(x.ndim)]
    for i, axis in enumerate(axes):
        widths[axis] = [int(pads[i]), int(pads[i + len(pads) // 2])]
    cut = x[tuple(slice(max(0, -b), x.shape[i] - max(0, -e)) for i, (b, e) in enumerate(widths))]
    widths = [[max(0, b), max(0, e)] for b, e in widths]
    if mode == "constant":
        return np.pad(cut, widths, constant_values=np.asarray(value).astype(x.dtype))
    return np.pad(cut, widths, mode)


@meaning("Pad", 1, 2)
def _pad_1(node, x, *, paddings, mode, value):
    return _padded(x, paddings, value, mode)


@meaning("Pad", 2, 11)
def _pad_2(node, x, *, pads, mode, value):
    return _padded(x, pads, value, mode)


@meaning("Pad", 11)
def _pad(node, x, pads, value=None, axes=None, *, mode):
    empty = "" if x.dtype.kind in "OUS" else 0
    value = empty if value is None else value.reshape(())
    return _padded(x, pads.tolist(), value, mode, None if axes is None else axes.tolist())
