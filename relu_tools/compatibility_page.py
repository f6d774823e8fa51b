"""What a check found, as a page for the browser: the matrix, in which each cell leads to its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relu_tools.compatibility import Cell, Compatibility, Fit
from relu_tools.compatibility_text import at_opsets, exact, fit_lines, look, none_of
from relu_tools.page import Html, badge, element, facts, join, page, scroll, section, table
from relu_tools.present import ACCURACY, ranges
from relu_tools.report import Change, Refusal

_KIND = {"as it is": "good", "rewritten": "warn", "blocked": "bad"}
_SIGN = {"as it is": "=", "rewritten": "→", "blocked": "×"}
_MOST_NODES = 40
_STYLE = """
.matrix th, .matrix td { padding: 0; text-align: center; border-right: 1px solid var(--line); }
.matrix thead th { padding: 0.3rem 0.2rem; }
.matrix tbody th {
  position: sticky; left: 0; z-index: 1; background: var(--paper); color: var(--ink); text-align: left;
  padding: 0.3rem 0.9rem 0.3rem 0; font-weight: 400;
}
.matrix td.number { padding: 0.3rem 0.5rem; color: var(--muted); text-align: right; }
.matrix td > a, .matrix td > span { display: block; min-width: 2.05rem; padding: 0.3rem 0.15rem; white-space: nowrap; }
.matrix a { text-decoration: none; font-weight: 600; }
.matrix a:hover { text-decoration: underline; }
.matrix .good { background: var(--good-tint); color: var(--good); }
.matrix .warn, .matrix .warn a { background: var(--warn-tint); color: var(--warn); }
.matrix .bad, .matrix .bad a { background: var(--bad-tint); color: var(--bad); }
.matrix .current { text-decoration: underline; text-underline-offset: 0.2em; }
.matrix tr.all th, .matrix tr.all td { border-bottom: 2px solid var(--muted); font-weight: 600; }
.reason { padding: 0.5rem 0.7rem; margin: 0 0 0.5rem; border-left: 3px solid var(--line); }
.reason:target { border-left-color: var(--accent); background: var(--tint); }
.reason p { margin: 0.2rem 0; }
.reason ul { margin: 0.2rem 0; }
"""


def compatibility(found: Compatibility, model: str) -> str:
    """The page of a model, named as it was given."""
    body: list[object] = [facts(_summary(found))]
    if found.opsets:
        body += [section("Operators by opsets", _legend(), _matrix(found)), _reasons(found)]
    if found.fit is not None:
        body.append(_runtime(found.fit))
    if found.findings:
        faults = [element("li", element("code", str(finding))) for finding in found.findings]
        body.append(section("What is wrong with the model as it stands", element("ul", *faults)))
    return page(f"Where {model} can run", *body, style=_STYLE)


def _summary(found: Compatibility) -> Iterable[tuple[object, object]]:
    yield "has", f"opset {found.opset}, IR version {found.ir_version}, {sum(found.counts.values())} nodes"
    if found.opsets:
        reachable = found.reachable
        if reachable:
            yield "converts to", badge(ranges(reachable), "good")
            if len(reachable) > 1:
                yield "lowest, highest", f"{min(reachable)}, {max(reachable)}"
        else:
            yield "converts to", badge(none_of(found.opsets), "bad")
        if found.next_down is not None:
            blocking = [op for op, row in found.rows.items() if found.next_down in row and row[found.next_down].blocked]
            yield "next down", f"{found.next_down}, blocked by {', '.join(blocking)}"
        if found.outcomes:
            yield "IR version", at_opsets({o: str(outcome.ir_version) for o, outcome in found.outcomes.items()})
            yield "nodes", at_opsets({o: str(outcome.nodes) for o, outcome in found.outcomes.items()})
    if found.fit is not None:
        loads, known = found.fit.loads, found.fit.operators_known
        kind = "good" if loads and known else "warn" if found.fit else "bad"
        word = "loads it as it is" if loads else "loads a conversion" if found.fit else "cannot load it"
        if found.fit and not known:
            word = "opsets and IR version fit" if loads else "opsets and IR version of a conversion fit"
        yield found.fit.runtime, badge(word, kind)


def _legend() -> Html:
    words = {
        "as it is": "as it is",
        "rewritten": "so many nodes rewritten (~ equal but for rounding)",
        "blocked": "blocked",
    }
    signs = [join(badge(f"{_SIGN[status]}", kind), f" {words[status]}  ") for status, kind in _KIND.items()]
    note = "A cell leads to its reason. The opset that the model has is underlined."
    return join(element("p", *signs), element("p", note, class_="muted"))


# --- the matrix ------------------------------------------------------------------------------
def _matrix(found: Compatibility) -> Html:
    head = element(
        "tr",
        element("th", "operator", scope="col"),
        element("th", "nodes", scope="col"),
        *(element("th", o, scope="col", class_="current" if o == found.opset else None) for o in found.opsets),
    )
    whole = [_whole(not found.refusals(opset), opset) for opset in found.opsets]
    rows = [element("tr", element("th", "all", scope="row"), element("td"), *whole, class_="all")]
    for number, (op, row) in enumerate(found.rows.items()):
        targets = _targets(number, found.opsets, row)
        cells = [_cell(op, opset, row.get(opset), targets) for opset in found.opsets]
        count = element("td", found.counts.get(op, ""), class_="number")
        rows.append(element("tr", element("th", op, scope="row"), count, *cells))
    whole_table = element("table", element("thead", head), element("tbody", *rows), class_="matrix")
    return scroll(whole_table, "operators of the model by opsets")


def _whole(reachable: bool, opset: int) -> Html:
    sign, kind = ("✓", "good") if reachable else ("×", "bad")
    label = f"opset {opset}: {'can be reached' if reachable else 'blocked'}"
    return element("td", element("span", sign, title=label, aria_label=label, role="img"), class_=kind)


def _cell(op: str, opset: int, cell: Cell | None, targets: dict[int, str]) -> Html:
    if cell is None:
        return element("td")
    label = f"{op} at opset {opset}: {said(cell)}"
    if cell.status == "as it is":
        sign = element("span", _SIGN[cell.status], title=label, aria_label=label, role="img")
        return element("td", sign, class_=_KIND[cell.status])
    why = "; ".join(dict.fromkeys(r.reason for r in cell.blocked)) or ", ".join(cell.means)
    label = f"{label}: {why}"
    number = len(cell.blocked) or cell.rewritten
    about = "" if cell.blocked or exact(cell) else "~"
    link = element(
        "a", f"{about or _SIGN[cell.status]}{number}", href=f"#{targets[opset]}", title=label, aria_label=label
    )
    return element("td", link, class_=_KIND[cell.status])


def said(cell: Cell) -> str:
    """A cell in few words."""
    counts = {"blocked": len(cell.blocked), "rewritten": cell.rewritten}
    count = f"{counts[cell.status]} " if cell.status in counts else ""
    return f"{count}{cell.status}" + ("" if cell.blocked or exact(cell) else ", not exactly")


# --- the reasons -----------------------------------------------------------------------------
def _targets(number: int, opsets: Sequence[int], row: dict[int, Cell]) -> dict[int, str]:
    """The place of each opset's reason; neighbours of which the same holds share one."""
    targets: dict[int, str] = {}
    previous = None
    for opset in opsets:
        shared = previous is not None and look(row.get(previous)) == look(row.get(opset))
        targets[opset] = targets[previous] if shared and previous is not None else f"why-{number}-{opset}"
        previous = opset
    return targets


def _reasons(found: Compatibility) -> Html:
    parts: list[Html] = []
    for number, (op, row) in enumerate(found.rows.items()):
        if all(cell.status == "as it is" for cell in row.values()):
            continue
        parts.append(element("h3", op))
        groups: dict[str, list[int]] = {}
        for opset, place in _targets(number, found.opsets, row).items():
            if opset in row and row[opset].status != "as it is":
                groups.setdefault(place, []).append(opset)
        parts += [_reason(place, opsets, row[opsets[0]]) for place, opsets in groups.items()]
    return section("Why", *parts) if parts else Html("")


def _reason(place: str, opsets: list[int], cell: Cell) -> Html:
    head = element("p", badge(said(cell), _KIND[cell.status]), f" at {ranges(opsets)}")
    changes = [element("li", *_change(kind, nodes)) for kind, nodes in _kinds(cell.changes).items()]
    refusals = [element("li", *_refusal(kind, nodes)) for kind, nodes in _refused(cell.blocked).items()]
    return element("div", head, element("ul", *refusals, *changes), id=place, class_="reason")


def _kinds(changes: Iterable[Change]) -> dict[tuple, list[str]]:
    kinds: dict[tuple, list[str]] = {}
    for change in changes:
        kinds.setdefault((change.means, change.accuracy, change.nodes), []).append(change.node)
    return kinds


def _change(kind: tuple, nodes: list[str]) -> Sequence[object]:
    means, accuracy, made = kind
    return f"{', '.join(means)} ({ACCURACY[accuracy]}): becomes ", element("code", ", ".join(made)), *_at(nodes)


def _refused(refusals: Iterable[Refusal]) -> dict[tuple, list[str]]:
    kinds: dict[tuple, list[str]] = {}
    for refusal in refusals:
        kinds.setdefault((str(refusal.step), refusal.reason, refusal.advice), []).append(refusal.node)
    return kinds


def _refusal(kind: tuple, nodes: list[str]) -> Sequence[object]:
    step, reason, advice = kind
    return element("strong", step), f": {reason}", f" ({advice})" if advice else "", *_at(nodes)


def _at(nodes: list[str]) -> Sequence[object]:
    shown = element("code", ", ".join(nodes[:_MOST_NODES]))
    return "; at ", shown, f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""


def _runtime(fit: Fit) -> Html:
    rows = [(o.op or "the model", o.node, o.reason) for o in fit.objections]
    parts: list[object] = [element("p", line.strip()) for line in fit_lines(fit) if not line.startswith("  ")]
    if rows:
        parts.append(table(["operator", "node", "what it objects to"], rows))
    if fit.changes:
        changes = [
            element("li", change.op, ": ", *_change(kind, [change.node])) for kind, change in _first(fit.changes)
        ]
        parts.append(element("ul", *changes))
    if fit.refusals:
        parts.append(element("ul", *(element("li", str(refusal)) for refusal in fit.refusals)))
    parts.append(element("p", f"What it runs is known from: {fit.source}.", class_="muted"))
    return section(fit.runtime, *parts)


def _first(changes: Iterable[Change]) -> Iterable[tuple[tuple, Change]]:
    seen: dict[tuple, Change] = {}
    for change in changes:
        seen.setdefault((change.op, change.means, change.accuracy, change.nodes), change)
    return [(key[1:], change) for key, change in seen.items()]
