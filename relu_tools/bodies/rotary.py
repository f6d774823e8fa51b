"""Rotary position embedding, and the body of com.microsoft's RotaryEmbedding."""

from __future__ import annotations

import math

import numpy as np
from onnxscript import opset23 as op

from relu_tools.bodies.tracing import body
from relu_tools.report import TELL_SHAPE, RefusedError


def size(x, axis: int):
    """The length of an axis, as a number where it is known."""
    known = size_known(x, axis)
    return op.Squeeze(op.Gather(op.Shape(x), [axis]), [0]) if known is None else known


def parted(x, axis: int, count: int) -> int:
    """The length of an axis that is cut into so many parts, for a Reshape; -1, which finds none among no elements,
    only where the length is not known.
    """
    length = size_known(x, axis)
    if length is None:
        return -1
    if length % count:
        raise RefusedError(f"{length} elements do not make {count} parts of one size")
    return length // count


def together(x, *axes: int) -> int:
    """The length of axes that a Reshape makes one; -1 only where it is not known."""
    lengths = [size_known(x, axis) for axis in axes]
    return -1 if None in lengths else math.prod(lengths)


def size_known(x, axis: int) -> int | None:
    known = (x.known_shape or {axis: None})[axis]
    return known if isinstance(known, int) else None


def places(count):
    """The whole numbers from 0 on, so many of them."""
    return np.arange(count) if isinstance(count, int) else op.Range(0, count, 1)


def rotated(x, cos, sin, interleaved: int):
    """Pairs of the last axis of x as points of a plane, turned by angles; what the angles do not reach stays.

    The points lie in neighbours where `interleaved` is set, else in the halves of the axis. The last axes of cos and
    sin have a length for each pair, their others are those of x or 1.
    """
    pairs, length = cos.shape[-1], x.shape[-1]
    if not isinstance(pairs, int) or not isinstance(length, int):
        raise RefusedError("the size of its heads, or of its tables of sines and cosines, is not known", TELL_SHAPE)
    rest = None
    if 2 * pairs < length:
        x, rest = op.Split(x, [2 * pairs, length - 2 * pairs], axis=-1)
    lead = [0] * (x.rank - 1)
    if interleaved:
        parts = op.Split(op.Reshape(x, [*lead, pairs, 2]), num_outputs=2, axis=-1)
        a, b = (op.Squeeze(part, [-1]) for part in parts)
    else:
        a, b = op.Split(x, num_outputs=2, axis=-1)
    turned = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        y = op.Concat(*(op.Unsqueeze(part, [-1]) for part in turned), axis=-1)
        y = op.Reshape(y, [*lead, 2 * pairs])
    else:
        y = op.Concat(*turned, axis=-1)
    return y if rest is None else op.Concat(y, rest, axis=-1)


@body
def RotaryEmbedding(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
):
    """Turns the heads of the input, (batch, heads, place, head) or (batch, place, heads * head), by their places.

    The ids are the places, or the one of the first. `scale` is for other processors: on the CPU it has no effect.
    """
    if is_packed_batching:
        raise RefusedError("sequences of a packed batch lie where only its kernels know")
    if scale != 1.0:
        raise RefusedError("onnxruntime's kernels do not agree on what `scale` does")
    separate = input.rank == 4
    if position_ids.rank == 1:
        position_ids = op.Unsqueeze(position_ids + places(size(input, 2 if separate else 1)), [0])
    cos, sin = (
        op.Unsqueeze(op.Gather(cache, position_ids), [1 if separate else 2]) for cache in (cos_cache, sin_cache)
    )
    if separate:
        return rotated(input, cos, sin, interleaved)
    if rotary_embedding_dim and num_heads:
        x = op.Reshape(input, [0, 0, num_heads, parted(input, 2, num_heads)])
    elif isinstance(pairs := cos_cache.shape[-1], int):
        x = op.Reshape(input, [0, 0, parted(input, 2, 2 * pairs), 2 * pairs])
    else:
        raise RefusedError("the shape of cos_cache is not known", TELL_SHAPE)
    return op.Reshape(rotated(x, cos, sin, interleaved), [0, 0, together(x, 2, 3)])
