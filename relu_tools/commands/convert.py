"""`relu-tools convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from relu_tools.commands.shared import (
    STATUS,
    IRVersion,
    Opset,
    beside,
    force_option,
    json_option,
    output_option,
    seed_option,
    source,
    verify_option,
)
from relu_tools.commands.transform import transform

if TYPE_CHECKING:
    from relu_tools.conversion import Conversion


@click.command("convert", epilog=STATUS)
@click.argument("model")
@click.option(
    "--opset",
    "opsets",
    type=Opset(),
    multiple=True,
    required=True,
    metavar="N|DOMAIN=N",
    help="The opset of ai.onnx, or of another domain; can be repeated.",
)
@output_option
@click.option("--inline", "ops", multiple=True, metavar="OP", help="Expand this function on the way; can be repeated.")
@click.option(
    "--ir-version",
    type=IRVersion(),
    metavar="N|keep",
    help="By default that of the ONNX release that brought the opset, if it is lower.",
)
@verify_option("changed")
@force_option
@json_option
@seed_option
def command(
    model: str,
    opsets: tuple[tuple[str, int], ...],
    target: str | None,
    ops: tuple[str, ...],
    ir_version: Any,
    how: Any,
    force: bool,
    as_json: bool,
    seed: int,
) -> int:
    """Convert MODEL to an opset, up or down.

    Each rewritten node is run against its replacement before anything is written. What cannot be converted is
    refused, all of it at once, and then nothing is written. A file ending in .onnxtxt, .json or .textproto is text,
    any other binary; - is standard input or output.

    \b
      relu-tools convert net.onnx --opset 13
          writes net.opset13.onnx beside it
      relu-tools convert net.onnx --opset 9 -o old/net.onnx --verify full
      relu-tools convert net.onnx --opset 13 --inline Relu --inline Elu
          expands these functions on the way
      relu-tools convert trees.onnx --opset 15 --opset ai.onnx.ml=2
      relu-tools convert net.onnx --opset 11 --ir-version keep
      relu-tools convert - --opset 13 < net.onnx > net13.onnx
      relu-tools convert net.onnx --opset 13 --json | jq .verification.verdict
    """
    wanted = dict(opsets)
    if len(wanted) < len(opsets):
        raise click.UsageError("--opset is given twice for one domain", click.get_current_context())

    def run() -> Conversion:
        from relu_tools.conversion import convert

        return convert(source(model), wanted, ir_version=ir_version, inline=ops, verify=how, seed=seed)

    tag = "".join(f".{domain or 'opset'}{version}" for domain, version in wanted.items())
    return transform(run, model, target or beside(model, tag), ops, how, force, as_json)
