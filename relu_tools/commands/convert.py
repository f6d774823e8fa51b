"""`relu-tools convert`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relu_tools.commands.shared import (
    STATUS,
    Failure,
    IRVersion,
    Opset,
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
    from relu_tools.conversion import Conversion
    from relu_tools.timing import Timing


@click.command("convert", short_help="To an opset, or for a runtime", epilog=STATUS)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "--opset",
    "opsets",
    type=Opset(),
    multiple=True,
    metavar="N|DOMAIN=N",
    help="The opset of ai.onnx, or of another domain; can be repeated.",
)
@click.option(
    "--for",
    "runtime",
    metavar="NAME==VERSION|FILE",
    help="Convert to what this runtime has kernels for, and choose opset and IR version; see `relu-tools runtimes`.",
)
@output_option
@click.option("--out-dir", metavar="DIR", help="The folder to write to, for several models and folders of models.")
@click.option(
    "-j",
    "workers",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="one for each CPU",
    help="How many models at a time.",
)
@in_place_option
@external_data_option
@click.option("--inline", "ops", multiple=True, metavar="OP", help="Expand this function on the way; can be repeated.")
@click.option(
    "--ir-version",
    type=IRVersion(),
    metavar="N|keep",
    show_default="that of the ONNX release that brought the opset, if it is lower",
    help="The IR version of the result.",
)
@trial_options("changed")
@click.option("--measure", is_flag=True, help="Tell the run time of both forms on onnxruntime.")
@json_option
def command(
    models: tuple[str, ...],
    opsets: tuple[tuple[str, int], ...],
    runtime: str | None,
    target: str | None,
    out_dir: str | None,
    workers: int | None,
    in_place: bool,
    external_data: str | None,
    ops: tuple[str, ...],
    ir_version: Any,
    trial: Trial,
    measure: bool,
    as_json: bool,
) -> int:
    """Convert MODEL to an opset, up or down; or several models, and all of those in a folder.

    Each rewritten node is run against its replacement before anything is written. What cannot be converted is
    refused, all of it at once, and then nothing is written. A file ending in .onnxtxt, .json or .textproto is text,
    any other binary; - is standard input or output.

    \b
      relu-tools convert net.onnx --opset 13
          writes net.opset13.onnx beside it
      relu-tools convert net.onnx --opset 9 -o net9.onnx --report net.html
          and a page for the browser that shows each rewrite
      relu-tools convert net.onnx --opset 9 --verify full --inputs samples.npz
          runs the whole models, on arrays by the names of the inputs
      relu-tools convert net.onnx --opset 13 --inline Relu --inline Elu
          expands these functions on the way
      relu-tools convert net.onnx --opset 13 --external-data weights.bin
          puts the weights into a file of their own
      relu-tools convert nets more/*.onnx --opset 13 --out-dir nets13 -j 4
          a folder and more; what fails stops no other
      relu-tools convert net.onnx --for onnxruntime==1.10
          writes net.onnxruntime-1.10.onnx
      relu-tools convert trees.onnx --opset 15 --opset ai.onnx.ml=2
      relu-tools convert net.onnx --opset 11 --ir-version keep
      relu-tools convert - --opset 13 < net.onnx > net13.onnx
      relu-tools convert net.onnx --opset 13 --json | jq .verification.verdict
    """
    wanted = dict(opsets)
    if len(wanted) < len(opsets):
        raise click.UsageError("--opset is given twice for one domain", click.get_current_context())
    if not wanted and runtime is None:
        raise click.UsageError("what to convert to is told by --opset or --for", click.get_current_context())
    model = models[0]
    check_in_place(model, in_place, {"-o": target, "--out-dir": out_dir})
    tag = "".join(f".{domain or 'opset'}{version}" for domain, version in wanted.items())
    if runtime is not None:
        tag = f".{Path(runtime).stem if runtime.endswith('.toml') else runtime.replace('==', '-')}{tag}"
    if len(models) > 1 or out_dir is not None or os.path.isdir(model):
        alone = {"-o": target, "--report": trial.page, "--inputs": trial.inputs or None, "--measure": measure or None}
        alone["--external-data FILE"] = external_data if external_data not in (None, "keep", "copy", "embed") else None
        if given := [option for option, value in alone.items() if value is not None]:
            raise click.UsageError(f"{given[0]} is for one model", click.get_current_context())
        from relu_tools.commands.many import convert_many

        settings = {
            "opset": wanted or None,
            "runtime": runtime,
            "ir_version": ir_version,
            "inline": ops,
            "verify": trial.how,
            **trial.settings(),
            "overwrite": trial.force or in_place,
            "external_data": external_data,
        }
        return convert_many(models, tag, out_dir, in_place, workers, settings, as_json)

    def run(progress: Progress | None) -> Conversion:
        from relu_tools.conversion import convert

        settings = {"runtime": runtime, "ir_version": ir_version, "inline": ops, **trial.settings()}
        conversion = convert(source(model), wanted or None, verify=trial.how, progress=progress, **settings)
        if measure:
            conversion.report.timing = _timing(model, conversion)
        return conversion

    target = model if in_place else target or beside(model, tag)
    return transform(run, model, target, ops, trial, as_json, external_data, in_place)


def _timing(model: str, conversion: Conversion) -> Timing:
    from relu_tools.timing import TimingError, measure

    if model == "-":
        raise click.UsageError("--measure needs a MODEL that can be read twice", click.get_current_context())
    try:
        return measure(model, conversion.model)
    except TimingError as error:
        raise Failure(f"--measure: {error}") from None
