"""A model of which the nodes are still bytes: what a large model takes where no node has to change.

Most nodes of most models are a few names and an operator. One look at their bytes finds what they read, make and are,
for a third of the time that protobuf's objects take; only nodes with more than that become objects.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from relu_tools import external, wire
from relu_tools.census import given_in

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


def outline(model: bytes) -> Outline | None:
    """The outline of a serialized model; None where it takes protobuf to read it, or to say what is wrong with it."""
    if external.KEY in model:
        return None
    try:
        top = list(wire.fields(model, 0, len(model)))
        graphs = [field for field in top if field[0] == _GRAPH]
        if len(graphs) != 1 or any(field[0] == _FUNCTION for field in top):
            return None
        ((_, prefix, start, end),) = graphs
        return _read(model, prefix, start, end)
    except (wire.WireError, IndexError):
        return None


def _read(model: bytes, prefix: int, start: int, end: int) -> Outline | None:
    operators: list[bytes] = []
    others: list[bytes] = []
    made, missing = {b""}, set()
    count = 1
    plain = model[start:end].isascii()
    position = start
    while position < end and model[position] == _NODE:
        field, at = position, position + 2
        length = model[position + 1]
        if length > 0x7F:
            length, at = wire.varint(model, position + 1, end)
            if at - position - 1 > len(wire.encode(length)):
                return None
        begin, position = at, at + length
        while at < position and model[at] == _INPUT:
            first, size = at + 2, model[at + 1]
            if size > 0x7F:
                return None
            at = first + size
            name = model[first:at]
            if name not in made:
                missing.add(name)
        while at < position and model[at] == _OUTPUT:
            first, size = at + 2, model[at + 1]
            if size > 0x7F:
                return None
            at = first + size
            if size:
                made.add(model[first:at])
                count += 1
        if at < position and model[at] == _NAME:
            at += 2 + model[at + 1]
        if at < position and model[at] == _OPERATOR:
            first = at + 2
            at = first + model[at + 1]
            # Of other text only protobuf tells whether it is any, and it alone reads a length of more than a byte.
            if at == position and (plain or model[begin:at].isascii()):
                operators.append(model[first:at])
                continue
        others.append(model[field:position])
    if position > end or any(tag == _NODE for tag, *_ in wire.fields(model, position, end)):
        return None
    rest = b"".join((model[:prefix], wire.encode(end - position), model[position:]))
    found = wire.parse(GraphProto, (content := b"".join(others)))
    if found.SerializeToString() != content or any(a.type in _MAY_BE_GRAPHS for n in found.node for a in n.attribute):
        return None
    counts = Counter({op.decode("ascii"): number for op, number in Counter(operators).items()})
    light = wire.parse(ModelProto, rest)
    given = {name.encode() for name in given_in(light.graph)}
    wanted = {info.name.encode() for info in light.graph.output}
    in_order = count == len(made) and missing <= given and made.isdisjoint(given) and wanted <= made | given
    return Outline(light, model[start:position], counts, list(found.node), in_order)
