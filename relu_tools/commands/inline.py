"""`relu-tools inline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relu_tools.commands.shared import (
    STATUS,
    beside,
    check_in_place,
    external_data_option,
    in_place_option,
    json_option,
    output_option,
    source,
)
from relu_tools.commands.transform import transform
from relu_tools.commands.trial import Progress, Trial, trial_options

if TYPE_CHECKING:
    from relu_tools.conversion import Inlining


@click.command("inline", short_help="Function bodies in place of nodes", epilog=STATUS)
@click.argument("model")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Expand this function only; can be repeated.")
@click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="DOMAIN",
    help="Expand functions of this domain only; can be repeated.",
)
@click.option("--exclude", multiple=True, metavar="OP", help="Leave this function as it is; can be repeated.")
@click.option("--primitive", is_flag=True, help="Go on with the functions that the expanded bodies call.")
@click.option("--missing-at", type=int, metavar="N", help="Expand what this opset of ai.onnx lacks, nothing else.")
@click.option("--bodies", multiple=True, metavar="FILE", help="Python file with bodies of operators; can be repeated.")
@output_option
@in_place_option
@external_data_option
@trial_options("changed")
@json_option
def command(
    model: str,
    ops: tuple[str, ...],
    domains: tuple[str, ...],
    exclude: tuple[str, ...],
    primitive: bool,
    missing_at: int | None,
    bodies: tuple[str, ...],
    target: str | None,
    in_place: bool,
    external_data: str | None,
    trial: Trial,
    as_json: bool,
) -> int:
    """Put function bodies in the place of the nodes that call them.

    Without options that is done for every function: those that operators are defined by, the model's own, and those
    by which this program knows operators of com.microsoft.

    \b
      relu-tools inline net.onnx
          writes net.inlined.onnx beside it
      relu-tools inline net.onnx --op Relu --op my.domain::Swish -o plain.onnx
      relu-tools inline net.onnx --op Relu -o - > plain.onnx
      relu-tools inline net.onnx --op Attention --primitive
          until nothing of the body has a body of its own
      relu-tools inline net.onnx --missing-at 13 --exclude Gelu
          onnxruntime's own operators are among what an opset lacks
      relu-tools inline net.onnx --domain com.microsoft
          only those of onnxruntime's own
      relu-tools inline net.onnx --domain my.domain --bodies my_ops.py
          by the onnxscript functions of that file
    """

    def run(progress: Progress | None) -> Inlining:
        from relu_tools.conversion import inline

        functions = []
        if bodies:
            from relu_tools.bodies.given import load

            functions = [function for file in bodies for function in load(file)]
        return inline(
            source(model),
            ops or None,
            domains=domains or None,
            exclude=exclude,
            primitive=primitive,
            missing_at=missing_at,
            bodies=functions,
            verify=trial.how,
            progress=progress,
            **trial.settings(),
        )

    check_in_place(model, in_place, {"-o": target})
    target = model if in_place else target or beside(model, ".inlined")
    return transform(run, model, target, ops, trial, as_json, external_data, in_place)
