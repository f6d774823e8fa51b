"""Bodies of onnxruntime's normalizations against its own kernels, or numpy where it has none on the CPU.

Each test draws its shapes, types, attributes and optional inputs; the default run takes two draws, the marker `slow`
many.
"""

from __future__ import annotations

import numpy as np
from drawing import Draw, draws, same


@draws
def test_skip_layer_normalization(seed):
    d = Draw(seed, np.float32, np.float16)
    batch, length, hidden = d.shape(3, 1, 7)
    skips = [(batch, length, hidden), (1, length, hidden), (length, hidden)]
    inputs = [d.floats(batch, length, hidden), d.floats(*d.any(*skips)), d.floats(hidden)]
    inputs += [d.maybe(hidden), d.maybe(hidden)]
    outputs = d.turn([True, False, False, True], [True, False, False, True], [True])
    epsilon = d.any(None, 1e-5)
    same(
        "SkipLayerNormalization",
        inputs,
        outputs,
        epsilon=epsilon,
        bound=1e-4 if d.dtype == np.float32 else 2e-3,
        **d.how,
    )


@draws
def test_skip_simplified_layer_normalization(seed):
    d = Draw(seed, np.float32, np.float16)
    lead = d.any(d.shape(2, 1, 5), d.shape(1, 1, 5))
    hidden = int(d.rng.integers(1, 9))
    inputs = [d.floats(*lead, hidden), d.floats(*lead, hidden), d.floats(hidden), d.maybe(hidden)]
    outputs = d.turn([True, False, False, True], [True, False, False, True], [True])
    same("SkipSimplifiedLayerNormalization", inputs, outputs, epsilon=d.any(None, 1e-5), bound=d.bound, **d.how)


@draws
def test_statistics_beside_the_normalized(seed):
    """The kernels of the CPU do not give them."""
    d = Draw(seed)
    shape = d.shape(3, 2, 7)
    x, skip, gamma = d.floats(*shape), d.floats(*shape), d.floats(shape[-1])
    total = (x + skip).astype(np.float64)
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 0.1)
    expected = [(total - mean) * inverse * gamma, mean, inverse, total]
    expected = [value.astype(np.float32) for value in expected]
    same("SkipLayerNormalization", [x, skip, gamma], 4, expected=expected, epsilon=0.1, **d.how)
    inverse = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 0.1)
    expected = [value.astype(np.float32) for value in (total * inverse * gamma, inverse, total)]
    asked = [True, False, True, True]
    same("SkipSimplifiedLayerNormalization", [x, skip, gamma], asked, expected=expected, epsilon=0.1, **d.how)


@draws
def test_simplified_layer_normalization(seed):
    d = Draw(seed, np.float32, np.float16, np.float64)
    shape = d.shape(3, 1, 5)
    axis = d.any(None, -1, 2, -2, 1)
    scale = d.floats(*shape[-1 if axis is None else axis :])
    same(
        "SimplifiedLayerNormalization",
        [d.floats(*shape), scale],
        d.turn([True, True], [True, True], [True]),
        domain="",
        axis=axis,
        epsilon=d.turn(0.1, 0.1, None),
        bound=d.bound,
        **d.how,
    )


@draws
def test_embed_layer_normalization(seed):
    d = Draw(seed)
    batch, length, words, positions, segments, hidden = d.shape(6, 2, 7)
    positions += length
    segmented = d.any(True, False)

    def ids(count, *shape):
        return d.rng.integers(0, count, shape).astype(np.int32)

    inputs = [
        ids(words, batch, length),
        ids(segments, batch, length) if segmented else None,
        d.floats(words, hidden),
        d.floats(positions, hidden),
        d.floats(segments, hidden) if segmented else None,
        d.floats(hidden),
        d.floats(hidden),
        d.turn(None, ids(2, batch, length)),
        d.turn(None, ids(positions, batch, length), ids(positions, 1, length)),
    ]
    # Without a mask the kernel gives the counts only where they are asked for by the attribute.
    counted = inputs[7] is not None or d.turn(True, True, False)
    outputs = [True, counted, d.turn(True, True, False)]
    same(
        "EmbedLayerNormalization",
        inputs,
        outputs,
        epsilon=d.any(None, 1e-3),
        mask_index_type=1 if counted else None,
        constants=range(2, 7),
        **d.how,
    )


def grouped(x, gamma, beta, groups, epsilon, silu):
    """GroupNorm of (N, H, W, C) by its documentation, in double precision."""
    n, h, w, c = x.shape
    split = x.astype(np.float64).reshape(n, h * w, groups, c // groups)
    mean = split.mean((1, 3), keepdims=True)
    variance = split.var((1, 3), keepdims=True)
    y = ((split - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * gamma.astype(float) + beta.astype(float)
    return (y / (1 + np.exp(-y)) if silu else y).astype(x.dtype)


@draws
def test_group_norm(seed):
    d = Draw(seed, np.float32, np.float16)
    groups, size = d.shape(2, 1, 4)
    n, h, w = d.shape(3, 1, 5)
    x = d.floats(n, h, w, groups * size)
    parameters = Draw(seed, *d.any([np.float32], [np.float16])) if d.dtype == np.float16 else d
    gamma, beta = parameters.floats(groups * size), parameters.floats(groups * size)
    activation, last = d.any(0, 1), d.any(None, 1, 0)
    expected = grouped(x, gamma, beta, groups, 1e-5, activation)
    if last == 0:
        x, expected = (np.moveaxis(value, 3, 1) for value in (x, expected))
    same(
        "GroupNorm",
        [x, gamma, beta],
        expected=[expected],
        groups=groups,
        activation=activation,
        channels_last=last,
        bound=d.bound,
        **d.how,
    )


@draws
def test_skip_group_norm(seed):
    d = Draw(seed, np.float16, np.float32)
    groups, size = d.shape(2, 1, 4)
    n, h, w = d.shape(3, 1, 5)
    channels = groups * size
    x, gamma, beta = d.floats(n, h, w, channels), d.floats(channels), d.floats(channels)
    skip = d.turn(d.floats(n, channels), d.floats(n, h, w, channels), d.floats(n, 1, 1, channels))
    bias = d.maybe(channels)
    wide = skip[:, None, None, :] if skip.ndim == 2 else skip
    total = sum(value.astype(np.float64) for value in (x, wide, bias) if value is not None)
    outputs = d.turn(2, 1)
    expected = [grouped(total, gamma, beta, groups, 1e-3, True).astype(d.dtype), total.astype(d.dtype)][:outputs]
    inputs = [x, gamma, beta, skip, bias]
    same(
        "SkipGroupNorm",
        inputs,
        outputs,
        expected=expected,
        groups=groups,
        activation=1,
        epsilon=1e-3,
        bound=d.bound,
        **d.how,
    )
