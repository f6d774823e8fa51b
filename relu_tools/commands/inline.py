"""`relu-tools inline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from relu_tools.commands.shared import (
    STATUS,
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
    from relu_tools.conversion import Inlining


@click.command("inline", epilog=STATUS)
@click.argument("model")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Expand this function only; can be repeated.")
@click.option("--domain", "domains", multiple=True, help="Expand functions of this domain only; can be repeated.")
@click.option("--exclude", multiple=True, metavar="OP", help="Leave this function as it is; can be repeated.")
@click.option("--primitive", is_flag=True, help="Go on with the functions that the expanded bodies call.")
@click.option("--missing-at", type=int, metavar="OPSET", help="Expand what this opset of ai.onnx lacks, nothing else.")
@output_option
@verify_option("changed")
@force_option
@json_option
@seed_option
def command(
    model: str,
    ops: tuple[str, ...],
    domains: tuple[str, ...],
    exclude: tuple[str, ...],
    primitive: bool,
    missing_at: int | None,
    target: str | None,
    how: Any,
    force: bool,
    as_json: bool,
    seed: int,
) -> int:
    """Put function bodies in the place of the nodes that call them.

    Without options that is done for every function: those that operators are defined by and the model's own.

    \b
      relu-tools inline net.onnx
          writes net.inlined.onnx beside it
      relu-tools inline net.onnx --op Relu --op my.domain::Swish -o plain.onnx
      relu-tools inline net.onnx --op Relu -o - > plain.onnx
      relu-tools inline net.onnx --op Attention --primitive
          until nothing of the body has a body of its own
      relu-tools inline net.onnx --missing-at 13 --exclude Gelu
    """

    def run() -> Inlining:
        from relu_tools.conversion import inline

        return inline(
            source(model),
            ops or None,
            domains=domains or None,
            exclude=exclude,
            primitive=primitive,
            missing_at=missing_at,
            verify=how,
            seed=seed,
        )

    return transform(run, model, target or beside(model, ".inlined"), ops, how, force, as_json)
