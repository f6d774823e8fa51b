"""Values for attributes that refer to those of a function, where one of its nodes is run alone."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import AttributeProto

from .runners import default_opset
from .trust import nodes_within

_HUGE = 1e30


def bind(model: onnx.ModelProto, values: dict[str, AttributeProto]) -> None:
    """Put `values` by name in the place of references in the graph of `model`, and into `values` what is missing there.

    A number is none of the defaults, so that a default in its place shows; anything else is the default. What has
    none stays a reference.
    """
    opset = default_opset(model)
    for node, attribute in _references(model):
        value = values.get(attribute.ref_attr_name) or _invented(node, attribute, opset, len(values))
        if value is None:
            continue
        values[attribute.ref_attr_name] = value
        name = attribute.name
        attribute.CopyFrom(value)
        attribute.name = name


def _references(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, AttributeProto]]:
    for node in nodes_within(model.graph.node):
        yield from ((node, attribute) for attribute in node.attribute if attribute.ref_attr_name)


def _invented(node: onnx.NodeProto, attribute: AttributeProto, opset: int, count: int) -> AttributeProto | None:
    """`count` values were invented before, of which the number must be another one."""
    if node.domain or not onnx.defs.has(node.op_type, opset):
        return None
    formal = onnx.defs.get_schema(node.op_type, opset).attributes.get(attribute.name)
    if formal is None or formal.default_value.type == AttributeProto.UNDEFINED:
        wanted = attribute.type == AttributeProto.FLOAT
        return onnx.helper.make_attribute(attribute.name, 0.375 + count / 64) if wanted else None
    default = formal.default_value
    if default.type != AttributeProto.FLOAT:
        return default
    # Half and an eighth keep a ratio below 1 and an epsilon above 0.
    number = default.f / 2 + 0.125 if abs(default.f) < _HUGE else (0.75 if default.f > 0 else -0.75)
    return onnx.helper.make_attribute(attribute.name, number + count / 64)
