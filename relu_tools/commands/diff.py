"""`relu-tools diff`."""

from __future__ import annotations

import dataclasses

import click

from relu_tools.commands.shared import echo_json, json_option, source


@click.command(
    "diff",
    short_help="What differs between two models",
    epilog="Exit status: 0 the same; 1 they differ; 2 wrong usage or unreadable input.",
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
def command(before: str, after: str, as_json: bool) -> int:
    """Say what differs between the models A and B: a line for each node, attribute, weight, opset, input and output.

    Nodes are matched by what they make, then by name; weights are compared by the hash of their values. Nothing is run:
    `verify` says whether two models compute the same.

    \b
      relu-tools diff net.onnx net.opset13.onnx
      relu-tools diff a.onnx b.onnx --json | jq '.differences[].kind'
    """
    if before == after == "-":
        raise click.UsageError("standard input holds one model, not two", click.get_current_context())
    from relu_tools.difference import diff
    from relu_tools.present import printable

    found = diff(source(before), source(after))
    if as_json:
        echo_json({"a": before, "b": after, "differences": [dataclasses.asdict(d) for d in found]})
    else:
        click.echo("\n".join(printable(str(d)) for d in found) or "no difference")
    return 1 if found else 0
