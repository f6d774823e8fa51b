"""Bodies of com.microsoft's Fourier transforms of real signals, and of its products of complex numbers."""

from __future__ import annotations

import numpy as np
from onnxscript import opset18 as op

from relu_tools.bodies.precision import widened
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


@body
def Rfft(X, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1):
    """The discrete Fourier transform over the last axes, of which the last is left with its first half."""
    _check(normalized, onesided)
    spectrum = op.DFT(op.Unsqueeze(widened(X), [-1]), axis=-2, onesided=1)
    for axis in range(-3, -2 - signal_ndim, -1):
        spectrum = op.DFT(spectrum, axis=axis)
    return spectrum.to(X.dtype)


@body
def Irfft(X, signal_ndim: int, normalized: int = 0, onesided: int = 1):
    """The inverse of Rfft, of a signal whose last axis has an even length."""
    _check(normalized, onesided)
    spectrum = widened(X)
    for axis in range(-3, -2 - signal_ndim, -1):
        spectrum = op.DFT(spectrum, axis=axis, inverse=1)
    count = X.shape[-2]
    if not isinstance(count, int):
        raise RefusedError(f"the number of frequencies is not known: axis {X.rank - 2} has no fixed size")
    parts = op.Reshape(spectrum, [*[0] * (X.rank - 2), 2 * count])
    return op.MatMul(parts, _waves(count).astype(spectrum.dtype.numpy())).to(X.dtype)


@body
def ComplexMul(A, B):
    """The product of complex numbers, whose parts lie along the last axis."""
    (a, b), (c, d) = _parts(A), _parts(B)
    return op.Concat(a * c - b * d, a * d + b * c, axis=-1)


@body
def ComplexMulConj(A, B):
    """The product of complex numbers and the conjugates of others."""
    (a, b), (c, d) = _parts(A), _parts(B)
    return op.Concat(a * c + b * d, b * c - a * d, axis=-1)


def _parts(value):
    return op.Split(value, axis=-1, num_outputs=2)


def _check(normalized: int, onesided: int) -> None:
    if normalized or not onesided:
        raise RefusedError("its body knows only one side of the spectrum, not normalized")


def _waves(count: int) -> np.ndarray:
    """What each part of each of so many frequencies adds to each sample of the signal."""
    length = 2 * (count - 1)
    angles = 2 * np.pi * np.outer(np.arange(count), np.arange(length)) / length
    # All frequencies but the first and the last stand for two.
    weights = np.full((count, 1), 2 / length)
    weights[[0, -1]] /= 2
    return np.stack([weights * np.cos(angles), -weights * np.sin(angles)], axis=1).reshape(2 * count, length)
