"""Every operator with a function body, at every opset at which it exists: expanded, valid, typed, and equal.

What is expected is computed in numpy from the specification's text (`function_meanings`, `attention_meanings`), since
onnxruntime and onnx.reference themselves expand many of these operators by the body that is to be tested. Where
onnxruntime has a kernel of its own, that is held against the same meaning.

The default run takes a fixed sample of the calls; the marker `slow` takes every one.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from function_checks import VERSIONS, build, calls, compare, dtype_of, expand, look_below, lower, run, value_info
from function_meanings import MEANINGS
from onnx import helper

import relu_tools
from relu_tools import schemas
from relu_tools.runners import OnnxRuntime

STRIDE = 97
EACH = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v.op}-{v.since}")


@EACH
def test_a_sample_of_the_calls(version):
    wrong, count = expand(version, STRIDE)
    assert wrong == [] and count > 0


@pytest.mark.slow
@EACH
def test_every_call(version):
    wrong, count = expand(version, 1)
    assert wrong == [] and count > 0


# --- whether the meanings are right ------------------------------------------------------------
@functools.cache
def kernels() -> set[tuple[str, int]]:
    """Operators that onnxruntime computes by itself, with the first versions from which it does."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = set()
    for kernel in getattr(state, "get_all_opkernel_def", list)():
        types = {t for kinds in kernel.type_constraints.values() for t in kinds}
        if kernel.domain in ("", "ai.onnx") and "CPU" in kernel.provider and (not types or "tensor(float)" in types):
            found.add((kernel.op_name, kernel.version_range[0]))
    return found


@pytest.mark.parametrize(
    "version", [v for v in VERSIONS if (v.op, v.since) in kernels()], ids=lambda v: f"{v.op}-{v.since}"
)
def test_the_meaning_is_that_of_the_kernel(version):
    """For inputs of float, within what a float tells; not of ends, where kernels differ, nor what a kernel refuses.

    Attention's scores after the mask are passed over: the kernel has the lowest number there for minus infinity.
    """
    opset = max(version.since, 7)
    wrong, compared = [], 0
    for call in calls(version):
        if set(call.types.values()) <= {"tensor(float)", "tensor(bool)", "tensor(int64)"} and call.how == "fixed":
            if call.attributes.get("qk_matmul_output_mode") == 2:
                continue
            built = build(call, opset)
            if all(np.isfinite(a).all() for a in built.feeds.values()):
                try:
                    found = OnnxRuntime(built.model).run(built.feeds)
                except Exception:
                    continue
                compared += 1
                problem = compare(found, built.wanted, call, {"tensor(float)"})
                wrong += [f"{call}: {problem}"] if problem else []
    assert wrong == [] and compared > 0


# --- what the table does not tell --------------------------------------------------------------
def one(op: str, opset: int, inputs: dict[str, np.ndarray], shapes: dict[str, list] | None = None, **attributes):
    """A model of one node, and what it is fed with; sizes are those of `shapes` where it has them."""
    infos = [value_info(name, array, "fixed") for name, array in inputs.items()]
    for info in infos:
        if shapes and info.name in shapes:
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, shapes[info.name]))
    version = schemas.at("", op, opset)
    assert version is not None
    outputs = [formal.name for formal in version.outputs[: version.schema.min_output]]
    node = helper.make_node(op, list(inputs), outputs, name="call", **attributes)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=version.outputs[0].name)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def first_output(model: onnx.ModelProto, feeds: dict[str, Any]) -> np.ndarray:
    inlined = onnx.shape_inference.infer_shapes(relu_tools.inline(model).model, True, True, True)
    return next(iter(run(inlined, feeds).values()))


@pytest.mark.parametrize("opset", [11, 18, 27])
def test_a_range_between_vectors_of_one_element(opset):
    """As runtimes take them, where the schema asks for scalars."""
    feeds = {name: np.array([n], np.int64) for name, n in (("start", 2), ("limit", 9), ("delta", 3))}
    np.testing.assert_array_equal(first_output(one("Range", opset, feeds), feeds), [2, 5, 8])


def test_a_range_past_what_a_float_counts():
    feeds = {name: np.array(n, np.int64) for name, n in (("start", 0), ("limit", 2**24 + 3), ("delta", 1))}
    result = first_output(one("Range", 18, feeds), feeds)
    assert result.shape == (2**24 + 3,) and result[-1] == 2**24 + 2


@pytest.mark.skipif(schemas.newest() < 27, reason="no CausalConvWithState yet")
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_causal_convolution_of_any_number_of_channels(activation):
    rng = np.random.default_rng(0)
    feeds = {"input": rng.normal(size=(2, 3, 5)), "weight": rng.normal(size=(3, 1, 4)), "bias": rng.normal(size=3)}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    shapes = {"input": ["n", "c", "l"], "weight": ["c", 1, 4], "bias": ["c"]}
    model = one("CausalConvWithState", 27, feeds, shapes, activation=activation)
    wanted = MEANINGS["CausalConvWithState"](*feeds.values(), activation=activation)[0]
    np.testing.assert_allclose(first_output(model, feeds), wanted, rtol=1e-4, atol=1e-5)
    model = one("CausalConvWithState", 27, feeds, {**shapes, "weight": ["c", 1, "k"]}, activation=activation)
    with pytest.raises(relu_tools.ConversionError, match="the number of channels of 'input' is not known"):
        relu_tools.inline(model)


def test_cast_like_hands_its_attributes_on():
    feeds = {"input": np.array([1000], np.float32), "target_type": np.zeros(1, dtype_of("tensor(float8e4m3fn)"))}
    assert first_output(one("CastLike", 19, feeds), feeds).astype(np.float32) == 448
    assert np.isnan(first_output(one("CastLike", 19, feeds, saturate=0), feeds).astype(np.float32))


def test_bernoulli_draws_ones_with_the_probability_given():
    feeds = {"input": np.full(20_000, 0.2, np.float32)}
    assert abs(first_output(one("Bernoulli", 22, feeds, seed=1.0), feeds).mean() - 0.2) < 0.02


def test_a_type_that_a_body_depends_on_and_nothing_tells_is_named():
    text = """
    <ir_version: 10, opset_import: ["" : 22, "vendor" : 1]>
    g (float[3] x) => (float[3] y) { t = vendor.Do (x) y = Softmax (t) }
    """
    with pytest.raises(relu_tools.ConversionError, match="depends on the type of 't', which is not known"):
        relu_tools.inline(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("op", "opset", "dtype", "judge"),
    [
        ("Bernoulli", 22, "float", "reference evaluator"),
        ("HardSwish", 22, "double", "reference evaluator"),
        ("Softplus", 22, "float16", "reference evaluator"),
        ("Gelu", 22, "double", "reference evaluator"),
        ("Softplus", 22, "float", "onnxruntime"),
    ],
)
def test_onnxruntime_is_no_judge_of_what_it_computes_by_another_body(op, opset, dtype, judge):
    """Where it has no kernel it expands the schema's body, which of these is not what the operator is."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({dtype}[4] x) => ({dtype}[4] y) {{ y = {op} (x) }}'
    )
    verification = relu_tools.inline(model, verify="changed").report.verification
    assert verification and {name.split(" 1.")[0] for _, part in verification.parts for name in part.judges} == {judge}


@pytest.mark.skipif(schemas.at("ai.onnx.preview", "FlexAttention", 1) is None, reason="no FlexAttention yet")
@pytest.mark.parametrize("opset", [22, 28])
def test_a_body_of_another_domain_that_does_not_say_what_opset_it_is_written_in(opset):
    text = """
    <ir_version: 11, opset_import: ["" : %d, "ai.onnx.preview" : 1]>
    g (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v) => (float[1, 2, 3, 4] y) {
      y = ai.onnx.preview.FlexAttention (q, k, v)
    }
    """
    feeds = {name: np.random.default_rng(k).normal(size=(1, 2, 3, 4)) for k, name in enumerate("qkv")}
    wanted = MEANINGS["Attention"](*feeds.values(), is_causal=0, qk_matmul_output_mode=0, softcap=0.0)[0]
    model = onnx.parser.parse_model(text % opset)
    found = first_output(model, {name: array.astype(np.float32) for name, array in feeds.items()})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# --- below the operators' birth ------------------------------------------------------------------
@EACH
def test_a_sample_of_the_calls_below_their_birth(version):
    wrong, _, _ = lower(version, 499)
    assert wrong == []


@pytest.mark.slow
@EACH
def test_every_call_below_its_birth(version):
    wrong, count, refused = lower(version, 1)
    # bfloat16, the narrow types and int16 exist at few of the opsets.
    assert wrong == [] and refused <= 0.6 * count


@pytest.mark.skipif(schemas.newest() < 23, reason="no Attention yet")
@pytest.mark.parametrize("target", [7, 9, 12])
def test_causal_attention_reaches_old_opsets(target):
    """Its scores are of a rank that only the chain of operators before tells."""
    version = schemas.at("", "Attention", 23)
    call = next(c for c in calls(version) if c.attributes == {"is_causal": 1} and c.inputs == ["Q", "K", "V"])
    assert look_below(call, 23, target) == ""
