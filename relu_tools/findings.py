"""What is wrong with a model as it stands, by the specification of the opset and the IR version that it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from onnx import NodeProto, TensorProto

from relu_tools import irversion, schemas
from relu_tools.attribute_values import undefined_values
from relu_tools.facts import Scope
from relu_tools.graphs import graphs_in
from relu_tools.loading import name_of, scopes, walk
from relu_tools.model import Model
from relu_tools.report import qualified

# The IR version that brought an element type, after the notes on versions in onnx.proto; a newer onnx has more.
_TYPES_SINCE = {
    4: ("BFLOAT16",),
    9: ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
    10: ("UINT4", "INT4"),
    11: ("FLOAT4E2M1",),
    12: ("FLOAT8E8M0",),
    13: ("UINT2", "INT2"),
    14: ("FLOAT6E2M3", "FLOAT6E3M2"),
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault; `node` and `op` are empty where it is the model's as a whole."""

    node: str
    op: str
    text: str

    def __str__(self) -> str:
        return f"{self.node}: {self.op}: {self.text}" if self.op else self.text


def findings(model: Model) -> list[Finding]:
    """Every fault of a model: of its IR version, then of its nodes in their order."""
    found = [Finding("", "", text) for text in _too_old(model)]
    for scope in scopes(model):
        for node, where in walk(scope):
            op = qualified(schemas.normal(node.domain), node.op_type)
            found += [Finding(name_of(node), op, text) for text in _faults(model, node, where)]
    return list(dict.fromkeys(found))


def _faults(model: Model, node: NodeProto, scope: Scope) -> Iterator[str]:
    domain = schemas.normal(node.domain)
    if (domain, node.op_type, node.overload) in model.functions:
        return
    opset = scope.opsets.get(domain)
    if opset is None:
        yield f"nothing imports its domain, {domain or 'ai.onnx'}"
        return
    if domain not in schemas.domains():
        return
    versions = schemas.history(domain, node.op_type)
    version = schemas.at(domain, node.op_type, opset)
    if not versions:
        yield f"{domain or 'ai.onnx'} has no such operator"
    elif version is None:
        yield f"it does not exist before opset {versions[0].since}, and the model has {opset}"
    elif version.deprecated:
        yield f"it is deprecated from opset {version.since} on"
    else:
        for violation in schemas.violations(node, version, scope.text):
            yield violation.text
        alone = NodeProto(op_type=node.op_type, domain=node.domain)
        alone.attribute.extend(a for a in node.attribute if a.HasField("s"))
        if text := undefined_values([alone], opset):
            yield text


def _too_old(model: Model) -> Iterator[str]:
    """What a model holds that came with a later IR version than its own."""
    proto, version = model.proto, model.proto.ir_version

    def late(what: str, since: int) -> Iterator[str]:
        if version < since:
            yield f"IR version {version} is too low for {what}, which came with {since}"

    if proto.functions:
        yield from late("model-local functions", irversion.FUNCTIONS)
    public = {info.name for info in proto.graph.input}
    stored = [tensor for graph in graphs_in(proto.graph) for tensor in graph.initializer]
    if any(tensor.name not in public for tensor in proto.graph.initializer):
        yield from late("initializers that are no graph inputs", irversion.PRIVATE_INITIALIZERS)
    if any(graph.sparse_initializer for graph in graphs_in(proto.graph)):
        yield from late("sparse initializers", irversion.SPARSE)
    types = {tensor.data_type for tensor in stored}
    types |= {
        info.type.tensor_type.elem_type
        for graph in graphs_in(proto.graph)
        for info in (*graph.input, *graph.output, *graph.value_info)
    }
    known = dict(TensorProto.DataType.items())
    for since, names in _TYPES_SINCE.items():
        for name in names:
            if known.get(name) in types:
                yield from late(f"the element type {name.lower()}", since)
