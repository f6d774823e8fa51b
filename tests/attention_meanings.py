"""What the operators of transformers with function bodies compute, in numpy, as their specification's text says it."""

from __future__ import annotations

import numpy as np
from function_meanings import meaning, sigmoid


def heads(x, count):
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


@meaning("Attention")
def attention(
    q, k, v, mask=None, past_key=None, past_value=None, valid=None, *, is_causal, qk_matmul_output_mode, softcap,
    q_num_heads=None, kv_num_heads=None, scale=None, softmax_precision=None, left_window_size=-1, right_window_size=-1
):  # fmt: skip
    packed = q.ndim == 3
    q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
    keys, values = k, v
    queries, total, shared = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    scale = 1 / np.sqrt(q.shape[3]) if scale is None else scale
    raw = scale * q @ np.repeat(k, shared, axis=1).swapaxes(-1, -2)
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    bias = np.zeros((1, 1, queries, total)) if mask is None else mask
    if bias.dtype == bool:
        bias = np.where(bias, 0, -np.inf)
    if bias.shape[-1] < total:
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, total - bias.shape[-1])], constant_values=-np.inf)
    bias = np.broadcast_to(bias, raw.shape).copy()
    place = np.arange(total)
    for b in range(q.shape[0]):
        offset = past if valid is None else int(valid[b]) - queries
        at = offset + np.arange(queries)[:, None]
        allowed = np.ones((queries, total), bool) if valid is None else np.broadcast_to(place < valid[b], raw.shape[2:])
        if is_causal:
            allowed = allowed & (place <= at)
        if left_window_size >= 0:
            allowed = allowed & (place >= at - left_window_size)
        if right_window_size >= 0:
            allowed = allowed & (place <= at + right_window_size)
        bias[b, :, ~allowed] = -np.inf
    biased = capped + bias
    with np.errstate(invalid="ignore"):
        e = np.exp(biased - biased.max(axis=-1, keepdims=True))
        weights = np.nan_to_num(e / e.sum(axis=-1, keepdims=True))
    y = weights @ np.repeat(v, shared, axis=1)
    if packed:
        y = y.transpose(0, 2, 1, 3).reshape(y.shape[0], queries, -1)
    return y, keys, values, (raw, capped, biased, weights)[qk_matmul_output_mode]


@meaning("RotaryEmbedding")
def rotary_embedding(x, cos, sin, places=None, *, interleaved, rotary_embedding_dim, num_heads=None):
    by_head = heads(x, num_heads)
    width = rotary_embedding_dim or by_head.shape[-1]
    cos, sin = ((cache if places is None else cache[places])[:, None] for cache in (cos, sin))
    first, second = (
        (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, width // 2), slice(width // 2, width))
    )
    y = by_head.copy()
    y[..., first] = cos * by_head[..., first] - sin * by_head[..., second]
    y[..., second] = sin * by_head[..., first] + cos * by_head[..., second]
    return y if x.ndim == 4 else y.transpose(0, 2, 1, 3).reshape(x.shape)


@meaning("LinearAttention")
def linear_attention(
    q, k, v, state=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, scale, update_rule, chunk_size
):
    q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    batch, length, width = q.shape[0], q.shape[2], q.shape[3]
    shared = q_num_heads // kv_num_heads
    scale = scale or 1 / np.sqrt(width)
    state = np.zeros((batch, kv_num_heads, width, v.shape[3])) if state is None else state
    rows = []
    for t in range(length):
        key, value = k[:, :, t, :, None], v[:, :, t, None, :]
        if "gated" in update_rule:
            state = np.exp(heads(decay, kv_num_heads)[:, :, t, :, None]) * state
        if "delta" in update_rule:
            value = (value - (key * state).sum(axis=-2, keepdims=True)) * beta[:, t, :, None, None]
        state = state + key * value
        rows.append(scale * (q[:, :, t, :, None] * np.repeat(state, shared, axis=1)).sum(axis=-2))
    return np.stack(rows, axis=1).reshape(batch, length, -1), state


@meaning("CausalConvWithState")
def causal_convolution(x, weight, bias=None, past=None, *, activation):
    size = weight.shape[2]
    past = np.zeros((*x.shape[:2], size - 1)) if past is None else past
    whole = np.concatenate([past, x], axis=2)
    y = sum(whole[:, :, k : k + x.shape[2]] * weight[:, 0, k, None] for k in range(size))
    y = y if bias is None else y + bias[:, None]
    return y if activation == "none" else y * sigmoid(y), whole[:, :, whole.shape[2] - (size - 1) :]
