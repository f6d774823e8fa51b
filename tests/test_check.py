"""What `check` foretells, against what `convert` does and what the specification says of a model as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from test_onnx_cases import cases

import relu_tools
from relu_tools import schemas
from relu_tools.cli import main
from relu_tools.compatibility_text import columns, compatibility, github

FLOAT_RELU = '<ir_version: 7, opset_import: ["": 14]> net (float[2] x) => (float[2] y) { y = Relu (x) }'
INT_RELU = '<ir_version: 7, opset_import: ["": 14]> net (int32[2] x) => (int32[2] y) { [a] y = Relu (x) }'
BFLOAT_RELU = '<ir_version: 7, opset_import: ["": 14]> net (bfloat16[2] x) => (bfloat16[2] y) { [a] y = Relu (x) }'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def run(*args: object):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def save(text: str, path) -> str:
    onnx.save(model(text), path)
    return str(path)


# --- check is convert's dry run ------------------------------------------------------------------
def disagreements(pairs):
    for name, case, targets in pairs:
        reachable = relu_tools.check(case, targets).reachable
        for target in targets:
            try:
                relu_tools.convert(case, target, verify="off")
                does = True
            except relu_tools.ConversionError:
                does = False
            if does != (target in reachable):
                yield name, target, does


def sample(stride: int, opsets: int):
    newest = onnx.defs.onnx_opset_version()
    for number, (name, case, _) in enumerate(cases()[::stride]):
        yield name, case, list(range(7 + number % opsets, newest + 1, opsets))


def test_check_says_what_convert_does():
    assert list(disagreements(sample(61, 6))) == []


@pytest.mark.slow
def test_check_says_what_convert_does_with_every_case():
    assert list(disagreements(sample(1, 3))) == []


# --- the matrix ----------------------------------------------------------------------------------
def test_columns_hold_opsets_at_which_the_same_becomes_of_all():
    found = relu_tools.check(model(INT_RELU), range(9, 17))
    assert columns(found) == [[9, 10, 11, 12, 13], [14, 15, 16]]
    # Relu takes integers from 14 on; below, some other operator must stand for it.
    cells = [found.rows["Relu"][opset] for opset in (13, 14)]
    assert [(cell.kept, cell.rewritten) for cell in cells] == [(0, 1), (1, 0)]


def test_the_summary_names_the_ends_and_what_blocks_the_next_one_down():
    text = compatibility(relu_tools.check(model(BFLOAT_RELU), range(10, 16)))
    assert "reachable: 13-15 (lowest 13, highest 15); the model has 14" in text
    assert "next down: 12, blocked by Relu, graph input, graph output" in text
    # onnx.helper.VERSION_TABLE: opsets 13 and 14 came with IR version 7, and it is never raised.
    assert "IR version: 7 at 13-15; the model has 7" in text


def test_costs_are_those_of_the_conversion():
    found = relu_tools.check(model(INT_RELU), 12)
    result = relu_tools.convert(model(INT_RELU), 12, verify="off")
    assert found.outcomes[12].nodes == len(result.model.graph.node)
    assert found.outcomes[12].added == result.report.to_dict()["operators_added"]
    assert sum(found.outcomes[12].added.values()) == len(result.model.graph.node)  # Relu itself is gone


def test_a_blocked_opset_has_no_outcome():
    found = relu_tools.check(model(BFLOAT_RELU), [12, 13])
    assert list(found.outcomes) == [13]
    assert not found


# --- the model as it stands -----------------------------------------------------------------------
FAULTS = {
    # Relu takes int32 from opset 14 on; onnx.checker lets it pass at 13.
    "a type outside the schema": (
        '<ir_version: 7, opset_import: ["": 13]> net (int32[2] x) => (int32[2] y) { [a] y = Relu (x) }',
        "a: Relu: version 13 does not take tensor(int32) for 'X'",
    ),
    "an operator that came later": (
        '<ir_version: 7, opset_import: ["": 13]> net (float[2] x) => (float[2] y) { [a] y = Gelu (x) }',
        "a: Gelu: it does not exist before opset 20, and the model has 13",
    ),
    "an operator that nobody knows": (
        '<ir_version: 7, opset_import: ["": 13]> net (float[2] x) => (float[2] y) { [a] y = Rolu (x) }',
        "a: Rolu: ai.onnx has no such operator",
    ),
    "a deprecated operator": (
        """<ir_version: 7, opset_import: ["": 13]> net (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y)
        { [a] y = Upsample (x, s) }""",
        "a: Upsample: it is deprecated from opset 10 on",
    ),
    "an attribute that does not exist": (
        '<ir_version: 7, opset_import: ["": 13]> net (float[2] x) => (float[2] y) { [a] y = Relu <alpha = 1.0> (x) }',
        "a: Relu: version 13 has no attribute 'alpha'",
    ),
    # Pad has the mode "wrap" from opset 19 on.
    "a value of an attribute that came later": (
        """<ir_version: 7, opset_import: ["": 13]> net (float[2] x, int64[2] p) => (float[N] y)
        { [a] y = Pad <mode = "wrap"> (x, p) }""",
        "a: Pad: Pad has no mode='wrap' at opset 13",
    ),
    # onnx.proto: bfloat16 came with IR version 4, the 4-bit integers with 10.
    "a type that came with a later IR version": (
        '<ir_version: 9, opset_import: ["": 21]> net (int4[2] x) => (int4[2] y) { y = Identity (x) }',
        "IR version 9 is too low for the element type int4, which came with 10",
    ),
    "functions at an IR version before them": (
        """<ir_version: 7, opset_import: ["": 13, "own": 1]> net (float[2] x) => (float[2] y) { y = own.F (x) }
        <domain: "own", opset_import: ["": 13]> F (x) => (y) { y = Relu (x) }""",
        "IR version 7 is too low for model-local functions, which came with 8",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_told(name):
    text, expected = FAULTS[name]
    assert expected in map(str, relu_tools.check(model(text), ()).findings)


@pytest.mark.parametrize("text", [FLOAT_RELU, INT_RELU, BFLOAT_RELU])
def test_of_a_sound_model_nothing_is_told(text):
    assert relu_tools.check(model(text), ()).findings == []


def test_the_cases_of_the_installed_onnx_are_sound():
    """They pass the checker and strict inference; what is found in them nevertheless must be so by the schema."""
    newest = onnx.defs.onnx_opset_version()
    for name, case, _ in cases()[::17]:
        for finding in relu_tools.check(case, ()).findings:
            assert "deprecated" in finding.text and newest >= 10, f"{name}: {finding}"


# --- the command -----------------------------------------------------------------------------------
def test_exit_statuses(tmp_path):
    fine, blocked = save(FLOAT_RELU, tmp_path / "fine.onnx"), save(BFLOAT_RELU, tmp_path / "blocked.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08")
    statuses = [run("check", path, "--opset", 12).exit_code for path in (fine, blocked, broken)]
    assert statuses == [0, 1, 2]
    assert run("check", fine, blocked, broken, "--opset", 12).exit_code == 2


def test_annotations_are_escaped_as_github_demands():
    text = BFLOAT_RELU.replace("[a]", '["a%, b:c"]')
    lines = github("models/a,b.onnx", relu_tools.check(model(text), 12)).splitlines()
    assert lines[0] == (
        "::error file=models/a%2Cb.onnx,title=relu-tools::"
        "opset 12: a%25, b:c: Relu 13 to 6: no bfloat16 before opset 13"
    )
    assert all(re.fullmatch(r"::(error|warning|notice) file=[^,:]*,title=relu-tools::.*", line) for line in lines)


def test_a_name_cannot_write_a_command_of_its_own():
    proto = model(BFLOAT_RELU)
    proto.graph.node[0].name = "a\n::error::b"
    lines = github("net.onnx", relu_tools.check(proto, 12)).splitlines()
    assert all(line.startswith("::error file=net.onnx,") for line in lines)


def test_rules_of_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    save(FLOAT_RELU, tmp_path / "models" / "a.onnx")
    (tmp_path / "pyproject.toml").write_text('[tool.relu-tools]\nmodels = ["models/*.onnx"]\nopset = 11\n')
    result = run("check")
    assert result.exit_code == 0 and "reachable: 11; the model has 14" in result.output
    assert result.output.startswith("models/a.onnx\n")
    save(BFLOAT_RELU, tmp_path / "models" / "b.onnx")
    result = run("check", "--json")
    assert result.exit_code == 1
    found = json.loads(result.output)["models"]
    assert [(entry["model"], entry["reachable"]) for entry in found] == [("models/a.onnx", [11]), ("models/b.onnx", [])]


@pytest.mark.parametrize(
    "rules",
    [
        "opset = 'x'",
        "opset = []",
        "models = 'a'",
        "runtime = 1",
        "opsets = 11",
        "[[[",
        "models = ['none']",
        "models = ['net.onnx', 'gone.onnx']",
        "models = ['net.onnx', 'gone/*.onnx']",
    ],
)
def test_rules_that_are_none(tmp_path, monkeypatch, rules):
    monkeypatch.chdir(tmp_path)
    save(FLOAT_RELU, tmp_path / "net.onnx")
    (tmp_path / "pyproject.toml").write_text(f"[tool.relu-tools]\n{rules}\n")
    result = run("check")
    assert result.exit_code == 2
    assert re.fullmatch(r"relu-tools: [^\n]+\n", result.output)


def test_patterns_that_match_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing" / "a.onnx").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.relu-tools]\nmodels = ["nothing/*.onnx"]\n')
    said = 'relu-tools: models = ["nothing/*.onnx"] in pyproject.toml match no file\n'
    assert run("check").output == said


def test_a_folder_is_no_model(tmp_path):
    result = run("check", tmp_path)
    assert result.exit_code == 2
    assert result.output == f"relu-tools: {tmp_path} is a folder; check takes files, such as {tmp_path}/*.onnx\n"


def test_of_a_runtime_without_operators_little_is_known(tmp_path):
    (tmp_path / "own.toml").write_text('name = "own"\nir_version = 7\n[opsets]\n"ai.onnx" = [7, 14]\n')
    told = compatibility(relu_tools.check(model(FLOAT_RELU), runtime=tmp_path / "own.toml"))
    assert told == "its opsets and IR version fit own as they are; nothing is known of the operators that it runs"
    newer = model(FLOAT_RELU.replace("14", "15"))
    told = compatibility(relu_tools.check(newer, runtime=tmp_path / "own.toml"))
    assert "nothing is known of the operators that it runs" in told and "loads" not in told


def test_a_table_that_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool]\nrelu-tools = 3\n")
    result = run("check")
    assert result.exit_code == 2 and re.fullmatch(r"relu-tools: [^\n]+\n", result.output)


def test_the_hook_is_one_that_the_command_line_has():
    hook = (Path(__file__).parents[1] / ".pre-commit-hooks.yaml").read_text()
    assert "entry: relu-tools check\n" in hook
    # Without a model the rules of the project hold, so file names must not be passed.
    assert "pass_filenames: false\n" in hook


def test_the_run_time_of_both_forms(tmp_path):
    path = save(INT_RELU, tmp_path / "net.onnx")
    timing = json.loads(run("check", path, "--opset", 13, "--measure", "--json").output)["timing"]
    assert timing["before_ms"] > 0 and timing["after_ms"] > 0 and timing["runs"] >= 1


# --- the page --------------------------------------------------------------------------------------
def test_each_cell_of_the_page_leads_to_its_reason(tmp_path):
    page = tmp_path / "net.html"
    assert run("check", save(BFLOAT_RELU, tmp_path / "net.onnx"), "--opset", "11-14", "--html", page).exit_code == 1
    text = page.read_text("utf-8")
    links, places = re.findall('href="#([^"]+)"', text), re.findall(' id="([^"]+)"', text)
    assert links and set(links) == set(places)
    assert 'aria-label="Relu at opset 12: 1 blocked: no bfloat16 before opset 13"' in text
    assert run("check", tmp_path / "net.onnx", "--html", page).exit_code == 2  # it exists


def test_the_page_takes_the_place_of_no_model(tmp_path):
    path = save(FLOAT_RELU, tmp_path / "net.onnx")
    held = (tmp_path / "net.onnx").read_bytes()
    for page in (path, "-"):
        assert run("check", path, "--html", page, "--force").exit_code == 2
    assert (tmp_path / "net.onnx").read_bytes() == held


def test_nothing_that_a_model_says_becomes_markup(tmp_path):
    proto = model(BFLOAT_RELU)
    proto.graph.node[0].name = "<script>alert(1)</script>"
    onnx.save(proto, tmp_path / "net.onnx")
    run("check", tmp_path / "net.onnx", "--opset", "12", "--html", tmp_path / "net.html")
    assert "<script" not in (tmp_path / "net.html").read_text("utf-8")


@pytest.mark.skipif(schemas.newest() < 27, reason="an older onnx has no such operator")
def test_what_a_body_holds_belongs_to_the_operator():
    model = next(model for name, model, _ in cases() if name == "test_linear_attention_delta")
    assert list(relu_tools.check(model, [9]).rows) == ["LinearAttention"]
    report = relu_tools.convert(model, 9, verify="off").report
    assert (report.kept, [change.op for change in report.changes]) == (0, ["LinearAttention"])


# --- opsets as Python gives them -----------------------------------------------------------------
def test_an_opset_is_any_whole_number():
    relu = model(FLOAT_RELU)
    converted = relu_tools.convert(relu, np.int64(13), verify="off").model
    assert converted == relu_tools.convert(relu, {"ai.onnx": np.int32(13)}, verify="off").model
    assert [o.version for o in converted.opset_import] == [13]
    (opset,) = relu_tools.check(relu, np.int64(13)).reachable
    assert opset == 13 and type(opset) is int
    for wrong in (True, np.True_, 13.0, np.float64(13), "13"):
        with pytest.raises(ValueError, match="an opset is a whole number"):
            relu_tools.convert(relu, {"": wrong})


def test_a_domain_has_one_opset():
    with pytest.raises(ValueError, match="the opset of ai.onnx is given twice: 13 and 12"):
        relu_tools.convert(model(FLOAT_RELU), {"ai.onnx": 13, "": 12})
