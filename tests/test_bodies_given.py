"""Bodies that the caller gives: functions of the library, files of the command line, and what does not fit."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import helper, parser
from onnxscript import opset18 as op
from onnxscript import script
from onnxscript.values import Opset, TracedOnnxFunction

import relu_tools
from relu_tools.cli import main

MODELS = Path(__file__).parents[1] / "models"
own = Opset("own", 1)


@script(own, default_opset=op)
def Half(X):
    return X / 2.0


@script(own)
def Swish(X, beta: float = 1.0):
    return Half(X) * op.Sigmoid(X * beta) * 2.0


def _clamp(X, low=None, high=None, scale: float = 1.0):
    if low is not None:
        X = op.Max(X, low)
    if high is not None:
        X = op.Min(X, high)
    return Half(X) * scale, X


_clamp.__name__ = "Clamp"
Clamp = TracedOnnxFunction(own, _clamp)


def model(body, inputs="float[N,3] x, float[3] low", opset=14, functions=""):
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]>'
        f" g ({inputs}) => (float[N,3] y) {{ {body} }} {functions}"
    )


def run(proto, **feeds):
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)


X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
LOW = np.array([-0.5, 0, 0.5], np.float32)


@pytest.mark.parametrize("opset", [9, 14, 21])
def test_static_and_traced_functions(opset):
    given = model("s = own.Swish<beta = 2.0>(x)  y = own.Clamp<scale = 3.0>(s, low)", opset=opset)
    result = relu_tools.inline(given, bodies=[Swish, Clamp]).model
    onnx.checker.check_model(result, full_check=True)
    assert {entry.domain for entry in result.opset_import} == {""}
    expected = 1.5 * np.maximum(X / (1 + np.exp(-2 * X)), LOW)
    np.testing.assert_allclose(run(result, x=X, low=LOW)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_function_proto_with_a_default():
    function = helper.make_function(
        "own",
        "Scaled",
        ["a"],
        ["b"],
        [
            parser.parse_node("k = Constant<value_float: float = @factor>()"),
            parser.parse_node("b = Mul(a, k)"),
        ],
        [helper.make_opsetid("", 13)],
        attribute_protos=[helper.make_attribute("factor", 2.5)],
    )
    result = relu_tools.inline(model("y = own.Scaled(x)", "float[N,3] x"), bodies=[function]).model
    np.testing.assert_allclose(run(result, x=X)[0], 2.5 * X, rtol=1e-6)


def test_outputs_that_nothing_asks_for_are_not_made():
    result = relu_tools.inline(model("y = own.Clamp(x, low)"), bodies=[Clamp]).model
    assert [node.op_type for node in result.graph.node] == ["Max", "Constant", "Div", "Constant", "Mul"]
    second = relu_tools.inline(model(", y = own.Clamp(x, low)"), bodies=[Clamp]).model
    assert [node.op_type for node in second.graph.node] == ["Max"]


def test_types_are_known_behind_an_operator_that_stays():
    given = model("s = own.Swish(x)  t = own.Clamp(s, low)  y = own.Clamp(t, , low)")
    result = relu_tools.inline(given, bodies=[Swish, Clamp], exclude=["own::Swish"]).model
    assert [node.op_type for node in result.graph.node if node.domain] == ["Swish"]


def test_a_given_body_takes_the_place_of_ours():
    @script(Opset("com.microsoft", 1))
    def Gelu(X):
        return op.Tanh(X)

    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 14, "com.microsoft": 1]>'
        " g (float[N] x) => (float[N] y) { y = com.microsoft.Gelu(x) }"
    )
    result = relu_tools.inline(proto, bodies=[Gelu]).model
    assert [node.op_type for node in result.graph.node] == ["Tanh"]


def test_a_function_of_the_model_is_what_its_nodes_mean():
    functions = '<domain: "own", opset_import: ["": 14]> Swish (a) => (b) { b = Relu(a) }'
    inlining = relu_tools.inline(
        model("y = own.Swish(x)", "float[N,3] x", functions=functions), ["own::Swish"], bodies=[Swish]
    )
    assert [node.op_type for node in inlining.model.graph.node] == ["Relu"]
    assert inlining.report.notes == ["the model defines own::Swish by a function of its own, which was taken"]


def test_primitive_goes_on_with_what_a_body_calls():
    @script(own)
    def Activate(X):
        return op.Relu(X)

    given = model("y = own.Activate(x)", "float[N,3] x")
    kept = relu_tools.inline(given, ["own::Activate"], bodies=[Activate]).model
    assert [node.op_type for node in kept.graph.node] == ["Relu"]
    further = relu_tools.inline(given, ["own::Activate"], bodies=[Activate], primitive=True).model
    assert "Relu" not in [node.op_type for node in further.graph.node]


def test_what_no_judge_can_run_is_not_verified():
    inlining = relu_tools.inline(model("y = own.Swish(x)", "float[N,3] x"), bodies=[Swish], verify="changed")
    assert inlining.report.verification.verdict == "not verified"
    assert inlining.report.verification.parts[0][1].reason == "no judge can run own::Swish"


# --- what does not fit ---------------------------------------------------------------------
def _fails(X):
    raise KeyError("nothing")


def _asks(X):
    return X if X else op.Neg(X)


_fails.__name__, _asks.__name__ = "Fails", "Asks"


@script(own)
def Endless(X):
    return op.Identity(X)


@pytest.mark.parametrize(
    "node, reason",
    [
        ("own.Swish<gamma = 2.0>(x)", "its body knows no attribute 'gamma'"),
        ("own.Swish(x, x)", "its body takes no more than 1 inputs"),
        ("own.Swish()", "its body asks for the input 'X'"),
        ("own.Clamp<gamma = 2.0>(x)", "its body knows no attribute 'gamma'"),
        ("own.Clamp(x, x, x, x)", "its body takes no more than 3 inputs"),
        ("own.Clamp(, x)", "its body asks for the input 'X'"),
        ("own.Fails(x)", "its body fails: KeyError: 'nothing'"),
        ("own.Asks(x)", "its body asks for the truth of 'x', which is known only when the model is run"),
    ],
)
def test_a_node_that_does_not_fit_is_refused(node, reason):
    bodies = [Swish, Clamp, TracedOnnxFunction(own, _fails), TracedOnnxFunction(own, _asks)]
    with pytest.raises(relu_tools.ConversionError) as caught:
        relu_tools.inline(model(f"y = {node}", "float[N,3] x"), bodies=bodies)
    (refusal,) = caught.value.refusals
    assert refusal.reason == reason


def test_more_outputs_than_the_body_gives_are_refused():
    for node in ("y, z = own.Swish(x)", "a, y, b = own.Clamp(x)  c = Neg(b)"):
        with pytest.raises(relu_tools.ConversionError, match="its body gives no more than"):
            relu_tools.inline(model(node, "float[N,3] x"), bodies=[Swish, Clamp])


def test_functions_that_call_each_other_without_end_are_refused():
    def function(name, other):
        node = helper.make_node(other, ["a"], ["b"], domain="own")
        return helper.make_function("own", name, ["a"], ["b"], [node], [helper.make_opsetid("own", 1)])

    with pytest.raises(relu_tools.ConversionError, match="own::A -> own::B -> own::A"):
        relu_tools.inline(model("y = own.A(x)", "float[N,3] x"), bodies=[function("A", "B"), function("B", "A")])


def test_what_is_no_body():
    given = model("y = own.Swish(x)", "float[N,3] x")
    with pytest.raises(TypeError, match="a body is an onnxscript function or a FunctionProto, not str"):
        relu_tools.inline(given, bodies=["my_ops.py"])
    with pytest.raises(ValueError, match="there are two bodies of own::Swish"):
        relu_tools.inline(given, bodies=[Swish, Swish.to_function_proto()])
    with pytest.raises(ValueError, match="Relu is defined by its schema"):
        function = helper.make_function("", "Relu", ["a"], ["b"], [], [helper.make_opsetid("", 14)])
        relu_tools.inline(given, bodies=[function])


# --- files ---------------------------------------------------------------------------------
def command(*arguments):
    # Before click 8.2 standard error has to be kept apart by request.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, ["inline", *arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(model("y = own.Swish(x)", "float[N,3] x").SerializeToString())
    return tmp_path


@pytest.mark.parametrize(
    "name, text, sentence",
    [
        ("nix.py", None, "nix.py is not a file"),
        ("ops.txt", "x = 1", "ops.txt is no Python file"),
        ("empty.py", "x = 1", "empty.py holds no onnxscript function"),
        ("lost.py", "import nothing_of_that_name", "lost.py cannot be imported: ModuleNotFoundError"),
        ("wrong.py", "def f(:", "wrong.py cannot be imported: SyntaxError"),
        ("leaves.py", "import sys; sys.exit(3)", "leaves.py cannot be imported: SystemExit: 3"),
        ("opens.py", "open('there_is_none')", "opens.py cannot be imported: "),
    ],
)
def test_a_file_that_gives_no_bodies(folder, name, text, sentence):
    if text is not None:
        (folder / name).write_text(text)
    done = command("net.onnx", "--bodies", name, "-o", "out.onnx")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"relu-tools: {sentence}") and len(done.stderr.splitlines()) == 1
    assert not (folder / "out.onnx").exists()


def test_a_file_that_imports_its_neighbour_and_prints(folder):
    head = "from onnxscript import opset18 as op, script\nfrom onnxscript.values import Opset\n"
    swish = '@script(Opset("own", 1))\ndef Swish(X):\n    return X * op.Sigmoid(X)\n'
    (folder / "neighbour.py").write_text(head + swish)
    (folder / "ops.py").write_text("from neighbour import Swish\nprint('hello')\n")
    done = command("net.onnx", "--bodies", "ops.py", "-o", "-")
    assert done.exit_code == 0 and "hello" not in done.stdout
    assert "hello" in done.stderr


def test_the_example_of_the_models(folder):
    files = str(MODELS / "squareplus.onnxtxt"), "--bodies", str(MODELS / "own_ops.py")
    done = command(*files, "-o", "plain.onnxtxt", "--verify", "off")
    assert done.exit_code == 0, done.stderr
    x = np.linspace(-5, 5, 11, dtype=np.float32)
    np.testing.assert_allclose(
        run(onnx.load("plain.onnxtxt"), x=x)[0], (x + np.sqrt(x * x + 4)) / 2, rtol=1e-6, atol=1e-6
    )
