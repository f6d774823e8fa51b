"""One node brought to the targets, over the steps between the versions of its operator.

Each step is taken by the first means that applies: an adapter; legal as it is, defaults written out; an exact cast;
a function body; else a refusal. Nodes that a step makes are legalized in turn, until nothing is illegal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from relu_tools import adapters, casts, irversion, magnitudes, schemas
from relu_tools.adapters import KEEP
from relu_tools.bodies import Bodies
from relu_tools.builder import Builder
from relu_tools.census import Answers
from relu_tools.facts import Scope
from relu_tools.formals import formal_types, shapeless
from relu_tools.graphs import graphs_in, names_in, subgraphs, uses
from relu_tools.inlining import Instance, Selection, function_key, schema_body
from relu_tools.model import Model
from relu_tools.repeating import Record, Rewriting, Rewritings, base_of
from relu_tools.report import TELL_TYPE, Change, Refusal, RefusedError, Step, qualified
from relu_tools.rewriting import inherit, leave_out_unused, rename, tell_shapes

Opsets = Mapping[str, int]

# The first opset in which operators broadcast by themselves.
LEGACY = 7
# What adapters of other domains write nodes of ai.onnx in; the steps from there bring those to the target.
WRITTEN = 13
NOTHING = Selection()
# Nodes of bodies; functions that call two others each make exponentially many.
MOST_EXPANDED = 1 << 15


class Rewritten(NamedTuple):
    """A node as it was and what stands in its place, for the verifier."""

    change: Change
    before: NodeProto
    before_opsets: Opsets
    after: Sequence[NodeProto]
    initializers: Sequence[TensorProto]
    scope: Scope


@dataclasses.dataclass
class Trace:
    """What has been done for a node, and by what means."""

    means: list[str] = dataclasses.field(default_factory=list)
    accuracy: str = "exact"
    by_type_alone: bool = True
    initializers: list[TensorProto] = dataclasses.field(default_factory=list)
    asked: list[tuple[Scope, str]] = dataclasses.field(default_factory=list)

    def took(self, means: str, accuracy: str = "exact") -> None:
        if means not in self.means:
            self.means.append(means)
        # "body" is the weakest claim, then "rounding".
        self.accuracy = max(self.accuracy, accuracy, key=["exact", "rounding", "body"].index)


class Lowering:
    """Legalizes the nodes of one model, each by itself; `Engine` gives it graphs and functions.

    `targets` are the opsets to reach, by domain; `expand` tells which functions to expand;
    `inline_all` inlines every model-local function; `bodies` are those of operators that no schema defines.
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
        bodies: Bodies | None = None,
    ):
        self.original, self.work, self.ir_version = original, work, ir_version
        self.targets = {**original.opsets, **targets}
        if irversion.ML in self.targets:
            self.targets.setdefault("", irversion.opset_of_ml(self.targets[irversion.ML]))
        self.expand, self.inline_all = expand, inline_all
        self.bodies = original.bodies = Bodies() if bodies is None else bodies
        self._depth = 0  # of bodies that are being expanded
        self._expanded = 0
        self._sizes = Answers(self._size)
        self._calls: list[tuple] = []  # the functions whose bodies they are
        self.functions = {function_key(f): f for f in work.functions}
        self._own = {key[:2] for key in self.functions}
        self.inline_also = set(inline_also)
        self.changes: list[Change] = []
        self.rewritten: list[Rewritten] = []
        self.refusals: list[Refusal] = []
        self._refused: set[Refusal] = set()
        self.unknown: set[str] = set()
        self.offered: set[tuple[str, str]] = set()  # operators that no schema defines, and that have a body
        self.inlined: dict[tuple, None] = {}
        self.replaced: set[str] = set()  # domains with operators that no schema defines and whose place a body took
        self.left_out: list[tuple] = []
        self.baked: list[tuple[Scope, str]] = []
        self.needed: dict[str, int] = {}
        self._called: dict[tuple, list[tuple[Scope, tuple[str, ...]]]] = {}  # from where and with what
        self._waiting: deque[tuple] = deque()  # functions that are called, and not yet looked at
        self._taken: dict[str, int] = {}  # how many names are taken that were to be the same
        self._rewritings = Rewritings()
        self._record: Record | None = None
        self._made: set[str] = set()
        self._branching: set[str] = set()
        self._spliced: set[str] = set()
        self._reads: Mapping[str, int] | None = None
        self._settled: dict[tuple[str, str], bool] = {}
        self._kept: set[tuple] = set()
        self._passing: set[tuple] = set()
        self._ways: dict[tuple[schemas.Version, bool], tuple] = {}
        self._opsets_seen: Opsets | None = None

    # --- one node ------------------------------------------------------------------
    def _rewrite(self, node: NodeProto, kind: tuple | None, scope: Scope, trace: Trace, index: int) -> list[NodeProto]:
        """The nodes that stand for a node of the model; what was made of one like it, where that can be repeated.

        `kind` is what all nodes like it have in common.
        """
        defined = schemas.history(schemas.normal(node.domain), node.op_type)
        if kind is None or self._depth or not defined or not base_of(node):
            return self._lower(node, scope.opsets, scope, trace, index=index)
        record = Record(node, scope)
        kind = (kind, record.kind)
        known = self._rewritings.find(kind, node, scope)
        if known is not None and self._expanded + known.expanded <= self._most_expanded:
            names = known.names_for(node)
            if self.names.isdisjoint(names):
                return self._repeat(known, node, names, scope, trace)
        expanded = self._expanded
        outer, self._record = self._record, record
        try:
            result = self._lower(node, scope.opsets, scope, trace, index=index)
        finally:
            self._record = outer
        if not trace.initializers and not any(map(self._is_untold, result)):
            baked = [name for _, name in trace.asked]
            details = {"means": trace.means, "accuracy": trace.accuracy, "expanded": self._expanded - expanded}
            rewriting = record.rewriting(result, baked=baked, **details)
            if rewriting is not None:
                self._rewritings.learn(kind, record, rewriting)
        return result

    def _repeat(self, known: Rewriting, node: NodeProto, names: Sequence[str], scope: Scope, trace: Trace):
        self.names.update(names)
        self._made.update(names)
        self._expanded += known.expanded
        trace.means, trace.accuracy = list(known.means), known.accuracy
        trace.asked = [(scope, name) for name in known.baked_for(node)]
        return known.result_for(node)

    def _is_not_repeated(self) -> None:
        """Says that what is being done may depend on more than is noted of it."""
        if self._record is not None:
            self._record.complete = False

    def _is_untold(self, node: NodeProto) -> bool:
        """Whether the types of what a node makes are written down: its schema does not infer them.

        Below opset 7 all are: what brings such a model up again must know the shapes that are to be broadcast.
        """
        domain = schemas.normal(node.domain)
        version = schemas.at(domain, node.op_type, self.targets.get(domain, 0))
        all_told = self.targets.get("", LEGACY) < LEGACY
        return version is not None and (all_told or not version.infers)

    def _lower(
        self,
        node: NodeProto,
        opsets: Opsets,
        scope: Scope,
        trace: Trace,
        *,
        index: int | None = None,
        made: bool = False,
        checked: bool = False,
    ) -> list[NodeProto]:
        """The nodes that stand for `node` at the targets.

        `made` nodes come from a builder, not from a model; `checked` ones from a schema's body, which need not hold for
        all types that the operator has.
        """
        checked |= made
        if made and node.name in self._spliced:
            return [node]
        domain = schemas.normal(node.domain)
        key = (domain, node.op_type, node.overload)
        if key in self.functions and not schemas.exists(domain, node.op_type, opsets.get(domain, 0)):
            return self._call(node, key, scope, trace, index)
        if not made:
            self._subgraphs(node, opsets, scope, index)
        else:
            self._branches(node, opsets, scope, trace)
        target = self.targets.get(domain)
        if self._has_place_taken(domain, node.op_type, opsets, made):
            return self._put_body(node, opsets, scope, trace)
        if domain not in schemas.domains() or domain not in opsets or target is None:
            self.unknown.add(domain)
            if (domain, node.op_type) in self.bodies:
                self.offered.add((domain, node.op_type))
            return [node]
        opset = opsets[domain]
        wanted = self.expand(domain, node.op_type, self._depth > 0)
        if opset == target and not checked and not wanted:
            return [node]
        version = schemas.meant_at(domain, node.op_type, opset)
        if version is None:
            if opset == target and not checked:
                return [node]
            raise _refusal(Step(node.op_type, None, None, domain), f"no schema of opset {opset} knows it")
        if wanted and version.has_body:
            return self._expand_body(node, version, opsets, scope, trace)
        kind = self._contract(node, version, target, scope)
        if kind in self._passing and not wanted:
            return [node]
        admitted = self._admit(node, version, version, opsets, scope, trace) if checked else node
        if isinstance(admitted, list):
            return admitted
        result = self._walk(admitted, version, target, opsets, scope, trace)
        if len(result) == 1 and result[0] is node and self._is_plain(version, target):
            self._passing.add(kind)
        return result

    @staticmethod
    def _contract(node: NodeProto, version: schemas.Version, target: int, scope: Scope) -> tuple:
        """All of a node that decides whether it can stay as it is, unless an adapter looks at more."""
        text = scope.text
        return (
            version,
            target,
            tuple([text(name) if name else "" for name in node.input]),
            tuple([text(name) if name and version.has_types_of_its_own else bool(name) for name in node.output]),
            tuple([(a.name, a.type) for a in node.attribute]) if node.attribute else (),
        )

    def _is_plain(self, version: schemas.Version, target: int) -> bool:
        """Whether no adapter lies on the way, which could look at more than types and names of attributes."""
        while version.deprecated or not version.since <= target <= version.last:
            _, following, adapter, _, _ = self._way(version, target > version.last)
            if adapter is not None or following is None:
                return False
            version = following
        return True

    def _walk(self, node, version, target, opsets, scope, trace) -> list[NodeProto]:
        domain = version.domain
        # A deprecated version is legal nowhere; what it was before leads on.
        while version.deprecated or not version.since <= target <= version.last:
            step, following, adapter, has_body, kept = self._way(version, target > version.last)
            # The opset of whatever stands in the node's place: the last before its version, or the first of the next.
            there = following.since if following is not None and following.since > version.since else version.since - 1
            next_opsets = {**opsets, "": WRITTEN, domain: there}
            try:
                if adapter is not None:
                    written = {**next_opsets, domain: adapter.opset or there}
                    adapted = self._adapt(node, version, adapter, written, scope, trace)
                    if adapted is not None:
                        return adapted
                if following is None:
                    if has_body:
                        return self._expand_body(node, version, opsets, scope, trace)
                    raise RefusedError(f"it does not exist before opset {version.since}")
                if adapter is None and not kept:
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
            if version.has_body and version.since <= target <= version.last and self._is_wanted(version):
                return self._expand_body(node, version, {**opsets, domain: target}, scope, trace)
        return [node]

    def _is_wanted(self, version: schemas.Version) -> bool:
        return self.expand(version.domain, version.op, self._depth > 0)

    def _way(self, version: schemas.Version, up: bool) -> tuple:
        """The step from a version up or down, the version that it leads to, and by what means it is taken."""
        found = self._ways.get((version, up))
        if found is None:
            domain, op = version.domain, version.op
            versions = schemas.history(domain, op)
            place = versions.index(version) + (1 if up else -1)
            following = versions[place] if place >= 0 else None
            step = Step(op, version.since, following and following.since, domain)
            found = self._ways[version, up] = (
                step,
                following,
                adapters.find(domain, op, version.since, step.target),
                adapters.has_body(domain, op, version.since),
                following is not None and adapters.is_same(domain, op, version.since, following.since),
            )
        return found

    def _adapt(self, node, version, adapter, opsets, scope, trace) -> list[NodeProto] | None:
        """What an adapter makes of a node; None where it has no objection to it."""
        builder = self._builder(node, opsets, scope)
        for name in magnitudes.counted(node):
            builder.places(name)
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
        found = list(schemas.violations(node, version, scope.text, before, self._possible))
        if not found:
            return node
        wide: dict[str, int] = {}
        for violation in found:
            text = violation.type
            dtype = TensorProto.DataType.Value(text[7:-1].upper()) if text.startswith("tensor(") else 0
            formal = next((f for f in (*version.inputs, *version.outputs) if f.var == violation.var), None)
            route = casts.through(node, dtype, formal.types, scope) if formal is not None and dtype else None
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
        record = self._record
        if record is not None and (node is record.node or node is record.copy):
            record.copy = tidy
        if write:
            trace.took("default written out")
        if drop:
            trace.took("default left out")
        return tidy

    # --- replacing -----------------------------------------------------------------
    def _builder(self, node: NodeProto, opsets: Opsets, scope: Scope) -> Builder:
        stored = not scope.in_function and self.ir_version >= 4
        return Builder(scope, opsets, node, self._is_read, self.fresh, self.targets, stored, self._record)

    def _replace(self, node, builder, results, opsets, scope, trace, means, accuracy) -> list[NodeProto]:
        results = (results,) if isinstance(results, str) else tuple(results)
        leave_out_unused(builder, results)
        self._name_outputs(node, builder, results)
        trace.took(means, accuracy)
        trace.asked.extend((scope, name) for name in builder.asked)
        trace.initializers.extend(builder.initializers)
        scope.define(builder.nodes, opsets, instead=not schemas.history(schemas.normal(node.domain), node.op_type))
        if any(made.domain == "" for made in builder.nodes):
            self.needed.setdefault("", self.targets[""])
        self._branching |= builder.branching
        self._spliced |= builder.settled
        for made in builder.nodes:
            self._branches(made, opsets, scope, trace)
        inherit(node, builder.nodes)
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
            rename(made, names)

    # --- functions and bodies --------------------------------------------------------
    def _call(self, node, key, scope, trace, index) -> list[NodeProto]:
        function = self.functions[key]
        self._is_not_repeated()
        if not self._is_expanded(key, self._depth > 0):
            self._subgraphs(node, scope.opsets, scope, index)
            if key not in self._called:
                self._waiting.append(key)
            self._called.setdefault(key, []).append((scope, tuple(node.input)))
            return [node]
        self.inlined[key] = None
        with self._within(key, Step(node.op_type, None, None, key[0])):
            self._check_size(self._sizes[key])
            return self._expand(node, function, scope.opsets, scope, trace, "inlined", "exact")

    def _is_expanded(self, key: tuple, nested: bool) -> bool:
        domain, op, _ = key
        taken = schemas.exists(domain, op, self.targets.get(domain, 0))  # its name means an operator there
        return taken or self.inline_all or key in self.inline_also or self.expand(domain, op, nested)

    def _is_first_call(self, node: NodeProto) -> bool:
        key = schemas.normal(node.domain), node.op_type, node.overload
        return key in self.functions and key not in self._called

    def _size(self, key: tuple) -> int:
        """How many nodes a function expands to; a call of itself counts as none."""
        self._sizes[key] = size = 0
        for graph in graphs_in(self.functions[key]):
            for node in graph.node:
                called = schemas.normal(node.domain), node.op_type, node.overload
                size += self._sizes[called] if called in self.functions and self._is_expanded(called, True) else 1
        return size

    @functools.cached_property
    def _most_expanded(self) -> int:
        return max(MOST_EXPANDED, 64 * self.original.census.counts.total())

    def _check_size(self, nodes: int) -> None:
        if nodes > self._most_expanded:
            raise RefusedError("the functions that it calls expand to more nodes than can be handled")

    @contextlib.contextmanager
    def _within(self, key: tuple, step: Step) -> Iterator[None]:
        """Notes that a function's body is being put in, which must not call the function again."""
        if key in self._calls:
            cycle = " -> ".join(qualified(k[0], k[1]) for k in (*self._calls[self._calls.index(key) :], key))
            raise _refusal(step, f"the function calls itself: {cycle}")
        self._calls.append(key)
        try:
            yield
        finally:
            self._calls.pop()

    def _has_place_taken(self, domain: str, op: str, opsets: Opsets, made: bool) -> bool:
        """Whether a body takes the place of an operator that no schema defines.

        One in a schema's domain, which an older runtime had there by itself, cannot follow that to another opset.
        """
        if (domain, op) not in self.bodies or schemas.history(domain, op):
            return False
        moves = domain in schemas.domains() and opsets.get(domain) != self.targets.get(domain)
        return moves or self.expand(domain, op, made or self._depth > 0, foreign=True)

    def _put_body(self, node, opsets, scope, trace) -> list[NodeProto]:
        """The body of an operator that no schema defines in its place."""
        self._is_not_repeated()
        domain = schemas.normal(node.domain)
        step = Step(node.op_type, None, None, domain)
        key = (domain, node.op_type, "")
        with self._within(key, step):
            try:
                body = self.bodies.find(domain, node.op_type)
                if body.traced:
                    self.targets.setdefault("", body.opset)
                    written = {**opsets, "": body.opset}
                    builder = self._builder(node, written, scope)
                    made = body.trace(builder, node)
                    self._depth += 1
                    try:
                        result = self._replace(node, builder, made, written, scope, trace, body.means, "body")
                    finally:
                        self._depth -= 1
                else:
                    body.check(node)
                    result = self._expand(node, body.proto, opsets, scope, trace, body.means, "body")
            except RecursionError:
                raise
            except RefusedError as error:
                advice = error.advice or "exclude it, and it stays as it is"
                raise _refusal(step, error.reason, advice, error) from None
            except Exception as error:
                # A body is run on whatever the model holds, and a given one may do anything.
                raise _refusal(step, f"its body fails: {type(error).__name__}: {error}") from error
        self.replaced.add(domain)
        return result

    def _expand_body(self, node, version, opsets, scope, trace) -> list[NodeProto]:
        """The body that the node's schema defines, or ours that is exact, in its place."""
        ours = adapters.body_of(version.domain, node.op_type, version.since)
        if ours is not None:
            written = {**opsets, version.domain: ours.opset or opsets[version.domain]}
            self._depth += 1
            try:
                return self._adapt(node, version, ours, written, scope, trace) or [node]
            finally:
                self._depth -= 1
        # A body that is the same for all types needs none, and to find them can take long.
        asked = () if version.schema.has_function else node.input
        types = [scope.type(name) if name else None for name in asked]
        body = schema_body(node, version, opsets[version.domain], types)
        return self._expand(node, body, opsets, scope, trace, "function body", "body", checked=True)

    def _expand(self, node, function, opsets, scope, trace, means, accuracy, checked=False) -> list[NodeProto]:
        self._expanded += len(function.node)
        self._check_size(self._expanded)
        instance = Instance(node, function, self.fresh)
        own = {schemas.normal(o.domain): o.version for o in function.opset_import}
        for domain, version in own.items():
            self.needed.setdefault(domain, self.targets.setdefault(domain, version))
        own = {**{domain: v for domain, v in opsets.items() if domain not in own}, **own}
        trace.took(means, accuracy)
        inherit(node, instance.nodes)
        scope.define(instance.nodes, own, instead=not schemas.history(schemas.normal(node.domain), node.op_type))
        for name, type_ in instance.types.items():
            self._is_not_repeated()
            scope.types.setdefault(name, type_)
        self._depth += 1
        try:
            return [n for made in instance.nodes for n in self._lower(made, own, scope, trace, checked=checked)]
        finally:
            self._depth -= 1

    def _subgraphs(self, node: NodeProto, opsets: Opsets, scope: Scope, index: int | None) -> None:
        for a, g, graph in subgraphs(node):
            self._is_not_repeated()
            path = (*scope.path, (index, a, g)) if scope.path is not None and index is not None else None
            types = formal_types(node, graph, scope)
            inner = Scope(self.original, graph, opsets, scope, path, types)
            self._graph(graph, inner)
            if node.op_type == "Scan":
                tell_shapes(graph, inner)
            # What inference does not know of the node's outputs, its graph may tell: a Loop's begins with a condition.
            given = graph.output[1:] if node.op_type == "Loop" else graph.output
            for name, info in zip(node.output, given, strict=False):
                if name and scope.text(name) is None and (type_ := inner.type(info.name)) is not None:
                    scope.tell(name, shapeless(type_))

    def _branches(self, node: NodeProto, opsets: Opsets, scope: Scope, trace: Trace) -> None:
        """Legalizes the graphs of a node that a builder made, once, where the builder made those too."""
        if node.name in self._branching:
            self._branching.remove(node.name)
            for _, _, graph in subgraphs(node):
                self._branch(graph, opsets, scope, trace)

    def _branch(self, graph: GraphProto, opsets: Opsets, scope: Scope, trace: Trace) -> None:
        """Legalizes a graph that a builder made."""
        inner = Scope(self.original, graph, opsets, scope, None)
        nodes = [n for made in graph.node for n in self._lower(made, opsets, inner, trace, made=True)]
        del graph.node[:]
        graph.node.extend(nodes)
        self._tell_types(nodes, graph, inner)

    def _tell_types(self, nodes: Sequence[NodeProto], graph: GraphProto | FunctionProto, scope: Scope) -> None:
        """Writes down the types that some older schemas do not infer, since their consumers' schemas ask for them."""
        if scope.is_function:
            return
        for node in nodes:
            if not self._is_untold(node):
                continue
            for name in node.output:
                if name and name not in scope.told and (type_ := scope.type(name)) is not None:
                    outputs = {info.name: info for info in graph.output}
                    (outputs.get(name) or graph.value_info.add(name=name)).type.CopyFrom(type_)
                    scope.told.add(name)

    def fresh(self, hint: str) -> str:
        """A name that no value and no node of the model has."""
        k = self._taken.get(hint, 1)
        name = hint if k == 1 else f"{hint}_{k}"
        while name in self.names:
            k += 1
            name = f"{hint}_{k}"
        self._taken[hint] = k
        self.names.add(name)
        self._made.add(name)
        if self._record is not None:
            self._record.names[name] = hint
        return name

    @functools.cached_property
    def names(self) -> set[str]:
        """All names that are taken."""
        return set(names_in(self.work))

    def _is_read(self, name: str) -> bool:
        """Whether a value has a reader: exporters name outputs that nothing uses."""
        if self._reads is None:
            self._reads = uses(self.original.proto)
        return bool(name) and (name in self._reads or name in self._made)


def unborn(text: str) -> str:
    return f"no {text[7:-1] if text.startswith('tensor(') else text} before opset {birth(text)}"


def birth(text: str) -> int:
    return next((opset for opset in range(1, schemas.newest() + 1) if text in schemas.types_at(opset)), 0)


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
    if text and text not in possible and birth(text):
        return RefusedError(unborn(text))
    if "is not known" in violation.text:
        return RefusedError(violation.text, TELL_TYPE)
    return RefusedError(violation.text)
