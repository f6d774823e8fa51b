"""The engine on models whose structure is the difficulty: functions, subgraphs, imports, constants, refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import relu_tools
from relu_tools import ConversionError, adapters, schemas
from relu_tools.adapters import KEEP, Adapter, adapter, same
from relu_tools.report import qualified


def parse(text: str) -> ModelProto:
    return onnx.parser.parse_model(text)


def convert(model: ModelProto | str, opset, **options) -> relu_tools.Conversion:
    return relu_tools.convert(parse(model) if isinstance(model, str) else model, opset, verify="off", **options)


def refusals(model: ModelProto | str, opset, **options) -> list:
    with pytest.raises(ConversionError) as caught:
        convert(model, opset, **options)
    return caught.value.refusals


def operators(graph) -> list[str]:
    return [node.op_type for node in graph.node]


def subgraph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def run(model: ModelProto, **feeds):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


X = np.array([-3, 0, 7], np.int32)

# --- functions -----------------------------------------------------------------------------
FUNCTION = """
<ir_version: %d, opset_import: ["" : %d, "my" : 1]>
g (int32[3] x) => (int32[3] y) { y = my.Rect(x) }
<domain: "my", opset_import: ["" : %d]>
Rect (a) => (b) { c = Relu(a) b = Neg(c) }
"""


def test_a_function_is_converted_with_the_model():
    model = convert(FUNCTION % (8, 14, 14), 13, ir_version="keep").model
    onnx.checker.check_model(model)
    (function,) = model.functions
    assert operators(model.graph) == ["Rect"]
    assert [(o.domain, o.version) for o in function.opset_import] == [("", 13)]
    assert operators(function) == ["Constant", "Max", "Neg"]
    np.testing.assert_array_equal(run(model, x=X)[0], [0, 0, -7])


def test_a_function_with_another_import_is_converted_from_there():
    """The model's opset is 13 already, the function's is not."""
    model = convert(FUNCTION % (8, 13, 14), 13, ir_version="keep").model
    assert [(o.domain, o.version) for o in model.functions[0].opset_import] == [("", 13)]
    assert operators(model.functions[0]) == ["Constant", "Max", "Neg"]


def test_a_function_of_an_old_import_is_converted_upwards():
    text = """
    <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[2, 3] x) => (float[2, 3, 1] y) { y = my.Grow(x) }
    <domain: "my", opset_import: ["" : 11]>
    Grow (a) => (b) { b = Unsqueeze<axes = [2]>(a) }
    """
    model = convert(text, 18, ir_version="keep").model
    onnx.checker.check_model(model)
    assert operators(model.functions[0]) == ["Constant", "Unsqueeze"]
    assert len(model.functions[0].node[1].input) == 2


@pytest.mark.parametrize("target", [15, 17, 18])
def test_functions_stay_where_the_ir_version_knows_them(target):
    conversion = convert(FUNCTION % (8, 18, 18), target)
    assert conversion.model.ir_version == 8
    assert [f.name for f in conversion.model.functions] == ["Rect"]
    assert conversion.report.inlined_functions == []


@pytest.mark.parametrize("target", [14, 13, 7])
def test_functions_are_inlined_where_the_ir_version_knows_none(target):
    conversion = convert(FUNCTION % (8, 18, 18), target)
    model = conversion.model
    assert model.ir_version < 8 and not model.functions
    assert conversion.report.inlined_functions == ["my::Rect"]
    assert "Rect" not in operators(model.graph)
    onnx.checker.check_model(model)
    np.testing.assert_array_equal(run(model, x=X)[0], [0, 0, -7])


def test_functions_stay_where_the_ir_version_is_kept():
    conversion = convert(FUNCTION % (9, 18, 18), 12, ir_version="keep")
    assert conversion.model.ir_version == 9 and len(conversion.model.functions) == 1


def test_a_function_that_is_not_called_is_not_dropped():
    text = FUNCTION % (8, 18, 18) + '<domain: "my", opset_import: ["" : 18]> Idle (a) => (b) { b = Abs(a) }'
    model = convert(text, 17).model
    assert [f.name for f in model.functions] == ["Rect", "Idle"]
    assert [f.opset_import[0].version for f in model.functions] == [17, 17]


def test_functions_in_functions_are_inlined():
    text = """
    <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[3] x) => (float[3] y) { y = my.Outer(x) }
    <domain: "my", opset_import: ["" : 17, "my" : 1]>
    Outer (a) => (b) { t = my.Inner(a) b = my.Inner(t) }
    <domain: "my", opset_import: ["" : 17]>
    Inner (a) => (b) { t = Relu(a) b = Neg(t) }
    """
    conversion = convert(text, 9)
    assert operators(conversion.model.graph) == ["Relu", "Neg", "Relu", "Neg"]
    assert sorted(conversion.report.inlined_functions) == ["my::Inner", "my::Outer"]
    names = [name for node in conversion.model.graph.node for name in node.output]
    assert len(set(names)) == 4 and names[-1] == "y"


def test_a_function_that_calls_itself_is_refused_and_the_cycle_told():
    text = """
    <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[3] x) => (float[3] y) { y = my.A(x) }
    <domain: "my", opset_import: ["" : 17, "my" : 1]> A (a) => (b) { b = my.B(a) }
    <domain: "my", opset_import: ["" : 17, "my" : 1]> B (a) => (b) { b = my.A(a) }
    """
    (refusal,) = refusals(text, 9)
    assert refusal.node == "y" and "my::A -> my::B -> my::A" in refusal.reason


def test_attribute_references_stay_where_no_step_asks_for_them():
    text = """
    <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[3] x) => (float[3] y) { y = my.Leak<slope = 0.5>(x) }
    <domain: "my", opset_import: ["" : 17]>
    Leak <slope: float = 0.25> (a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }
    """
    model = convert(text, 15).model
    (node,) = model.functions[0].node
    assert node.op_type == "LeakyRelu" and node.attribute[0].ref_attr_name == "slope"
    # Inlined it takes the call's value.
    inlined = convert(text, 9).model
    np.testing.assert_array_equal(run(inlined, x=np.array([-2, 0, 3], np.float32))[0], [-1, 0, 3])
    # And the function's default where the call says nothing.
    silent = convert(text.replace("<slope = 0.5>", ""), 9).model
    np.testing.assert_array_equal(run(silent, x=np.array([-2, 0, 3], np.float32))[0], [-0.5, 0, 3])


def test_a_function_whose_attribute_a_step_must_know_is_inlined():
    text = """
    <ir_version: 8, opset_import: ["" : 13, "my" : 1]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 3, 4] z) { y = my.Soft<k = 1>(x) z = my.Soft<k = -1>(x) }
    <domain: "my", opset_import: ["" : 13]>
    Soft <k> (a) => (b) { b = Softmax<axis: int = @k>(a) }
    """
    conversion = convert(text, 12, ir_version="keep")
    assert not conversion.model.functions and conversion.report.inlined_functions == ["my::Soft"]
    onnx.checker.check_model(conversion.model)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 5
    for result, axis in zip(run(conversion.model, x=x), (1, -1), strict=True):
        e = np.exp(x)
        np.testing.assert_allclose(result, e / e.sum(axis=axis, keepdims=True), rtol=1e-5)


def test_a_function_tells_types_by_its_value_info():
    """Between unknown operators nothing else does."""
    model = parse("""
    <ir_version: 10, opset_import: ["" : 14, "my" : 1, "vendor" : 1]>
    g (float[3] x) => (float[3] y) { y = my.Rect(x) }
    <domain: "my", opset_import: ["" : 14, "vendor" : 1]>
    Rect (a) => (b) { c = vendor.Do(a) b = Relu(c) }
    """)
    model.functions[0].value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [3]))
    converted = convert(model, 13, ir_version="keep").model
    assert operators(converted.functions[0]) == ["Do", "Relu"]


# --- subgraphs -----------------------------------------------------------------------------
def test_a_captured_output_keeps_its_name_on_the_last_new_node():
    text = """
    <ir_version: 7, opset_import: ["" : 14]>
    g (bool c, int32[3] x) => (int32[3] y) {
      r = Relu(x)
      y = If(c)<then_branch = t() => (int32[3] p) { p = Relu(r) }, else_branch = e() => (int32[3] q) { q = Neg(r) }>
    }
    """
    model = convert(text, 13).model
    onnx.checker.check_model(model, full_check=True)
    assert operators(model.graph) == ["Constant", "Max", "If"]
    assert list(model.graph.node[1].output) == ["r"]
    then = subgraph(model.graph.node[2], "then_branch")
    assert operators(then) == ["Constant", "Max"]
    assert list(then.node[-1].output) == ["p"] and then.node[-1].input[0] == "r"
    assert operators(subgraph(model.graph.node[2], "else_branch")) == ["Neg"]
    np.testing.assert_array_equal(run(model, c=np.array(False), x=X)[0], [0, 0, -7])
    names = [n for g in (model.graph, then) for node in g.node for n in node.output]
    assert len(set(names)) == len(names)


def test_loops_and_scans_and_what_is_in_them():
    text = """
    <ir_version: 7, opset_import: ["" : 14]>
    g (int64 n, int32[3] x, int32[4, 3] rows) => (int32[3] y, int32[4, 3] z) {
      y = Loop(n, , x)<body = b(int64 i, bool go, int32[3] s) => (bool on, int32[3] t) {
        on = Identity(go) m = Neg(s) u = Relu(m) t = Add(u, x) }>
      z = Scan<num_scan_inputs = 1, body = c(int32[3] r) => (int32[3] o) { o = Relu(r) }>(rows)
    }
    """
    original = parse(text)
    feeds = {"n": np.array(3, np.int64), "x": X, "rows": np.arange(-6, 6, dtype=np.int32).reshape(4, 3)}
    for target in (13, 11, 9):
        model = convert(original, target).model
        onnx.checker.check_model(model, full_check=True)
        for after, before in zip(run(model, **feeds), run(original, **feeds), strict=True):
            np.testing.assert_array_equal(after, before)
    assert "Max" in operators(subgraph(convert(original, 13).model.graph.node[0], "body"))


def test_a_captured_value_tells_its_type():
    """The branch has no value_info for it."""
    text = """
    <ir_version: 7, opset_import: ["" : 14]>
    g (bool c, float[3] x) => (float[3] y) {
      h = Abs(x)
      y = If(c)<then_branch = t() => (p) { p = Relu(h) }, else_branch = e() => (q) { q = Identity(h) }>
    }
    """
    assert operators(subgraph(convert(text, 7).model.graph.node[1], "then_branch")) == ["Relu"]


# --- imports -------------------------------------------------------------------------------
def test_the_default_domain_keeps_its_long_spelling():
    model = parse(
        '<ir_version: 7, opset_import: ["ai.onnx" : 14]> g (int32[3] x) => (int32[3] y) { y = ai.onnx.Relu(x) }'
    )
    assert model.graph.node[0].domain == "ai.onnx"
    converted = convert(model, 13).model
    assert [(o.domain, o.version) for o in converted.opset_import] == [("ai.onnx", 13)]
    assert operators(converted.graph) == ["Constant", "Max"]
    np.testing.assert_array_equal(run(converted, x=X)[0], [0, 0, 7])


def test_the_default_domain_imported_twice():
    model = parse('<ir_version: 7, opset_import: ["" : 14]> g (float[3] x) => (float[3] y) { y = Relu(x) }')
    model.opset_import.append(helper.make_opsetid("ai.onnx", 14))
    assert [(o.domain, o.version) for o in convert(model, 13).model.opset_import] == [("", 13)]
    model.opset_import[1].version = 13
    with pytest.raises(relu_tools.ModelFileError, match="imports ai.onnx twice, as 14 and as 13"):
        convert(model, 13)


def test_only_ai_onnx_ml_imported():
    text = """
    <ir_version: 8, opset_import: ["ai.onnx.ml" : 3]>
    g (float[3] x) => (float[3] y) { y = ai.onnx.ml.Scaler<offset = [1.5], scale = [2.5]>(x) }
    """
    conversion = convert(text, 17)
    assert operators(conversion.model.graph) == ["Scaler"]
    assert ("ai.onnx.ml", 3) in [(o.domain, o.version) for o in conversion.model.opset_import]
    assert conversion.report.unknown_domains == []


def test_each_domain_has_its_own_target():
    text = """
    <ir_version: 8, opset_import: ["" : 14, "ai.onnx.ml" : 3]>
    g (float[3] x) => (float[3] y) { t = Relu(x) y = ai.onnx.ml.Scaler<offset = [1.5], scale = [2.5]>(t) }
    """
    model = convert(text, {"ai.onnx.ml": 1, "": 13}).model
    assert {o.domain: o.version for o in model.opset_import} == {"": 13, "ai.onnx.ml": 1}


def test_unknown_domains_pass_through_and_are_named():
    text = """
    <ir_version: 7, opset_import: ["" : 14, "vendor" : 3, "com.example" : 1]>
    g (float[3] x) => (float[3] y) { t = vendor.Relu<k = 2.5>(x) u = Relu(x) y = com.example.Do(t, u) }
    """
    original = parse(text)
    conversion = convert(original, 13)
    assert conversion.report.unknown_domains == ["com.example", "vendor"]
    assert conversion.model.graph == original.graph
    assert {o.domain: o.version for o in conversion.model.opset_import} == {"": 13, "vendor": 3, "com.example": 1}


# --- constants -----------------------------------------------------------------------------
def test_an_initializer_that_is_an_input_counts_as_constant_and_is_named():
    text = """
    <ir_version: 3, opset_import: ["" : 13]>
    g (float[2, 3] x, int64[1] axes, float[1] w) => (float[2, 1, 3] y) <int64[1] axes = {1}, float[1] w = {2.5}> {
      t = Mul(x, w) y = Unsqueeze(t, axes)
    }
    """
    conversion = convert(text, 11)
    assert conversion.report.no_longer_overridable == ["axes"]
    node = conversion.model.graph.node[-1]
    assert node.op_type == "Unsqueeze" and list(node.attribute[0].ints) == [1]
    # It is an input of the model still: its users feed it by name.
    assert [i.name for i in conversion.model.graph.input] == ["x", "axes", "w"]
    onnx.checker.check_model(conversion.model)


def test_a_plain_initializer_that_was_taken_in_goes():
    text = """
    <ir_version: 7, opset_import: ["" : 13]>
    g (float[2, 3] x) => (float[2, 1, 3] y, float[2, 1, 3] z) <int64[1] axes = {1}> {
      y = Unsqueeze(x, axes) z = Unsqueeze(x, axes)
    }
    """
    conversion = convert(text, 11)
    assert not conversion.model.graph.initializer and conversion.report.no_longer_overridable == []
    # Not while something else reads it.
    shared = text.replace("z = Unsqueeze(x, axes)", "t = Unsqueeze(x, axes) s = Reshape(x, axes) z = Add(t, t)")
    assert [t.name for t in convert(shared, 11).model.graph.initializer] == ["axes"]


def test_an_initializer_of_an_outer_graph_is_known_in_a_branch():
    text = """
    <ir_version: 7, opset_import: ["" : 13]>
    g (bool c, float[2, 3] x) => (float[2, 1, 3] y) <int64[1] axes = {1}> {
      y = If(c)<then_branch = t() => (float[2, 1, 3] p) { p = Unsqueeze(x, axes) },
                else_branch = e() => (float[2, 1, 3] q) { n = Neg(x) q = Unsqueeze(n, axes) }>
    }
    """
    model = convert(text, 11).model
    onnx.checker.check_model(model, full_check=True)
    assert not model.graph.initializer
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(model, c=np.array(False), x=x)[0], -x[:, None])


def test_a_name_that_a_branch_defines_anew_is_not_the_outer_constant():
    text = """
    <ir_version: 7, opset_import: ["" : 13]>
    g (bool c, float[2, 3] x) => (float[A, B, C] y) <int64[1] axes = {1}> {
      u = Unsqueeze(x, axes)
      y = If(c)<then_branch = t() => (float[2, 3, 1] p) <int64[1] axes = {2}> { p = Unsqueeze(x, axes) },
                else_branch = e() => (float[2, 1, 3] q) { q = Neg(u) }>
    }
    """
    model = parse(text)
    # The specification wants each name once; what a model has all the same is read as its runtimes read it.
    converted = convert(model, 11).model
    then = subgraph(converted.graph.node[1], "then_branch")
    assert list(converted.graph.node[0].attribute[0].ints) == [1] and list(then.node[0].attribute[0].ints) == [2]


def sparse_model(opset: int) -> ModelProto:
    model = parse(f'<ir_version: 6, opset_import: ["" : {opset}]> g (float[4] x) => (float[4] y) {{ y = Mul(x, w) }}')
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [2.5, 3.5])
    indices = helper.make_tensor("", TensorProto.INT64, [2], [1, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return model


def test_a_sparse_initializer_stays_where_the_ir_version_knows_it():
    model = sparse_model(14)
    assert convert(model, 11).model.graph == model.graph


def test_a_sparse_initializer_becomes_dense_where_it_does_not():
    model = convert(sparse_model(14), 9).model
    assert model.ir_version < 6 and not model.graph.sparse_initializer
    (dense,) = model.graph.initializer
    assert dense.name == "w"
    np.testing.assert_array_equal(numpy_helper.to_array(dense), np.array([0, 2.5, 0, 3.5], np.float32))


def test_a_value_that_a_step_stores_is_no_input():
    """Where every initializer is an input it is made by a Cast instead."""
    text = """
    <ir_version: %d, opset_import: ["" : 9]>
    g (float[3] x) => (int64[1] y) { y = Constant<value = int64[1] {5}>() }
    """
    for ir_version, stored in ((4, ["y"]), (3, [])):
        model = convert(text % ir_version, 7).model
        assert [t.name for t in model.graph.initializer] == stored
        assert [i.name for i in model.graph.input] == ["x"]
        onnx.checker.check_model(model)
        np.testing.assert_array_equal(run(model, x=np.zeros(3, np.float32))[0], [5])


def test_a_sparse_constant_becomes_dense():
    values = helper.make_tensor("", TensorProto.FLOAT, [2], [2.5, 3.5])
    model = parse('<ir_version: 6, opset_import: ["" : 11]> g () => (float[2, 3] y) { y = Constant() }')
    for dims, places in (([2], [1, 5]), ([2, 2], [0, 1, 1, 2])):
        indices = helper.make_tensor("", TensorProto.INT64, dims, places)
        del model.graph.node[0].attribute[:]
        sparse = helper.make_attribute("sparse_value", helper.make_sparse_tensor(values, indices, [2, 3]))
        model.graph.node[0].attribute.append(sparse)
        assert convert(model, 13).model.graph == model.graph
        (node,) = convert(model, 9).model.graph.node
        np.testing.assert_array_equal(numpy_helper.to_array(node.attribute[0].t), [[0, 2.5, 0], [0, 0, 3.5]])


# --- ir version ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("has", "source", "target", "gets"),
    [(10, 21, 13, 7), (8, 14, 7, 4), (4, 7, 21, 4), (3, 7, 13, 3), (7, 14, 3, 4), (10, 21, 19, 9), (6, 14, 15, 6)],
)
def test_the_ir_version_is_lowered_with_the_opset_and_never_raised(has, source, target, gets):
    text = f'<ir_version: {has}, opset_import: ["" : {source}]> g (float[3] x) => (float[3] y) {{ y = Relu(x) }}'
    assert convert(text, target).model.ir_version == gets
    assert convert(text, target, ir_version="keep").model.ir_version == has
    assert convert(text, target, ir_version=9).model.ir_version == 9


# --- refusals ------------------------------------------------------------------------------
def test_all_refusals_are_gathered():
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    g (bool c, bfloat16[3] x, float[3] f) => (bfloat16[3] y, float[3] z, float[3] u, float[3] v) {
      y = Relu(x)
      z = NoSuchOperator(f)
      u = Dropout(f, , c)
      v = If(c)<then_branch = t() => (float[3] p) { p = Dropout(f, , c) },
                else_branch = e() => (float[3] q) { q = Cast<to = 1>(x) }>
    }
    """
    found = {refusal.node: refusal for refusal in refusals(text, 9)}
    assert {"x", "y", "z", "u", "p", "q"} <= set(found)
    assert found["z"].reason == "no schema of opset 22 knows it"
    assert found["u"].reason == found["p"].reason == "it drops at random (training_mode), which 10 cannot"
    assert found["u"].advice == "export the model for inference"
    assert str(found["u"].step) == "Dropout 12 to 10"
    error = str(ConversionError(list(found.values())))
    assert all(f"{node}: " in error for node in found)


def test_an_operator_without_a_rule_is_refused_by_name():
    text = '<ir_version: 10, opset_import: ["" : 22]> g (float[1] x) => (float[1] y) { y = NoSuchOperator(x) }'
    (refusal,) = refusals(text, 21)
    assert refusal.step.op == "NoSuchOperator" and "no schema of opset 22 knows it" in refusal.reason


def test_refusing_leaves_the_input_as_it_was():
    model = parse(FUNCTION % (8, 18, 18))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    before = model.SerializeToString()
    assert refusals(model, 7)
    assert model.SerializeToString() == before


def test_a_value_of_unknown_type_is_refused_only_where_that_matters():
    text = """
    <ir_version: 8, opset_import: ["" : 14, "vendor" : 1]>
    g (float[3] x) => (float[3] y) { t = vendor.Do(x) y = %s(t) }
    """
    (refusal,) = refusals(text % "Relu", 13)
    assert refusal.reason == "the element type of 't' is not known"
    assert refusal.advice == "give it in the model's value_info, or infer shapes first"
    assert operators(convert(text % "Sigmoid", 9).model.graph) == ["Do", "Sigmoid"]


@pytest.mark.parametrize("opset", [0, 99, -1, True, 13.0, "13"])
def test_there_is_no_such_opset(opset):
    with pytest.raises((ValueError, TypeError)):
        convert(FUNCTION % (8, 14, 14), opset)


def test_names_do_not_collide():
    text = """
    <ir_version: 7, opset_import: ["" : 14]>
    g (int32[3] x, int32[3] "r/Constant") => (int32[3] y) { ["r"] t = Relu(x) y = Add(t, "r/Constant") }
    """
    model = convert(text, 13).model
    onnx.checker.check_model(model)
    names = [name for node in model.graph.node for name in node.output] + [i.name for i in model.graph.input]
    assert len(set(names)) == len(names)
    np.testing.assert_array_equal(run(model, **{"x": X, "r/Constant": X})[0], [-3, 0, 14])


# --- the checks at import --------------------------------------------------------------------
@pytest.fixture
def table(monkeypatch):
    """The table of steps, put back afterwards."""
    adapters.load_all()
    monkeypatch.setattr(adapters, "TABLE", dict(adapters.TABLE))
    monkeypatch.setattr(adapters, "SAME", set(adapters.SAME))
    return adapters.TABLE


@pytest.mark.parametrize(
    ("op", "source", "target"),
    [("Relu", 14, 6), ("Relu", 13, 15), ("Relu", 6, None), ("NoSuchOperator", 1, 2), ("ThresholdedRelu", None, 10)],
)
def test_a_step_that_does_not_exist(table, op, source, target):
    def function(op):
        """Says something."""

    with pytest.raises((ValueError, TypeError)):
        adapter(op, source, target)(function)
    if source and target:
        with pytest.raises(ValueError, match="has no step"):
            same(op, source, target)


def test_a_parameter_that_is_no_formal(table):
    def attribute(op, X, *, alpha):
        """Relu has no alpha."""

    def count(op, X, Y):
        """Relu has one input."""

    with pytest.raises(ValueError, match="'alpha' is no formal of Relu 13"):
        adapter("Relu", 13, 14)(attribute)
    with pytest.raises(ValueError, match="'Y' is no formal of Relu 13"):
        adapter("Relu", 13, 14)(count)


def test_a_step_that_is_taken_twice(table):
    def function(op, X):
        """Says something."""

    with pytest.raises(ValueError, match="Relu 14 to 13 is taken twice"):
        adapter("Relu", 14, 13)(function)


def test_families_are_loaded_when_they_are_asked_for():
    code = """
import sys
from relu_tools import adapters, conversion
print(sorted(m.rpartition(".")[2] for m in sys.modules if m.startswith("relu_tools.adapters.")))
assert adapters.find("", "Relu", 14, 13) and adapters.is_same("", "Relu", 6, 13) and adapters.has_body("", "Gelu", 20)
print("relu_tools.adapters.activation" in sys.modules, "relu_tools.adapters.rnn" in sys.modules)
"""
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert lines[:2] == ["[]", "True False"]


def test_families_list_what_they_hold():
    adapters.load_all()
    held = {qualified(*rule[:2]) for rule in (*adapters.TABLE, *adapters.SAME, *adapters.BODIES)}
    assert {op for ops in adapters.FAMILIES.values() for op in ops.split()} == held


def test_an_operator_that_its_family_does_not_list():
    def function(op, X):
        """Says something."""

    function.__module__ = "relu_tools.adapters.rnn"
    with pytest.raises(ValueError, match="FAMILIES does not list Relu under 'rnn'"):
        adapter("Relu", 13, 14)(function)


def test_a_missing_docstring(table):
    def function(op, X):
        return KEEP

    with pytest.raises(ValueError, match="says nothing of what changed"):
        adapter("Relu", 13, 14)(function)


def test_a_step_that_this_onnx_does_not_know_yet(table):
    def function(op, anything):
        """Says something."""

    before = dict(table)
    adapter("Relu", 14, schemas.newest() + 1)(function)
    same("Relu", 14, schemas.newest() + 1)
    assert table == before


def test_an_adapter_goes_before_the_general_rules(table):
    def function(op, X):
        """The step changes nothing; this one says otherwise."""
        return op.Abs(X)

    table[("", "Relu", 13, 14)] = Adapter(function, "exact", None)
    text = '<ir_version: 7, opset_import: ["" : 13]> g (float[3] x) => (float[3] y) { y = Relu(x) }'
    assert operators(convert(text, 14).model.graph) == ["Abs"]
    assert operators(convert(text, 13).model.graph) == ["Relu"]


CELU = ["Neg", "Relu", "Neg", "Constant", "Div", "Elu", "Relu", "Constant", "Mul", "Add"]
CALLS = """
<ir_version: 10, opset_import: ["" : 22, "own" : 1]>
g (float[2] x) => (float[2] y) {
  a = Relu(x)
  b = Celu(a)
  y = own.Twice(b)
}
<domain: "own", opset_import: ["" : 22]> Twice (x) => (y) { y = Add(x, x) }
"""


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"ops": ["Celu", "own::Twice"]}, ["Relu", *CELU, "Add"]),
        ({"ops": ["Relu"]}, ["Constant", "CastLike", "Max", "Celu", "Twice"]),
        ({"ops": ["Relu"], "primitive": True}, ["Constant", "Cast", "Max", "Celu", "Twice"]),
        ({"domains": ["own"]}, ["Relu", "Celu", "Add"]),
        ({"domains": ["ai.onnx"], "ops": ["own::Twice"]}, ["Relu", "Celu", "Twice"]),
        ({"exclude": ["own::Twice", "Celu"]}, ["Constant", "Cast", "Max", "Celu", "Twice"]),
        ({"missing_at": 11, "exclude": ["own::Twice"]}, ["Relu", *CELU, "Twice"]),
        ({"missing_at": 15}, ["Relu", "Celu", "Twice"]),
    ],
    ids=str,
)
def test_what_is_inlined_can_be_chosen(options, left):
    inlining = relu_tools.inline(parse(CALLS), **options)
    found = [node.op_type for node in inlining.model.graph.node]
    assert found == left
    assert bool(inlining.model.functions) == ("Twice" in found)


def test_by_default_everything_is_inlined():
    inlining = relu_tools.inline(parse(CALLS))
    left = {node.op_type for node in inlining.model.graph.node}
    assert not left & {"Relu", "Celu", "Elu", "CastLike", "Twice"} and not inlining.model.functions


def test_large_integers_in_a_graph_that_stores_none():
    """Below opset 9 a Constant holds floats alone, and with IR version 3 every initializer would be an input."""
    values = np.array([2**63 - 1, -(2**63), -1, 2**53 + 1, 0])
    model = parse('<ir_version: 3, opset_import: ["" : 9]> g (int64[5] x) => (int64[5] y) { y = Add(x, c) }')
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(values)))
    converted = relu_tools.convert_version(model, 8)
    assert [i.name for i in converted.graph.input] == ["x"] and not converted.graph.initializer
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.zeros(5, np.int64)})
    assert (y == values).all()


def test_the_dry_run_does_at_the_own_opset_what_the_conversion_does():
    """Nothing: a function stays that the IR version of the opset's release does not know."""
    model = parse(CALLS.replace('"" : 22', '"" : 13').replace("b = Celu(a)", "b = Elu(a)"))
    assert relu_tools.convert(model, 13, verify="off").report.changes == []
    rows = relu_tools.check(model, [13]).rows
    assert {row[13].status for row in rows.values()} == {"as it is"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", ["nan", "inf", "1e30"])
def test_a_number_that_no_integer_stands_for_is_no_constant(number):
    """What a Cast makes of it is not defined, and each machine makes its own."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] x) => (float[A, B] y) <float[1] f = {0}> '
        "{ axes = Cast <to = 7> (f) y = ReduceMax (x, axes) }"
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([number], np.float32), "f"))
    after = relu_tools.convert(model, 17, verify="off").model
    assert "axes" in {name for node in after.graph.node for name in node.input}
