"""The verifier itself: verdicts, judges, limits, and what it does with forms that cannot be run."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from relu_tools import external, judging, runners
from relu_tools.attribute_values import undefined_values
from relu_tools.compare import BIT_EXACT, DIFFERENT, NOT_VERIFIED, WITHIN_ROUNDING, Bound, Figures, compare, ulps
from relu_tools.report import ModelFileError
from relu_tools.verification import Rewrite, Verification, verify, verify_rewrites

EXACT = Bound.of("exact")


def parsed(opset: int, text: str, domains: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{domains}]> g {text}')


def unary(opset: int, op: str, type_: str = "float[N]") -> onnx.ModelProto:
    return parsed(opset, f"({type_} x) => ({type_} y) {{ y = {op}(x) }}")


def rewrite(before: onnx.ModelProto, after: onnx.ModelProto, **changes) -> Rewrite:
    fields = {
        "name": "node",
        "before": before.graph.node,
        "before_opsets": {"": before.opset_import[0].version},
        "after": after.graph.node,
        "after_opsets": {"": after.opset_import[0].version},
        "inputs": {v.name: v.type for v in before.graph.input},
        "constants": {},
        "outputs": {v.name: v.type for v in before.graph.output},
        "accuracy": "exact",
    }
    return Rewrite(**{**fields, **changes})


# compare


@pytest.mark.parametrize(
    "before, after, verdict, problem",
    [
        ([0.0, -0.0], [-0.0, 0.0], BIT_EXACT, ""),
        ([np.nan, np.inf], [np.nan, np.inf], BIT_EXACT, ""),
        ([1.0], [np.nextafter(np.float32(1), np.float32(2))], DIFFERENT, "1.0 against"),
        ([1.0, np.nan], [1.0, 0.0], DIFFERENT, "NaN at index (1,) only before"),
        ([1.0, 0.0], [1.0, np.nan], DIFFERENT, "NaN at index (1,) only after"),
        ([np.inf], [3.4e38], DIFFERENT, "inf against 3.39"),
        ([np.inf], [-np.inf], DIFFERENT, "inf against -inf"),
    ],
)
def test_exact_comparison(before: list, after: list, verdict: str, problem: str) -> None:
    figures = compare("y", np.array(before, np.float32), np.array(after, np.float32), EXACT)
    assert figures.verdict == verdict
    assert problem in figures.problem


@pytest.mark.parametrize(
    "before, after, problem",
    [
        (np.zeros(2, np.float16), np.zeros(2, np.float32), "float16 against float32"),
        (np.zeros(()), np.zeros(1), "shape () against (1,)"),
        (np.zeros((0, 2)), np.zeros((0, 3)), "shape (0, 2) against (0, 3)"),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "a sequence of 1 against one of 2"),
        ([np.zeros(1), np.zeros(1)], [np.zeros(1), np.ones(1)], "in element 1 of the sequence"),
        (np.zeros(1), None, "a tensor against nothing"),
        (np.array(["a"], object), np.array(["b"], object), "a against b"),
        (np.array(["a\0"], object), np.array(["a"], object), "at index (0,)"),
        (np.array([1 + 1j]), np.array([1 + 2j]), "1.0 against 2.0 at index (0, 1)"),
        (np.array(2**63 - 1), np.array(-(2**63)), "9223372036854775807 against"),
    ],
)
def test_structure(before, after, problem: str) -> None:
    figures = compare("y", before, after, Bound.of("rounding"))
    assert figures.verdict == DIFFERENT
    assert problem in figures.problem


def test_figures_of_integers_do_not_overflow() -> None:
    figures = compare("y", np.array([2**63 - 1]), np.array([-(2**63)]), EXACT)
    assert figures.max_ulp == 2**64 - 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_ulps_count_values_across_zero(dtype) -> None:
    zero, inf = np.array([0], dtype), np.array([np.inf], dtype)
    up, down = np.nextafter(zero, inf), np.nextafter(zero, -inf)
    assert ulps(up, down) == 2
    assert ulps(np.nextafter(up, inf), up) == 1


def test_figures_say_where_and_what() -> None:
    """Units in the last place of 1.0 in float32 are 2**-23."""
    one = np.array([[1, 1, 1, np.nan], [np.nan, np.inf, np.inf, -np.inf]], np.float32)
    other = one.copy()
    other[0, 1:3] += np.float32(2**-23) * np.array([1, 5], np.float32)
    other[1] = [0, np.inf, -np.inf, 2]
    figures = compare("y", one, other, Bound.of("body"))
    assert (figures.max_ulp, figures.place) == (5, "at index (0, 2)")
    assert figures.max_abs == pytest.approx(5 * 2**-23) and figures.differing == 5
    assert figures.histogram == [1, 1, 0, 1]
    assert figures.nonfinite == {
        "NaN in both": 1,
        "the same infinity in both": 1,
        "NaN only before": 1,
        "infinite only before, or of the other sign": 2,
    }
    again = compare("y", one, one, Bound.of("body"))
    again.add(figures)
    assert again.place == "at index (0, 2)" and again.histogram == [4, 1, 0, 1]
    assert again.nonfinite["NaN in both"] == 3


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_figures_of_integers(dtype) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    figures = compare("y", np.array([low, 3, 5], dtype), np.array([high, 3, 6], dtype), EXACT)
    assert figures.max_ulp == int(high) - int(low) and figures.place == "at index (0,)"
    bits = np.iinfo(dtype).bits
    assert figures.histogram == [1, 1, *[0] * (bits - 2), 1]


def test_rounding_bound_is_relative_to_the_typical_size() -> None:
    big = np.full(100, 1000.0, np.float32)
    noisy = big * np.float32(1 + 1e-6)
    assert compare("y", big, noisy, Bound.of("rounding")).verdict == WITHIN_ROUNDING
    assert compare("y", big, big * np.float32(1 + 1e-4), Bound.of("rounding")).verdict == DIFFERENT
    cancelled = big.copy()
    cancelled[0] = 1e-5
    assert (
        compare("y", big * 0 + cancelled, cancelled + np.float32(1e-5), Bound.of("rounding")).verdict == WITHIN_ROUNDING
    )


def test_an_initializer_rounded_to_float16_is_no_rounding_of_a_model() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)

    def model(values: np.ndarray) -> onnx.ModelProto:
        result = parsed(13, "(float[N, 8] x) => (float[N, 8] y) { y = MatMul(x, w) }")
        result.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
        return result

    assert verify(model(weights), model(weights.copy())).verdict == BIT_EXACT
    assert verify(model(weights), model(weights.astype(np.float16).astype(np.float32))).verdict == DIFFERENT


# verdicts


def test_equal_models_and_what_is_said_of_them() -> None:
    result = verify(unary(14, "Relu"), unary(13, "Relu"), seed=3)
    assert result and result.verdict == BIT_EXACT
    assert result.runs > 5 and result.judges[0].startswith("onnxruntime")
    assert "seed 3" in str(result)
    assert json.loads(json.dumps(result.to_dict()))["equal"] is True


def test_seed_repeats() -> None:
    pair = unary(13, "Sigmoid"), unary(13, "Tanh")
    first, again, other = (verify(*pair, seed=seed).to_dict() for seed in (1, 1, 2))
    assert first == again
    assert first["figures"] != other["figures"]


def test_paths_and_other_formats(tmp_path: Path) -> None:
    onnx.save(unary(14, "Relu"), tmp_path / "a.onnx")
    onnx.save(unary(13, "Relu"), tmp_path / "b.json")
    assert verify(tmp_path / "a.onnx", str(tmp_path / "b.json"))
    with pytest.raises(ModelFileError, match="none.onnx: No such file"):
        verify(tmp_path / "none.onnx", tmp_path / "a.onnx")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_text("no model")
    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        verify(tmp_path / "a.onnx", unary(13, "Relu"))


def test_external_data(tmp_path: Path) -> None:
    model = parsed(13, "(float[N, 64] x) => (float[N, 64] y) { y = MatMul(x, w) }")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    for name, opset in (("a", 13), ("b", 9)):
        model.opset_import[0].version = opset
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        onnx.save(copy, tmp_path / f"{name}.onnx", save_as_external_data=True, size_threshold=0, location=f"{name}.bin")
    assert verify(tmp_path / "a.onnx", tmp_path / "b.onnx").verdict == BIT_EXACT


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x) => (float[2] y) { k = Constant <value: tensor = float[2] {0, 0}> () y = Add (x, k) }",
        "(float[2] x) => (float[2] y) { y = own.F (x) } "
        '<domain: "own", opset_import: ["": 14]> F (a) => (b) '
        "{ k = Constant <value: tensor = float[2] {0, 0}> () b = Add (a, k) }",
        "(float[2] x) => (float[2] y) { c = Constant <value: tensor = bool {1}> () y = If (c) <"
        "then_branch = t () => (float[2] a) <float[2] k = {0, 0}> { a = Add (x, k) }, "
        "else_branch = e () => (float[2] b) { b = Identity (x) }> }",
    ],
    ids=["attribute", "function", "subgraph"],
)
def test_external_data_deep_inside_is_that_of_the_folder(text: str, tmp_path: Path, monkeypatch) -> None:
    model = parsed(14, text, ', "own": 1')
    for tensor in (t for t in external.tensors(model) if list(t.dims) == [2]):
        for field in external.PAYLOADS:
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="data.bin")
    for name, number in (("one", 1), ("two", 100), ("same", 1), ("here", 7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.onnx").write_bytes(model.SerializeToString())
        np.full(2, number, np.float32).tofile(tmp_path / name / "data.bin")
    monkeypatch.chdir(tmp_path / "here")
    paths = {name: tmp_path / name / "net.onnx" for name in ("one", "two", "same")}
    assert verify(paths["one"], paths["two"]).verdict == DIFFERENT
    assert verify(paths["one"], paths["same"]).verdict == BIT_EXACT


def test_inputs_of_the_user() -> None:
    before, after = unary(13, "Relu"), unary(13, "Identity")
    assert verify(before, after, inputs=[{"x": np.array([1, 2], np.float32)}]).verdict == BIT_EXACT
    result = verify(before, after, inputs=[{"x": np.array([1], np.float32)}, {"x": np.array([-1], np.float32)}])
    assert result.verdict == DIFFERENT and "the given inputs 1" in result.reason


def test_names_may_differ() -> None:
    after = parsed(13, "(float[N] u) => (float[N] v) { v = Relu(u) }")
    assert verify(unary(14, "Relu"), after)
    assert verify(unary(14, "Relu"), parsed(13, "(float[N] u) => (float[N] v) { v = Neg(u) }")).verdict == DIFFERENT


def test_outputs_are_matched_by_name() -> None:
    before = parsed(13, "(float[N] x) => (float[N] a, float[N] b) { a = Relu(x) b = Neg(x) }")
    after = parsed(13, "(float[N] x) => (float[N] b, float[N] a) { a = Relu(x) b = Neg(x) }")
    assert verify(before, after).verdict == BIT_EXACT


def test_an_overridable_initializer_is_no_input() -> None:
    before = parsed(13, "(float[N] x, float[1] w) => (float[N] y) { y = Mul(x, w) }")
    before.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2], np.float32), "w"))
    after = parsed(13, "(float[N] x) => (float[N] y) { y = Add(x, x) }")
    assert verify(before, after).verdict == BIT_EXACT


@pytest.mark.parametrize(
    "after",
    [
        parsed(13, "(float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Relu(x) }"),
        parsed(13, "(float[N] x, float[N] w) => (float[N] y) { y = Relu(x) }"),
    ],
)
def test_another_interface_is_different(after: onnx.ModelProto) -> None:
    assert verify(unary(14, "Relu"), after).verdict == DIFFERENT


# not verified


def test_no_kernel_is_not_verified() -> None:
    text = "(float[N] x) => (float[N] y) { y = other.Thing(x) }"
    result = verify(parsed(13, text, ', "other" : 1'), parsed(12, text, ', "other" : 1'))
    assert result.verdict == NOT_VERIFIED and not result
    assert "Thing" in result.reason


RANDOM = "(float[{n}] x) => (float[{n}] y) {{ {body} }}"


@pytest.mark.parametrize(
    "before, after, verdict",
    [
        ("y = RandomNormalLike(x)", "y = RandomNormalLike(x)", BIT_EXACT),
        ("y = RandomNormalLike<seed = 3.0>(x)", "y = RandomNormalLike<seed = 3.0>(x)", BIT_EXACT),
        ("y = RandomNormalLike(x)", "a = Identity(x) y = RandomNormalLike(a)", BIT_EXACT),
        ("y = RandomNormalLike(x)", "y = RandomNormalLike<mean = 3.0>(x)", DIFFERENT),
        ("y = RandomUniformLike(x)", "y = RandomNormalLike(x)", DIFFERENT),
        ("y = RandomNormalLike<seed = 3.0>(x)", "a = RandomNormalLike(x) y = Neg(a)", NOT_VERIFIED),
    ],
)
def test_random_operators_get_the_same_seeds(before: str, after: str, verdict: str) -> None:
    pair = (parsed(opset, RANDOM.format(n=64, body=body)) for opset, body in ((22, before), (21, after)))
    result = verify(*pair, seconds=20)
    assert result.verdict == verdict, result.reason
    assert verdict == BIT_EXACT or "random numbers" in result.reason


def test_a_run_that_fails_leaves_the_seeds_alone() -> None:
    text = "(float[N] x) => (float[3] y) { s = Constant<value = int64[1] {3}>() r = RandomNormalLike(x) " \
           "y = Reshape(r, s) }"  # fmt: skip
    given = [{"x": np.ones(size, np.float32)} for size in (3, 5, 3)]
    assert verify(parsed(14, text), parsed(13, text), inputs=given).verdict == BIT_EXACT


def test_random_numbers_of_another_type_are_different() -> None:
    before = parsed(14, "() => (float[3] y) { y = RandomUniform<shape = [3]>() }")
    after = parsed(13, "() => (double[3] y) { y = RandomUniform<shape = [3], dtype = 11>() }")
    assert verify(before, after).verdict == DIFFERENT


def test_random_operators_in_branches_get_seeds() -> None:
    text = "(bool c, float[8] x) => (float[8] y) {{ y = If(c)<then_branch = t() => (float[8] p) " \
           "{{ p = RandomNormalLike{0}(x) }}, else_branch = e() => (float[8] q) {{ q = Identity(x) }}> }}"  # fmt: skip
    one, other = parsed(14, text.format("")), parsed(13, text.format("<mean = 9.0>"))
    assert verify(one, parsed(13, text.format(""))).verdict == BIT_EXACT
    assert verify(one, other, seconds=20).verdict == DIFFERENT


def test_a_version_without_a_judge_is_not_verified() -> None:
    """No text says where linear samples of opset 6 lie, and onnx.reference would take them where today's do."""
    body = '(float[1, 1, 2, 2] x) => (float[A, B, C, D] y) {{ y = Upsample<mode = "{0}", {1}>(x) }}'
    before = parsed(7, body.format("linear", "scales = [1.0, 1.0, 2.0, 2.0]"))
    after = parsed(6, body.format("bilinear", "height_scale = 2.0, width_scale = 2.0"))
    assert verify(before, after).verdict == NOT_VERIFIED


EATER = parsed(
    14, "(float[N] x) => (float[A, B] y) { s = Constant<value = int64[2] {20000, 20000}>() y = Expand(x, s) }"
)


def test_memory_that_is_allowed() -> None:
    """Enough for the models, whatever the runtimes take; too little is no finding, on either side."""
    relu = unary(14, "Relu")
    assert verify(relu, unary(13, "Relu"), memory_mb=64).verdict == BIT_EXACT
    given = [{"x": np.ones(1, np.float32)}]
    for pair in ((EATER, EATER), (relu, EATER)):
        result = verify(*pair, inputs=given, memory_mb=200)
        assert result.verdict == NOT_VERIFIED and "200 MB were allowed" in result.reason, result.reason


def test_a_runtime_without_memory_is_no_finding() -> None:
    judge = runners.OnnxRuntime(unary(14, "Relu"))

    class Session:
        get_inputs, get_outputs = judge.session.get_inputs, judge.session.get_outputs

        def run(self, *_):
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc")

    judge.session = Session()
    with pytest.raises(MemoryError):
        judge.run({"x": np.ones(2, np.float32)})


def test_time_that_is_allowed() -> None:
    hangs = parsed(14, "(float x) => (float y) { c = Constant<value = bool {1}>() y = Loop(, c, x)"
                       "<body = b(int64 i, bool g, float v) => (bool h, float w) "
                       "{ h = Identity(g) w = Neg(v) }> }")  # fmt: skip
    start = time.monotonic()
    result = verify(hangs, hangs, seconds=2)
    assert result.verdict == NOT_VERIFIED and "more than 2 s" in result.reason
    assert time.monotonic() - start < 40


def test_models_that_fail_on_the_inputs_both_before_and_after() -> None:
    text = "(float[N, 3] x) => (float[A, B] y) { s = Constant<value = int64[2] {7, 11}>() y = Reshape(x, s) }"
    result = verify(parsed(14, text), parsed(13, text), inputs=[{"x": np.ones((2, 3), np.float32)}])
    assert result.verdict == NOT_VERIFIED and "the form before fails on the given inputs 0" in result.reason


def test_what_was_run_is_said() -> None:
    result = verify(unary(14, "Relu"), unary(13, "Relu"))
    assert sum(drawn.sets for drawn in result.drawn) == result.runs
    assert {"special values", "dynamic sizes of 0"} <= {drawn.what for drawn in result.drawn}
    assert all(set(drawn.inputs) == {"x"} and drawn.inputs["x"].startswith("float[") for drawn in result.drawn)


def test_equal_rewrites_are_told_by_their_own_names() -> None:
    text = "(float[N] {0}) => (float[N] {1}) {{ {1} = Relu({0}) }}"
    pairs = [[parsed(opset, text.format(*names)) for opset in (14, 13)] for names in ("ab", "cd")]
    result = verify_rewrites([rewrite(*pair, name=str(number)) for number, pair in enumerate(pairs)])
    assert [part.figures[0].name for _, part in result.parts] == ["b", "d"]
    assert [list(part.drawn[0].inputs) for _, part in result.parts] == [["a"], ["c"]]


def test_death_hang_and_memory_take_one_rewrite_each() -> None:
    dies = parsed(14, "(int32[N] x) => (int32[N] y) { m = Constant<value = int32 {-2147483648}>() "
                      "n = Constant<value = int32 {-1}>() d = Div(m, n) y = Add(x, d) }")  # fmt: skip
    hangs = parsed(14, "(float x) => (float y) { c = Constant<value = bool {1}>() y = Loop(, c, x)"
                       "<body = b(int64 i, bool g, float v) => (bool h, float w) "
                       "{ h = Identity(g) w = Neg(v) }> }")  # fmt: skip
    eats = parsed(
        14, "(float x) => (float[A, B] y) { s = Constant<value = int64[2] {1000000, 1000000}>() y = Expand(x, s) }"
    )
    good = rewrite(unary(14, "Relu"), unary(13, "Relu"), name="good")
    rewrites = [rewrite(m, m, name=n) for n, m in (("dies", dies), ("hangs", hangs), ("eats", eats))]
    start = time.monotonic()
    result = verify_rewrites([rewrites[0], good, *rewrites[1:], good], seconds=3)
    assert time.monotonic() - start < 50
    parts = [part.verdict for _, part in result.parts]
    assert parts == [NOT_VERIFIED, BIT_EXACT, NOT_VERIFIED, NOT_VERIFIED, BIT_EXACT]
    assert result.verdict == NOT_VERIFIED
    reasons = dict((name, part.reason) for name, part in result.parts)
    assert "died" in reasons["dies"] and "more than 3 s" in reasons["hangs"] and reasons["eats"]


# judges


def test_without_onnxruntime_the_reference_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners.importlib.util, "find_spec", lambda name: None)
    (maker,) = runners.judges(unary(14, "Relu"))
    judge = maker()
    assert judge.name == "reference evaluator"
    assert judge.run({"x": np.array([-1, 2], np.float32)})["y"].tolist() == [0, 2]


@pytest.mark.parametrize("opset, names", [(7, ["OnnxRuntime", "Reference"]), (6, ["Reference"])])
def test_onnxruntime_judges_from_opset_7_on(opset: int, names: list[str]) -> None:
    assert [type(maker()).__name__ for maker in runners.judges(unary(opset, "Relu"))] == names


def test_a_function_of_an_old_opset_keeps_onnxruntime_away() -> None:
    model = unary(14, "Relu")
    model.functions.append(
        helper.make_function(
            "local", "F", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], [helper.make_opsetid("", 6)]
        )
    )
    assert runners.default_opset(model) == 6


@pytest.mark.parametrize("element", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN])
def test_types_that_numpy_lacks_pass_through_onnxruntime(element: int) -> None:
    model = unary(21, "Identity")
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = element
    x = np.array([1, -2, 0.5], helper.tensor_dtype_to_np_dtype(element))
    y = runners.OnnxRuntime(model).run({"x": x})["y"]
    assert y.dtype == x.dtype and y.tolist() == x.tolist()


def test_bfloat16_goes_to_the_reference_where_onnxruntime_has_no_kernel() -> None:
    result = verify(unary(14, "Relu", "bfloat16[N]"), unary(13, "Relu", "bfloat16[N]"))
    assert result.verdict == BIT_EXACT
    assert result.judges == ("reference evaluator", "reference evaluator")


def test_two_judges_that_disagree_are_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from relu_tools import legacy

    legacy.implementation.cache_clear()
    monkeypatch.setitem(legacy.MEANINGS, "Relu", [(1, 29, lambda node, x: x + 1)])
    onnx.save(unary(14, "Relu"), tmp_path / "a.onnx")
    onnx.save(unary(6, "Relu"), tmp_path / "b.onnx")
    job = {"before": "a.onnx", "after": "b.onnx", "accuracy": "exact", "seed": 0, "seconds": 9}
    answer = judging.judge_job(job, tmp_path)
    legacy.implementation.cache_clear()
    assert answer["verdict"] == NOT_VERIFIED and "disagree" in answer["reason"]


# rewrites


def test_equal_rewrites_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    real = runners.run_jobs

    def counting(jobs, *rest):
        ran.extend(jobs)
        return real(jobs, *rest)

    monkeypatch.setattr("relu_tools.verification.run_jobs", counting)
    text = "(float[{n}] {a}) => (float[{n}] {b}) {{ {b} = Relu({a}) }}"
    one, two = text.format(n="N", a="x", b="y"), text.format(n="M", a="in", b="out")
    three = text.format(n="5", a="x", b="y")
    result = verify_rewrites(
        [rewrite(parsed(14, t), parsed(13, t), name=str(i)) for i, t in enumerate((one, two, three))]
    )
    assert len(ran) == 2
    assert [name for name, _ in result.parts] == ["0", "1", "2"] and result.verdict == BIT_EXACT


def test_constants_take_part_as_they_are() -> None:
    before = parsed(13, "(float[2, 3] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }")
    after = parsed(4, "(float[2, 3] x) => (float[A, B] y) { y = Reshape<shape = [3, 2]>(x) }")
    shape = onnx.numpy_helper.from_array(np.array([3, 2]), "s")
    assert verify_rewrites([rewrite(before, after, constants={"s": shape})]).verdict == BIT_EXACT
    shape = onnx.numpy_helper.from_array(np.array([6, 1]), "s")
    assert verify_rewrites([rewrite(before, after, constants={"s": shape})]).verdict == DIFFERENT


def test_unknown_shapes() -> None:
    before, after = unary(14, "Relu"), unary(13, "Relu")
    bare = {"x": helper.make_tensor_type_proto(TensorProto.FLOAT, None)}
    result = verify_rewrites([rewrite(before, after, inputs=bare, outputs={"y": onnx.TypeProto()})])
    assert result.verdict == BIT_EXACT and result.runs > 7
    wrong = parsed(13, "(float[N] x) => (float[N] y) { a = Constant<value = int64[1] {-1}>() y = Reshape(x, a) }")
    assert verify_rewrites([rewrite(unary(14, "Identity"), wrong, inputs=bare)]).verdict == DIFFERENT


def test_local_functions_that_the_node_calls() -> None:
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 14)])
    call = parsed(14, "(float[N] x) => (float[N] y) { y = local.F(x) }")
    assert verify_rewrites([rewrite(call, unary(13, "Relu"), functions=[function])]).verdict == BIT_EXACT
    assert verify_rewrites([rewrite(call, unary(13, "Neg"), functions=[function])]).verdict == DIFFERENT


def test_captured_names() -> None:
    text = "(bool c, float[N] x) => (float[N] y) {{ y = If(c)<then_branch = t() => (float[N] p) {{ p = {0}(x) }}, " \
           "else_branch = e() => (float[N] q) {{ q = Identity(x) }}> }}"  # fmt: skip
    right, wrong = parsed(13, text.format("Relu")), parsed(13, text.format("Neg"))
    assert verify_rewrites([rewrite(parsed(14, text.format("Relu")), right)]).verdict == BIT_EXACT
    assert verify_rewrites([rewrite(parsed(14, text.format("Relu")), wrong)]).verdict == DIFFERENT


def test_the_claim_sets_the_bound() -> None:
    before = parsed(13, "(float[N] x) => (float[N] y) { y = Sigmoid(x) }")
    after = parsed(13, "(float[N] x) => (float[N] y) { o = Constant<value = float {1.0}>() n = Neg(x) "
                       "e = Exp(n) s = Add(e, o) y = Reciprocal(s) }")  # fmt: skip
    verdicts = [verify_rewrites([rewrite(before, after, accuracy=a)]).verdict for a in ("exact", "rounding")]
    assert verdicts == [DIFFERENT, WITHIN_ROUNDING]


def test_progress_and_sentence() -> None:
    seen = []
    good, bad = rewrite(unary(14, "Relu"), unary(13, "Relu")), rewrite(unary(14, "Relu"), unary(13, "Neg"), name="bad")
    result = verify_rewrites([good, bad], progress=lambda *count: seen.append(count))
    assert seen == [(1, 2), (2, 2)]
    assert (
        not result
        and result.verdict == DIFFERENT
        and "bad" in str(result)
        and "1 bit-exact, 1 different" in str(result)
    )
    assert verify_rewrites([]).verdict == BIT_EXACT


def test_importing_is_light() -> None:
    import subprocess

    heavy = ("onnxruntime", "onnx.reference", "rich")
    code = f"import sys, relu_tools.verification; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.strip() == "[]", done.stderr


# attribute values that a version lacks


@pytest.mark.parametrize("opset, mode, found", [(18, "wrap", True), (19, "wrap", False), (13, "edge", False)])
def test_undefined_values(opset: int, mode: str, found: bool) -> None:
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    graph = helper.make_graph([node], "g", [], [])
    inside = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    assert bool(undefined_values([node], opset)) is found
    assert bool(undefined_values([inside], opset)) is found


def test_str_of_figures() -> None:
    apart = Figures("y", 1e-6, 1e-6, 3, 2, 10, WITHIN_ROUNDING)
    text = str(Verification(WITHIN_ROUNDING, [apart], ("onnxruntime 1", "reference evaluator"), 0, 4))
    assert "3 ULP" in text and "onnxruntime 1 before and reference evaluator after" in text


def _constant(value: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g () => (float[2] y) {{ y = Constant <{value}> () }}'
    )


def test_a_model_without_inputs_is_run_once():
    before = _constant("value_floats = [1.5, 2.5]", 16)
    assert verify(before, _constant("value = float[2] {1.5, 2.5}", 11)).verdict == "bit-exact"
    assert verify(before, _constant("value = float[2] {1.5, 3.5}", 11)).verdict == "different"


def test_ranks_that_declared_types_rule_out_are_not_tried():
    head = '<ir_version: 8, opset_import: ["": 13]> g (float x, bool c) => (float y)'
    before = onnx.parser.parse_model(
        head
        + "{ y = If (c) <then_branch = t () => (float[N,M] a) { a = Identity (x) },"
        + " else_branch = e () => (float[N,M] b) { b = Relu (x) }> }"
    )
    after = onnx.ModelProto()
    after.CopyFrom(before)
    # Two Transposes that cancel out, but for two dimensions only.
    after.graph.node[0].input[0] = "c"
    for attribute in after.graph.node[0].attribute:
        attribute.g.node[0].input[0] = "again"
    turned = [helper.make_node("Transpose", ["x"], ["once"], perm=[1, 0])]
    turned.append(helper.make_node("Transpose", ["once"], ["again"], perm=[1, 0]))
    nodes = [*turned, *after.graph.node]
    del after.graph.node[:]
    after.graph.node.extend(nodes)
    for model in (before, after):
        model.graph.input[0].type.tensor_type.ClearField("shape")
        model.graph.output[0].type.tensor_type.ClearField("shape")
    found = verify(before, after)
    assert found.verdict == "bit-exact", found.reason
