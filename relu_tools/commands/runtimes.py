"""`relu-tools runtimes`."""

from __future__ import annotations

import click

from relu_tools.commands.shared import STATUS, Failure, check_target, echo_json, force_option, json_option


@click.group("runtimes", epilog=STATUS, invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> int:
    """List the runtimes that `check --runtime` and `convert --for` know.

    Each with its highest opset and IR version, how many operators it is known to have (all of its opsets, where no
    number stands), and where that is from. A TOML file describes one of your own; `capture` writes such a file.

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
    rows = []
    for runtime in found:
        low, high = runtime.opsets.get("", (0, 0))
        operators = len(runtime.operators) if runtime.operators is not None else ""
        name = f"{runtime.name}=={runtime.version}"
        rows.append([name, f"{low}-{high}", str(runtime.ir_version or ""), str(operators), runtime.source])
    click.echo(present.table(["runtime", "opsets", "IR version", "operators", "source"], rows))
    return 0


def _as_dict(runtime) -> dict:
    return {
        "name": runtime.name,
        "version": runtime.version,
        "source": runtime.source,
        "date": runtime.date,
        "ir_version": runtime.ir_version,
        "opsets": {domain or "ai.onnx": list(ends) for domain, ends in runtime.opsets.items()},
        "operators": len(runtime.operators) if runtime.operators is not None else None,
    }


@command.command("capture", epilog=STATUS)
@click.option("-o", "--output", "target", metavar="FILE", help="The file to write; standard output by default.")
@force_option
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
