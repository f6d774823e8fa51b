"""Many models at a time: each gets its line and its file, one that fails stops no other, and nothing is lost."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import onnx.parser
import pytest
from test_cli import MODELS, ROOT, opset, run, sentence
from test_datafiles import files

from relu_tools import batch
from relu_tools.staging import Staging

GOOD = '<ir_version: 7, opset_import: ["": 14]> net (int8[N] x) => (int8[N] y) { y = Relu (x) }'
BLOCKED = '<ir_version: 7, opset_import: ["": 14]> net (bfloat16[N] x) => (bfloat16[N] y) { y = Relu (x) }'


def net(path: Path, text: str = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture(autouse=True)
def workers(request, monkeypatch):
    """Threads in the place of processes, which take long to start; but not where it is processes that matter."""
    if "processes" not in request.keywords:
        monkeypatch.setattr(batch, "_pool", ThreadPoolExecutor)


@pytest.fixture
def nets(tmp_path) -> Path:
    """A folder with three models that can be converted, one that cannot and one that is none; and other files."""
    folder = tmp_path / "nets"
    for name in ("b.onnx", "a.onnx", "deep/er/a.onnx"):
        net(folder / name)
    net(folder / "deep/blocked.onnx", BLOCKED)
    (folder / "deep/noise.onnx").write_bytes(b"\xff" * 99)
    net(folder / ".hidden/a.onnx")
    (folder / "notes.txt").write_text("notes")
    (folder / "some.json").write_text("{}")
    return folder


def test_what_fails_stops_no_other(nets, tmp_path):
    before = {name: (nets / name).read_bytes() for name in files(nets)}
    result = run("convert", nets, "--opset", 12, "--out-dir", tmp_path / "out", "-j", 2)
    assert result.exit_code == 1
    assert files(tmp_path / "out") == {"a.onnx", "b.onnx", "deep/er/a.onnx"}
    assert {opset(tmp_path / "out" / name) for name in files(tmp_path / "out")} == {12}
    *lines, summary = result.stdout.splitlines()
    heads = [f"{nets / name} -> {tmp_path / 'out' / name}: " for name in ("a.onnx", "b.onnx", "deep/er/a.onnx")]
    assert [line.startswith(head) for line, head in zip(lines, heads, strict=True)] == [True] * 3
    assert all(line.endswith("ai.onnx 14 to 12; 1 of 1 nodes rewritten; bit-exact") for line in lines)
    assert summary == "5 models: 3 converted, 2 not"
    blocked, noise = result.stderr.splitlines()
    assert blocked.startswith(f"relu-tools: {nets / 'deep/blocked.onnx'} cannot be converted, nothing was written: ")
    assert "3 refusals, the first: x: graph input 14 to 12: no bfloat16 before opset 13" in blocked
    assert noise.startswith(f"relu-tools: {nets / 'deep/noise.onnx'} is not an ONNX model")
    assert {name: (nets / name).read_bytes() for name in files(nets)} == before


def test_a_report_in_json(nets, tmp_path):
    result = run("convert", nets, "--opset", 12, "--out-dir", tmp_path / "out", "-j", 2, "--json", "--verify", "off")
    report = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, report["converted"], report["failed"]) == (1, "", 3, 2), report
    names = ["a.onnx", "b.onnx", "deep/blocked.onnx", "deep/noise.onnx", "deep/er/a.onnx"]
    told = report["models"]
    assert [entry["model"] for entry in told] == [str(nets / name) for name in names]
    assert [entry["output"] is None for entry in told] == [False, False, True, True, False]
    assert told[0]["opsets_after"] == {"": 12} and told[0]["changes"][0]["op"] == "Relu"
    assert len(told[2]["refusals"]) == 3 and "not an ONNX model" in told[3]["error"]


def test_files_and_folders_and_text(nets, tmp_path):
    shutil.rmtree(nets / "deep")
    more = shutil.copy(MODELS / "relu_14.onnxtxt", tmp_path)
    result = run("convert", nets, more, "--opset", 13, "--out-dir", tmp_path / "out", "-j", 1, "--verify", "off")
    assert result.exit_code == 0 and result.stdout.endswith("\n3 models: 3 converted\n")
    assert files(tmp_path / "out") == {"a.onnx", "b.onnx", "relu_14.onnxtxt"}


def test_several_files_go_beside_themselves(nets):
    result = run("convert", nets / "a.onnx", nets / "b.onnx", "--opset", 13, "--verify", "off")
    assert result.exit_code == 0 and opset(nets / "a.opset13.onnx") == opset(nets / "b.opset13.onnx") == 13


def test_one_file_into_a_folder(nets, tmp_path):
    result = run("convert", nets / "a.onnx", "--opset", 13, "--out-dir", tmp_path / "new/out", "--verify", "off")
    assert result.exit_code == 0 and files(tmp_path / "new") == {"out/a.onnx"}


def test_a_failure_leaves_no_folder(nets, tmp_path):
    result = run(
        "convert", nets / "deep/blocked.onnx", "--verify", "off", "--opset", 12, "--out-dir", tmp_path / "out/deep"
    )
    assert result.exit_code == 1 and not (tmp_path / "out").exists()


def test_an_output_folder_within_is_not_read(nets):
    (nets / "deep/noise.onnx").unlink()
    (nets / "deep/blocked.onnx").unlink()
    for force in ((), ("--force",)):
        result = run("convert", nets, "--opset", 13, "--out-dir", nets / "out", "--verify", "off", *force)
        assert result.stdout.endswith("\n3 models: 3 converted\n")
    assert not (nets / "out/out").exists()


def test_what_is_there_stays_without_force(nets, tmp_path):
    net(tmp_path / "out/a.onnx", BLOCKED)
    before = (tmp_path / "out/a.onnx").read_bytes()
    args = "convert", nets / "a.onnx", nets / "b.onnx", "--opset", 13, "--out-dir", tmp_path / "out", "--verify", "off"
    result = run(*args)
    assert result.exit_code == 1 and "a.onnx exists; --force overwrites it" in sentence(result.stderr)
    assert (tmp_path / "out/a.onnx").read_bytes() == before and opset(tmp_path / "out/b.onnx") == 13
    assert run(*args, "--force").exit_code == 0 and opset(tmp_path / "out/a.onnx") == 13


def test_in_place(nets):
    (nets / "deep/noise.onnx").unlink()
    blocked = (nets / "deep/blocked.onnx").read_bytes()
    result = run("convert", nets, "--opset", 12, "--in-place", "--verify", "off")
    assert result.exit_code == 1
    assert [opset(nets / name) for name in ("a.onnx", "b.onnx", "deep/er/a.onnx")] == [12] * 3
    assert (nets / "deep/blocked.onnx").read_bytes() == blocked


@pytest.mark.parametrize("command", [("convert", "--opset", 13), ("inline",)])
def test_one_model_in_place(nets, command):
    before = files(nets)
    result = run(*command, nets / "a.onnx", "--in-place", "--verify", "off")
    assert result.exit_code == 0, result.stderr
    assert files(nets) == before and "Max" in [node.op_type for node in onnx.load(nets / "a.onnx").graph.node]


# --- what is refused before anything runs -----------------------------------------------------
@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["a.onnx", "deep/er/a.onnx", "--out-dir", "out"], "a.onnx and .*er/a.onnx would both become .*out/a.onnx"),
        (["a.onnx", "a.onnx", "--out-dir", "out"], "would both become"),
        ([".", "deep/er", "--out-dir", "out"], "would both become"),
        (["a.onnx", "b.onnx", "--out-dir", "."], "a.onnx would be overwritten"),
        ([".", "--out-dir", "."], "would be overwritten"),
        (["deep/er", "a.onnx", "--out-dir", "deep/er"], "would"),
        (["."], "is a folder; --out-dir says"),
        (["empty", "--out-dir", "out"], "there is no model in .*empty"),
        (["a.onnx", "-", "--out-dir", "out"], "standard input is one model"),
        (["a.onnx", "b.onnx", "-o", "c.onnx"], "-o is for one model"),
        (["a.onnx", "--out-dir", "out", "-o", "c.onnx"], "-o is for one model"),
        (["a.onnx", "b.onnx", "--external-data", "w.bin"], "--external-data FILE is for one model"),
        (["a.onnx", "b.onnx", "--in-place", "--out-dir", "out"], "--in-place writes over MODEL, and --out-dir"),
        (["a.onnx", "--in-place", "-o", "c.onnx"], "--in-place writes over MODEL, and -o elsewhere"),
        (["-", "--in-place"], "standard input cannot be written over"),
        (["a.onnx", "b.onnx", "--out-dir", "a.onnx"], "it is no folder"),
        (["a.onnx", "b.onnx", "--out-dir", "out", "-j", "0"], "0 is not in the range"),
    ],
)
def test_clashes_are_found_before_anything_runs(nets, monkeypatch, args, why):
    (nets / "empty").mkdir()
    monkeypatch.chdir(nets)
    monkeypatch.setattr(batch, "run", lambda *_: pytest.fail("it ran"))
    before = {name: (nets / name).read_bytes() for name in files(nets)}
    result = run("convert", *args, "--opset", 13)
    assert result.exit_code == 2
    assert re.search(why, sentence(result.stderr))
    assert {name: (nets / name).read_bytes() for name in files(nets)} == before


def with_data(path: Path, content: bytes) -> Path:
    net(path, '<ir_version: 7, opset_import: ["": 14]> net (float[1] x) => (float[1] y) { y = Add (x, w) }')
    model = onnx.load(path)
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    path.write_bytes(model.SerializeToString())
    (path.parent / "w.bin").write_bytes(content)
    return path


def test_data_files_clash_as_models_do(tmp_path):
    one, other = (with_data(tmp_path / name, name[:1].encode() * 4) for name in ("m/a.onnx", "n/b.onnx"))
    args = "--opset", 13, "--verify", "off", "--out-dir", tmp_path / "out", "--force"
    result = run("convert", one, other, *args)
    assert result.exit_code == 2 and "m/w.bin and " in sentence(result.stderr) and not (tmp_path / "out").exists()
    assert run("convert", tmp_path / "m", *args).exit_code == 0 and files(tmp_path / "out") == {"a.onnx", "w.bin"}


def test_models_that_share_data(tmp_path):
    """Each of several processes may copy it; it is the same."""
    for name in "abcdef":
        with_data(tmp_path / f"m/{name}.onnx", b"data")
    result = run("convert", tmp_path / "m", "--opset", 13, "--verify", "off", "--out-dir", tmp_path / "out", "-j", 3)
    assert result.exit_code == 0
    assert files(tmp_path / "out") == {"w.bin", *(f"{name}.onnx" for name in "abcdef")}
    assert (tmp_path / "out/w.bin").read_bytes() == b"data"


def test_a_folder_that_another_process_makes_meanwhile(tmp_path, monkeypatch):
    """Its own file comes into it, and the folder stays where that does not."""
    make = Path.mkdir

    def late(folder: Path) -> None:
        make(folder)
        make(folder)

    monkeypatch.setattr(Path, "mkdir", late)
    with Staging() as staging:
        with staging.file(tmp_path / "out/deep/a.onnx") as out:
            out.write(b"a")
        staging.commit()
    assert files(tmp_path / "out") == {"deep/a.onnx"}
    with Staging() as staging, staging.file(tmp_path / "other/a.onnx") as out:
        out.write(b"a")
    assert (tmp_path / "other").is_dir() and not files(tmp_path / "other")


def test_an_output_folder_that_another_process_makes_meanwhile(tmp_path, monkeypatch):
    look = Path.is_dir

    def late(path: Path) -> bool:
        found = look(path)
        (tmp_path / "out").mkdir(exist_ok=True)
        return found

    net(tmp_path / "a.onnx")
    monkeypatch.setattr(Path, "is_dir", late)
    outcome = batch.convert_one(
        batch.Job(str(tmp_path / "a.onnx"), str(tmp_path / "out/a.onnx")),
        {"overwrite": False, "external_data": None, "opset": 13, "verify": "off"},
    )
    assert outcome.done, outcome.line


# --- processes ----------------------------------------------------------------------------------
def dying(job: batch.Job, settings) -> batch.Outcome:
    """In the place of a conversion that takes its process down."""
    if "b.onnx" in job.source:
        os._exit(9)
    time.sleep(0.2)
    Path(job.target).write_text("written")
    return batch.Outcome(True, job.source, {})


@pytest.mark.processes
def test_a_process_that_dies_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "_work", dying)
    jobs = [batch.Job(f"{name}.onnx", str(tmp_path / name)) for name in "abcd"]
    outcomes = dict(batch.run(jobs, 2, {"overwrite": False}))
    assert [outcomes[k].done for k in range(4)] == [True, False, True, True]
    assert outcomes[1].line == "b.onnx: the process that converted it was killed or crashed"


def at_work(folder: Path, models: int) -> subprocess.Popen:
    """A process group that converts so many models, and has done the first."""
    for k in range(models):
        net(folder / f"m/{k}.onnx")
    command = [sys.executable, "-m", "relu_tools", "convert", "m", "--opset", "13", "--out-dir", "out", "-j", "2"]
    process = subprocess.Popen(
        [*command, "--verify", "off"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.readline()
    return process


@pytest.mark.processes
def test_an_interrupt_ends_it_and_leaves_no_stray_files(tmp_path):
    process = at_work(tmp_path, 2000)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and sentence(said) == "relu-tools: interrupted\n"
    left = files(tmp_path / "out")
    assert 0 < len(left) < 2000 and all(opset(tmp_path / "out" / name) == 13 for name in left)


@pytest.mark.processes
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_cuts_nothing_short(tmp_path, ending):
    process = at_work(tmp_path, 2000)
    for _ in range(20):
        process.send_signal(ending)
        time.sleep(0.01)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + ending and b"Traceback" not in said
    assert all(opset(tmp_path / "out" / name) == 13 for name in files(tmp_path / "out"))


@pytest.mark.processes
def test_workers_leave_with_a_parent_that_is_killed(tmp_path):
    process = at_work(tmp_path, 500)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_a_pipe_in_a_folder_is_no_model(nets, tmp_path):
    os.mkfifo(nets / "pipe.onnx")
    result = run("convert", nets, "--opset", 13, "--out-dir", tmp_path / "out", "-j", 1)
    assert "pipe.onnx" not in result.stdout + result.stderr and files(tmp_path / "out")


def test_a_bar_is_shown_on_a_terminal_only(tmp_path):
    for k in range(3):
        net(tmp_path / f"m/{k}.onnx")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "relu_tools", "convert", "m", "--opset", "13", "--out-dir", "out", "-j", "1"]
    process = subprocess.Popen(
        [*command, "--verify", "off"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    plain, _ = process.communicate(timeout=60)
    assert b"converting" in shown and b"3/3" in shown
    assert plain.decode().splitlines()[-1] == "3 models: 3 converted" and b"\x1b" not in plain
