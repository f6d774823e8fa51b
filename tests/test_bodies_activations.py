"""Bodies of com.microsoft's activations and biases against onnxruntime's own kernels, or numpy where it has none."""

from __future__ import annotations

import math

import kernels
import numpy as np
import onnx
import pytest
from drawing import Draw, draws, same
from onnx import helper, numpy_helper

import relu_tools


def gelu(x):
    """x times the normal distribution function, in double precision."""
    x = x.astype(np.float64)
    return x * np.vectorize(lambda v: (1 + math.erf(v / math.sqrt(2))) / 2)(x)


@draws
@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "FastGelu with bias", "QuickGelu"])
def test_activation(op, seed):
    d = Draw(seed)
    shape = d.shape(int(d.rng.integers(1, 4)))
    x = d.floats(*shape) * 4
    inputs = [x, d.floats(shape[-1])] if "Bias" in op or "bias" in op else [x]
    alpha = d.any(None, 0.5, 1.0, -2.0) if op == "QuickGelu" else None
    # The kernels approximate erf and tanh.
    same(op.split()[0], inputs, alpha=alpha, bound=1e-5, **d.how)


@draws
def test_bias_split_gelu(seed):
    d = Draw(seed, np.float32, np.float16)
    n, s, half = d.shape(3)
    x, bias = d.floats(n, s, 2 * half), d.floats(2 * half)
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    expected = (left * gelu(right)).astype(d.dtype)
    same("BiasSplitGelu", [x, bias], expected=[expected], bound=2 * d.bound, **d.how)


@draws
def test_bias_add(seed):
    d = Draw(seed, np.float32, np.float16)
    n, s, c = d.shape(3)
    x, bias, skip = d.floats(n, s, c), d.floats(c), d.floats(n, s, c)
    expected = sum(value.astype(np.float64) for value in (x, bias, skip)).astype(d.dtype)
    same("BiasAdd", [x, bias, skip], expected=[expected], bound=d.bound, **d.how)


@draws
def test_bias_dropout(seed):
    d = Draw(seed)
    shape = d.shape(3)
    x, bias, residual = d.floats(*shape), d.floats(shape[-1]), d.maybe(*shape)
    training = d.any(None, np.array(False))
    outputs = d.any(1, 2)
    expected = [x + bias + (0 if residual is None else residual), np.ones(shape, bool)][:outputs]
    inputs = [x, bias, residual, d.any(None, np.array(0.5, np.float32)), training]
    same("BiasDropout", inputs, outputs, expected=expected, seed=d.any(None, 7), constants=[4], **d.how)


def test_dropout_in_training_is_refused():
    d = Draw(0)
    inputs = [d.floats(2, 3), d.floats(3), None, np.array(0.5, np.float32), np.array(True)]
    model, _, _ = kernels.one_node("BiasDropout", inputs, constants=[4], expected=[inputs[0]])
    with pytest.raises(relu_tools.ConversionError, match="may drop at random"):
        relu_tools.inline(model)


@draws
def test_bias_softmax(seed):
    d = Draw(seed, np.float32, np.float64)
    shape = d.shape(4)
    axis = d.turn(1, -1, 2, 3)
    inner = d.any(0, 1)
    x = d.floats(*shape)
    at = axis % 4
    bias = d.floats(*[1 if k < at and (k > 0 if inner else True) else size for k, size in enumerate(shape)])
    total = (x + bias).reshape(math.prod(shape[:at]), -1)
    exponents = np.exp(total - total.max(1, keepdims=True))
    expected = (exponents / exponents.sum(1, keepdims=True)).reshape(shape)
    same("BiasSoftmax", [x, bias], expected=[expected], axis=axis, is_inner_broadcast=inner, bound=1e-5, **d.how)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)])
def test_bias_softmax_of_nothing(shape, dynamic):
    x = np.zeros(shape, np.float32)
    for opset in (13, 17):
        same("BiasSoftmax", [x, x], expected=[x], axis=2, is_inner_broadcast=0, dynamic=dynamic, opset=opset)


# --- in whole models -----------------------------------------------------------------------
def chain(opset=17, **names):
    """A SkipLayerNormalization of what a FastGelu gives, whose types the model does not tell."""
    nodes = [
        helper.make_node("FastGelu", ["x", "b"], ["h"], domain="com.microsoft", name="gelu"),
        helper.make_node("SkipLayerNormalization", ["h", "x", "g"], ["y"], domain="com.microsoft", name="norm"),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    info = helper.make_tensor_value_info
    stored = [numpy_helper.from_array(np.linspace(0.5, 2, 4, dtype=np.float32), name) for name in ("b", "g")]
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["n", 3, 4])], [info("z", 1, ["n", 3, 4])], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("opset", [9, 13, 17, 21])
def test_one_body_after_another(opset):
    model = chain(opset)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    kernels.compare(kernels.run(model, {"x": x}), kernels.run(kernels.inlined(model), {"x": x}), atol=1e-5)


def test_rewrites_are_verified_by_the_kernels():
    inlining = relu_tools.inline(chain(), verify="changed")
    verification = inlining.report.verification
    assert verification and len(verification.parts) == 2
    assert all("onnxruntime" in judge for _, part in verification.parts for judge in part.judges)


def test_selection_and_imports():
    model = chain()
    kept = relu_tools.inline(model, exclude=["com.microsoft::FastGelu"])
    assert [node.op_type for node in kept.model.graph.node if node.domain] == ["FastGelu"]
    assert {entry.domain for entry in kept.model.opset_import} == {"", "com.microsoft"}
    whole = relu_tools.inline(model, domains=["com.microsoft"])
    assert "LayerNormalization" in [node.op_type for node in whole.model.graph.node]
    assert {entry.domain for entry in whole.model.opset_import} == {""}
    lacking = relu_tools.inline(model, missing_at=13).model
    assert not any(node.domain or node.op_type == "LayerNormalization" for node in lacking.graph.node)


def test_conversion_leaves_them_unless_asked():
    conversion = relu_tools.convert(chain(), 13, verify="off")
    assert [node.op_type for node in conversion.model.graph.node] == ["FastGelu", "SkipLayerNormalization", "Identity"]
    assert conversion.report.unknown_domains == ["com.microsoft"]
    operators = "com.microsoft::FastGelu and com.microsoft::SkipLayerNormalization"
    assert conversion.report.notes == [f"to become standard operators, {operators} can be inlined"]
    asked = relu_tools.convert(chain(), 13, inline=["com.microsoft::FastGelu"]).model
    assert [node.op_type for node in asked.graph.node if node.domain] == ["SkipLayerNormalization"]


@pytest.mark.parametrize("how", [{}, {"ops": ["com.microsoft::QuickGelu"]}, {"domains": ["com.microsoft"]}])
def test_in_branches_and_functions(how):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 14, "com.microsoft": 1, "my": 1]>
        g (float[N,4] x, bool c) => (float[N,4] y) {
            z = If (c) <then_branch = a () => (float[N,4] p) { p = com.microsoft.QuickGelu<alpha = 2.0>(x) },
                        else_branch = b () => (float[N,4] q) { r = com.microsoft.FastGelu(x)  q = my.F<a = 3.0>(r) }>
            y = my.F<a = 1.5>(z)
        }
        <domain: "my", opset_import: ["": 14, "com.microsoft": 1]>
        F <a> (u) => (w) { w = com.microsoft.QuickGelu<alpha: float = @a>(u) }
    """)
    inlined = relu_tools.inline(model, **how).model
    onnx.checker.check_model(inlined, full_check=True)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for c in (True, False):
        feeds = {"x": x, "c": np.array(c)}
        kernels.compare(kernels.run(model, feeds), kernels.run(inlined, feeds))


def test_a_model_of_these_operators_alone_gets_an_opset():
    model = chain()
    del model.graph.node[2:]
    del model.opset_import[0]
    model.graph.node[1].output[0] = "z"
    plain = relu_tools.inline(model, domains=["com.microsoft"]).model
    onnx.checker.check_model(plain, full_check=True)
    assert [entry.domain for entry in plain.opset_import] == [""]


def test_simplified_layer_normalization_of_ai_onnx_follows_to_another_opset():
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1, epsilon=1e-5)
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", 1, [2, 4]), info("g", 1, [4])], [info("y", 1, [2, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
    assert relu_tools.convert(model, 14).model.graph.node[0].op_type == "SimplifiedLayerNormalization"
    conversion = relu_tools.convert(model, 9)
    assert conversion.report.verification
    kernels.standard(conversion.model)
