"""Steps of Attention: what newer versions say in other ways, as a mask."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.adapters.indexing import arange, size

same("Attention", 23, 24, 25)


def _sum(op, a, b, *, sign: int = 1):
    """a + b or a - b of lengths, numbers where both are known."""
    if isinstance(a, int) and isinstance(b, int):
        return a + sign * b
    if isinstance(b, int) and b == 0:
        return a
    a, b = (np.array([value]) if isinstance(value, int) else value for value in (a, b))
    return op.Add(a, b) if sign > 0 else op.Sub(a, b)


class _Keys:
    """The places of queries and keys: how many of each there are, and how many keys lie before the first query."""

    def __init__(self, op, Q, K, past_key, nonpad_kv_seqlen):
        self.queries = size(op, Q, op.rank(Q) - 2)
        past = size(op, past_key, 2) if past_key else 0
        self.total = _sum(op, past, size(op, K, op.rank(K) - 2))
        self.valid = op.Reshape(nonpad_kv_seqlen, np.array([-1, 1, 1, 1])) if nonpad_kv_seqlen else None
        self.offset = past if self.valid is None else _sum(op, self.valid, self.queries, sign=-1)
        self.key = arange(op, self.total)

    def shifted(self, op, by: int):
        """The keys' places, and the queries' on the same scale, moved, as a column."""
        row = arange(op, self.queries)
        column = row.reshape(-1, 1) if isinstance(row, np.ndarray) else op.Reshape(row, np.array([-1, 1]))
        offset = _sum(op, self.offset, by)
        if isinstance(offset, int):
            offset = np.int64(offset)
        known = not isinstance(offset, str) and not isinstance(column, str)
        return self.key, column + offset if known else op.Add(column, offset)


def _masked(op, mask, allowed, total):
    """The mask where the keys are allowed, and no key elsewhere; None allows them all."""
    if not mask:
        return allowed
    outside = np.array(False) if op.dtype(mask) == T.BOOL else op.like(-np.inf, mask)
    last = size(op, mask, op.rank(mask) - 1)
    if not isinstance(last, int) or last != total:
        # A shorter mask allows none of the keys beyond it.
        missing = _sum(op, total, last, sign=-1)
        missing = np.array([missing]) if isinstance(missing, int) else missing
        none = np.zeros(2 * op.rank(mask) - 1, np.int64)
        mask = op.Pad(mask, op.Concat(none, missing, axis=0), outside)
    if allowed is None:
        return mask
    return op.And(mask, allowed) if op.dtype(mask) == T.BOOL else op.Where(allowed, mask, outside)


@adapter("Attention", 25, 24, accuracy="rounding")
def attention_windows(
    op, Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, *, left_window_size, right_window_size, **same
):
    """25 adds windows of keys to the left and the right of each query.

    The mask leaves out the keys beyond them.
    """
    if left_window_size < 0 and right_window_size < 0:
        return KEEP
    keys = _Keys(op, Q, K, past_key, nonpad_kv_seqlen)
    allowed = []
    if left_window_size >= 0:
        allowed.append(op.GreaterOrEqual(*keys.shifted(op, -left_window_size)))
    if right_window_size >= 0:
        allowed.append(op.LessOrEqual(*keys.shifted(op, right_window_size)))
    mask = _masked(op, attn_mask, op.And(*allowed) if len(allowed) > 1 else allowed[0], keys.total)
    return op.Attention(Q, K, V, mask, past_key, past_value, nonpad_kv_seqlen, outputs=len(op.outputs), **same)


@adapter("Attention", 24, 23, accuracy="rounding")
def attention_padding(op, Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, *, is_causal, **same):
    """24 adds how many keys of each batch are valid, from whose end `is_causal` counts, and masks of fewer keys.

    The mask leaves out the other keys.
    """
    width = op.shape(attn_mask)[-1] if attn_mask else None
    # A size that only has a name may be less than that of all keys, unless that has the same.
    short = attn_mask and (past_key or not isinstance(width, str) or width != (op.known_shape(K) or [None] * 2)[-2])
    if not nonpad_kv_seqlen and not short:
        return KEEP
    keys = _Keys(op, Q, K, past_key, nonpad_kv_seqlen)
    if nonpad_kv_seqlen:
        # Runtimes want a row for each query.
        rows = (
            np.array([keys.queries, 1])
            if isinstance(keys.queries, int)
            else op.Concat(keys.queries, np.array([1]), axis=0)
        )
        allowed = op.Less(keys.key, op.Expand(keys.valid, rows))
        if is_causal:
            allowed = op.And(allowed, op.LessOrEqual(*keys.shifted(op, 0)))
        is_causal = 0
    elif op.known_shape(attn_mask)[-1] == keys.total:
        return KEEP
    else:
        allowed = None
    mask = _masked(op, attn_mask, allowed, keys.total)
    return op.Attention(Q, K, V, mask, past_key, past_value, outputs=len(op.outputs), is_causal=is_causal, **same)
