"""Judges, which run a model, and the child process that they run in, since a runtime can die, hang or eat memory.

A job is a dictionary that `json` can write; the child (`main`, given a folder) reads them from its jobs.json, does them
in order and answers each with one line of JSON on its standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

# onnxruntime promises no more: "guarantees backward compatibility for opset 7 and later".
ORT_LOWEST_OPSET = 7


class CannotRun(Exception):
    """The judge has no kernel or no meaning for this model: no finding about the model."""


class Judge(Protocol):
    """A model ready to run."""

    name: str

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name. Raises `CannotRun` for a missing kernel, whatever the runtime raises for other failures."""


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The version of ai.onnx among `imports`, 0 for none."""
    return max((i.version for i in imports if i.domain in ("", "ai.onnx")), default=0)


def default_opset(model: onnx.ModelProto) -> int:
    """The version of ai.onnx that a model imports, 0 for none; the lowest one of its functions counts too."""
    imports = [model.opset_import, *(function.opset_import for function in model.functions)]
    return min(filter(None, map(opset_of, imports)), default=0)


def judges(model: onnx.ModelProto, path: str | None = None) -> Iterator[Callable[[], Judge]]:
    """Makers of judges for a model, the most trusted first; `path` is its file, where weights lie beside it."""
    opset = default_opset(model)
    if (opset == 0 or opset >= ORT_LOWEST_OPSET) and importlib.util.find_spec("onnxruntime"):
        yield lambda: OnnxRuntime(model, path)
    yield lambda: Reference(model, path)


class OnnxRuntime:
    """onnxruntime on one core, without its optimizer, which would bring its own rewrites into play."""

    def __init__(self, model: onnx.ModelProto, path: str | None = None):
        import onnxruntime

        from .kernels import rounding, without_kernel

        self.name = f"onnxruntime {onnxruntime.__version__}"
        if op := without_kernel(model):
            raise CannotRun(f"onnxruntime has no kernel for {op} of this type, and its body is not equal to it")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self.session = onnxruntime.InferenceSession(
                path or rounding(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            _raise_if_out_of_memory(error)
            raise CannotRun(_one_line(error)) from error

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Missing

        names = [output.name for output in self.session.get_outputs()]
        known = {value.name for value in self.session.get_inputs()}
        feeds = {name: value for name, value in feeds.items() if name in known}
        wrapped = any(self._needs_wrapping(value) for value in feeds.values()) or any(
            output.type in _ORT_ONLY for output in self.session.get_outputs()
        )
        try:
            if not wrapped:
                results = self.session.run(names, dict(feeds))
            else:
                values = {name: self._wrap(value) for name, value in feeds.items()}
                results = [self._unwrap(value) for value in self.session.run_with_ort_values(names, values)]
        except Missing as error:
            raise CannotRun(_one_line(error)) from error
        except Exception as error:
            _raise_if_out_of_memory(error)
            raise
        return dict(zip(names, results, strict=True))

    @staticmethod
    def _needs_wrapping(value: Any) -> bool:
        return isinstance(value, np.ndarray) and f"tensor({_ort_name(value.dtype)})" in _ORT_ONLY

    @classmethod
    def _wrap(cls, value: Any) -> Any:
        import onnxruntime

        if not cls._needs_wrapping(value):
            if isinstance(value, np.ndarray):
                return onnxruntime.OrtValue.ortvalue_from_numpy(value)
            raise CannotRun("onnxruntime's Python interface takes no sequence beside a type that numpy lacks")
        bits = np.asarray(value, order="C").view(f"u{value.dtype.itemsize}")
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            bits, onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        )

    @staticmethod
    def _unwrap(value: Any) -> Any:
        dtype = _ORT_ONLY.get(value.data_type())
        if dtype is None:
            return value.numpy()
        target = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype))
        shape = value.shape()
        result = np.empty(shape, target)
        ctypes.memmove(result.ctypes.data, value.data_ptr(), result.nbytes)
        return result


# Types that onnxruntime computes with and numpy has no own type for.
_ORT_ONLY = {
    "tensor(bfloat16)": "BFLOAT16",
    "tensor(float8e4m3fn)": "FLOAT8E4M3FN",
    "tensor(float8e4m3fnuz)": "FLOAT8E4M3FNUZ",
    "tensor(float8e5m2)": "FLOAT8E5M2",
    "tensor(float8e5m2fnuz)": "FLOAT8E5M2FNUZ",
}


def _ort_name(dtype: np.dtype) -> str:
    return dtype.name.replace("_", "")


class Reference:
    """The reference evaluator with the operators of `legacy`; it refuses versions whose meaning it has not."""

    name = "reference evaluator"

    def __init__(self, model: onnx.ModelProto, path: str | None = None):
        from .legacy import evaluator

        if path is not None:
            model = onnx.load(path)
        try:
            self.evaluator = evaluator(model)
        except NotImplementedError as error:
            raise CannotRun(_one_line(error)) from error

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with np.errstate(all="ignore"):
                results = self.evaluator.run(None, dict(feeds))
        except NotImplementedError as error:
            raise CannotRun(_one_line(error)) from error
        return dict(zip(self.evaluator.output_names, results, strict=True))


def _raise_if_out_of_memory(error: Exception) -> None:
    """onnxruntime has no exception of its own for that, and what failed for want of memory is no finding."""
    if any(words in str(error) for words in ("bad_alloc", "bad allocation", "Failed to allocate memory")):
        raise MemoryError from error


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " ..."


# For Python and its imports in the child, on a busy machine; its first line says that it is ready.
_START_SECONDS = 120


# What a job runs at the moment, and how often one is tried again.
RUNNING, _MOST_DEATHS = "running.json", 3


def run_jobs(
    jobs: Sequence[dict[str, Any]],
    folder: Path,
    seconds: float,
    memory_mb: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """The answers to `jobs`, in order, from a child process with `folder` as its working place.

    A job that kills the child, or takes it longer than `seconds`, is answered with {"error": why}; a new child
    goes on with the next one. A job that died of one of its runs, which it leaves in the file RUNNING, is first
    tried again, told of its "deaths". `memory_mb` is what jobs may take beside the runtimes themselves. `progress` is
    called with the number done and the number of all.
    """
    answers: list[dict[str, Any]] = []
    deaths: list[Any] = []
    while len(answers) < len(jobs):
        first, *rest = jobs[len(answers) :]
        (folder / "jobs.json").write_text(json.dumps([{**first, "deaths": deaths}, *rest]))
        for answer in _one_child(folder, len(rest) + 1, seconds, memory_mb):
            running = folder / RUNNING
            if answer.pop("died", False) and running.exists() and len(deaths) < _MOST_DEATHS:
                deaths = [*deaths, json.loads(running.read_text())]
                running.unlink()
                break
            deaths = []
            answers.append(answer)
            if progress:
                progress(len(answers), len(jobs))
    return answers


def child_of(module: str) -> list[str]:
    """The command that runs a module's `main`, after which its arguments follow.

    Unlike `python -m` it imports nothing from the working folder, which may hold a json.py or any other file that came
    with a model.
    """
    run = f"import sys; sys.path[:] = filter(None, sys.path); from {module} import main; main()"
    return [sys.executable, "-c", run]


def _one_child(folder: Path, count: int, seconds: float, memory_mb: int | None) -> Iterator[dict[str, Any]]:
    # The child must find this very package, wherever it was imported from.
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [*child_of("relu_tools.runners"), str(folder), str(memory_mb or 0)]
    with (folder / "stderr.txt").open("w+b") as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=environment
        )
        lines: queue.Queue[bytes] = queue.Queue()
        assert child.stdout is not None
        stream = child.stdout

        def read() -> None:
            with contextlib.suppress(ValueError):
                for line in stream:
                    lines.put(line)
                lines.put(b"")

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            for number in range(count + 1):
                allowed = seconds if number else _START_SECONDS
                try:
                    line = lines.get(timeout=allowed)
                except queue.Empty:
                    yield {"error": f"took more than {allowed:g} s"}
                    return
                if not line.endswith(b"\n"):
                    yield {"error": _death(child, errors), "died": True}
                    return
                if number:
                    yield json.loads(line)
        finally:
            child.kill()
            child.wait()
            reader.join()
            stream.close()


def _death(child: subprocess.Popen, errors: Any) -> str:
    status = child.wait()
    errors.seek(0)
    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"the process that ran it died ({how}{': ' + last[0][:200] if last else ''})"


def _limit_memory(megabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        limit = page * os.sysconf("SC_PHYS_PAGES")
        if megabytes:
            # What is loaded takes address space of its own, most of it untouched.
            if importlib.util.find_spec("onnxruntime"):
                importlib.import_module("onnxruntime")
            limit = (megabytes << 20) + int(Path("/proc/self/statm").read_text().split()[0]) * page
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """The child: answers go to what was standard output, anything that a runtime prints to standard error."""
    folder, memory = Path(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        from .judging import judge_job

        _limit_memory(memory)
        answers.write("{}\n")
        answers.flush()
        for job in json.loads((folder / "jobs.json").read_text()):
            start = time.monotonic()
            try:
                answer = judge_job(job, folder)
            except MemoryError:
                answer = {"error": "ran out of memory" + (f": {memory} MB were allowed" if memory else "")}
            except NotImplementedError as error:
                answer = {"error": _one_line(error)}
            except Exception as error:  # one job must not take the others with it
                answer = {"error": f"{type(error).__name__}: {_one_line(error)}"}
            answer["seconds"] = round(time.monotonic() - start, 3)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
