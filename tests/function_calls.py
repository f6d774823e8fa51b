"""How the operators with function bodies are called: for each, inputs, and attributes to leave out and to give.

`CALLS` holds the forms of each operator's calls. What the installed schema does not have is passed over.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, helper
from onnx import TensorProto as T

from relu_tools.compare import is_float
from relu_tools.schemas import Version

Make = Callable[[np.dtype, np.random.Generator], Any]

F, F16, B16 = "tensor(float)", "tensor(float16)", "tensor(bfloat16)"


@dataclasses.dataclass(frozen=True)
class Form:
    """`inputs` are made by the schema's names; the groups in `optional` may be left out.

    `attributes` lists values of what may be left out: each is left out, given alone, and given with all others.
    `always` is always given. `only` are the types of a type variable to take where not all are meant, and `tied`
    type variables that go with another. What shape inference must know the value of is in `constants`; `since` are
    the operator's versions that take the form, by default all.
    `outputs` says which sets of outputs to ask for, by position, where not all and the first alone are meant.
    """

    inputs: Mapping[str, Make]
    attributes: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optional: Sequence[tuple[str, ...]] = ()
    only: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tied: Mapping[str, str] = dataclasses.field(default_factory=dict)
    constants: Sequence[str] = ()
    since: Sequence[int] | None = None
    outputs: Sequence[tuple[int, ...]] | None = None

    def attribute_sets(self, version: Version) -> Iterator[dict[str, Any]]:
        known = {name: v for name, v in self.attributes.items() if name in version.attributes}
        sets = [{}] + [{name: value} for name, v in known.items() for value in v]
        if len(known) > 1:
            sets.append({name: v[0] for name, v in known.items()})
        for chosen in sets:
            yield {**self.always, **chosen}

    def input_sets(self, version: Version) -> Iterator[list[str]]:
        """The names of the inputs that are given: all, all but one of the groups, and none of them."""
        names = [formal.name for formal in version.inputs]
        given = [name for name in self.inputs if name in names]
        optional = [group for group in self.optional if set(group) <= set(given)]
        gone: list[tuple[str, ...]] = [(), *optional]
        if len(optional) > 1:
            gone.append(tuple(itertools.chain(*optional)))
        for left_out in gone:
            yield [name for name in given if name not in left_out]


def values(*shape: int, low: float = -3, high: float = 3) -> Make:
    """Numbers between two bounds, from 0 where the type is unsigned; floats with a 0 among them."""

    def make(dtype: np.dtype, rng: np.random.Generator):
        if dtype.kind in "OUS":
            return rng.choice(np.array(["a", "bc", ""], object), shape)
        if dtype.kind == "b":
            return rng.random(shape) < 0.5
        if dtype.kind == "c":
            return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
        if is_float(dtype):
            array = rng.uniform(low, high, shape)
            if array.size > 3 and low < 0:
                array.flat[1] = 0
            return array.astype(dtype)
        floor = max(low, 0) if "uint" in dtype.name else low
        return rng.integers(int(floor), int(high), shape, endpoint=True).astype(dtype)

    return make


def given(*numbers: Any, dtype: Any = None) -> Make:
    return lambda own, rng: np.array(numbers, dtype or own)


def scalar(number: Any) -> Make:
    return lambda dtype, rng: np.array(number).astype(dtype)


def sequence(*makes: Make) -> Make:
    return lambda dtype, rng: [make(dtype, rng) for make in makes]


def positive(*shape: int) -> Make:
    return values(*shape, low=1, high=4)


def on_elements(op: str, inputs: int) -> Callable[[int], GraphProto]:
    """The graph of a SequenceMap on elements of a type."""

    def make(elem_type: int) -> GraphProto:
        infos = [helper.make_tensor_value_info(name, elem_type, None) for name in ("a", "b", "c")]
        node = helper.make_node(op, ["a", "b"][:inputs], ["c"])
        return helper.make_graph([node], "body", infos[:inputs], infos[2:])

    return make


X = values(2, 3, 4)
# Where exp and its powers leave the range of narrow types, and where every one of them does.
FAR = given(-200, -50, -12, 0, 12, 50, 200)
ENDS = given(-np.inf, -6e4, np.nan, 0, 6e4, np.inf)
FLOATS = [F, "tensor(double)", F16, B16]
KINDS = [T.DOUBLE, T.FLOAT16, T.BFLOAT16, T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64]
SOME_AXES = {"keepdims": [0], "noop_with_empty_axes": [1]}


def activation(name: str = "X", **attributes: Sequence[Any]) -> list[Form]:
    return [Form({name: X}, attributes), *(Form({name: x}, attributes, only={"T": FLOATS}) for x in (FAR, ENDS))]


def reductions(make: Make) -> list[Form]:
    return [
        Form({"data": make, "axes": given(*axes, dtype=np.int64)}, SOME_AXES, optional=[("axes",)], constants=["axes"])
        for axes in ((0, -1), (1,))
    ]


def losses(first: str, second: str, third: str) -> list[Form]:
    forms = []
    for more in ((), (2,), (2, 3)):

        def classes(dtype, rng, more=more):
            return rng.integers(0, 5, (3, *more)).astype(dtype)

        inputs = {first: values(3, 5, *more), second: classes, third: positive(5)}
        forms.append(Form(inputs, {"reduction": ["none", "sum", "mean"], "ignore_index": [2]}, optional=[(third,)]))
    return forms


def attention_forms() -> list[Form]:
    heads = {"Q": values(2, 4, 3, 8), "K": values(2, 2, 5, 8), "V": values(2, 2, 5, 6)}
    packed = {"Q": values(2, 3, 16), "K": values(2, 5, 8), "V": values(2, 5, 12)}
    past = {"past_key": values(2, 2, 4, 8), "past_value": values(2, 2, 4, 6)}
    attributes = {
        "is_causal": [1],
        "scale": [0.25],
        "softcap": [2.0],
        "qk_matmul_output_mode": [1, 2, 3],
        "softmax_precision": [T.FLOAT],
        "left_window_size": [1],
        "right_window_size": [1],
    }
    tied = {"T2": "T1"}
    outputs = [(0,), (0, 1, 2), (0, 1, 2, 3), (0, 3)]
    masks = [({"U": ["tensor(bool)"]}, {}), ({}, {"U": "T1"})]
    forms = [
        Form(
            {**heads, "attn_mask": values(3, keys), **cached},
            attributes,
            optional=[("attn_mask",)],
            only=only,
            tied={**tied, **mask},
            outputs=outputs,
        )
        for only, mask in masks
        for keys, cached in ((5, {}), (9, past))
    ]
    forms.append(
        Form(
            packed, attributes, always={"q_num_heads": 4, "kv_num_heads": 2}, tied={"T2": "T1"}, outputs=[(0,), (0, 3)]
        )
    )
    narrow = {**heads, "attn_mask": values(3, 4)}
    forms.append(Form(narrow, attributes, only=masks[0][0], tied=tied, outputs=[(0,), (0, 3)], since=[24, 25]))
    padded = {**heads, "attn_mask": values(2, 1, 3, 5), "nonpad_kv_seqlen": given(5, 3, dtype=np.int64)}
    forms.append(
        Form(
            padded,
            attributes,
            optional=[("attn_mask",)],
            only=masks[0][0],
            tied=tied,
            outputs=[(0,), (0, 3)],
            since=[24, 25],
        )
    )
    return forms


def linear_attention_forms() -> list[Form]:
    base = {"query": values(2, 3, 8), "key": values(2, 3, 4, high=1, low=-1), "value": values(2, 3, 6)}
    state = {"past_state": values(2, 2, 2, 3)}
    decays = {"decay": values(2, 3, 4, low=-1, high=0)}, {"decay": values(2, 3, 2, low=-1, high=0)}
    beta = {"beta": values(2, 3, 2, low=0, high=1)}
    rules = [
        ("linear", {}),
        ("gated", decays[0]),
        ("gated", decays[1]),
        ("delta", beta),
        ("gated_delta", {**decays[0], **beta}),
    ]
    always = {"q_num_heads": 4, "kv_num_heads": 2}
    return [
        Form(
            {**base, **state, **more},
            {"scale": [0.5], "chunk_size": [2]},
            always={**always, **({} if rule == "gated_delta" else {"update_rule": rule})},
            optional=[("past_state",)],
        )
        for rule, more in rules
    ]


def rotary_forms() -> list[Form]:
    heads = {"X": values(2, 4, 3, 8)}
    packed = {"X": values(2, 3, 32)}
    cached = {
        "cos_cache": values(9, 4),
        "sin_cache": values(9, 4),
        "position_ids": given((0, 2, 1), (8, 7, 3), dtype=np.int64),
    }
    given_each = {"cos_cache": values(2, 3, 4), "sin_cache": values(2, 3, 4)}
    narrow = {**cached, "cos_cache": values(9, 2), "sin_cache": values(9, 2)}
    attributes = {"interleaved": [1]}
    return [
        Form({**x, **caches}, attributes, always={**more, **width})
        for x, more in ((heads, {}), (packed, {"num_heads": 4}), (heads, {"num_heads": 4}))
        for caches, width in ((cached, {}), (given_each, {}), (narrow, {"rotary_embedding_dim": 4}))
    ]


def normalization_forms(bias: bool) -> list[Form]:
    forms = []
    for axis, scale in ((None, (4,)), (-1, (4,)), (1, (3, 4)), (-2, (3, 4)), (0, (2, 3, 4))):
        names = ("Scale", "B") if bias else ("scale",)
        inputs = {"X": X, **{name: values(*scale) for name in names}}
        forms.append(
            Form(
                inputs,
                {"epsilon": [0.1], "stash_type": [T.FLOAT, T.DOUBLE]},
                always={} if axis is None else {"axis": axis},
                optional=[("B",)] if bias else (),
            )
        )
    return forms


def group_forms() -> list[Form]:
    """Version 18 has scale and bias for each group, 21 for each channel."""
    forms = []
    for shape, groups in (((2, 6, 4), 2), ((2, 6, 3, 2), 3), ((1, 4, 5), 4)):
        for since, size in ((18, groups), (21, shape[1])):
            inputs = {"X": values(*shape), "scale": values(size), "bias": values(size)}
            attributes = {"epsilon": [0.1], "stash_type": [T.FLOAT, T.DOUBLE]}
            forms.append(Form(inputs, attributes, always={"num_groups": groups}, since=[since]))
    return forms


CALLS: dict[str, list[Form]] = {
    "AffineGrid": [
        Form({"theta": values(2, 2, 3), "size": given(2, 3, 4, 5, dtype=np.int64)}, {"align_corners": [1]}),
        Form({"theta": values(2, 3, 4), "size": given(2, 3, 2, 4, 5, dtype=np.int64)}, {"align_corners": [1]}),
    ],
    "Attention": attention_forms(),
    "Bernoulli": [Form({"input": given(0, 1, 1, 0)}, {"seed": [1.0], "dtype": [*KINDS, T.BOOL]})],
    "BlackmanWindow": [],
    "CastLike": [Form({"input": given(1, 1), "target_type": given(1)}, {"saturate": [0], "round_mode": ["down"]})],
    "CausalConvWithState": [
        Form(
            {"input": values(2, 3, length), "weight": values(3, 1, size), "bias": values(3), **past},
            {"activation": ["silu", "swish", "none"]},
            optional=[("bias",), ("past_state",)] if past else [("bias",)],
            constants=["weight"],
        )
        for length, size, past in (
            (5, 4, {"past_state": values(2, 3, 3)}),
            (1, 3, {"past_state": values(2, 3, 2)}),
            (4, 1, {}),
        )
    ],
    "Celu": activation(alpha=[0.5, 2.0]),
    "CenterCropPad": [
        Form({"input_data": values(5, 4), "shape": given(3, 7)}),
        Form({"input_data": values(3, 5, 4), "shape": given(4, 3)}, always={"axes": [0, 2]}),
        Form({"input_data": values(3, 5, 4), "shape": given(4, 2)}, always={"axes": [-2, 0]}),
    ],
    "Clip": [
        Form({"input": X, "min": scalar(1), "max": scalar(2)}, optional=[("min",), ("max",)]),
        Form({"input": ENDS, "min": scalar(1), "max": scalar(2)}, optional=[("min",), ("max",)], only={"T": FLOATS}),
    ],
    "DepthToSpace": [Form({"input": values(2, 8, 2, 3)}, {"mode": ["CRD", "DCR"]}, always={"blocksize": 2})],
    "DynamicQuantizeLinear": [
        Form({"x": values(3, 4)}),
        Form({"x": positive(3, 4)}),
    ],
    "Elu": activation(alpha=[0.5, 2.0]),
    "Gelu": activation(approximate=["tanh", "none"]),
    "GreaterOrEqual": [Form({"A": X, "B": values(3, 1)})],
    "GroupNormalization": group_forms(),
    "HammingWindow": [],
    "HannWindow": [],
    "HardSigmoid": activation(alpha=[0.3], beta=[0.4]),
    "HardSwish": activation(),
    "LayerNormalization": normalization_forms(bias=True),
    "LeakyRelu": activation(alpha=[0.3, -0.5]),
    "LessOrEqual": [Form({"A": X, "B": values(3, 1)})],
    "LinearAttention": linear_attention_forms(),
    "LogSoftmax": activation("input", axis=[-1, 0, 1])[:1],
    "MeanVarianceNormalization": [Form({"X": values(2, 3, 4, 5)}, {"axes": [[0, 1, 2, 3], [2, 3], [-1]]})],
    "Mish": activation(),
    "NegativeLogLikelihoodLoss": losses("input", "target", "weight"),
    "PRelu": [Form({"X": X, "slope": values(*shape)}) for shape in ((), (4,), (3, 1), (2, 3, 4))],
    "RMSNormalization": normalization_forms(bias=False),
    "Range": [
        Form(
            {"start": scalar(a), "limit": scalar(b), "delta": scalar(c)}, {"stash_type": [T.FLOAT, T.DOUBLE]}, only=only
        )
        for a, b, c, only in (
            (0, 10, 3, {}),
            (10, 0, -3, {}),
            (3, 3, 1, {}),
            (5, 0, 1, {}),
            (0.5, 3.25, 0.25, {"T": FLOATS}),
            (0, 3 + 1e-9, 1, {"T": ["tensor(double)"]}),
            (2**40, 2**40 + 5, 2, {"T": ["tensor(int64)", "tensor(double)"]}),
            (0, 2**24 * 1000 + 1, 2**24 * 100, {"T": ["tensor(int64)", "tensor(double)"]}),
        )
    ],
    "ReduceL1": reductions(X),
    "ReduceL2": reductions(X),
    "ReduceLogSum": reductions(positive(2, 3, 4)),
    "ReduceLogSumExp": reductions(X),
    "ReduceSumSquare": reductions(X),
    "Relu": activation(),
    "RotaryEmbedding": rotary_forms(),
    "Selu": activation(alpha=[1.5], gamma=[0.5]),
    "SequenceMap": [
        Form({"input_sequence": sequence(values(2), values(3))}, always={"body": on_elements("Identity", 1)}),
        *(
            Form(
                {"input_sequence": sequence(values(2), values(2)), "additional_inputs": added},
                always={"body": on_elements("Add", 2)},
                only={"S": [f"seq({F})"], "V": [kind]},
            )
            for added, kind in ((values(2), F), (sequence(values(2), values(2)), f"seq({F})"))
        ),
    ],
    "Shrink": activation("input", lambd=[1.5], bias=[1.0]),
    "Softmax": activation("input", axis=[-1, 0, 1])[:1],
    "SoftmaxCrossEntropyLoss": losses("scores", "labels", "weights"),
    "Softplus": activation(),
    "Softsign": activation("input"),
    "SpaceToDepth": [Form({"input": values(2, 2, 4, 6)}, {"mode": ["CRD", "DCR"]}, always={"blocksize": 2})],
    "SwiGLU": [Form({"A": X, "B": X}, {"alpha": [0.5]}), Form({"A": FAR, "B": FAR}, only={"T": FLOATS})],
    "Swish": activation(alpha=[0.5, -1.5]),
    "ThresholdedRelu": activation(alpha=[0.5, -0.25, 0.1]),
}
for _name in ("BlackmanWindow", "HammingWindow", "HannWindow"):
    CALLS[_name] = [Form({"size": scalar(size)}, {"periodic": [0], "output_datatype": KINDS}) for size in (10, 7, 5)]
