"""Inputs for two forms, drawn by what their graphs say of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from .runners import default_opset
from .samples import Draw, draws, find_uses
from .trust import all_nodes, never_rounds

# Operators whose every element depends on one element of each input.
_ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
    Celu Clip Constant Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity
    IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
    Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()
)


def drawn(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    inputs: Mapping[str, onnx.TypeProto],
    seed: int,
    exact: bool,
    alike: bool = False,
) -> Iterator[Draw]:
    """Sets of `inputs` of the form before. `exact` says that overflow too must come at the same place in both.

    Dimensions of different names get sizes of their own, unless they are to be `alike`.
    """
    exact = exact or (never_rounds(before) and never_rounds(after))
    single = elementwise(before)
    yield from draws(
        inputs,
        seed,
        uses=find_uses(before.graph),
        known=_known_shapes(before),
        values=_turning_points(before, after),
        every_value=single,
        overflow=single or exact,
        limits=exact,
        alike=alike,
    )


def elementwise(model: onnx.ModelProto) -> bool:
    """Whether each element of a result depends on one element of each input."""
    return all(node.op_type in _ELEMENTWISE for node in model.graph.node)


def _known_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | None, ...]]:
    known: dict[str, tuple[int | None, ...]] = {}
    graph = model.graph
    with contextlib.suppress(Exception):  # inference raises whatever an operator's own code raises
        graph = onnx.shape_inference.infer_shapes(model).graph
    for value in graph.value_info:
        if value.type.tensor_type.HasField("shape"):
            known[value.name] = tuple(dim.dim_value or None for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        known[tensor.name] = tuple(tensor.dims)
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                known[node.output[0]] = tuple(attribute.t.dims)
    return known


def _turning_points(*models: onnx.ModelProto) -> list[float]:
    """Numbers in attributes, their defaults and small constants, where a comparison may turn.

    Those of a scale come with the halves between two of its steps, where rounding turns, and its last steps in 8 bits.
    """
    found: dict[float, None] = {}
    for model in models:
        opset = default_opset(model)
        tensors = {t.name: t for t in model.graph.initializer}
        scales = set()
        for node in all_nodes(model):
            for attribute in node.attribute:
                found.update(dict.fromkeys([attribute.f] if attribute.type == attribute.FLOAT else attribute.floats))
                if attribute.HasField("t"):  # else it refers to an attribute of a function
                    tensors[node.output[0]] = attribute.t
            if not node.domain and onnx.defs.has(node.op_type, opset):
                defaults = [a.default_value for a in onnx.defs.get_schema(node.op_type, opset).attributes.values()]
                found.update({default.f: None for default in defaults if default.type == default.FLOAT})
            if node.op_type in ("Div", "QuantizeLinear") and len(node.input) > 1:
                scales.add(node.input[1])
        for name, tensor in tensors.items():
            small = np.prod(tensor.dims, dtype=np.int64) <= 32 and tensor.data_type != onnx.TensorProto.STRING
            if small and tensor.data_location != onnx.TensorProto.EXTERNAL:
                values = onnx.numpy_helper.to_array(tensor).ravel()
                if values.dtype.kind != "c":
                    numbers = values.astype(np.float64).tolist()
                    found.update(dict.fromkeys(numbers))
                    steps = _STEPS if name in scales else ()
                    found.update(dict.fromkeys(number * step for number in numbers[:1] for step in steps))
    return _usable(found)


_STEPS: Sequence[float] = (0.5, 1.5, 2.5, 3.5, 127, 127.5, 128, 255, 255.5)


def _usable(numbers: Mapping[float, None]) -> list[float]:
    return [number for number in numbers if np.isfinite(number) and number != 0][:80]
