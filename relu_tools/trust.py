"""What is known of judges and operators beforehand: where onnxruntime leaves the text, and what never rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import onnx

from .report import qualified
from .runners import opset_of


def foreign_operator(model: onnx.ModelProto) -> str:
    """An operator that neither a schema nor the model itself defines, "" where there is none."""
    own = {(function.domain, function.name) for function in model.functions}
    for node in all_nodes(model):
        if (node.domain, node.op_type) not in own and not onnx.defs.has(node.op_type, node.domain):
            return qualified(node.domain, node.op_type)
    return ""


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Of the graph, its subgraphs and the local functions."""
    yield from nodes_within(model.graph.node)
    for function in model.functions:
        yield from nodes_within(function.node)


def nodes_within(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                yield from nodes_within(graph.node)


def onnxruntime_misreads(model: onnx.ModelProto) -> str:
    """Why onnxruntime is no judge of this model, or "".

    It runs a function's operators at the opset of the model; fills the mask of Dropout before 12, though nothing is
    dropped, with False; and compares narrow floats with a threshold that it does not round to their type, as the
    function bodies do.
    """
    opset = opset_of(model.opset_import)
    for function in model.functions:
        own = opset_of(function.opset_import)
        for node in nodes_within(function.node) if own and opset and own != opset else ():
            if not node.domain and _version(node.op_type, own) != _version(node.op_type, opset):
                return f"it would run {node.op_type} of function {function.name} at opset {opset} instead of {own}"
    for node in all_nodes(model) if opset < 12 else ():
        if node.op_type == "Dropout" and not node.domain and len(node.output) > 1 and node.output[1]:
            return "it fills the mask of Dropout with False though nothing is dropped"
    return _threshold_not_rounded(model)


def _threshold_not_rounded(model: onnx.ModelProto) -> str:
    suspects = [
        (node, attribute.f)
        for node in all_nodes(model)
        for attribute in node.attribute
        if (node.op_type, attribute.name) in (("ThresholdedRelu", "alpha"), ("Shrink", "lambd")) and not node.domain
    ]
    types = _element_types(model) if suspects else {}
    for node, value in suspects:
        element = types.get(node.input[0])
        if element in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
            if float(dtype.type(value)) != value:
                return f"it would not round the threshold of {node.op_type} to {dtype}"
    return ""


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    graph = model.graph
    with contextlib.suppress(Exception):  # inference raises whatever an operator's own code raises
        graph = onnx.shape_inference.infer_shapes(model).graph
    return {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.input, *graph.output]}


def _version(op: str, opset: int) -> int:
    return onnx.defs.get_schema(op, opset).since_version if onnx.defs.has(op, opset) else 0


def never_rounds(model: onnx.ModelProto) -> bool:
    """Whether every result is an input element or defined to the last bit."""
    return rounding_nodes(model) == 0


def rounding_nodes(model: onnx.ModelProto) -> int:
    """How many nodes give what is not an input element or defined to the last bit."""
    called = {function.name for function in model.functions}
    return sum(
        node.op_type not in (called if node.domain else _EXACT) or any(a.name == "reduction" for a in node.attribute)
        for node in all_nodes(model)
    )


_EXACT = frozenset(
    """
    Abs And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil CenterCropPad Clip
    Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor
    Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity If IsInf IsNaN Less LessOrEqual
    Loop Max MaxPool MaxUnpool Min Neg NonZero Not OneHot Optional OptionalGetElement OptionalHasElement Or Pad
    ReduceMax ReduceMin Relu Reshape ReverseSequence Round Scan Scatter ScatterElements ScatterND SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Sign Size Slice SpaceToDepth Split
    SplitToSequence Squeeze StringConcat StringNormalizer ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze
    Where Xor
    """.split()
)
