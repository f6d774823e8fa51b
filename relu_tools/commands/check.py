"""`relu-tools check`."""

from __future__ import annotations

import dataclasses
import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relu_tools.commands.shared import (
    STATUS,
    Failure,
    Opsets,
    check_page,
    check_target,
    echo_json,
    json_option,
    source,
    write_over_option,
)
from relu_tools.report import ModelFileError

if TYPE_CHECKING:
    from relu_tools.compatibility import Compatibility
    from relu_tools.timing import Timing


@click.command(
    "check",
    short_help="What can be reached and what blocks",
    epilog=f"{STATUS} 0 says that all that was asked for can be reached, by `convert` or as it is.",
)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--opset", "opsets", type=Opsets(), metavar="N|N-N", show_default="7 to the newest", help="One opset or a range."
)
@click.option(
    "--runtime",
    metavar="NAME==VERSION|FILE",
    help="Say whether this loads the model; `relu-tools runtimes` lists them. A file describes one of your own.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "github"]), default="text", help="github is annotations."
)
@json_option
@click.option("--html", "page", metavar="FILE", help="Write the matrix as a page for the browser, with every reason.")
@write_over_option
@click.option("--measure", is_flag=True, help="Run the model and its conversion on onnxruntime, and tell their times.")
def command(
    models: tuple[str, ...],
    opsets: list[int] | None,
    runtime: str | None,
    form: str,
    as_json: bool,
    page: str | None,
    force: bool,
    measure: bool,
) -> int:
    """Say which opsets MODEL can be converted to, what is rewritten on the way, and what blocks.

    There is a row for each operator, and a column for opsets at which the same becomes of all of them. All blockers are
    named with their nodes, and so is what is wrong with the model as it stands. Nothing is written, but by --html.
    Without a model, those of [tool.relu-tools] in pyproject.toml are held to the rules there.

    \b
      relu-tools check net.onnx
      relu-tools check net.onnx --opset 13
      relu-tools check net.onnx --opset 7-15 --json | jq .reachable
      relu-tools check net.onnx --runtime onnxruntime==1.10
          and whether `convert --for onnxruntime==1.10` can help
      relu-tools check net.onnx --html net.html
      relu-tools check --format github
          by the rules of pyproject.toml, such as
          [tool.relu-tools]
          models = ["models/*.onnx"]
          opset = 11
          runtime = "onnxruntime==1.10"
    """
    from relu_tools.compatibility import check

    context = click.get_current_context()
    named = bool(models)
    if not named:
        from relu_tools.rules import read

        rules = read(Path("pyproject.toml"))
        models = tuple(path for pattern in rules.models for path in _matching(pattern))
        if not models:
            raise click.UsageError("there is no MODEL, and pyproject.toml names none", context)
        if opsets is runtime is None:
            opsets, runtime = rules.opsets, rules.runtime
    if page is not None:
        if len(models) > 1:
            raise click.UsageError("--html is for one model", context)
        check_page(page, models, "--html")
        check_target(page, force)
    if measure and (opsets is None or len(opsets) != 1):
        raise click.UsageError("--measure goes with one --opset", context)
    if folder := next(filter(os.path.isdir, models), None):
        raise Failure(f"{folder} is a folder; check takes files, such as {os.path.join(folder, '*.onnx')}")
    form = "json" if as_json else form
    answers: list[dict[str, Any]] = []
    status = 0
    for model in models:
        try:
            found = check(source(model), opsets, runtime=runtime)
        except ModelFileError as error:
            if len(models) == 1 and form != "github":
                raise
            status = 2
            answers.append({"model": model, "error": str(error)})
            _tell_error(model, str(error), form)
            continue
        timing = _timing(model, opsets[0]) if measure and opsets and found else None
        status = max(status, 0 if found else 1)
        answers.append({"model": model, **found.to_dict(), "timing": timing and dataclasses.asdict(timing)})
        _tell(model, found, timing, form, len(models) > 1 or not named)
        if page is not None:
            _write(page, model, found, force)
    if form == "json":
        echo_json(answers[0] if len(answers) == 1 else {"models": answers})
    return status


def _matching(pattern: str) -> list[str]:
    found = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
    if not found:
        # A model that was moved or never made must not pass.
        raise Failure(f'models = ["{pattern}"] in pyproject.toml match no file')
    return found


def _timing(model: str, opset: int) -> Timing:
    from relu_tools.conversion import convert
    from relu_tools.timing import TimingError, measure

    try:
        return measure(model, convert(model, opset, verify="off").model)
    except TimingError as error:
        raise Failure(f"--measure: {error}") from None


def _tell(model: str, found: Compatibility, timing: Timing | None, form: str, titled: bool) -> None:
    from relu_tools import compatibility_text

    if form == "github":
        click.echo(compatibility_text.github(model, found))
    elif form == "text":
        text = compatibility_text.compatibility(found) + (f"\n\nrun time: {timing}" if timing else "")
        click.echo(f"{model}\n{text}\n" if titled else text)


def _tell_error(model: str, error: str, form: str) -> None:
    from relu_tools import compatibility_text
    from relu_tools.present import printable

    if form == "github":
        click.echo(compatibility_text.command("error", model, error))
    elif form == "text":
        click.echo(printable(f"{model}: {error}"), err=True)


def _write(page: str, model: str, found: Compatibility, force: bool) -> None:
    from relu_tools.compatibility_page import compatibility

    with open(page, "w" if force else "x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(compatibility(found, model))
