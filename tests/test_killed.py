"""A process that is killed while it writes leaves the old file or the new one, whole, and nothing else."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_cli import ROOT, process, run, sentence
from test_datafiles import files

from relu_tools import staging, wire

# A conversion whose every megabyte takes a while; it says when it begins to write.
SLOW = """
import itertools, sys, time
from relu_tools import filling, staging
from relu_tools.cli import main
if sys.argv.pop(1) == "named":
    staging._nameless = lambda folder: None
read, calls = filling._read, itertools.count()
def slow(*part):
    if next(calls) == 0:
        print("writing", flush=True)
    time.sleep(0.02)
    read(*part)
filling._read = slow
main()
"""


def model(path: Path, weights: int, size: int) -> Path:
    """MatMul and Relu, time and again, on random weights of `size` bytes each, which are inside."""
    side = int((size // 4) ** 0.5)
    nodes, current = [], "x"
    for k in range(weights):
        nodes += [
            helper.make_node("MatMul", [current, f"w{k}"], [f"m{k}"]),
            helper.make_node("Relu", [f"m{k}"], [f"r{k}"]),
        ]
        current = f"r{k}"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", side]) for name in ("x", current)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:]).SerializeToString()
    data = np.random.default_rng(0).bytes(side * side * 4)
    heads = []
    for k in range(weights):
        head = (
            TensorProto(dims=[side, side], data_type=1, name=f"w{k}").SerializeToString()
            + b"\x4a"
            + wire.encode(len(data))
        )
        heads.append(b"\x2a" + wire.encode(len(head) + len(data)) + head)
    rest = helper.make_model(onnx.GraphProto(), opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    rest.ClearField("graph")
    length = len(graph) + sum(map(len, heads)) + weights * len(data)
    with open(path, "wb") as file:
        file.write(rest.SerializeToString() + b"\x3a" + wire.encode(length) + graph)
        for head in heads:
            file.write(head)
            file.write(data)
    return path


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else _digest(file)


def _digest(file) -> str:
    found = hashlib.sha256()
    while chunk := file.read(1 << 20):
        found.update(chunk)
    return found.hexdigest()


def slowly(kind: str, source: Path, target: Path) -> subprocess.Popen:
    """A slow conversion that has begun to write."""
    command = [sys.executable, "-c", SLOW, kind, "convert", str(source), "--opset", "15", "-o", str(target), "--force"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [*command, "--verify", "off"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert started.stdout.readline() == b"writing\n"
    return started


@pytest.fixture
def small(tmp_path) -> tuple[Path, Path]:
    """Two models of 20 MB, of which the other is to be written over."""
    return model(tmp_path / "a.onnx", 10, 2 << 20), model(tmp_path / "b.onnx", 10, 1 << 20)


def test_killed_while_writing(small, tmp_path):
    source, target = small
    before = digest(source), digest(target)
    for wait in (0, 0.03, 0.1):
        started = slowly("nameless", source, target)
        time.sleep(wait)
        started.kill()
        started.communicate()
        assert started.returncode == -signal.SIGKILL
        assert (digest(source), digest(target)) == before and files(tmp_path) == {"a.onnx", "b.onnx"}


@pytest.mark.parametrize("kind", ["nameless", "named"])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_ended_while_writing(small, tmp_path, ending, kind):
    source, target = small
    before = digest(source), digest(target)
    (tmp_path / "out").mkdir()
    started = slowly(kind, source, target)
    started.send_signal(ending)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 128 + ending
    assert b"Traceback" not in said
    assert (digest(source), digest(target)) == before and files(tmp_path) == {"a.onnx", "b.onnx"}


@pytest.mark.slow
def test_killed_at_any_moment_of_a_gigabyte(tmp_path):
    source, target = model(tmp_path / "a.onnx", 60, 1 << 24), tmp_path / "b.onnx"
    began = time.time()
    assert process("convert", source, "--opset", 15, "-o", target, "--verify", "off").wait() == 0
    took = time.time() - began
    new = digest(target)
    target.write_bytes(b"old")
    outcomes = {"old": 0, "new": 0}
    chance = random.Random(0)
    for _ in range(50):
        started = process("convert", source, "--opset", 15, "-o", target, "--verify", "off", "--force")
        time.sleep(chance.uniform(0, 1.2 * took))
        started.kill()
        started.communicate()
        if target.stat().st_size == 3:
            assert target.read_bytes() == b"old"
            outcomes["old"] += 1
        else:
            assert digest(target) == new
            outcomes["new"] += 1
            target.write_bytes(b"old")
        assert files(tmp_path) == {"a.onnx", "b.onnx"}
    assert all(outcomes.values()), outcomes


# --- what cannot be written ----------------------------------------------------------------------
def limited(size: int):
    """In a process that is about to run: files may not be larger."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.parametrize("how", [(), ("--external-data", "w.bin")])
def test_a_file_that_does_not_fit(small, tmp_path, how):
    source, target = small
    before = digest(target)
    started = process(
        "convert", source, "--opset", 15, "-o", target, "--force", "--verify", "off", *how, preexec_fn=limited(5 << 20)
    )
    said, wrong = started.communicate(timeout=60)
    assert (started.returncode, said) == (2, b"") and "File too large" in sentence(wrong)
    assert digest(target) == before and files(tmp_path) == {"a.onnx", "b.onnx"}


def test_a_source_that_vanishes(small, tmp_path):
    source, target = small
    before = digest(target)
    started = slowly("nameless", source, target)
    source.unlink()
    _, said = started.communicate(timeout=60)
    assert started.returncode == 2 and "a.onnx has gone since it was opened" in sentence(said)
    assert digest(target) == before and files(tmp_path) == {"b.onnx"}


@pytest.mark.parametrize("support", ["none", "no folder of descriptors", "no links"])
def test_file_systems_without_nameless_files(tmp_path, monkeypatch, support):
    """There is a temporary file instead, or the content is copied."""

    def fail(*_, **__):
        raise OSError("not here")

    if support == "none":
        monkeypatch.setattr(os, "open", fail)
    elif support == "no folder of descriptors":
        monkeypatch.setattr(staging.os.path, "isdir", lambda path: path != "/proc/self/fd" and Path(path).is_dir())
    else:
        monkeypatch.setattr(os, "link", fail)
    source = model(tmp_path / "a.onnx", 3, 1 << 14)
    source.chmod(0o640)
    weights = list(onnx.load(source).graph.initializer)
    result = run("convert", source, "--opset", 15, "--in-place", "--verify", "off")
    assert result.exit_code == 0 and files(tmp_path) == {"a.onnx"}
    written = onnx.load(source)
    assert written.opset_import[0].version == 15 and source.stat().st_mode & 0o777 == 0o640
    assert list(written.graph.initializer) == weights
