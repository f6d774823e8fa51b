"""`relu-tools explain`."""

from __future__ import annotations

import click

from relu_tools.commands.shared import STATUS


@click.command("explain", short_help="What changed in an operator", epilog=STATUS)
@click.argument("op", metavar="OPERATOR")
@click.argument("source", metavar="FROM", type=int)
@click.argument("target", metavar="TO", type=int)
def command(op: str, source: int, target: int) -> None:
    """Say what changed in OPERATOR from opset FROM to opset TO, and what a conversion does about it.

    \b
      relu-tools explain Relu 14 13
      relu-tools explain Softmax 7 28
      relu-tools explain ai.onnx.ml::TreeEnsemble 5 3
    """
    from relu_tools.explanation import explain

    click.echo(explain(op, source, target))
