"""Control flow: what the golden cases do not run, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto
from test_adapters import FILES, known, read

import relu_tools


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def agree(text: str, target: int, feeds: dict[str, np.ndarray]) -> ModelProto:
    before = onnx.parser.parse_model(text)
    after = relu_tools.convert(before, target, verify="off").model
    onnx.checker.check_model(after)
    onnx.shape_inference.infer_shapes(after, check_type=True, strict_mode=True)
    for x, y in zip(run(before, feeds), run(after, feeds), strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-6)
    return after


SCAN_8 = """
<ir_version: 3, opset_import: ["" : 8]>
g (%sfloat[%s, 2] s, float[%s, %s, 2] x, float[%s, %s, 3] z)
  => (float[%s, 2] t, float[%s, %s, 2] y, float[%s, %s, 3] w) {
  t, y, w = Scan<%s num_scan_inputs = 2, body = b (float[2] p, float[2] a, float[3] c)
    => (float[2] q, float[2] d, float[3] e) { q = Add(p, a) d = Mul(q, a) e = Neg(c) }>(%s, s, x, z)
}
"""


@pytest.mark.parametrize("target", [9, 10, 13, 21])
@pytest.mark.parametrize("lengths", ["", "n"])
@pytest.mark.parametrize("directions", ["", "directions = [1, 0],", "directions = [1, 1],"])
@pytest.mark.parametrize(("batch", "sequence"), [("3", "4"), ("B", "T")])
def test_scan_8_upwards(target, lengths, directions, batch, sequence):
    b, t = batch, sequence
    given = f"int64[{b}] n, " if lengths else ""
    text = SCAN_8 % (given, b, b, t, b, t, b, b, t, b, t, directions, lengths)
    random = np.random.default_rng(0)
    feeds = {"s": (3, 2), "x": (3, 4, 2), "z": (3, 4, 3)}
    feeds = {name: random.random(shape, np.float32) for name, shape in feeds.items()}
    if lengths:
        # onnxruntime fills with 0 what opset 8 leaves undefined.
        feeds["n"] = np.array([2, 4, 1])
    agree(text, target, feeds)


SCAN_9 = """
<ir_version: 8, opset_import: ["" : 11]>
g (float[2] s, float[%s] x) => (float[2] t, float[%s] y) {
  t, y = Scan<num_scan_inputs = 1, scan_input_axes = [%d], scan_output_axes = [%d], scan_input_directions = [%d],
    scan_output_directions = [%d], body = b (float[2] p, float[2] a) => (float[2] q, float[2] d)
    { q = Add(p, a) d = Mul(q, a) }>(s, x)
}
"""


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(("source_axis", "target_axis"), [(0, 0), (1, 0), (-1, -2), (0, 1), (-2, -1)])
@pytest.mark.parametrize("target", [8, 9])
def test_scan_11_downwards(source_axis, target_axis, directions, target):
    sizes = ["4, 2" if axis in (0, -2) else "2, 4" for axis in (source_axis, target_axis)]
    text = SCAN_9 % (*sizes, source_axis, target_axis, *directions)
    x = np.arange(8, dtype=np.float32).reshape([int(n) for n in sizes[0].split(", ")])
    agree(text, target, {"s": np.array([1, 2], np.float32), "x": x})


UNEVEN = """
<ir_version: 5, opset_import: ["" : 11]>
g (bool c, float[N, 3, K] x) => (float a, float b, int64[R] yr) {
  y, z = If(c)<
    then_branch = t() => (float[N, 3, K] p, float[A, B] u) { p = Neg(x) u = ReduceSum<axes = [1], keepdims = 0>(x) },
    else_branch = e() => (float[3, K] q, float[D, E, F] v) { q = Squeeze<axes = [0]>(x) v = Abs(x) }>
  a = ReduceSum<keepdims = 0>(y)
  b = ReduceSum<keepdims = 0>(z)
  yr = Shape(y)
}
"""


@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_unlike_rank(condition):
    after = agree(UNEVEN, 10, {"c": np.array(condition), "x": np.ones((1, 3, 2), np.float32)})
    (branching,) = [node for node in after.graph.node if node.op_type == "If"]
    assert all(len(a.g.output) == 4 for a in branching.attribute)


@pytest.mark.parametrize("declared", ["float[2, 3]", "float[A, 3]", "float[]"])
@pytest.mark.parametrize("target", [10, 8])
def test_branches_of_other_sizes_are_found_however_they_are_declared(declared, target):
    other = declared.replace("2", "4")
    model = onnx.parser.parse_model(
        f"""<ir_version: 7, opset_import: ["": 13]> g (float[2, 3] x, bool c) => (float[K, 3] y) {{
        y = If (c) <then_branch = t () => ({other} a) {{ a = Concat <axis = 0> (x, x) }},
                    else_branch = e () => ({declared} b) {{ b = Identity (x) }}> }}"""
    )
    if declared == "float[]":
        for attribute in model.graph.node[0].attribute:
            attribute.g.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(relu_tools.ConversionError, match="both branches give one shape"):
        relu_tools.convert(model, target)


def test_the_type_of_a_nested_branch_is_found_in_it():
    """Nothing else tells it in a function; where it is not known, the function has to be inlined."""
    text = """
    <ir_version: 8, opset_import: ["" : 16, "my" : 1]>
    g (bool c, float[2] x) => (float[2] y) { y = my.F(c, x) }
    <domain: "my", opset_import: ["" : 16]>
    F (c, x) => (y) {
      y = If(c)<then_branch = t() => (r) { r = If(c)<then_branch = tt() => (p) { p = Neg(x) },
                                                     else_branch = te() => (q) { q = Abs(x) }> },
                else_branch = e() => (s) { s = Identity(x) }>
    }
    """
    model = relu_tools.convert(onnx.parser.parse_model(text), 13, ir_version="keep", verify="off").model
    assert [n.op_type for n in model.graph.node] == ["F"]


def test_a_carried_value_has_the_type_that_the_loop_is_given():
    text = """
    <ir_version: 8, opset_import: ["" : 14]>
    g (int64 n, bool c, int32[3] x) => (int32[3] y) {
      y = Loop(n, c, x)<body = b (i, k, v) => (l, w) { l = Identity(k) w = Relu(v) }>
    }
    """
    model = onnx.parser.parse_model(text)
    for info in model.graph.node[0].attribute[0].g.input:
        info.ClearField("type")
    after = relu_tools.convert(model, 13, verify="off").model
    identity, constant, greatest = after.graph.node[0].attribute[0].g.node
    assert (identity.op_type, greatest.op_type) == ("Identity", "Max")
    assert constant.attribute[0].t.data_type == onnx.TensorProto.INT32


def handed_out(graph: onnx.GraphProto) -> set[str]:
    """The bodies of Loops whose turn number is one of their outputs, as it is or by way of Identity."""
    found = set()
    for node in graph.node:
        for attribute in node.attribute:
            if not attribute.HasField("g"):
                continue
            found |= handed_out(attribute.g)
            if node.op_type == "Loop":
                same = {attribute.g.input[0].name}
                for inner in attribute.g.node:
                    if inner.op_type == "Identity" and inner.input[0] in same:
                        same.update(inner.output)
                found |= {attribute.g.name for output in attribute.g.output if output.name in same}
    return found


def test_no_loop_of_ours_hands_out_its_turn_number():
    """onnxruntime 1.4 gives the last number for each turn then; below opset 7 it runs nothing."""
    met = 0
    for name in FILES:
        for case in read(name):
            if "Loop<" not in case.expected or "Loop" in case.text or case.target < 7 or not known(name):
                continue
            met += 1
            after = relu_tools.convert(case.model, case.target, verify="off").model
            assert handed_out(after.graph) == set(), case.comment
    assert met > 30
