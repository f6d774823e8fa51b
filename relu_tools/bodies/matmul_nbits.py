"""Bodies of com.microsoft's operators on weights of a few bits, several to a byte, with a scale for each block."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError

# The numbers that 4 bits stand for, by their value: those of FP4, and the quantiles of a normal distribution.
FP4 = [0, 0.00520833, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25]
FP4 += [-number for number in FP4]
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def unpacked(x, bits: int, *, high_first: bool = False):
    """Bytes as the numbers of `bits` bits that they hold, along the last axis; the low bits first, or the high ones."""
    if bits == 8:
        return x
    places = range(8 // bits)
    shift = np.uint8(8 - bits)
    parts = [
        # What stands above the bits falls off on the left, what stands below on the right.
        op.BitShift(op.BitShift(x, np.uint8(8 - bits - bits * place), direction="LEFT"), shift, direction="RIGHT")
        for place in (reversed(places) if high_first else places)
    ]
    stacked = op.Concat(*(op.Unsqueeze(part, [-1]) for part in parts), axis=-1)
    return op.Reshape(stacked, [0] * (x.rank - 1) + [-1])


def take(x, count: int, axis: int):
    """The first `count` elements along an axis."""
    return op.Slice(x, [0], [count], [axis])


@body
def MatMulNBits(
    A,
    B,
    scales,
    zero_points=None,
    g_idx=None,
    bias=None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
):
    """A times the transpose of (B - zero_points) * scales, of N rows in blocks of `block_size`, of which K count.

    Without zero points they are half of the range. `accuracy_level` says how much less exact a kernel may be.
    """
    if weight_prepacked:
        raise RefusedError("its weights are laid out for a processor, in a way that is not documented")
    if bits not in (2, 4, 8):
        raise RefusedError(f"weights of {bits} bits are not packed evenly into bytes")
    if 0 in (B.known_shape or []):
        raise RefusedError("it has no weights")
    if g_idx is not None and (bits != 4 or (zero_points is not None and zero_points.dtype == T.UINT8)):
        # Deprecated, and onnxruntime does something else then than its documentation says.
        raise RefusedError("g_idx has a meaning with weights of 4 bits alone, whose zero points are not packed")
    blocks = -(-K // block_size)
    weight = op.Cast(op.Reshape(unpacked(B, bits), [N, blocks, block_size]), to=A.dtype)
    scale = op.Reshape(scales, [N, blocks, 1])
    if g_idx is not None:
        # Each column says which block's scale is its own.
        weight = op.Reshape(weight, [N, blocks * block_size])
        columns = op.Cast(take(g_idx, K, 0), to=T.INT64)
        weight = take(weight, K, 1)
        scale = op.Gather(op.Reshape(scale, [N, blocks]), columns, axis=1)
    if zero_points is None:
        zero = A.like(2 ** (bits - 1))
    else:
        zero = _zero(A, zero_points, bits, N, blocks)
        zero = op.Gather(zero, columns, axis=1) if g_idx is not None else op.Reshape(zero, [N, blocks, 1])
    weight = (weight - zero) * scale
    if g_idx is None:
        weight = take(op.Reshape(weight, [N, blocks * block_size]), K, 1)
    y = op.MatMul(A, op.Transpose(weight, perm=[1, 0]))
    return y if bias is None else y + bias


def _zero(A, zero_points, bits: int, rows: int, blocks: int):
    """The zero points by row and block, as numbers of A's type; bytes are packed, each row for itself."""
    if zero_points.dtype != T.UINT8:
        return op.Reshape(zero_points, [rows, blocks])
    packed = op.Reshape(zero_points, [rows, -(-blocks * bits // 8)])
    return op.Cast(take(unpacked(packed, bits), blocks, 1), to=A.dtype)


@body
def MatMulBnb4(
    A, B, absmax, *, K: int, N: int, block_size: int, quant_type: int, transB: int = 1, training_mode: int = 0
):
    """A times the transpose of the weights, of N rows and K columns, or the weights as they are.

    4 bits, the high ones first, stand for a number of FP4 or NF4, times the largest of its block of all the weights.
    """
    table = op.Cast(np.array([FP4, NF4][quant_type], np.float32), to=A.dtype)
    numbers = op.Gather(table, op.Cast(unpacked(B, 4, high_first=True), to=T.INT32))
    count = N * K
    blocks = -(-count // block_size)
    if count < blocks * block_size:
        numbers = op.Pad(take(numbers, count, 0), [0, blocks * block_size - count])
    elif count % 2:
        numbers = take(numbers, count, 0)
    weight = op.Reshape(numbers, [blocks, block_size]) * op.Reshape(absmax, [blocks, 1])
    weight = op.Reshape(take(op.Reshape(weight, [blocks * block_size]), count, 0), [N, K])
    return op.MatMul(A, op.Transpose(weight, perm=[1, 0]) if transB else weight)


@body
def GatherBlockQuantized(
    data,
    indices,
    scales,
    zero_points=None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
):
    """Gather from (data - zero_points) * scales, with a scale for each block along `quantize_axis`.

    What an index out of range names is 0.
    """
    rank, blocks = data.rank, scales.shape[quantize_axis]
    gather_axis, quantize_axis = gather_axis % rank, quantize_axis % rank
    if data.dtype == T.UINT8:
        default = 2 ** (bits - 1)
        data = unpacked(data, bits)
        if zero_points is not None:
            zero_points = take(unpacked(zero_points, bits), blocks, quantize_axis)
    elif data.dtype in (T.UINT4, T.INT4):
        default = 0
    else:
        raise RefusedError(f"no older operator takes its data, of {data.dtype.name.lower()}")
    length, width = data.shape[gather_axis], data.shape[quantize_axis]
    if not isinstance(length, int) or not isinstance(width, int) or not isinstance(blocks, int):
        raise RefusedError("the shape of its data is not known")
    indices = op.Cast(indices, to=T.INT64)
    valid = op.And(op.GreaterOrEqual(indices, -length), op.Less(indices, length))
    indices = op.Where(valid, op.Where(op.Less(indices, 0), indices + length, indices), 0)

    def gathered(value):
        return op.Gather(op.Cast(value, to=scales.dtype), indices, axis=gather_axis)

    def of_blocks(value):
        """What each block has, for each of the elements that are gathered."""
        if gather_axis == quantize_axis:
            return op.Gather(op.Cast(value, to=scales.dtype), indices / block_size, axis=gather_axis)
        axis = quantize_axis + (indices.rank - 1 if quantize_axis > gather_axis else 0)
        return op.Gather(gathered(value), np.arange(width) // block_size, axis=axis)

    zero = scales.like(default) if zero_points is None else of_blocks(zero_points)
    numbers = (gathered(data) - zero) * of_blocks(scales)
    inner = list(range(indices.rank, indices.rank + rank - 1 - gather_axis))
    return op.Where(op.Unsqueeze(valid, inner) if inner else valid, numbers, scales.like(0))
