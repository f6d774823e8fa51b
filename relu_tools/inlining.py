"""Function bodies put in the place of a call: schema-defined ones and model-local ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

from relu_tools import irversion, schemas
from relu_tools.graphs import free_names
from relu_tools.report import TELL_SHAPE, TELL_TYPE, RefusedError


class Selection(NamedTuple):
    """Which functions to expand: those named, all of some domains, or all; less those that are excluded.

    `primitive` goes on with whatever functions the expanded bodies call; `missing_at` takes only what an opset of
    ai.onnx lacks.
    """

    ops: frozenset[tuple[str, str]] | None = frozenset()
    domains: frozenset[str] | None = None
    exclude: frozenset[tuple[str, str]] = frozenset()
    primitive: bool = False
    missing_at: int | None = None

    def __call__(self, domain: str, op: str, nested: bool = False, foreign: bool = False) -> bool:
        """Whether to expand an operator.

        `nested` is for one that a body calls which was expanded, `foreign` for one that no opset has, nor the model.
        """
        if (domain, op) in self.exclude:
            return False
        if nested and (self.primitive or foreign):
            return True
        if self.missing_at is not None and not foreign and not self._missing(domain, op, self.missing_at):
            return False
        if self.domains is not None and domain not in self.domains:
            return False
        return self.ops is None or (domain, op) in self.ops

    @staticmethod
    def _missing(domain: str, op: str, opset: int) -> bool:
        if schemas.history(domain, op):
            return domain == "" and schemas.at(domain, op, opset) is None
        return irversion.of_opset(opset) < irversion.FUNCTIONS


def names(ops: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Domain and name of operators written as "Relu" or "my.domain::Op"."""
    if isinstance(ops, str):
        raise TypeError("operators are a list of names, such as ['Relu']")
    pairs = (op.rpartition("::")[::2] for op in ops)
    return frozenset((schemas.normal(domain), name) for domain, name in pairs)


def function_key(function: FunctionProto) -> tuple[str, str, str]:
    """Domain, name and overload: what a call names a model-local function by."""
    return schemas.normal(function.domain), function.name, function.overload


def schema_body(
    node: NodeProto, version: schemas.Version, opset: int, types: Sequence[TypeProto | None]
) -> FunctionProto | None:
    """The body that the schema defines for this node, with the schema's attribute defaults; None where it has none.

    Of several bodies the one for the highest opset not above the node's, else the lowest.
    Raises RefusedError where the body depends on a type that is not known.
    """
    schema = version.schema

    def best(opsets: Sequence[int]) -> int:
        return max((o for o in opsets if o <= opset), default=min(opsets))

    if schema.has_function:
        body = FunctionProto()
        text = schema.get_function_with_opset_version(best(schema.function_opset_versions))
        body.ParseFromString(text if isinstance(text, bytes) else text.SerializeToString())
    elif schema.has_context_dependent_function:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                schemas.AttributeReference(attribute.ref_attr_name, attribute.type).unknown()
        for name, type_ in zip(node.input, types, strict=False):
            if name and type_ is None:
                raise RefusedError(
                    f"its body depends on the type of '{name}', which is not known",
                    TELL_TYPE,
                )
        chosen = best(schema.context_dependent_function_opset_versions)
        filled = NodeProto()
        filled.CopyFrom(node)
        given = {a.name for a in node.attribute}
        filled.attribute.extend(
            a.default for a in version.attributes.values() if a.default is not None and a.name not in given
        )
        data = schema.get_context_dependent_function_with_opset_version(
            chosen, filled.SerializeToString(), [(t or TypeProto()).SerializeToString() for t in types]
        )
        body = FunctionProto.FromString(data)
        if not body.node:
            raise RefusedError("its body cannot be built from the shapes that are known", TELL_SHAPE)
        if not any(schemas.normal(o.domain) == "" for o in body.opset_import):
            # Another domain's body says nothing of ai.onnx: it is written in that of its day.
            body.opset_import.add(domain="", version=schemas.newest() if version.domain else chosen)
    else:
        return None
    own = {a.name for a in body.attribute_proto}
    body.attribute_proto.extend(
        a.default for a in version.attributes.values() if a.default is not None and a.name not in own
    )
    return body


class Instance:
    """A body's nodes with the call's values in the place of its formal ones.

    Values and nodes are named after the call; a value that the call leaves out is left out, or given a name of its own
    where it is an output. `types` are those that the function's value_info tells.
    """

    def __init__(self, call: NodeProto, function: FunctionProto, fresh: Callable[[str], str]):
        self._fresh = fresh
        self._base = call.name or next((o for o in call.output if o), function.name)
        self._attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
        names = {"": ""}
        for k, formal in enumerate(function.input):
            names[formal] = call.input[k] if k < len(call.input) else ""
        if schemas.normal(function.domain) in schemas.domains():
            # A graph that the call has as an attribute reads values from around it.
            names.update((name, name) for name in free_names(function.node) if name not in names)
        wanted: list[tuple[str, str]] = []
        produced = {o for node in function.node for o in node.output}
        for k, formal in enumerate(function.output):
            output = call.output[k] if k < len(call.output) else ""
            if not output:
                continue
            if formal in produced and formal not in names:
                names[formal] = output
            else:
                wanted.append((formal, output))  # an input handed through, or one value for two outputs
        self.nodes: list[NodeProto] = [self._node(node, names) for node in function.node]
        self.nodes += [
            NodeProto(op_type="Identity", name=fresh(f"{self._base}/Identity"), input=[names[formal]], output=[output])
            for formal, output in wanted
        ]
        self.types = {names[info.name]: info.type for info in function.value_info if info.name in names}

    def _name(self, name: str, names: dict[str, str]) -> str:
        found = names.get(name)
        if found is None:
            found = names[name] = self._fresh(f"{self._base}/{name}")
        return found

    def _node(self, node: NodeProto, names: dict[str, str]) -> NodeProto:
        made = NodeProto()
        made.CopyFrom(node)
        made.name = self._fresh(f"{self._base}/{node.name or node.op_type}")
        for values in (made.input, made.output):
            for k, name in enumerate(values):
                values[k] = self._name(name, names)
        del made.attribute[:]
        for attribute in node.attribute:
            bound = self._bind(attribute)
            if bound is not None:
                for graph in [bound.g] if bound.type == AttributeProto.GRAPH else bound.graphs:
                    self._graph(graph, names)
                made.attribute.append(bound)
        return made

    def _bind(self, attribute: AttributeProto) -> AttributeProto | None:
        """The attribute with the call's value where it refers to one of the function's; None where that has none."""
        bound = AttributeProto()
        if not attribute.ref_attr_name:
            bound.CopyFrom(attribute)
            return bound
        value = self._attributes.get(attribute.ref_attr_name)
        if value is None:
            return None
        bound.CopyFrom(value)
        bound.name = attribute.name
        return bound

    def _graph(self, graph: GraphProto, outer: dict[str, str]) -> None:
        names = dict(outer)
        defined = [i.name for i in graph.input] + [t.name for t in graph.initializer]
        defined += [t.values.name for t in graph.sparse_initializer] + [o for n in graph.node for o in n.output if o]
        for name in defined:
            names[name] = self._fresh(f"{self._base}/{name}")
        for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            info.name = names.get(info.name, info.name)
        for tensor in graph.sparse_initializer:
            tensor.values.name = names[tensor.values.name]
        nodes = [self._node(node, names) for node in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
