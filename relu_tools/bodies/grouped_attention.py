"""The body of com.microsoft's GroupQueryAttention."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.attention import heads, joined, scores
from relu_tools.bodies.rotary import parted, places, rotated, size
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError

# For queries, keys and values in a type in which sums would lose too much.
_NARROW = (T.FLOAT16, T.BFLOAT16)


@body
def GroupQueryAttention(
    query,
    key: object | None,
    value: object | None,
    past_key: object | None,
    past_value: object | None,
    seqlens_k,
    total_sequence_length,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
    k_scale=None,
    v_scale=None,
    q_norm_weight=None,
    k_norm_weight=None,
    query_seqlens=None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float = 0.0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float = 0.0,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
):
    """Causal attention of groups of queries that share their keys, to a state of keys and values and to new ones.

    The new ones are the last of the seqlens_k + 1 of each of the batch. Where there are as many as
    `total_sequence_length` there is no past. The state is as long as the past one, or longer if that does not hold it.
    """
    if {k_quant_type, v_quant_type} != {"NONE"} or k_scale is not None or v_scale is not None:
        raise RefusedError("no older operators say how its keys and values are quantized")
    if sliding_window_cache or query_seqlens is not None:
        raise RefusedError("what its state holds depends on when its kernel moves it")
    if q_norm_weight is not None or k_norm_weight is not None:
        raise RefusedError("queries and keys that it normalizes are for GPUs: on the CPU there is no kernel to go by")
    if local_window_size == 0:
        raise RefusedError("a window of no keys leaves nothing to attend to")
    if key is None:
        count = num_heads + 2 * kv_num_heads
        packed = op.Reshape(query, [0, 0, count, parted(query, 2, count)])
        parts = op.Split(packed, [num_heads, kv_num_heads, kv_num_heads], axis=2)
        q, k, v = (op.Transpose(part, perm=[0, 2, 1, 3]) for part in parts)
    else:
        q, k, v = heads(query, num_heads), heads(key, kv_num_heads), heads(value, kv_num_heads)
    state = _State(q, past_key, seqlens_k, total_sequence_length)
    if do_rotary:
        place = state.rotary_places(position_ids)
        cos, sin = (op.Unsqueeze(op.Gather(cache, place), [1]) for cache in (cos_cache, sin_cache))
        q, k = (rotated(x, cos, sin, rotary_interleaved) for x in (q, k))
    present_key, present_value = state.with_new(past_key, k), state.with_new(past_value, v)

    wide = T.FLOAT if query.dtype in _NARROW else query.dtype
    # The queries of a group lie one after another, as the places of one head do.
    grouped = op.Cast(op.Reshape(q, [0, kv_num_heads, -1, 0]), to=wide)
    score = op.Reshape(scores(grouped, op.Cast(present_key, to=wide), scale), [0, num_heads, -1, 0])
    if softcap:
        score = op.Tanh(score / softcap) * softcap
    if attention_bias is not None:
        score = score + _fitted(op.Cast(attention_bias, to=wide), size(score, 3))
    score = op.Where(state.allowed(causal, local_window_size), score, score.like(-np.inf))
    smooth = head_sink is not None or smooth_softmax == 1
    weights = _smooth(score, head_sink) if smooth else op.Softmax(score, axis=-1)
    y = op.MatMul(op.Reshape(weights, [0, kv_num_heads, -1, 0]), op.Cast(present_value, to=wide))
    y = joined(op.Reshape(y, [0, num_heads, -1, 0]))
    return op.Cast(y, to=query.dtype), present_key, present_value


class _State:
    """The places of keys and queries, for each of the batch."""

    def __init__(self, q, past_key, seqlens_k, total_sequence_length):
        self.queries = size(q, 2)
        self.order = places(self.queries)
        self.length = self.queries
        self.end = op.Unsqueeze(op.Cast(seqlens_k, to=T.INT64) + 1, [1])
        self.first = None
        self.past = np.zeros((1, 1), np.int64)
        if past_key is not None:
            total = op.Cast(op.Reshape(total_sequence_length, np.zeros(0, np.int64)), to=T.INT64)
            self.first = op.Equal(total, self.queries)
            self.past = op.Where(self.first, 0, self.end - self.queries)
            self.length = op.Max(total, size(past_key, 2))

    def query_places(self):
        """Those of the queries among the keys."""
        return self.order + self.past if self.first is None else self.past + self.order

    def rotary_places(self, position_ids):
        """Those that angles go by: of a prompt the first of all ids is that of each first query."""
        if position_ids is None:
            return self.query_places()
        together = op.Slice(position_ids, [0, 0], [1, 1], [0, 1]) + self.order
        return together if self.first is None else op.Where(self.first, together, position_ids)

    def with_new(self, past, new):
        """The past keys that count, then the new ones, then zeros."""
        if past is None:
            return new
        kept = size(past, 2)
        both = op.Transpose(op.Concat(past, new, axis=2), perm=[0, 2, 1, 3])
        place = places(self.length)
        source = op.Where(op.Less(place, self.past), place, place - self.past + kept)
        last = size(both, 1) - 1
        taken = op.GatherND(both, op.Unsqueeze(op.Min(source, last), [2]), batch_dims=1)
        there = op.Unsqueeze(op.Less(place, self.past + self.queries), [2, 3])
        return op.Transpose(op.Where(there, taken, new.like(0)), perm=[0, 2, 1, 3])

    def allowed(self, causal: int, window: int):
        """Which keys a query sees: those up to its own place, of these the last ones; or all that there are."""
        key = places(self.length)
        if not causal:
            return op.Unsqueeze(op.Less(key, self.end), [1, 2])
        query = op.Unsqueeze(self.query_places(), [1, 3])
        allowed = op.LessOrEqual(key, query)
        return op.And(allowed, op.Greater(key, query - window)) if window > 0 else allowed


def _fitted(bias, length):
    """A bias of so many keys: the state may be longer than what was computed for it."""
    given = size(bias, 3)
    if isinstance(length, int) and given == length:
        return bias
    more = op.Reshape(op.Sub(length, given), [1])
    return op.Pad(bias, op.Concat(np.zeros(7, np.int64), more, axis=0))


def _smooth(score, head_sink):
    """The softmax of the scores and one more, which takes its share and is left out: 0, or one for each head."""
    sink = score.like(0) if head_sink is None else op.Cast(op.Reshape(head_sink, [1, -1, 1, 1]), to=score.dtype)
    sink = op.Expand(sink, op.Concat(op.Shape(score, end=3), [1], axis=0))
    return op.Slice(op.Softmax(op.Concat(score, sink, axis=-1), axis=-1), [0], [-1], [-1])
