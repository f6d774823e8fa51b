"""A model of which the nodes are still bytes: what a large model takes where no node has to change.

Most nodes of most models are a few names and an operator. Their bytes tell what they read, make and are, for a fifth of
the time that protobuf's objects take; only nodes with more than that become objects.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from typing import NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from relu_tools import external, wire
from relu_tools.census import given_in
from relu_tools.columns import Columns

# The tags of the fields of one byte, all of which have a length.
_INPUT, _OUTPUT, _NAME, _OPERATOR = (
    field.number << 3 | 2
    for field in map(NodeProto.DESCRIPTOR.fields_by_name.__getitem__, ("input", "output", "name", "op_type"))
)
_GRAPH, _FUNCTION = (ModelProto.DESCRIPTOR.fields_by_name[name].number << 3 | 2 for name in ("graph", "functions"))
_MAY_BE_GRAPHS = (AttributeProto.UNDEFINED, AttributeProto.GRAPH, AttributeProto.GRAPHS)
_NODE = GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | 2


@dataclasses.dataclass(frozen=True)
class Outline:
    """`model` lacks the nodes of its graph, whose serialized fields are `nodes`.

    `operators` counts the nodes that have only names, by operator of the default domain; `others` are the rest of them.
    `in_order` says that all values are made once and before they are read. There are no graphs in nodes, no functions
    and no external data.
    """

    model: ModelProto
    nodes: bytes = dataclasses.field(repr=False)
    operators: Counter[str]
    others: list[NodeProto] = dataclasses.field(repr=False)
    in_order: bool

    def serialize(self) -> bytes:
        """The whole model as protobuf serializes it."""
        model = self.model.SerializeToString()
        if not self.nodes:
            return model
        tag, prefix, start, end = next(field for field in wire.fields(model, 0, len(model)) if field[0] == _GRAPH)
        length = wire.encode(end - start + len(self.nodes))
        # Protobuf writes fields by their numbers, and that of nodes is the first.
        return b"".join((model[:prefix], length, self.nodes, model[start:]))


class Nodes(NamedTuple):
    """The nodes that a serialized graph begins with: where they lie in a model, and at which byte there each begins."""

    span: wire.Span
    starts: list[int]


def nodes_in(model: wire.Buffer, below: int = sys.maxsize) -> Nodes | None:
    """The nodes of a serialized model; None where there may be more, or one has not less than so many bytes."""
    try:
        graph = _graph_in(model)
        return None if graph is None else _walked(model, graph[1], graph[2], below)
    except (wire.WireError, IndexError):
        return None


def outline(model: bytes, nodes: Nodes | None = None) -> Outline | None:
    """The outline of a serialized model; None where it takes protobuf to read it, or to say what is wrong with it.

    `nodes` are those of a model that differs from this one in its weights alone.
    """
    if external.KEY in model or (nodes := nodes or nodes_in(model)) is None:
        return None
    try:
        graph = _graph_in(model)
        return None if graph is None else _read(model, *graph, nodes)
    except (wire.WireError, IndexError):
        return None


def _graph_in(model: wire.Buffer) -> tuple[int, int, int] | None:
    """Where the length of the graph stands, and from where to where its content; None where that may not be all."""
    fields = [field for field in wire.fields(model, 0, len(model)) if field[0] in (_GRAPH, _FUNCTION)]
    if len(fields) != 1 or fields[0][0] != _GRAPH or fields[0][3] > len(model):
        return None
    return fields[0][1:]


def _walked(model: wire.Buffer, start: int, end: int, below: int) -> Nodes | None:
    starts: list[int] = []
    noted = starts.append
    position = start
    while position < end and model[position] == _NODE:
        noted(position - start)
        size = model[position + 1]
        if size <= 0x7F:
            position += 2 + size
            continue
        size, position = wire.varint(model, position + 1, end)
        if size >= below:
            return None
        position += size
    return Nodes(wire.Span(start, position - start), starts) if position <= end else None


def _read(model: bytes, prefix: int, start: int, end: int, nodes: Nodes) -> Outline | None:
    behind = start + nodes.span.size
    if any(tag == _NODE for tag, *_ in wire.fields(model, behind, end)):
        return None
    light = wire.parse(ModelProto, b"".join((model[:prefix], wire.encode(end - behind), model[behind:])))
    if external.external_tensors(light):
        return None
    given = [name.encode() for name in given_in(light.graph)]
    wanted = [info.name.encode() for info in light.graph.output]
    serialized = model[start:behind]
    columns = Columns(serialized, nodes.starts, given, wanted)
    inputs, outputs = columns.read(_INPUT, many=True), columns.read(_OUTPUT, many=True)
    columns.read(_NAME)
    operators = columns.read(_OPERATOR)
    plain = np.zeros(len(nodes.starts), bool)
    plain[operators.node] = True
    # Of text that is not ASCII only protobuf tells whether it is any.
    plain &= (columns.at == columns.end) & columns.is_ascii()
    others = b"".join(serialized[nodes.starts[node] : columns.end[node]] for node in np.flatnonzero(~plain).tolist())
    found = wire.parse(GraphProto, others)
    if found.SerializeToString() != others or any(a.type in _MAY_BE_GRAPHS for n in found.node for a in n.attribute):
        return None
    in_order = b"" not in given and columns.are_in_order([columns.given, outputs], [inputs, columns.wanted])
    counts = columns.counted(operators.take(plain[operators.node]))
    by_name = Counter({name.decode("ascii"): count for name, count in counts.items()})
    return Outline(light, serialized, by_name, list(found.node), in_order)
