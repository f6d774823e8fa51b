"""What is shown while work goes on."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from relu_tools import verification
from relu_tools.cli import main

pty = pytest.importorskip("pty")
DIGITS = Path(__file__).parents[1] / "models" / "digits.onnx"


def on_a_terminal(*args: object) -> str:
    """What a command writes to standard error where that is a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "relu_tools", *map(str, args)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 120
    while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # so Linux tells that the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return shown.decode()


def test_a_terminal_sees_how_far_it_is(tmp_path):
    shown = on_a_terminal("convert", DIGITS, "--opset", 7, "-o", tmp_path / "out.onnx")
    assert "converting" in shown and "verifying" in shown and "4/4" in shown
    # What was shown is wiped off, and the cursor is there again.
    assert shown.rstrip().endswith("\x1b[2K") and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "running both models" in on_a_terminal("verify", DIGITS, tmp_path / "out.onnx")


def test_what_is_no_terminal_sees_nothing(tmp_path):
    result = CliRunner().invoke(main, ["convert", str(DIGITS), "--opset", "7", "-o", str(tmp_path / "out.onnx")])
    assert result.exit_code == 0 and result.stderr == ""


@pytest.mark.parametrize("how", ["changed", "full"])
def test_options_reach_the_verifier(tmp_path, monkeypatch, how):
    seen = {}

    def spy(*models, **settings):
        seen.update(settings)
        return verification.Verification("bit-exact")

    monkeypatch.setattr(verification, "verify" if how == "full" else "verify_rewrites", spy)
    limits = ["--verify", how, "--seconds", "7", "--memory", "300", "--seed", "5"]
    args = ["convert", str(DIGITS), "--opset", "7", "-o", str(tmp_path / "out.onnx"), *limits]
    assert CliRunner().invoke(main, args).exit_code == 0
    assert (seen["seconds"], seen["memory_mb"], seen["seed"]) == (7, 300, 5)


@pytest.mark.parametrize("option", [("--seconds", "0"), ("--seconds", "soon"), ("--memory", "0"), ("--memory", "1.5")])
def test_limits_that_are_none(option):
    result = CliRunner().invoke(main, ["verify", str(DIGITS), str(DIGITS), *option])
    assert result.exit_code == 2 and option[0] in result.stderr
