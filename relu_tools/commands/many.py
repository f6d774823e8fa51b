"""What `convert` does with several models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relu_tools.commands.shared import Failure, beside, echo_json
from relu_tools.commands.trial import progress


def convert_many(
    models: Sequence[str],
    tag: str,
    out_dir: str | None,
    in_place: bool,
    workers: int | None,
    settings: Mapping[str, Any],
    as_json: bool,
) -> int:
    """Converts files and folders of models; the exit status."""
    from relu_tools import batch, present

    if "-" in models:
        raise Failure("standard input is one model; it is converted alone, without --out-dir")
    if out_dir is None and not in_place and (folder := next(filter(os.path.isdir, models), None)):
        raise Failure(f"{folder} is a folder; --out-dir says where its models go, or --in-place")
    if out_dir is not None and os.path.exists(out_dir) and not os.path.isdir(out_dir):
        raise Failure(f"cannot write to {out_dir}: it is no folder")

    def place(model: Path, below: Path) -> Path:
        if in_place:
            return model
        return Path(beside(str(model), tag)) if out_dir is None else Path(out_dir, below)

    jobs = batch.plan(models, place, out_dir, in_place)
    outcomes: list[batch.Outcome | None] = [None] * len(jobs)
    said = 0
    with progress("converting", "converting") as told:
        if told is not None:
            told(0, len(jobs))
        for count, (number, outcome) in enumerate(batch.run(jobs, workers or os.cpu_count() or 1, settings), 1):
            outcomes[number] = outcome
            # Lines come in the order of the models.
            while not as_json and said < len(outcomes) and (ready := outcomes[said]) is not None:
                line = ready.line if ready.done else f"relu-tools: {ready.line}"
                click.echo(present.printable(line.replace("\n", "\\n")), err=not ready.done)
                said += 1
            if told is not None:
                told(count, len(jobs))
    done = [outcome for outcome in outcomes if outcome is not None and outcome.done]
    failed = len(jobs) - len(done)
    if as_json:
        models_told = [outcome.details for outcome in outcomes if outcome is not None]
        echo_json({"models": models_told, "converted": len(done), "failed": failed})
    else:
        click.echo(present.summary(len(done), failed))
    return 1 if failed else 0
