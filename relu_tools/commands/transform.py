"""What `convert` and `inline` do with a model that they were given: run, write, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from relu_tools.commands.shared import Refused, check_target, echo_json
from relu_tools.report import ConversionError

if TYPE_CHECKING:
    from relu_tools.conversion import Conversion, Inlining


def transform(
    run: Callable[[], Conversion | Inlining],
    model: str,
    target: str,
    ops: tuple[str, ...],
    how: str,
    force: bool,
    as_json: bool,
) -> int:
    check_target(target, force)
    from relu_tools import present

    try:
        result = run()
    except ConversionError as error:
        if as_json:
            echo_json({"model": model, "output": None, **present.refused(error)})
            raise Refused(present.headline(model, error)) from None
        raise Refused(present.refusals(model, error)) from None
    result.save(target, overwrite=force)
    report = result.report
    report.notes += [f"no node calls a function '{op}'" for op in present.without_effect(ops, report)]
    # The report must not mix with the model.
    if as_json:
        echo_json({"model": model, "output": target, "refusals": [], **report.to_dict()}, err=target == "-")
    else:
        click.echo(present.transformed(report, model, target, how), err=target == "-")
    return 0
