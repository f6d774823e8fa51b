"""Two forms of one computation, run and compared; this is what the child process does."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from . import inputs
from .compare import BIT_EXACT, DIFFERENT, NOT_VERIFIED, Bound, Figures, compare, typical_size, worst
from .feeding import drawn, elementwise
from .forms import Failed, Form, contradicts, load_form, misfit
from .locating import locate
from .randomness import give_seeds, random_operators, take_seeds, unlike
from .report import ModelFileError
from .runners import RUNNING, Reference
from .samples import SPECIAL, WIDE
from .trust import all_nodes, foreign_operator, rounding_nodes
from .wire import WireError

_SIDES = "before", "after"


def judge_job(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compare the two forms of a job (see `verify` and `verify_rewrites`); the answer is ready for JSON."""
    forms: list[Form] = []
    attributes: dict[str, onnx.AttributeProto] = {}
    for side in _SIDES:
        try:
            forms.append(load_form(folder / job[side], attributes))
        except (WireError, OSError, ModelFileError) as error:
            return {"unreadable": f"{job[side]} cannot be read as a model: {error}"}
    before, after = forms
    if "parting" in job:
        return _located(before, after, job["parting"], folder)
    unfit = misfit(before, after)
    if unfit:
        return _answer(*unfit)
    if set(before.outputs) == set(after.outputs):
        after.outputs = list(before.outputs)
    random = [random_operators(all_nodes(form.model)) for form in forms]
    if any(random) and (before.path or after.path):
        return _answer(NOT_VERIFIED, f"{_first_random(random)}, and a model with weights in files is given no seeds")
    for nodes in random:
        give_seeds(nodes)
    if before.misread or after.misread:
        # Of one judge both forms have the same rounding.
        before.ask_reference_alone()
        after.ask_reference_alone()
    runs = _Runs(before, after, job, folder / RUNNING)
    runs.afresh = any(random)
    for alike in (False, True):
        for what, feeds in _feeds(job, before, after, alike):
            runs.one(what, feeds)
            if runs.over() or not (runs.count or alike):
                break
        if runs.count or runs.reason:
            break
    runs.running.unlink(missing_ok=True)
    answer = runs.answer()
    if any(random) and answer["verdict"] == DIFFERENT and runs.parting:
        answer |= _by_distribution(before, after, runs, _first_random(random))
    if job.get("locate") and answer["verdict"] == DIFFERENT and runs.parting:
        what, feeds, other = runs.parting
        values = dict(zip(_SIDES, (feeds, other), strict=True))
        sides = {side: inputs.save(values[side], folder / f"parting.{side}") for side in _SIDES}
        answer["parting"] = {"what": what, "bound": dataclasses.astuple(runs.bound), **sides}
    return answer


def _first_random(random: list[list[onnx.NodeProto]]) -> str:
    return next(f"{node.op_type} draws random numbers" for nodes in random for node in nodes)


def _by_distribution(before: Form, after: Form, runs: _Runs, draws: str) -> dict[str, Any]:
    """Another verdict on forms that give different values with the same seeds, if they do so by chance alone."""
    _, feeds, other = runs.parting

    def drawing(form: Form, values: Mapping[str, Any], seed: int) -> list[Any]:
        model = onnx.ModelProto()
        model.CopyFrom(form.model)
        nodes = random_operators(all_nodes(model))
        take_seeds(nodes)
        give_seeds(nodes, seed)
        return dataclasses.replace(form, model=model).run(values, runs.judges[0] == Reference.name)[1]

    try:
        why = unlike(lambda seed: drawing(before, feeds, seed), lambda seed: drawing(after, other, seed), runs.deadline)
    except Failed:
        return {}
    if why is None:
        return {}
    if why:
        return {"reason": f"{runs.reason}; {draws}, and {why}"}
    alike = "no difference of their distributions was found, which is no proof"
    return {"verdict": NOT_VERIFIED, "reason": f"{draws}, others with the same seeds; {alike}"}


def _located(before: Form, after: Form, parting: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The answer to a second job, where a first one has found inputs on which the forms part."""
    feeds, other = ({name: inputs.load(path) for name, path in parting[side].items()} for side in _SIDES)
    try:
        located = locate(before, after, parting["what"], feeds, other, Bound(*parting["bound"]), folder)
    except Failed as failure:
        return {"error": f"the values on the way cannot be had: {failure}"}
    if located is None:
        return {"error": "no value on the way has a name in both forms and differs"}
    return {"located": dataclasses.asdict(located)}


def _wild(what: str) -> bool:
    """Inputs on which two implementations of one formula may give a NaN or an infinity at different places."""
    return what in (SPECIAL, WIDE) or what.startswith("a single")


# Of both forms and of what they give, for a second judge, which is slow.
_MOST_NODES, _MOST_ELEMENTS = 200, 1 << 14


# Roundings of elements by themselves, of both forms, that are held to no more than a rewrite of one operator.
_FEW_ROUNDINGS = 4


def _bound_of_models(before: onnx.ModelProto, after: onnx.ModelProto, bound: Bound) -> Bound:
    """`bound`, or a narrower one where the operators of both leave less room."""
    most = max(rounding_nodes(before), rounding_nodes(after))
    if most == 0:
        return Bound.of("exact")
    return Bound.of("rounding") if most <= _FEW_ROUNDINGS and elementwise(before) and elementwise(after) else bound


# How often inputs are moved by a bit, and how many roots of a precision cancelling may leave of them.
_NUDGES, _CANCELLED = 4, 16


def _farthest(a: np.ndarray, b: np.ndarray) -> float:
    """The greatest distance of elements; infinite where shapes differ or a value is not finite."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0))


class _Runs:
    """Both forms on one set of inputs after the other, and what they showed so far."""

    def __init__(self, before: Form, after: Form, job: dict[str, Any], running: Path):
        self.before, self.after = before, after
        self.running, self.deaths = running, job.get("deaths", ())
        self.names = job.get("names") or before.outputs
        self.accuracy = job["accuracy"]
        nodes = max(len(before.model.graph.node), len(after.model.graph.node))
        self.bound = Bound.of(self.accuracy, nodes)
        if self.accuracy == "model":
            self.bound = _bound_of_models(before.model, after.model, self.bound)
        self.between_judges = Bound.of(self.accuracy if self.accuracy != "exact" else "judges", nodes)
        self.figures = {name: Figures(name) for name in self.names}
        self.typical: list[float] = []
        self.judges = ("", "")
        self.number = self.count = 0
        self.reason = ""
        self.disagreement = ""
        self.contested = False
        self.foreign = foreign_operator(before.model)
        self.untold = ""
        self.checked: set[str] = set()
        self.failures: list[str] = []
        self.drawn: dict[tuple[str, tuple[str, ...]], int] = {}
        self.parting: tuple[Any, ...] = ()
        self.afresh = False
        self.size = nodes
        self.elementwise = elementwise(before.model) and elementwise(after.model)
        self.deadline = time.monotonic() + job["seconds"]
        self.halfway = time.monotonic() + job["seconds"] / 2

    def over(self) -> bool:
        return bool(self.reason) or (self.count > 1 and time.monotonic() > self.deadline)

    def one(self, what: str, feeds: Mapping[str, Any]) -> None:
        for form in (self.before, self.after) if self.afresh else ():
            form.made.clear()  # a judge that has run before goes on with the random numbers that follow
        self.number += 1
        if contradicts(self.before.model, feeds):
            self.failures.append(f"the types that the form before declares do not allow {what}")
            return
        if [self.number, "before"] in self.deaths:
            self.failures.append(f"the form before kills the process that runs it on {what}")
            return
        try:
            self.running.write_text(json.dumps([self.number, "before"]))
            judge, wanted = self.before.run(feeds)
        except Failed as failure:
            self.failures.append(f"the form before fails on {what}: {failure}")
            return
        other = dict(feeds)
        if self.before.inputs.keys() != self.after.inputs.keys():
            other |= {b: feeds[a] for a, b in zip(self.before.inputs, self.after.inputs, strict=True) if a in feeds}
        if [self.number, "after"] in self.deaths:
            self.reason = f"on {what} the form after kills the process that runs it, and the one before does not"
            return
        try:
            self.running.write_text(json.dumps([self.number, "after"]))
            other_judge, got = self.after.run(other)
        except Failed as failure:
            if str(failure) and self.before.rejected:
                self.failures.append(f"both forms fail on {what}, though not by every judge: {failure}")
            elif str(failure):
                self.reason = f"on {what} the form after fails where the one before gives a result: {failure}"
            else:
                self.failures.append(f"no judge can run the form after: {'; '.join(self.after.refusals)}")
            return
        if self.afresh and judge != other_judge:
            try:
                judge, wanted = self.before.run(feeds, reference_only=True)
                other_judge, got = self.after.run(other, reference_only=True)
            except Failed:
                self.failures.append("no judge draws random numbers for both forms")
                return
        self.count += 1
        key = what, tuple(inputs.described(feeds.get(name)) for name in self.before.inputs)
        self.drawn[key] = self.drawn.get(key, 0) + 1
        self.judges = (judge, other_judge)
        self.typical = self.typical or [typical_size(value) for value in wanted]
        figures = self._compare(wanted, got, self.bound if judge == other_judge else self.between_judges)
        if judge != other_judge or any(f.verdict == DIFFERENT for f in figures):
            figures = self._second_opinion(what, feeds, other, (wanted, got), figures)
        elif self._worth_checking(what, [*wanted, *got]):
            self._cross_check(what, feeds, other)
        for one in figures:
            self.figures[one.name].add(one)
            if one.verdict == DIFFERENT:
                self.reason = self.reason or f"{one.name} differs on {what}: {one.problem}"
                self.parting = self.parting or (what, feeds, other)

    def _compare(self, wanted: list[Any], got: list[Any], bound: Bound) -> list[Figures]:
        values = zip(self.names, wanted, got, self.typical, strict=True)
        return [compare(name, a, b, bound, typical) for name, a, b, typical in values]

    def _second_opinion(
        self,
        what: str,
        feeds: Mapping[str, Any],
        other: Mapping[str, Any],
        results: tuple[list[Any], list[Any]],
        figures: list[Figures],
    ) -> list[Figures]:
        """The reference on both sides: it settles what is only noise between two judges, and sees disagreement."""
        try:
            judge, wanted = self.before.run(feeds, reference_only=True)
            other_judge, got = self.after.run(other, reference_only=True)
        except Failed:
            if self.judges[0] != self.judges[1] and _wild(what):
                self._find(what, figures, "and no judge can run both forms")
            elif self.foreign and (_wild(what) or self._cancels(feeds, *results)):
                return self._untold(what, figures)
            return figures
        again = self._compare(wanted, got, self.bound)
        if all(f.verdict != DIFFERENT for f in figures):
            self.judges = (judge, other_judge)
            return again
        if all(f.verdict == BIT_EXACT for f in again):
            # The runtime's own rounding, which may depend on how the data lie, is no error of the rewrite.
            lenient = self._compare(*results, self.between_judges)
            if all(f.verdict != DIFFERENT for f in lenient):
                return lenient
        if all(f.verdict != DIFFERENT for f in again):
            if self.judges[0] != self.judges[1] and _wild(what):
                # Two implementations of one formula may overflow at different places on the way.
                return again
            self._find(what, figures, "where the reference evaluator alone finds none")
        return figures

    def _cancels(self, feeds: Mapping[str, Any], wanted: list[Any], got: list[Any]) -> bool:
        """Whether what the form before gives moves as far as both differ where its inputs move by their last bits.

        So it is where large numbers cancel; beyond the root of the type's precision it is no cancelling.
        """
        floats = {name: x for name, x in feeds.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size}
        if not floats or any(not isinstance(x, np.ndarray) or x.dtype.kind != "f" for x in (*wanted, *got)):
            return False
        size = max(float(np.abs(x).max()) for x in floats.values())
        apart = [_farthest(a, b) for a, b in zip(wanted, got, strict=True)]
        least = max(float(np.finfo(x.dtype).eps) for x in wanted) ** 0.5
        if not max(apart) <= _CANCELLED * least * size:
            return False
        random, moved = np.random.default_rng(0), [0.0] * len(wanted)
        for _ in range(_NUDGES):
            ways = {name: np.where(random.random(x.shape) < 0.5, -np.inf, np.inf) for name, x in floats.items()}
            nudged = {name: np.nextafter(x, ways[name].astype(x.dtype)) for name, x in floats.items()}
            try:
                _, results = self.before.run({**feeds, **nudged})
            except Failed:
                return False
            moved = [max(m, _farthest(a, b)) for m, a, b in zip(moved, wanted, results, strict=True)]
        return all(a <= m for a, m in zip(apart, moved, strict=True))

    def _untold(self, what: str, figures: list[Figures]) -> list[Figures]:
        """Notes a difference on inputs for which nothing but a kernel says what its operator gives; others go on."""
        problem = next((f.problem for f in figures if f.problem), "")
        if not problem:
            return figures
        self.untold = self.untold or (
            f"on {what} there is a difference ({problem}), and what {self.foreign} gives there its kernel alone tells"
        )
        return []

    def _worth_checking(self, what: str, results: list[Any]) -> bool:
        """Whether the other judge can have a word on these inputs too, for little: once for inputs of each kind."""
        two = len(self.before.makers) > 1 and len(self.after.makers) > 1
        if not two or what in self.checked or self.size > _MOST_NODES or time.monotonic() > self.halfway:
            return False
        if not self.elementwise and _wild(what):
            return False
        self.checked.add(what)
        return sum(np.size(value) for value in results if isinstance(value, np.ndarray)) <= _MOST_ELEMENTS

    def _cross_check(self, what: str, feeds: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        """Of two judges one that finds a difference is enough for no pass."""
        try:
            _, wanted = self.before.run(feeds, reference_only=True)
            _, got = self.after.run(other, reference_only=True)
        except Failed:
            self.halfway = 0.0
            return
        problem = next((f.problem for f in self._compare(wanted, got, self.between_judges) if f.problem), "")
        if problem and not self.disagreement:
            self.disagreement = (
                f"the judges disagree: on {what} the reference evaluator finds a difference ({problem}) "
                f"where {self.judges[0]} finds none"
            )
            self.contested = True

    def _find(self, what: str, figures: list[Figures], but: str) -> None:
        problem = next((f.problem for f in figures if f.problem), "")
        if problem and not self.disagreement:
            by = " and ".join(dict.fromkeys(self.judges))
            self.disagreement = f"the judges disagree: on {what} {by} find a difference ({problem}) {but}"

    def answer(self) -> dict[str, Any]:
        """What `Verification` holds, as JSON knows it."""
        drawn = [{"what": what, "inputs": types, "sets": sets} for (what, types), sets in self.drawn.items()]
        return {**self._verdict(), "names": list(self.before.inputs), "drawn": drawn}

    def _verdict(self) -> dict[str, Any]:
        figures = list(self.figures.values())
        if self.disagreement:
            # With one judge for both forms its word stands; of two, one may be at fault instead of the rewrite.
            one = self.judges[0] == self.judges[1] and not self.contested
            verdict = DIFFERENT if one else NOT_VERIFIED
            return _answer(verdict, self.disagreement, figures, self.judges, self.count)
        if self.reason:
            return _answer(DIFFERENT, self.reason, figures, self.judges, self.count)
        if self.untold:
            return _answer(NOT_VERIFIED, self.untold, figures, self.judges, self.count)
        if not self.count:
            if self.foreign and self.before.refusals and not self.before.rejected:
                return _answer(NOT_VERIFIED, f"no judge can run {self.foreign}")
            reasons = [*self.failures[:1], *self.before.refusals, *self.after.refusals]
            return _answer(NOT_VERIFIED, "; ".join(dict.fromkeys(filter(None, reasons))) or "nothing to run")
        verdict = worst(BIT_EXACT, *(f.verdict for f in figures))
        return _answer(verdict, "", figures, self.judges, self.count)


def _answer(
    verdict: str,
    reason: str,
    figures: Sequence[Figures] = (),
    judges: tuple[str, str] = ("", ""),
    runs: int = 0,
) -> dict[str, Any]:
    fields = [dataclasses.asdict(f) for f in figures]
    for field in fields:
        for key in ("max_abs", "max_rel"):
            field[key] = float(min(field[key], np.finfo(np.float64).max))
    return {"verdict": verdict, "reason": reason, "figures": fields, "judges": judges, "runs": runs}


# Inputs


def _feeds(job: dict[str, Any], before: Form, after: Form, alike: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """`alike` makes a second attempt, where the form before fails on the first set."""
    if "inputs" in job:
        for number, paths in enumerate(job["inputs"]):
            yield f"the given inputs {number}", {name: inputs.load(path) for name, path in paths.items()}
        return
    for draw in drawn(before.model, after.model, before.inputs, job["seed"], job["accuracy"] == "exact", alike):
        yield draw.what, draw.feeds
