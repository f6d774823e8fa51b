"""What a check found, for the terminal: the matrix, what rewrites and what blocks, and what can be reached."""

from __future__ import annotations

from collections.abc import Iterable

from relu_tools.compatibility import Cell, Compatibility, Fit
from relu_tools.present import ACCURACY, printable, ranges, table
from relu_tools.report import Change, Refusal, qualified

_STYLE = {"as it is": "green", "rewritten": "yellow", "blocked": "bold red"}
_LEGEND = "= as it is, N nodes rewritten, ~N equal but for rounding, !N blocked"
_FEW = 8


def compatibility(found: Compatibility) -> str:
    """The whole answer."""
    parts = []
    if found.opsets:
        parts = [_matrix(found), _rewrites(found), _blockers(found), _summary(found)]
    if found.fit is not None:
        parts.append(fit_lines(found.fit))
    if found.findings:
        faults = [f"  {finding}" for finding in found.findings]
        parts.append([f"as it stands the model has {_count(len(faults), 'fault')}:", *faults])
    return "\n\n".join("\n".join(part) for part in parts if part)


# --- the matrix ------------------------------------------------------------------------------
def columns(found: Compatibility) -> list[list[int]]:
    """Neighbouring opsets at which the same becomes of every operator, together."""
    groups: list[list[int]] = []
    last = None
    for opset in found.opsets:
        shown = [look(row.get(opset)) for row in found.rows.values()]
        if shown == last and groups[-1][-1] + 1 == opset:
            groups[-1].append(opset)
        else:
            groups.append([opset])
        last = shown
    return groups


def look(cell: Cell | None) -> tuple | None:
    """All of a cell that tells it from another one in the matrix."""
    if cell is None:
        return None
    kinds = tuple(dict.fromkeys((change.means, change.accuracy) for change in cell.changes))
    return cell.rewritten, kinds, len(cell.blocked), tuple(dict.fromkeys(r.reason for r in cell.blocked))


def exact(cell: Cell) -> bool:
    """Whether all that is rewritten is so exactly."""
    return set(cell.accuracies) <= {"exact"}


def _matrix(found: Compatibility) -> list[str]:
    groups = columns(found)
    rows = []
    for op, row in found.rows.items():
        cells = [row.get(group[0]) for group in groups]
        told = [(_sign(cell), _STYLE[cell.status]) if cell is not None else "" for cell in cells]
        rows.append([op, str(found.counts.get(op) or ""), *told])
    return [table(["operator", "nodes", *(ranges(group) for group in groups)], rows), "", _LEGEND]


def _sign(cell: Cell) -> str:
    if cell.blocked:
        return f"!{len(cell.blocked)}"
    return f"{'' if exact(cell) else '~'}{cell.rewritten}" if cell.changes else "="


def _rewrites(found: Compatibility) -> list[str]:
    """What is rewritten, by which means and how exactly, once for all opsets of which that holds."""
    kinds: dict[tuple[str, tuple[str, ...], str], list[int]] = {}
    for op, row in found.rows.items():
        for opset, cell in row.items():
            for means, accuracy in dict.fromkeys((change.means, change.accuracy) for change in cell.changes):
                kinds.setdefault((op, means, accuracy), []).append(opset)
    return [
        printable(f"rewritten at {ranges(opsets)}: {op} ({', '.join(means)}; {ACCURACY[accuracy]})")
        for (op, means, accuracy), opsets in kinds.items()
    ]


def _blockers(found: Compatibility) -> list[str]:
    """What blocks, once for all opsets that it blocks, each with the names of its nodes."""
    blockers: dict[tuple[str, str, str], list[tuple[int, Refusal]]] = {}
    for opset in found.opsets:
        for refusal in found.refusals(opset):
            key = (qualified(refusal.step.domain, refusal.step.op), refusal.reason, refusal.advice)
            blockers.setdefault(key, []).append((opset, refusal))
    lines = []
    for (op, reason, advice), blocked in blockers.items():
        steps = {str(refusal.step) for _, refusal in blocked}
        what = steps.pop() if len(steps) == 1 else op
        lines.append(f"blocked at {ranges({opset for opset, _ in blocked})}: {what}: {reason}")
        lines.append(f"    at {', '.join(dict.fromkeys(refusal.node for _, refusal in blocked))}")
        lines += [f"    {advice}"] if advice else []
    return [printable(line) for line in lines]


# --- the summary -----------------------------------------------------------------------------
def _summary(found: Compatibility) -> list[str]:
    reachable = found.reachable
    has = f"the model has {found.opset}" if found.opset is not None else "the model imports no ai.onnx"
    if not reachable:
        return [f"reachable: {none_of(found.opsets)}; {has}"]
    ends = f" (lowest {min(reachable)}, highest {max(reachable)})" if len(reachable) > 1 else ""
    lines = [f"reachable: {ranges(reachable)}{ends}; {has}"]
    if found.next_down is not None:
        blocking = [op for op, row in found.rows.items() if found.next_down in row and row[found.next_down].blocked]
        lines.append(f"next down: {found.next_down}, blocked by {_some(blocking)}")
    versions = at_opsets({opset: str(outcome.ir_version) for opset, outcome in found.outcomes.items()})
    lines.append(f"IR version: {versions}; the model has {found.ir_version}")
    before = sum(found.counts.values())
    costs = {
        opset: f"{outcome.nodes}{_plus(outcome.added)}"
        for opset, outcome in found.outcomes.items()
        if outcome.added or outcome.nodes != before
    }
    lines.append(f"nodes: {at_opsets(costs) if costs else before}; the model has {before}")
    return [printable(line) for line in lines]


def none_of(opsets: list[int]) -> str:
    return f"none of {ranges(opsets)}" if len(opsets) > 1 else "none"


def at_opsets(values: dict[int, str]) -> str:
    """Values with the opsets at which they hold."""
    groups: dict[str, list[int]] = {}
    for opset, value in values.items():
        groups.setdefault(value, []).append(opset)
    return "; ".join(f"{value} at {ranges(opsets)}" for value, opsets in groups.items())


def _plus(added: dict[str, int]) -> str:
    return f" (+{', +'.join(f'{count} {op}' for op, count in added.items())})" if added else ""


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + (f" and {len(listed) - _FEW} more" if len(listed) > _FEW else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


_UNKNOWN = "nothing is known of the operators that it runs"


# --- a runtime -------------------------------------------------------------------------------
def fit_lines(fit: Fit) -> list[str]:
    """What a runtime makes of the model, details indented."""
    if fit.loads and fit.operators_known:
        return [printable(f"{fit.runtime} loads it as it is")]
    if fit.loads:
        return [printable(f"its opsets and IR version fit {fit.runtime} as they are; {_UNKNOWN}")]
    reasons: dict[tuple[str, str], list[str]] = {}
    for objection in fit.objections:
        reasons.setdefault((objection.op, objection.reason), []).append(objection.node)
    lines = [f"{fit.runtime} does not load it as it is:"]
    lines += [f"  {f'{op}: ' if op else ''}{why}{_at(nodes) if op else ''}" for (op, why), nodes in reasons.items()]
    if fit.outcome is not None:
        opset = f"opset {fit.outcome.opset}, " if fit.outcome.opset is not None else ""
        makes = "one that it loads" if fit.operators_known else f"one of opsets and IR version that fit ({_UNKNOWN})"
        lines.append(
            f"`convert --for` makes {makes}: {opset}IR version {fit.outcome.ir_version}, "
            f"{_count(fit.outcome.nodes, 'node')}{_plus(fit.outcome.added)}"
        )
        lines += [f"  {op}: {', '.join(means)}; {ACCURACY[accuracy]}" for op, means, accuracy in _kinds(fit.changes)]
    elif fit.refusals:
        lines.append("and `convert --for` cannot make one:")
        refused: dict[tuple[str, str, str], list[str]] = {}
        for refusal in fit.refusals:
            refused.setdefault((str(refusal.step), refusal.reason, refusal.advice), []).append(refusal.node)
        for (step, reason, advice), nodes in refused.items():
            lines.append(f"  {step}: {reason}{f' ({advice})' if advice else ''}{_at(nodes)}")
    return [printable(line) for line in lines]


def _kinds(changes: Iterable[Change]) -> Iterable[tuple[str, tuple[str, ...], str]]:
    return dict.fromkeys((qualified(c.domain, c.op), c.means, c.accuracy) for c in changes)


def _at(nodes: list[str]) -> str:
    return f", at {_some(nodes)}"


# --- for GitHub ------------------------------------------------------------------------------
def github(model: str, found: Compatibility) -> str:
    """The faults and blockers as workflow commands, which GitHub shows beside a change."""
    lines = [command("warning", model, str(finding)) for finding in found.findings]
    for opset in found.opsets:
        lines += [command("error", model, f"opset {opset}: {refusal}") for refusal in found.refusals(opset)]
    if found.fit is not None and not found.fit:
        why = found.fit.refusals or found.fit.objections
        lines += [command("error", model, f"{found.fit.runtime}: {reason}") for reason in why]
    if not lines:
        lines = [command("notice", model, "everything that was asked for can be reached")]
    return "\n".join(lines)


def command(kind: str, model: str, text: str) -> str:
    """A workflow command: "error", "warning" or "notice" about a file."""
    return f"::{kind} file={_escaped(model, ':,')},title=relu-tools::{_escaped(text)}"


def _escaped(text: str, also: str = "") -> str:
    """Characters that would end a workflow command or one of its properties, percent-encoded."""
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{also}" else c for c in printable(text))
