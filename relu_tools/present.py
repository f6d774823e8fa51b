"""Reports as text and tables for the terminal."""

from __future__ import annotations

import io
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from relu_tools.report import BOUNDS, ConversionError, Report, did_you_mean, qualified

if TYPE_CHECKING:
    from relu_tools.verification import Verification

ACCURACY = {
    "exact": "exact",
    "rounding": f"within rounding, {BOUNDS['rounding'][0]} ULP",
    "body": f"equal by definition, {BOUNDS['body'][0]} ULP",
}
_NAMES = 8


def printable(text: str) -> str:
    """The text with what a terminal would obey written as an escape; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


# --- convert and inline --------------------------------------------------------------------
def transformed(report: Report, source: str, target: str, how: str) -> str:
    """What a conversion or an inlining did, for the reader; `how` is its way of verifying."""
    told = what_was_done(report)
    rows = told[:_NUMBERS]
    for change, count in report.groups():
        how_far = f"{', '.join(change.means)}; {ACCURACY[change.accuracy]}"
        became = counted(change.nodes)
        rows.append(("", f"{count} x {qualified(change.domain, change.op)} became {became} ({how_far})"))
    rows += told[_NUMBERS:]
    rows += [("run time", str(report.timing))] if report.timing is not None else []
    rows.append(("verdict", _verdict(report, how)))
    lines = [f"{_name(source, 'standard input')} -> {_name(target, 'standard output')}"]
    lines += [f"  {title:<11}{text}" for title, text in rows]
    return printable("\n".join(lines))


_NUMBERS = 3


def what_was_done(report: Report) -> list[tuple[str, str]]:
    """The report but for its rewrites and its verification: opset, IR version and nodes, then what there is to say."""
    nodes = _from_to(report.nodes_before, report.nodes_after)
    rows = [
        ("opset", ", ".join(_opsets(report))),
        ("IR version", _from_to(report.ir_before, report.ir_after)),
        ("nodes", f"{nodes}: {report.kept} kept, {len(report.changes)} rewritten"),
    ]
    lists = {
        "inlined": report.inlined_functions,
        "untouched": [f"domain {domain}, which is not known" for domain in report.unknown_domains],
        "fixed": [f"initializer {name} can no longer be overridden" for name in report.no_longer_overridable],
        "note": report.notes,
    }
    return rows + [(title, ", ".join(entries)) for title, entries in lists.items() if entries]


def without_effect(ops: Iterable[str], report: Report, operators: Iterable[str]) -> list[str]:
    """A sentence for each of the functions to expand that was not met; `operators` are those of the result."""
    met = {qualified(change.domain, change.op) for change in report.changes} | set(report.inlined_functions)
    unmet = [name for op in ops if (name := op.removeprefix("ai.onnx::").removeprefix("::")) not in met]
    return [f"no node calls a function '{op}'{did_you_mean(op, operators)}" for op in unmet]


def _opsets(report: Report) -> list[str]:
    before, after = report.opsets_before, report.opsets_after
    domains = dict.fromkeys((*before, *after))
    return [f"{domain or 'ai.onnx'} {_from_to(before.get(domain), after.get(domain))}" for domain in domains]


def _from_to(before: int | None, after: int | None) -> str:
    none = "none"
    return str(before) if before == after else f"{before or none} to {after or none}"


def counted(ops: Sequence[str]) -> str:
    """Operators, each once and with its number."""
    return ", ".join(op if count == 1 else f"{count} {op}" for op, count in Counter(ops).items()) or "nothing"


def _name(path: str, stream: str) -> str:
    return stream if path == "-" else path


def _verdict(report: Report, how: str) -> str:
    verification = report.verification
    if verification is not None:
        return verdict(verification)
    return f"NOT VERIFIED: {unverified(report, how)}" if report.changes or how == "off" else unverified(report, how)


def unverified(report: Report, how: str) -> str:
    """Why a conversion or an inlining comes without a verification."""
    if how == "off":
        return "--verify off"
    return "no change can be run alone" if report.changes else "no node was rewritten: nothing to run"


def verdict(verification: Verification) -> str:
    """The verdict, who judged, how far apart the forms were at most, and what was not verified and why."""
    parts = verification.parts or [("", verification)]
    text = "NOT VERIFIED" if verification.verdict == "not verified" else verification.verdict
    if verification.parts:
        count = Counter(part.verdict for _, part in parts)
        each = ", ".join(f"{number} {kind}" for kind, number in count.items())
        text += f": {len(parts)} rewrite{'s' * (len(parts) > 1)}, each run alone" + (
            f", {each}" if len(count) > 1 else ""
        )
    judges = dict.fromkeys(judge for _, part in parts for judge in part.judges if judge)
    if judges:
        sets = f"{verification.runs} set{'s' * (verification.runs != 1)}"
        text += f", by {' and '.join(judges)} on {sets} of inputs"
        text += f" (seed {verification.seed})" if verification.seed is not None else ""
    figures = [figure for _, part in parts for figure in part.figures]
    worst = [max((getattr(f, key) for f in figures), default=0) for key in ("max_abs", "max_rel", "max_ulp")]
    if any(worst):
        text += "; greatest difference {:.3g} absolute, {:.3g} relative, {} ULP".format(*worst)
    elif verification:
        text += "; no difference"
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, part in parts:
        if not part:
            reasons.setdefault((part.verdict, part.reason), []).append(name)
    for (kind, reason), names in reasons.items():
        if not verification.parts:
            text += f"\n             {reason or 'no reason is known'}"
            continue
        some = ", ".join(filter(None, names[:_NAMES])) + (f" and {len(names) - _NAMES} more" * (len(names) > _NAMES))
        text += f"\n             {kind}{f': {some}' if some else ''}: {reason or 'no reason is known'}"
    return text


# --- refusals --------------------------------------------------------------------------------
def headline(model: str, error: ConversionError) -> str:
    """In one sentence why nothing was written."""
    name = _name(model, "standard input")
    if not error.refusals:
        return f"{name} was not written: {' '.join(str(error).split())}"
    count = len(error.refusals)
    return f"{name} cannot be converted, nothing was written: {count} refusal{'s' * (count > 1)}"


def refusals(model: str, error: ConversionError) -> str:
    """Why nothing was written, with a line for each refusal."""
    return "\n  ".join([headline(model, error), *map(str, error.refusals)])


def refused(error: ConversionError) -> dict[str, Any]:
    """Why nothing was written, ready for JSON."""
    from dataclasses import asdict

    verification = getattr(error, "verification", None)
    return {
        "refusals": [{**asdict(refusal), "step": asdict(refusal.step)} for refusal in error.refusals],
        "verification": verification.to_dict() if verification is not None else None,
    }


# --- many models ---------------------------------------------------------------------------
def briefly(report: Report, source: str, target: str, how: str) -> str:
    """What a conversion did, in a line."""
    verdict = report.verification.verdict if report.verification is not None else _verdict(report, how)
    nodes = f"{len(report.changes)} of {report.nodes_before} nodes rewritten"
    return f"{source} -> {target}: {', '.join(_opsets(report))}; {nodes}; {' '.join(verdict.split())}"


def refused_briefly(model: str, error: ConversionError) -> str:
    """Why a model was not written, in a line; of several refusals the first."""
    first = f": {error.refusals[0]}" if error.refusals else ""
    return headline(model, error) + (first if len(error.refusals) < 2 else f", the first{first}")


def summary(done: int, failed: int) -> str:
    count = done + failed
    return f"{count} model{'s' * (count != 1)}: {done} converted" + (f", {failed} not" if failed else "")


# --- tables and numbers ----------------------------------------------------------------------
def ranges(numbers: Iterable[int]) -> str:
    """7, 8, 9, 11 as "7-9, 11"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


# --- verify ----------------------------------------------------------------------------------
def verification(found: Verification) -> str:
    """The figures of each output, then the verdict."""
    rows = [
        [
            figure.name,
            figure.verdict,
            f"{figure.max_abs:.3g}",
            f"{figure.max_rel:.3g}",
            str(figure.max_ulp),
            f"{figure.differing} of {figure.elements}",
        ]
        for figure in found.figures
    ]
    shown = table(["output", "verdict", "absolute", "relative", "ULP", "differing"], rows)
    lines = [*([shown, ""] if rows else []), printable(of_a_and_b(verdict(found)))]
    for figure in found.figures:
        if figure.differing:
            said = [f"{pattern}: {count}" for pattern, count in figure.nonfinite.items()]
            said = [f"greatest difference {figure.place}", *said] if figure.place else said
            lines.append(printable(f"             {figure.name}: {of_a_and_b('; '.join(said) or figure.problem)}"))
    if found.located:
        lines.append(printable(f"             {found.located}"))
    return "\n".join(lines)


_SIDES = {
    "the form before": "A",
    "the form after": "B",
    "the one before": "A",
    "only before": "only in A",
    "only after": "only in B",
}


def of_a_and_b(text: str) -> str:
    """What is said of the forms of a rewrite, said of two models."""
    for of_forms, of_models in _SIDES.items():
        text = text.replace(of_forms, of_models)
    return text


def table(titles: Sequence[str], rows: Iterable[Sequence[str | tuple[str, str]]]) -> str:
    """A table as text; a cell may come with a style, which a terminal shows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    # What reads a pipe has no width.
    width = shutil.get_terminal_size().columns if terminal else 1 << 16
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False)
    shown = Table(*titles, box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for row in rows:
        cells = [(cell, "") if isinstance(cell, str) else cell for cell in row]
        shown.add_row(*(Text(printable(text), style) for text, style in cells))
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
