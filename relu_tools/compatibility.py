"""Says beforehand what a conversion would do: the engine's dry run, over one opset or many, or for a runtime."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from relu_tools import external, opening, schemas, structure
from relu_tools.findings import Finding, findings
from relu_tools.legalize import Engine
from relu_tools.loading import Objection, objections
from relu_tools.model import Model
from relu_tools.report import Change, Refusal, added, qualified
from relu_tools.runtimes import Runtime, find

if TYPE_CHECKING:
    import onnx_ir

LOWEST = 7
"""The lowest opset of the default range: the oldest that current runtimes promise to run."""


@dataclasses.dataclass
class Cell:
    """What becomes of an operator's nodes at one opset: how many stay, which are rewritten, which are blocked."""

    kept: int = 0
    changes: list[Change] = dataclasses.field(default_factory=list)
    blocked: list[Refusal] = dataclasses.field(default_factory=list)

    @property
    def rewritten(self) -> int:
        return len(self.changes)

    @property
    def means(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(means for change in self.changes for means in change.means))

    @property
    def accuracies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.accuracy for change in self.changes))

    @property
    def status(self) -> str:
        return "blocked" if self.blocked else "rewritten" if self.changes else "as it is"


@dataclasses.dataclass
class Outcome:
    """What a conversion to one opset costs: IR version, number of nodes afterwards, and the operators that it adds."""

    opset: int | None
    ir_version: int
    nodes: int
    added: dict[str, int]


@dataclasses.dataclass
class Fit:
    """Whether a runtime loads the model: `objections` to it as it is, `refusals` of a conversion for it.

    `outcome` is that conversion's, None where it is refused; `changes` is what it would do. True where it can be had.
    Where `operators_known` is false, all that is known to fit are opsets and IR version.
    """

    runtime: str
    source: str
    objections: list[Objection]
    outcome: Outcome | None
    changes: list[Change]
    refusals: list[Refusal]
    operators_known: bool = True

    def __bool__(self) -> bool:
        return self.loads or self.outcome is not None

    @property
    def loads(self) -> bool:
        return not self.objections


@dataclasses.dataclass
class Compatibility:
    """A row for each operator of the model, a cell for each opset. True where all that was asked for can be reached.

    `opset` and `ir_version` are those that the model has; `counts` are the operators' nodes; an operator named
    "graph input" or "graph output" stands for the model's interface. `outcomes` are told for opsets that are reachable,
    `findings` are faults of the model as it stands.
    """

    opset: int | None
    ir_version: int
    opsets: list[int]
    counts: dict[str, int]
    rows: dict[str, dict[int, Cell]]
    outcomes: dict[int, Outcome]
    findings: list[Finding]
    fit: Fit | None = None

    def __bool__(self) -> bool:
        return len(self.reachable) == len(self.opsets) and (self.fit is None or bool(self.fit))

    def refusals(self, opset: int) -> list[Refusal]:
        """All that stands in the way of an opset."""
        return [refusal for row in self.rows.values() if opset in row for refusal in row[opset].blocked]

    @property
    def reachable(self) -> list[int]:
        return [opset for opset in self.opsets if not self.refusals(opset)]

    @property
    def next_down(self) -> int | None:
        """The next opset below the lowest that is reachable, which is blocked; None where nothing is below."""
        return max((opset for opset in self.opsets if opset < min(self.reachable, default=0)), default=None)

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries and lists, ready for `json.dumps`."""
        return {
            "opset": self.opset,
            "ir_version": self.ir_version,
            "reachable": self.reachable,
            "next_down": self.next_down,
            "outcomes": {str(opset): dataclasses.asdict(outcome) for opset, outcome in self.outcomes.items()},
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "runtime": _fit_as_dict(self.fit) if self.fit is not None else None,
            "operators": {
                op: {
                    "nodes": self.counts.get(op, 0),
                    "opsets": {str(opset): _cell_as_dict(cell) for opset, cell in row.items()},
                }
                for op, row in self.rows.items()
            },
        }


def _refusals_as_dicts(refusals: list[Refusal]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(refusal), "step": str(refusal.step)} for refusal in refusals]


def _cell_as_dict(cell: Cell) -> dict[str, Any]:
    return {
        "status": cell.status,
        "kept": cell.kept,
        "rewritten": cell.rewritten,
        "means": list(cell.means),
        "accuracies": list(cell.accuracies),
        "blocked": _refusals_as_dicts(cell.blocked),
    }


def _fit_as_dict(fit: Fit) -> dict[str, Any]:
    return {
        "name": fit.runtime,
        "source": fit.source,
        "loads": fit.loads,
        "operators_known": fit.operators_known,
        "objections": [dataclasses.asdict(objection) for objection in fit.objections],
        "conversion": dataclasses.asdict(fit.outcome) if fit.outcome is not None else None,
        "changes": [dataclasses.asdict(change) for change in fit.changes],
        "refusals": _refusals_as_dicts(fit.refusals),
    }


def check(
    model: str | os.PathLike[str] | ModelProto | onnx_ir.Model,
    opsets: int | Iterable[int] | None = None,
    *,
    runtime: str | os.PathLike[str] | Runtime | None = None,
) -> Compatibility:
    """Tells for each opset what `convert` would keep, rewrite and refuse, and whether a runtime loads the model.

    The opsets are by default all from 7 on, or none where a runtime is given: "onnxruntime==1.10", or a TOML file.
    Raises ModelFileError where the model cannot be read, ValueError where there is no such opset or runtime.
    """
    file, _ = opening.opened(model)
    imports = opening.imported(file.model)
    if runtime is not None:
        runtime = find(runtime)
    if opsets is None:
        opsets = range(LOWEST, schemas.newest() + 1) if runtime is None else ()
    original = Model(file.model, imports, opening.reader(file))
    unreadable = [text for text in [structure.check(file, imports, original.census)] if text]
    wanted: list[Any] = list(opsets) if isinstance(opsets, Iterable) else [opsets]
    targets = [opening.targets_of(opset, imports) for opset in wanted]
    counts: dict[str, int] = {}
    for (domain, op), count in original.census.counts.items():
        counts[qualified(domain, op)] = counts.get(qualified(domain, op), 0) + count
    rows: dict[str, dict[int, Cell]] = {op: {} for op in sorted(counts)}
    outcomes = {}
    for asked in targets:
        opset, engine = asked[""], opening.engine_on(original, asked, None)
        for op, cell in _column(engine, counts).items():
            rows.setdefault(op, {})[opset] = cell
        if not engine.refusals:
            outcomes[opset] = _outcome(engine)
    # Where the data of a model lies that is in memory, or came by a stream, is not known.
    unreadable += external.faults(file.model, file.base) if file.base is not None else []
    return Compatibility(
        opset=imports.get(""),
        ir_version=file.model.ir_version,
        opsets=[asked[""] for asked in targets],
        counts=counts,
        rows=rows,
        outcomes=outcomes,
        findings=[*(Finding("", "", text) for text in unreadable), *findings(original)],
        fit=_fit(original, runtime, unreadable) if runtime is not None else None,
    )


def _column(engine: Engine, counts: dict[str, int]) -> dict[str, Cell]:
    column = {op: Cell(kept=count) for op, count in counts.items()}
    for change in engine.changes:
        cell = column[qualified(change.domain, change.op)]
        cell.kept -= 1
        cell.changes.append(change)
    for refusal in engine.refusals:
        cell = column.setdefault(qualified(refusal.step.domain, refusal.step.op), Cell())
        cell.blocked.append(refusal)
        cell.kept = max(0, cell.kept - 1)
    return column


def _outcome(engine: Engine) -> Outcome:
    nodes = opening.count_nodes(engine.work)
    return Outcome(engine.targets.get(""), engine.ir_version, nodes, added(engine.changes))


def _fit(original: Model, runtime: Runtime, unreadable: list[str]) -> Fit:
    from relu_tools.fitting import engine_for

    found = [*(Objection("", "", text) for text in unreadable), *objections(original, runtime)]
    engine = engine_for(original, runtime) if found and not unreadable else None
    outcome = _outcome(engine) if engine is not None and not engine.refusals else None
    changes = engine.changes if engine is not None and outcome is not None else []
    refusals = engine.refusals if engine is not None else []
    return Fit(
        str(runtime), runtime.source, found, outcome, changes, refusals, operators_known=runtime.operators is not None
    )
