"""What is known of a value by the operators that take it, and what keeps it where they have a defined result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ..compare import is_float
from .values import Shape, integer_range


@dataclasses.dataclass(frozen=True)
class Use:
    """A node and the position at which it takes a value."""

    node: onnx.NodeProto
    index: int


def find_uses(graph: onnx.GraphProto) -> dict[str, list[Use]]:
    """The nodes that take each value, through nodes that only move or recast it, inside subgraphs too."""
    found: dict[str, list[Use]] = {}

    def walk(graph: onnx.GraphProto) -> None:
        for node in reversed(graph.node):
            for attribute in node.attribute:
                for subgraph in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
                    walk(subgraph)
            for index, name in enumerate(node.input):
                found.setdefault(name, []).append(Use(node, index))
            if node.op_type in _MOVERS and node.output[0] in found:
                found[node.input[0]] += found[node.output[0]]

    walk(graph)
    return found


_MOVERS = {"Identity", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Concat"}


def constrain(use: Use, value: np.ndarray, random: np.random.Generator, shapes: Mapping[str, Shape]) -> np.ndarray:
    """`value`, or what the operator that takes it has a result for; `shapes` are those of other values."""
    name, index = use.node.op_type, use.index
    rule = _USES.get((name, index)) or (_axes if name.startswith("Reduce") and index == 1 else None)
    if rule is None:
        return value
    return np.asarray(rule(use.node, value, random, shapes.get(use.node.input[0])), dtype=value.dtype)


def length(use: Use, inputs: Sequence[Sequence[int | None] | None]) -> int | None:
    """How many numbers the list must have that an operator takes, None where any number will do.

    `inputs` are the shapes of all its inputs, None for one of unknown rank.
    """
    op, index = use.node.op_type, use.index
    rank = None if inputs[0] is None else len(inputs[0])
    if op == "Pad" and index == 1:
        axes = inputs[3] if len(inputs) > 3 else None
        count = axes[0] if axes else rank
        return None if count is None else 2 * count
    if (op, index) in _ONE_PER_DIMENSION:
        return rank
    if (op, index) == ("Split", 1):
        return len(use.node.output)
    if (op, index) in _ONE_IS_ENOUGH or (op.startswith("Reduce") and index == 1):
        return 1
    return None


_ONE_PER_DIMENSION = {
    *(("Resize", index) for index in (1, 2, 3)),
    ("Expand", 1),
    ("Reshape", 1),
    ("Tile", 1),
    ("Upsample", 1),
}
_ONE_IS_ENOUGH = {*(("Slice", index) for index in (1, 2, 3, 4)), ("Pad", 3), ("Squeeze", 1), ("Unsqueeze", 1)}


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


_Rule = Callable[[onnx.NodeProto, np.ndarray, np.random.Generator, "Shape | None"], Any]


def _divisor(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """No integer by 0, and none by -1, by which the least integer cannot be divided."""
    if is_float(value.dtype) or value.dtype.kind == "c":
        return value
    return np.where((value == 0) | (value == (-1 if value.dtype.kind == "i" else 0)), value.dtype.type(3), value)


def _invertible(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Square matrices whose diagonals outweigh the rest of their rows."""
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        return value
    return random.uniform(-1, 1, value.shape) + 2 * value.shape[-1] * np.eye(value.shape[-1])


def _index(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data:
        return np.zeros(value.shape)
    size = data[_attribute(node, "axis", 0)]
    return random.integers(-size, size, value.shape) if size else value


def _distinct_index(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Along the axis every index once: what a second one does is not defined."""
    axis = _attribute(node, "axis", 0)
    if not data or not value.ndim:
        return np.zeros(value.shape)
    index = np.argsort(random.random(tuple(data)), axis=axis)[tuple(slice(n) for n in value.shape)]
    if node.op_type == "Scatter" or not index.size:
        return index
    return np.where(random.random(index.shape) < 0.5, index, index - data[axis])


def _index_tuples(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data or not value.ndim:
        return np.zeros(value.shape)
    begin = _attribute(node, "batch_dims", 0)
    sizes = np.array(data[begin : begin + value.shape[-1]])
    if node.op_type == "ScatterND":
        count = int(np.prod(value.shape[:-1]))
        flat = random.permutation(int(np.prod(sizes)))[:count]
        return np.stack(np.unravel_index(np.resize(flat, count), tuple(sizes)), -1).reshape(value.shape)
    return random.integers(0, np.maximum(sizes, 1), value.shape)


def _axes(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    rank = len(data) if data is not None else max(value.size, 1)
    if node.op_type == "Unsqueeze":
        rank += value.size
    if node.op_type == "Squeeze" and data is not None:
        ones = [i for i, n in enumerate(data) if n == 1]
        return np.resize(ones, value.shape) if ones else value
    return random.permutation(max(rank, value.size))[: value.size].reshape(value.shape)


def _signal_axis(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Any but the last, which holds the real and imaginary parts."""
    return random.integers(0, len(data) - 1 if data is not None else 1, value.shape)


def _pads(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, 2, value.shape)


def _castable(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """A float outside the integer's range has no defined result, nor has NaN, nor text that is no number."""
    to = _attribute(node, "to", 0)
    if isinstance(to, bytes):
        to = getattr(onnx.TensorProto, to.decode(), 0)
    if value.dtype == object:
        integer = to not in (0, onnx.TensorProto.STRING) and not is_float(onnx.helper.tensor_dtype_to_np_dtype(to))
        texts = ["1", "0", "25", "100"] if integer else ["1.5", "-2", "0", "3.25e2", "1e-3", "INF", "NaN"]
        return value if to in (0, onnx.TensorProto.STRING) else random.choice(np.array(texts, object), value.shape)
    if not is_float(value.dtype) or to in (0, onnx.TensorProto.STRING, onnx.TensorProto.BOOL):
        return value
    target = onnx.helper.tensor_dtype_to_np_dtype(to)
    if is_float(target) or target.kind == "c":
        return value
    low, high = integer_range(target)
    as_double = value.astype(np.float64)
    return np.where((as_double > low - 1) & (as_double < high), as_double, random.integers(0, 5, value.shape))


def _no_nan(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return np.where(np.isnan(value), value.dtype.type(1), value) if is_float(value.dtype) else value


def _no_nan_in_maximum(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return _no_nan(node, value, random, data) if _attribute(node, "mode", b"avg") == b"max" else value


def _moderate_size(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """None infinite, NaN or very large: neither are such places defined, nor what is lost in sums in any order."""
    if not is_float(value.dtype):
        return value
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(value) <= value.dtype.type(100), value, value.dtype.type(1))


def _batch(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, max(data[0], 1) if data else 1, value.shape)


def _distinct_places(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.permutation(value.size).reshape(value.shape)


def _not_negative(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return np.abs(value)


def _scale(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.uniform(0.05, 0.5, value.shape)


def _exponent(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return value if is_float(value.dtype) else random.integers(0, 3, value.shape)


def _small(low: int, high: int) -> _Rule:
    def rule(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
        return random.integers(low, high, value.shape, endpoint=True)

    return rule


def _target_shape(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """The shape that the data has, where the lengths agree, else all in one dimension."""
    if data is not None and len(data) == value.size:
        return np.array(random.permutation(data)).reshape(value.shape)
    return np.array([-1] + [1] * (value.size - 1))[: value.size].reshape(value.shape)


def _slice_step(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.choice([1, 2, -1], value.shape)


def _enlarging(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Scales, or the sizes that they make: the first two dimensions stay, the others double."""
    scales = np.where(np.arange(value.size) < 2, 1, 2).reshape(value.shape)
    if is_float(value.dtype):
        return scales
    return scales * np.array(data) if data is not None and len(data) == value.size else value


def _portions(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data or not value.size:
        return value
    size = data[_attribute(node, "axis", 0)]
    cuts = np.sort(random.integers(0, size, value.size - 1, endpoint=True))
    return np.diff([0, *cuts, size])


def _lengths(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(1, max(data[0], 1) if data else 1, value.shape, endpoint=True)


def _row_lengths(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    size = data[_attribute(node, "time_axis", 0)] if data else 1
    return random.integers(1, max(size, 1), value.shape, endpoint=True)


def _count(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    size = data[_attribute(node, "axis", -1)] if data else 1
    return random.integers(min(size, 1), min(size, 3), value.shape, endpoint=True)


def _boxes(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """That overlap, and of which neither reading (two corners, or centre and size) makes an empty one."""
    low, high = np.split(random.uniform([0, 0, 0.5, 0.5], [0.4, 0.4, 1, 1], value.shape), 2, -1)
    return np.concatenate([low, high], -1)


def _regions(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """The number in the batch, then two corners."""
    last = max(data[0], 1) - 1 if data else 0
    return random.integers([0, 0, 0, 1, 1], [last, 1, 1, 3, 3], value.shape, endpoint=True)


def _class(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, max(data[1], 1) if data and len(data) > 1 else 1, value.shape)


_USES: dict[tuple[str, int], _Rule] = {
    ("ArgMax", 0): _no_nan,
    ("ArgMin", 0): _no_nan,
    ("BatchNormalization", 4): _not_negative,
    ("AffineGrid", 0): _moderate_size,
    ("AffineGrid", 1): _small(1, 3),
    ("BitShift", 1): _small(0, 7),
    ("BlackmanWindow", 0): _small(2, 9),
    ("Cast", 0): _castable,
    ("CenterCropPad", 1): _small(1, 6),
    ("Compress", 0): _no_nan,
    ("ConstantOfShape", 0): _small(1, 3),
    ("CumSum", 1): _small(0, 0),
    ("DFT", 0): _moderate_size,
    ("DFT", 1): _small(2, 5),
    ("DFT", 2): _signal_axis,
    ("DeformConv", 2): _moderate_size,
    ("DequantizeLinear", 1): _scale,
    ("Div", 1): _divisor,
    ("Dropout", 1): _scale,
    ("Dropout", 2): _small(0, 0),
    **{("EmbedLayerNormalization", index): _small(0, 1) for index in (0, 1, 7, 8)},
    ("Expand", 1): _small(1, 1),
    ("Inverse", 0): _invertible,
    ("Gather", 1): _index,
    ("GatherElements", 1): _index,
    ("GatherND", 1): _index_tuples,
    ("GlobalMaxPool", 0): _no_nan,
    ("GRU", 4): _lengths,
    ("GridSample", 1): _moderate_size,
    ("HammingWindow", 0): _small(2, 9),
    ("HannWindow", 0): _small(2, 9),
    ("Hardmax", 0): _no_nan,
    ("LSTM", 4): _lengths,
    ("Loop", 0): _small(0, 3),
    ("MaxPool", 0): _no_nan,
    ("MaxUnpool", 1): _distinct_places,
    ("MelWeightMatrix", 0): _small(2, 5),
    ("MelWeightMatrix", 1): _small(16, 32),
    ("MelWeightMatrix", 2): _small(8000, 16000),
    ("MelWeightMatrix", 3): _small(20, 90),
    ("MelWeightMatrix", 4): _small(1000, 3000),
    ("Mod", 1): _divisor,
    ("NegativeLogLikelihoodLoss", 1): _class,
    ("NonMaxSuppression", 0): _boxes,
    ("MaxRoiPool", 1): _regions,
    ("ReverseSequence", 1): _row_lengths,
    **{(op, i): _scale for op in ("QLinearConv", "QLinearMatMul") for i in (1, 4, 6)},
    ("NonMaxSuppression", 1): _no_nan,
    ("OneHot", 0): _small(0, 6),  # below 0, no runtime does what the text of 9 says
    ("OneHot", 1): _small(3, 6),
    ("Pad", 1): _pads,
    ("Pad", 3): _axes,
    ("Pow", 1): _exponent,
    ("QuantizeLinear", 0): _no_nan,
    ("QuantizeLinear", 1): _scale,
    ("RNN", 4): _lengths,
    ("Range", 0): _small(0, 2),
    ("Range", 1): _small(3, 9),
    ("Range", 2): _small(1, 2),
    ("Reshape", 1): _target_shape,
    ("Resize", 1): _enlarging,
    ("Resize", 2): _enlarging,
    ("Resize", 3): _enlarging,
    ("MaxRoiPool", 0): _no_nan,
    ("RoiAlign", 0): _no_nan_in_maximum,
    ("RoiAlign", 1): _moderate_size,
    ("RoiAlign", 2): _batch,
    ("STFT", 0): _moderate_size,
    ("STFT", 1): _small(1, 3),
    ("STFT", 2): _moderate_size,
    ("STFT", 3): _small(2, 5),
    ("Scatter", 1): _distinct_index,
    ("ScatterElements", 1): _distinct_index,
    ("ScatterND", 1): _index_tuples,
    ("SequenceAt", 1): _small(-3, 2),
    ("SequenceErase", 1): _small(0, 1),
    ("SequenceInsert", 2): _small(0, 1),
    ("Slice", 1): _small(-2, 1),
    ("Slice", 2): _small(-1, 4),
    ("Slice", 3): _axes,
    ("Slice", 4): _slice_step,
    ("SoftmaxCrossEntropyLoss", 1): _class,
    ("Split", 1): _portions,
    ("Squeeze", 1): _axes,
    ("TensorScatter", 2): _small(0, 1),
    ("Tile", 1): _small(1, 2),
    ("TopK", 0): _no_nan,
    ("TopK", 1): _count,
    ("Trilu", 1): _small(-2, 2),
    ("Unique", 0): _no_nan,
    ("Unsqueeze", 1): _axes,
    ("Upsample", 1): _enlarging,
}
