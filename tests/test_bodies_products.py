"""Bodies of com.microsoft's products and convolutions against onnxruntime's own kernels, or numpy where it has none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from drawing import Draw, draws, same
from onnx import helper, numpy_helper

ACTIVATIONS = {
    "Elu": {"activation_alpha": 0.5},
    "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
    "LeakyRelu": {"activation_alpha": 0.1},
    "Relu": {},
    "Selu": {"activation_alpha": 1.5, "activation_gamma": 1.1},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"activation_alpha": 0.5},
}


@draws
def test_fused_matmul(seed):
    d = Draw(seed, np.float32, np.float64)
    rank = d.any(2, 3, 4)
    batch, (rows, inner, columns) = d.shape(rank - 2), d.shape(3)
    trans = {f"trans{which}": d.any(0, 1) for which in ("A", "B", "BatchA", "BatchB")}
    if rank == 2:
        trans |= {"transBatchA": 0, "transBatchB": 0}  # the kernel refuses to take matrices for batches
    a = (*batch, inner, rows) if trans["transA"] else (*batch, rows, inner)
    b = (*batch, columns, inner) if trans["transB"] else (*batch, inner, columns)
    a, b = (
        (shape[-2], *batch, shape[-1]) if trans[f"transBatch{which}"] else shape
        for which, shape in (("A", a), ("B", b))
    )
    same("FusedMatMul", [d.floats(*a), d.floats(*b)], alpha=d.any(None, 0.5, -2.0), **trans, **d.how)


@draws
def test_products_with_vectors(seed):
    d = Draw(seed, np.float32)
    rows, inner = d.shape(2)
    trans = d.any(0, 1)
    a = d.any((inner,), (rows, inner))
    same("FusedMatMul", [d.floats(*a), d.floats(inner)], transB=trans, transA=trans if len(a) == 1 else 0, **d.how)


@draws
def test_transpose_matmul(seed):
    d = Draw(seed, np.float32)
    rows, inner, columns = d.shape(3, 2)
    trans_a, trans_b = d.turn((1, 0), (0, 1), (1, 1))
    a = (2, inner, rows) if trans_a else (2, rows, inner)
    b = (columns, inner) if trans_b else (inner, columns)
    same("TransposeMatMul", [d.floats(*a), d.floats(*b)], transA=trans_a, transB=trans_b, alpha=0.5, **d.how)


@draws
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_fused_gemm(activation, seed):
    d = Draw(seed, np.float32)
    rows, inner, columns = d.shape(3)
    trans_a, trans_b = d.any(0, 1), d.any(0, 1)
    a = (inner, rows) if trans_a else (rows, inner)
    b = (columns, inner) if trans_b else (inner, columns)
    c = d.turn(d.floats(columns), None, d.floats(rows, 1), d.floats(rows, columns))
    how = dict(transA=trans_a, transB=trans_b, alpha=d.turn(0.5, None), beta=d.turn(2.0, None))
    inputs = [d.floats(*a), d.floats(*b), c]
    same("FusedGemm", inputs, activation=activation, **ACTIVATIONS[activation], **how, **d.how)


@draws
def test_gemm_fast_gelu(seed):
    d = Draw(seed)
    rows, inner, columns = d.shape(3)
    x, w, bias = d.floats(2, rows, inner), d.floats(inner, columns), d.maybe(columns)
    y = x.astype(np.float64) @ w + (0 if bias is None else bias)
    expected = 0.5 * y * (1 + np.tanh(0.797885 * y + 0.035677 * y**3))
    same("GemmFastGelu", [x, w, bias], expected=[expected.astype(np.float32)], **d.how)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "LeakyRelu", "Softmax"])
def test_fused_matmul_activation(activation):
    d = Draw(0)
    a, b = d.floats(2, 4, 3), d.floats(2, 4, 5)
    product = 0.5 * a.swapaxes(1, 2) @ b
    exponents = np.exp(product - product.max(1, keepdims=True))
    expected = {
        "Relu": np.maximum(product, 0),
        "Tanh": np.tanh(product),
        "LeakyRelu": np.where(product < 0, np.float32(0.2) * product, product),
        "Softmax": exponents / exponents.sum(1, keepdims=True),
    }[activation]
    parameters = {"LeakyRelu": {"activation_alpha": 0.2}, "Softmax": {"activation_axis": 1}}.get(activation, {})
    same(
        "FusedMatMulActivation",
        [a, b],
        expected=[expected],
        activation=activation,
        alpha=0.5,
        transA=1,
        **parameters,
    )


# --- convolutions --------------------------------------------------------------------------
PARAMETERS = {
    None: None,
    "Relu": None,
    "Tanh": None,
    "Sigmoid": None,
    "LeakyRelu": [0.1],
    "Clip": [-0.5, 0.75],
    "HardSigmoid": [0.3, 0.4],
}


class Convolution:
    """Data, weights and attributes of a convolution."""

    def __init__(self, d):
        rank = d.any(1, 2, 2, 2)
        group = d.turn(2, 1, 1)
        channels, features = group * int(d.rng.integers(1, 4)), group * int(d.rng.integers(1, 4))
        kernel = d.shape(rank, 1, 4)
        self.x = d.floats(int(d.rng.integers(1, 3)), channels, *d.shape(rank, 6, 9))
        self.w = d.floats(features, channels // group, *kernel)
        self.b = d.maybe(features)
        self.attributes = {
            "group": group,
            "strides": d.any(None, list(d.shape(rank, 1, 3))),
            "dilations": d.any(None, list(d.shape(rank, 1, 3))),
            "kernel_shape": d.any(None, list(kernel)),
            **d.any({}, {"pads": list(d.shape(2 * rank, 0, 2))}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}),
        }
        if "SAME_UPPER" in self.attributes.values():
            self.attributes["dilations"] = None  # onnxruntime takes no dilation there

    def plain(self):
        """What Conv gives, by the reference evaluator of onnx."""
        given = {key: value for key, value in self.attributes.items() if value is not None}
        names = ["x", "w", "b"][: 2 if self.b is None else 3]
        node = helper.make_node("Conv", names, ["y"], **given)
        infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (*names, "y")]
        model = helper.make_model(
            helper.make_graph([node], "conv", infos[:-1], infos[-1:]), opset_imports=[helper.make_opsetid("", 21)]
        )
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, dict(zip(names, (self.x, self.w, self.b), strict=False)))[0]


@draws
@pytest.mark.parametrize("activation", PARAMETERS)
def test_fused_conv(activation, seed):
    d = Draw(seed)
    conv = Convolution(d)
    residual = d.floats(*conv.plain().shape) if d.any(True, False) else None
    inputs = [conv.x, conv.w, conv.b, residual]
    parameters = PARAMETERS[activation]
    same("FusedConv", inputs, activation=activation, activation_params=parameters, **conv.attributes, **d.how)


@draws
def test_nhwc_conv(seed):
    d = Draw(seed)
    conv = Convolution(d)
    inputs = [np.moveaxis(conv.x, 1, -1), np.moveaxis(conv.w, 1, -1), conv.b]
    same("NhwcConv", inputs, expected=[np.moveaxis(conv.plain(), 1, -1)], **conv.attributes, **d.how)


@draws
def test_nhwc_fused_conv(seed):
    d = Draw(seed)
    conv = Convolution(d)
    plain = np.moveaxis(conv.plain(), 1, -1)
    residual = d.floats(*plain.shape)
    inputs = [np.moveaxis(conv.x, 1, -1), conv.w, conv.b, residual]
    total = plain + residual
    activation, expected = d.turn(("Relu", np.maximum(total, 0)), ("Silu", total / (1 + np.exp(-total))))
    same("NhwcFusedConv", inputs, expected=[expected], activation=activation, **conv.attributes, **d.how)


def test_weights_that_do_not_go_with_the_channels_are_refused():
    import relu_tools

    x, w = np.ones((1, 5, 5, 3), np.float32), np.ones((2, 3, 1, 1), np.float32)
    node = helper.make_node("NhwcConv", ["x", "w"], ["y"], domain="com.microsoft")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", 1, x.shape)], [info("y", 1, [1, 5, 5, 2])], [numpy_helper.from_array(w, "w")]
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    )
    with pytest.raises(relu_tools.ConversionError, match="1 channels last do not go with 3 channels"):
        relu_tools.inline(model)
