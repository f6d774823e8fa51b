"""Says beforehand what a conversion would do: the engine's dry run, over one opset or many."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from relu_tools import opening, schemas
from relu_tools.facts import Model, graphs_in
from relu_tools.report import Refusal, qualified

if TYPE_CHECKING:
    import onnx_ir

LOWEST = 7
"""The lowest opset of the default range: the oldest that current runtimes promise to run."""


@dataclasses.dataclass
class Cell:
    """What becomes of an operator's nodes at one opset: how many stay, are rewritten (by which means), are blocked."""

    kept: int = 0
    rewritten: int = 0
    means: tuple[str, ...] = ()
    blocked: list[Refusal] = dataclasses.field(default_factory=list)

    @property
    def status(self) -> str:
        return "blocked" if self.blocked else "rewritten" if self.rewritten else "as it is"


@dataclasses.dataclass
class Compatibility:
    """A row for each operator of the model, a cell for each opset. True where every opset can be reached.

    `opset` is the one that the model has; `counts` are the operators' nodes; an operator named "graph input" or
    "graph output" stands for the model's interface.
    """

    opset: int | None
    opsets: list[int]
    counts: dict[str, int]
    rows: dict[str, dict[int, Cell]]

    def __bool__(self) -> bool:
        return not any(self.refusals(opset) for opset in self.opsets)

    def refusals(self, opset: int) -> list[Refusal]:
        """All that stands in the way of an opset."""
        return [refusal for row in self.rows.values() if opset in row for refusal in row[opset].blocked]

    @property
    def reachable(self) -> list[int]:
        return [opset for opset in self.opsets if not self.refusals(opset)]

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries and lists, ready for `json.dumps`."""
        return {
            "opset": self.opset,
            "reachable": self.reachable,
            "operators": {
                op: {
                    "nodes": self.counts.get(op, 0),
                    "opsets": {
                        str(opset): {
                            "status": cell.status,
                            "kept": cell.kept,
                            "rewritten": cell.rewritten,
                            "means": list(cell.means),
                            "blocked": [{**dataclasses.asdict(r), "step": str(r.step)} for r in cell.blocked],
                        }
                        for opset, cell in row.items()
                    },
                }
                for op, row in self.rows.items()
            },
        }


def check(
    model: str | os.PathLike[str] | ModelProto | onnx_ir.Model, opsets: int | Iterable[int] | None = None
) -> Compatibility:
    """Tells for each opset, by default all from 7 on, what `convert` would keep, rewrite and refuse.

    Raises ModelFileError where the model cannot be read, ValueError where there is no such opset.
    """
    file, _ = opening.opened(model)
    imports = opening.imported(file.model)
    if opsets is None:
        opsets = range(LOWEST, schemas.newest() + 1)
    wanted = [opsets] if isinstance(opsets, int) else list(opsets)
    original = Model(file.model, imports, opening.reader(file))
    counts: Counter[str] = Counter()
    for top in (file.model.graph, *file.model.functions):
        for graph in graphs_in(top):
            counts.update(qualified(node.domain, node.op_type) for node in graph.node)
    rows: dict[str, dict[int, Cell]] = {op: {} for op in sorted(counts)}
    for opset in wanted:
        for op, cell in _column(original, opset, counts).items():
            rows.setdefault(op, {})[opset] = cell
    return Compatibility(imports.get(""), wanted, dict(counts), rows)


def _column(original: Model, opset: int, counts: Mapping[str, int]) -> dict[str, Cell]:
    engine = opening.engine_on(original, opening.targets_of(opset, original.opsets), None)
    column = {op: Cell(kept=count) for op, count in counts.items()}
    for change in engine.changes:
        cell = column[qualified(change.domain, change.op)]
        cell.kept -= 1
        cell.rewritten += 1
        cell.means = tuple(dict.fromkeys((*cell.means, *change.means)))
    for refusal in engine.refusals:
        cell = column.setdefault(qualified(refusal.step.domain, refusal.step.op), Cell())
        cell.blocked.append(refusal)
        cell.kept = max(0, cell.kept - 1)
    return column
