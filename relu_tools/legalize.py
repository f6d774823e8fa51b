"""The engine: makes every node of a model legal at the target opsets.

A node whose version is the same at source and target costs a look-up. Any other is lowered, and what comes of it takes
its place in the graph.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from relu_tools import adapters, irversion, schemas
from relu_tools.bodies import Bodies
from relu_tools.census import Answers
from relu_tools.facts import Scope
from relu_tools.graphs import graphs_in, subgraphs
from relu_tools.inlining import Selection, function_key
from relu_tools.lowering import NOTHING, Lowering, Opsets, Rewritten, Trace, birth, unborn
from relu_tools.model import Model
from relu_tools.report import Change, Refusal, RefusedError, Step
from relu_tools.rewriting import first, prune


class _Restart(Exception):
    """A function could not be converted by itself; it is to be inlined, and all begins anew."""


class Engine(Lowering):
    """Legalizes one model in place: its graphs, the graphs in them, and its functions.

    After `run`, `changes`, `refusals` and the rest tell what was done; `stays`, that no node was even looked at.
    """

    stays = False

    # --- the whole model -----------------------------------------------------------
    def run(self) -> None:
        graph = self.work.graph
        scope = Scope(self.original, graph, self.original.opsets)
        self._check_interface(graph)
        self._check_training()
        kinds = self.original.census.counts
        settled = self._settled_at(self.original.opsets)
        if not self.functions and all(settled[kind] for kind in kinds):
            self.stays = self.expand == NOTHING
            return
        self._graph(graph, scope)
        self._functions()

    def _check_training(self) -> None:
        """Graphs for training are left alone, which they cannot be where one of their nodes would have to change."""
        moves = any(self.original.opsets.get(domain) != version for domain, version in self.targets.items())
        if not (moves or self.inline_all or self.expand != NOTHING):
            return
        settled = self._settled_at(self.original.opsets)
        tops = [graph for info in self.work.training_info for graph in (info.initialization, info.algorithm)]
        if any(
            not settled[node.domain, node.op_type] for top in tops for graph in graphs_in(top) for node in graph.node
        ):
            step = Step("training graph", self.original.opsets.get(""), self.targets.get(""))
            self._refuse("training_info", step, "graphs for training are not converted", "leave training_info out")

    def _check_interface(self, graph: GraphProto) -> None:
        target = self.targets.get("")
        if target is None or target >= self.original.opsets.get("", 0):
            return
        possible = schemas.types_at(target)
        for kind, infos in (("input", graph.input), ("output", graph.output)):
            for info in infos:
                text = schemas.type_text(info.type)
                if text is not None and text not in possible and birth(text):
                    self._refuse(
                        info.name,
                        Step(f"graph {kind}", self.original.opsets[""], target),
                        unborn(text),
                        "change the model's interface, or stay at that opset",
                    )

    def _functions(self) -> None:
        """Converts the functions that are still called, callers before callees; drops those that were inlined."""
        done: set[tuple] = set()
        while self._waiting:
            key = self._waiting.popleft()
            done.add(key)
            self._function(key, self.functions[key], self._called[key])
        if not self.inline_all:
            for key, function in self.functions.items():
                if key not in done and key not in self.inlined:
                    refused = len(self.refusals)
                    self._function(key, function, [])
                    if len(self.refusals) > refused:
                        # Nothing calls it, so nothing tells its types; nor does anything need it.
                        self._refused.difference_update(self.refusals[refused:])
                        del self.refusals[refused:]
                        self.left_out.append(key)
        gone = [
            key
            for key in self.functions
            if key in self.left_out or (key not in self._called and (self.inline_all or key in self.inlined))
        ]
        for key in gone:
            self.work.functions.remove(self.functions[key])

    def _function(self, key: tuple, function: FunctionProto, calls: list[tuple[Scope, tuple[str, ...]]]) -> None:
        opsets = {schemas.normal(o.domain): o.version for o in function.opset_import}
        types: dict[str, TypeProto] = {}
        settled = self._settled_at(opsets)
        # To find types takes long, and where no node can change nobody asks for them.
        if not all(settled[node.domain, node.op_type] for node in function.node):
            types = _types_given(function, calls)
        scope = Scope(self.original, function, opsets, path=None, formal_types=types)
        before = len(self.refusals)
        self._graph(function, scope)
        if len(self.refusals) > before and calls:
            raise _Restart(key)
        for opset in function.opset_import:
            domain = schemas.normal(opset.domain)
            if domain in self.targets:
                opset.version = self.targets[domain]
        if "" not in opsets and any(schemas.normal(node.domain) == "" for node in function.node):
            function.opset_import.add(domain="", version=self.targets[""])

    # --- one graph -----------------------------------------------------------------
    def _graph(self, graph: GraphProto | FunctionProto, scope: Scope) -> None:
        nodes: list[NodeProto] = []
        changed = False
        made: list[TensorProto] = []
        settled = self._settled_at(scope.opsets)
        whole = bool(self._depth and self.expand.primitive)
        for index, node in enumerate(graph.node):
            # The one look-up that a node of an unchanged operator costs.
            if settled[node.domain, node.op_type] and not whole:
                nodes.append(node)
                continue
            # What a call is given is not asked for before it is needed: to find it can take long.
            kind = None if self._is_first_call(node) else self._kind(node, scope)
            if kind in self._kept:
                nodes.append(node)
                continue
            before = node
            if node.attribute and any(True for _ in subgraphs(node)):
                before = NodeProto()  # the graphs in a node are legalized in place
                before.CopyFrom(node)
            trace = Trace()
            try:
                result = self._rewrite(node, kind, scope, trace, index)
            except Exception as error:
                # An invalid node can make a rule fail in any way, and rules can lead back to where they came from.
                self._refuse(node.name or first(node), *self._reason(node, scope, error))
                nodes.append(node)
                continue
            if len(result) == 1 and result[0] is node:
                nodes.append(node)
                if trace.by_type_alone and before is node and kind is not None:
                    self._kept.add(kind)
                continue
            changed = True
            nodes.extend(result)
            self._tell_types(result, graph, scope)
            made.extend(trace.initializers)
            self.baked.extend(trace.asked)
            change = Change(
                node.name or first(node),
                node.op_type,
                schemas.normal(node.domain),
                tuple(trace.means),
                trace.accuracy,
                tuple(n.op_type for n in result) or ("initializer" if trace.initializers else "nothing",),
            )
            if not self._depth:  # else it belongs to a body, and so to what that stands for
                self.changes.append(change)
                self.rewritten.append(Rewritten(change, before, scope.opsets, result, trace.initializers, scope))
        if changed:
            _ = scope.producers  # what the values were made by is told by the graph as it was
            # Messages that are taken out of a repeated field stay alive; extending copies them back in order.
            del graph.node[:]
            graph.node.extend(nodes)
            if made:
                graph.initializer.extend(made)  # type: ignore[union-attr]

    def _settled_at(self, opsets: Opsets) -> dict[tuple[str, str], bool]:
        """Which operators' nodes stay as they are, whatever they hold; each is looked into when it is asked for."""
        if opsets is not self._opsets_seen:
            self._opsets_seen, self._kept = opsets, set()
            self._settled = Answers(lambda kind: self._settle(schemas.normal(kind[0]), kind[1], opsets))
        return self._settled

    def _kind(self, node: NodeProto, scope: Scope) -> tuple:
        """All that decides on a node, unless an adapter asks for more than types and attributes."""
        scope.tell_type_of_all(node)
        text = scope.text
        attributes = tuple(a.SerializeToString() for a in node.attribute) if node.attribute else ()
        types = tuple(text(name) if name else "" for name in node.input)
        return node.domain, node.op_type, node.overload, len(node.output), types, attributes

    def _settle(self, domain: str, op: str, opsets: Opsets) -> bool:
        if (domain, op) in self._own or self.expand(domain, op):
            return False
        source, target = opsets.get(domain), self.targets.get(domain)
        if source is None or target is None or domain not in schemas.domains():
            return False
        version = schemas.at(domain, op, source)
        return (
            version is not None
            and not version.deprecated
            and not any(a.type in (5, 10) for a in version.attributes.values())  # GRAPH, GRAPHS
            and (
                version is schemas.at(domain, op, target)
                or self._all_fit(version, target)
                or self._fits(version, opsets)
            )
        )

    def _fits(self, version: schemas.Version, opsets: Opsets) -> bool:
        """Whether each node of a version stays as it is, where nothing can differ in them but the names of values."""
        types = self.original.census.types
        if (
            types is None
            or version.attributes
            or version.max_outputs != 1
            or any(formal.optional or formal.variadic for formal in version.inputs)
            or any(len(formal.types & types) != 1 for formal in version.inputs)
        ):
            return False
        sample = ModelProto()
        node = sample.graph.node.add(domain=version.domain, op_type=version.op, output=["y"])
        for k, formal in enumerate(version.inputs):
            node.input.append(f"x{k}")
            (text,) = formal.types & types
            if not text.startswith("tensor("):
                return False
            dtype = TensorProto.DataType.Value(text[7:-1].upper())
            sample.graph.input.add(name=f"x{k}").type.tensor_type.elem_type = dtype
        model = Model(sample, opsets, self.original.read)
        trace = Trace()
        try:
            result = Lowering(model, sample, self.targets, ir_version=self.ir_version)._lower(
                node, opsets, Scope(model, sample.graph, opsets), trace
            )
        except RefusedError:
            return False
        return result == [node] and trace.by_type_alone

    def _all_fit(self, version: schemas.Version, target: int) -> bool:
        """Whether each node of a version is legal at the target as it is, by the types that occur in the model."""
        types = self.original.census.types
        if types is None or version.attributes:
            return False
        versions = schemas.history(version.domain, version.op)
        goal = schemas.at(version.domain, version.op, target)
        if goal is None:
            return False
        here, there = versions.index(version), versions.index(goal)
        path = versions[here : there + 1] if here < there else versions[there : here + 1][::-1]
        return all(
            adapters.is_same(version.domain, version.op, before.since, after.since)
            and adapters.find(version.domain, version.op, before.since, after.since) is None
            and schemas.takes_all(after, version, types)
            for before, after in zip(path, path[1:], strict=False)
        )

    def _reason(self, node: NodeProto, scope: Scope, error: Exception) -> tuple[Step, str, str]:
        domain = schemas.normal(node.domain)
        version = schemas.at(domain, node.op_type, scope.opsets.get(domain, 0))
        if isinstance(error, RefusedError):
            since = version and version.since
            return getattr(error, "step", Step(node.op_type, since, since, domain)), error.reason, error.advice
        step = Step(node.op_type, version and version.since, self.targets.get(domain), domain)
        if isinstance(error, RecursionError):
            return step, "its steps do not come to an end", ""
        objection = next(schemas.violations(node, version, scope.text), None) if version else None
        reason = objection.text if objection else f"no rule fits it ({type(error).__name__}: {error})"
        return step, f"it is not valid at its opset: {reason}", "check the model with onnx.checker"

    def _refuse(self, node: str, step: Step, reason: str, advice: str) -> None:
        refusal = Refusal(node, step, reason, advice)
        if refusal not in self._refused:
            self._refused.add(refusal)
            self.refusals.append(refusal)


def legalize(
    original: Model,
    work: ModelProto,
    targets: Opsets,
    *,
    ir_version: int,
    expand: Selection = NOTHING,
    inline_all: bool = False,
    bodies: Bodies | None = None,
    kind: Callable[..., Engine] = Engine,
) -> Engine:
    """Brings `work`, a copy of the original, to the targets in place; the engine tells what was done and refused."""
    also: set[tuple] = set()
    if ir_version < irversion.OVERLOADS <= work.ir_version:
        also.update(function_key(function) for function in work.functions if function.overload)
    pristine = None
    while True:
        if work.functions and pristine is None and not inline_all:
            pristine = ModelProto()
            pristine.CopyFrom(work)
        engine = kind(
            original,
            work,
            targets,
            ir_version=ir_version,
            expand=expand,
            inline_all=inline_all,
            inline_also=also,
            bodies=bodies,
        )
        try:
            engine.run()
        except _Restart as restart:
            also.add(restart.args[0])
            work.CopyFrom(pristine)  # type: ignore[arg-type]
            continue
        prune(engine)
        return engine


def _types_given(function: FunctionProto, calls: list[tuple[Scope, tuple[str, ...]]]) -> dict[str, TypeProto]:
    """The types of a function's inputs, where all calls give the same."""
    given = [[scope.type(name) if name else None for name in names] for scope, names in calls]
    types: dict[str, TypeProto] = {}
    for k, name in enumerate(function.input):
        texts = {str(call[k]) if k < len(call) else "" for call in given}
        if len(texts) == 1 and given and k < len(given[0]) and (type_ := given[0][k]) is not None:
            types[name] = type_
    return types
