"""Operators of signal processing: DFT, STFT, MelWeightMatrix."""

from __future__ import annotations

import functools

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import adapter, body
from relu_tools.adapters.indexing import size
from relu_tools.adapters.interpolation import WIDE, Numpy
from relu_tools.adapters.sampling import along, counted, number, on
from relu_tools.report import RefusedError

STORED = 1 << 18
"""No matrix of more elements is stored: it is computed in the graph."""
ONE, TWO = np.int64(1), np.int64(2)
VECTOR = np.array([1])


# --- DFT -------------------------------------------------------------------------------------
@adapter("DFT", 17, None, accuracy="rounding")
def dft(op, input, dft_length, *, axis, inverse, onesided):
    """17 is its first version.

    The transform is a product with matrices of cosines and sines.
    """
    dtype, dims = op.dtype(input), op.shape(input)
    wide, parts, last, axis = WIDE[dtype], dims[-1], len(dims) - 1, axis % len(dims)
    real_result = inverse and onesided
    data = input if wide == dtype else op.Cast(input, to=wide)
    perm = [*(k for k in range(last) if k != axis), axis]
    if parts not in (1, 2):
        data = op.Pad(data, np.array([0] * (2 * last + 1) + [1]))  # then there is an imaginary part in any case
    re, im = (_turned(op, op.Gather(data, np.array(k), axis=last), perm) for k in (0, int(parts != 1)))
    count = size(op, input, axis)
    if dft_length:
        length = _integer(op, dft_length)
        used = _half(op, length) if real_result else length
        stop = used if isinstance(used, str) else np.array([used])
        re, im = (op.Slice(x, np.array([0]), stop, np.array([last - 1])) for x in (re, im))
        count = min(count, used) if on(op, count, used) is not op else size(op, re, last - 1)
    else:
        length = on(op, count).Mul(on(op, count).Sub(count, ONE), TWO) if real_result else count
    # The inverse of one value, of half of the values that a real signal has, is of none.
    if on(op, length) is not op and length < (0 if real_result and not dft_length else 1):
        raise RefusedError(f"a transform of length {length} is not defined")
    results = _half(op, length) if onesided and not inverse else length
    cos, sin = _waves(op, count, results, length, wide, inverse, real_result)
    real, imaginary = op.MatMul(re, cos), op.MatMul(re, sin)
    if parts != 1:
        real, imaginary = op.Sub(real, op.MatMul(im, sin)), op.Add(imaginary, op.MatMul(im, cos))
    made = [op.Unsqueeze(_turned(op, x, np.argsort(perm)), np.array([last])) for x in (real, imaginary)]
    Y = made[0] if real_result else op.Concat(*made, axis=last)
    return Y if wide == dtype else op.Cast(Y, to=dtype)


def _turned(op, x, perm):
    return x if list(perm) == sorted(perm) else op.Transpose(x, perm=perm)


def _integer(op, value):
    """A number where it is known, else a vector of one int64."""
    known = op.known(value)
    if known is not None:
        return np.int64(known.reshape(-1)[0])
    return _vector(op, value if op.dtype(value) == T.INT64 else op.Cast(value, to=T.INT64))


def _half(op, length):
    """How many frequencies tell all of a real signal."""
    m = on(op, length)
    return m.Add(length // 2 if m is not op else op.Div(length, TWO), ONE)


def _waves(op, count, results, length, dtype: int, inverse, real_result):
    """The matrices of cosines and sines, as many rows as values go in and columns as come out."""
    rows, columns = along(op, counted(op, count), 2, 0), along(op, counted(op, results), 2, 1)
    turn = 2 * np.pi if inverse else -2 * np.pi
    if on(op, count, results, length) is not op and count * results <= STORED:
        angles = rows * columns % length * (turn / length)
        part = _part(Numpy, rows, length, T.DOUBLE, real_result) if inverse else 1
        # What is next to 0 is 0: the last bits of pi are no matter of the transform.
        return tuple(number(op, (np.round(wave(angles), 16) + 0.0) * part, dtype) for wave in (np.cos, np.sin))
    # The angle stays within a turn, so that no more is lost in it than in its cosine.
    turns = op.Mul(rows, columns)
    turns = op.Sub(turns, op.Mul(op.Div(turns, length), length))
    angles = op.Div(op.Mul(op.Cast(turns, to=dtype), number(op, turn, dtype)), number(op, length, dtype))
    waves = op.Cos(angles), op.Sin(angles)
    if not inverse:
        return waves
    part = _part(op, rows, length, dtype, real_result)
    return tuple(op.Mul(wave, part) for wave in waves)


def _part(m, rows, length, dtype: int, real_result):
    """What each frequency counts in the inverse: of half a spectrum all but the first and the middle one twice."""
    one = np.float64(1) if dtype == T.DOUBLE else np.float32(1)
    part = m.Div(one, m.Cast(length, to=dtype))
    if not real_result:
        return part
    twice = m.Less(np.int64(0), m.Mul(rows, m.Sub(length, m.Mul(rows, TWO))))
    return m.Mul(part, m.Add(m.Cast(twice, to=dtype), one))


# --- STFT ------------------------------------------------------------------------------------
@adapter("STFT", 17, None, accuracy="rounding", opset=17)
def stft(op, signal, frame_step, window, frame_length, *, onesided):
    """17 is its first version.

    The frames are gathered, weighted by the window, and transformed by DFT.
    """
    if len(op.known_shape(signal) or ()) == 2:
        # Runtimes take a real signal without its last axis, too.
        signal = op.Unsqueeze(signal, np.array([2]))
    total = size(op, signal, 1)
    length = _integer(op, frame_length) if frame_length else size(op, window, 0) if window else total
    step = _integer(op, frame_step)
    if on(op, step) is not op and step < 1:
        raise RefusedError(f"frames at a step of {step} are not defined")
    m = on(op, total, length, step)
    frames = m.Add((total - length) // step if m is not op else op.Div(op.Sub(total, length), step), ONE)
    starts = along(op, on(op, frames, step).Mul(counted(op, frames), step), 2, 0)
    places = counted(op, length)
    values = op.Gather(signal, on(op, starts, places).Add(starts, places), axis=1)
    if window:
        values = op.Mul(values, op.Reshape(window, np.array([-1, 1])))
    return op.DFT(values, None, axis=2, onesided=onesided)


# --- MelWeightMatrix -------------------------------------------------------------------------
@adapter("MelWeightMatrix", 17, None, accuracy="rounding", opset=13)
def mel_weights(op, num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype):
    """17 is its first version.

    Each weight is the smaller one of what the two sides of its triangle give there.
    """
    bands, length = _integer(op, num_mel_bins), _integer(op, dft_length)
    rate = op.Cast(_vector(op, sample_rate), to=T.DOUBLE)
    edges = [op.Cast(_vector(op, edge), to=T.DOUBLE) for edge in (lower_edge_hertz, upper_edge_hertz)]
    low, high = (op.Mul(op.Log(op.Add(op.Div(f, HERTZ), ONCE)), MEL) for f in edges)
    count = on(op, bands).Add(bands, TWO)
    step = op.Div(op.Sub(high, low), number(op, count, T.DOUBLE))
    mels = op.Add(op.Mul(number(op, counted(op, count), T.DOUBLE), step), low)
    hertz = op.Mul(op.Sub(op.Exp(op.Div(mels, MEL)), ONCE), HERTZ)
    points = op.Mul(hertz, number(op, on(op, length).Add(length, ONE), T.DOUBLE))
    points = op.Floor(op.Div(points, rate))
    last = count if isinstance(count, str) else np.array([count])
    first, middle, end = (
        op.Slice(points, np.array([k]), on(op, last).Sub(last, np.array([2 - k])), np.array([0])) for k in range(3)
    )
    bins = along(op, number(op, counted(op, _half(op, length)), T.DOUBLE), 2, 0)
    rise = _side(op, op.Sub(bins, first), op.Sub(middle, first))
    fall = _side(op, op.Sub(end, bins), op.Sub(end, middle))
    if output_datatype != T.DOUBLE:
        rise, fall = (op.Cast(x, to=T.FLOAT) for x in (rise, fall))
    return op.Cast(op.Max(op.Min(rise, fall), op.like(0, rise)), to=output_datatype)


HERTZ, MEL, ONCE = np.float64(700), np.float64(2595 / np.log(10)), np.float64(1)


def _side(op, way, length):
    """How far up a side is, the middle being 1; on a side without length the middle alone is up."""
    upright = op.Cast(op.Less(length, ONCE), to=T.DOUBLE)
    return op.Div(op.Add(way, upright), op.Add(length, upright))


def _vector(op, value):
    return op.Reshape(value, VECTOR)


# --- windows ---------------------------------------------------------------------------------
COSINES = {"HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46), "BlackmanWindow": (0.42, -0.5, 0.08)}
"""What a window holds of the cosines of no, one and two turns."""


@adapter("HannWindow HammingWindow BlackmanWindow", 17, None, accuracy="rounding")
@body("HannWindow HammingWindow BlackmanWindow", 17, opset=16)
def window(op, size, *, output_datatype, periodic):
    """17 is their first version.

    They are sums of cosines, computed in double, since an integer is 0 or 1 by the last bit of what it is cut from.
    """
    count = _integer(op, size)
    places = number(op, counted(op, count), T.DOUBLE)
    length = count if periodic else on(op, count).Sub(count, ONE)
    angles = op.Div(op.Mul(places, np.float64(2 * np.pi)), number(op, length, T.DOUBLE))
    first, *others = map(np.float64, COSINES[op.type])
    waves = [op.Mul(op.Cos(op.Mul(angles, np.float64(k + 1))), weight) for k, weight in enumerate(others)]
    # In this order the peak of a Blackman window is 1 to the last bit.
    return op.Cast(op.Add(functools.reduce(op.Add, waves), first), to=output_datatype)
