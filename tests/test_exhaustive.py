"""Rectifiers on every value of a type of 16 bits or fewer: each form against the next.

The forms of an operator are its versions, its function body at the newest opset and what conversion makes of it.
Every judge that can run a form does. The forms of one operator stand in a row: the oldest version first, then what
conversion makes for lower and lower opsets; each is compared with the one before it and with the formula, computed
in double from attributes rounded to the element type and rounded once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relu_tools
from relu_tools.compare import is_float
from relu_tools.runners import CannotRun, judges
from relu_tools.trust import onnxruntime_misreads

NEWEST = onnx.defs.onnx_opset_version()
TYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
}


@dataclasses.dataclass(frozen=True)
class Rectifier:
    """An operator, values for its attributes, its formula and how far apart its forms may be.

    `ulps` is in representable values: 0 where each form rounds at most once, in the end; more where one does not round
    an attribute, or rounds a product on the way. `cancelled` is in halves of the distance from 1 to the number below,
    and comes on top: what is lost where a term of the size of 1 is rounded before the other one is taken off, as
    exp(x) is in the bodies of Elu, Selu and Celu.
    """

    op: str
    attributes: dict[str, float]
    formula: Callable[..., np.ndarray]
    ulps: int = 0
    cancelled: float = 0.0
    types: tuple[str, ...] = ("float16", "bfloat16")


def elu(x, alpha):
    return np.where(x < 0, alpha * np.expm1(x), x)


SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}
RECTIFIERS = [
    Rectifier("Relu", {}, lambda x: np.maximum(x, 0), types=tuple(TYPES)),
    Rectifier("ThresholdedRelu", {"alpha": 0.3}, lambda x, alpha: np.where(x > alpha, x, 0)),
    Rectifier("LeakyRelu", {"alpha": 0.3}, lambda x, alpha: np.where(x < 0, alpha * x, x), ulps=1),
    Rectifier("Elu", {"alpha": 0.7}, elu, 1, 0.71),
    # It multiplies by alpha first, where numbers lie twice as far apart.
    Rectifier("Selu", SELU, lambda x, alpha, gamma: gamma * elu(x, alpha), 2, 4),
    Rectifier("Celu", {"alpha": 0.7}, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x), 2, 0.71),
    Rectifier("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 1, 1),
]


def every_value(dtype: np.dtype) -> np.ndarray:
    return np.arange(1 << (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)


def forms(rectifier: Rectifier, dtype: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """What each is and the form itself."""
    element = TensorProto.DataType.Value(dtype.upper())

    def model(opset: int) -> onnx.ModelProto:
        node = helper.make_node(rectifier.op, ["x"], ["y"], **rectifier.attributes)
        infos = [helper.make_tensor_value_info(name, element, ["N"]) for name in "xy"]
        graph = helper.make_graph([node], "g", infos[:1], infos[1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    versions = [
        schema
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == rectifier.op and schema.domain == "" and f"tensor({dtype})" in schema.inputs[0].types
    ]
    for schema in sorted(versions, key=lambda schema: schema.since_version):
        yield f"version {schema.since_version}", model(schema.since_version)
    newest = model(NEWEST)
    if any(s.has_function or s.has_context_dependent_function for s in versions):
        yield "its function body", relu_tools.inline(newest, [rectifier.op]).model
    seen = set()
    for target in range(NEWEST - 1, 0, -1):
        try:
            converted = relu_tools.convert(newest, target, verify="off").model
        except relu_tools.ConversionError:
            continue
        operators = tuple(node.op_type for node in converted.graph.node)
        if operators not in seen:
            seen.add(operators)
            yield f"converted to {target}", converted


def results(model: onnx.ModelProto, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Of each judge by its name. Between nodes of float16 onnxruntime may keep more than the type holds."""
    makers = list(judges(model))
    for make in makers[-1:] if onnxruntime_misreads(model) or len(model.graph.node) > 1 else makers:
        try:
            judge = make()
            with np.errstate(all="ignore"):
                y = judge.run({"x": x})["y"]
            yield judge.name, y
        except CannotRun:
            continue


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Representable values from each element of one array to that of the other; NaN is next to NaN alone."""
    if not is_float(a.dtype):
        return np.abs(a.astype(int) - b.astype(int))
    bits = [v.view(np.int16).astype(int) for v in (a, b)]
    ordered = [np.where(v < 0, -(v & 0x7FFF), v) for v in bits]
    with np.errstate(invalid="ignore"):
        nan = [np.isnan(v.astype(np.float64)) for v in (a, b)]
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] != nan[1], 1 << 16, np.abs(ordered[0] - ordered[1])))


def near(a: np.ndarray, b: np.ndarray, rectifier: Rectifier) -> np.ndarray:
    if not is_float(a.dtype):
        return np.zeros(a.shape, bool)
    info = ml_dtypes.finfo(a.dtype)
    wide = [v.astype(np.float64) for v in (a, b)]
    allowed = rectifier.cancelled * float(info.epsneg) / 2 + rectifier.ulps * float(info.eps) * np.abs(wide[1])
    with np.errstate(all="ignore"):
        return np.abs(wide[0] - wide[1]) <= allowed * (rectifier.cancelled > 0)


CASES = [(rectifier, dtype) for rectifier in RECTIFIERS for dtype in rectifier.types]


@pytest.mark.parametrize(("rectifier", "dtype"), CASES, ids=[f"{r.op}-{dtype}" for r, dtype in CASES])
def test_each_form_against_the_next(rectifier: Rectifier, dtype: str) -> None:
    x = every_value(TYPES[dtype])
    attributes = [float(np.array(v).astype(TYPES[dtype])) for v in rectifier.attributes.values()]
    with np.errstate(all="ignore"):
        wanted = rectifier.formula(x.astype(np.float64), *attributes).astype(TYPES[dtype])
    before: dict[str, tuple[str, np.ndarray]] = {}
    for name, model in forms(rectifier, dtype):
        for judge, y in results(model, x):
            assert y.dtype == TYPES[dtype]
            for other, z in [("the formula", wanted), *([before[judge]] if judge in before else [])]:
                far = apart(y, z) > rectifier.ulps
                far[far] = ~near(y[far], z[far], rectifier)
                assert not far.any(), f"{name} by {judge} against {other}: {y[far][0]}, {z[far][0]} for {x[far][0]}"
            before[judge] = name, y
    assert before
