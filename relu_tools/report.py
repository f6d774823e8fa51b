"""What a conversion, an inlining or a check has to say: plain data, readable as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

BOUNDS = {"exact": (0, 0), "rounding": (16, 4), "body": (64, 8)}
"""How far a rewrite may be from the original, by its accuracy: in units in the last place of the element, or of the
output's typical element where that is larger; for types of 32 bits and more, and for the others."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step between neighbouring versions of an operator, or one of them; `None` is "does not exist yet"."""

    op: str
    source: int | None
    target: int | None
    domain: str = ""

    def __str__(self) -> str:
        name = qualified(self.domain, self.op)
        if self.source is None:
            return f"{name} (unknown to the schemas)"
        if self.source == self.target:
            return f"{name} {self.source}"
        return f"{name} {self.source} to {'before its birth' if self.target is None else self.target}"


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A node that cannot be brought to the target, why, and what its owner can do about it."""

    node: str
    step: Step
    reason: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {self.step}: {self.reason}" + (f" ({self.advice})" if self.advice else "")


@dataclasses.dataclass(frozen=True)
class Change:
    """A node that was rewritten.

    `means` says how each step was taken: "adapter", "default written out", "function body", "exact cast";
    `accuracy` is "exact", "rounding" (equal but for rounding) or "body" (equal by the specification's function body),
    which the verifier holds to `BOUNDS`;
    `nodes` are the operators that stand in its place, in order.
    """

    node: str
    op: str
    domain: str
    means: tuple[str, ...]
    accuracy: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        how = "; ".join([", ".join(self.means), self.accuracy])
        return f"{self.node}: {qualified(self.domain, self.op)} became {', '.join(self.nodes)} ({how})"


def added(changes: Sequence[Change]) -> dict[str, int]:
    """How many nodes of each operator rewrites add to a model, those left out that they take away; most first."""
    count: Counter[str] = Counter()
    for change in changes:
        count.update(op for op in change.nodes if op not in ("initializer", "nothing"))
        count[qualified(change.domain, change.op)] -= 1
    return {op: number for op, number in count.most_common() if number > 0}


@dataclasses.dataclass
class Report:
    """What became of a model.

    Versions are by domain ("" is ai.onnx); `kept` counts the nodes that came out as they went in;
    `unknown_domains` are passed through untouched; `no_longer_overridable` names initializers that are also
    graph inputs and whose value a rewrite has taken in; `notes` are sentences for the reader.
    """

    opsets_before: dict[str, int] = dataclasses.field(default_factory=dict)
    opsets_after: dict[str, int] = dataclasses.field(default_factory=dict)
    ir_before: int = 0
    ir_after: int = 0
    nodes_before: int = 0
    nodes_after: int = 0
    kept: int = 0
    changes: list[Change] = dataclasses.field(default_factory=list)
    inlined_functions: list[str] = dataclasses.field(default_factory=list)
    unknown_domains: list[str] = dataclasses.field(default_factory=list)
    no_longer_overridable: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    verification: Any = None
    timing: Any = None

    def groups(self) -> list[tuple[Change, int]]:
        """Changes of one kind together, each kind with its first node and how many there are."""
        first: dict[tuple, Change] = {}
        count: Counter = Counter()
        for change in self.changes:
            kind = (change.domain, change.op, change.means, change.accuracy, change.nodes)
            first.setdefault(kind, change)
            count[kind] += 1
        return [(first[kind], count[kind]) for kind in first]

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries and lists, ready for `json.dumps`."""
        fields = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("verification", "timing")
        }
        fields["changes"] = [
            {**dataclasses.asdict(change), "ulp_bound": list(BOUNDS[change.accuracy])} for change in self.changes
        ]
        fields["operators_added"] = added(self.changes)
        fields["timing"] = dataclasses.asdict(self.timing) if self.timing is not None else None
        fields["verification"] = self.verification.to_dict() if self.verification is not None else None
        return fields


TELL_TYPE = "give it in the model's value_info, or infer shapes first"
TELL_SHAPE = "give its shape in the model's value_info, or infer shapes first"
"""The way out where a rewrite must know more of a value than the model tells."""


class RefusedError(Exception):
    """One node cannot be brought to the target; the engine turns it into a `Refusal`."""

    def __init__(self, reason: str, advice: str = ""):
        super().__init__(reason)
        self.reason, self.advice = reason, advice


class ConversionError(Exception):
    """The model cannot be brought to the target; `refusals` holds every reason, `report` what was looked at."""

    def __init__(self, refusals: list[Refusal], headline: str = "the model cannot be converted"):
        super().__init__("\n  ".join([f"{headline}:", *map(str, refusals)]))
        self.refusals = refusals


class ModelFileError(Exception):
    """A file that cannot be read as a model, or cannot be written; one sentence."""


def did_you_mean(op: str, operators: Iterable[str]) -> str:
    """The end of a sentence about an operator that is not there: those of its name, in another case or domain."""
    name = op.rpartition("::")[2].lower()
    alike = sorted(other for other in set(operators) if other.rpartition("::")[2].lower() == name and other != op)
    return f"; did you mean {' or '.join(alike)}?" if alike else ""


def qualified(domain: str, op: str) -> str:
    """`Relu` for ai.onnx, `my.domain::Op` for any other."""
    return f"{domain}::{op}" if domain not in ("", "ai.onnx") else op
