"""What a conversion, an inlining or a verification showed, as a page for the browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from relu_tools import drawing, plot, present
from relu_tools.compare import Figures
from relu_tools.drawing import draw
from relu_tools.graphs import free_names
from relu_tools.inputs import described_type
from relu_tools.locating import common_values
from relu_tools.page import Html, badge, details, element, escape, facts, join, page, scroll, section, table
from relu_tools.report import BOUNDS, Change, ConversionError, Report, qualified
from relu_tools.verification import Drawn, Verification

if TYPE_CHECKING:
    from relu_tools.lowering import Rewritten

_KINDS = {"bit-exact": "good", "within rounding": "good", "different": "bad", "not verified": "warn"}
_MEANING = {
    "bit-exact": "Both forms gave the same values, bit by bit.",
    "within rounding": "Both forms gave the same values but for rounding.",
    "different": "The two forms do not compute the same.",
    "not verified": "This could not be verified, so it is not known to be equal.",
}
_ACCURACY = {
    "exact": "claimed to be exact",
    "rounding": "claimed to be equal but for rounding, by at most {} ULP of a type of 32 bits",
    "body": "equal by definition; may round on the way, by at most {} ULP of a type of 32 bits",
}
_FEW, _OPEN = 12, 6
_STYLE = (
    drawing.STYLE
    + plot.STYLE
    + """
.forms { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; margin: 0.6rem 0; }
.forms figure { margin: 0; min-width: 0; max-width: 100%; }
figcaption { color: var(--muted); font-size: 0.92rem; margin-bottom: 0.3rem; overflow-wrap: anywhere; }
figure { margin: 0.8rem 0; }
"""
)


def verified(names: tuple[str, str], models: tuple[onnx.ModelProto, onnx.ModelProto], found: Verification) -> str:
    """The page of two whole models that were run; the models may lack their weights."""
    before, after = models
    lead = _verdict(dataclasses.replace(found, reason=present.of_a_and_b(found.reason)))
    body: list[object] = [lead, facts([("A", names[0]), ("B", names[1]), *_how(found)]), *_outputs(found)]
    if found.located:
        value = found.located.value
        shared = set(common_values(before.graph, after.graph))
        forms = [_Form.around(model.graph, value, shared, name) for model, name in zip(models, names, strict=True)]
        body.append(section("Where they part", element("p", f"First, {found.located}."), _forms(forms)))
    if max(len(model.graph.node) for model in models) <= drawing.MOST_NODES:
        forms = [_Form.whole(model.graph, name) for model, name in zip(models, names, strict=True)]
        body.append(section("The models", _forms(forms)))
    body.append(_inputs(found))
    return page(" and ".join(map(_short, names)), *body, style=_STYLE)


def transformed(
    report: Report, source: str, target: str, how: str, rewritten: Sequence[Rewritten], written: bool
) -> str:
    """The page of a conversion or an inlining that came to an end, `written` or not; `how` it was verified."""
    found = report.verification
    body: list[object] = []
    if found is None:
        body.append(element("p", badge("not verified", "warn"), " ", _sentence(present.unverified(report, how))))
    else:
        body.append(_verdict(found))
    if not written:
        body.append(element("p", element("strong", "Nothing was written.")))
    rows = [("from", source), ("to" if written else "to be", target), *present.what_was_done(report)]
    body.append(facts([*rows, *(_how(found) if found else ())]))
    parts = dict(found.parts) if found is not None else {}
    if report.changes:
        groups = report.groups()
        by_kind = [_kind(change, count, report, rewritten, parts, len(groups) <= _OPEN) for change, count in groups]
        body.append(section("Rewrites", *by_kind))
    if found is not None and not found.parts:
        body += [*_outputs(found), _inputs(found)]
    return page(f"{_short(source)} → {_short(target)}", *body, style=_STYLE)


def refused(error: ConversionError, source: str) -> str:
    """The page of a model that cannot be converted."""
    rows = [
        (refusal.node, str(refusal.step), refusal.reason, refusal.advice or "none is known")
        for refusal in error.refusals
    ]
    count = len(rows)
    lead = element(
        "p", badge("refused", "bad"), f" Nothing was written: {count} refusal{'s' * (count > 1)}.", class_="lead"
    )
    listed = section("Refusals", table(["node", "step", "reason", "way out"], rows))
    return page(f"{_short(source)} cannot be converted", lead, listed)


# --- verdict, judges, figures -------------------------------------------------------------------
def _verdict(found: Verification) -> Html:
    lead = element("p", badge(found.verdict, _KINDS[found.verdict]), " ", _MEANING[found.verdict], class_="lead")
    return join(lead, element("p", _sentence(found.reason))) if found.reason else lead


def _short(file: str) -> str:
    return Path(file).name if file != "-" else "standard input or output"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _how(found: Verification) -> list[tuple[object, object]]:
    judges = _judges([part for _, part in found.parts] or [found])
    rows: list[tuple[object, object]] = [("judged by", judges)] if judges else []
    return [*rows, ("inputs", f"{_sets(found.runs)}, {_by(found.seed)}")]


def _by(seed: int | None) -> str:
    return "given" if seed is None else f"seed {seed}"


def _sets(count: int) -> str:
    return f"{count} set{'s' * (count != 1)}"


def _judges(parts: Iterable[Verification]) -> str:
    pairs = dict.fromkeys(part.judges for part in parts if part.judges[0])
    return "; ".join(one if one == other else f"{one} (before), {other} (after)" for one, other in pairs)


def _outputs(found: Verification) -> list[Html]:
    if not found.figures:
        return []
    return [section("Outputs", _figures(found.figures), *map(_plot, found.figures))]


def _figures(figures: Sequence[Figures]) -> Html:
    rows = [
        (
            figure.name,
            badge(figure.verdict, _KINDS[figure.verdict]),
            float(figure.max_abs),
            float(figure.max_rel),
            figure.max_ulp,
            figure.place.removeprefix("at ") or "–",
            f"{figure.differing} of {figure.elements}",
        )
        for figure in figures
    ]
    titles = ["output", "verdict", "absolute", "relative", "ULP", "greatest at", "elements that differ"]
    return table(titles, rows, "greatest differences of each output")


def _plot(figure: Figures) -> Html:
    apart = sum(figure.histogram[1:])
    said = [f"{pattern}: {count}" for pattern, count in figure.nonfinite.items()]
    if not apart and not said:
        return Html("")
    patterns = element("p", f"{figure.name} – {'; '.join(said)}.", class_="muted") if said else ""
    if not apart:
        return escape(patterns)
    label = f"How far apart the elements of {figure.name} are, in ULP"
    drawn = scroll(plot.histogram(figure.histogram, label), label)
    caption = element("figcaption", f"{label}; bars on a logarithmic scale")
    return join(element("figure", caption, drawn, class_="together"), patterns)


def _inputs(found: Verification) -> Html:
    if not found.drawn:
        return Html("")
    return section("Inputs", _drawn(found.drawn, found.seed))


def _drawn(drawn: Sequence[Drawn], seed: int | None) -> Html:
    names = list(drawn[0].inputs)
    rows = [(entry.what, entry.sets, *entry.inputs.values()) for entry in drawn]
    note = element("p", f"Seed {seed} draws the same ones again.", class_="muted") if seed is not None else ""
    return join(table(["values", "sets", *names], rows, "inputs that were run"), note)


# --- rewrites -----------------------------------------------------------------------------------
def _kind(
    change: Change,
    count: int,
    report: Report,
    rewritten: Sequence[Rewritten],
    parts: Mapping[str, Verification],
    open_: bool,
) -> Html:
    """Rewrites that are alike: the first one drawn, and what was found on all of them."""
    alike = [other for other in report.changes if _key(other) == _key(change)]
    found = [parts[other.node] for other in alike if other.node in parts]
    worst = min((part.verdict for part in found), key=list(_KINDS)[::-1].index, default=None)
    title = element("strong", f"{count} × {qualified(change.domain, change.op)}")
    verdict = badge(worst, _KINDS[worst]) if worst else badge("not run", "warn")
    summary = join(title, f" became {present.counted(change.nodes)} ", verdict)
    claim = _ACCURACY[change.accuracy].format(BOUNDS[change.accuracy][0])
    body: list[object] = [element("p", f"By {', '.join(change.means)}; {claim}.", class_="muted")]
    first = next((entry for entry in rewritten if entry.change == change), None)
    if first is not None:
        body.append(_forms(_Form.of(first)))
    for reason in dict.fromkeys(part.reason for part in found if part.reason):
        body.append(element("p", _sentence(reason)))
    figures = _merged(found)
    if figures:
        body += [_figures(figures), *map(_plot, figures)]
    if judges := _judges(found):
        runs = sum(part.runs for part in found)
        body.append(element("p", f"Judged by {judges} on {_sets(runs)} of inputs.", class_="muted"))
    nodes = [other.node for other in alike]
    more = f" and {len(nodes) - _FEW} more" if len(nodes) > _FEW else ""
    body.append(element("p", "At ", element("code", ", ".join(nodes[:_FEW])), more, "."))
    shown = next((part for part in found if part.drawn), None)
    if shown is not None:
        body.append(details("Inputs of the first one", _drawn(shown.drawn, shown.seed)))
    return details(summary, *body, open_=open_ or worst in ("different", "not verified"))


def _key(change: Change) -> tuple[Any, ...]:
    return change.domain, change.op, change.means, change.accuracy, change.nodes


def _merged(found: Sequence[Verification]) -> list[Figures]:
    """The worst of each output over several rewrites, by its position; the first one's names."""
    merged: list[Figures] = []
    for part in found:
        for i, figures in enumerate(part.figures):
            if i == len(merged):
                merged.append(Figures(figures.name))
            merged[i].add(figures)
    return merged


# --- the two forms as drawings --------------------------------------------------------------------
@dataclasses.dataclass
class _Form:
    """Nodes to draw, under a caption."""

    caption: str
    nodes: Sequence[onnx.NodeProto]
    outputs: Sequence[str]
    types: Mapping[str, str]
    constants: Mapping[str, onnx.TensorProto]

    @classmethod
    def of(cls, rewritten: Rewritten) -> list[_Form]:
        scope = rewritten.scope
        names = {*free_names([rewritten.before]), *free_names(rewritten.after), *rewritten.before.output}
        types = {name: described_type(type_) for name in names if name and (type_ := scope.type(name))}
        constants = {name: tensor for name in names if name and (tensor := scope.constant(name, _FEW)) is not None}
        constants |= {tensor.name: tensor for tensor in rewritten.initializers}
        outputs = [name for name in rewritten.before.output if name]
        sides = (("before", [rewritten.before]), ("after", rewritten.after))
        return [cls(caption, nodes, outputs, types, constants) for caption, nodes in sides]

    @classmethod
    def whole(cls, graph: onnx.GraphProto, caption: str) -> _Form:
        constants = {tensor.name: tensor for tensor in graph.initializer}
        return cls(caption, graph.node, [output.name for output in graph.output], _types(graph), constants)

    @classmethod
    def around(cls, graph: onnx.GraphProto, value: str, shared: set[str], caption: str) -> _Form:
        """What makes a value out of values that both models have."""
        makers = {name: node for node in graph.node for name in node.output}
        wanted, waiting = [makers[value]], [makers[value]]
        while waiting:
            for name in free_names([waiting.pop()]):
                node = makers.get(name)
                if node is not None and name not in shared and node not in wanted:
                    wanted.append(node)
                    waiting.append(node)
        constants = {tensor.name: tensor for tensor in graph.initializer}
        return cls(caption, [node for node in graph.node if node in wanted], [value], _types(graph), constants)


def _types(graph: onnx.GraphProto) -> dict[str, str]:
    values = [*graph.value_info, *graph.input, *graph.output]
    return {value.name: described_type(value.type) for value in values}


def _forms(forms: Sequence[_Form]) -> Html:
    def figure(form: _Form) -> Html:
        drawn = draw(form.nodes, outputs=form.outputs, types=form.types, constants=form.constants, label=form.caption)
        return element("figure", element("figcaption", form.caption), scroll(drawn, form.caption))

    return element("div", *map(figure, forms), class_="forms")
