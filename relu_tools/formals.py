"""The types of what the body of a Loop or a Scan is fed, turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from relu_tools.graphs import refers

if TYPE_CHECKING:
    from relu_tools.facts import Scope


def formal_types(node: NodeProto, graph: GraphProto, scope: Scope) -> dict[str, TypeProto]:
    """The types of a Loop's or Scan's body inputs, by what the node feeds them, where the body leaves them out."""
    if node.op_type not in ("Loop", "Scan") or refers(node):
        return {}
    fed: list[TypeProto | None] = _scanned(node, len(graph.input), scope) if node.op_type == "Scan" else []
    if node.op_type == "Loop":
        known = [helper.make_tensor_type_proto(dtype, ()) for dtype in (TensorProto.INT64, TensorProto.BOOL)]
        fed = [*known, *(shapeless(scope.type(name)) if name else None for name in node.input[2:])]
    pairs = zip(graph.input, fed, strict=False)
    return {info.name: type_ for info, type_ in pairs if type_ and not info.type.WhichOneof("value")}


def _scanned(node: NodeProto, formals: int, scope: Scope) -> list[TypeProto | None]:
    """What a turn of a Scan is fed: the states, whose shape never changes, and the scanned values without the axis."""
    # A Scan of opset 8 has the lengths of the sequences as its first input, and scans a batch along axis 1.
    batch = len(node.input) - formals
    attributes = {a.name: a for a in node.attribute}
    scanned = attributes["num_scan_inputs"].i
    axes = list(attributes["scan_input_axes"].ints) if "scan_input_axes" in attributes else [0] * scanned
    gone = [[0] if batch else []] * (formals - scanned) + [[0, 1] if batch else [axis] for axis in axes]
    fed = zip(node.input[batch:], gone, strict=False)
    return [_without(scope.type(name), axes) if name else None for name, axes in fed]


def _without(type_: TypeProto | None, axes: list[int]) -> TypeProto | None:
    """A tensor's type without some axes."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return type_
    dims = type_.tensor_type.shape.dim
    gone = {axis % len(dims) for axis in axes} if dims else set()
    less = TypeProto()
    less.tensor_type.elem_type = type_.tensor_type.elem_type
    less.tensor_type.shape.SetInParent()
    less.tensor_type.shape.dim.extend(dim for k, dim in enumerate(dims) if k not in gone)
    return less


def shapeless(type_: TypeProto | None) -> TypeProto | None:
    """A type without the shape, which may change from one turn of a loop to the next."""
    if type_ is None:
        return None
    bare = TypeProto()
    bare.CopyFrom(type_)
    bare.tensor_type.ClearField("shape") if bare.HasField("tensor_type") else None
    return bare
