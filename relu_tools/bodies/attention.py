"""Bodies of com.microsoft's attention operators but GroupQueryAttention.

q, k and v are (batch, heads, places, size of a head) throughout.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.quantized import scalar
from relu_tools.bodies.quantized_matmul import per_column, product
from relu_tools.bodies.rotary import parted, places, size, together
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


def heads(x, count: int):
    """(batch, places, heads * head) as (batch, heads, places, head)."""
    return op.Transpose(op.Reshape(x, [0, 0, count, parted(x, 2, count)]), perm=[0, 2, 1, 3])


def joined(x):
    """The way back."""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, together(x, 1, 3)])


def scores(q, k, scale: float | None):
    """The products of queries and keys, scaled; without a scale by the root of the size of a head."""
    product = op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2]))
    length = size(q, 3)
    if scale:
        return product * scale
    if isinstance(length, int):
        return product * length**-0.5
    return product / op.Sqrt(op.Cast(length, to=q.dtype))


def attended(score, v):
    """The values, weighted by the scores."""
    return joined(op.MatMul(op.Softmax(score, axis=-1), v))


def no_shared_buffer(share: int, *others):
    if share or any(other is not None for other in others):
        raise RefusedError("its past and present state share a buffer, in which only a kernel can write")


# --- masks ---------------------------------------------------------------------------------
def masked(score, mask, value: float):
    """The scores with `value` added where a mask of integers does not allow the key.

    The mask has an axis for the keys, and others for the batch and the queries; or it holds for each of the batch how
    many keys there are, and where these begin.
    """
    if mask is None:
        return score
    if mask.rank == 1:
        allowed = _from_lengths(score, mask)
    elif mask.rank == 4:
        raise RefusedError("a mask of four axes is for GPUs: onnxruntime has no kernel on the CPU that takes it")
    else:
        allowed = op.Unsqueeze(mask > 0, [1, 2] if mask.rank == 2 else [1])
    return score + op.Where(allowed, score.like(0), score.like(value))


def _from_lengths(score, lengths):
    """Ends, one for each of the batch; or these, then the beginnings; or the ends and what kernels need besides."""
    batch, count = size(score, 0), lengths.shape[0]
    place = op.Cast(places(size(score, 3)), to=T.INT32)
    if score.shape[0] == count is not None:
        return op.Unsqueeze(place < op.Unsqueeze(lengths, [1]), [1, 2])
    batch = np.array([batch]) if isinstance(batch, int) else op.Unsqueeze(batch, [0])
    ends = op.Unsqueeze(op.Slice(lengths, [0], batch), [1])
    # As many zeros behind them, so that there is something to read where there are no beginnings.
    more = op.Concat(lengths, op.Expand(np.int32(0), batch), axis=0)
    begins = op.Slice(more, batch, batch * np.int64(2))
    begins = begins * op.Cast(op.Equal(op.Size(lengths), batch * np.int64(2)), to=T.INT32)
    inside = op.And(op.Less(place, ends), op.GreaterOrEqual(place, op.Unsqueeze(begins, [1])))
    return op.Unsqueeze(inside, [1, 2])


def causal(score, past):
    """The scores without those of keys that lie behind the query, the first of which lies behind so many keys.

    onnxruntime lets the last query see all keys, be there more of them than that.
    """
    queries, keys = size(score, 2), size(score, 3)
    query, key = op.Unsqueeze(places(queries), [1]), places(keys)
    allowed = op.LessOrEqual(key, query + past)
    if not isinstance(queries, int) or not isinstance(keys, int) or not isinstance(past, int) or keys != queries + past:
        allowed = op.Or(allowed, op.Equal(query, queries - 1))
    lowest = np.finfo(score.dtype.numpy()).min
    return op.Where(allowed, score, score.like(lowest))


# --- the operators -------------------------------------------------------------------------
def _self_attention(qkv, sizes, mask, past, attention_bias, num_heads, unidirectional, scale, mask_filter_value):
    """Attention of projections that lie side by side, and its state: keys and values one upon the other."""
    parts = op.Split(qkv, sizes, axis=-1) if sizes else op.Split(qkv, num_outputs=3, axis=-1)
    q, k, v = (heads(part, num_heads) for part in parts)
    before = 0 if past is None else size(past, 3)
    if past is not None:
        k, v = (op.Concat(op.Gather(past, which), x, axis=2) for which, x in enumerate((k, v)))
    score = scores(q, k, scale)
    if unidirectional:
        score = causal(score, before)
    score = masked(score, mask, mask_filter_value)
    if attention_bias is not None:
        score = score + attention_bias
    present = op.Concat(op.Unsqueeze(k, [0]), op.Unsqueeze(v, [0]), axis=0)
    return attended(score, v), present


@body
def Attention(
    input,
    weights,
    bias=None,
    mask_index=None,
    past=None,
    attention_bias=None,
    past_sequence_length=None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
):
    """Attention of the input to itself and to a past, with one product for all projections."""
    no_shared_buffer(past_present_share_buffer, past_sequence_length)
    if do_rotary:
        raise RefusedError("the angles of its rotary embedding are its kernel's own, and on GPUs alone")
    qkv = op.MatMul(input, weights)
    qkv = qkv if bias is None else qkv + bias
    how = num_heads, unidirectional, scale, mask_filter_value
    return _self_attention(qkv, qkv_hidden_sizes, mask_index, past, attention_bias, *how)


@body
def QAttention(
    input,
    weight,
    bias,
    input_scale,
    weight_scale,
    mask_index=None,
    input_zero_point=None,
    weight_zero_point=None,
    past=None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
):
    """Attention, with a projection of 8-bit integers."""
    no_shared_buffer(past_present_share_buffer)
    if do_rotary:
        raise RefusedError("the angles of its rotary embedding are its kernel's own, and on GPUs alone")
    qkv = product(input, weight, input_zero_point, weight_zero_point)
    qkv = qkv * (scalar(input_scale) * per_column(weight_scale)) + bias
    return _self_attention(qkv, None, mask_index, past, None, num_heads, unidirectional, scale, mask_filter_value)


@body
def MultiHeadAttention(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    cache_indirection=None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
):
    """Attention of projections to others and to a past; and its state, and the scores.

    Projections are (batch, places, heads * head); keys and values may come in heads already, and either with what
    goes with them: (batch, places, heads, 2 or 3, head).
    """
    no_shared_buffer(0, past_sequence_length, cache_indirection)
    if key is None:
        query, key, value = _unpacked(query, 3)
    elif value is None:
        key, value = _unpacked(key, 2)
    if bias is not None:
        query, key, value = _biased(query, key, value, bias)
    q, k, v = (x if x.rank == 4 else heads(x, num_heads) for x in (query, key, value))
    if past_key is not None:
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    score = scores(q, k, scale)
    if unidirectional:
        score = causal(score, 0 if past_key is None else size(past_key, 2))
    score = masked(score, key_padding_mask, mask_filter_value)
    if attention_bias is not None:
        score = score + attention_bias
    return attended(score, v), k, v, score


@body
def DecoderMaskedMultiHeadAttention(
    query,
    key=None,
    value=None,
    mask_index=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    beam_width=None,
    cache_indirection=None,
    bias=None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
):
    """Attention of one projection to keys and values that are in heads; the bias is the projection's alone."""
    no_shared_buffer(past_present_share_buffer, past_key, past_value, cache_indirection)
    if key is None or value is None or key.rank != 4:
        raise RefusedError("it has no keys in heads: those of its state lie as suits its kernel")
    if bias is not None:
        length = query.shape[-1]
        query = query + op.Slice(bias, [0], [length] if isinstance(length, int) else op.Shape(query, start=-1), [0])
    score = masked(scores(heads(query, num_heads), key, scale), mask_index, mask_filter_value)
    if attention_bias is not None:
        score = score + attention_bias
    return attended(score, value), None, None, score


def _unpacked(x, count: int):
    """Projections that lie in one: (batch, places, heads, count, head)."""
    if x.rank != 5:
        raise RefusedError("it has no keys, nor are they packed with its queries")
    parts = op.Split(x, num_outputs=count, axis=3)
    return tuple(op.Reshape(part, [0, 0, together(part, 2, 4)]) for part in parts)


def _biased(query, key, value, bias):
    """The projections, each with its part of the bias."""
    if key.rank == 4:
        raise RefusedError("keys that are in heads already have no bias")
    length = query.shape[-1]
    one = np.array([length]) if isinstance(length, int) else op.Shape(query, start=-1)
    two = one + one
    q, k, v = (op.Slice(bias, a, b, [0]) for a, b in (([0], one), (one, two), (two, [2**31])))
    return query + q, key + k, value + v
