"""`relu-tools runtimes`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from relu_tools.commands.shared import STATUS, Failure, check_target, echo_json, json_option, write_over_option

if TYPE_CHECKING:
    from relu_tools.runtimes import Runtime


@click.group("runtimes", short_help="What is known of runtimes", epilog=STATUS, invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> int:
    """List the runtimes that `check --runtime` and `convert --for` know.

    Each with its opsets and its highest IR version, how many operators it is known to have (? where nothing is known),
    and where that is from, which --json tells in full. A TOML file describes one of your own; `capture` writes such a
    file.

    \b
      relu-tools runtimes
      relu-tools runtimes capture -o mine.toml
      relu-tools check net.onnx --runtime ./mine.toml
    """
    if context.invoked_subcommand is not None:
        return 0
    from relu_tools import present, runtimes

    found = [runtimes.find(name) for name in runtimes.names()]
    if as_json:
        echo_json({"runtimes": [_as_dict(runtime) for runtime in found]})
        return 0
    rows = [_row(runtime) for runtime in found if runtime.name != "onnx"]
    # Releases of onnx itself stand for the specification, and differ in their numbers alone.
    first, *_, last = (_row(runtime) for runtime in found if runtime.name == "onnx")
    ends = [one if one == other else f"{one} to {other}" for one, other in zip(first, last, strict=True)]
    rows.append([f"{first[0]} to {last[0].partition('==')[2]}", *ends[1:3], "all", *ends[4:]])
    click.echo(present.table(["runtime", "opsets", "IR version", "operators", "source"], rows))
    return 0


def _row(runtime: Runtime) -> list[str]:
    low, high = runtime.opsets.get("", (0, 0))
    operators = str(len(runtime.operators)) if runtime.operators is not None else "?"
    source = runtime.source
    if source.startswith("https://"):
        source = "/".join(source.split("/")[2:5])
    shown = textwrap.shorten(source, 60, placeholder=" ...")
    return [f"{runtime.name}=={runtime.version}", f"{low}-{high}", str(runtime.ir_version or "?"), operators, shown]


def _as_dict(runtime: Runtime) -> dict:
    return {
        "name": runtime.name,
        "version": runtime.version,
        "source": runtime.source,
        "date": runtime.date,
        "ir_version": runtime.ir_version,
        "opsets": {domain or "ai.onnx": list(ends) for domain, ends in runtime.opsets.items()},
        "operators": len(runtime.operators) if runtime.operators is not None else None,
    }


@command.command("capture", short_help="Describe the installed onnxruntime", epilog=STATUS)
@click.option("-o", "--output", "target", metavar="FILE", show_default="standard output", help="The file to write.")
@write_over_option
def capture(target: str | None, force: bool) -> int:
    """Describe the onnxruntime that is installed: its opsets, IR version and kernels, as TOML.

    \b
      relu-tools runtimes capture -o onnxruntime.toml
    """
    if target is not None:
        check_target(target, force)
    from relu_tools.runtimes.capture import onnxruntime_installed

    try:
        text = onnxruntime_installed()
    except ImportError:
        raise Failure("onnxruntime is not installed") from None
    except RuntimeError as error:
        raise Failure(str(error)) from None
    if target is None:
        click.echo(text, nl=False)
    else:
        with open(target, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    return 0
