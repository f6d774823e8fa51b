"""What verifying costs, and what it copes with, on models with many weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relu_tools.verification import verify

# Time and memory of the verification alone, that of its child process included.
MEASURE = """
import json, pathlib, re, sys, threading, time
from relu_tools import convert
path, opset = sys.argv[1], int(sys.argv[2])
most = {}
def look():
    # The most that each process of the tree has held so far, in kB; usage counts would take in the parent's.
    while True:
        own = pathlib.Path("/proc/self")
        children = " ".join(task.read_text() for task in own.glob("task/*/children")).split()
        for process in [own, *map(pathlib.Path("/proc").joinpath, children)]:
            try:
                most[process] = int(re.search(r"VmHWM:\\s+(\\d+)", (process / "status").read_text())[1])
            except (OSError, TypeError):
                pass
        time.sleep(0.02)
threading.Thread(target=look, daemon=True).start()
start = time.monotonic()
convert(path, opset, verify="off")
middle = time.monotonic()
report = convert(path, opset).report
end = time.monotonic()
found = report.verification
print(json.dumps([found.verdict, len(found.parts), sum(most.values()) / 1024, end - middle - (middle - start)]))
"""


def layers(path: Path, op: str, opset: int, count: int, size: int, weights_inside: bool, **attributes) -> None:
    """A model of so many MatMul layers, or Gemm layers, each with an activation, and weights of `size` squared."""
    nodes, tensors, value = [], [], "x"
    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) / size
    for i in range(count):
        tensors.append(numpy_helper.from_array(weights, f"w{i}"))
        if weights_inside:
            nodes.append(helper.make_node(op, [value, f"w{i}", "b"], [f"a{i}"], name=f"n{i}", **attributes))
        else:
            nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
            nodes.append(helper.make_node(op, [f"m{i}"], [f"a{i}"], name=f"n{i}", **attributes))
        value = f"a{i}"
    tensors.append(numpy_helper.from_array(np.ones(size, np.float32), "b"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name in ("x", value))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), path)


def measured(path: Path, opset: int) -> tuple[str, int, float, float]:
    done = subprocess.run([sys.executable, "-c", MEASURE, path, str(opset)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("op, target, weights_inside", [("Softmax", 12, False), ("Gemm", 6, True)])
def test_rewrites_of_a_gigabyte_take_little(tmp_path, op, target, weights_inside):
    """Some rewrites take the weights of their layer, of which the verifier draws its own."""
    layers(tmp_path / "big.onnx", op, 14, 60, 2048, weights_inside)
    assert (tmp_path / "big.onnx").stat().st_size > 1e9
    verdict, parts, megabytes, seconds = measured(tmp_path / "big.onnx", target)
    assert verdict in ("bit-exact", "within rounding") and parts == 60
    assert megabytes < 400 and seconds < 5


@on_linux
def test_the_cost_of_a_rewrite_follows_the_graph(tmp_path):
    for name, size in (("small", 16), ("large", 1024)):
        layers(tmp_path / f"{name}.onnx", "Softmax", 14, 8, size, False)
    small, large = (measured(tmp_path / f"{name}.onnx", 12)[2] for name in ("small", "large"))
    assert (tmp_path / "large.onnx").stat().st_size > 32 << 20
    assert large - small < 24


def test_whole_models_with_weights_in_the_file_run_by_path(tmp_path, monkeypatch):
    from relu_tools import forms, judging

    monkeypatch.setattr(forms, "_LARGE_FILE", 1000)
    layers(tmp_path / "a.onnx", "Relu", 14, 2, 32, False)
    layers(tmp_path / "b.onnx", "Relu", 13, 2, 32, False)
    layers(tmp_path / "c.onnx", "Sigmoid", 13, 2, 32, False)
    read = {name: forms.load_form(tmp_path / f"{name}.onnx", {}) for name in "abc"}
    assert read["a"].path and not read["a"].invalid
    assert read["a"].model.ByteSize() < (tmp_path / "a.onnx").stat().st_size / 2
    for other, verdict in (("b", "bit-exact"), ("c", "different")):
        job = {"before": "a.onnx", "after": f"{other}.onnx", "accuracy": "model", "seed": 0, "seconds": 9}
        assert judging.judge_job(job, tmp_path)["verdict"] == verdict


def test_a_model_in_memory_with_weights_in_files(tmp_path, monkeypatch):
    """Its data lies where the process works, as onnx has it."""
    layers(tmp_path / "a.onnx", "Relu", 14, 1, 32, False)
    model = onnx.load(tmp_path / "a.onnx")
    onnx.save(model, tmp_path / "b.onnx", save_as_external_data=True, size_threshold=0, location="b.bin")
    monkeypatch.chdir(tmp_path)
    assert verify(onnx.load("b.onnx", load_external_data=False), "a.onnx").verdict == "bit-exact"
