"""The command line: what it writes and says, its exit statuses, and that no mistake loses a file."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from google.protobuf import json_format, text_format

import relu_tools
from relu_tools.cli import main
from relu_tools.compare import Figures
from relu_tools.conversion import VerificationError
from relu_tools.verification import Verification

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "models"
BY = r"by (onnxruntime [0-9.]+|reference evaluator) on [0-9]+ sets of inputs \(seed 0\)"
COMMANDS = ["convert", "inline", "check", "verify", "explain"]


def run(*args: object) -> Result:
    # Before click 8.2 standard error has to be kept apart by request.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, [str(arg) for arg in args])


def process(*args: object, **settings) -> subprocess.Popen:
    command = [sys.executable, "-m", "relu_tools", *map(str, args)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen(command, **pipes, env={**os.environ, "PYTHONPATH": str(ROOT)})


def sentence(text: str | bytes) -> str:
    """The text, which must be a single sentence."""
    text = text.decode() if isinstance(text, bytes) else text
    assert re.fullmatch(r"relu-tools: [^\n]+\n", text), text
    return text


@pytest.fixture
def relu(tmp_path) -> Path:
    """A Relu of opset 14 on int8, which takes a rewrite to be at 13."""
    path = tmp_path / "net.onnx"
    model = '<ir_version: 7, opset_import: ["": 14]> net (int8[N] x) => (int8[N] y) { y = Relu (x) }'
    onnx.save(onnx.parser.parse_model(model), path)
    return path


@pytest.fixture
def blocked(tmp_path) -> Path:
    """Two nodes on bfloat16, which no opset before 13 has."""
    path = tmp_path / "blocked.onnx"
    text = """<ir_version: 7, opset_import: ["": 14]> net (bfloat16[N] x) => (bfloat16[N] y, bfloat16[N] z)
        { [first] y = Relu (x) [second] z = Relu (x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def opset(path: Path) -> int:
    return {entry.domain: entry.version for entry in onnx.load(path).opset_import}[""]


# --- convert ---------------------------------------------------------------------------------
def test_convert_writes_an_equal_model_beside_the_other(relu):
    before = relu.read_bytes()
    result = run("convert", relu, "--opset", 12)
    assert (result.exit_code, result.stderr) == (0, "")
    written = relu.with_name("net.opset12.onnx")
    assert sorted(relu.parent.iterdir()) == [relu, written]
    assert relu.read_bytes() == before
    assert opset(written) == 12
    x = np.arange(-128, 128).astype(np.int8)
    (y,) = onnxruntime.InferenceSession(str(written)).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_convert_says_what_it_did(relu):
    said = run("convert", relu, "--opset", 12).stdout
    assert re.search(r"opset +ai\.onnx 14 to 12\n", said)
    assert re.search(r"nodes +1 to 2: 0 kept, 1 rewritten\n +1 x Relu became Constant, Max \(adapter; exact\)", said)
    assert re.search(rf"verdict +bit-exact: 1 rewrite, each run alone, {BY}; no difference\n", said)


def test_convert_as_json(relu):
    result = run("convert", relu, "--opset", 9, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert said["output"] == str(relu.with_name("net.opset9.onnx"))
    assert (said["opsets_before"], said["opsets_after"]) == ({"": 14}, {"": 9})
    assert (said["ir_before"], said["ir_after"]) == (7, 4)
    assert [change["op"] for change in said["changes"]] == ["Relu"]
    assert said["refusals"] == []
    assert said["verification"]["verdict"] == "bit-exact"


@pytest.mark.parametrize("how", ["text", "json"])
def test_a_refused_conversion_names_every_refusal_and_writes_nothing(blocked, how):
    result = run("convert", blocked, "--opset", 12, *(["--json"] if how == "json" else []))
    assert result.exit_code == 1
    assert list(blocked.parent.iterdir()) == [blocked]
    if how == "json":
        sentence(result.stderr)
        found = json.loads(result.stdout)
        assert found["output"] is None
        nodes = [(refusal["node"], refusal["step"]["op"]) for refusal in found["refusals"]]
        assert {("first", "Relu"), ("second", "Relu")} < set(nodes)
        assert all("bfloat16" in refusal["reason"] for refusal in found["refusals"])
    else:
        assert result.stdout == ""
        for words in ("first: Relu 13 to 6: ", "second: Relu 13 to 6: ", "no bfloat16 before opset 13"):
            assert words in result.stderr
        assert "change the model's interface" in result.stderr


@pytest.mark.parametrize("how", ["text", "json"])
def test_forms_that_differ_are_not_written(relu, monkeypatch, how):
    def differ(*_, **__):
        raise VerificationError(Verification("different", reason="y differs on plain values: 1.0 against 2.0"))

    monkeypatch.setattr(sys.modules["relu_tools.conversion"], "convert", differ)
    result = run("convert", relu, "--opset", 12, *(["--json"] if how == "json" else []))
    assert result.exit_code == 1
    assert "1.0 against 2.0" in sentence(result.stderr)
    assert list(relu.parent.iterdir()) == [relu]
    if how == "json":
        found = json.loads(result.stdout)
        assert (found["output"], found["verification"]["verdict"]) == (None, "different")


def test_what_was_not_verified_is_said(relu, monkeypatch):
    said = run("convert", relu, "--opset", 12, "--verify", "off").stdout
    assert re.search("verdict +NOT VERIFIED: --verify off\n", said)

    def unknown(*_, **__):
        part = Verification("not verified", reason="no judge has a kernel")
        return Verification("not verified", reason="y: no judge has a kernel", parts=[("y", part)])

    monkeypatch.setattr(sys.modules["relu_tools.verification"], "verify_rewrites", unknown)
    result = run("convert", relu, "--opset", 12, "--force")
    assert result.exit_code == 0
    assert re.search("verdict +NOT VERIFIED: 1 rewrite, .*\n +not verified: y: no judge has a kernel\n", result.stdout)
    result = run("convert", relu, "--opset", 12, "--force", "--json")
    assert json.loads(result.stdout)["verification"]["verdict"] == "not verified"


def test_convert_expands_functions_on_the_way(relu):
    result = run("convert", relu, "--opset", 15, "--inline", "Relu", "--inline", "Rleu", "--verify", "off")
    assert result.exit_code == 0
    operators = [node.op_type for node in onnx.load(relu.with_name("net.opset15.onnx")).graph.node]
    assert operators == ["Constant", "CastLike", "Max"]
    assert "no node calls a function 'Rleu'" in result.stdout
    path = relu.with_name("gelu.onnx")
    text = '<ir_version: 7, opset_import: ["": 14, "com.microsoft": 1]> net (float[2] x) => (float[2] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = com.microsoft.Gelu (x) }"), path)
    said = run("inline", path, "--op", "Gelu", "--verify", "off").stdout
    assert "no node calls a function 'Gelu'; did you mean com.microsoft::Gelu?" in said
    assert "'Relu'" not in result.stdout


def test_each_domain_has_its_own_opset(tmp_path):
    path = tmp_path / "trees.onnx"
    text = """<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 4]> net (float[N] x) => (float[N] y) {
        b = ai.onnx.ml.Binarizer (x) y = Relu (b) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    result = run("convert", path, "--opset", "ai.onnx=13", "--opset", "ai.onnx.ml=3", "--verify", "off")
    assert result.exit_code == 0
    imports = onnx.load(tmp_path / "trees.opset13.ai.onnx.ml3.onnx").opset_import
    assert {entry.domain: entry.version for entry in imports} == {"": 13, "ai.onnx.ml": 3}
    assert "ai.onnx 20 to 13, ai.onnx.ml 4 to 3" in result.stdout
    assert run("convert", path, "--opset", "ai.onnx.ml=3", "--verify", "off").exit_code == 0
    imports = onnx.load(tmp_path / "trees.ai.onnx.ml3.onnx").opset_import
    assert {entry.domain: entry.version for entry in imports} == {"": 20, "ai.onnx.ml": 3}


@pytest.mark.parametrize(("asked", "expected"), [((), 4), (("--ir-version", "keep"), 7), (("--ir-version", 5), 5)])
def test_ir_version(relu, asked, expected):
    assert run("convert", relu, "--opset", 9, "--verify", "off", *asked).exit_code == 0
    assert onnx.load(relu.with_name("net.opset9.onnx")).ir_version == expected


def test_unknown_domains_and_fixed_initializers_are_named(tmp_path):
    path = tmp_path / "net.onnx"
    text = """<ir_version: 3, opset_import: ["": 11, "acme": 2]> net (float[N] x, float low, float high) => (float[N] z)
        <float low = {0}, float high = {6}> { y = Clip (x, low, high) z = acme.Twist (y) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    result = run("convert", path, "--opset", 7, "--verify", "off")
    assert result.exit_code == 0
    assert "domain acme" in result.stdout
    assert "initializer low can no longer be overridden" in result.stdout
    found = json.loads(run("convert", path, "--opset", 7, "--verify", "off", "--force", "--json").stdout)
    assert (found["unknown_domains"], found["no_longer_overridable"]) == (["acme"], ["high", "low"])


def test_digits_keep_every_answer(tmp_path):
    converted = tmp_path / "digits.onnx"
    evaluate = [sys.executable, str(MODELS / "evaluate.py"), str(MODELS / "digits.onnx")]
    assert run("convert", MODELS / "digits.onnx", "--opset", 7, "-o", converted, "--verify", "off").exit_code == 0
    done = subprocess.run([*evaluate, str(converted)], capture_output=True, text=True)
    assert done.returncode == 0
    assert "352 of 360 right" in done.stdout
    assert "all 360 of 360 test images get the same answer" in done.stdout

    model = onnx.load(converted)
    gain = next(tensor for tensor in model.graph.initializer if tensor.name.endswith("weight"))
    gain.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(gain), gain.name))
    onnx.save(model, converted)
    done = subprocess.run([*evaluate, str(converted)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "all" not in done.stdout.splitlines()[-1]


# --- inline ----------------------------------------------------------------------------------
def test_inline_one_operator(relu):
    result = run("inline", relu, "--op", "Relu")
    assert result.exit_code == 0
    written = relu.with_name("net.inlined.onnx")
    assert [node.op_type for node in onnx.load(written).graph.node] == ["Constant", "Cast", "Max"]
    assert opset(written) == 14
    assert re.search("verdict +bit-exact", result.stdout)


def test_inline_everything(tmp_path):
    result = run("inline", MODELS / "functions.onnx", "-o", tmp_path / "plain.onnx", "--json")
    assert result.exit_code == 0
    model = onnx.load(tmp_path / "plain.onnx")
    assert not model.functions
    assert not {node.domain for node in model.graph.node} - {""}
    assert "samples::HardShrink" in json.loads(result.stdout)["inlined_functions"]


# --- check -----------------------------------------------------------------------------------
def test_check_tells_what_blocks(blocked):
    result = run("check", blocked, "--opset", "11-14")
    assert (result.exit_code, result.stderr) == (1, "")
    assert re.search(r"operator +nodes +11-12 +13-14\nRelu +2 +!2 +=\n", result.stdout)
    assert "blocked at 11-12: Relu 13 to 6: no bfloat16 before opset 13\n    at first, second\n" in result.stdout
    assert "reachable: 13-14 (lowest 13, highest 14); the model has 14" in result.stdout
    assert run("check", blocked, "--opset", 13).exit_code == 0
    assert "reachable: none; the model has 14" in run("check", blocked, "--opset", 12).stdout


def test_check_by_default_looks_from_7_to_the_newest(relu):
    result = run("check", relu)
    assert result.exit_code == 0
    newest = onnx.defs.onnx_opset_version()
    assert re.search(rf"operator +nodes +7-13 +14-{newest}\nRelu +1 +1 +=\n", result.stdout)
    assert "rewritten at 7-13: Relu (adapter; exact)\n" in result.stdout
    assert f"lowest 7, highest {newest}" in result.stdout


def test_check_as_json(blocked):
    result = run("check", blocked, "--opset", "12-13", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (found["opset"], found["reachable"]) == (14, [13])
    assert [entry["node"] for entry in found["operators"]["Relu"]["opsets"]["12"]["blocked"]] == ["first", "second"]


# --- verify ----------------------------------------------------------------------------------
@pytest.fixture
def shifted(tmp_path) -> Path:
    """Not the same as Relu."""
    path = tmp_path / "shifted.onnx"
    model = '<ir_version: 7, opset_import: ["": 14]> net (int8[N] x) => (int8[N] y) { y = Add (x, x) }'
    onnx.save(onnx.parser.parse_model(model), path)
    return path


def test_verify_equal_models(relu, tmp_path):
    run("inline", relu, "-o", tmp_path / "plain.onnxtxt", "--verify", "off")
    result = run("verify", relu, tmp_path / "plain.onnxtxt")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search(r"y +bit-exact +0 +0 +0 +0 of [0-9]+\n", result.stdout)
    assert re.search(f"bit-exact, {BY}", result.stdout)


def test_verify_models_that_differ(relu, shifted):
    result = run("verify", relu, shifted, "--json", "--seed", 3)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["equal"], found["seed"]) == (1, "different", False, 3)
    result = run("verify", relu, shifted)
    assert result.exit_code == 1
    assert re.search(r"^y +different ", result.stdout, re.MULTILINE)
    assert re.search("^different, by .*greatest difference [1-9]", result.stdout, re.MULTILINE)
    assert not re.search(r"^ +different: ", result.stdout, re.MULTILINE)


def test_verify_speaks_of_a_and_b(tmp_path):
    bodies = {"a": "float[2] y) { y = Relu (x) }", "b": "float[2] y, float[2] z) { y = Relu (x) z = Neg (x) }"}
    for name, body in bodies.items():
        text = f'<ir_version: 7, opset_import: ["": 11]> net (float[2] x) => ({body}'
        onnx.save(onnx.parser.parse_model(text), tmp_path / name)
    result = run("verify", tmp_path / "a", tmp_path / "b")
    assert result.exit_code == 1
    assert [line.strip() for line in result.stdout.splitlines()] == ["different", "A has 1 output, B has 2"]


def test_the_seed_is_told_where_it_drew_the_inputs(relu, tmp_path):
    np.savez(tmp_path / "given.npz", x=np.zeros(3, np.int8))
    assert "(seed 0)" in run("verify", relu, relu).stdout
    given = run("verify", relu, relu, "--inputs", tmp_path / "given.npz")
    assert given.exit_code == 0 and "seed" not in given.stdout


def test_json_holds_no_infinity(relu, monkeypatch):
    figures = [Figures("y", max_abs=float("inf"), max_rel=float("nan"), max_ulp=3, verdict="different")]
    module = sys.modules["relu_tools.verification"]
    monkeypatch.setattr(module, "verify", lambda *_, **__: Verification("different", figures))
    result = run("verify", relu, relu, "--json")
    (found,) = json.loads(result.stdout, parse_constant=pytest.fail)["figures"]
    assert (found["max_abs"], found["max_rel"], found["max_ulp"]) == ("inf", "nan", 3)


def test_verify_what_no_judge_can_run(tmp_path):
    path = tmp_path / "net.onnx"
    text = '<ir_version: 7, opset_import: ["": 14, "acme": 1]> net (float[N] x) => (float[N] y) { y = acme.Twist (x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    result = run("verify", path, path)
    assert result.exit_code == 1
    assert result.stdout.startswith("NOT VERIFIED")


# --- explain ---------------------------------------------------------------------------------
def test_explain():
    result = run("explain", "Relu", 14, 13)
    assert result.exit_code == 0
    assert "types gone: int16, int32, int64, int8" in result.stdout
    for args, said in {
        ("Rleu", 14, 13): "no schema knows an operator 'Rleu'",
        ("relu", 14, 13): "'relu'; did you mean Relu?",
        ("Relu", 14, 0): "no opset 0",
    }.items():
        result = run("explain", *args)
        assert result.exit_code == 2
        assert said in sentence(result.stderr)


# --- help ------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples_that_work(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Exit status: 0 done and equal; 1 refused" in " ".join(result.stdout.split())
    examples = re.findall(r"^ +relu-tools (.*)$", result.stdout, re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        name, *args = shlex.split(re.split("[|<>]", example)[0])
        assert name == command
        main.commands[name].make_context(name, args)


def test_bare_call_is_help():
    assert run().stdout == run("--help").stdout
    assert run().exit_code == 0
    assert run("--version").stdout.startswith("relu-tools, version ")


def test_help_loads_nothing_heavy():
    heavy = ["numpy", "onnx", "onnx.reference", "onnxruntime", "onnxscript", "onnx_ir", "rich"]
    code = f"import sys, relu_tools.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stdout.strip() == "[]"


# --- bad input -------------------------------------------------------------------------------
def bad_file(kind: str, folder: Path) -> Path:
    path = folder / "bad.onnx"
    if kind == "text":
        path.write_text("Dear all,\nhere is the model.\n")
    elif kind == "empty":
        path.touch()
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net.onnx", "x" * 100)
    elif kind == "truncated":
        path.write_bytes((MODELS / "digits.onnx").read_bytes()[:5000])
    elif kind == "noise":
        path.write_bytes(np.random.default_rng(0).bytes(4000))
    elif kind == "folder":
        path.mkdir()
    elif kind == "no onnxtxt":
        path = folder / "bad.onnxtxt"
        path.write_text("<ir_version: 7")
    elif kind == "no json":
        path = folder / "bad.json"
        path.write_text("{]")
    return path


BAD = ["text", "empty", "zip", "truncated", "noise", "folder", "missing", "no onnxtxt", "no json"]


@pytest.mark.parametrize("command", ["convert", "inline", "check", "verify"])
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_model(tmp_path, kind, command):
    path = bad_file(kind, tmp_path)
    before = sorted(tmp_path.iterdir())
    more = {"convert": ["--opset", 13], "verify": [MODELS / "digits.onnx"]}.get(command, [])
    result = run(command, path, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(path) in sentence(result.stderr)
    assert sorted(tmp_path.iterdir()) == before


def test_errors_are_sentences_with_json_too(tmp_path):
    result = run("convert", tmp_path / "missing.onnx", "--opset", 13, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    sentence(result.stderr)


@pytest.mark.parametrize(
    "value", ["0", "99", "abc", "-1", "", "1_3", "１３", "9" * 5000, "acme=1", "ai.onnx.ml=99", "=13x"]
)
def test_opsets_that_are_none(relu, value):
    result = run("convert", relu, "--opset", value)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence(result.stderr)
    assert list(relu.parent.iterdir()) == [relu]


@pytest.mark.parametrize("value", ["0", "99", "abc", "7-", "13-7", "7-99"])
def test_ranges_that_are_none(relu, value):
    result = run("check", relu, "--opset", value)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence(result.stderr)


@pytest.mark.parametrize("value", ["0", "99", "abc", "-1"])
def test_ir_versions_that_are_none(relu, value):
    result = run("convert", relu, "--opset", 13, "--ir-version", value)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence(result.stderr)
    assert list(relu.parent.iterdir()) == [relu]


@pytest.mark.parametrize(
    "args",
    [
        ["frob"],
        ["--frob"],
        ["convert"],
        ["convert", "net.onnx"],
        ["convert", "net.onnx", "--opset", "13", "--opset", "ai.onnx=12"],
        ["convert", "net.onnx", "--opset", "13", "--verify", "maybe"],
        ["convert", "net.onnx", "--opset", "13", "--seed", "-1"],
        ["verify", "net.onnx"],
        ["verify", "-", "-"],
        ["explain", "Relu", "14"],
        ["explain", "Relu", "x", "13"],
    ],
)
def test_wrong_usage(args):
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(r"[^.] \(see relu-tools.* --help\)\n", sentence(result.stderr))


# --- output ----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [["convert", "--opset", 13], ["inline"]])
def test_nothing_is_overwritten_without_force(relu, command):
    other = relu.with_name("other.onnx")
    other.write_text("dear to somebody")
    before = relu.read_bytes()
    for target in (relu, other):
        kept = target.read_bytes()
        result = run(*command, relu, "-o", target, "--verify", "off")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "exists" in sentence(result.stderr)
        assert target.read_bytes() == kept
    assert run(*command, relu, "-o", other, "--verify", "off", "--force").exit_code == 0
    assert onnx.load(other).graph.node
    assert relu.read_bytes() == before
    assert run(*command, relu, "-o", relu, "--verify", "off", "--force").exit_code == 0
    assert relu.read_bytes() == other.read_bytes()


def test_an_existing_file_is_found_before_the_work_is_done(relu, monkeypatch):
    monkeypatch.setattr(
        sys.modules["relu_tools.conversion"], "convert", lambda *_, **__: pytest.fail("the work was done")
    )
    result = run("convert", relu, "--opset", 13, "-o", relu)
    assert result.exit_code == 2


def test_a_file_that_came_meanwhile_is_kept(relu, monkeypatch):
    module = sys.modules["relu_tools.conversion"]
    convert, target = module.convert, relu.with_name("net.opset13.onnx")

    def slow(*args, **settings):
        target.write_text("dear to somebody")
        return convert(*args, **settings)

    monkeypatch.setattr(module, "convert", slow)
    result = run("convert", relu, "--opset", 13, "--verify", "off")
    assert result.exit_code == 2
    assert "exists" in sentence(result.stderr)
    assert target.read_text() == "dear to somebody"


def test_where_nothing_can_be_written(relu, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for target in (tmp_path / "none" / "x.onnx", folder, relu / "x.onnx"):
        result = run("convert", relu, "--opset", 13, "-o", target)
        assert (result.exit_code, result.stdout) == (2, "")
        assert str(target) in sentence(result.stderr)
    assert sorted(tmp_path.iterdir()) == [folder, relu]


def test_an_unwritable_folder(relu, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # It is for root.
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    result = run("convert", relu, "--opset", 13, "-o", folder / "x.onnx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(folder) in sentence(result.stderr)
    assert not list(folder.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk(relu):
    with open("/dev/full", "wb") as full:
        for args in (["--help"], ["check", relu], ["convert", relu, "--opset", 13, "--verify", "off", "-o", "-"]):
            child = process(*args, stdout=full)
            _, said = child.communicate(timeout=60)
            assert child.returncode == 2
            assert "standard output" in sentence(said)


def test_a_failing_write_leaves_what_was_there(relu, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", fail)
    before = relu.read_bytes()
    result = run("convert", relu, "--opset", 13, "-o", relu, "--force", "--verify", "off")
    assert result.exit_code == 2
    sentence(result.stderr)
    assert (list(relu.parent.iterdir()), relu.read_bytes()) == ([relu], before)


# --- formats ---------------------------------------------------------------------------------
READERS = {
    ".onnx": lambda path: onnx.load_model_from_string(path.read_bytes()),
    ".onnxtxt": lambda path: onnx.parser.parse_model(path.read_text()),
    ".json": lambda path: json_format.Parse(path.read_text(), onnx.ModelProto()),
    ".textproto": lambda path: text_format.Parse(path.read_text(), onnx.ModelProto()),
}


def test_formats_go_by_ending(tmp_path):
    source = tmp_path / "net.onnxtxt"
    shutil.copy(MODELS / "relu_14_float.onnxtxt", source)
    for level, (ending, read) in enumerate(READERS.items(), 15):
        target = tmp_path / f"net{level}{ending}"
        assert run("convert", source, "--opset", level, "-o", target).exit_code == 0
        model = read(target)
        assert [entry.version for entry in model.opset_import] == [level]
        assert [node.op_type for node in model.graph.node] == ["Relu"]
        source = target
    assert run("convert", tmp_path / "net16.onnxtxt", "--opset", 9).exit_code == 0
    assert opset_of_text(tmp_path / "net16.opset9.onnxtxt") == 9


def opset_of_text(path: Path) -> int:
    return READERS[path.suffix](path).opset_import[0].version


def test_standard_streams(relu):
    with open(relu, "rb") as model:
        child = process("convert", "-", "--opset", 13, "--verify", "off", stdin=model)
        written, said = child.communicate(timeout=60)
    assert child.returncode == 0
    assert onnx.load_model_from_string(written).opset_import[0].version == 13
    assert b"standard input -> standard output" in said

    child = process("inline", "-", "-o", "-", "--verify", "off", "--json", stdin=subprocess.PIPE)
    written, said = child.communicate(written, timeout=60)
    assert child.returncode == 0
    assert onnx.load_model_from_string(written).opset_import[0].version == 13
    assert json.loads(said)["output"] == "-"

    child = process("check", "-", "--opset", 13, stdin=subprocess.PIPE)
    said, nothing = child.communicate(written, timeout=60)
    assert (child.returncode, nothing) == (0, b"")
    assert b"reachable: 13" in said


def test_names_cannot_write_to_the_terminal(blocked):
    model = onnx.load(blocked)
    model.graph.node[0].name = "\x1b[2J\rnode 漢"
    onnx.save(model, blocked)
    for result in (run("convert", blocked, "--opset", 12), run("check", blocked, "--opset", 12)):
        assert not re.search("[\x1b\r]", result.output + result.stderr)
        assert "\\x1b[2J\\rnode 漢" in result.stdout + result.stderr


# --- what comes from outside -----------------------------------------------------------------
def test_a_broken_pipe(relu):
    convert = ["convert", relu, "--opset", 13, "--verify", "off"]
    for args in (["--help"], ["check", relu], convert, ["inline", relu, "-o", "-", "--verify", "off"]):
        read, write = os.pipe()
        os.close(read)
        child = process(*args, stdout=write)
        os.close(write)
        _, said = child.communicate(timeout=60)
        assert child.returncode == 2, said
        assert "standard output: Broken pipe" in sentence(said)
    assert opset(relu.with_name("net.opset13.onnx")) == 13


def test_closed_streams(relu):
    def close(number: int):
        return lambda: os.close(number)

    for number, args in ((0, ["check", "-"]), (1, ["convert", relu, "--opset", 13, "-o", "-"])):
        child = process(*args, preexec_fn=close(number), stdin=None, stdout=None)
        _, said = child.communicate(timeout=60)
        assert child.returncode == 2
        assert "is closed" in sentence(said)


def test_ctrl_c_while_reading(tmp_path):
    child = process("convert", "-", "--opset", 13, "-o", tmp_path / "x.onnx", stdin=subprocess.PIPE)
    # More than a pipe holds, so that it is reading once this has been written.
    child.stdin.write(b"\0" * (1 << 22))
    child.send_signal(signal.SIGINT)
    said = child.stderr.read()
    child.stdin.close()
    child.stdout.close()
    assert child.wait(60) == 130
    assert "interrupted" in sentence(said)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_verifying(relu, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["relu_tools.verification"], "verify_rewrites", interrupt)
    result = run("convert", relu, "--opset", 12)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "interrupted" in sentence(result.stderr)
    assert list(relu.parent.iterdir()) == [relu]


# --- the README ------------------------------------------------------------------------------
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def in_a_copy(tmp_path, monkeypatch):
    shutil.copytree(MODELS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)


def told(text: str) -> list[str]:
    """The lines, without what depends on the installed judges."""
    return re.sub("by .* sets of inputs|[0-9]+ of [0-9]+$", "...", text, flags=re.MULTILINE).splitlines()


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="older printers of ONNX text write what none can read")
def test_the_readme_shows_what_is_printed(in_a_copy):
    converted = ["convert", "models/digits.onnx", "--opset", "7"]
    examples = re.findall(r"^\$ relu-tools (.*)\n((?:(?!\$ |```).*\n)*)", README, re.MULTILINE)
    assert {example[0].split()[0] for example in examples} == {"convert", "check", "verify", "explain"}
    assert told(run(*converted).stdout) == told(README[README.index("models/digits.onnx -> ") :])[:9]
    for command, expected in examples:
        result = run(*shlex.split(command))
        assert told(result.stdout + result.stderr) == told(expected)


def test_the_readme_shows_what_inlining_does(in_a_copy):
    (command,) = re.findall("^After `relu-tools (.*)`:$", README, re.MULTILINE)
    blocks = re.findall(r"```\n(relu_14_float .*?\n\})\n```", README, re.DOTALL)
    assert run(*shlex.split(command)).exit_code == 0
    for path, block in zip(("models/relu_14_float.onnxtxt", "inlined.onnxtxt"), blocks, strict=True):
        assert block in Path(path).read_text()


def test_the_library_in_the_readme(in_a_copy):
    (code,) = re.findall(r"```python\n(import relu_tools\n.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stderr == ""
    assert done.stdout.startswith("bit-exact")
    assert done.stdout.splitlines()[1] == "True"
    assert "y_bfloat16: no bfloat16 before opset 13" in done.stdout


def test_the_lines_that_set_everything_up():
    lines = re.findall("^python3 -m venv .*$", README, re.MULTILINE)
    assert len(lines) == 2
    # .ci/run takes its line from there.
    assert len([line for line in lines if "pytest" in line]) == 1
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


# --- the library beside it -------------------------------------------------------------------
def test_the_library_lists_its_names():
    code = "import relu_tools; print(*dir(relu_tools))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert {"convert", "check", "inline", "verify", "Report"} <= set(done.stdout.split())
    assert all(hasattr(relu_tools, name) for name in done.stdout.split())


def test_functions_keep_their_names():
    """Some functions are called like the modules that they are from."""
    code = "import relu_tools as r, relu_tools.verification; print(*map(callable, (r.verify, r.inline)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")
    assert relu_tools.check(MODELS / "relu_14_float.onnxtxt", 13)
