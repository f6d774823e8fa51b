"""Planted errors, each a real kind of mistake, and right rewrites beside them: the verifier must tell them apart.

All of them run as rewrites and as whole models, in two child processes.
"""

from __future__ import annotations

import dataclasses

import onnx
import onnx.parser
import pytest

from relu_tools.compare import BIT_EXACT, DIFFERENT, WITHIN_ROUNDING
from relu_tools.runners import run_jobs
from relu_tools.verification import Rewrite, Verification, verify, verify_rewrites


@dataclasses.dataclass(frozen=True)
class Pair:
    name: str
    signature: str
    before: tuple[int, str]
    after: tuple[int, str]
    accuracy: str = "exact"

    def model(self, side: str) -> onnx.ModelProto:
        opset, body = getattr(self, side)
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : {opset}]> g {self.signature} {{ {body} }}'
        )

    def rewrite(self) -> Rewrite:
        before, after = self.model("before"), self.model("after")
        return Rewrite(
            name=self.name,
            before=before.graph.node,
            before_opsets={"": self.before[0]},
            after=after.graph.node,
            after_opsets={"": self.after[0]},
            inputs={v.name: v.type for v in before.graph.input},
            constants={},
            outputs={v.name: onnx.TypeProto() for v in before.graph.output},
            accuracy=self.accuracy,
        )


def elementwise(type_: str) -> str:
    return f"({type_}[N, 3] x) => ({type_}[N, 3] y)"


FLOAT, INT8, INT16, INT32, INT64, DOUBLE, HALF = map(
    elementwise, ("float", "int8", "int16", "int32", "int64", "double", "float16")
)
THRESHOLDED = (14, "y = ThresholdedRelu<alpha = 2.5>(x)")
THRESHOLDED_CONSTANTS = "a = Constant<value = float {2.5}>() z = Constant<value = float {0.0}>()"
SOFTMAX = "(float[2, 3, 4] x) => (float[2, 3, 4] y)"
IF = "(bool b, float[N] x) => (float[N] y)"


def if_(then: str, other: str) -> str:
    branches = (
        f"then_branch = t() => (float[N] p) {{ p = {then} }}, else_branch = e() => (float[N] q) {{ q = {other} }}"
    )
    return f"y = If(b)<{branches}>"


def loop(condition: str = "d = Identity(c)", step: str = "w = Add(v, x)") -> str:
    return (
        "k = Constant<value = bool {1}>() "
        f"y = Loop(m, k, x)<body = b(int64 i, bool c, float[N] v) => (bool d, float[N] w) {{ {condition} {step} }}>"
    )


RIGHT = [
    Pair("Relu 14 to 13", FLOAT, (14, "y = Relu(x)"), (13, "y = Relu(x)")),
    Pair("Relu 14 to 6", FLOAT, (14, "y = Relu(x)"), (6, "y = Relu(x)")),
    Pair("Relu of int8 by Max", INT8, (14, "y = Relu(x)"), (13, "z = Constant<value = int8 {0}>() y = Max(x, z)")),
    Pair(
        "Relu of int16 through float",
        INT16,
        (14, "y = Relu(x)"),
        (13, "f = Cast<to = 1>(x) g = Relu(f) y = Cast<to = 5>(g)"),
    ),
    Pair(
        "Relu of int32 through double",
        INT32,
        (14, "y = Relu(x)"),
        (7, "f = Cast<to = 11>(x) g = Relu(f) y = Cast<to = 6>(g)"),
    ),
    Pair(
        "Relu of int64 by a mask",
        INT64,
        (14, "y = Relu(x)"),
        (
            8,
            "f = Cast<to = 11>(x) z = Constant<value = double {0.0}>() "
            "p = Greater(f, z) n = Cast<to = 7>(p) y = Mul(x, n)",
        ),
    ),
    Pair(
        "ThresholdedRelu by Where",
        FLOAT,
        THRESHOLDED,
        (9, f"{THRESHOLDED_CONSTANTS} c = Greater(x, a) y = Where(c, x, z)"),
    ),
    Pair(
        "ThresholdedRelu 10 to 22", FLOAT, (10, "y = ThresholdedRelu(x)"), (22, "y = ThresholdedRelu<alpha = 1.0>(x)")
    ),
    Pair(
        "ThresholdedRelu while it was experimental",
        FLOAT,
        (9, "y = ThresholdedRelu(x)"),
        (10, "y = ThresholdedRelu(x)"),
    ),
    Pair("LeakyRelu 16 to 6", FLOAT, (16, "y = LeakyRelu<alpha = 0.1>(x)"), (6, "y = LeakyRelu<alpha = 0.1>(x)")),
    Pair(
        "LeakyRelu by Where",
        FLOAT,
        (16, "y = LeakyRelu(x)"),
        (
            16,
            "a = Constant<value = float {0.01}>() z = Constant<value = float {0.0}>() "
            "s = Mul(a, x) n = Less(x, z) y = Where(n, s, x)",
        ),
        "rounding",
    ),
    Pair(
        "Elu by Exp in float16",
        HALF,
        (6, "y = Elu(x)"),
        (
            17,
            "p = Constant<value = float {1.0}>() o = Cast<to = 10>(p) z = Sub(o, o) "
            "e = Exp(x) s = Sub(e, o) n = Less(x, z) y = Where(n, s, x)",
        ),
        "body",
    ),
    Pair(
        "Softmax 13 to 11 by Flatten",
        SOFTMAX,
        (11, "y = Softmax<axis = 1>(x)"),
        (13, "f = Flatten<axis = 1>(x) s = Softmax<axis = -1>(f) h = Shape(x) y = Reshape(s, h)"),
    ),
    Pair("Softmax of the last axis", SOFTMAX, (13, "y = Softmax(x)"), (11, "y = Softmax<axis = 2>(x)")),
    Pair(
        "Pad 10 to 11",
        "(float[2, 3] x) => (float[5, 6] y)",
        (10, "y = Pad<pads = [1, 2, 2, 1], value = 1.5>(x)"),
        (11, "p = Constant<value = int64[4] {1, 2, 2, 1}>() v = Constant<value = float {1.5}>() y = Pad(x, p, v)"),
    ),
    Pair(
        "MaxPool 12 to 10",
        "(float[1, 2, 7, 7] x) => (float[1, 2, 4, 4] y)",
        (12, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)"),
        (10, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)"),
    ),
    Pair(
        "MaxPool 12 to 1",
        "(float[1, 2, 7, 7] x) => (float[1, 2, 3, 3] y)",
        (12, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)"),
        (6, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)"),
    ),
    Pair(
        "Add 7 to 6",
        "(float[2, 3, 4] a, float[3] b) => (float[2, 3, 4] y)",
        (7, "c = Unsqueeze<axes = [1]>(b) y = Add(a, c)"),
        (6, "y = Add<axis = 1, broadcast = 1>(a, b)"),
    ),
    Pair(
        "BatchNormalization 15 to 7",
        "(float[N, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[N, 3, 4] y)",
        (15, "y = BatchNormalization(x, s, b, m, v)"),
        (7, "y = BatchNormalization(x, s, b, m, v)"),
    ),
    Pair(
        "BatchNormalization 15 to 6",
        "(float[N, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[N, 3, 4] y)",
        (15, "y = BatchNormalization(x, s, b, m, v)"),
        (6, "y = BatchNormalization<is_test = 1>(x, s, b, m, v)"),
    ),
    Pair(
        "Clip 11 to 6",
        FLOAT,
        (11, "l = Constant<value = float {-1.0}>() h = Constant<value = float {6.0}>() y = Clip(x, l, h)"),
        (6, "y = Clip<min = -1.0, max = 6.0>(x)"),
    ),
    Pair("Cast by number and by name", FLOAT, (6, "y = Cast<to = 1>(x)"), (5, 'y = Cast<to = "FLOAT">(x)')),
    Pair("Cast to int32", "(float[N] x) => (int32[N] y)", (13, "y = Cast<to = 6>(x)"), (9, "y = Cast<to = 6>(x)")),
    Pair(
        "Unsqueeze 11 to 13",
        "(float[N, 3] x) => (float[1, N, 3, 1] y)",
        (11, "y = Unsqueeze<axes = [0, -1]>(x)"),
        (13, "a = Constant<value = int64[2] {0, 3}>() y = Unsqueeze(x, a)"),
    ),
    Pair("If", IF, (14, if_("Relu(x)", "Neg(x)")), (13, if_("Relu(x)", "Neg(x)"))),
    Pair("Loop", "(int64 m, float[N] x) => (float[N] y)", (14, loop()), (11, loop())),
    Pair(
        "Gemm without C",
        "(float[2, 3] a, float[3, 4] b) => (float[2, 4] y)",
        (11, "y = Gemm(a, b)"),
        (9, "y = MatMul(a, b)"),
        "rounding",
    ),
    Pair("Integer division", "(int32[N] a, int32[N] b) => (int32[N] y)", (14, "y = Div(a, b)"), (7, "y = Div(a, b)")),
    Pair(
        "Gather of dynamic rows",
        "(float[5, 3] x, int64[N] i) => (float[N, 3] y)",
        (13, "y = Gather(x, i)"),
        (11, "y = Gather(x, i)"),
    ),
]

WRONG = [
    Pair("an experimental operator made up", FLOAT, (10, "y = ThresholdedRelu(x)"), (9, "y = ThresholdedRelu(x)")),
    Pair(
        "threshold itself passes", FLOAT, THRESHOLDED, (9, f"{THRESHOLDED_CONSTANTS} c = Less(x, a) y = Where(c, z, x)")
    ),
    Pair(
        "NaN passes the threshold",
        FLOAT,
        THRESHOLDED,
        (16, f"{THRESHOLDED_CONSTANTS} c = LessOrEqual(x, a) y = Where(c, z, x)"),
    ),
    Pair(
        "a mask multiplies infinity",
        FLOAT,
        THRESHOLDED,
        (9, f"{THRESHOLDED_CONSTANTS} c = Greater(x, a) n = Cast<to = 1>(c) y = Mul(x, n)"),
    ),
    Pair(
        "ThresholdedRelu's default dropped",
        FLOAT,
        (14, "y = ThresholdedRelu(x)"),
        (9, "z = Constant<value = float {0.0}>() c = Greater(x, z) y = Where(c, x, z)"),
    ),
    Pair(
        "alpha rounded to float16",
        FLOAT,
        (14, "y = ThresholdedRelu<alpha = 0.1>(x)"),
        (14, "y = ThresholdedRelu<alpha = 0.0999755859375>(x)"),
    ),
    Pair("LeakyRelu's default dropped", FLOAT, (16, "y = LeakyRelu<alpha = 0.2>(x)"), (16, "y = LeakyRelu(x)")),
    Pair("Elu's alpha dropped", FLOAT, (6, "y = Elu<alpha = 2.0>(x)"), (6, "y = Elu(x)"), "body"),
    Pair("Selu of opset 1 with its own defaults", FLOAT, (6, "y = Selu(x)"), (1, "y = Selu(x)"), "body"),
    Pair(
        "NaN becomes 0",
        FLOAT,
        (14, "y = Relu(x)"),
        (9, "z = Constant<value = float {0.0}>() c = Greater(x, z) y = Where(c, x, z)"),
    ),
    Pair(
        "Relu by multiplication",
        FLOAT,
        (14, "y = Relu(x)"),
        (13, "h = Constant<value = float {0.5}>() a = Abs(x) s = Add(a, x) y = Mul(s, h)"),
    ),
    Pair("int32 through float", INT32, (14, "y = Relu(x)"), (7, "f = Cast<to = 1>(x) g = Relu(f) y = Cast<to = 6>(g)")),
    Pair(
        "int64 through double", INT64, (14, "y = Relu(x)"), (7, "f = Cast<to = 11>(x) g = Relu(f) y = Cast<to = 7>(g)")
    ),
    Pair(
        "int16 through int8",
        INT16,
        (14, "y = Relu(x)"),
        (13, "f = Cast<to = 3>(x) z = Constant<value = int8 {0}>() g = Max(f, z) y = Cast<to = 5>(g)"),
    ),
    Pair(
        "an integer that wraps",
        INT8,
        (14, "y = Relu(x)"),
        (
            13,
            "f = Cast<to = 6>(x) a = Abs(f) s = Add(a, f) t = Cast<to = 3>(s) g = Cast<to = 6>(t) "
            "k = Constant<value = int32 {2}>() d = Div(g, k) y = Cast<to = 3>(d)",
        ),
    ),
    Pair("integers not at the opset", INT32, (14, "y = Relu(x)"), (13, "y = Relu(x)")),
    Pair("an operator newer than the opset", FLOAT, (16, "y = Celu(x)"), (11, "y = Celu(x)")),
    Pair("Softmax without flattening", SOFTMAX, (11, "y = Softmax<axis = 1>(x)"), (13, "y = Softmax<axis = 1>(x)")),
    Pair("Softmax's default axis dropped", SOFTMAX, (11, "y = Softmax(x)"), (13, "y = Softmax(x)")),
    Pair(
        "flattened at the wrong axis",
        "(float[2, 3, 4, 5] x) => (float[2, 3, 4, 5] y)",
        (11, "y = Softmax<axis = 2>(x)"),
        (13, "f = Flatten<axis = 1>(x) s = Softmax<axis = -1>(f) h = Shape(x) y = Reshape(s, h)"),
    ),
    Pair("LogSoftmax for Softmax", SOFTMAX, (13, "y = Softmax(x)"), (13, "l = LogSoftmax(x) y = Identity(l)")),
    Pair(
        "Pad's value dropped",
        "(float[2, 3] x) => (float[5, 6] y)",
        (10, "y = Pad<pads = [1, 2, 2, 1], value = 1.5>(x)"),
        (11, "p = Constant<value = int64[4] {1, 2, 2, 1}>() y = Pad(x, p)"),
    ),
    Pair(
        "pads interleaved",
        "(float[2, 3] x) => (float[A, B] y)",
        (10, "y = Pad<pads = [1, 2, 2, 1]>(x)"),
        (11, "p = Constant<value = int64[4] {1, 2, 1, 2}>() y = Pad(x, p)"),
    ),
    Pair(
        "Pad wrap before it exists",
        "(float[4] x) => (float[6] y)",
        (19, 'p = Constant<value = int64[2] {1, 1}>() y = Pad<mode = "wrap">(x, p)'),
        (18, 'p = Constant<value = int64[2] {1, 1}>() y = Pad<mode = "wrap">(x, p)'),
    ),
    Pair(
        "Pad reflect as edge",
        "(float[4] x) => (float[6] y)",
        (19, 'p = Constant<value = int64[2] {1, 1}>() y = Pad<mode = "reflect">(x, p)'),
        (18, 'p = Constant<value = int64[2] {1, 1}>() y = Pad<mode = "edge">(x, p)'),
    ),
    Pair(
        "MaxPool's ceil_mode dropped",
        "(float[1, 2, 6, 6] x) => (float[1, 2, A, B] y)",
        (12, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)"),
        (8, "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)"),
    ),
    Pair(
        "MaxPool's dilations dropped",
        "(float[1, 2, 7, 7] x) => (float[1, 2, A, B] y)",
        (12, "y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2], pads = [0, 0, 0, 0]>(x)"),
        (8, "y = MaxPool<kernel_shape = [3, 3]>(x)"),
    ),
    Pair(
        "padding that counts",
        "(float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y)",
        (7, "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"),
        (7, "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(x)"),
    ),
    Pair(
        "Min for Max",
        INT32,
        (12, "z = Constant<value = int32 {0}>() y = Max(x, z)"),
        (12, "z = Constant<value = int32 {0}>() y = Min(x, z)"),
    ),
    Pair(
        "Max that would have to broadcast",
        "(float[2, 3] a, float[3] b) => (float[2, 3] y)",
        (8, "y = Max(a, b)"),
        (7, "y = Max(a, b)"),
    ),
    Pair(
        "Where's branches swapped",
        "(bool[N] c, float[N] a, float[N] b) => (float[N] y)",
        (9, "y = Where(c, a, b)"),
        (9, "y = Where(c, b, a)"),
    ),
    Pair(
        "element type of the output changed",
        "(int32[N] x) => (int32[N] y)",
        (14, "y = Relu(x)"),
        (13, "z = Constant<value = int64 {0}>() f = Cast<to = 7>(x) y = Max(f, z)"),
    ),
    Pair(
        "rank 0 against rank 1",
        "(float[3] x) => (float y)",
        (13, "y = ReduceSum<keepdims = 0>(x)"),
        (13, "y = ReduceSum(x)"),
    ),
    Pair(
        "an axis off by one",
        "(float[2, 2, 3] a, float[2, 2, 3] b) => (float[A, B, C] y)",
        (13, "y = Concat<axis = 0>(a, b)"),
        (4, "y = Concat<axis = 1>(a, b)"),
    ),
    Pair(
        "broadcast the wrong way",
        "(float[3, 3] a, float[3] b) => (float[3, 3] y)",
        (7, "y = Add(a, b)"),
        (6, "y = Add<axis = 0, broadcast = 1>(a, b)"),
    ),
    Pair(
        "training for inference",
        "(float[N, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[N, 3, 4] y)",
        (15, "y = BatchNormalization(x, s, b, m, v)"),
        (6, "y = BatchNormalization(x, s, b, m, v)"),
    ),
    Pair(
        "mean and variance swapped",
        "(float[N, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[N, 3, 4] y)",
        (15, "y = BatchNormalization(x, s, b, m, v)"),
        (15, "y = BatchNormalization(x, s, b, v, m)"),
    ),
    Pair(
        "Clip without its lower bound",
        FLOAT,
        (11, "l = Constant<value = float {-1.0}>() h = Constant<value = float {6.0}>() y = Clip(x, l, h)"),
        (6, "y = Clip<max = 6.0>(x)"),
    ),
    Pair(
        "Cast through a narrower type",
        DOUBLE,
        (13, "y = Identity(x)"),
        (13, "f = Cast<to = 1>(x) y = Cast<to = 11>(f)"),
    ),
    Pair(
        "axes out of order",
        "(float[2, 3] x) => (float[A, B, C, D] y)",
        (11, "y = Unsqueeze<axes = [0, -1]>(x)"),
        (13, "a = Constant<value = int64[2] {0, 1}>() y = Unsqueeze(x, a)"),
    ),
    Pair("If's branches swapped", IF, (14, if_("Relu(x)", "Neg(x)")), (13, if_("Neg(x)", "Relu(x)"))),
    Pair("a Loop that stops early", "(int64 m, float[N] x) => (float[N] y)", (14, loop()), (11, loop("d = Not(c)"))),
    Pair(
        "Flatten of a dynamic dimension of 1",
        "(float[N, 3] x) => (float[A, B] y)",
        (13, "y = Flatten<axis = 1>(x)"),
        (13, "y = Flatten<axis = 0>(x)"),
    ),
    Pair(
        "a dynamic size made fixed",
        "(float[N, 3] x) => (float[A, B] y)",
        (13, "y = Flatten<axis = 1>(x)"),
        (13, "s = Constant<value = int64[2] {3, -1}>() y = Reshape(x, s)"),
    ),
    Pair(
        "empty tensors",
        "(float[N, 3] x) => (float[A, 3] y)",
        (13, "y = Identity(x)"),
        (
            13,
            "s = Constant<value = int64[2] {-1, 3}>() t = Reshape(x, s) "
            "m = ReduceMax<keepdims = 1>(t) d = Sub(t, m) y = Add(d, m)",
        ),
    ),
    Pair(
        "transposed weights",
        "(float[3, 3] a, float[3, 3] b) => (float[3, 3] y)",
        (11, "y = Gemm<transB = 1>(a, b)"),
        (9, "y = MatMul(a, b)"),
        "rounding",
    ),
    Pair(
        "floor for truncation",
        "(int32[N] a, int32[N] b) => (int32[N] y)",
        (14, "y = Div(a, b)"),
        (14, "f = Cast<to = 11>(a) g = Cast<to = 11>(b) q = Div(f, g) r = Floor(q) y = Cast<to = 6>(r)"),
    ),
]


@pytest.fixture(scope="module")
def rewrites() -> dict[str, Verification]:
    return dict(verify_rewrites([pair.rewrite() for pair in RIGHT + WRONG]).parts)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("models")
    jobs = []
    for number, pair in enumerate(RIGHT + WRONG):
        for side in ("before", "after"):
            (folder / f"{number}.{side}.onnx").write_bytes(pair.model(side).SerializeToString())
        job = {side: f"{number}.{side}.onnx" for side in ("before", "after")}
        jobs.append({**job, "accuracy": "model", "seed": 0, "seconds": 20})
    answers = run_jobs(jobs, folder, 30)
    return {pair.name: answer for pair, answer in zip(RIGHT + WRONG, answers, strict=True)}


@pytest.mark.parametrize("pair", RIGHT, ids=lambda pair: pair.name)
def test_right(pair: Pair, rewrites: dict[str, Verification], models: dict[str, dict]) -> None:
    assert rewrites[pair.name].verdict in (BIT_EXACT, WITHIN_ROUNDING), rewrites[pair.name]
    assert models[pair.name].get("verdict") in (BIT_EXACT, WITHIN_ROUNDING), models[pair.name]


@pytest.mark.parametrize("pair", WRONG, ids=lambda pair: pair.name)
def test_wrong(pair: Pair, rewrites: dict[str, Verification], models: dict[str, dict]) -> None:
    assert rewrites[pair.name].verdict == DIFFERENT, rewrites[pair.name]
    assert models[pair.name].get("verdict") == DIFFERENT, models[pair.name]


@pytest.mark.parametrize("pair, equal", [(RIGHT[0], True), (WRONG[0], False)])
def test_through_verify(pair: Pair, equal: bool) -> None:
    assert bool(verify(pair.model("before"), pair.model("after"))) is equal
