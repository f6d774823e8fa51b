"""What commands share: options, values of parameters, and the sentences and exit statuses that they end with."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

STATUS = """Exit status: 0 done and equal; 1 refused, blocked or different; 2 wrong usage, unreadable input or
unwritable output; 130 interrupted."""


class Failure(click.ClickException):
    """Ends the command with a sentence, and its class with an exit status."""

    exit_code = 2


class Refused(Failure):
    exit_code = 1


class Opset(click.ParamType):
    """13 or ai.onnx.ml=3, as domain and version."""

    name = "opset"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        domain, _, version = value.rpartition("=")
        if not re.fullmatch("[0-9]{1,9}", version):
            self.fail(f"'{value}' is no opset; one is a number such as 13, or DOMAIN=NUMBER", param, ctx)
        return ("" if domain == "ai.onnx" else domain), int(version)


class Opsets(click.ParamType):
    """13 or 7-28, as numbers."""

    name = "opsets"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        match = re.fullmatch("([0-9]{1,4})(?:-([0-9]{1,4}))?", value)
        if not match:
            self.fail(f"'{value}' is no opset; one is a number such as 13, several are two such as 7-28", param, ctx)
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            self.fail(f"'{value}' runs backwards", param, ctx)
        return list(range(low, high + 1))


class IRVersion(click.ParamType):
    name = "ir_version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value != "keep" and not re.fullmatch("[0-9]{1,9}", value):
            self.fail(f"'{value}' is no IR version; one is a number such as 8, or 'keep'", param, ctx)
        return value if value == "keep" else int(value)


output_option = click.option("-o", "--output", "target", metavar="OUT", help="The file to write.")
external_data_option = click.option(
    "--external-data",
    metavar="keep|copy|embed|FILE",
    help="Data in other files: leave it there, copy it, take it into OUT, or put all large tensors into FILE, "
    "which lies beside OUT. By default it is left where OUT is in the same folder, and copied where not.",
)
in_place_option = click.option("--in-place", is_flag=True, help="Write the result over MODEL.")
force_option = click.option("--force", is_flag=True, help="Overwrite files, even MODEL.")
write_over_option = click.option("--force", is_flag=True, help="Overwrite the file.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="For the inputs of the verification.",
)


def verify_option(default: str) -> Callable:
    return click.option(
        "--verify",
        "how",
        type=click.Choice(["changed", "full", "off"]),
        default=default,
        show_default=True,
        help="Run each rewritten node against its replacement, the whole models, or nothing.",
    )


def source(model: str) -> str:
    if model == "-" and sys.stdin is None:
        raise Failure("standard input is closed")
    return model


def beside(model: str, tag: str) -> str:
    path = Path(model)
    return model if model == "-" else str(path.with_name(f"{path.stem}{tag}{path.suffix}"))


def check_in_place(model: str, in_place: bool, others: Mapping[str, Any]) -> None:
    """Says what does not go together with --in-place."""
    given = [option for option, value in others.items() if value is not None]
    if in_place and given:
        raise click.UsageError(f"--in-place writes over MODEL, and {given[0]} elsewhere", click.get_current_context())
    if in_place and model == "-":
        raise click.UsageError("standard input cannot be written over", click.get_current_context())


def check_page(page: str, models: Sequence[str], option: str) -> None:
    """Says what is no place for a page about these models."""
    if page == "-":
        raise Failure(f"the page of {option} goes to a file, not to standard output")
    if os.path.realpath(page) in {os.path.realpath(model) for model in models if model != "-"}:
        raise Failure(f"{page} is a model already; give the page of {option} another name")


def check_target(target: str, force: bool) -> None:
    """Says before the work is done what would stop the writing after it."""
    if target == "-":
        if sys.stdout is None:
            raise Failure("standard output is closed")
        if sys.stdout.isatty():
            raise Failure("a model does not go to a terminal; give a file by -o, or redirect standard output")
        return
    folder = os.path.dirname(os.path.realpath(target))
    if os.path.isdir(target):
        raise Failure(f"cannot write {target}: it is a folder")
    if not os.path.isdir(folder):
        raise Failure(f"cannot write {target}: there is no folder {folder}")
    if os.path.isfile(target) and not force:
        raise Failure(f"{target} exists; --force overwrites it")
    if not os.access(folder, os.W_OK) and not (os.path.exists(target) and os.access(target, os.W_OK)):
        raise Failure(f"cannot write {target}: {os.strerror(errno.EACCES)}")


def echo_json(data: dict[str, Any], err: bool = False) -> None:
    import json

    click.echo(json.dumps(_finite(data), indent=2, allow_nan=False), err=err)


def _finite(value: Any) -> Any:
    """JSON has no infinities and no NaN; they become "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value
