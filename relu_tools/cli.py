"""The command line: convert, inline, check, verify, explain.

A command returns its exit status: 0 done and equal; 1 refused, blocked or different; 2 wrong usage, unreadable input
or unwritable output. Every error is one sentence on standard error. Libraries are imported by the commands that use
them, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relu_tools.report import ConversionError, ModelFileError

if TYPE_CHECKING:
    from relu_tools.conversion import Conversion, Inlining

STATUS = """Exit status: 0 done and equal; 1 refused, blocked or different; 2 wrong usage, unreadable input or
unwritable output; 130 interrupted."""


class _Failure(click.ClickException):
    """Ends the command with a sentence, and its class with an exit status."""

    exit_code = 2


class _Refused(_Failure):
    exit_code = 1


class _Interrupted(_Failure):
    exit_code = 130


class _Commands(click.Group):
    """Runs a command and turns what goes wrong into a sentence and an exit status."""

    def main(self, *args: Any, **extra: Any) -> None:  # type: ignore[override]
        for stream in (sys.stdout, sys.stderr):
            # Names in a model may hold what the terminal's encoding has not.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().main(*args, **{"prog_name": "relu-tools", **extra, "standalone_mode": False})
        except click.Abort:
            status = _say("interrupted", 130)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "relu-tools"
            status = _say(f"{error.format_message().rstrip('.')} (see {command} --help)", error.exit_code)
        except click.ClickException as error:
            status = _say(error.format_message(), error.exit_code)
        sys.exit(status)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _sentences():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _sentences():
            return super().invoke(ctx)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Takes what goes wrong before click does, which would be silent, or end in a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        raise _Interrupted("interrupted") from None
    except (ModelFileError, ValueError) as error:
        raise _Failure(str(error)) from None
    except MemoryError:
        raise _Failure("there is not enough memory") from None
    except OSError as error:
        where = error.filename or "cannot write to standard output"
        raise _Failure(f"{where}: {error.strerror or error}") from None


def _say(sentence: str, status: int) -> int:
    from relu_tools.present import printable

    # Where standard error cannot be written either, the status has to do.
    with contextlib.suppress(OSError):
        click.echo(f"relu-tools: {printable(sentence)}", err=True)
    return status


class _Opset(click.ParamType):
    """13 or ai.onnx.ml=3, as domain and version."""

    name = "opset"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        domain, _, version = value.rpartition("=")
        if not re.fullmatch("[0-9]{1,9}", version):
            self.fail(f"'{value}' is no opset; one is a number such as 13, or DOMAIN=NUMBER", param, ctx)
        return ("" if domain == "ai.onnx" else domain), int(version)


class _Opsets(click.ParamType):
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


class _IRVersion(click.ParamType):
    name = "ir_version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value != "keep" and not re.fullmatch("[0-9]{1,9}", value):
            self.fail(f"'{value}' is no IR version; one is a number such as 8, or 'keep'", param, ctx)
        return value if value == "keep" else int(value)


_output = click.option("-o", "--output", "target", metavar="OUT", help="The file to write.")
_force = click.option("--force", is_flag=True, help="Overwrite OUT, even if it is MODEL.")
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_seed = click.option("--seed", type=click.IntRange(min=0), default=0, help="For the inputs of the verification.")


def _verify(default: str) -> Callable:
    return click.option(
        "--verify",
        "how",
        type=click.Choice(["changed", "full", "off"]),
        default=default,
        show_default=True,
        help="Run each rewritten node against its replacement, the whole models, or nothing.",
    )


@click.group(
    "relu-tools",
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=STATUS,
)
@click.version_option(package_name="relu_tools", prog_name="relu-tools")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Convert an ONNX model between any two opsets, and prove the result by running both forms.

    \b
      relu-tools check net.onnx                 what can be reached, and what blocks
      relu-tools convert net.onnx --opset 13    writes net.opset13.onnx
      relu-tools inline net.onnx --op Relu      writes net.inlined.onnx
      relu-tools verify net.onnx net.opset13.onnx
      relu-tools explain Relu 14 13

    Each command has a --help with examples.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command(epilog=STATUS)
@click.argument("model")
@click.option(
    "--opset",
    "opsets",
    type=_Opset(),
    multiple=True,
    required=True,
    metavar="N|DOMAIN=N",
    help="The opset of ai.onnx, or of another domain; can be repeated.",
)
@_output
@click.option("--inline", "ops", multiple=True, metavar="OP", help="Expand this function on the way; can be repeated.")
@click.option(
    "--ir-version",
    type=_IRVersion(),
    metavar="N|keep",
    help="By default that of the ONNX release that brought the opset, if it is lower.",
)
@_verify("changed")
@_force
@_json
@_seed
def convert(
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

        return convert(_source(model), wanted, ir_version=ir_version, inline=ops, verify=how, seed=seed)

    tag = "".join(f".{domain or 'opset'}{version}" for domain, version in wanted.items())
    return _transform(run, model, target or _beside(model, tag), ops, how, force, as_json)


@main.command(epilog=STATUS)
@click.argument("model")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Expand this function only; can be repeated.")
@click.option("--domain", "domains", multiple=True, help="Expand functions of this domain only; can be repeated.")
@click.option("--exclude", multiple=True, metavar="OP", help="Leave this function as it is; can be repeated.")
@click.option("--primitive", is_flag=True, help="Go on with the functions that the expanded bodies call.")
@click.option("--missing-at", type=int, metavar="OPSET", help="Expand what this opset of ai.onnx lacks, nothing else.")
@_output
@_verify("changed")
@_force
@_json
@_seed
def inline(
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
            _source(model),
            ops or None,
            domains=domains or None,
            exclude=exclude,
            primitive=primitive,
            missing_at=missing_at,
            verify=how,
            seed=seed,
        )

    return _transform(run, model, target or _beside(model, ".inlined"), ops, how, force, as_json)


def _transform(
    run: Callable[[], Conversion | Inlining],
    model: str,
    target: str,
    ops: tuple[str, ...],
    how: str,
    force: bool,
    as_json: bool,
) -> int:
    _check_target(target, force)
    from relu_tools import present

    try:
        result = run()
    except ConversionError as error:
        if as_json:
            _echo_json({"model": model, "output": None, **present.refused(error)})
            raise _Refused(present.headline(model, error)) from None
        raise _Refused(present.refusals(model, error)) from None
    result.save(target, overwrite=force)
    report = result.report
    report.notes += [f"no node calls a function '{op}'" for op in present.without_effect(ops, report)]
    # The report must not mix with the model.
    if as_json:
        _echo_json({"model": model, "output": target, "refusals": [], **report.to_dict()}, err=target == "-")
    else:
        click.echo(present.transformed(report, model, target, how), err=target == "-")
    return 0


def _source(model: str) -> str:
    if model == "-" and sys.stdin is None:
        raise _Failure("standard input is closed")
    return model


def _beside(model: str, tag: str) -> str:
    path = Path(model)
    return model if model == "-" else str(path.with_name(f"{path.stem}{tag}{path.suffix}"))


def _check_target(target: str, force: bool) -> None:
    """Says before the work is done what would stop the writing after it."""
    if target == "-":
        if sys.stdout is None:
            raise _Failure("standard output is closed")
        if sys.stdout.isatty():
            raise _Failure("a model does not go to a terminal; give a file by -o, or redirect standard output")
        return
    folder = os.path.dirname(os.path.realpath(target))
    if os.path.isdir(target):
        raise _Failure(f"cannot write {target}: it is a folder")
    if not os.path.isdir(folder):
        raise _Failure(f"cannot write {target}: there is no folder {folder}")
    if os.path.isfile(target) and not force:
        raise _Failure(f"{target} exists; --force overwrites it")
    if not os.access(folder, os.W_OK) and not (os.path.exists(target) and os.access(target, os.W_OK)):
        raise _Failure(f"cannot write {target}: {os.strerror(errno.EACCES)}")


@main.command(epilog=f"{STATUS} With a range, 0 says that all of it can be reached.")
@click.argument("model")
@click.option(
    "--opset", "opsets", type=_Opsets(), metavar="N|N-N", help="One opset or a range; by default 7 to the newest."
)
@_json
def check(model: str, opsets: list[int] | None, as_json: bool) -> int:
    """Say which opsets MODEL can be converted to, and what blocks the others.

    Nothing is run and nothing written. There is a row for each operator, and all blockers are named with their nodes.

    \b
      relu-tools check net.onnx
      relu-tools check net.onnx --opset 13
      relu-tools check net.onnx --opset 7-15 --json | jq .reachable
    """
    from relu_tools import present
    from relu_tools.compatibility import check

    compatibility = check(_source(model), opsets)
    if as_json:
        _echo_json({"model": model, **compatibility.to_dict()})
    else:
        click.echo(present.compatibility(compatibility))
    return 0 if compatibility else 1


@main.command(epilog=f"{STATUS} Two models that could not be run are not known to be equal, and so 1.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_json
@_seed
def verify(before: str, after: str, as_json: bool, seed: int) -> int:
    """Run the models A and B on the same inputs and say how far apart their outputs are.

    The inputs are random and special values. onnxruntime is the judge where it is installed and can run a model,
    onnx's reference evaluator where not; the answer names them.

    \b
      relu-tools verify net.onnx net.opset13.onnx
      relu-tools verify net.onnx net.opset13.onnx --seed 7
      relu-tools verify a.onnx b.onnx --json | jq .figures
    """
    if before == after == "-":
        raise click.UsageError("standard input holds one model, not two", click.get_current_context())
    from relu_tools import present, textformats
    from relu_tools.modelfile import open_model
    from relu_tools.verification import verify

    files = [open_model(_source(model)) for model in (before, after)]
    # A model in a binary file is handed over as such: its weights may be many, or in other files.
    models = [
        file.path if file.path and file.path.suffix.lower() not in textformats.FORMATS else file.whole()
        for file in files
    ]
    verification = verify(*models, seed=seed)
    if as_json:
        _echo_json({"before": before, "after": after, **verification.to_dict()})
    else:
        click.echo(present.verification(verification))
    return 0 if verification else 1


@main.command(epilog=STATUS)
@click.argument("op", metavar="OPERATOR")
@click.argument("source", metavar="FROM", type=int)
@click.argument("target", metavar="TO", type=int)
def explain(op: str, source: int, target: int) -> None:
    """Say what changed in OPERATOR from opset FROM to opset TO, and what a conversion does about it.

    \b
      relu-tools explain Relu 14 13
      relu-tools explain Softmax 7 28
      relu-tools explain ai.onnx.ml::TreeEnsemble 5 3
    """
    from relu_tools.explanation import explain

    click.echo(explain(op, source, target))


def _echo_json(data: dict[str, Any], err: bool = False) -> None:
    import json

    click.echo(json.dumps(_finite(data), indent=2, allow_nan=False), err=err)


def _finite(value: Any) -> Any:
    """JSON has no infinities and no NaN; they become "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value
