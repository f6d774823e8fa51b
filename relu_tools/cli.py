"""The command line: `main` gathers the commands of `relu_tools.commands`, and `run` is a process of it.

A command returns its exit status: 0 done and equal; 1 refused, blocked or different; 2 wrong usage, unreadable input
or unwritable output. Every error is one sentence on standard error. Libraries are imported by the commands that use
them, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from relu_tools.commands import check, convert, diff, explain, inline, runtimes, verify
from relu_tools.commands.shared import STATUS, Failure
from relu_tools.report import ModelFileError


class _Interrupted(Failure):
    exit_code = 130


class _Commands(click.Group):
    """Runs a command and turns what goes wrong into a sentence and an exit status."""

    def main(self, *args: Any, **extra: Any) -> None:  # type: ignore[override]
        for stream in (sys.stdout, sys.stderr):
            # Names in a model may hold what the terminal's encoding has not.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        with contextlib.suppress(ValueError):  # only the main thread may
            for number in _STOPS:
                signal.signal(number, _stop)
        try:
            status = super().main(*args, **{"prog_name": "relu-tools", **extra, "standalone_mode": False})
        except click.Abort:
            status = _say("interrupted", 130)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "relu-tools"
            status = _say(f"{error.format_message().rstrip('.')} (see {command} --help)", error.exit_code)
        except click.ClickException as error:
            status = _say(error.format_message(), error.exit_code)
        sys.exit(status)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _sentences():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _sentences():
            return super().invoke(ctx)


_STOPS = signal.SIGINT, signal.SIGTERM


def _stop(number: int, _: object) -> None:
    """Ends as an exception does, which removes what is half written, and which no second signal may cut short."""
    for each in _STOPS:
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Takes what goes wrong before click does, which would be silent, or end in a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        raise _Interrupted("interrupted") from None
    except (ModelFileError, ValueError) as error:
        # A name in it may have line ends.
        raise Failure(str(error).replace("\n", "\\n")) from None
    except MemoryError:
        raise Failure("there is not enough memory") from None
    except OSError as error:
        where = error.filename or "cannot write to standard output"
        raise Failure(f"{where}: {error.strerror or error}") from None


def _say(sentence: str, status: int) -> int:
    from relu_tools.present import printable

    # Where standard error cannot be written either, the status has to do.
    with contextlib.suppress(OSError):
        click.echo(f"relu-tools: {printable(sentence)}", err=True)
    return status


@click.group(
    "relu-tools",
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=STATUS,
)
@click.version_option(package_name="relu_tools", prog_name="relu-tools")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Convert an ONNX model between any two opsets, and prove the result by running both forms.

    \b
      relu-tools check net.onnx                 what can be reached, and what blocks
      relu-tools convert net.onnx --opset 13    writes net.opset13.onnx
      relu-tools inline net.onnx --op Relu      writes net.inlined.onnx
      relu-tools verify net.onnx net.opset13.onnx
      relu-tools diff net.onnx net.opset13.onnx
      relu-tools explain Relu 14 13
      relu-tools runtimes                       what `check --runtime` and `convert --for` know

    Each command has a --help with examples.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for module in (convert, inline, check, verify, diff, explain, runtimes):
    main.add_command(module.command)


def run() -> None:
    """`main`, for a process that does nothing else."""
    # Importing makes many objects and no garbage, and each collection looks at all of them.
    gc.set_threshold(100_000)
    try:
        main()
    finally:
        # So does the one at the end, when all memory goes anyway.
        gc.freeze()
