"""Models that onnxruntime's optimizers have rewritten with operators of their own, brought back to standard ONNX."""

from __future__ import annotations

import collections

import kernels
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import relu_tools

WIDTH, HEADS, PLACES, WORDS = 32, 4, 8, 50


class Net:
    """Nodes one after another: `net.Relu(x)` adds one and gives its output; arrays become initializers."""

    def __init__(self, opset, **inputs):
        self.opset, self.nodes, self.stored = opset, [], []
        self.inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
        self.rng = np.random.default_rng(0)

    def __getattr__(self, op):
        def add(*inputs, **attributes):
            names = [x if isinstance(x, str) else self.store(x) for x in inputs]
            output = f"{op}_{len(self.nodes)}"
            self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
            return output

        return add

    def store(self, array):
        name = f"stored_{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        return self.store((self.rng.standard_normal(shape) * 0.3).astype(np.float32))

    def model(self, result, shape):
        self.nodes.append(helper.make_node("Identity", [result], ["result"]))
        outputs = [helper.make_tensor_value_info("result", T.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "net", self.inputs, outputs, self.stored)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", self.opset)])
        onnx.checker.check_model(model, full_check=True)
        return model


# --- networks ------------------------------------------------------------------------------
def normalized(net, x):
    """LayerNormalization, as exporters write it where there is none yet."""
    if net.opset >= 17:
        return net.LayerNormalization(x, net.weight(WIDTH), net.weight(WIDTH), axis=-1, epsilon=1e-12)
    difference = net.Sub(x, net.ReduceMean(x, axes=[-1]))
    variance = net.ReduceMean(net.Pow(difference, np.float32(2)), axes=[-1])
    y = net.Div(difference, net.Sqrt(net.Add(variance, np.float32(1e-12))))
    return net.Add(net.Mul(y, net.weight(WIDTH)), net.weight(WIDTH))


def gelu(net, x):
    y = net.Add(net.Erf(net.Div(x, np.float32(np.sqrt(2)))), np.float32(1))
    return net.Mul(net.Mul(x, y), np.float32(0.5))


def linear(net, x, inner, outer):
    return net.Add(net.MatMul(x, net.weight(inner, outer)), net.weight(outer))


def attention(net, x, mask):
    def projection(perm):
        y = net.Reshape(linear(net, x, WIDTH, WIDTH), np.array([0, 0, HEADS, WIDTH // HEADS]))
        return net.Transpose(y, perm=perm)

    query, key, value = projection([0, 2, 1, 3]), projection([0, 2, 3, 1]), projection([0, 2, 1, 3])
    score = net.Div(net.MatMul(query, key), np.float32(np.sqrt(WIDTH // HEADS)))
    weights = net.Softmax(net.Add(score, mask) if mask else score, axis=3)
    y = net.Transpose(net.MatMul(weights, value), perm=[0, 2, 1, 3])
    return linear(net, net.Reshape(y, np.array([0, 0, WIDTH])), WIDTH, WIDTH)


def encoder(opset, *, words=False, mask=False):
    """Two layers of a transformer, of words and the kinds of their sentences or of vectors."""
    batch = ["batch", PLACES]
    inputs = {"words": (T.INT64, batch), "kinds": (T.INT64, batch)} if words else {"x": (T.FLOAT, [*batch, WIDTH])}
    net = Net(opset, **inputs, **({"mask": (T.INT64, batch)} if mask else {}))
    if words:
        embedded = net.Add(net.Gather(net.weight(WORDS, WIDTH), "words"), net.Gather(net.weight(2, WIDTH), "kinds"))
        x = net.Add(embedded, net.Gather(net.weight(PLACES, WIDTH), np.arange(PLACES)[None]))
    else:
        x = "x"
    x, hidden = normalized(net, x), None
    if mask:
        given = net.Cast(net.Unsqueeze(net.Unsqueeze("mask", np.array([1])), np.array([2])), to=T.FLOAT)
        hidden = net.Mul(net.Sub(np.float32(1), given), np.float32(-10000))
    for _ in range(2):
        x = normalized(net, net.Add(attention(net, x, hidden), x))
        y = linear(net, gelu(net, linear(net, x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
        x = normalized(net, net.Add(y, x))
    return net.model(x, [*batch, WIDTH])


def convnet(opset):
    """Convolutions, with all that the optimizer takes into them, and two layers that are fully connected."""
    net = Net(opset, x=(T.FLOAT, ["batch", 3, 16, 16]))
    x = net.Relu(net.Conv("x", net.weight(8, 3, 3, 3), net.weight(8), pads=[1, 1, 1, 1]))
    x = net.Relu(net.Add(net.Conv(x, net.weight(8, 8, 3, 3), net.weight(8), pads=[1, 1, 1, 1]), x))
    x = net.LeakyRelu(net.Conv(x, net.weight(12, 8, 3, 3), net.weight(12), strides=[2, 2]), alpha=0.1)
    x = net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.Clip(net.Conv(x, net.weight(12, 1, 3, 3), group=12), np.float32(0), np.float32(6))
    x = net.Flatten(net.GlobalAveragePool(net.Mul(x, net.Sigmoid(x))))
    x = net.Relu(net.Gemm(x, net.weight(12, 16), net.weight(16)))
    return net.model(net.Softmax(net.Gemm(x, net.weight(16, 5), net.weight(5)), axis=1), ["batch", 5])


# --- what onnxruntime makes of them --------------------------------------------------------
def optimized(model, folder, level="ENABLE_EXTENDED"):
    """The model that a session saves."""
    path = folder / f"{level}.onnx"
    kernels.run(model, feeds_of(model), level, save=path)
    return onnx.load(path)


def fused(model, folder, *, multi_head=False):
    """What the tool for transformers makes of a model."""
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    onnx.save(model, folder / "net.onnx")
    options = FusionOptions("bert")
    options.use_multi_head_attention = multi_head
    how = {"num_heads": HEADS, "hidden_size": WIDTH, "optimization_options": options, "opt_level": 0}
    return optimizer.optimize_model(str(folder / "net.onnx"), "bert", **how).model


def quantized(model, folder, form, **how):
    """A model with calibrated scales, as a chain of QuantizeLinear and DequantizeLinear or of quantized operators."""
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):
        samples = iter([feeds_of(model, seed) for seed in range(4)])

        def get_next(self):
            return next(self.samples, None)

    onnx.save(model, folder / "net.onnx")
    quantization.quantize_static(
        str(folder / "net.onnx"),
        str(folder / "quantized.onnx"),
        Samples(),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[how.pop("activations", "QUInt8")],
        weight_type=quantization.QuantType.QInt8,
        **how,
    )
    return onnx.load(folder / "quantized.onnx")


def quantized_on_the_way(model, folder):
    """A model whose weights alone are quantized beforehand."""
    from onnxruntime import quantization

    onnx.save(model, folder / "net.onnx")
    quantization.quantize_dynamic(str(folder / "net.onnx"), str(folder / "quantized.onnx"), per_channel=True)
    return onnx.load(folder / "quantized.onnx")


def feeds_of(model, seed=0):
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [dim.dim_value or 3 for dim in kind.shape.dim]
        if kind.elem_type == T.FLOAT:
            feeds[info.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            limit = WORDS if info.name == "words" else 2
            feeds[info.name] = rng.integers(0, limit, shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if "mask" in feeds:
        feeds["mask"][:, 0] = 1
    return feeds


def fusions(model):
    """How many operators of each kind that are not the standard's a model holds."""
    return collections.Counter(node.op_type for node in model.graph.node if node.domain.startswith("com."))


def back(model, *, places=1e-5, reference=True):
    """The model as standard ONNX, which gives what the optimized one does, on all that runs it."""
    standard = kernels.inlined(model)
    feeds = feeds_of(model)
    expected = kernels.run(model, feeds)
    kernels.compare(expected, kernels.run(standard, feeds), rtol=places, atol=places)
    if reference:
        kernels.compare(expected, ReferenceEvaluator(standard).run(None, feeds), rtol=10 * places, atol=10 * places)
    return standard


# --- the tests -----------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["ENABLE_EXTENDED", "ENABLE_ALL"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("opset", [14, 17])
def test_transformer(opset, mask, level, tmp_path):
    model = optimized(encoder(opset, words=True, mask=mask), tmp_path, level)
    assert fusions(model).keys() >= {"BiasGelu", "FusedMatMul", "SkipLayerNormalization"}
    back(model)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize("multi_head", [False, True])
def test_transformer_by_the_tool(multi_head, opset, mask, tmp_path):
    model = fused(encoder(opset, words=True, mask=mask), tmp_path, multi_head=multi_head)
    found = "MultiHeadAttention" if multi_head else "Attention"
    assert fusions(model).keys() >= {found, "BiasGelu", "SkipLayerNormalization"}
    back(model)


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_convolutions(opset, tmp_path):
    model = optimized(convnet(opset), tmp_path)
    assert fusions(model).keys() >= {"FusedConv", "FusedGemm"}
    back(model)


@pytest.mark.parametrize("level", ["ENABLE_EXTENDED", "ENABLE_ALL"])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_quantized(form, activations, level, tmp_path):
    model = quantized(convnet(13), tmp_path, form, activations=activations)
    model = optimized(model, tmp_path, level)
    assert fusions(model).keys() >= {"QGemm", "QLinearSoftmax", "QLinearGlobalAveragePool"}
    assert (level == "ENABLE_ALL") == ("QLinearConv" in fusions(model))
    # The reference evaluator rounds halves in a convolution otherwise: a quantum of the result.
    back(model, places=1e-5, reference=False)


def test_quantized_weights(tmp_path):
    model = quantized_on_the_way(encoder(14), tmp_path)
    model = optimized(model, tmp_path)
    assert fusions(model).keys() >= {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "Gelu", "SkipLayerNormalization"}
    # What the reference evaluator computes before differs by rounding; quantized, that can be a whole step.
    back(model, reference=False)


@pytest.mark.parametrize("opset", [13, 17])
def test_blocks_of_channels_are_refused(opset, tmp_path):
    model = optimized(convnet(opset), tmp_path, "ENABLE_ALL")
    if not any(node.domain == "com.microsoft.nchwc" for node in model.graph.node):
        pytest.skip("onnxruntime has no such layout for this processor")
    with pytest.raises(relu_tools.ConversionError) as caught:
        relu_tools.inline(model)
    reasons = {refusal.reason for refusal in caught.value.refusals if refusal.step.domain == "com.microsoft.nchwc"}
    assert reasons and all("processor" in reason for reason in reasons)


def test_lowered(tmp_path):
    """The standard model goes on to an older opset, its bodies' operators with it."""
    model = optimized(encoder(17, mask=True), tmp_path)
    converted = relu_tools.convert(relu_tools.inline(model).model, 11).model
    assert kernels.standard(converted)
    feeds = feeds_of(model)
    kernels.compare(kernels.run(model, feeds), kernels.run(converted, feeds), rtol=1e-5, atol=1e-5)


def test_nothing_to_put_back(tmp_path):
    """onnxruntime imports its domains where no operator is of them, too."""
    net = Net(13, x=(T.FLOAT, [2, 3]))
    model = optimized(net.model(net.Relu("x"), [2, 3]), tmp_path)
    assert "com.microsoft" in {opset.domain for opset in model.opset_import} and not fusions(model)
    back(model)
