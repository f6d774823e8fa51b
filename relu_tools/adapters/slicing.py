"""Steps of Slice and Split."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.adapters.indexing import END, arange, gathered, known_size, size
from relu_tools.magnitudes import PLACES
from relu_tools.report import RefusedError

same("Slice", 10, 11, 13)
same("Split", 1, 2, 11)


# --- Slice -----------------------------------------------------------------------------------
@adapter("Slice", 1, 10)
def slice_inputs(op, data, *, starts, ends, axes):
    """1 has starts, ends and axes as attributes, 10 as inputs.

    They become constants.
    """
    lists = [np.array(v, np.int64) for v in (starts, ends, axes) if v is not None]
    return op.Slice(data, *lists)


@adapter("Slice", 11, 10)
def slice_axes_from_front(op, data, starts, ends, axes, steps):
    """11 lets axes count from the back.

    They are counted from the front.
    """
    if not axes or op.nonnegative(axes):
        return KEEP
    return op.Slice(data, starts, ends, _from_front(op, axes, data), steps)


@adapter("Slice", 10, 1)
def slice_attributes(op, data, starts, ends, axes, steps):
    """10 has starts, ends and axes as inputs, 1 as attributes; steps are new.

    What is no constant, or has a step other than 1, is gathered at the indices that the slice takes.
    """
    lists = [None if given is None else op.known(given) for given in (starts, ends, axes, steps)]
    if any(given and known is None for given, known in zip((starts, ends, axes, steps), lists, strict=True)):
        return _gathered(op, data, starts, ends, axes, steps)
    starts, ends, axes, steps = (known if known is None else known.reshape(-1).astype(np.int64) for known in lists)
    if axes is not None and (axes < 0).any():
        axes = axes % op.rank(data)
    if steps is None or (steps == 1).all():
        return op.Slice(data, starts=starts, ends=ends, axes=axes)
    axes = np.arange(len(starts)) if axes is None else axes
    plain = steps == 1
    if plain.any():
        data = op.Slice(data, starts=starts[plain], ends=ends[plain], axes=axes[plain])
    for start, end, axis, step in zip(starts[~plain], ends[~plain], axes[~plain], steps[~plain], strict=True):
        length = known_size(op, data, axis)
        if length is not None:
            data = gathered(op, data, np.arange(length)[_slice(start, end, step, length)], axis)
        else:
            data = _gathered(op, data, *(np.array([n]) for n in (start, end, axis, step)))
    return data


def _slice(start, end, step, length) -> slice:
    start, end = (int(n) + length if n < 0 else int(n) for n in (start, end))
    if step > 0:
        return slice(max(start, 0), max(end, 0), step)
    # Backwards, an end before the first element is what Python writes as None.
    return slice(min(max(start, 0), length - 1) if length else 0, end if end >= 0 else None, step)


def _gathered(op, data, starts, ends, axes, steps):
    """A slice along each axis, gathered at first, first + step, ... as often as that is within the bounds."""
    starts, ends, axes, steps = (
        given if isinstance(given, np.ndarray) else _int64(op, given) for given in (starts, ends, axes, steps)
    )
    if axes is None or steps is None:
        count = len(starts) if isinstance(starts, np.ndarray) else known_size(op, starts, 0)
        if count is None:
            raise RefusedError(f"before 10 the number of elements of '{starts}' must be known")
        axes = np.arange(count) if axes is None else axes
        steps = np.ones(count, np.int64) if steps is None else steps
    axes = _from_front(op, axes, data)
    lengths = op.Gather(op.Shape(data), axes)
    # Backwards, a slice begins one place lower than forwards and ends before the first element.
    if isinstance(steps, np.ndarray):
        bottom = -(steps < 0).astype(np.int64)
        sign = 1 + 2 * bottom
    else:
        bottom = op.Neg(op.Cast(op.Less(steps, ZERO), to=T.INT64))
        sign = op.Add(ONE, op.Add(bottom, bottom))
    top = _plus(op, lengths, bottom)
    first = starts
    if not (_is(starts, 0) and _is(bottom, 0)):
        first = op.places(_at_most(op, _at_least(op, _counted(op, starts, lengths), np.array(0)), top))
    last = _at_most(op, _at_least(op, _counted(op, ends, lengths), bottom), top)
    way = last if _is(first, 0) else op.Sub(last, first)
    count = op.Add(op.Div(op.Sub(way, sign), steps), ONE) if not _is(steps, 1) else way
    count = op.places(op.Where(op.Less(ZERO, _times(op, way, sign)), count, ZERO))
    if not isinstance(axes, np.ndarray):
        axes, first, count, steps = _on_each_axis(op, data, axes, first, count, steps)
    for k, axis in enumerate(axes):
        begin, many, step = (_element(op, of, k) for of in (first, count, steps))
        data = gathered(op, data, _plus(op, op.places(_times(op, arange(op, many), step)), begin), axis)
    return data


ZERO, ONE = np.int64(0), np.int64(1)


def _is(values, number) -> bool:
    return isinstance(values, np.ndarray) and bool((values == number).all())


def _plus(op, a, b):
    return a if _is(b, 0) else op.Add(a, b)


def _times(op, a, b):
    return a if _is(b, 1) else op.Mul(a, b)


def _counted(op, bounds, lengths):
    """Bounds that count from the back, from the front."""
    if isinstance(bounds, np.ndarray) and (bounds >= 0).all():
        return bounds
    return op.Where(op.Less(bounds, ZERO), op.Add(bounds, lengths), bounds)


def _at_least(op, values, low):
    if isinstance(values, np.ndarray) and isinstance(low, np.ndarray):
        return np.maximum(values, low)
    return op.Where(op.Less(values, low), low, values)


def _at_most(op, values, high):
    if _is(values, END):
        return high
    return op.Where(op.Less(high, values), high, values)


def _int64(op, given):
    """An array where it is a constant, else a value."""
    known, far = op.known(given), 2**PLACES
    if known is not None:
        known = known.reshape(-1).astype(np.int64)
        return known if _is(known, END) or op.version("Add") >= 6 else np.clip(known, -far, far)
    if given and op.version("Add") < 6:
        # What is beyond every length stays so.
        limit = np.full(known_size(op, given, 0) or (), np.float64(far))
        near = op.Min(op.Max(op.Cast(given, to=T.DOUBLE), -limit), limit)
        return op.places(op.Cast(near, to=T.INT64))
    return op.Cast(given, to=T.INT64) if given and op.dtype(given) != T.INT64 else given


def _from_front(op, axes, data):
    if isinstance(axes, np.ndarray):
        return axes % op.rank(data) if (axes < 0).any() else axes
    zero, rank = op.like(0, axes), op.like(op.rank(data), axes)
    return op.Where(op.Less(axes, zero), op.Add(axes, rank), axes)


def _on_each_axis(op, data, axes, first, count, steps):
    """What holds for the axes that a value names, and for the others all there is."""
    every = np.arange(op.rank(data))
    hits = op.Cast(op.Equal(op.Unsqueeze(axes, axes=[1]), every[None]), to=T.INT64)
    missed = op.Sub(np.int64(1), op.ReduceSum(hits, axes=[0], keepdims=0))

    def spread(values):
        return op.ReduceSum(op.Mul(op.Unsqueeze(values, axes=[1]), hits), axes=[0], keepdims=0)

    count = op.Add(spread(count), op.Mul(missed, op.Shape(data)))
    return every, spread(first), count, op.Add(spread(steps), missed)


def _element(op, values, k):
    return values[k : k + 1] if isinstance(values, np.ndarray) else op.Slice(values, starts=[k], ends=[k + 1])


# --- Split -----------------------------------------------------------------------------------
@adapter("Split", 1, 2)
def split_lengths(op, input, lengths, *, axis, split):
    """1 can have the lengths as an input of floats, and does not say which axis it splits where none is given."""
    if axis is None:
        raise RefusedError("version 1 does not say which axis is split where none is given", "set the attribute axis")
    if lengths:
        split = op.const(lengths).reshape(-1).astype(np.int64)
    return op.Split(input, axis=axis, split=split, outputs=len(op.outputs))


@adapter("Split", 11, 2)
def split_axis_from_front(op, input, *, axis, split):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    if axis >= 0:
        return KEEP
    return op.Split(input, axis=axis + op.rank(input), split=split, outputs=len(op.outputs))


@adapter("Split", 11, 13)
def split_input(op, input, *, axis, split):
    """11 has the lengths as an attribute, 13 as an input.

    They become a constant.
    """
    return op.Split(input, None if split is None else np.array(split, np.int64), axis=axis, outputs=len(op.outputs))


@adapter("Split", 13, 11)
def split_attribute(op, input, split, *, axis):
    """13 has the lengths as an input, 11 as an attribute.

    Where they are no constant, each part is a slice that begins where the last one ended.
    """
    if not split:
        return KEEP
    known = op.known(split)
    if known is not None:
        return op.Split(input, axis=axis, split=known.reshape(-1), outputs=len(op.outputs))
    parts, begin = [], np.array([0])
    for k in range(len(op.outputs)):
        end = op.Add(begin, op.Slice(split, np.array([k]), np.array([k + 1])))
        parts.append(op.Slice(input, begin, end, np.array([axis])))
        begin = end
    return tuple(parts)


@adapter("Split", 13, 18)
def split_number(op, input, split, *, axis):
    """18 asks for the lengths or for the number of parts.

    That is the number of outputs.
    """
    return KEEP if split else op.Split(input, axis=axis, num_outputs=len(op.outputs), outputs=len(op.outputs))


@adapter("Split", 18, 13)
def split_unevenly(op, input, split, *, axis, num_outputs):
    """18 can make a given number of parts (`num_outputs`), the last one smaller; 13 makes parts of one length.

    Unless they are known to be so, the lengths are computed.
    """
    if split:
        return KEEP
    parts, length = len(op.outputs), known_size(op, input, axis)
    part = None if length is None else -(-length // parts)
    if parts == 1 or (length is not None and length % parts == 0):
        return op.Split(input, axis=axis, outputs=parts)
    if length is not None and length < part * (parts - 1):
        # Too few for so many parts stand in the branch of an If that is never taken; it must load all the same.
        cuts = [np.array([k * part]) for k in range(parts + 1)]
        return tuple(op.Slice(input, cuts[k], cuts[k + 1], np.array([axis])) for k in range(parts))
    if length is not None:
        lengths = np.array([part] * (parts - 1) + [length - part * (parts - 1)])
    else:
        length = size(op, input, axis)
        part = op.Div(op.Add(length, np.int64(parts - 1)), np.int64(parts))
        last = op.Sub(length, op.Mul(part, np.int64(parts - 1)))
        lengths = op.Concat(*[part] * (parts - 1), last, axis=0)
    return op.Split(input, lengths, axis=axis, outputs=parts)
