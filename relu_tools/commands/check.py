"""`relu-tools check`."""

from __future__ import annotations

import click

from relu_tools.commands.shared import STATUS, Opsets, echo_json, json_option, source


@click.command("check", epilog=f"{STATUS} With a range, 0 says that all of it can be reached.")
@click.argument("model")
@click.option(
    "--opset", "opsets", type=Opsets(), metavar="N|N-N", help="One opset or a range; by default 7 to the newest."
)
@json_option
def command(model: str, opsets: list[int] | None, as_json: bool) -> int:
    """Say which opsets MODEL can be converted to, and what blocks the others.

    Nothing is run and nothing written. There is a row for each operator, and all blockers are named with their nodes.

    \b
      relu-tools check net.onnx
      relu-tools check net.onnx --opset 13
      relu-tools check net.onnx --opset 7-15 --json | jq .reachable
    """
    from relu_tools import present
    from relu_tools.compatibility import check

    compatibility = check(source(model), opsets)
    if as_json:
        echo_json({"model": model, **compatibility.to_dict()})
    else:
        click.echo(present.compatibility(compatibility))
    return 0 if compatibility else 1
