"""Two forms of one computation, run and compared; this is what the child process does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from .attribute_values import undefined_values
from .compare import BIT_EXACT, DIFFERENT, NOT_VERIFIED, Bound, Figures, compare, typical_size, worst
from .runners import CannotRun, default_opset, judges, opset_of
from .samples import SPECIAL, WIDE, draws, find_uses


@dataclasses.dataclass
class _Form:
    """One side: its model without external weights, its file if there are any, and the judges left to it."""

    model: onnx.ModelProto
    path: str | None
    inputs: dict[str, onnx.TypeProto]
    outputs: list[str]
    invalid: str = ""
    refusals: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.makers = list(judges(self.model, self.path))
        self.made: dict[int, Any] = {}

    def judge(self, number: int) -> Any:
        """The judge of that number, made once; None where it cannot run the model."""
        if number not in self.made:
            try:
                self.made[number] = self.makers[number]()
            except CannotRun as error:
                self.made[number] = None
                self.refusals.append(str(error))
            except MemoryError:
                raise
            except Exception as error:
                self.made[number] = None
                self.refusals.append(f"{type(error).__name__}: {error}")
        return self.made[number]

    def run(self, feeds: Mapping[str, Any], reference_only: bool = False) -> tuple[str, list[Any]]:
        """The judge's name and the outputs in order. Raises `_Failed` where no judge gives a result."""
        errors = []
        for number in range(len(self.makers) - 1 if reference_only else 0, len(self.makers)):
            judge = self.judge(number)
            if judge is None:
                continue
            try:
                results = judge.run(feeds)
            except CannotRun as error:
                self.made[number] = None
                self.refusals.append(str(error))
                continue
            except MemoryError:
                raise
            except Exception as error:
                errors.append(f"{judge.name}: {' '.join(str(error).split())[:300]}")
                continue
            return judge.name, [results[name] for name in self.outputs]
        raise _Failed(errors[0] if errors else "")


class _Failed(Exception):
    """No judge gave a result; empty if none could even try."""


def judge_job(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compare the two forms of a job (see `verify` and `verify_rewrites`); the answer is ready for JSON."""
    forms = []
    for side in ("before", "after"):
        try:
            forms.append(_form(folder / job[side]))
        except (DecodeError, OSError) as error:
            return {"unreadable": f"{job[side]} cannot be read as a model: {error}"}
    before, after = forms
    misfit = _misfit(before, after)
    if misfit:
        return _answer(*misfit)
    if set(before.outputs) == set(after.outputs):
        after.outputs = list(before.outputs)
    runs = _Runs(before, after, job)
    for what, feeds in _feeds(job, before, after):
        runs.one(what, feeds)
        if runs.over():
            break
    return runs.answer()


class _Runs:
    """Both forms on one set of inputs after the other, and what they showed so far."""

    def __init__(self, before: _Form, after: _Form, job: dict[str, Any]):
        self.before, self.after = before, after
        self.names = job.get("names") or before.outputs
        self.accuracy = job["accuracy"]
        nodes = max(len(before.model.graph.node), len(after.model.graph.node))
        self.bound = Bound.of(self.accuracy, nodes)
        self.between_judges = Bound.of(self.accuracy if self.accuracy != "exact" else "judges", nodes)
        self.figures = {name: Figures(name) for name in self.names}
        self.typical: list[float] = []
        self.judges = ("", "")
        self.count = 0
        self.reason = ""
        self.disagreement = ""
        self.failures: list[str] = []
        self.deadline = time.monotonic() + job["seconds"]

    def over(self) -> bool:
        return bool(self.reason) or (self.count > 1 and time.monotonic() > self.deadline)

    def one(self, what: str, feeds: Mapping[str, Any]) -> None:
        if _contradicts(self.before.model, feeds):
            self.failures.append(f"the types that the form before declares do not allow {what}")
            return
        try:
            judge, wanted = self.before.run(feeds)
        except _Failed as failure:
            self.failures.append(f"the form before fails on {what}: {failure}")
            return
        other = dict(feeds)
        if self.before.inputs.keys() != self.after.inputs.keys():
            other |= {b: feeds[a] for a, b in zip(self.before.inputs, self.after.inputs, strict=True) if a in feeds}
        try:
            other_judge, got = self.after.run(other)
        except _Failed as failure:
            if str(failure):
                self.reason = f"on {what} the form after fails where the one before gives a result: {failure}"
            else:
                self.failures.append(f"no judge can run the form after: {'; '.join(self.after.refusals)}")
            return
        self.count += 1
        self.judges = (judge, other_judge)
        self.typical = self.typical or [typical_size(value) for value in wanted]
        figures = self._compare(wanted, got, self.bound if judge == other_judge else self.between_judges)
        if judge != other_judge or any(f.verdict == DIFFERENT for f in figures):
            figures = self._second_opinion(what, feeds, other, (wanted, got), figures)
        for one in figures:
            self.figures[one.name].add(one)
            if one.verdict == DIFFERENT:
                self.reason = self.reason or f"{one.name} differs on {what}: {one.problem}"

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
        except _Failed:
            if self.judges[0] != self.judges[1] and what in (SPECIAL, WIDE):
                self._find(what, figures, "and no judge can run both forms")
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
            if self.judges[0] != self.judges[1] and what in (SPECIAL, WIDE):
                # Two implementations of one formula may overflow at different places on the way.
                return again
            self._find(what, figures, "where the reference evaluator alone finds none")
        return figures

    def _find(self, what: str, figures: list[Figures], but: str) -> None:
        problem = next((f.problem for f in figures if f.problem), "")
        if problem and not self.disagreement:
            by = " and ".join(dict.fromkeys(self.judges))
            self.disagreement = f"the judges disagree: on {what} {by} find a difference ({problem}) {but}"

    def answer(self) -> dict[str, Any]:
        figures = list(self.figures.values())
        if self.disagreement:
            # With one judge for both forms its word stands; of two, one may be at fault instead of the rewrite.
            verdict = DIFFERENT if self.judges[0] == self.judges[1] else NOT_VERIFIED
            return _answer(verdict, self.disagreement, figures, self.judges, self.count)
        if self.reason:
            return _answer(DIFFERENT, self.reason, figures, self.judges, self.count)
        if not self.count:
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


def _form(path: Path) -> _Form:
    model = onnx.load(path, load_external_data=False)
    if not model.HasField("graph"):
        raise DecodeError("it holds no graph")
    external = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    by_path = external or path.stat().st_size > 1 << 30
    own = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    inputs = {v.name: v.type for v in model.graph.input if v.name not in own}
    form = _Form(model, str(path) if by_path else None, inputs, [v.name for v in model.graph.output])
    try:
        if by_path:
            onnx.checker.check_model(str(path), full_check=True)
        else:
            _check(model)
        scopes = [(model.graph.node, model.opset_import), *((f.node, f.opset_import) for f in model.functions)]
        form.invalid = next(filter(None, (undefined_values(nodes, opset_of(imports)) for nodes, imports in scopes)), "")
    except MemoryError:
        raise
    except Exception as error:
        form.invalid = " ".join(str(error).split())[:300]
    return form


def _check(model: onnx.ModelProto) -> None:
    """The full check of onnx, but for its demand that inputs and outputs have a shape."""
    shaped = onnx.ModelProto()
    shaped.CopyFrom(model)
    for value in [*shaped.graph.input, *shaped.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(shaped)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _contradicts(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> bool:
    """Whether inputs of unknown rank were drawn with one that the types declared inside of a model rule out."""
    open_ = [info for info in model.graph.input if info.name in feeds and not info.type.tensor_type.HasField("shape")]
    if not any(info.type.HasField("tensor_type") for info in open_):
        return False
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for info in told.graph.input:
        if info.name in feeds and info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
            for dim in np.shape(feeds[info.name]):
                info.type.tensor_type.shape.dim.add(dim_value=dim)
    try:
        onnx.shape_inference.infer_shapes(told, check_type=True, strict_mode=True, data_prop=True)
    except Exception:  # inference raises whatever the operator's own code raises
        return True
    return False


def _misfit(before: _Form, after: _Form) -> tuple[str, str] | None:
    """A verdict that needs no run."""
    if after.invalid and not before.invalid:
        return DIFFERENT, f"the form after is not valid: {after.invalid}"
    if after.invalid != before.invalid and after.invalid:
        return NOT_VERIFIED, f"neither form is valid: {before.invalid}; {after.invalid}"
    if len(before.outputs) != len(after.outputs):
        return DIFFERENT, f"{len(before.outputs)} outputs against {len(after.outputs)}"
    if len(before.inputs) != len(after.inputs):
        return DIFFERENT, f"inputs differ: {', '.join(sorted(set(before.inputs) ^ set(after.inputs)))}"
    random = _random_operator(before.model) or _random_operator(after.model)
    if random:
        return NOT_VERIFIED, f"{random} draws random numbers, so no two runs are alike"
    return None


_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def _random_operator(model: onnx.ModelProto) -> str:
    return next((node.op_type for node in all_nodes(model) if node.op_type in _RANDOM and not node.domain), "")


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Of the graph, its subgraphs and the local functions."""

    def walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                    yield from walk(graph.node)

    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)


# Inputs


def _feeds(job: dict[str, Any], before: _Form, after: _Form) -> Iterator[tuple[str, dict[str, Any]]]:
    if "inputs" in job:
        for number, paths in enumerate(job["inputs"]):
            yield f"the given inputs {number}", {name: _load_tensor(Path(path)) for name, path in paths.items()}
        return
    elementwise = all(node.op_type in _ELEMENTWISE for node in before.model.graph.node)
    for draw in draws(
        before.inputs,
        job["seed"],
        uses=find_uses(before.model.graph),
        constants=_constant_shapes(before.model.graph),
        values=_turning_points(before, after),
        every_value=elementwise,
        overflow=elementwise or job["accuracy"] == "exact",
    ):
        yield draw.what, draw.feeds


def _load_tensor(path: Path) -> np.ndarray:
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


# Operators whose every element depends on one element of each input.
_ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu
    Clip Constant Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
    IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink
    Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()  # noqa: SIM905
)


def _constant_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    known = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                known[node.output[0]] = tuple(attribute.t.dims)
    return known


def _turning_points(*forms: _Form) -> list[float]:
    """Numbers in attributes, their defaults and small constants: where a comparison may turn."""
    found: dict[float, None] = {}
    for form in forms:
        opset = default_opset(form.model)
        tensors = [t for t in form.model.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
        for node in all_nodes(form.model):
            for attribute in node.attribute:
                found.update(dict.fromkeys([attribute.f] if attribute.type == attribute.FLOAT else attribute.floats))
                if attribute.type == attribute.TENSOR:
                    tensors.append(attribute.t)
            if not node.domain and onnx.defs.has(node.op_type, opset):
                defaults = [a.default_value for a in onnx.defs.get_schema(node.op_type, opset).attributes.values()]
                found.update({default.f: None for default in defaults if default.type == default.FLOAT})
        for tensor in tensors:
            if np.prod(tensor.dims, dtype=np.int64) <= 8 and tensor.data_type != onnx.TensorProto.STRING:
                values = onnx.numpy_helper.to_array(tensor).ravel()
                if values.dtype.kind != "c":
                    found.update(dict.fromkeys(values.astype(np.float64).tolist()))
    return [v for v in found if np.isfinite(v) and v != 0][:40]
