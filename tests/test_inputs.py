"""Inputs that the user gives, by file and by value, and where models part on them."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from relu_tools import inputs, locating
from relu_tools.cli import main
from relu_tools.compare import DIFFERENT, Figures
from relu_tools.report import ModelFileError
from relu_tools.verification import verify


def parsed(opset: int, text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


def run(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


# Equal for x >= 0 only.
BEFORE = parsed(13, "(float[N, 2] x, float[N, 2] w) => (float[N, 2] y) { a = Relu(x) y = Sub(a, w) }")
AFTER = parsed(13, "(float[N, 2] x, float[N, 2] w) => (float[N, 2] y) { y = Sub(x, w) }")
X, W = np.array([[1, 2]], np.float32), np.array([[3, 5]], np.float32)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    onnx.save(BEFORE, tmp_path / "a.onnx")
    onnx.save(AFTER, tmp_path / "b.onnx")
    return tmp_path


def data_set(folder: Path, **values: np.ndarray) -> Path:
    folder.mkdir()
    for number, (name, value) in enumerate(values.items()):
        (folder / f"input_{number}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    return folder


# --- files ------------------------------------------------------------------------------------
def test_arrays_by_name_decide(files):
    assert run("verify", files / "a.onnx", files / "b.onnx").exit_code == 1
    np.savez(files / "good.npz", x=X, w=W)
    np.savez(files / "bad.npz", x=-X, w=W)
    good = run("verify", files / "a.onnx", files / "b.onnx", "--inputs", files / "good.npz")
    assert good.exit_code == 0 and "on 1 set of inputs" in good.output
    both = ["--inputs", files / "good.npz", "--inputs", files / "bad.npz", "--json"]
    told = json.loads(run("verify", files / "a.onnx", files / "b.onnx", *both).stdout)
    assert told["verdict"] == "different" and "the given inputs 1" in told["reason"]
    assert told["drawn"][0]["inputs"] == {"x": "float[1, 2]", "w": "float[1, 2]"}


def test_a_folder_goes_by_names_or_else_by_order(tmp_path):
    types = {value.name: value.type for value in BEFORE.graph.input}
    by_name = inputs.read(data_set(tmp_path / "names", w=W, x=X), types)
    assert by_name["x"].tolist() == X.tolist() and by_name["w"].tolist() == W.tolist()
    by_order = inputs.read(data_set(tmp_path / "order", other=X, names=W), types)
    assert by_order["x"].tolist() == X.tolist() and by_order["w"].tolist() == W.tolist()
    half_named = inputs.read(data_set(tmp_path / "half", w=X, strange=W), types)
    assert half_named["x"].tolist() == X.tolist()


def test_more_than_ten_files_are_in_order_of_their_numbers(tmp_path):
    values = {f"file{i}": np.array([i], np.float32) for i in range(12)}
    types = {f"v{i}": helper.make_tensor_type_proto(TensorProto.FLOAT, [1]) for i in range(12)}
    assert [v.item() for v in inputs.read(data_set(tmp_path / "set", **values), types).values()] == list(range(12))


def test_sequences_come_from_folders(tmp_path):
    type_ = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    (tmp_path / "input_0.pb").write_bytes(numpy_helper.from_list([X, W]).SerializeToString())
    (value,) = inputs.read(tmp_path, {"s": type_}).values()
    assert [entry.tolist() for entry in value] == [X.tolist(), W.tolist()]
    text = "(seq(float[N, 2]) s) => (float[N, 2] y) {{ i = Constant<value = int64 {{{}}}>() y = SequenceAt(s, i) }}"
    first, last = parsed(13, text.format(0)), parsed(13, text.format(1))
    assert verify(first, first, inputs=[tmp_path]).verdict == "bit-exact"
    assert verify(first, last, inputs=[{"s": [X, W]}]).verdict == "different"


def test_full_conversion_on_given_inputs(files):
    np.savez(files / "good.npz", x=X, w=W)
    args = ["convert", files / "a.onnx", "--opset", 9, "--inputs", files / "good.npz"]
    refused = run(*args)
    assert refused.exit_code == 2 and "--verify full" in refused.stderr
    done = run(*args, "--verify", "full")
    assert done.exit_code == 0 and "on 1 set of inputs" in done.output


@pytest.mark.parametrize("dtype, kind", [(ml_dtypes.bfloat16, "BFLOAT16"), (ml_dtypes.float8_e4m3fn, "FLOAT8E4M3FN")])
def test_npz_holds_types_that_numpy_lacks_as_bytes(tmp_path, dtype, kind):
    np.savez(tmp_path / "v.npz", x=np.array([1.5, -2], dtype))
    graph = helper.make_graph([], "g", [helper.make_tensor_value_info("x", getattr(TensorProto, kind), ["N"])], [])
    values = inputs.check(inputs.read(tmp_path / "v.npz", {}), graph, "v.npz")
    assert values["x"].dtype == dtype and values["x"].tolist() == [1.5, -2]


@pytest.mark.parametrize("value", [X, np.array(["a", "ä"], object), np.array([1, -2], ml_dtypes.int4), [X, W], None])
def test_values_keep_their_type_on_the_way_to_the_child(tmp_path, value):
    paths = inputs.save({"v": value}, tmp_path / "set")
    loaded = inputs.load(paths["v"])
    for one, other in [(loaded, value)] if not isinstance(value, list) else zip(loaded, value, strict=True):
        assert type(one) is type(other)
        assert other is None or (one.dtype == other.dtype and one.tolist() == other.tolist())


# --- what does not fit ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "values, sentence",
    [
        ({"x": X}, "'w' is missing; the model takes 'x' (float[N, 2]), 'w' (float[N, 2])"),
        ({"x": X, "w": W, "z": W}, "'z' is no input of the model"),
        ({"x": X, "W": W}, "'W' is no input of the model and 'w' is missing"),
        ({"x": X.astype(np.float64), "w": W}, "'x' is double[1, 2], and the model takes float[N, 2]"),
        ({"x": X[0], "w": W}, "'x' is float[2], and the model takes float[N, 2]"),
        ({"x": X[:, :1], "w": W}, "'x' is float[1, 1], and the model takes float[N, 2]"),
        ({"x": X, "w": np.concatenate([W, W])}, "N is 1 in 'x' and 2 in 'w', which is float[2, 2]"),
    ],
)
def test_what_does_not_fit_is_one_sentence(files, values, sentence):
    np.savez(files / "v.npz", **values)
    result = run("verify", files / "a.onnx", files / "b.onnx", "--inputs", files / "v.npz")
    assert result.exit_code == 2 and sentence in result.stderr and result.stderr.count("\n") == 1
    with pytest.raises(ModelFileError, match="the given inputs 0"):
        verify(BEFORE, AFTER, inputs=[values])


@pytest.mark.parametrize("kind", ["none", "text", "npy", "empty folder", "gap", "too many", "no tensor", "pickle"])
def test_what_holds_no_inputs_is_one_sentence(files, kind):
    place = files / "inputs.npz"
    if kind == "text":
        place.write_text("1 2 3")
    elif kind == "npy":
        with place.open("wb") as file:
            np.save(file, X)
    elif kind == "pickle":
        np.savez(place, x=np.array([object()]), w=W)
    elif kind == "too many":
        place = data_set(files / "set", x=X, w=W, z=W)
    elif kind in ("gap", "no tensor", "empty folder"):
        place = data_set(files / "set", **({"x": X, "w": W} if kind != "empty folder" else {}))
        if kind == "gap":
            (place / "input_0.pb").unlink()
        elif kind == "no tensor":
            (place / "input_1.pb").write_bytes(b"\xff\xff no protobuf")
    result = run("verify", files / "a.onnx", files / "b.onnx", "--inputs", place)
    assert result.exit_code == 2 and result.stderr.startswith("relu-tools: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_an_overridable_initializer_may_be_given():
    model = parsed(13, "(float[N] x, float[1] w) => (float[N] y) { y = Mul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2], np.float32), "w"))
    assert set(inputs.check({"x": X[0]}, model.graph, "v")) == {"x"}
    assert set(inputs.check({"x": X[0], "w": X[0, :1]}, model.graph, "v")) == {"x", "w"}


# --- where models part ------------------------------------------------------------------------
CHAIN = "(float[N] x) => (float[N] y) {{ a = Relu(x) b = {}(a) c = Add(b, a) d = Abs(c) y = Neg(d) }}"


def test_the_first_value_that_differs_is_found(tmp_path):
    before, after = parsed(14, CHAIN.format("Sigmoid")), parsed(13, CHAIN.format("Tanh"))
    after.graph.node[1].name = "wrong"
    located = verify(before, after, locate=True).located
    assert located.value == "b" and located.runs == 1
    assert (located.before.op, located.after.op, located.after.node) == ("Sigmoid", "Tanh", "wrong")
    assert located.figures.differing and located.figures.max_abs > 0 and located.figures.place
    onnx.save(before, tmp_path / "a.onnx")
    onnx.save(after, tmp_path / "b.onnx")
    result = run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--locate")
    assert result.exit_code == 1 and "part at b: Sigmoid of a in A, Tanh 'wrong' of a in B" in result.output
    told = json.loads(run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--locate", "--json").stdout)
    assert told["located"]["value"] == "b" and told["located"]["after"]["inputs"] == ["a"]


def test_models_in_files_with_many_weights_are_located(tmp_path, monkeypatch):
    """By their files, the values on the way being outputs of copies."""
    from relu_tools import forms, judging

    monkeypatch.setattr(forms, "_LARGE_FILE", 100)
    paths = []
    for name, op in (("before", "Sigmoid"), ("after", "Tanh")):
        model = parsed(13, f"(float[N, 64] x) => (float[N, 64] y) {{ m = MatMul(x, w) b = {op}(m) y = Neg(b) }}")
        weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(model, paths[-1])
    job = {"before": str(paths[0]), "after": str(paths[1]), "accuracy": "model", "seed": 0, "seconds": 9}
    first = judging.judge_job({**job, "locate": True}, tmp_path)
    answer = judging.judge_job({**job, "parting": first["parting"]}, tmp_path)
    assert answer["located"]["value"] == "b" and (tmp_path / "before.exposed.onnx").is_file()


def test_a_verdict_stands_where_locating_takes_too_much(monkeypatch):
    from relu_tools import verification

    real, calls = verification.run_jobs, []

    def second_fails(*args):
        calls.append(args)
        return real(*args) if len(calls) == 1 else [{"error": "took more than 1 s"}]

    monkeypatch.setattr(verification, "run_jobs", second_fails)
    found = verify(parsed(14, CHAIN.format("Sigmoid")), parsed(13, CHAIN.format("Tanh")), locate=True)
    assert found.verdict == DIFFERENT and found.located is None
    assert "differs on" in found.reason and "took more than 1 s" in found.reason


def test_equal_models_part_nowhere():
    found = verify(BEFORE, BEFORE, locate=True)
    assert found.verdict == "bit-exact" and found.located is None


def test_models_that_share_no_name_are_not_located():
    after = parsed(13, "(float[N] u) => (float[N] v) { v = Neg(u) }")
    found = verify(parsed(13, "(float[N] x) => (float[N] y) { y = Relu(x) }"), after, locate=True)
    assert found.verdict == DIFFERENT and found.located is None and "no value on the way" in found.reason


@pytest.mark.parametrize("wrong", [0, 1, 57, 98, 99])
@pytest.mark.parametrize("most", [1, 10, 25, 1000])
def test_little_memory_takes_few_runs_more(wrong, most):
    names = [f"v{i}" for i in range(100)]
    held = []

    def differ(chosen):
        held.append(len(chosen))
        return {name: Figures(name, verdict=DIFFERENT if int(name[1:]) >= wrong else "bit-exact") for name in chosen}

    value, figures, runs = locating.first_apart(names, dict.fromkeys(names, 1), differ, most)
    assert value == f"v{wrong}" and figures.verdict == DIFFERENT and runs == len(held)
    assert max(held) <= most or most == 1
    assert runs <= {1: 9, 10: 3, 25: 2, 1000: 1}[most]


def test_where_nothing_differs_on_the_way():
    differ = lambda chosen: {name: Figures(name) for name in chosen}  # noqa: E731
    assert locating.first_apart(["a", "b", "c"], {"a": 1, "b": 1, "c": 1}, differ, 2) is None
