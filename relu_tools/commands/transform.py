"""What `convert` and `inline` do with a model that they were given: run, write, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from relu_tools.commands.shared import Refused, check_target, echo_json
from relu_tools.commands.trial import Progress, Trial, progress
from relu_tools.report import ConversionError

if TYPE_CHECKING:
    from relu_tools.conversion import Conversion, Inlining


def transform(
    run: Callable[[Progress | None], Conversion | Inlining],
    model: str,
    target: str,
    ops: tuple[str, ...],
    trial: Trial,
    as_json: bool,
    external_data: str | None = None,
    in_place: bool = False,
) -> int:
    overwrite = trial.force or in_place
    check_target(target, overwrite)
    trial.check_page(model, target)
    from relu_tools import present

    try:
        with progress("converting") as told:
            result = run(told)
    except ConversionError as error:
        trial.write_page(_refused(error, model, target, trial))
        if as_json:
            echo_json({"model": model, "output": None, **present.refused(error)})
            raise Refused(present.headline(model, error)) from None
        raise Refused(present.refusals(model, error)) from None
    report = result.report
    report.notes += present.without_effect(ops, report, result.operators() if ops else ())
    # Made before the target may take the place of the model, whose constants it shows.
    page = _page(result, model, target, trial, written=True)
    result.save(target, overwrite=overwrite, external_data=external_data)
    trial.write_page(page)
    # The report must not mix with the model.
    if as_json:
        echo_json({"model": model, "output": target, "refusals": [], **report.to_dict()}, err=target == "-")
    else:
        click.echo(present.transformed(report, model, target, trial.how), err=target == "-")
    return 0


def _page(result: Conversion | Inlining, model: str, target: str, trial: Trial, *, written: bool) -> str:
    if trial.page is None:
        return ""
    from relu_tools.verification_page import transformed

    return transformed(result.report, model, target, trial.how, result.rewritten, written)


def _refused(error: ConversionError, model: str, target: str, trial: Trial) -> str:
    # Forms that differ are shown; where nodes were refused there are none.
    result = getattr(error, "result", None)
    if result is not None:
        return _page(result, model, target, trial, written=False)
    if trial.page is None:
        return ""
    from relu_tools.verification_page import refused

    return refused(error, model)
