"""Model-local functions: what inlining makes of them, and conversion, in all the forms that they are called in.

What is expected is what onnxruntime makes of the model with its functions.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relu_tools
from relu_tools import ConversionError
from relu_tools.graphs import graphs_in

X = np.array([-2, 0.5, 3], np.float32)
SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def run(model: onnx.ModelProto, **feeds) -> list:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds or {"x": X})


def calls(model: onnx.ModelProto) -> list[str]:
    """The operators of the graph and of the graphs within."""
    return [node.op_type for graph in graphs_in(model.graph) for node in graph.node]


def inlined(text: str | onnx.ModelProto, **options) -> onnx.ModelProto:
    model = parse(text) if isinstance(text, str) else text
    result = relu_tools.inline(model, **options).model
    onnx.checker.check_model(result, full_check=True)
    onnx.shape_inference.infer_shapes(result, True, True, True)
    return result


def same(text: str | onnx.ModelProto, **feeds) -> onnx.ModelProto:
    """Inlined, with the outputs of the model as it was, and no functions left."""
    model = parse(text) if isinstance(text, str) else text
    result = inlined(model)
    assert not result.functions
    for before, after in zip(run(model, **feeds), run(result, **feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6)
    return result


HEAD = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\n'
TWICE = '<domain: "own", opset_import: ["" : 20]> Twice (a) => (b) { b = Add (a, a) }\n'


# --- how functions are called ----------------------------------------------------------------
def test_a_function_of_a_function_of_a_function():
    model = same(
        HEAD
        + "g (float[3] x) => (float[3] y) { y = own.Eight (x) }\n"
        + '<domain: "own", opset_import: ["" : 20, "own" : 1]> Eight (a) => (b) { t = own.Four (a) b '
        + "= own.Twice (t) }\n"
        + '<domain: "own", opset_import: ["" : 20, "own" : 1]> Four (a) => (b) { t = own.Twice (a) b '
        + "= own.Twice (t) }\n"
        + TWICE
    )
    assert calls(model) == ["Add"] * 3


@pytest.mark.parametrize(
    ("bodies", "cycle"),
    [
        ("F (a) => (b) { b = own.F (a) }", "own::F -> own::F"),
        ("F (a) => (b) { b = own.G (a) };G (a) => (b) { b = own.F (a) }", "own::F -> own::G -> own::F"),
        (
            "F (a) => (b) { b = own.G (a) };G (a) => (b) { b = own.H (a) };H (a) => (b) { b = own.G (a) }",
            "own::G -> own::H -> own::G",
        ),
        (
            "F (a) => (b) { c = Constant <value = bool {1}> () b = If (c) <then_branch = t () => (r) { r = own.F (a) },"
            " else_branch = e () => (s) { s = Neg (a) }> }",
            "own::F -> own::F",
        ),
    ],
    ids=["itself", "two", "behind another", "in a branch"],
)
def test_a_cycle_is_refused_and_spelled_out(bodies, cycle):
    functions = "\n".join(f'<domain: "own", opset_import: ["" : 20, "own" : 1]> {body}' for body in bodies.split(";"))
    with pytest.raises(ConversionError) as caught:
        relu_tools.inline(parse(HEAD + "g (float[3] x) => (float[3] y) { y = own.F (x) }\n" + functions))
    (refusal,) = caught.value.refusals
    assert refusal.reason.endswith(f"the function calls itself: {cycle}")


def test_calls_side_by_side_are_no_cycle():
    same(HEAD + "g (float[3] x) => (float[3] y) { t = own.Twice (x) y = own.Twice (t) }\n" + TWICE)


def test_overloads_are_told_apart():
    model = parse(HEAD + "g (float[3] x) => (float[3] y) { t = own.Twice (x) y = own.Twice (t) }\n" + TWICE)
    other = model.functions.add()
    other.CopyFrom(model.functions[0])
    other.overload = "negative"
    other.node[0].op_type = "Neg"
    del other.node[0].input[1:]
    model.graph.node[1].overload = "negative"
    result = inlined(model)
    assert calls(result) == ["Add", "Neg"] and not result.functions
    np.testing.assert_array_equal(run(result)[0], -2 * X)
    kept = inlined(model, exclude=["own::Twice"])
    assert [f.overload for f in kept.functions] == ["", "negative"]


def test_an_overload_that_the_model_has_not_is_no_call():
    model = parse(HEAD + "g (float[3] x) => (float[3] y) { y = own.Twice (x) }\n" + TWICE)
    model.graph.node[0].overload = "unknown"
    result = relu_tools.inline(model).model
    assert calls(result) == ["Twice"] and len(result.functions) == 1


@pytest.mark.parametrize("opset", [11, 12, 13, 18, 22])
def test_a_body_of_another_opset_is_brought_to_the_models(opset):
    """A sum over an axis: an attribute before 13, an input from there on.

    onnxruntime runs no functions of other opsets.
    """
    body = "b = ReduceSum <axes = [1], keepdims = 0> (a)"
    if opset >= 13:
        body = "one = Constant <value_ints = [1]> () b = ReduceSum <keepdims = 0> (a, one)"
    model = inlined(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[2, 3] x) => (float[2] y) { y = own.Rows (x) }\n"
        f'<domain: "own", opset_import: ["" : {opset}]> Rows (a) => (b) {{ {body} }}'
    )
    np.testing.assert_array_equal(run(model, x=SIX)[0], [3, 12])
    assert [(o.domain, o.version) for o in model.opset_import if o.domain == ""] == [("", 17)]


def test_two_functions_of_two_opsets():
    rows = '<domain: "own", opset_import: ["" : 11]> Rows (a) => (b) { b = ReduceSum <axes = [1]> (a) }\n'
    columns = (
        '<domain: "own", opset_import: ["" : 13, "own" : 1]> '
        "Columns (a) => (b) { n = Constant <value_ints = [0]> () t = ReduceSum (a, n) b = own.Rows (t) }"
    )
    head = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    graph = "g (float[2, 3] x) => (float[1, 1] y) { y = own.Columns (x) }\n"
    np.testing.assert_array_equal(run(inlined(head + graph + rows + columns), x=SIX)[0], [[15]])


def test_a_function_brings_its_domains_along():
    text = (
        '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\ng (float[3] x) => (float[3] y) { y = own.F (x) }\n'
        '<domain: "own", opset_import: ["" : 20, "ai.onnx.ml" : 3]>'
        " F (a) => (b) { b = ai.onnx.ml.Binarizer <threshold = 1.0> (a) }"
    )
    assert ("ai.onnx.ml", 3) in [(o.domain, o.version) for o in same(text).opset_import]


# --- attributes ------------------------------------------------------------------------------
@pytest.mark.parametrize("other", ["", "own.G (x)"])
def test_a_domain_of_which_nothing_is_left_is_not_imported(other):
    text = HEAD + f"g (float[3] x) => (float[3] y, float[3] z) {{ y = own.F (x) z = {other or 'Neg (x)'} }}\n"
    for name in ("F", "G") if other else ("F",):
        text += f'<domain: "own", opset_import: ["" : 20]> {name} (a) => (b) {{ b = Abs (a) }}\n'
    for result in (
        relu_tools.convert(parse(text), 19, inline=["own::F"], verify="off"),
        relu_tools.inline(parse(text), ["own::F"], verify="off"),
    ):
        assert ("own" in {entry.domain for entry in result.model.opset_import}) == bool(other)


LEAK = '<domain: "own", opset_import: ["" : 20]> Leak <%s> (a) => (b) { b = LeakyRelu <alpha : float = @slope> (a) }'


@pytest.mark.parametrize(
    ("formal", "given", "slope"),
    [
        ("slope", "<slope = 0.5>", 0.5),
        ("slope", "", 0.01),
        ("slope : float = 0.25", "", 0.25),
        ("slope : float = 0.25", "<slope = 0.5>", 0.5),
    ],
    ids=["given", "left out", "default", "given in the place of the default"],
)
def test_an_attribute_that_refers_to_the_functions(formal, given, slope):
    model = same(HEAD + f"g (float[3] x) => (float[3] y) {{ y = own.Leak {given} (x) }}\n" + LEAK % formal)
    np.testing.assert_allclose(run(model)[0], np.where(X < 0, slope * X, X), rtol=1e-6)


def test_an_attribute_is_handed_on_from_call_to_call():
    text = (
        HEAD
        + "g (float[3] x) => (float[3] y) { y = own.Outer <k = 0.5> (x) }\n"
        + '<domain: "own", opset_import: ["" : 20, "own" : 1]> Outer <k> (a) => (b) { b = own.Leak '
        + "<slope : float = @k> (a) }\n"
        + LEAK % "slope : float = 0.25"
    )
    np.testing.assert_allclose(run(same(text))[0], np.where(X < 0, 0.5 * X, X))
    # Outer's caller leaves it out, so that Leak has its own default.
    np.testing.assert_allclose(run(inlined(text.replace("<k = 0.5>", "")))[0], np.where(X < 0, 0.25 * X, X))


def test_an_attribute_is_known_within_a_branch():
    text = (
        HEAD
        + "g (float[3] x, bool c) => (float[3] y) { y = own.F <slope = 0.5> (x, c) }\n"
        + '<domain: "own", opset_import: ["" : 20]> F <slope> (a, c) => (b) { b = If (c) <then_branch = t () => '
        + "(float[3] r) { r = LeakyRelu <alpha : float = @slope> (a) }, else_branch = e () => "
        + "(float[3] s) { s = Neg (a) }> }"
    )
    model = same(text, x=X, c=np.array(True))
    np.testing.assert_allclose(run(model, x=X, c=np.array(True))[0], np.where(X < 0, 0.5 * X, X))


# --- inputs and outputs ------------------------------------------------------------------------
CLIP = '<domain: "own", opset_import: ["" : 20]> Cut (a, low, high) => (b) { b = Clip (a, low, high) }'


@pytest.mark.parametrize(
    ("inputs", "low", "high"),
    [("x, one, two", 1, 2), ("x, one", 1, 9), ("x", -9, 9), ('x, "", two', -9, 2)],
)
def test_inputs_that_are_left_out(inputs, low, high):
    text = (
        HEAD + f"g (float[3] x) => (float[3] y) <float one = {{1}}, float two = {{2}}> {{ y = own.Cut ({inputs}) }}\n"
    )
    model = inlined(text + CLIP)
    np.testing.assert_array_equal(run(model)[0], np.clip(X, low, high).astype(np.float32))


BOTH = '<domain: "own", opset_import: ["" : 20]> Both (a) => (b, c) { b = Neg (a) c = Abs (b) }'


@pytest.mark.parametrize(
    ("call", "wanted"),
    [("y, z = own.Both (x)", [-X, abs(X)]), ("y = own.Both (x)", [-X]), ('"", y = own.Both (x)', [abs(X)])],
)
def test_outputs_that_are_left_out(call, wanted):
    outputs = "float[3] y, float[3] z" if "z" in call else "float[3] y"
    model = inlined(HEAD + f"g (float[3] x) => ({outputs}) {{ {call} }}\n" + BOTH)
    assert calls(model) == ["Neg", "Abs"]
    np.testing.assert_array_equal(run(model), wanted)


def test_outputs_that_are_one_value_or_an_input():
    text = (
        HEAD
        + "g (float[3] x) => (float[3] y, float[3] z, float[3] w) { y, z, w = own.F (x) }\n"
        + '<domain: "own", opset_import: ["" : 20]> F (a) => (b, b2, a) { b = Neg (a) b2 = Identity (b) }'
    )
    model = inlined(text)
    np.testing.assert_array_equal(run(model)[2], X)
    np.testing.assert_array_equal(run(model)[1], -X)


# --- subgraphs -------------------------------------------------------------------------------
def test_a_call_in_a_subgraph_and_a_subgraph_in_a_function():
    text = (
        HEAD
        + "g (float[3] x, bool c) => (float[3] y) { y = If (c) <then_branch = t () => (float[3] r) { "
        + "r = own.Pick (x, c) },"
        + " else_branch = e () => (float[3] s) { s = own.Twice (x) }> }\n"
        + '<domain: "own", opset_import: ["" : 20, "own" : 1]> Pick (a, c) => (b) { d = Neg (a) b = '
        + "If (c) <then_branch = "
        + "t () => (float[3] r) { r = own.Twice (d) }, else_branch = e () => (float[3] s) { s = Identity (d) }> }\n"
        + TWICE
    )
    for c in (True, False):
        model = same(text, x=X, c=np.array(c))
    assert "Twice" not in calls(model) and "Pick" not in calls(model)
    names = [o for graph in graphs_in(model.graph) for node in graph.node for o in node.output]
    assert len(names) == len(set(names))


def test_a_name_of_the_caller_is_not_captured_by_the_body():
    """`d` is a value of the caller and one of the body's, `r` one of the caller's and one of a branch in the body."""
    text = (
        HEAD
        + "g (float[3] x, bool c) => (float[3] y) { d = Neg (x) r = Abs (x) t = own.Pick (x, c) u = "
        + "Add (t, d) y = Add (u, r) }\n"
        + '<domain: "own", opset_import: ["" : 20]> Pick (a, c) => (b) { d = Exp (a) b = If (c) <then_branch = '
        + "t () => (float[3] r) { r = Add (d, a) }, else_branch = e () => (float[3] r) { r = Identity (d) }> }\n"
    )
    for c in (True, False):
        same(text, x=X, c=np.array(c))


def test_a_call_in_a_loop_reads_names_from_around_it():
    text = (
        HEAD
        + "g (float[3] x, int64 n) => (float[3] y) <bool go = {1}> { k = Abs (x) y = Loop (n, go, x) "
        + "<body = b (int64 i, bool c, "
        + "float[3] v) => (bool d, float[3] w) { d = Identity (c) w = own.Sum (v, k) }> }\n"
        + '<domain: "own", opset_import: ["" : 20]> Sum (a, b) => (c) { t = Add (a, b) c = Add (t, b) }'
    )
    same(text, x=X, n=np.array(3))


# --- a function with the name of an operator ---------------------------------------------------
@pytest.mark.parametrize("ir_version", [7, 8, 10])
@pytest.mark.parametrize("op", ["Relu", "Selu", "Mish"])
def test_a_function_with_the_name_of_an_operator_that_the_opset_has_is_not_called(op, ir_version):
    """ONNX leaves that to runtimes, and both onnxruntime and onnx.reference take the operator."""
    text = (
        f'<ir_version: {ir_version}, opset_import: ["" : 18]>\ng (float[3] x) => (float[3] y) {{ y = {op} (x) }}\n'
        f'<domain: "", opset_import: ["" : 18]> {op} (a) => (b) {{ b = Neg (a) }}'
    )
    model = parse(text)
    for result in (inlined(model), relu_tools.convert_version(model, 17), relu_tools.convert_version(model, 9)):
        assert op == "Relu" or "Neg" not in calls(result) or "Exp" in calls(result)
        np.testing.assert_allclose(run(result)[0], run(model)[0], rtol=1e-5)


def test_a_function_with_the_name_of_an_operator_of_a_later_opset_is_called():
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[3] x) => (float[3] y) { y = Mish (x) }\n'
        '<domain: "", opset_import: ["" : 17]> Mish (a) => (b) { b = Neg (a) }'
    )
    assert calls(inlined(text)) == ["Neg"]
    assert calls(relu_tools.convert_version(parse(text), 16)) == ["Mish"]
    # From 18 on the name would mean the operator.
    assert calls(relu_tools.convert_version(parse(text), 18)) == ["Neg"]


def test_a_function_with_an_operators_name_in_a_domain_of_its_own_is_called():
    text = HEAD + "g (float[3] x) => (float[3] y) { t = Relu (x) y = own.Relu (t) }\n" + TWICE.replace("Twice", "Relu")
    assert calls(same(text)) == ["Constant", "Cast", "Max", "Add"]


# --- what goes and what stays ------------------------------------------------------------------
TWO = (
    HEAD
    + "g (float[3] x) => (float[3] y) { t = own.Twice (x) y = own.Keep (t) }\n"
    + TWICE
    + '<domain: "own", opset_import: ["" : 20, "own" : 1]> Keep (a) => (b) { t = own.Twice (a) b = Neg (t) }\n'
    + '<domain: "own", opset_import: ["" : 20]> Idle (a) => (b) { b = Abs (a) }'
)


@pytest.mark.parametrize(
    ("options", "operators", "functions"),
    [
        ({}, ["Add", "Add", "Neg"], ["Idle"]),
        ({"exclude": ["own::Keep"]}, ["Add", "Keep"], ["Keep", "Idle"]),
        ({"exclude": ["own::Twice"]}, ["Twice", "Twice", "Neg"], ["Twice", "Idle"]),
        ({"ops": ["own::Keep"]}, ["Twice", "Twice", "Neg"], ["Twice", "Idle"]),
        ({"ops": ["own::Twice"]}, ["Add", "Keep"], ["Keep", "Idle"]),
        ({"ops": ["own::Keep"], "primitive": True}, ["Twice", "Add", "Neg"], ["Twice", "Idle"]),
    ],
    ids=str,
)
def test_functions_that_nothing_calls_any_more_go(options, operators, functions):
    """Idle, which nothing ever called, stays; Twice goes where its last call went, that in Keep with it."""
    result = inlined(TWO, **options)
    assert calls(result) == operators
    assert [function.name for function in result.functions] == functions
    np.testing.assert_array_equal(run(result)[0], -4 * X)


def test_what_a_function_holds_that_stays_is_expanded():
    result = inlined(TWO, ops=["own::Twice"])
    (keep,) = (function for function in result.functions if function.name == "Keep")
    assert [node.op_type for node in keep.node] == ["Add", "Neg"]


# --- names and notes -------------------------------------------------------------------------
def annotated() -> onnx.ModelProto:
    model = parse(
        HEAD
        + "g (float[3] x) => (float[3] y) { t = Abs (x) u = own.Twice (t) y = Mish (u) }\n"
        + TWICE.replace("b = Add (a, a)", "c = Add (a, a) b = Neg (c)")
    )
    names = ("first", "second", "third")
    for node, name in zip(model.graph.node, names, strict=True):
        node.name, node.doc_string = name, f"about {name}"
        node.metadata_props.add(key="line", value=name)
    for name in ("t", "u"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, 1, [3]))
    model.functions[0].node[0].metadata_props.add(key="line", value="of the body")
    return model


def test_metadata_of_the_call_goes_to_each_node_and_that_of_the_body_stays():
    notes = [[p.value for p in node.metadata_props] for node in inlined(annotated()).graph.node]
    assert notes[:3] == [["first"], ["of the body"], ["second"]]
    assert len(notes) > 4 and notes[3:] == [["third"]] * (len(notes) - 3)


def test_names_of_the_body_carry_the_calls():
    nodes = inlined(annotated()).graph.node
    assert [node.name for node in nodes[:3]] == ["first", "second/Add", "second"]
    assert list(nodes[1].output) == ["second/c"]
    assert all(node.name.startswith("third") for node in nodes[3:])
    assert all(output.startswith("third/") for node in nodes[3:-1] for output in node.output)


def test_outputs_keep_their_names_and_values_that_did_not_change_their_types():
    model = annotated()
    result = inlined(model)
    made = [output for node in result.graph.node for output in node.output]
    assert {"t", "u", "y"} <= set(made)
    assert list(result.graph.value_info[:2]) == list(model.graph.value_info)
    assert result.graph.node[0] == model.graph.node[0]


def test_two_calls_of_a_function_have_names_of_their_own():
    text = HEAD + "g (float[3] x) => (float[3] y) { t = own.Both (x) y = own.Both (t) }\n" + BOTH
    result = inlined(text.replace("=> (b, c)", "=> (c)"))
    names = [node.name for node in result.graph.node if node.name]
    assert names == ["t/Neg", "y/Neg"]
    assert len({output for node in result.graph.node for output in node.output}) == 4


PADDED = (
    "k = Constant <value_ints = [1]> () r = ReduceSum <keepdims: int = @a> (x, k) v = Constant <value_float = 2.0> () "
    "p = Constant <value_ints = [1, 1]> () z = Constant <value_ints = [0]> () y = Pad (r, p, v, z)"
)
# Bodies that refer to an attribute of their function: opset, target, body, and what the function is called with.
REFERRED = {
    "axes of a reduction": (18, 17, "k = Constant <value_ints: ints = @a> () y = ReduceMax (x, k)", "a = [1]"),
    "start of a shape": (
        18,
        17,
        "s = Shape <start: int = @a> (x) m = Constant <value_ints = [3]> () k = Sub (s, m) y = ReduceMax (x, k)",
        "a = 2",
    ),
    "end of a shape": (
        18,
        17,
        "s = Shape <end: int = @a> (x) m = Constant <value_ints = [1]> () k = Sub (s, m) y = ReduceMax (x, k)",
        "a = 1",
    ),
    "dimensions that are kept": (
        21,
        17,
        PADDED,
        "a = 1",
    ),
    "dimensions that are not kept": (
        21,
        17,
        PADDED,
        "a = 0",
    ),
    "the axis of a Gather": (
        18,
        17,
        "k = Constant <value_ints = [0, 1]> () r = Gather <axis: int = @a> (x, k) "
        "y, other = Split <axis = 2, num_outputs = 2> (r)",
        "a = 2",
    ),
    "the element type of a fill": (
        17,
        15,
        "s = Constant <value_ints = [2]> () p = ConstantOfShape <value: tensor = @a> (s) "
        "t = CastLike (x, p) y = Cast <to = 1> (t)",
        "a: tensor = int32[1] {-3}",
    ),
}


@pytest.mark.parametrize("keep", [False, True], ids=["", "keep"])
@pytest.mark.parametrize("case", REFERRED)
def test_what_a_function_is_called_with_is_not_known_in_it(case, keep):
    """Nor is it 0 or the default there, for which onnx's inference takes it."""
    opset, target, body, call = REFERRED[case]
    model = parse(
        f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]> g (float[2, 3, 4] x) => (float[A, B, C] y) '
        f'{{ y = own.F <{call}> (x) }} <domain: "own", opset_import: ["": {opset}]> F <a> (x) => (y) {{ {body} }}'
    )
    x = (np.arange(24, dtype=np.float32).reshape(2, 3, 4) * 7 % 5) / 3
    # The reference does not bind tensors, and some releases of onnxruntime take a dimension that is not kept for kept.
    evaluate = run if "tensor" in call else lambda model, x: ReferenceEvaluator(model).run(None, {"x": x})
    (expected,) = evaluate(model, x=x)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, ["N"] * expected.ndim))
    for options in ({}, {"verify": "full"}):
        result = relu_tools.convert(model, target, ir_version="keep" if keep else None, **options)
        np.testing.assert_allclose(evaluate(result.model, x=x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("target", [22, 21, 20, 18, 15, 14])
def test_overloads_go_where_nothing_tells_them_apart(target):
    """Files of IR version 10 and later do."""
    text = '<ir_version: 10, opset_import: ["": 22, "own": 1]> g (float[3] x) => (float[3] y) '
    text += "{ t = own.F (x) y = own.F (t) }"
    model = parse(text)
    for overload, op, node in (("a", "Relu", model.graph.node[0]), ("b", "Neg", model.graph.node[1])):
        body = helper.make_function(
            "own", "F", ["x"], ["y"], [helper.make_node(op, ["x"], ["y"])], [helper.make_opsetid("", 22)]
        )
        body.overload = node.overload = overload
        model.functions.append(body)
    # Some releases of onnxruntime take one of the two for both.
    result = relu_tools.convert(model, target, verify="off").model
    if result.ir_version >= 10:
        assert [function.overload for function in result.functions] == ["a", "b"]
    else:
        assert not result.functions
        np.testing.assert_array_equal(run(result)[0], -np.maximum(X, 0))
