"""How long two models take on onnxruntime, on the same inputs, in a process of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SECONDS = 120
_RUNS = 30
_ENOUGH = 5.0  # seconds, after which no further run is begun


class TimingError(Exception):
    """The models could not be run; one sentence."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """Medians of single runs in milliseconds, on one thread."""

    before_ms: float
    after_ms: float
    runs: int
    runtime: str

    def __str__(self) -> str:
        ratio = self.after_ms / self.before_ms if self.before_ms else float("inf")
        return (
            f"{self.before_ms:.3g} ms before, {self.after_ms:.3g} ms after ({ratio:.2f} times), "
            f"medians of {self.runs} runs on one thread of {self.runtime}"
        )


def measure(before: Any, after: Any, *, seed: int = 0) -> Timing:
    """Runs both models in turn on one set of random inputs.

    A model is a path, a ModelProto or an onnx_ir.Model. Raises TimingError where onnxruntime is not there or cannot
    run one of them.
    """
    from relu_tools.runners import child_of
    from relu_tools.verification import on_disk

    with tempfile.TemporaryDirectory(prefix="relu_tools") as temporary:
        folder = Path(temporary)
        paths = [on_disk(model, folder / side / "model.onnx")[1] for side, model in (("a", before), ("b", after))]
        home = str(Path(__file__).resolve().parents[1])
        search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        command = [*child_of("relu_tools.timing"), *paths, str(seed)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "PYTHONPATH": search}
            )
        except subprocess.TimeoutExpired:
            raise TimingError(f"the models took more than {SECONDS} s") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"the process ended with status {done.returncode}"]
        raise TimingError(last[0][:300])
    return Timing(**json.loads(done.stdout))


def main() -> None:
    """The child: prints a Timing as JSON."""
    import onnx

    try:
        import onnxruntime
    except ImportError:
        sys.exit("onnxruntime is not installed")
    from relu_tools.samples import draws, find_uses

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        sessions = [onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]) for path in sys.argv[1:3]]
    except Exception as error:  # onnxruntime has an exception class for each of its statuses
        sys.exit(" ".join(str(error).split()))
    graph = onnx.load(sys.argv[1], load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    types = {info.name: info.type for info in graph.input if info.name not in stored}
    feeds = next(draws(types, int(sys.argv[3]), uses=find_uses(graph))).feeds
    taken: list[list[float]] = [[], []]
    start = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        while len(taken[1]) <= _RUNS and (time.monotonic() - start < _ENOUGH or len(taken[1]) < 2):
            for session, times in zip(sessions, taken, strict=True):
                begun = time.perf_counter()
                try:
                    session.run(None, feeds)
                except Exception as error:
                    sys.exit(" ".join(str(error).split()))
                times.append(1000 * (time.perf_counter() - begun))
    # The first run allocates.
    before, after = (statistics.median(times[1:]) for times in taken)
    print(
        json.dumps(
            dataclasses.asdict(Timing(before, after, len(taken[1]) - 1, f"onnxruntime {onnxruntime.__version__}"))
        )
    )
