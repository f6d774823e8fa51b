"""How a result is to be verified and reported: the options that `convert`, `inline` and `verify` share."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click

from relu_tools.commands.shared import (
    check_page,
    check_target,
    force_option,
    seed_option,
    verify_option,
    write_over_option,
)

Progress = Callable[[int, int], None]


class Trial(NamedTuple):
    """The values of the options; `how` is "changed", "full" or "off"."""

    how: Any
    seed: int
    inputs: tuple[str, ...]
    seconds: float | None
    memory_mb: int | None
    page: str | None
    force: bool

    def settings(self) -> dict[str, Any]:
        """As the library takes them."""
        given: dict[str, Any] = {"seed": self.seed, "inputs": self.inputs or None, "memory_mb": self.memory_mb}
        return given if self.seconds is None else {**given, "seconds": self.seconds}

    def check_page(self, *models: str) -> None:
        """Says before the work is done what would stop the writing of the page after it."""
        if self.page is None:
            return
        check_page(self.page, models, "--report")
        check_target(self.page, self.force)

    def write_page(self, text: str) -> None:
        """Writes the page, if one is wanted."""
        if self.page is not None:
            with open(self.page, "w" if self.force else "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)


def trial_options(default: str | None) -> Callable[[Callable], Callable]:
    """Gives a command a parameter `trial`; `default` is that of --verify, None for a command without it."""

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def inner(
            *args: Any,
            seed: int,
            inputs: tuple[str, ...],
            seconds: float | None,
            memory_mb: int | None,
            page: str | None,
            force: bool,
            how: Any = "full",
            **others: Any,
        ) -> Any:
            if inputs and how != "full":
                context = click.get_current_context()
                raise click.UsageError("--inputs are for whole models, so for --verify full", context)
            trial = Trial(how, seed, inputs, seconds, memory_mb, page, force)
            return command(*args, trial=trial, **others)

        for option in (
            *(() if default is None else (verify_option(default),)),
            click.option(
                "--inputs",
                multiple=True,
                metavar="NPZ|FOLDER",
                help="Run the whole models on these: arrays by name, or a folder with input_0.pb; can be repeated.",
            ),
            seed_option,
            click.option(
                "--seconds",
                type=click.FloatRange(min=0, min_open=True),
                metavar="S",
                show_default="120" if default is None else "60 for a rewrite, 120 for whole models",
                help="How long verification may take.",
            ),
            click.option(
                "--memory",
                "memory_mb",
                type=click.IntRange(min=1),
                metavar="MB",
                show_default="all of the machine's",
                help="Megabytes that verification may take.",
            ),
            click.option("--report", "page", metavar="HTML", help="Write a page for the browser about all of it."),
            write_over_option if default is None else force_option,
        )[::-1]:
            inner = option(inner)
        return inner

    return decorate


@contextlib.contextmanager
def progress(what: str, then: str = "verifying") -> Iterator[Progress | None]:
    """Shows on a terminal that work goes on, then how far it is, once somebody calls what it gives."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    # Lines on standard output go above the bar where both are the terminal, and where they are sent to where not.
    mixed = sys.stdout is not None and sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=mixed) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, description=then, completed=done, total=total)
