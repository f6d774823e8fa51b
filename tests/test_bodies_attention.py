"""Bodies of com.microsoft's attention operators against onnxruntime's own kernels.

Each test draws its shapes, attributes and optional inputs; the default run takes two draws, the marker `slow` many.
"""

from __future__ import annotations

import drawing
import kernels
import numpy as np
import pytest
from drawing import draws

import relu_tools

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Draw(drawing.Draw):
    """What a test draws: so many heads of some size, a batch, queries and keys, and how long the past is."""

    def __init__(self, seed, *, size=8):
        super().__init__(seed)
        self.batch, self.queries = self.any(1, 2, 3), self.any(1, 4)
        self.keys, self.past = self.any(1, 5), self.any(1, 3)
        self.heads, self.size = self.any(1, 2, 4), size
        # Exporters leave the batch and the places open, not the sizes of projections.
        self.how |= {"dynamic": "lead" if seed % 2 else False, **CLOSE}

    def floats(self, *shape, dtype=np.float32):
        return self.rng.standard_normal(shape).astype(dtype)

    def bits(self, *shape):
        return self.rng.integers(0, 2, shape).astype(np.int32)

    def mask(self, queries, keys, begin=True):
        """A mask of one of the documented forms; each allows a key to each query."""
        ends = self.rng.integers(1, keys + 1, self.batch).astype(np.int32)
        begins = np.minimum(self.rng.integers(0, keys, self.batch), ends - 1).astype(np.int32)
        whole, rows = self.bits(self.batch, keys), self.bits(self.batch, queries, keys)
        whole[:, 0] = rows[:, :, 0] = 1
        return self.any(None, ends, *([np.concatenate([ends, begins])] if begin else []), whole, rows)


@draws
def test_attention(seed):
    draw = Draw(seed)
    width, hidden = 12, draw.heads * draw.size
    past = draw.any(None, draw.floats(2, draw.batch, draw.heads, draw.past, draw.size))
    other = hidden if past is not None else draw.any(hidden, 2 * hidden)
    keys = draw.queries + (0 if past is None else draw.past)
    inputs = [
        draw.floats(draw.batch, draw.queries, width),
        draw.floats(width, 2 * hidden + other),
        draw.any(None, draw.floats(2 * hidden + other)),
        draw.mask(draw.queries, keys),
        past,
    ]
    if past is None:  # with which onnxruntime takes none
        inputs += [draw.any(None, draw.floats(draw.any(1, draw.batch), draw.any(1, draw.heads), draw.queries, keys))]
    kernels.check(
        "Attention",
        inputs,
        2 if past is not None else 1,
        constants=draw.any((1, 2), ()),
        num_heads=draw.heads,
        unidirectional=draw.any(None, 0, 1),
        scale=draw.any(None, 0.3),
        mask_filter_value=draw.any(None, -3.0),
        qkv_hidden_sizes=None if other == hidden else [hidden, hidden, other],
        **draw.how,
    )


@draws
def test_quantized_attention(seed):
    draw = Draw(seed)
    width, hidden = 12, draw.heads * draw.size
    dtype = draw.any(np.uint8, np.int8)
    limits = np.iinfo(dtype)
    per = draw.any((), (3 * hidden,))
    past = draw.any(None, draw.floats(2, draw.batch, draw.heads, draw.past, draw.size))
    keys = draw.queries + (0 if past is None else draw.past)
    inputs = [
        draw.rng.integers(0, 256, (draw.batch, draw.queries, width)).astype(np.uint8),
        draw.rng.integers(limits.min, limits.max + 1, (width, 3 * hidden)).astype(dtype),
        draw.floats(3 * hidden),
        np.float32(0.02),
        draw.rng.uniform(0.005, 0.02, per).astype(np.float32),
        draw.mask(draw.queries, keys),
        draw.any(None, np.uint8(128)),
        draw.any(None, draw.rng.integers(limits.min, limits.max + 1, per).astype(dtype)),
        past,
    ]
    kernels.check(
        "QAttention",
        inputs,
        2 if past is not None else 1,
        constants=draw.any((1, 2, 4, 7), ()),
        num_heads=draw.heads,
        unidirectional=draw.any(None, 1),
        **draw.how,
    )


@draws
@pytest.mark.parametrize("form", ["three axes", "heads", "past"])
def test_multi_head_attention(form, seed):
    draw = Draw(seed)
    hidden, other = draw.heads * draw.size, draw.heads * draw.any(draw.size, 16)
    query = draw.floats(draw.batch, draw.queries, hidden)
    bias, past = None, [None, None]
    if form == "past":
        other = hidden
        past = [draw.floats(draw.batch, draw.heads, draw.past, draw.size) for _ in range(2)]
    if form == "heads":
        state = [draw.floats(draw.batch, draw.heads, draw.keys, draw.size) for _ in range(2)]
    else:
        state = [draw.floats(draw.batch, draw.keys, size) for size in (hidden, other)]
        bias = draw.any(None, draw.floats(2 * hidden + other))
    keys = draw.keys + (draw.past if form == "past" else 0)
    kernels.check(
        "MultiHeadAttention",
        [
            query,
            *state,
            bias,
            draw.mask(draw.queries, keys, begin=False),
            draw.any(None, draw.floats(draw.any(1, draw.batch), draw.any(1, draw.heads), draw.queries, keys)),
            *past,
        ],
        3 if form == "past" else 1,
        num_heads=draw.heads,
        unidirectional=draw.any(None, None, 1),
        scale=draw.any(None, 0.3),
        mask_filter_value=draw.any(None, -3.0),
        **draw.how,
    )


@draws
def test_decoder_attention(seed):
    draw = Draw(seed)
    hidden = draw.heads * draw.size
    mask = draw.bits(draw.batch, draw.keys)
    mask[:, 0] = 1
    inputs = [
        draw.floats(draw.batch, 1, hidden),
        *(draw.floats(draw.batch, draw.heads, draw.keys, draw.size) for _ in range(2)),
        draw.any(None, mask),
    ]
    how = {"num_heads": draw.heads, "scale": draw.any(None, 0.3), "mask_filter_value": draw.any(None, -3.0)}
    kernels.check("DecoderMaskedMultiHeadAttention", inputs, **how, **draw.how)


@draws
@pytest.mark.parametrize("axes", [3, 4])
def test_rotary_embedding(axes, seed):
    draw = Draw(seed)
    pairs = draw.any(draw.size // 2, draw.size // 4)
    if axes == 4:
        x = draw.floats(draw.batch, draw.heads, draw.queries, draw.size)
    else:
        x = draw.floats(draw.batch, draw.queries, draw.heads * draw.size)
    how = {"num_heads": draw.heads, "rotary_embedding_dim": 2 * pairs} if pairs < draw.size // 2 else {}
    ids = draw.rng.integers(0, 20, (draw.batch, draw.queries))
    inputs = [x, draw.any(ids, np.array([5])), draw.floats(20, pairs), draw.floats(20, pairs)]
    # onnxruntime takes tables of the head's size alone where the heads have an axis of their own.
    kernels.check("RotaryEmbedding", inputs, constants=(2, 3), interleaved=draw.any(None, 1), **how, **draw.how)


def test_rotary_embedding_of_a_part():
    """What the tables do not reach stays."""
    draw = Draw(0)
    inputs = [draw.floats(2, 3, 32), np.array([5]), draw.floats(20, 2), draw.floats(20, 2)]
    kernels.check("RotaryEmbedding", inputs, num_heads=4, rotary_embedding_dim=4, **CLOSE)


@draws
@pytest.mark.parametrize("form", ["prompt", "prompt in a buffer", "token", "token in a buffer", "more of a prompt"])
def test_group_query_attention(form, seed):
    draw = Draw(seed, size=16)
    if form == "more of a prompt":
        draw.batch = 1
    groups = draw.any(*(n for n in (1, 2, 4) if n <= draw.heads))
    dtype = draw.any(np.float32, np.float32, np.float16)
    queries = 1 if form.startswith("token") else 4
    before = 0 if form.startswith("prompt") else 6
    total = queries + before
    room = total + 5 if "buffer" in form else before
    past = [draw.floats(draw.batch, groups, room, draw.size, dtype=dtype) for _ in range(2)]
    if form == "prompt" and draw.any(True, False):
        past = [None, None]
    lengths = np.full(draw.batch, total - 1)
    if form.startswith("token"):
        lengths = draw.rng.integers(1, total, draw.batch)  # each of the batch has its own
    q, k, v = (draw.floats(draw.batch, queries, n * draw.size, dtype=dtype) for n in (draw.heads, groups, groups))
    qkv = draw.any([q, k, v], [np.concatenate([q, k, v], -1), None, None])
    rotary = draw.any(0, 1)
    tables = [draw.floats(20, draw.size // 2, dtype=dtype) for _ in range(2)] if rotary else [None, None]
    ids = draw.rng.integers(0, 20 - queries, (draw.batch, queries)) if rotary and draw.any(0, 1) else None
    causal = draw.any(None, 1, 0)
    extra = draw.any({}, {"smooth_softmax": 1}, {"softcap": 0.7}, {"local_window_size": 2} if causal != 0 else {})
    sink = draw.floats(draw.heads, dtype=dtype) if draw.any(0, 0, 1) and not extra else None
    bias = draw.floats(draw.any(1, draw.batch), draw.any(1, draw.heads), queries, total, dtype=dtype)
    kernels.check(
        "GroupQueryAttention",
        [
            *qkv,
            *past,
            lengths.astype(np.int32),
            np.array(total, np.int32).reshape(draw.any((), (1,))),
            *tables,
            ids,
            draw.any(None, bias),
            sink,
        ],
        3,
        num_heads=draw.heads,
        kv_num_heads=groups,
        causal=causal,
        do_rotary=rotary,
        rotary_interleaved=draw.any(None, 1) if rotary else None,
        scale=draw.any(None, 0.3),
        **extra,
        **(draw.how if dtype is np.float32 else {**draw.how, "rtol": 5e-3, "atol": 5e-3}),
    )


@draws
@pytest.mark.parametrize("count", [2, 3])
def test_packed_projections(count, seed):
    """onnxruntime has them on GPUs alone: they give what the same projections give by themselves."""
    draw = Draw(seed)
    draw.keys = draw.queries if count == 3 else draw.keys
    separate = [draw.floats(draw.batch, n, draw.heads * draw.size) for n in (draw.queries, draw.keys, draw.keys)]
    expected = kernels.one_node("MultiHeadAttention", separate, num_heads=draw.heads)[2]
    packed = np.stack([x.reshape(draw.batch, -1, draw.heads, draw.size) for x in separate[3 - count :]], axis=3)
    inputs = [packed] if count == 3 else [separate[0], packed]
    kernels.check("MultiHeadAttention", inputs, expected=expected, num_heads=draw.heads, **draw.how)


@pytest.mark.parametrize("batch, length", [(0, 3), (2, 0), (2, 3)])
def test_a_batch_or_a_sequence_may_be_empty(batch, length):
    """Where exporters leave them open: the verifier, which tries that too, finds no difference."""
    draw = Draw(1)
    x, ids = draw.floats(batch, length, 16), np.zeros((batch, length), np.int64)
    cache = draw.floats(8, 4)
    for op, inputs, constants, attributes in (
        ("Attention", [x, draw.floats(16, 48), draw.floats(48)], (1, 2), {"num_heads": 2}),
        ("MultiHeadAttention", [x, x, x], (), {"num_heads": 2}),
        ("RotaryEmbedding", [x, ids, cache, cache], (2, 3), {"num_heads": 2}),
    ):
        how = {"constants": constants, "dynamic": "lead", **attributes}
        kernels.check(op, inputs, **how, **CLOSE)
        if length and batch and op != "RotaryEmbedding":  # whose places are drawn from outside of its tables
            found = relu_tools.inline(kernels.one_node(op, inputs, **how)[0], verify="changed").report.verification
            assert found, str(found)


def test_scores():
    """The fourth output of MultiHeadAttention, whose type it does not infer."""
    draw = Draw(3)
    query, key, value = (draw.floats(2, 5, 16) for _ in range(3))
    inputs = [query, key, value, None, draw.bits(2, 5)]
    expected = [query, np.zeros((2, 2, 5, 5), np.float32)]
    model, feeds, _ = kernels.one_node(
        "MultiHeadAttention", inputs, [True, False, False, True], num_heads=2, expected=expected
    )
    kernels.compare(kernels.run(model, feeds), kernels.run(kernels.inlined(model), feeds), **CLOSE)


@draws
def test_prompts_of_different_lengths(seed):
    """What a prompt holds beyond its length does not touch what comes before; what it gives for that is not said."""
    draw = Draw(seed, size=16)
    q, k, v = (draw.floats(2, 5, n * draw.size) for n in (4, 2, 2))
    lengths = draw.rng.integers(1, 6, 2)
    inputs = [q, k, v, None, None, (lengths - 1).astype(np.int32), np.int32(5)]
    how = {"num_heads": 4, "kv_num_heads": 2, "opset": draw.how["opset"]}
    model, feeds, expected = kernels.one_node("GroupQueryAttention", inputs, 3, **how)
    actual = kernels.run(kernels.inlined(model), feeds)
    for batch, length in enumerate(lengths):
        first = [expected[0][batch, :length], *(x[batch] for x in expected[1:])]
        kernels.compare(first, [actual[0][batch, :length], *(x[batch] for x in actual[1:])], **CLOSE)


# --- what is refused -----------------------------------------------------------------------
X = np.zeros((2, 3, 16), np.float32)
STATE = np.zeros((2, 2, 5, 8), np.float32)
LENGTHS = np.zeros(2, np.int32)


@pytest.mark.parametrize(
    ("op", "inputs", "how", "reason"),
    [
        ("Attention", [X, np.zeros((16, 48), np.float32)], {"do_rotary": 1}, "angles"),
        ("Attention", [X, np.zeros((16, 48), np.float32)], {"past_present_share_buffer": 1}, "share a buffer"),
        (
            "Attention",
            [X, np.zeros((16, 48), np.float32), None, np.zeros((2, 1, 9, 9), np.int32)],
            {},
            "mask of four axes",
        ),
        ("MultiHeadAttention", [X], {}, "no keys"),
        ("MultiHeadAttention", [X, X, X, *[None] * 5, np.int32(1)], {}, "share a buffer"),
        ("MultiHeadAttention", [X, STATE, STATE, np.zeros(48, np.float32)], {}, "no bias"),
        ("DecoderMaskedMultiHeadAttention", [X, X, X], {}, "no keys in heads"),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), X[0], X[0]], {"is_packed_batching": 1}, "packed batch"),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), X[0], X[0]], {"scale": 2.0}, "scale"),
        ("GroupQueryAttention", [X, X, X, STATE, STATE, LENGTHS, LENGTHS[:1]], {"k_quant_type": "PER_TENSOR"}, "quant"),
        ("GroupQueryAttention", [X, X, X, STATE, STATE, LENGTHS, LENGTHS[:1]], {"sliding_window_cache": 1}, "state"),
        ("GroupQueryAttention", [X, X, X, STATE, STATE, LENGTHS, LENGTHS[:1]], {"local_window_size": 0}, "window"),
    ],
)
def test_refused(op, inputs, how, reason):
    heads = {} if op == "RotaryEmbedding" else {"num_heads": 2}
    groups = {"kv_num_heads": 2} if op == "GroupQueryAttention" else {}
    model, _, _ = kernels.one_node(op, inputs, expected=[X], **heads, **groups, **how)
    with pytest.raises(relu_tools.ConversionError, match=reason):
        relu_tools.inline(model)
