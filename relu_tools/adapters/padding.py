"""Steps of Pad."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools import casts, schemas
from relu_tools.adapters import KEEP, adapter, same
from relu_tools.adapters.indexing import END, arange, from_front, gathered, known_size, size
from relu_tools.adapters.shapes import blank

FLOATS_OF_2 = frozenset(map(schemas.tensor_text, (T.FLOAT, T.DOUBLE, T.FLOAT16)))

same("Pad", 11, 13, 18, 19, 21, 23, 24, 25)


@adapter("Pad", 1, 2)
def pad_renamed(op, data, *, paddings, mode, value):
    """1 calls the attribute `paddings`, 2 `pads`."""
    return op.Pad(data, pads=paddings, mode=mode, value=value)


@adapter("Pad", 2, 1)
def pad_named_before(op, data, *, pads, mode, value):
    """2 calls the attribute `pads`, 1 `paddings`; a negative one takes away.

    A Slice takes away first.
    """
    if any(p < 0 for p in pads):
        rank = len(pads) // 2
        ends = [p if p < 0 else END for p in pads[rank:]]
        data = op.Slice(data, axes=list(range(rank)), starts=[max(-p, 0) for p in pads[:rank]], ends=ends)
    return op.Pad(data, paddings=[max(p, 0) for p in pads], mode=mode, value=value)


@adapter("Pad", 2, 11)
def pad_inputs(op, data, *, pads, mode, value):
    """2 has the pads and the value as attributes, 11 as inputs.

    They become constants; the value is of the data's type.
    """
    return op.Pad(data, np.array(pads, np.int64), op.like(value, data) if value else None, mode=mode)


@adapter("Pad", 11, 2)
def pad_attributes(op, data, pads, constant_value, *, mode):
    """11 has the pads and the value as inputs, 2 as attributes, the value and the data as floats.

    Where they are no constants, or no float holds them, what the padding repeats is gathered.
    """
    dtype, known = op.dtype(data), op.known(pads)
    given = constant_value if mode == "constant" else None
    value = op.known(given) if given else np.zeros(1)
    floats = schemas.tensor_text(dtype) in FLOATS_OF_2 or casts.exactly("Pad", dtype, FLOATS_OF_2) is not None
    if known is None or value is None or not floats or np.float32(value) != value:
        return _gathered(op, data, pads, given, mode)
    return op.Pad(data, pads=known, mode=mode, value=float(value.reshape(-1)[0]))


@adapter("Pad", 13, 11)
def pad_of_text(op, data, pads, constant_value, *, mode):
    """13 adds strings, complex numbers and bool.

    What the padding of the first two repeats is gathered.
    """
    return _gathered(op, data, pads, constant_value, mode) if op.dtype(data) in NO_NUMBERS else KEEP


NO_NUMBERS = (T.STRING, T.COMPLEX64, T.COMPLEX128)


@adapter("Pad", 18, 13)
def pad_all_axes(op, data, pads, constant_value, axes, *, mode):
    """18 can name the axes that the pads are for.

    The pads of the other axes are 0.
    """
    return op.Pad(data, _of_all_axes(op, data, pads, axes), constant_value, mode=mode) if axes else KEEP


@adapter("Pad", 19, 18)
def pad_wrap(op, data, pads, constant_value, axes, *, mode):
    """19 adds the mode `wrap`.

    What that repeats is gathered.
    """
    return _gathered(op, data, _of_all_axes(op, data, pads, axes), None, mode) if mode == "wrap" else KEEP


def _of_all_axes(op, data, pads, axes):
    if not axes:
        return pads
    rank, named, given = op.rank(data), op.known(axes), op.known(pads)
    if named is None:
        # A row for each axis that is named, with a 1 in its place.
        rows = op.Equal(op.Unsqueeze(from_front(op, axes, rank), np.array([1])), np.arange(rank)[None])
        pairs = op.Reshape(pads, np.array([2, -1, 1]))
        full = op.ReduceSum(op.Mul(pairs, op.Cast(rows, to=T.INT64)), np.array([1]), keepdims=0)
        return op.Reshape(full, np.array([2 * rank]))
    named = named.reshape(-1) % rank
    # The place of each pad among those given, for the others that of a 0 after them.
    places = np.full((2, rank), 2 * len(named))
    places[:, named] = np.arange(2 * len(named)).reshape(2, -1)
    zero = np.zeros(1, np.int64)
    if given is None:
        return op.Gather(op.Concat(pads, zero, axis=0), places.reshape(-1))
    return np.concatenate([given.reshape(-1), zero])[places.reshape(-1)]


# More are computed by the model, when it runs.
MOST_PLACES = 1 << 20


# --- padding by Gather -------------------------------------------------------------------------
def _gathered(op, data, pads, value, mode):
    """Along each axis, the data at the places that the padding leads to; a constant lies in the place behind them."""
    rank, known = op.rank(data), pads if isinstance(pads, np.ndarray) else op.known(pads)
    for axis in range(rank):
        if known is None:
            begin, end = (op.Slice(pads, np.array([at]), np.array([at + 1])) for at in (axis, axis + rank))
        else:
            begin, end = (int(known.reshape(-1)[at]) for at in (axis, axis + rank))
            if begin == end == 0:
                continue
        length = known_size(op, data, axis)
        if length is not None and known is not None and length + abs(begin) + abs(end) <= MOST_PLACES:
            places = _places(length, begin, end, mode)
        else:
            places = _computed_places(op, size(op, data, axis), begin, end, mode)
        if mode == "constant":
            data = op.Concat(data, _behind(op, data, axis, value), axis=axis)
        data = gathered(op, data, places, axis)
    return data


def _places(length, begin, end, mode):
    kept = np.arange(length)[max(-begin, 0) : length - max(-end, 0)]
    more = {"constant_values": length} if mode == "constant" else {}
    return np.pad(kept, (max(begin, 0), max(end, 0)), mode, **more)


def _computed_places(op, length, begin, end, mode):
    """The places as numpy.pad fills them; pads below 0 take away first."""
    zero = op.Constant(value=numpy_helper.from_array(np.int64(0)))
    one = np.int64(1)
    length, begin, end = (np.array([x]) if isinstance(x, int) else x for x in (length, begin, end))
    before, after = _from_zero(op, begin, zero), _from_zero(op, end, zero)
    first, cut = (_from_zero(op, -x if isinstance(x, np.ndarray) else op.Neg(x), zero) for x in (begin, end))
    count = op.places(op.Sub(op.Sub(length, first), cut))
    place = op.places(op.Sub(arange(op, op.Add(op.Add(count, before), after)), before))
    last = op.Sub(count, one)
    if mode == "constant":
        inside = op.And(op.Not(op.Less(place, zero)), op.Less(place, count))
        return op.Where(inside, op.Add(place, first), length)
    if mode == "edge":
        place = _from_zero(op, op.Where(op.Less(last, place), last, place), zero)
    elif mode == "wrap":
        place = op.places(op.Sub(place, op.Mul(op.Div(place, count), count)))
        place = op.Where(op.Less(place, zero), op.Add(place, count), place)
    else:
        # To the last place and back again, and so on; a single one is repeated.
        period, place = op.Add(last, last), op.Abs(place)
        period = op.Where(op.Less(period, one), one, period)
        place = op.places(op.Sub(place, op.Mul(op.Div(place, period), period)))
        place = op.Sub(last, op.Abs(op.Sub(place, last)))
    return op.Add(place, first)


def _from_zero(op, values, zero):
    return np.maximum(values, 0) if isinstance(values, np.ndarray) else op.Where(op.Less(values, zero), zero, values)


def _behind(op, data, axis, value):
    """The value in the shape of one place of the axis."""
    dims = op.known_shape(data)
    if all(isinstance(dim, int) for dim in dims):
        shape = np.array([*dims[:axis], 1, *dims[axis + 1 :]])
    else:
        whole = op.Shape(data)
        parts = (op.Slice(whole, np.array([k]), np.array([n])) for k, n in ((0, axis), (axis + 1, END)))
        shape = op.Concat(next(parts), np.array([1]), next(parts), axis=0)
    return op.Expand(value or blank(op, data), shape)
