"""Steps of the pooling operators in ONNX's defs/nn: maxima, averages and norms of windows."""

from __future__ import annotations

import functools
import math

import numpy as np
from onnx import numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

END = np.iinfo(np.int64).max

same("GlobalAveragePool GlobalMaxPool MaxRoiPool", 1, 22)
same("AveragePool", 1, 7, 10, 11, 19, 22)
same("MaxPool", 1, 8, 10, 11, 12, 22)
same("LpPool", 2, 11, 18, 22)
same("GlobalLpPool", 2, 22)
same("MaxUnpool", 9, 11, 22)


# --- windows -------------------------------------------------------------------------------
class Windows:
    """Where the windows of a pooling operator lie, from its attributes: lists with a number for each spatial axis."""

    def __init__(self, op, X, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0):
        ones = [1] * len(kernel_shape)
        self.kernel, self.strides, self.dilations = kernel_shape, strides or ones, dilations or ones
        self.widths = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        shape = op.known_shape(X)
        self.sizes: list = shape[2:] if shape else [None] * len(ones)
        self.begin, self.end = self._padding(pads, auto_pad)
        # Padding that has a part in averages is that alone which was asked for.
        self.counted = list(self.end)
        self.dropped = False
        for k, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True)):
            pad = self.begin[k] + self.end[k]
            if isinstance(size, int) and size + pad < width:
                raise RefusedError(f"a window of {width} does not fit into {size} values with {pad} of padding")
        if ceil_mode and not auto_pad.startswith("SAME"):
            self._complete()
            if auto_pad == "VALID" and self.completed:
                raise RefusedError("runtimes differ in whether ceil_mode goes with auto_pad VALID")

    def _padding(self, pads, auto_pad: str) -> tuple[list[int], list[int]]:
        rank = len(self.kernel)
        if auto_pad == "NOTSET":
            pads = pads or [0] * 2 * rank
            return pads[:rank], pads[rank:]
        begin, end = [0] * rank, [0] * rank
        if auto_pad == "VALID":
            return begin, end
        if any(dilation != 1 for dilation in self.dilations):
            raise RefusedError(f"runtimes differ in how they pad dilated windows with auto_pad {auto_pad}")
        for k, (size, stride, width) in enumerate(zip(self.sizes, self.strides, self.widths, strict=True)):
            if not isinstance(size, int) and stride > 1:
                raise RefusedError(f"auto_pad {auto_pad} cannot be written as pads where the sizes are not known")
            total = width - 1 if stride == 1 else max(0, (-(-size // stride) - 1) * stride + width - size)
            small, large = total // 2, total - total // 2
            begin[k], end[k] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        return begin, end

    def _complete(self) -> None:
        """More padding at the end, with which rounding down counts the windows that rounding up does.

        But for a last one that starts behind the data.
        """
        for k, (size, stride, width) in enumerate(zip(self.sizes, self.strides, self.widths, strict=True)):
            if isinstance(size, int):
                reach = size + self.begin[k] + self.end[k] - width
                windows = -(-reach // stride) + 1
                if (windows - 1) * stride >= size + self.begin[k]:
                    windows, self.dropped = windows - 1, True
                self.end[k] += max(0, (windows - 1) * stride - reach)
            elif self.end[k] + stride <= width:
                # Too little to start a window behind the data.
                self.end[k] += stride - 1
            else:
                raise RefusedError("there is no ceil_mode here, and without the spatial sizes no pads for it")

    @property
    def pads(self) -> list[int]:
        return self.begin + self.end

    @property
    def completed(self) -> bool:
        return self.end != self.counted

    def counts(self, *, padding: bool) -> np.ndarray | None:
        """How many values each window holds, None where that is not known; with or without those of the padding."""
        if not _known(self.sizes):
            return None
        rank, found = len(self.kernel), np.ones([1] * (len(self.kernel) + 2))
        for k, size in enumerate(self.sizes):
            before, after = self.begin[k], size + self.begin[k]
            low, high = (0, after + self.counted[k]) if padding else (before, after)
            last = after + self.end[k] - self.widths[k]
            starts = np.arange(0, last + 1, self.strides[k])[:, None]
            places = starts + np.arange(self.kernel[k]) * self.dilations[k]
            within = ((places >= low) & (places < high)).sum(axis=1)
            found = found * within.reshape([-1 if axis == k + 2 else 1 for axis in range(rank + 2)])
        return found

    def sums(self, op, X):
        """The sums of all windows, of [N * C, 1, ...]."""
        conv = {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}
        return op.Conv(X, np.ones([1, 1, *self.kernel], op.like(0, X).dtype), kernel_shape=self.kernel, **conv)


def _rounding_down(op, X, attributes: dict) -> dict | None:
    """Attributes for an operator without `dilations` and `ceil_mode`; None where they say nothing."""
    same = {name: value for name, value in attributes.items() if name not in ("dilations", "ceil_mode")}
    # With SAME padding the number of windows is rounded up in any case.
    if attributes["ceil_mode"] and not same["auto_pad"].startswith("SAME"):
        windows = Windows(op, X, **attributes)
        if windows.completed:
            same["pads"] = windows.pads
    return same if attributes["ceil_mode"] or attributes.get("dilations") else None


def _in_one_channel(op, X, make):
    """What `make` does of X as [N * C, 1, ...], as [N, C, ...] again."""
    first = op.shape(X)[:2]
    # A -1 in place of an unknown product could not be told from anything where a size is 0.
    count = np.array([first[0] * first[1]]) if _known(first) else op.Mul(_sizes(op, X, 0, 1), _sizes(op, X, 1, 2))
    rest = np.array([1] + [0] * (op.rank(X) - 2))
    flat = np.concatenate([count, rest]) if _known(first) else op.Concat(count, rest, axis=0)
    Y = make(op.Reshape(X, flat))
    shape = [*first, *op.shape(Y)[2:]]
    if not _known(shape):
        shape = op.Concat(_sizes(op, X, 0, 2), _sizes(op, Y, 2, len(shape)), axis=0)
    return op.Reshape(Y, np.array(shape) if isinstance(shape, list) else shape)


def _known(shape: list) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def _sizes(op, value, start: int, end: int):
    return op.Gather(op.Shape(value), np.arange(start, end), axis=0)


def _averaged(op, X, windows: Windows, *, padding: bool):
    """Averages as sums of windows over what they hold."""
    op.rounds()
    counts = windows.counts(padding=padding)
    if padding and counts is None and not windows.completed:
        counts = np.array(math.prod(windows.kernel))
    if counts is None and padding:
        raise RefusedError("how many values a window that was rounded up holds depends on the spatial sizes")

    def make(flat):
        if counts is not None:
            return op.Div(windows.sums(op, flat), counts.astype(op.like(0, X).dtype))
        shape = op.Concat(np.array([1]), _sizes(op, flat, 1, op.rank(X)), axis=0)
        ones = op.ConstantOfShape(shape, value=numpy_helper.from_array(op.like(1, X)[None]))
        return op.Div(windows.sums(op, flat), windows.sums(op, ones))

    return _in_one_channel(op, X, make)


# --- maxima --------------------------------------------------------------------------------
@adapter("MaxPool", 8, 1)
def max_pool_one_output(op, X, *, storage_order, **same):
    """8 adds the output Indices, and the order in which they count.

    Without that output the order says nothing.
    """
    if any(op.outputs[1:]):
        raise RefusedError("before 8 MaxPool gives no Indices")
    return KEEP if not storage_order else op.MaxPool(X, **same)


@adapter("MaxPool", 10, 8)
def max_pool_dilated(op, X, *, storage_order, **same):
    """10 adds `ceil_mode` and `dilations`.

    Padding that completes the last window gives as many outputs, and no maximum counts it. Along a dilated axis the
    maximum is taken of the slices that the places in the window see, before a pool of width 1 that has the strides.
    """
    dilated = [k for k, dilation in enumerate(same["dilations"] or []) if dilation != 1]
    if not dilated:
        same = _rounding_down(op, X, same)
        return op.MaxPool(X, outputs=len(op.outputs), storage_order=storage_order, **same) if same else KEEP
    windows = Windows(op, X, **same)
    if any(op.outputs[1:]):
        raise RefusedError("before 10 there are no dilated windows, and nothing else gives their Indices")
    if any(windows.pads):
        pads = [0, 0, *windows.begin, 0, 0, *windows.end]
        X = op.Pad(X, pads=pads, value=-math.inf)
    for k in dilated:
        places = [place * windows.dilations[k] for place in range(windows.kernel[k])]
        ends = [place - places[-1] or END for place in places]
        X = op.Max(*(op.Slice(X, axes=[k + 2], starts=[a], ends=[b]) for a, b in zip(places, ends, strict=True)))
    kernel = [1 if k in dilated else size for k, size in enumerate(windows.kernel)]
    return op.MaxPool(X, kernel_shape=kernel, strides=windows.strides)


# --- averages ------------------------------------------------------------------------------
@adapter("AveragePool", 10, 7)
def average_pool_floor(op, X, *, ceil_mode, count_include_pad, **same):
    """10 adds `ceil_mode`.

    Padding that completes the last window gives as many outputs, and no average counts it; where one counts the other
    padding, sums are divided.
    """
    if not ceil_mode:
        return KEEP
    if count_include_pad and same["auto_pad"] == "NOTSET" and any(same["pads"] or []):
        return _averaged(op, X, Windows(op, X, ceil_mode=ceil_mode, **same), padding=True)
    completed = _rounding_down(op, X, {"ceil_mode": ceil_mode, **same})
    # Padding that only completes windows is not counted.
    given = count_include_pad if completed["pads"] == same["pads"] else 0
    return op.AveragePool(X, count_include_pad=given, **completed)


@adapter("AveragePool", 19, 11)
def average_pool_dilated(op, X, *, dilations, count_include_pad, **same):
    """19 adds `dilations`.

    Those of 1 are left out; dilated windows are summed by a convolution.
    """
    if dilations is None:
        return KEEP
    if all(d == 1 for d in dilations):
        return op.AveragePool(X, count_include_pad=count_include_pad, **same)
    return _averaged(op, X, Windows(op, X, dilations=dilations, **same), padding=bool(count_include_pad))


@adapter("MaxPool", 22, 12)
@adapter("AveragePool", 22, 19)
def pool_last_window(op, X, *, ceil_mode, auto_pad, kernel_shape, strides, pads, dilations, **same):
    """22 leaves out a last window, counted by `ceil_mode`, that would start in the padding at the end.

    Where the sizes tell that there is one, rounding down counts the windows as 22 does.
    """
    sizes = (op.known_shape(X) or [])[2:]
    if not ceil_mode or auto_pad != "NOTSET" or not _known(sizes):
        return KEEP
    place = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations}
    windows = Windows(op, X, pads=pads, ceil_mode=ceil_mode, **place)
    if not windows.dropped:
        return KEEP
    if windows.completed and same.get("count_include_pad"):
        return _averaged(op, X, windows, padding=True)
    return op.again(X, outputs=len(op.outputs), ceil_mode=0, pads=windows.pads, **place, **same)


@adapter("AveragePool", 7, 1)
def average_pool_padded(op, X, *, count_include_pad, **same):
    """7 can count the padding in the average.

    Padding with zeros beforehand counts it.
    """
    if not count_include_pad:
        return KEEP
    windows = Windows(op, X, **same)
    if any(windows.pads):
        X = op.Pad(X, pads=[0, 0, *windows.begin, 0, 0, *windows.end])
    return op.AveragePool(X, kernel_shape=windows.kernel, strides=windows.strides)


# --- norms ---------------------------------------------------------------------------------
def _norms(op, X, windows: Windows, p: float):
    """Norms as roots of the sums of powers."""
    op.rounds()
    powers = op.Pow(op.Abs(X), op.like(p, X))
    sums = _in_one_channel(op, powers, functools.partial(windows.sums, op))
    return op.Pow(sums, op.like(1 / p, X))


@adapter("LpPool", 18, 11)
def lp_pool_dilated(op, X, *, p, dilations, ceil_mode, **same):
    """18 adds `ceil_mode` and `dilations`.

    Padding with zeros adds nothing to a norm, so it completes the last window; dilated windows are summed by a
    convolution.
    """
    same |= {"dilations": dilations, "ceil_mode": ceil_mode}
    if any(d != 1 for d in dilations or []):
        return _norms(op, X, Windows(op, X, **same), p)
    same = _rounding_down(op, X, same)
    return op.LpPool(X, p=p, **same) if same else KEEP


@adapter("LpPool", 1, 2, opset=9)
def lp_pool_whole_order(op, X, *, p, kernel_shape, **same):
    """1 has the order of the norm as a float, 2 as an integer, and requires `kernel_shape`.

    Norms of another order are roots of sums of powers.
    """
    if kernel_shape is None:
        raise RefusedError("it has no kernel_shape, which tells the size of the windows")
    if p != int(p):
        return _norms(op, X, Windows(op, X, kernel_shape=kernel_shape, **same), p)
    return op.LpPool(X, p=int(p), kernel_shape=kernel_shape, **same)


@adapter("GlobalLpPool", 1, 2, opset=9)
def global_lp_pool_whole_order(op, X, *, p):
    """1 has the order of the norm as a float, 2 as an integer.

    A norm of another order is the root of the sum of powers.
    """
    if p == int(p):
        return op.GlobalLpPool(X, p=int(p))
    op.rounds()
    sums = op.ReduceSum(op.Pow(op.Abs(X), op.like(p, X)), axes=list(range(2, op.rank(X))))
    return op.Pow(sums, op.like(1 / p, X))


@adapter("LpPool GlobalLpPool", 2, 1)
def lp_pool_float_order(op, X, *, p, **same):
    """2 has the order of the norm as an integer, 1 as a float."""
    return op.again(X, p=float(p), **same)
