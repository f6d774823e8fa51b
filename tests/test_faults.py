"""Faults that were found by attacking the engine, each as a test of its kind."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import relu_tools

LIMIT = 3.4028234663852886e38


def info(name, shape, elem_type=1):
    return helper.make_tensor_value_info(name, elem_type, shape)


def model(nodes, inputs, outputs, opset, initializers=(), functions=(), ir_version=8):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in initializers])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=ir_version)


def function(nodes, opset, inputs=("a",), name="F", attributes=()):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, list(inputs), ["b"], nodes, imports, attributes)


def referring(node, name, type_):
    attribute = node.attribute.add()
    attribute.name = attribute.ref_attr_name = name
    attribute.type = type_
    return node


def run(proto, **feeds):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def one(op, opset, shape=(3,), initializers=(), inputs=("x",), **attributes):
    node = helper.make_node(op, inputs, ["y"], **attributes)
    dims = list(shape)
    return model([node], [info("x", dims)], [info("y", [f"d{k}" for k in range(len(dims))])], opset, initializers)


def test_a_body_that_depends_on_an_attribute_of_the_enclosing_function_is_built_where_that_is_known():
    node = referring(helper.make_node("RMSNormalization", ["a", "g"], ["b"]), "epsilon", onnx.AttributeProto.FLOAT)
    call = helper.make_node("F", ["x", "g"], ["y"], domain="own", epsilon=0.2)
    body = function([node], 23, ("a", "g"), attributes=["epsilon"])
    scale = [("g", np.ones(4, np.float32))]
    if onnx.defs.onnx_opset_version() < 23:
        pytest.skip("onnx knows no RMSNormalization yet")
    before = model([call], [info("x", [2, 4])], [info("y", [2, 4])], 23, scale, [body], 10)
    after = relu_tools.convert(before, 18).model
    assert np.allclose(run(after, x=np.ones((2, 4), np.float32)), 1 / np.sqrt(1.2))


def test_a_size_of_minus_one_is_not_known():
    before = one("DepthToSpace", 13, (-1, -1, -1, -1), blocksize=2, mode="CRD")
    with pytest.raises(relu_tools.ConversionError, match="the number of channels of 'x' is not known"):
        relu_tools.convert_version(before, 10)


@pytest.mark.parametrize(("low", "high"), [(None, -LIMIT), (LIMIT, None), (1.0, 0.0), (None, 2.0), (-1.0, 2.0)])
def test_clip_with_any_bounds(low, high):
    bounds = [(name, np.float32(v)) for name, v in (("lo", low), ("hi", high)) if v is not None]
    names = ["x", "lo" if low is not None else "", "hi" if high is not None else ""]
    after = relu_tools.convert(one("Clip", 13, initializers=bounds, inputs=names), 9).model
    x = np.array([-3, 0.5, 3], np.float32)
    wanted = np.minimum(np.maximum(x, -LIMIT if low is None else low), LIMIT if high is None else high)
    assert np.array_equal(run(after, x=x), wanted.astype(np.float32))


@pytest.mark.parametrize("alpha", [-0.5, 0.5, 2.0])
def test_celu_of_large_numbers_and_any_alpha(alpha):
    conversion = relu_tools.convert(one("Celu", 13, alpha=alpha), 9)
    x = np.array([3.4e38, -1, 0.25], np.float32)
    wanted = np.maximum(0, x) + np.minimum(0, alpha * np.expm1(np.minimum(x, 1).astype(np.float64) / alpha))
    assert conversion.report.verification
    assert np.allclose(run(conversion.model, x=x), wanted, rtol=1e-6)


def test_a_constant_that_a_branch_of_an_inlined_function_still_reads_stays():
    branches = [
        helper.make_graph(
            [helper.make_node("Cast", ["axes"], [f"{n}p"], to=7), helper.make_node("Unsqueeze", ["x", f"{n}p"], [n])],
            n,
            [],
            [info(n, None)],
        )
        for n in ("t", "e")
    ]
    choice = helper.make_node("If", ["c"], ["b"], then_branch=branches[0], else_branch=branches[1])
    call = helper.make_node("F", ["x", "axes", "c"], ["y"], domain="own")
    before = model(
        [call],
        [info("x", [2, 3]), info("c", [], 9)],
        [info("y", ["a", "b", "c"])],
        13,
        [("axes", np.array([0], np.int32))],
        [function([choice], 13, ("x", "axes", "c"))],
    )
    after = relu_tools.convert_version(before, 11)
    onnx.checker.check_model(after)
    assert run(after, x=np.zeros((2, 3), np.float32), c=np.array(True)).shape == (1, 2, 3)


@pytest.mark.parametrize("turns", [0, 3])
def test_a_loop_without_state_gets_one_where_one_is_asked_for(turns):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Abs", ["x"], ["s"])],
        "body",
        [info("i", [], 7), info("go", [], 9)],
        [info("on", [], 9), info("s", [2, 3])],
    )
    loop = helper.make_node("Loop", ["n", ""], ["y"], body=body)
    before = model([loop], [info("x", [2, 3]), info("n", [], 7)], [info("y", ["k", 2, 3])], 13)
    onnx.checker.check_model(relu_tools.convert_version(before, 11))
    after = relu_tools.convert_version(before, 10)
    onnx.checker.check_model(after)
    x = -np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(after, x=x, n=np.array(turns)), np.stack([np.abs(x)] * turns or [x])[:turns])


@pytest.mark.parametrize("shape", [(0, 1, 2), ("N", "M", "K"), (2, 0, 3)])
@pytest.mark.parametrize("target", [13, 14])
def test_softmax_over_several_axes_of_which_one_may_be_empty(shape, target):
    assert relu_tools.convert(one("Softmax", 12, shape, axis=1), target).report.verification.verdict == "bit-exact"


def test_a_name_of_which_only_a_type_is_told_is_not_taken():
    before = one("ThresholdedRelu", 13, alpha=1.0)
    before.graph.value_info.append(info("y/Greater", [2], 7))
    after = relu_tools.convert_version(before, 9)
    assert run(after, x=np.array([0.5, 3, 1], np.float32)).tolist() == [0, 3, 0]


@pytest.mark.parametrize(
    ("op", "attribute", "type_", "value", "opset", "target"),
    [
        ("Dropout", "ratio", onnx.AttributeProto.FLOAT, 0.3, 10, 15),
        ("Celu", "alpha", onnx.AttributeProto.FLOAT, 0.5, 18, 11),
        ("ConstantOfShape", "value", onnx.AttributeProto.TENSOR, numpy_helper.from_array(np.ones(1, np.int8)), 20, 9),
    ],
)
def test_an_attribute_of_the_function_that_a_rewrite_must_know(op, attribute, type_, value, opset, target):
    body = function([referring(helper.make_node(op, ["a"], ["b"]), attribute, type_)], opset, attributes=[attribute])
    call = helper.make_node("F", ["x"], ["y"], domain="own", **{attribute: value})
    elem_type = 7 if op == "ConstantOfShape" else 1
    before = model(
        [call], [info("x", [2], elem_type)], [info("y", None, 3 if elem_type == 7 else 1)], opset, (), [body]
    )
    after = relu_tools.convert(before, target, ir_version="keep", verify="off").model
    assert not after.functions and "F" not in [node.op_type for node in after.graph.node]


def test_a_branch_made_inside_of_a_function_that_stays():
    body = function([helper.make_node("ReduceLogSum", ["a", "axes"], ["b"], keepdims=0)], 18, ("a", "axes"))
    call = helper.make_node("F", ["x", "axes"], ["y"], domain="own")
    before = model([call], [info("x", [2, 3])], [info("y", None)], 18, [("axes", np.array([1]))], [body])
    after = relu_tools.convert(before, 8, ir_version="keep", verify="off").model
    assert len(after.functions) == 1


@pytest.mark.parametrize(
    "proto",
    [
        one("Softmax", 13, (2, 3), axis=5),
        one("Celu", 13, inputs=("x", "x")),
        one("MaxPool", 13, (1, 1, 4, 4), ceil_mode=1),
    ],
    ids=["axis out of range", "too many inputs", "no kernel_shape"],
)
def test_an_invalid_node_is_refused(proto):
    with pytest.raises(relu_tools.ConversionError, match="it is not valid at its opset|requires the attribute"):
        relu_tools.convert_version(proto, 7)


def test_types_are_known_through_the_call_of_a_function_that_stays():
    inner = function([helper.make_node("Relu", ["a"], ["b"])], 18)
    outer = function(
        [helper.make_node("F", ["a"], ["t"], domain="own"), helper.make_node("LeakyRelu", ["t"], ["b"])], 18, name="G"
    )
    call = helper.make_node("G", ["x"], ["y"], domain="own")
    before = model([call], [info("x", [2])], [info("y", [2])], 18, (), [inner, outer])
    assert len(relu_tools.convert_version(before, 15).functions) == 2


def test_a_function_that_nothing_calls_blocks_nothing():
    unused = function([helper.make_node("LeakyRelu", ["a"], ["b"])], 18)
    before = one("Relu", 18)
    before.functions.append(unused)
    report = relu_tools.convert(before, 15).report
    assert report.notes == ["nothing calls the function own::F, which could not be converted: it was left out"]


@pytest.mark.parametrize(
    "how",
    [
        {"verify": "fulll"},
        {"verify": False},
        {"verify": None},
        {"ir_version": "8"},
        {"runtime": 3},
        {"verify": "full", "inputs": "samples.npz"},
        {"verify": "full", "inputs": {"x": np.zeros(3, np.float32)}},
        {"verify": "full", "inputs": []},
    ],
)
def test_an_argument_that_means_nothing_is_not_passed_over(how):
    with pytest.raises((TypeError, ValueError)):
        relu_tools.convert(one("Relu", 14), 13, **how)


def test_a_runtime_may_be_a_path(tmp_path):
    (tmp_path / "npu.toml").write_text('name = "npu"\nversion = "1"\nir_version = 7\n[opsets]\n"ai.onnx" = [7, 13]\n')
    after = relu_tools.convert(one("Relu", 14), runtime=tmp_path / "npu.toml", verify="off").model
    assert after.opset_import[0].version <= 13
    assert relu_tools.check(one("Relu", 14), runtime=tmp_path / "npu.toml")


def test_one_domain_is_no_list_of_domains():
    with pytest.raises(TypeError):
        relu_tools.inline(one("Relu", 14), domains="own")


def test_graphs_for_training_are_not_left_behind():
    model = one("Relu", 14)
    algorithm = model.training_info.add().algorithm
    algorithm.name = "training"
    algorithm.node.append(helper.make_node("HardSwish", ["g"], ["h"]))
    with pytest.raises(relu_tools.ConversionError, match="graphs for training are not converted"):
        relu_tools.convert(model, 13, verify="off")
    assert relu_tools.convert(model, 14, verify="off").model.training_info
    # Where nothing moves nothing is looked at, not even an operator that nobody knows.
    algorithm.node.append(helper.make_node("Own", ["h"], ["k"], domain="own"))
    model.opset_import.add(domain="own", version=1)
    assert relu_tools.convert(model, 14, verify="off").model.training_info == model.training_info
