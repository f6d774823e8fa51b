"""The engine: makes every node of a model legal at the target opsets.

A node whose version is the same at source and target costs a look-up. Any other is walked over the steps between,
one at a time, each by the first means that applies: an adapter; legal as it is, defaults written out; an exact cast;
else a refusal. Nodes that a step makes are legalized in turn, until nothing is illegal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from relu_tools import adapters, casts, irversion, schemas
from relu_tools.adapters import KEEP
from relu_tools.builder import Builder
from relu_tools.facts import Model, Scope, formal_types, free_names, graphs_in, names_in, shapeless, subgraphs, uses
from relu_tools.inlining import Instance, Selection, function_key, schema_body
from relu_tools.report import TELL_TYPE, Change, Refusal, RefusedError, Step, qualified

Opsets = Mapping[str, int]

# What adapters of other domains write nodes of ai.onnx in; the steps from there bring those to the target.
WRITTEN = 13
NOTHING = Selection()


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A node as it was and what stands in its place, for the verifier."""

    change: Change
    before: NodeProto
    before_opsets: Opsets
    after: Sequence[NodeProto]
    initializers: Sequence[TensorProto]
    scope: Scope


class _Restart(Exception):
    """A function could not be converted by itself; it is to be inlined, and all begins anew."""


@dataclasses.dataclass
class _Trace:
    means: list[str] = dataclasses.field(default_factory=list)
    accuracy: str = "exact"
    calls: tuple = ()
    by_type_alone: bool = True
    initializers: list[TensorProto] = dataclasses.field(default_factory=list)
    asked: list[tuple[Scope, str]] = dataclasses.field(default_factory=list)

    def took(self, means: str, accuracy: str = "exact") -> None:
        if means not in self.means:
            self.means.append(means)
        # "body" is the weakest claim, then "rounding".
        self.accuracy = max(self.accuracy, accuracy, key=["exact", "rounding", "body"].index)


class Engine:
    """Legalizes one model in place.

    `targets` are the opsets to reach, by domain; `expand` tells which functions to expand;
    `inline_all` inlines every model-local function. After `run`, `changes`, `refusals` and the rest tell what was done.
    """

    def __init__(
        self,
        original: Model,
        work: ModelProto,
        targets: Opsets,
        *,
        ir_version: int,
        expand: Selection = NOTHING,
        inline_all: bool = False,
        inline_also: Iterable[tuple] = (),
    ):
        self.original, self.work, self.ir_version = original, work, ir_version
        self.targets = {**original.opsets, **targets}
        if irversion.ML in self.targets:
            self.targets.setdefault("", irversion.opset_of_ml(self.targets[irversion.ML]))
        self.expand, self.inline_all = expand, inline_all
        self._depth = 0  # of bodies that are being expanded
        self.functions = {function_key(f): f for f in work.functions}
        self.inline_also = set(inline_also)
        self.changes: list[Change] = []
        self.rewritten: list[Rewritten] = []
        self.refusals: list[Refusal] = []
        self.unknown: set[str] = set()
        self.inlined: dict[tuple, None] = {}
        self.left_out: list[tuple] = []
        self.baked: list[tuple[Scope, str]] = []
        self.needed: dict[str, int] = {}
        self._called: dict[tuple, list[list[TypeProto | None]]] = {}
        self._names: set[str] | None = None
        self._made: set[str] = set()
        self._branching: set[str] = set()
        self._spliced: set[str] = set()
        self._reads: Mapping[str, int] | None = None
        self._settled: dict[tuple[str, str], bool] = {}
        self._kept: set[tuple] = set()
        self._opsets_seen: Opsets | None = None

    # --- the whole model -----------------------------------------------------------
    def run(self) -> None:
        graph = self.work.graph
        scope = Scope(self.original, graph, self.original.opsets)
        self._check_interface(graph)
        self._graph(graph, scope)
        self._functions()

    def _check_interface(self, graph: GraphProto) -> None:
        target = self.targets.get("")
        if target is None or target >= self.original.opsets.get("", 0):
            return
        possible = schemas.types_at(target)
        for kind, infos in (("input", graph.input), ("output", graph.output)):
            for info in infos:
                text = schemas.type_text(info.type)
                if text is not None and text not in possible and _birth(text):
                    self._refuse(
                        info.name,
                        Step(f"graph {kind}", self.original.opsets[""], target),
                        _unborn(text),
                        "change the model's interface, or stay at that opset",
                    )

    def _functions(self) -> None:
        """Converts the functions that are still called, callers before callees; drops those that were inlined."""
        done: set[tuple] = set()
        while waiting := [key for key in self._called if key not in done]:
            key = waiting[0]
            done.add(key)
            self._function(key, self.functions[key], self._called[key])
        if not self.inline_all:
            for key, function in self.functions.items():
                if key not in done and key not in self.inlined:
                    refused = len(self.refusals)
                    self._function(key, function, [])
                    if len(self.refusals) > refused:
                        # Nothing calls it, so nothing tells its types; nor does anything need it.
                        del self.refusals[refused:]
                        self.left_out.append(key)
        gone = [
            key
            for key in self.functions
            if key in self.left_out or (key not in self._called and (self.inline_all or key in self.inlined))
        ]
        for key in gone:
            self.work.functions.remove(self.functions[key])

    def _function(self, key: tuple, function: FunctionProto, calls: list[list[TypeProto | None]]) -> None:
        opsets = {schemas.normal(o.domain): o.version for o in function.opset_import}
        types = {}
        for k, name in enumerate(function.input):
            texts = {str(call[k]) if k < len(call) else "" for call in calls}
            if len(texts) == 1 and calls and k < len(calls[0]) and calls[0][k] is not None:
                types[name] = calls[0][k]
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
        for index, node in enumerate(graph.node):
            if self._is_settled(node, scope.opsets):
                nodes.append(node)
                continue
            kind = self._kind(node, scope)
            if kind in self._kept:
                nodes.append(node)
                continue
            before = node
            if node.attribute and any(True for _ in subgraphs(node)):
                before = NodeProto()  # the graphs in a node are legalized in place
                before.CopyFrom(node)
            trace = _Trace()
            try:
                result = self._lower(node, scope.opsets, scope, trace, index=index)
            except Exception as error:
                # An invalid node can make a rule fail in any way, and rules can lead back to where they came from.
                self._refuse(node.name or _first(node), *self._reason(node, scope, error))
                nodes.append(node)
                continue
            if len(result) == 1 and result[0] is node:
                nodes.append(node)
                if trace.by_type_alone and before is node:
                    self._kept.add(kind)
                continue
            changed = True
            nodes.extend(result)
            self._tell_types(result, graph, scope)
            made.extend(trace.initializers)
            self.baked.extend(trace.asked)
            change = Change(
                node.name or _first(node),
                node.op_type,
                schemas.normal(node.domain),
                tuple(trace.means),
                trace.accuracy,
                tuple(n.op_type for n in result) or ("initializer" if trace.initializers else "nothing",),
            )
            self.changes.append(change)
            self.rewritten.append(Rewritten(change, before, scope.opsets, result, trace.initializers, scope))
        if changed:
            # Messages that are taken out of a repeated field stay alive; extending copies them back in order.
            del graph.node[:]
            graph.node.extend(nodes)
            if made:
                graph.initializer.extend(made)  # type: ignore[union-attr]

    def _tell_types(self, nodes: Sequence[NodeProto], graph: GraphProto | FunctionProto, scope: Scope) -> None:
        """Writes down the types that some older schemas do not infer, since their consumers' schemas ask for them."""
        if scope.is_function:
            return
        outputs = {info.name: info for info in graph.output}
        told = {info.name for info in (*graph.value_info, *graph.output) if info.type.WhichOneof("value")}
        for node in nodes:
            domain = schemas.normal(node.domain)
            version = schemas.at(domain, node.op_type, self.targets.get(domain, 0))
            if version is None or version.schema.has_type_and_shape_inference_function:
                continue
            for name in node.output:
                if name and name not in told and (type_ := scope.type(name)) is not None:
                    (outputs.get(name) or graph.value_info.add(name=name)).type.CopyFrom(type_)

    def _is_settled(self, node: NodeProto, opsets: Opsets) -> bool:
        """Whether nodes of this operator stay as they are: the one look-up that an unchanged node costs."""
        if opsets is not self._opsets_seen:
            self._opsets_seen, self._settled, self._kept = opsets, {}, set()
        key = (node.domain, node.op_type)
        if self._depth and self.expand.primitive:
            return False
        found = self._settled.get(key)
        if found is None:
            found = self._settled[key] = self._settle(schemas.normal(node.domain), node.op_type, opsets)
        return found

    def _kind(self, node: NodeProto, scope: Scope) -> tuple:
        """All that decides on a node, unless an adapter asks for more than types and attributes."""
        text = scope.text
        attributes = tuple(a.SerializeToString() for a in node.attribute) if node.attribute else ()
        types = tuple(text(name) if name else "" for name in node.input)
        return node.domain, node.op_type, node.overload, len(node.output), types, attributes

    def _settle(self, domain: str, op: str, opsets: Opsets) -> bool:
        if any(key[:2] == (domain, op) for key in self.functions) or self.expand(domain, op):
            return False
        source, target = opsets.get(domain), self.targets.get(domain)
        if source is None or target is None or domain not in schemas.domains():
            return False
        version = schemas.at(domain, op, source)
        return (
            version is not None
            and version is schemas.at(domain, op, target)
            and not version.deprecated
            and not any(a.type in (5, 10) for a in version.attributes.values())  # GRAPH, GRAPHS
        )

    def _reason(self, node: NodeProto, scope: Scope, error: Exception) -> tuple[Step, str, str]:
        domain = schemas.normal(node.domain)
        step = getattr(error, "step", Step(node.op_type, None, None, domain))
        if isinstance(error, RefusedError):
            return step, error.reason, error.advice
        version = schemas.at(domain, node.op_type, scope.opsets.get(domain, 0))
        step = Step(node.op_type, version and version.since, self.targets.get(domain), domain)
        if isinstance(error, RecursionError):
            return step, "its steps do not come to an end", ""
        objection = next(schemas.violations(node, version, scope.text), None) if version else None
        reason = objection.text if objection else f"no rule fits it ({type(error).__name__}: {error})"
        return step, f"it is not valid at its opset: {reason}", "check the model with onnx.checker"

    def _refuse(self, node: str, step: Step, reason: str, advice: str) -> None:
        refusal = Refusal(node, step, reason, advice)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    # --- one node ------------------------------------------------------------------
    def _lower(
        self,
        node: NodeProto,
        opsets: Opsets,
        scope: Scope,
        trace: _Trace,
        *,
        index: int | None = None,
        made: bool = False,
    ) -> list[NodeProto]:
        """The nodes that stand for `node` at the targets. `made` nodes come from a builder, not from a model."""
        if made and node.name in self._spliced:
            return [node]
        domain = schemas.normal(node.domain)
        key = (domain, node.op_type, node.overload)
        if key in self.functions:
            return self._call(node, key, scope, trace, index)
        if not made:
            self._subgraphs(node, opsets, scope, index)
        else:
            self._branches(node, opsets, scope, trace)
        target = self.targets.get(domain)
        if domain not in schemas.domains() or domain not in opsets or target is None:
            self.unknown.add(domain)
            return [node]
        opset = opsets[domain]
        wanted = self.expand(domain, node.op_type, self._depth > 0)
        if opset == target and not made and not wanted:
            return [node]
        version = schemas.meant_at(domain, node.op_type, opset)
        if version is None:
            if opset == target and not made:
                return [node]
            raise _refusal(Step(node.op_type, None, None, domain), f"no schema of opset {opset} knows it")
        if wanted and version.has_body:
            return self._expand_body(node, version, opsets, scope, trace)
        if made:
            admitted = self._admit(node, version, version, opsets, scope, trace)
            if isinstance(admitted, list):
                return admitted
            node = admitted
        return self._walk(node, version, target, opsets, scope, trace)

    def _walk(self, node, version, target, opsets, scope, trace) -> list[NodeProto]:
        domain = version.domain
        # A deprecated version is legal nowhere; what it was before leads on.
        while version.deprecated or not version.since <= target <= version.last:
            versions = schemas.history(domain, node.op_type)
            place = versions.index(version) + (1 if target > version.last else -1)
            following = versions[place] if place >= 0 else None
            step = Step(node.op_type, version.since, following and following.since, domain)
            # The opset of whatever stands in the node's place: the last before its version, or the first of the next.
            there = following.since if following is not None and following.since > version.since else version.since - 1
            next_opsets = {**opsets, "": WRITTEN, domain: there}
            adapter = adapters.TABLE.get((domain, node.op_type, step.source, step.target))
            try:
                if adapter is not None:
                    written = {**next_opsets, domain: adapter.opset or there}
                    adapted = self._adapt(node, version, adapter, written, scope, trace)
                    if adapted is not None:
                        return adapted
                has_body = (domain, node.op_type, version.since) in adapters.BODIES
                if following is None:
                    if has_body:
                        return self._expand_body(node, version, opsets, scope, trace)
                    raise RefusedError(f"it does not exist before opset {version.since}")
                if adapter is None and not adapters.is_same(domain, node.op_type, step.source, step.target):
                    raise RefusedError("this step has no rule yet", "relu-tools explain shows what changed")
                try:
                    admitted = self._admit(node, following, version, next_opsets, scope, trace)
                except RefusedError:
                    if has_body and following.since < version.since:
                        return self._expand_body(node, version, opsets, scope, trace)
                    raise
            except RefusedError as error:
                raise _refusal(step, error.reason, error.advice, error) from None
            if isinstance(admitted, list):
                return admitted
            node, version, opsets = admitted, following, next_opsets
        return [node]

    def _adapt(self, node, version, adapter, opsets, scope, trace) -> list[NodeProto] | None:
        """What an adapter makes of a node; None where it has no objection to it."""
        builder = self._builder(node, opsets, scope)
        inputs, attributes = schemas.bind(node, version)
        made = adapter.function(builder, *inputs, **attributes)
        trace.by_type_alone &= not builder.asked_more
        if made is KEEP:
            return None
        accuracy = "rounding" if builder.rounding else adapter.accuracy
        return self._replace(node, builder, made, opsets, scope, trace, "adapter", accuracy)

    def _admit(self, node, version, before, opsets, scope, trace) -> NodeProto | list[NodeProto]:
        """The node as `version` takes it: as it is, with defaults written out or left out, or by way of casts."""
        node = self._tidy(node, version, before, trace)
        found = list(schemas.violations(node, version, scope.text, before, self._possible()))
        if not found:
            return node
        wide: dict[str, int] = {}
        for violation in found:
            text = violation.type
            dtype = TensorProto.DataType.Value(text[7:-1].upper()) if text.startswith("tensor(") else 0
            formal = next((f for f in (*version.inputs, *version.outputs) if f.var == violation.var), None)
            route = casts.through(node.op_type, dtype, formal.types) if formal is not None and dtype else None
            if route is None:
                raise _blocked(node, violation, self._possible())
            wide[violation.var] = route[0]
            accuracy = route[1]
        builder = self._builder(node, opsets, scope)
        results = self._cast(node, version, wide, builder, scope)
        return self._replace(node, builder, results, opsets, scope, trace, "exact cast", accuracy)

    def _cast(self, node, version, wide: Mapping[str, int], builder: Builder, scope: Scope) -> tuple[str, ...]:
        """The node between casts: values of the type variables in `wide` in the type given there, and back."""
        inputs = []
        for k, name in enumerate(node.input):
            formal = version.input(k)
            cast = name and formal is not None and formal.var in wide
            inputs.append(builder.Cast(name, to=wide[formal.var]) if cast else name or None)
        attributes = {a.name: schemas.value_of(a) for a in node.attribute}
        made = getattr(builder, node.op_type)(*inputs, outputs=len(node.output), **attributes)
        made = (made,) if len(node.output) == 1 else made
        results = []
        for k, name in enumerate(node.output):
            formal = version.output(k)
            if name and formal is not None and formal.var in wide:
                dtype = scope.dtype(name)
                # Saturating would make an infinity of float8 the largest number.
                saturate = 0 if dtype in casts.FLOAT8 else None
                results.append(builder.Cast(made[k], to=dtype, saturate=saturate))
            else:
                results.append(made[k])
        return tuple(results)

    def _possible(self) -> frozenset[str]:
        target = self.targets.get("")
        return schemas.types_at(target) if target is not None else frozenset()

    def _tidy(self, node, version, before, trace) -> NodeProto:
        """Attributes that say nothing left out where `version` lacks them, and defaults that it changes written out."""
        drop = [a.name for a in node.attribute if a.name not in version.attributes and schemas.inert(a, before)]
        present = {a.name for a in node.attribute}
        write = []
        for known in before.attributes.values():
            if known.default is None or known.name in present:
                continue
            there = version.attributes.get(known.name)
            if there is not None and (there.default is None or not schemas.same_value(there.default, known.default)):
                write.append(known.default)
        if not drop and not write:
            return node
        tidy = NodeProto()
        tidy.CopyFrom(node)
        for attribute in [a for a in tidy.attribute if a.name in drop]:
            tidy.attribute.remove(attribute)
        tidy.attribute.extend(write)
        if write:
            trace.took("default written out")
        if drop:
            trace.took("default left out")
        return tidy

    # --- replacing -----------------------------------------------------------------
    def _builder(self, node: NodeProto, opsets: Opsets, scope: Scope) -> Builder:
        stored = not scope.in_function and self.ir_version >= 4
        return Builder(scope, opsets, node, self._is_read, self.fresh, self.targets, stored)

    def _replace(self, node, builder, results, opsets, scope, trace, means, accuracy) -> list[NodeProto]:
        results = (results,) if isinstance(results, str) else tuple(results)
        _leave_out_unused(builder, results)
        self._name_outputs(node, builder, results)
        trace.took(means, accuracy)
        trace.asked.extend((scope, name) for name in builder.asked)
        trace.initializers.extend(builder.initializers)
        scope.define(builder.nodes, opsets)
        if any(made.domain == "" for made in builder.nodes):
            self.needed.setdefault("", self.targets[""])
        self._branching |= builder.branching
        self._spliced |= builder.settled
        for made in builder.nodes:
            self._branches(made, opsets, scope, trace)
        _inherit(node, builder.nodes)
        return [n for made in builder.nodes for n in self._lower(made, opsets, scope, trace, made=True)]

    def _name_outputs(self, node: NodeProto, builder: Builder, results: tuple[str, ...]) -> None:
        """Gives the values that stand for the node's outputs the names that those had."""
        makers = {name: made for made in builder.nodes for name in made.output}
        stored = {tensor.name: tensor for tensor in builder.initializers}
        names: dict[str, str] = {}
        for output, result in zip(node.output, results, strict=False):
            if not output or not result:
                continue
            if result in makers and result not in names:
                names[result] = output
            elif result in stored and result not in names:
                names[result] = stored[result].name = output
            else:
                builder.nodes.append(
                    NodeProto(
                        op_type="Identity",
                        name=self.fresh(f"{node.name or output}/Identity"),
                        input=[result],
                        output=[output],
                    )
                )
        for made in builder.nodes:
            _rename(made, names)

    # --- functions and bodies --------------------------------------------------------
    def _call(self, node, key, scope, trace, index) -> list[NodeProto]:
        function = self.functions[key]
        if not (self.inline_all or key in self.inline_also or self.expand(*key[:2], self._depth > 0)):
            self._subgraphs(node, scope.opsets, scope, index)
            self._called.setdefault(key, []).append([scope.type(name) if name else None for name in node.input])
            return [node]
        if key in trace.calls:
            cycle = " -> ".join(qualified(k[0], k[1]) for k in (*trace.calls[trace.calls.index(key) :], key))
            raise _refusal(Step(node.op_type, None, None, key[0]), f"the function calls itself: {cycle}")
        self.inlined[key] = None
        trace.calls += (key,)
        result = self._expand(node, function, scope.opsets, scope, trace, "inlined", "exact")
        trace.calls = trace.calls[:-1]
        return result

    def _expand_body(self, node, version, opsets, scope, trace) -> list[NodeProto]:
        """The body that the node's schema defines, or ours that is exact, in its place."""
        adapter = adapters.TABLE.get((version.domain, node.op_type, version.since, None))
        if adapter is not None and adapter.instead_of_body:
            written = {**opsets, version.domain: adapter.opset or version.since - 1}
            return self._adapt(node, version, adapter, written, scope, trace) or [node]
        made: list[NodeProto] = []
        if node.op_type == "Range":
            # Runtimes take vectors of one element for the scalars that Range asks for; its body does not.
            builder = self._builder(node, opsets, scope)
            scalars = [
                name if scope.shape(name) == [] else builder.Reshape(name, np.zeros(0, np.int64)) for name in node.input
            ]
            made = [n for b in builder.nodes for n in self._lower(b, opsets, scope, trace, made=True)]
            trace.initializers.extend(builder.initializers)
            node = NodeProto(op_type="Range", name=node.name, input=scalars, output=node.output)
        types = [scope.type(name) if name else None for name in node.input]
        body = schema_body(node, version, opsets[version.domain], types)
        return made + self._expand(node, body, opsets, scope, trace, "function body", "body")

    def _expand(self, node, function, opsets, scope, trace, means, accuracy) -> list[NodeProto]:
        instance = Instance(node, function, self.fresh)
        own = {schemas.normal(o.domain): o.version for o in function.opset_import}
        for opset in function.opset_import:
            domain = schemas.normal(opset.domain)
            self.needed.setdefault(domain, self.targets.get(domain, opset.version))
        own = {**{domain: v for domain, v in opsets.items() if domain not in own}, **own}
        trace.took(means, accuracy)
        _inherit(node, instance.nodes)
        scope.define(instance.nodes, own, instead=schemas.normal(node.domain) not in schemas.domains())
        for name, type_ in instance.types.items():
            scope.types.setdefault(name, type_)
        self._depth += 1
        try:
            return [n for made in instance.nodes for n in self._lower(made, own, scope, trace)]
        finally:
            self._depth -= 1

    def _subgraphs(self, node: NodeProto, opsets: Opsets, scope: Scope, index: int | None) -> None:
        for a, g, graph in subgraphs(node):
            path = (*scope.path, (index, a, g)) if scope.path is not None and index is not None else None
            types = formal_types(node, graph, scope)
            inner = Scope(self.original, graph, opsets, scope, path, types)
            self._graph(graph, inner)
            if node.op_type == "Scan":
                _tell_shapes(graph, inner)
            # What inference does not know of the node's outputs, its graph may tell: a Loop's begins with a condition.
            given = graph.output[1:] if node.op_type == "Loop" else graph.output
            for name, info in zip(node.output, given, strict=False):
                if name and scope.text(name) is None and (type_ := inner.type(info.name)) is not None:
                    scope.tell(name, shapeless(type_))

    def _branches(self, node: NodeProto, opsets: Opsets, scope: Scope, trace: _Trace) -> None:
        """Legalizes the graphs of a node that a builder made, once, where the builder made those too."""
        if node.name in self._branching:
            self._branching.remove(node.name)
            for _, _, graph in subgraphs(node):
                self._branch(graph, opsets, scope, trace)

    def _branch(self, graph: GraphProto, opsets: Opsets, scope: Scope, trace: _Trace) -> None:
        """Legalizes a graph that a builder made."""
        inner = Scope(self.original, graph, opsets, scope, None)
        nodes = [n for made in graph.node for n in self._lower(made, opsets, inner, trace, made=True)]
        del graph.node[:]
        graph.node.extend(nodes)
        self._tell_types(nodes, graph, inner)

    def fresh(self, hint: str) -> str:
        """A name that no value and no node of the model has."""
        if self._names is None:
            self._names = set(names_in(self.work))
        name, k = hint, 1
        while name in self._names:
            k += 1
            name = f"{hint}_{k}"
        self._names.add(name)
        self._made.add(name)
        return name

    def _is_read(self, name: str) -> bool:
        """Whether a value has a reader: exporters name outputs that nothing uses."""
        if self._reads is None:
            self._reads = uses(self.original.proto)
        return bool(name) and (name in self._reads or name in self._made)


def legalize(
    original: Model,
    work: ModelProto,
    targets: Opsets,
    *,
    ir_version: int,
    expand: Selection = NOTHING,
    inline_all: bool = False,
) -> Engine:
    """Brings `work`, a copy of the original, to the targets in place; the engine tells what was done and refused."""
    also: set[tuple] = set()
    pristine = None
    while True:
        if work.functions and pristine is None and not inline_all:
            pristine = ModelProto()
            pristine.CopyFrom(work)
        engine = Engine(
            original, work, targets, ir_version=ir_version, expand=expand, inline_all=inline_all, inline_also=also
        )
        try:
            engine.run()
        except _Restart as restart:
            also.add(restart.args[0])
            work.CopyFrom(pristine)  # type: ignore[arg-type]
            continue
        prune(engine)
        return engine


def prune(engine: Engine) -> None:
    """Removes constants that rewrites took in as attributes and that nothing uses any more, with what made them."""
    if not engine.baked:
        return
    used = uses(engine.work)
    made: dict[str, list] = {}
    stored: dict[str, list] = {}
    public: set[str] = set()
    for top in (engine.work.graph, *engine.work.functions):
        for graph in graphs_in(top):
            for node in graph.node:
                for output in node.output:
                    made.setdefault(output, []).append((graph, node))
            if isinstance(graph, FunctionProto):
                public.update(graph.input)
            else:
                public.update(info.name for info in graph.input)
                for tensor in graph.initializer:
                    stored.setdefault(tensor.name, []).append((graph, tensor))
    waiting = [name for _, name in engine.baked]
    while waiting:
        name = waiting.pop()
        # Branches may use a name twice: what is not unique stays.
        found = made.get(name, []) + stored.get(name, [])
        if not name or used[name] or name in public or len(found) != 1:
            continue
        graph, item = found[0]
        if isinstance(item, TensorProto):
            graph.initializer.remove(item)
        elif not any(used[output] for output in item.output) and not any(True for _ in subgraphs(item)):
            used.subtract(given for given in item.input if given)
            waiting.extend(item.input)
            graph.node.remove(item)
        made.pop(name, None)
        stored.pop(name, None)


def _tell_shapes(graph: GraphProto, scope: Scope) -> None:
    """Gives a graph's outputs the shapes that are known: runtimes ask for the ranks of what a Scan stacks."""
    for info in graph.output:
        if not info.type.tensor_type.HasField("shape") and (type_ := scope.type(info.name)) is not None:
            info.type.CopyFrom(type_)


def _leave_out_unused(builder: Builder, results: Sequence[str]) -> None:
    """Takes out what an adapter made and then had no use for."""
    wanted, kept = set(results), []
    for node in reversed(builder.nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(free_names([node]))
    builder.nodes = kept[::-1]
    builder.initializers = [tensor for tensor in builder.initializers if tensor.name in wanted]


def _first(node: NodeProto) -> str:
    return next((name for name in node.output if name), node.op_type)


def _unborn(text: str) -> str:
    return f"no {text[7:-1] if text.startswith('tensor(') else text} before opset {_birth(text)}"


def _birth(text: str) -> int:
    return next((opset for opset in range(1, schemas.newest() + 1) if text in schemas.types_at(opset)), 0)


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Gives values other names, in the node's graphs too."""
    for values in (node.input, node.output):
        for k, name in enumerate(values):
            if name in names:
                values[k] = names[name]
    for _, _, graph in subgraphs(node):
        for inner in graph.node:
            _rename(inner, names)
        for info in graph.output:
            info.name = names.get(info.name, info.name)


def _inherit(node: NodeProto, made: Sequence[NodeProto]) -> None:
    """Metadata goes to every node made from a node; its name and doc string to the last one."""
    for n in made:
        n.metadata_props.extend(p for p in node.metadata_props if p.key not in {q.key for q in n.metadata_props})
    if made:
        made[-1].name = node.name
        if node.doc_string:
            made[-1].doc_string = node.doc_string


def _refusal(step: Step, reason: str, advice: str = "", inner: RefusedError | None = None) -> RefusedError:
    """A refusal of a step; one that came from a node made on the way says which."""
    inner_step = getattr(inner, "step", None)
    if inner_step is not None and inner_step != step:
        reason = f"it needs {inner_step}, and there {reason}" if not reason.startswith("it needs") else reason
    error = RefusedError(reason, advice)
    error.step = step  # type: ignore[attr-defined]
    return error


def _blocked(node: NodeProto, violation: schemas.Violation, possible: frozenset[str]) -> RefusedError:
    text = violation.type
    if text and text not in possible and _birth(text):
        return RefusedError(_unborn(text))
    if "is not known" in violation.text:
        return RefusedError(violation.text, TELL_TYPE)
    return RefusedError(violation.text)
