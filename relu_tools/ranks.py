"""How many dimensions a value has, where inference cannot tell their sizes: what the node that makes it says alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto, helper

from relu_tools.graphs import refers

SAME_RANK = frozenset(
    # Elementwise, and those that only change sizes.
    "Abs Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Cast CastLike Ceil Celu Clip Conv "
    "ConvTranspose Cos Cosh CumSum DequantizeLinear DepthToSpace Dropout Elu Erf Exp Floor Gelu GlobalAveragePool "
    "GlobalMaxPool GroupNormalization Hardmax HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN "
    "LayerNormalization LeakyRelu Log LogSoftmax LRN MaxPool Mish Neg Not Pad PRelu QuantizeLinear Reciprocal Relu "
    "Resize Round ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign "
    "SpaceToDepth Split Sqrt Tan Tanh ThresholdedRelu Tile TopK Trilu Upsample".split()
)
BROADCAST = frozenset(
    "Add And Concat Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where "
    "Xor".split()
)

FIXED = {"Flatten": 2, "Gemm": 2, "NonZero": 2, "Range": 1, "Shape": 1}

OF_ALL_OUTPUTS = frozenset("Dropout MaxPool Split TopK".split())
"""Operators of which each output has the rank of the first."""

Ask = Callable[[str], int | None]


def rank_of(node: NodeProto, rank: Ask, length: Ask) -> int | None:
    """The rank of a node's outputs, from the ranks of its inputs and the lengths of those that are vectors."""
    if node.op_type in FIXED:
        return FIXED[node.op_type]
    if refers(node):
        # What the attribute will be does not matter to these.
        return rank(node.input[0]) if node.op_type in SAME_RANK or node.op_type == "Transpose" else None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Transpose" and "perm" in attributes:
        return len(attributes["perm"])
    if node.op_type == "Reshape":
        return len(attributes["shape"]) if "shape" in attributes else length(node.input[1])
    if node.op_type in ("Expand", "ConstantOfShape"):
        target = length(node.input[-1])
        own = rank(node.input[0]) if node.op_type == "Expand" else 0
        return None if target is None or own is None else max(target, own)
    if node.op_type in SAME_RANK or node.op_type == "Transpose":
        return rank(node.input[0])
    if node.op_type in BROADCAST or node.op_type == "MatMul":
        ranks = [rank(name) for name in node.input]
        if None in ranks or (node.op_type == "MatMul" and min(ranks) < 2):  # type: ignore[type-var]
            return None
        return max(ranks)  # type: ignore[type-var]
    if node.op_type in ("Squeeze", "Unsqueeze"):
        own = rank(node.input[0])
        axes = len(attributes["axes"]) if "axes" in attributes else None
        if axes is None and len(node.input) > 1:
            axes = length(node.input[1])
        return None if own is None or axes is None else own + (axes if node.op_type == "Unsqueeze" else -axes)
    if node.op_type.startswith(("Reduce", "Arg")):
        return _reduced(node, attributes, rank, length)
    if node.op_type == "Gather":
        own, indices = rank(node.input[0]), rank(node.input[1])
        return None if own is None or indices is None else own + indices - 1
    return None


def _reduced(node: NodeProto, attributes: dict, rank: Ask, length: Ask) -> int | None:
    own = rank(node.input[0])
    if own is None or attributes.get("keepdims", 1):
        return own
    if node.op_type.startswith("Arg"):
        return own - 1
    if len(node.input) > 1 and node.input[1]:
        axes = length(node.input[1])
        return None if not axes else own - axes
    return own - len(attributes["axes"]) if "axes" in attributes else None


def length_of(node: NodeProto, rank: Ask, length: Ask, constant: Callable[[str], np.ndarray | None]) -> int | None:
    """How many elements a vector has that a node makes: the arithmetic on shapes that exporters write."""
    if refers(node):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Shape":
        own = rank(node.input[0])
        return None if own is None else len(range(own)[attributes.get("start", 0) : attributes.get("end")])
    if node.op_type == "Reshape" and len(node.input) > 1:
        shape = constant(node.input[1])
        return int(shape[0]) if shape is not None and shape.size == 1 and shape[0] > 0 else None
    if node.op_type in ("Cast", "Identity", "Neg", "Not", "Abs", "Floor", "Ceil"):
        return length(node.input[0])
    if node.op_type == "Concat":
        lengths = [length(name) for name in node.input]
        return None if None in lengths else sum(lengths)  # type: ignore[arg-type]
    if node.op_type == "Unsqueeze" and rank(node.input[0]) == 0:
        return 1
    if node.op_type == "Gather":
        return length(node.input[1])
    if node.op_type in BROADCAST:
        lengths = [1 if rank(name) == 0 else length(name) for name in node.input]
        return None if None in lengths else max(lengths)  # type: ignore[type-var]
    if node.op_type == "Slice":
        whole = length(node.input[0])
        bounds = [attributes.get("starts"), attributes.get("ends"), None]
        for k, place in enumerate((1, 2, 4)):
            if place < len(node.input) and node.input[place]:
                value = constant(node.input[place])
                if value is None:
                    return None
                bounds[k] = value.reshape(-1).tolist()
        if whole is None or any(bound is not None and len(bound) != 1 for bound in bounds):
            return None
        start, end, step = (None if bound is None else bound[0] for bound in bounds)
        return len(range(whole)[slice(start, None if step is not None and step < 0 and end < -whole else end, step)])
    return None
