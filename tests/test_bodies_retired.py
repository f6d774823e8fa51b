"""Bodies of operators that onnxruntime has among those of ai.onnx, against its own kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from drawing import Draw, draws, same
from onnx import helper

import relu_tools

# The last opset at which onnxruntime runs them.
HOW = {"domain": "", "opset": 9}


@draws
@pytest.mark.parametrize(
    "op, attributes",
    [
        ("Affine", {}),
        ("Affine", {"alpha": 2.0, "beta": -1.0}),
        ("Scale", {}),
        ("Scale", {"scale": 0.5}),
        ("ScaledTanh", {"attr_alpha": 1.5, "beta": 0.75}),
        ("ParametricSoftplus", {"attr_alpha": 1.5, "beta": 0.75}),
    ],
)
def test_elementwise(op, attributes, seed):
    d = Draw(seed)
    same(op, [d.floats(*d.shape(2))], **attributes, **HOW)


@draws
def test_image_scaler(seed):
    d = Draw(seed)
    shape = d.shape(4)
    bias = d.rng.standard_normal(shape[1]).tolist()
    same("ImageScaler", [d.floats(*shape)], bias=bias, scale=d.any(None, 2.0), **HOW)


@draws
def test_crop(seed):
    d = Draw(seed)
    border = [int(size) for size in d.rng.integers(0, 3, 4)]
    scale = d.any(None, [2, 1])
    same("Crop", [d.floats(1, 2, 6, 7)], border=border, scale=scale, bound=0, **HOW)


@draws
def test_dynamic_slice(seed):
    d = Draw(seed)
    starts, ends = d.rng.integers(-4, 4, 2), d.rng.integers(1, 9, 2)
    kind = d.any(np.int32, np.int64)
    axes = d.any(None, np.array([1, 0]), np.array([0, 2]))
    inputs = [v if v is None else v.astype(kind) for v in (starts, ends, axes)]
    same("DynamicSlice", [d.floats(4, 5, 6), *inputs], constants=[1, 2, 3], bound=0, **HOW)


def test_they_follow_to_another_opset():
    node = helper.make_node("ImageScaler", ["x"], ["y"], bias=[0.5, -0.5], scale=2.0)
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", 1, [1, 2, 3, 3])], [info("y", 1, [1, 2, 3, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=3)
    conversion = relu_tools.convert(model, 13)
    assert conversion.report.verification
    onnx.checker.check_model(conversion.model, full_check=True)


@pytest.mark.parametrize("dtype", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_layer_normalization_from_before_its_schema(dtype):
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1, epsilon=1e-3)
    info = helper.make_tensor_value_info
    inputs = [info("x", dtype, ["n", 3, 4]), info("s", dtype, [4]), info("b", dtype, [4])]
    graph = helper.make_graph([node], "g", inputs, [info("y", dtype, ["n", 3, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    assert relu_tools.convert(model, 11).model == model
    for opset, kept in ((17, True), (13, False), (9, False)):
        conversion = relu_tools.convert(model, opset, verify="changed" if opset == 9 else "off")
        assert conversion.report.verification or opset != 9
        assert (conversion.model.graph.node[0].op_type == "LayerNormalization") == kept
        onnx.checker.check_model(conversion.model, full_check=True)
    inlining = relu_tools.inline(model, verify="changed")
    assert inlining.report.verification
    onnx.checker.check_model(inlining.model, full_check=True)


def test_nothing_heavy_is_imported_without_need():
    code = (
        "import sys, relu_tools\n"
        "from onnx import parser\n"
        'm = parser.parse_model(\'<ir_version: 8, opset_import: ["": 14, "a": 1]>\'\n'
        "                       ' g (float[N] x) => (float[N] y) { z = Relu(x)  y = a.B(z) }')\n"
        "relu_tools.convert(m, 13, verify='off')\n"
        "print('onnxscript' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout == "False\n", done.stderr
