"""Converting for a runtime: the engine with the runtime's kernels in mind, and the choice of opset and IR version."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping

from onnx import NodeProto, TensorProto

from relu_tools import adapters, casts, irversion, opening, schemas
from relu_tools.bodies import Bodies
from relu_tools.facts import Scope
from relu_tools.inlining import Selection
from relu_tools.legalize import Engine
from relu_tools.loading import Loader, objections
from relu_tools.lowering import NOTHING, WRITTEN
from relu_tools.model import Model
from relu_tools.report import Refusal, RefusedError, Step
from relu_tools.runtimes import Runtime

# Below this opset even runtimes that read a model promise nothing.
_RUN_TODAY = 7


class FittingEngine(Engine):
    """Goes on where a node is legal at the target and the runtime has no kernel for it."""

    def __init__(self, *args, runtime: Runtime, **settings):
        super().__init__(*args, **settings)
        self.runtime = runtime
        self._loader = Loader(self.original, runtime)
        self._under_way: list[tuple] = []
        self._fit_as_they_are: set[tuple] = set()

    def _settle(self, domain, op, opsets) -> bool:
        return self.runtime.operators is None and not self.runtime.attributes and super()._settle(domain, op, opsets)

    def _has_place_taken(self, domain, op, opsets, made) -> bool:
        lacking = bool(self._loader.foreign(domain, op)) and not schemas.history(domain, op)
        return (lacking and (domain, op) in self.bodies) or super()._has_place_taken(domain, op, opsets, made)

    def _lower(self, node, opsets, scope, trace, **how) -> list[NodeProto]:
        lowered = super()._lower(node, opsets, scope, trace, **how)
        return [fit for made in lowered for fit in self._fit(made, scope, trace)]

    def _fit(self, node: NodeProto, scope: Scope, trace) -> list[NodeProto]:
        """The node if the runtime has a kernel for it, else what stands for it and has kernels."""
        domain = schemas.normal(node.domain)
        target = self.targets.get(domain)
        version = None if target is None else schemas.at(domain, node.op_type, target)
        if version is None or (domain, node.op_type, node.overload) in self.functions:
            return [node]
        types = tuple(scope.text(name) if name else "" for name in (*node.input, *node.output))
        key = (domain, node.op_type, len(node.input), types, tuple(a.SerializeToString() for a in node.attribute))
        if key in self._fit_as_they_are:
            return [node]
        reason = self._loader.reason(node, version, scope, self.targets)
        if not reason:
            self._fit_as_they_are.add(key)
            return [node]
        step = Step(node.op_type, version.since, version.since, domain)
        if key not in self._under_way:
            self._under_way.append(key)
            try:
                for means in (self._by_casts, self._by_step_down):
                    made = self._attempt(means, node, version, scope, trace)
                    if made is not None:
                        return made
            finally:
                self._under_way.pop()
        error = RefusedError(f"{self.runtime} cannot run it: {reason}")
        error.step = step  # type: ignore[attr-defined]
        raise error

    @staticmethod
    def _attempt(means, node, version, scope, trace) -> list[NodeProto] | None:
        before = copy.copy(trace.__dict__)
        lists = {name: list(value) for name, value in before.items() if isinstance(value, list)}
        try:
            made = means(node, version, scope, trace)
        except RefusedError:
            made = None
        if made is None:
            trace.__dict__.update(before | lists)
        return made

    def _by_casts(self, node, version, scope, trace) -> list[NodeProto] | None:
        """The node between casts, in types that there are kernels for."""
        wide: dict[str, int] = {}
        accuracy = "exact"
        values = [*((n, version.input(k)) for k, n in enumerate(node.input))]
        values += [(n, version.output(k)) for k, n in enumerate(node.output)]
        for name, formal in values:
            text = scope.text(name) if name and formal is not None and len(formal.types) > 1 else None
            if text is None or formal.var in wide or not text.startswith("tensor("):
                continue
            admitted = self.runtime.admitted(version, formal.var)
            if text in admitted:
                continue
            dtype = TensorProto.DataType.Value(text[7:-1].upper())
            route = casts.through(node, dtype, admitted, scope)
            if route is None:
                return None
            wide[formal.var] = route[0]
            accuracy = max(accuracy, route[1], key=["exact", "rounding"].index)
        if not wide:
            return None
        builder = self._builder(node, self.targets, scope)
        results = self._cast(node, version, wide, builder, scope)
        return self._replace(node, builder, results, self.targets, scope, trace, f"{accuracy} cast", accuracy)

    def _by_step_down(self, node, version, scope, trace) -> list[NodeProto] | None:
        """What the first adapter on the way down makes of the node, or its function body."""
        opsets = dict(self.targets)
        while True:
            _, following, adapter, has_body, kept = self._way(version, False)
            there = version.since - 1
            below = {**opsets, "": WRITTEN, version.domain: there}
            if adapter is not None:
                written = {**below, version.domain: adapter.opset or there}
                made = self._adapt(node, version, adapter, written, scope, trace)
                if made is not None:
                    return made
            if has_body or adapters.body_of(version.domain, node.op_type, version.since) is not None:
                return self._expand_body(node, version, opsets, scope, trace)
            if following is None or not kept or next(schemas.violations(node, following, scope.text), None):
                return None
            version, opsets = following, below


def engine_for(
    original: Model,
    runtime: Runtime,
    targets: Mapping[str, int] | None = None,
    ir_version=None,
    selection: Selection = NOTHING,
    bodies: Bodies | None = None,
) -> Engine:
    """The engine after its run for a runtime, at the targets, or at the opset that suits.

    That is the model's own where the runtime reads it and all is well, else the highest such, else that with the
    fewest refusals.
    """
    best: Engine | None = None
    for goals in [targets] if targets is not None else _candidates(original, runtime):
        engine = _run(original, runtime, goals, ir_version, selection, bodies)
        if not engine.refusals:
            return engine
        if best is None or len(engine.refusals) < len(best.refusals):
            best = engine
    assert best is not None
    return best


def _candidates(original: Model, runtime: Runtime) -> list[dict[str, int]]:
    fixed = {}
    for domain, own in original.opsets.items():
        if domain in schemas.domains() and domain and domain in runtime.opsets:
            low, high = runtime.opsets[domain]
            fixed[domain] = min(max(own, low), high, schemas.newest(domain))
    if "" not in original.opsets or "" not in runtime.opsets:
        return [fixed]
    low, high = runtime.opsets[""]
    own = original.opsets[""]
    opsets = [own] if low <= own <= high else []
    lowest = max(low, min(own, _RUN_TODAY))
    opsets += [opset for opset in range(min(high, schemas.newest()), lowest - 1, -1) if opset != own]
    return [{**fixed, "": opset} for opset in opsets]


def _run(original, runtime, targets, ir_version, selection, bodies) -> Engine:
    own = original.opsets.get("")
    if ir_version is None and runtime.ir_version is not None:
        goal = targets.get("") if targets.get("") != own else None
        ir_version = min(irversion.chosen(original.proto.ir_version, goal, None), runtime.ir_version)
    engine = opening.engine_on(
        original,
        targets,
        ir_version,
        selection,
        bodies,
        kind=functools.partial(FittingEngine, runtime=runtime),
        inline_all=not runtime.functions,
    )
    if not engine.refusals:
        _look_again(engine, runtime)
    return engine


def _look_again(engine: Engine, runtime: Runtime) -> None:
    """Refuses what the runtime would still not load of the result."""
    work = engine.work
    loaded = type(work)()
    loaded.CopyFrom(work)
    loaded.ir_version = engine.ir_version
    result = Model(loaded, {**engine.needed, **engine.targets}, engine.original.read)
    for found in objections(result, runtime):
        domain, _, op = found.op.rpartition("::")
        opset = engine.targets.get(domain)
        node, what = (
            (found.node, Step(op, opset, opset, domain)) if op else (work.graph.name, Step("model", opset, opset))
        )
        engine.refusals.append(Refusal(node, what, f"{runtime} cannot load it: {found.reason}"))
