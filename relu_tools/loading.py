"""Whether a runtime loads a model as it is: by IR version, opsets, operators, their versions and element types."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TypeProto

from relu_tools import schemas
from relu_tools.facts import Scope
from relu_tools.formals import formal_types
from relu_tools.graphs import subgraphs
from relu_tools.inlining import Instance, schema_body
from relu_tools.model import Model
from relu_tools.report import RefusedError, qualified
from relu_tools.runtimes import Runtime


@dataclasses.dataclass(frozen=True)
class Objection:
    """What a runtime will not load, and why; `node` and `op` are empty where it is the model as a whole."""

    node: str
    op: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.op}: {self.reason}" if self.op else self.reason


def objections(model: Model, runtime: Runtime) -> list[Objection]:
    """Everything in a model that a runtime will not load; empty where it loads it."""
    return list(dict.fromkeys(Loader(model, runtime).all()))


def scopes(model: Model) -> Iterator[Scope]:
    """The scope of a model's graph, then those of its functions."""
    yield Scope(model, model.proto.graph, model.opsets)
    for function in model.proto.functions:
        opsets = {schemas.normal(o.domain): o.version for o in function.opset_import}
        yield Scope(model, function, opsets, path=None)


def walk(scope: Scope) -> Iterator[tuple[NodeProto, Scope]]:
    """All nodes of a graph and of the graphs in it, each with its scope."""
    for index, node in enumerate(scope.graph.node):
        yield node, scope
        for a, g, inner in subgraphs(node):
            path = (*scope.path, (index, a, g)) if scope.path is not None else None
            yield from walk(Scope(scope.model, inner, scope.opsets, scope, path, formal_types(node, inner, scope)))


def name_of(node: NodeProto) -> str:
    """A node's name, else that of its first output, else its operator."""
    return node.name or next(filter(None, node.output), node.op_type)


class Loader:
    """Asks a runtime about the nodes of a model; bodies that it expands are looked into once."""

    def __init__(self, model: Model, runtime: Runtime):
        self.model, self.runtime = model, runtime
        self._bodies: dict[tuple, str] = {}

    def all(self) -> Iterator[Objection]:
        proto, runtime = self.model.proto, self.runtime
        if runtime.ir_version is not None and proto.ir_version > runtime.ir_version:
            yield Objection(
                "", "", f"it reads IR versions up to {runtime.ir_version}, the model has {proto.ir_version}"
            )
        if proto.functions and not runtime.functions:
            yield Objection("", "", "it does not know model-local functions")
        used = {schemas.normal(domain) for domain, _ in self.model.census.counts}
        own = {schemas.normal(function.domain) for function in proto.functions}
        for domain, version in self.model.opsets.items():
            low, high = runtime.opsets.get(domain, (0, 0))
            name = domain or "ai.onnx"
            if domain in own:
                continue
            if not high:
                if domain in used:
                    yield Objection("", "", f"it does not know the domain {name}")
            elif not low <= version <= high:
                yield Objection("", "", f"it reads opsets {low} to {high} of {name}, the model has {version}")
        for scope in scopes(self.model):
            yield from self._scope(scope)

    def _scope(self, scope: Scope) -> Iterator[Objection]:
        for node, where in walk(scope):
            if reason := self._node(node, where):
                yield Objection(name_of(node), qualified(schemas.normal(node.domain), node.op_type), reason)

    def _node(self, node: NodeProto, scope: Scope) -> str:
        domain = schemas.normal(node.domain)
        if (domain, node.op_type, node.overload) in self.model.functions:
            return ""
        if domain not in schemas.domains():
            return self.foreign(domain, node.op_type)
        opset = scope.opsets.get(domain)
        if opset is None:
            return f"the model does not import its domain {domain or 'ai.onnx'}"
        if not schemas.history(domain, node.op_type):
            return self.foreign(domain, node.op_type)
        version = schemas.at(domain, node.op_type, opset)
        if version is None:
            return (
                "" if self.runtime.runs_unborn(domain, node.op_type, opset) else f"it does not exist at opset {opset}"
            )
        if not version.deprecated or self.runtime.operators is None:
            for violation in schemas.violations(node, version, scope.text):
                return violation.text
        return self.reason(node, version, scope, scope.opsets)

    def reason(self, node: NodeProto, version: schemas.Version, scope: Scope, opsets: Mapping[str, int]) -> str:
        """Why the runtime cannot run a node of a version in a model of these opsets; empty where it can."""
        reason = self.runtime.objection(node, version, scope.text)
        if reason and self.runtime.expands and version.has_body:
            return self._expanded(node, version, scope, opsets, reason)
        return reason

    def foreign(self, domain: str, op: str) -> str:
        """Why the runtime cannot run an operator that no schema defines; empty where it can."""
        operators = self.runtime.operators
        known = domain in self.runtime.opsets and (operators is None or qualified(domain, op) in operators)
        return "" if known else "it does not have the operator"

    def _expanded(self, node: NodeProto, version: schemas.Version, scope: Scope, opsets, reason: str) -> str:
        """What a runtime objects to in a node that it puts the function body in the place of."""
        types = [scope.type(name) if name else None for name in node.input]
        key = (
            version.domain,
            version.op,
            version.since,
            opsets.get(version.domain),
            tuple(schemas.type_text(t) if t is not None else None for t in types),
            tuple(bool(name) for name in (*node.input, *node.output)),
            tuple(a.SerializeToString() for a in node.attribute),
        )
        if key not in self._bodies:
            self._bodies[key] = reason  # of a body that leads to itself
            self._bodies[key] = self._body(node, version, opsets, types, reason)
        return self._bodies[key]

    def _body(self, node, version, opsets, types: list[TypeProto | None], reason: str) -> str:
        opset = opsets[version.domain]
        try:
            body = schema_body(node, version, opset, types)
        except (RefusedError, RuntimeError):
            return reason
        if body is None or (version.schema.has_function and not _stands_at(body, opsets)):
            return reason
        model = ModelProto(ir_version=self.model.proto.ir_version)
        count = iter(range(1 << 30))
        nodes = Instance(node, body, lambda hint: f"{hint}/{next(count)}").nodes
        model.opset_import.extend(onnx.helper.make_opsetid(domain, v) for domain, v in opsets.items())
        model.graph.node.extend(nodes)
        for name, type_ in dict(zip(node.input, types, strict=True)).items():
            if name and type_ is not None:
                model.graph.input.add(name=name).type.CopyFrom(type_)
        for name in filter(None, node.output):
            model.graph.output.add(name=name)
        inner = Model(model, opsets, self.model.read)
        found = next(self._scope(Scope(inner, model.graph, opsets)), None)
        return f"{reason}, and in its function body {found.op}: {found.reason}" if found is not None else ""


def _stands_at(body: FunctionProto, opsets: Mapping[str, int]) -> bool:
    """Whether a body's operators mean the same at the model's opset as at the body's own."""
    own = {schemas.normal(o.domain): o.version for o in body.opset_import}
    return all(
        schemas.at(domain, node.op_type, own.get(domain, 0)) is schemas.at(domain, node.op_type, opsets.get(domain, 0))
        for node in body.node
        for domain in [schemas.normal(node.domain)]
    )
