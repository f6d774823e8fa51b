"""Which judge is asked, when two are, and what needs no run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import relu_tools
from relu_tools import judging
from relu_tools.attribute_values import counted_from_the_back, undefined_values
from relu_tools.compare import BIT_EXACT, DIFFERENT, NOT_VERIFIED
from relu_tools.trust import never_rounds, onnxruntime_misreads
from relu_tools.verification import Rewrite, verify, verify_rewrites


def parsed(opset: int, text: str, functions: str = "", domains: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{domains}]> g {text} {functions}')


def same(opset: int, type_: str, body: str) -> onnx.ModelProto:
    return parsed(opset, f"({type_} x) => ({type_} y) {{ {body} }}")


# What needs no run


@pytest.mark.parametrize(
    "before, after, told",
    [
        ("float[N]", "double[N]", "input x is float[N] before and double[N] after"),
        ("float[N]", "float[3]", "input x is float[N] before and float[3] after"),
        ("float[2, N]", "float[N]", "input x is float[2, N] before and float[N] after"),
    ],
)
def test_an_input_may_not_become_narrower(before: str, after: str, told: str) -> None:
    found = verify(same(13, before, "y = Identity(x)"), same(13, after, "y = Identity(x)"))
    assert found.verdict == DIFFERENT and found.reason == told


def test_an_input_may_become_wider() -> None:
    assert verify(same(13, "float[3]", "y = Identity(x)"), same(13, "float[N]", "y = Identity(x)"))


def test_a_value_that_one_opset_does_not_define() -> None:
    wrap = 'p = Constant<value = int64[2] {1, 1}>() y = Pad<mode = "wrap">(x, p)'
    old, new = (parsed(opset, f"(float[4] x) => (float[6] y) {{ {wrap} }}") for opset in (18, 19))
    assert verify(new, old).verdict == DIFFERENT
    backward = verify(old, new)
    assert backward.verdict == NOT_VERIFIED and "the form before is not valid" in backward.reason
    assert verify(old, old)


@pytest.mark.parametrize(
    "op, attributes, opset, found",
    [
        ("Concat", {"axis": -1}, 10, True),
        ("Concat", {"axis": -1}, 11, False),
        ("Softmax", {"axis": -1}, 10, True),
        ("ReduceMean", {"axes": [0, -1]}, 9, True),
        ("Unsqueeze", {"axes": [0, 1]}, 9, False),
        ("Gather", {"axis": -1}, 9, False),
        ("TopK", {"axis": -1}, 9, False),
        ("Add", {"axis": -1}, 6, False),
    ],
)
def test_axes_from_the_back(op: str, attributes: dict, opset: int, found: bool) -> None:
    node = onnx.helper.make_node(op, ["x"], ["y"], **attributes)
    assert bool(counted_from_the_back([node], opset)) is found


def test_an_old_model_may_count_from_the_back_as_runtimes_let_it() -> None:
    old, new = (same(opset, "float[2, 3]", "y = Softmax<axis = -1>(x)") for opset in (10, 11))
    assert verify(old, new) and verify(old, old) and not verify(new, old)


@pytest.mark.parametrize("names, found", [(["Tanh"], False), (["relu"], False), (["Gelu"], True)])
def test_names_of_activations(names: list[str], found: bool) -> None:
    node = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], activations=names)
    assert bool(undefined_values([node], 14)) is found


def test_operators_that_never_round_leave_no_room() -> None:
    exact, rounded = "f = Cast<to = 1>(x) y = Cast<to = 10>(f)", "y = Mul(x, x)"
    assert never_rounds(same(13, "float16[N]", exact)) and not never_rounds(same(13, "float16[N]", rounded))
    # Less than what rounding may do to a product is too much for a copy.
    body = "f = Cast<to = 1>(x) t = Constant<value = float {{6e-5}}>() a = Abs(f) l = Less(a, t) " \
           "z = Constant<value = float {{0.0}}>() w = Where(l, z, f) y = Cast<to = 10>(w)"  # fmt: skip
    assert verify(same(13, "float16[N]", "y = Identity(x)"), same(13, "float16[N]", body.format())).verdict == DIFFERENT


# Which judge


def test_a_function_runs_at_its_own_opset() -> None:
    function = '<opset_import: ["" : 11], domain: "own"> F(a) => (b) { b = Softmax(a) }'
    text = "(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = own.F(x) }"
    model = parsed(13, text, function, ', "own" : 1')
    assert "Softmax" in onnxruntime_misreads(model)
    assert verify(model, same(11, "float[2, 3, 4]", "y = Softmax(x)"))
    assert verify(model, same(13, "float[2, 3, 4]", "y = Softmax(x)")).verdict == DIFFERENT
    assert not onnxruntime_misreads(parsed(13, text, function.replace("11", "13"), ', "own" : 1'))


def test_nothing_is_dropped_in_a_mask_of_inference() -> None:
    text = "(float[N] x) => (float[N] y, bool[N] m) {{ y, {0} = Dropout(x) {1} }}"
    before = parsed(10, text.format("m", ""))
    assert "mask" in onnxruntime_misreads(before)
    assert verify(before, parsed(13, text.format("m", ""))).verdict == BIT_EXACT
    assert verify(before, parsed(13, text.format("n", "m = Not(n)"))).verdict == DIFFERENT


@pytest.mark.parametrize("alpha, misread", [(0.3, True), (0.25, False)])
def test_a_threshold_has_the_type_of_what_it_is_compared_with(alpha: float, misread: bool) -> None:
    model = same(22, "float16[N]", f"y = ThresholdedRelu<alpha = {alpha}>(x)")
    assert bool(onnxruntime_misreads(model)) is misread
    body = f"a = Constant<value = float {{{alpha}}}>() z = Constant<value = float {{0.0}}>() b = Cast<to = 10>(a) " \
           "n = Cast<to = 10>(z) c = Greater(x, b) y = Where(c, x, n)"  # fmt: skip
    assert verify(model, same(9, "float16[N]", body)).verdict == BIT_EXACT


# Two judges


@pytest.mark.parametrize("type_", ["float[N]", "float[3,128,128]"])
@pytest.mark.parametrize("narrow", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_a_cast_to_16_bits_rounds(type_: str, narrow: int) -> None:
    """onnxruntime leaves out the casts there and back that it put in itself, and that to 16 bits with them."""
    found = verify(
        same(13, type_, "y = Tanh(x)"),
        same(13, type_, f"f = Cast<to = {narrow}>(x) t = Tanh(f) y = Cast<to = 1>(t)"),
    )
    assert found.verdict == DIFFERENT


def test_a_cast_to_16_bits_rounds_in_graphs_within() -> None:
    def branch(name: str, body: str) -> str:
        return f"{name}_branch = {name} () => (float[3,128,128] {name}) {{ {body} }}"

    text = "(float[3,128,128] x, bool c) => (float[3,128,128] y) { y = If (c) <%s, %s> }"
    wide = branch("then", "then = Tanh(x)"), branch("else", "else = Tanh(x)")
    narrow = branch("else", "f = Cast<to = 10>(x) t = Tanh(f) else = Cast<to = 1>(t)")
    assert verify(parsed(13, text % wide), parsed(13, text % (wide[0], narrow))).verdict == DIFFERENT


def test_one_judge_that_finds_a_difference_is_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from relu_tools import legacy

    def wrong_from_14_on(node, x):
        return np.maximum(x, 0)

    legacy.implementation.cache_clear()
    meanings = [(1, 14, wrong_from_14_on), (14, 29, lambda node, x: np.maximum(x, 1))]
    monkeypatch.setitem(legacy.MEANINGS, "Relu", meanings)
    for name, opset in (("a", 14), ("b", 13)):
        onnx.save(same(opset, "float[N]", "y = Relu(x)"), tmp_path / f"{name}.onnx")
    job = {"before": "a.onnx", "after": "b.onnx", "accuracy": "exact", "seed": 0, "seconds": 9}
    answer = judging.judge_job(job, tmp_path)
    legacy.implementation.cache_clear()
    assert answer["verdict"] == NOT_VERIFIED
    assert "the reference evaluator finds a difference" in answer["reason"] and answer["runs"] > 3


@pytest.mark.parametrize(
    "op, body, equal",
    [
        ("LeakyRelu", "LeakyRelu<alpha: float = @slope>(x)", True),
        ("LeakyRelu", "LeakyRelu(x)", False),
        ("LeakyRelu", "LeakyRelu<alpha: float = @other>(x)", False),
        ("Elu", "Elu(x)", False),
        ("Selu", "Selu<alpha: float = @slope>(x)", True),
    ],
)
def test_an_attribute_of_the_function_around_is_not_its_default(op: str, body: str, equal: bool) -> None:
    def nodes(text: str) -> list[onnx.NodeProto]:
        header = '<opset_import: ["" : 16], domain: "own"> F <slope, other>(x) => (y)'
        return list(onnx.parser.parse_function(f"{header} {{ y = {text} }}").node)

    rewrite = Rewrite(
        name="node",
        before=nodes(f"{op}<alpha: float = @slope>(x)"),
        before_opsets={"": 16},
        after=nodes(body),
        after_opsets={"": 15},
        inputs={"x": onnx.helper.make_tensor_type_proto(1, ["N"])},
        constants={},
        outputs={"y": onnx.TypeProto()},
        accuracy="exact",
    )
    assert bool(verify_rewrites([rewrite])) is equal


# Runs that fail

# The least integer by one less than the number of elements: by -1 of nothing, of which a processor dies.
DIES = (
    "s = Size(x) q = Constant<value = int64 {-9223372036854775808}>() o = Constant<value = int64 {1}>() "
    "m = Sub(s, o) d = Div(q, m)"
)


def test_a_form_that_dies_of_one_set_of_inputs_is_judged_by_the_others() -> None:
    before = parsed(13, f"(float[N] x) => (int64 y) {{ {DIES} y = Identity(d) }}")
    found = verify(before, before)
    assert found and not any("sizes of 0" in drawn.what for drawn in found.drawn)


def test_a_form_that_alone_dies_of_a_set_of_inputs_is_different() -> None:
    before, dies = (parsed(13, f"(float[N] x) => (float[N] y) {{ {body} y = Neg(x) }}") for body in ("", DIES))
    found = verify(before, dies)
    assert found.verdict == DIFFERENT and "kills the process" in found.reason and "sizes of 0" in found.reason


def test_the_child_imports_nothing_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("json", "types", "numpy", "onnx", "relu_tools"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    model = parsed(14, "(float[2] x) => (float[2] y) { y = Relu (x) }")
    assert verify(model, model).verdict == BIT_EXACT


FOREIGN = """(float[2,8] x) => (float[2,4] y) <uint8[8,4] w = WEIGHTS, float s = {0.1}>
    { y = com.microsoft.DynamicQuantizeMatMul (x, w, s) }""".replace("WEIGHTS", str({*range(32)}))


def test_what_a_kernel_alone_tells_of_infinities_is_no_difference() -> None:
    """The body of DynamicQuantizeLinear gives a NaN for an infinity, the kernel that fuses it a number."""
    pytest.importorskip("onnxruntime")
    before = parsed(13, FOREIGN, domains=', "com.microsoft": 1')
    after = relu_tools.inline(before).model
    found = verify(before, after)
    assert found.verdict == NOT_VERIFIED and "its kernel alone tells" in found.reason and found.runs > 20
    wrong = next(node for node in after.graph.node if list(node.output) == ["y"])
    wrong.op_type = "Add"
    assert verify(before, after).verdict == DIFFERENT


def test_inputs_that_a_judge_does_not_take_are_the_reason() -> None:
    """The number of keys is drawn below 0."""
    pytest.importorskip("onnxruntime")
    text = """(float[1,1,16] q, float[1,1,8] k, float[1,1,8] v, int32[1] l, int32[1] t) => (float[1,1,16] y)
        { y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, k, v, "", "", l, t) }"""
    model = parsed(17, text, domains=', "com.microsoft": 1')
    found = verify(model, model)
    assert found.verdict == NOT_VERIFIED and "onnxruntime" in found.reason and "no judge" not in found.reason


def test_dimensions_that_must_be_alike() -> None:
    model = parsed(13, "(float[N] a, float[M] b) => (float[N] y) { y = Add(a, b) }")
    found = verify(model, model)
    assert found and found.runs > 10
