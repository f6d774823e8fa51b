"""Times whole processes, by the operating system's account, and prints what they take against one another."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence

PEER = """
import sys, onnx
from onnx import version_converter
onnx.save(version_converter.convert_version(onnx.load(sys.argv[1]), int(sys.argv[2])), sys.argv[3])
"""
"""What a user of onnx's own converter writes: reads the first argument, converts to the second, writes the third."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one process: seconds on the clock, seconds of processor, megabytes of resident memory at most."""

    wall: float
    cpu: float
    memory: float


def cost(command: Sequence[str], runs: int = 3) -> Cost:
    """The least that a command takes in some runs. Raises RuntimeError where it fails."""
    costs = [_once(command) for _ in range(runs)]
    return Cost(*(min(getattr(c, field.name) for c in costs) for field in dataclasses.fields(Cost)))


# A process starts with the peak of the one that it came from, so that a small one has to start it.
_STARTER = """
import json, os, sys
start = os.times().elapsed
null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[null]), 0)
wall = os.times().elapsed - start
print(json.dumps([os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""


def _once(command: Sequence[str]) -> Cost:
    starter = subprocess.run([sys.executable, "-SE", "-c", _STARTER, *command], stdout=subprocess.PIPE, check=True)
    status, *figures = json.loads(starter.stdout)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}")
    return Cost(*figures)


def ours(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "relu_tools", *arguments]


def peer(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PEER, *arguments]


def row(name: str, mine: Cost, other: Cost | None = None) -> None:
    """Prints a line: what relu_tools takes, and the part of the other's time that this is."""
    text = f"{name:<44} {mine.wall:7.2f} s {mine.cpu:7.2f} s cpu {mine.memory:7.0f} MB"
    if other is not None:
        text += f"   {mine.wall / other.wall:5.2f} of {other.wall:.2f} s, {other.memory:.0f} MB"
    print(text, flush=True)
