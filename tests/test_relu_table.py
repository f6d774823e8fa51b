"""The rectifiers on every opset: which operators stand there, legality, and numbers against numpy.

The judge is onnxruntime where it has the kernels, else the reference evaluator; opsets 1 to 6 are run by an
evaluator of the few operators that occur there, written from the specification.
"""

from __future__ import annotations

import functools
import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from relu_tools import ConversionError, convert_version

NEWEST = onnx.defs.onnx_opset_version()
NUMPY = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.uint32,
    "uint64": np.uint64,
}
FLOATS = ("float", "double", "float16", "bfloat16")
# How far a result may be from the formula computed in double and rounded once: relative, and near 0 absolute.
ROUNDING = {"float": 1e-6, "double": 4e-15, "float16": 2e-3, "bfloat16": 1.6e-2}


def model(op: str, dtype: str, opset: int, inputs: tuple[str, ...] = ("X",), shapes=(), **attributes) -> ModelProto:
    """A model of one node whose inputs all have one element type."""
    element = TensorProto.DataType.Value(dtype.upper())
    shapes = shapes or (["N"],) * len(inputs)
    infos = [helper.make_tensor_value_info(n, element, s) for n, s in zip(inputs, shapes, strict=True)]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["Y"], name=op, **attributes)],
        "g",
        infos,
        [helper.make_tensor_value_info("Y", element, shapes[0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def admitted(op: str, opset: int) -> list[str]:
    return sorted(t[7:-1] for t in onnx.defs.get_schema(op, opset, "").inputs[0].types)


def operators(converted: ModelProto) -> str:
    return " ".join(node.op_type for node in converted.graph.node if node.op_type != "Constant")


@functools.cache
def values(dtype: str) -> np.ndarray:
    """Every value of a small type; for the others what is special or extreme, and its neighbours."""
    kind = np.dtype(NUMPY[dtype])
    if kind.itemsize <= 2:
        return np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}").view(kind)
    if kind.kind in "iu":
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        near = {v + d for k in range(kind.itemsize * 8) for v in (2**k, -(2**k)) for d in (-1, 0, 1)}
        return np.array(sorted(v for v in near | {low, low + 1, high, high - 1, 0} if low <= v <= high), kind)
    limits = np.finfo(kind)
    small, large = (0, limits.smallest_subnormal, limits.tiny, limits.eps), (2**24 + 1, limits.max, np.inf, np.nan)
    positive = np.array([*small, 0.3, 0.5, 1, 1.5, 2, 2.5, 3, *large], kind)
    near = np.concatenate([np.nextafter(positive, kind.type(end)) for end in (0, 9)])
    return np.concatenate([positive, -positive, near, -near])


SELU_1 = {"alpha": 1.6732, "gamma": 1.0507}
SELU_6 = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


# --- judges --------------------------------------------------------------------------------
def run(converted: ModelProto, **feeds: np.ndarray) -> np.ndarray:
    opset = next(o.version for o in converted.opset_import if o.domain in ("", "ai.onnx"))
    if opset < 7:
        return run_old(converted, opset, feeds)
    result = run_onnxruntime(converted, feeds)
    if result is None:
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(converted).run(None, feeds)
    return result


def run_onnxruntime(converted: ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """None where onnxruntime knows the opset or a kernel not (bfloat16 arrays it does not take either)."""
    import onnxruntime as ort

    if any(feed.dtype == ml_dtypes.bfloat16 for feed in feeds.values()):
        return None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(converted.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # Anything else would be an invalid model.
        known = ("NOT_IMPLEMENTED", "official support for domain")
        assert any(words in str(error) for words in known), error
        return None
    return session.run(None, feeds)[0]


def run_old(converted: ModelProto, opset: int, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """Runs the operators of opset 1 to 6 that occur here as the specification of those versions has them."""
    known = dict(feeds) | {t.name: numpy_helper.to_array(t) for t in converted.graph.initializer}
    for node in converted.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [known[name] for name in node.input]
        with np.errstate(all="ignore"):
            known[node.output[0]] = OLD[node.op_type](opset, attributes, *inputs)
    return known[converted.graph.output[0].name]


def _cast(opset, attributes, x):
    to = attributes["to"]
    assert isinstance(to, bytes) == (opset < 6)
    number = TensorProto.DataType.Value(to.decode()) if isinstance(to, bytes) else to
    return x.astype(helper.tensor_dtype_to_np_dtype(number))


def _binary(function):
    def run(opset, attributes, a, b):
        if attributes.get("broadcast"):
            first = attributes.get("axis", a.ndim - b.ndim)
            assert a.shape[first : first + b.ndim] == b.shape or b.size == 1
            b = b.reshape((1,) * a.ndim) if b.size == 1 else b.reshape(b.shape + (1,) * (a.ndim - first - b.ndim))
        else:
            assert a.shape == b.shape, "before 7 nothing is broadcast unless it is said"
        assert a.dtype == b.dtype and (opset >= 6 or a.dtype.kind in "fb"), "before 6 only floats are computed with"
        return function(a, b)

    return run


def _unary(function, **defaults):
    def run(opset, attributes, *inputs):
        assert opset >= 6 or inputs[0].dtype.kind == "f", "before 6 only floats are computed with"
        if attributes.pop("consumed_inputs", None) is not None:
            assert opset < 6
        # Attributes are floats; what is rounded is the result.
        values = {k: float(np.float32(v)) for k, v in {**defaults, **attributes}.items()}
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
        return function(*wide, **values).astype(inputs[0].dtype)

    return run


def _prelu(x, slope):
    shape = slope.shape if slope.size == 1 else slope.shape + (1,) * (x.ndim - 2)
    return np.where(x < 0, x * slope.reshape(shape), x)


def _selu(x, alpha, gamma):
    return gamma * np.where(x <= 0, alpha * np.exp(x) - alpha, x)


OLD = {
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Clip": _unary(lambda x, min, max: np.clip(x, min, max), min=-3.4028234663852886e38, max=3.4028234663852886e38),
    "Constant": lambda _, attributes: numpy_helper.to_array(attributes["value"]),
    "Div": _binary(np.divide),
    "Elu": _unary(lambda x, alpha: np.where(x < 0, alpha * (np.exp(x) - 1), x), alpha=1.0),
    "Floor": lambda _, __, x: np.floor(x),
    "Greater": _binary(np.greater),
    "Identity": lambda _, __, x: x,
    "LeakyRelu": _unary(lambda x, alpha: np.where(x < 0, alpha * x, x), alpha=0.01),
    "Less": _binary(np.less),
    "Mul": _binary(np.multiply),
    "Neg": lambda _, __, x: -x,
    "Not": lambda _, __, x: np.logical_not(x),
    "Or": _binary(np.logical_or),
    "PRelu": _unary(_prelu),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Reshape": lambda opset, attributes, x, *shape: x.reshape(attributes["shape"] if opset < 5 else shape[0]),
    "Squeeze": lambda _, attributes, x: np.squeeze(x, tuple(attributes["axes"])),
    "Sub": _binary(np.subtract),
    # At 1 the defaults were shorter; what says nothing is at them.
    "Selu": lambda opset, attributes, x: _unary(_selu, **(SELU_1 if opset < 6 else SELU_6))(opset, attributes, x),
}


def check_equal(result: np.ndarray, expected: np.ndarray) -> None:
    """Equal, NaN where NaN is expected; the two zeros are one."""
    assert result.dtype == expected.dtype
    if expected.dtype.kind in "iu":
        np.testing.assert_array_equal(result, expected)
    else:
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def check_no_bfloat16(source: ModelProto, target: int) -> None:
    """Refused for the model's interface and the node, and for the type alone."""
    with pytest.raises(ConversionError) as caught:
        convert_version(source, target)
    assert all(refusal.reason.endswith(NO_BFLOAT16) for refusal in caught.value.refusals)
    assert {"X", "Y", source.graph.node[0].name} <= {refusal.node for refusal in caught.value.refusals}


# --- Relu ----------------------------------------------------------------------------------
NO_BFLOAT16 = "no bfloat16 before opset 13"
NO_INT64 = "there is no int64 arithmetic before opset 6"
# What stands there from a target on, Constants aside, or the reason for the refusal.
TABLE = {
    "float": {1: "Relu"},
    "double": {1: "Relu"},
    "float16": {1: "Relu"},
    "bfloat16": {1: NO_BFLOAT16, 13: "Relu"},
    "int8": {1: "Cast Relu Cast", 12: "Max", 14: "Relu"},
    "int16": {1: "Cast Relu Cast", 14: "Relu"},
    "int32": {1: "Cast Relu Cast", 12: "Max", 14: "Relu"},
    "int64": {
        1: NO_INT64,
        6: "Cast Clip Cast Mul",
        7: "Cast Greater Cast Mul",
        9: "Greater Where",
        12: "Max",
        14: "Relu",
    },
}
THROUGH = {"int8": TensorProto.FLOAT, "int16": TensorProto.FLOAT, "int32": TensorProto.DOUBLE}


def forms(dtype: str) -> list[int]:
    """The versions of Relu that admit a type."""
    return [
        version
        for version in (1, 6, 13, 14)
        if f"tensor({dtype})" in onnx.defs.get_schema("Relu", version, "").inputs[0].types
    ]


def relu(dtype: str, opset: int) -> ModelProto:
    return model("Relu", dtype, opset, **({"consumed_inputs": [0]} if opset == 1 else {}))


@pytest.mark.parametrize("target", range(1, NEWEST + 1))
@pytest.mark.parametrize("dtype", TABLE)
def test_relu(dtype, target):
    expected = TABLE[dtype][max(start for start in TABLE[dtype] if start <= target)]
    with np.errstate(invalid="ignore"):
        expected_values = np.maximum(values(dtype), NUMPY[dtype](0))
    for form in forms(dtype):
        source = relu(dtype, form)
        if expected in (NO_BFLOAT16, NO_INT64):
            with pytest.raises(ConversionError) as caught:
                convert_version(source, target)
            assert {refusal.reason for refusal in caught.value.refusals} == {expected}
            continue
        converted = convert_version(source, target)
        onnx.checker.check_model(converted, full_check=target >= 7)
        assert [(o.domain, o.version) for o in converted.opset_import] == [("", target)]
        assert operators(converted) == expected
        hints = [a.name for node in converted.graph.node for a in node.attribute if a.name == "consumed_inputs"]
        assert hints == (["consumed_inputs"] if form == target == 1 or (form == 1 and target < 6) else [])
        check_equal(run(converted, X=values(dtype)), expected_values)


@pytest.mark.parametrize("dtype", THROUGH)
@pytest.mark.parametrize("target", [1, 6, 7, 11])
def test_relu_goes_through_a_float_that_holds_the_integers(dtype, target):
    into = convert_version(relu(dtype, 14), target).graph.node[0].attribute[0]
    word = TensorProto.DataType.Name(THROUGH[dtype])
    assert helper.get_attribute_value(into) == (word.encode() if target < 6 else THROUGH[dtype])


def test_the_table_has_every_element_type_of_the_schemas():
    assert set(admitted("Relu", NEWEST)) == set(TABLE)


# --- ThresholdedRelu -----------------------------------------------------------------------
def thresholded(x: np.ndarray, alpha: float) -> np.ndarray:
    """X where it is greater than alpha, rounded to the element type, else 0."""
    with np.errstate(invalid="ignore"):
        return np.where(x > np.asarray(alpha).astype(x.dtype), x, np.zeros_like(x))


KNOWN = [
    (2.0, [[-1, 0, 1], [2, 2.5, 3]], [[0, 0, 0], [0, 2.5, 3]]),
    (None, [[-1, 0, 0.5], [1, 1.5, 2]], [[0, 0, 0], [0, 1.5, 2]]),
    (2.0, np.full((3, 4, 5), 3.0), np.full((3, 4, 5), 3.0)),
]


def thresholded_relu(dtype: str, opset: int, alpha: float | None, shape=("N",)) -> ModelProto:
    """At opset 7 the operator is experimental: no schema knows it."""
    return model("ThresholdedRelu", dtype, opset, shapes=(list(shape),), **({} if alpha is None else {"alpha": alpha}))


def check_thresholded_relu(source: ModelProto, target: int, x: np.ndarray, expected: np.ndarray) -> None:
    converted = convert_version(source, target)
    if target >= 10 or source.opset_import[0].version == target:
        assert converted.graph.node[:] == source.graph.node[:]
    else:
        assert "ThresholdedRelu" not in operators(converted)
    if target < 10 and source.opset_import[0].version == target:
        return
    onnx.checker.check_model(converted, full_check=True)
    # Some runtimes compare a float16 to an alpha that they have not rounded: a node that stayed is not theirs to judge.
    if target < 10 or x.dtype != np.float16:
        check_equal(run(converted, X=x), expected)


@pytest.mark.parametrize("source", [s for s in (7, 10, 22) if s <= NEWEST])
@pytest.mark.parametrize("target", range(7, NEWEST + 1))
def test_thresholded_relu_known_values(source, target):
    for (alpha, x, expected), dtype in itertools.product(KNOWN, ("float", "double", "float16")):
        original = thresholded_relu(dtype, source, alpha, np.shape(x))
        check_thresholded_relu(original, target, np.array(x, NUMPY[dtype]), np.array(expected, NUMPY[dtype]))


@pytest.mark.parametrize("source", [s for s in (7, 10, 22) if s <= NEWEST])
@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("alpha", [0.3, -0.3, 0.0, 60000.0])
def test_thresholded_relu_special_values(source, dtype, alpha):
    """NaN gives 0, infinity comes through, and a value next to alpha shows how alpha is rounded."""
    x = values(dtype)
    assert np.isnan(x).any() and np.isposinf(x).any()
    for target in (7, 8, 9, 10, 21, NEWEST):
        check_thresholded_relu(thresholded_relu(dtype, source, alpha), target, x, thresholded(x, np.float32(alpha)))


@pytest.mark.skipif(NEWEST < 22, reason="ThresholdedRelu takes bfloat16 from opset 22 on")
@pytest.mark.parametrize("target", range(1, NEWEST + 1))
def test_thresholded_relu_bfloat16(target):
    source = thresholded_relu("bfloat16", 22, 0.3)
    if target < 13:
        check_no_bfloat16(source, target)
        return
    converted = convert_version(source, target)
    onnx.checker.check_model(converted)
    assert operators(converted) == ("ThresholdedRelu" if target >= 22 else "Cast ThresholdedRelu Cast")
    if target < 22:
        check_equal(run(converted, X=values("bfloat16")), thresholded(values("bfloat16"), 0.3))


# --- LeakyRelu, Elu, Selu, Celu, PRelu -----------------------------------------------------
def _elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(x))


# The formula on doubles, and the attributes' defaults.
FORMULAS = {
    "LeakyRelu": (lambda x, alpha: np.where(x < 0, alpha * x, x), {"alpha": 0.01}),
    "Elu": (_elu, {"alpha": 1.0}),
    "Selu": (lambda x, alpha, gamma: gamma * _elu(x, alpha), SELU_6),
    "Celu": (lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)), {"alpha": 1.0}),
}
GIVEN = {"alpha": 1.5, "gamma": 2.5}
SCHEMAS = onnx.defs.get_all_schemas_with_history()
BIRTHS = {op: sorted(s.since_version for s in SCHEMAS if s.name == op) for op in (*FORMULAS, "PRelu")}
TARGETS = sorted({t for births in BIRTHS.values() for b in births for t in (b - 1, b) if t} | {7, 13, NEWEST})


CASES = [
    (op, source, dtype, given)
    for op in FORMULAS
    for source in BIRTHS[op]
    for dtype in admitted(op, source)
    for given in (False, True)
]


@pytest.mark.parametrize(("op", "source", "dtype", "given"), CASES)
def test_rectifiers(op, source, dtype, given):
    formula, defaults = FORMULAS[op]
    if (op, source) == ("Selu", 1):
        defaults = SELU_1
    attributes = {name: GIVEN[name] for name in defaults} if given else {}
    x = np.array([-np.inf, -40, -3, -1.5, -0.3, -1e-3, -0.0, 0, 1e-3, 0.3, 1, 1.5, 3, 40, np.inf, np.nan], NUMPY[dtype])
    # An attribute is a float.
    rounded = {name: float(np.float32(value)) for name, value in (attributes or defaults).items()}
    with np.errstate(all="ignore"):
        expected = formula(x.astype(np.float64), **rounded)
    for target in TARGETS:
        original = model(op, dtype, source, shapes=([16],), **attributes)
        if dtype == "bfloat16" and target < 13:
            check_no_bfloat16(original, target)
            continue
        converted = convert_version(original, target)
        onnx.checker.check_model(converted, full_check=target >= 7)
        if dtype == "bfloat16" and converted.graph.node[:] == original.graph.node[:]:
            continue  # who computes in bfloat16 rounds at every step, as closely as the runtime cares to
        result = run(converted, X=x)
        assert result.dtype == x.dtype
        scale = ROUNDING[dtype]
        np.testing.assert_allclose(
            result.astype(np.float64), expected, rtol=scale, atol=scale * 1e-1, equal_nan=True, err_msg=f"to {target}"
        )


@pytest.mark.parametrize("op", ["LeakyRelu", "PRelu", "Elu", "Selu"])
@pytest.mark.parametrize("target", [6, 7, NEWEST])
def test_the_memory_hint_is_dropped_going_up(op, target):
    inputs = ("X", "slope") if op == "PRelu" else ("X",)
    shapes = ([2, 3], [3])[: len(inputs)]
    converted = convert_version(model(op, "float", 1, inputs, shapes, consumed_inputs=[0]), target)
    assert [n.op_type for n in converted.graph.node] == [op]
    assert "consumed_inputs" not in [a.name for a in converted.graph.node[0].attribute]


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Elu", "Selu"])
def test_the_memory_hint_is_not_put_back(op):
    (node,) = convert_version(model(op, "float", 6), 1).graph.node
    assert "consumed_inputs" not in [a.name for a in node.attribute]


@pytest.mark.parametrize(
    ("source", "dtype"), [(source, dtype) for source in BIRTHS["PRelu"] for dtype in admitted("PRelu", source)]
)
def test_prelu(source, dtype):
    """One slope for each channel, which every version can say: before 7 in one dimension, then with trailing ones."""
    channels = np.array([0.25, 2.5, -1.5] if dtype in FLOATS else [2, 3, 0], NUMPY[dtype])
    x = values(dtype)
    with np.errstate(invalid="ignore"):
        x = np.resize(x[np.abs(x.astype(np.float64)) < 1e4] if dtype in FLOATS else x, (2, 3, 10, 8))
    wide = channels.reshape(3, 1, 1)
    slope = channels if source < 7 else wide
    with np.errstate(all="ignore"):
        expected = np.where(x < 0, (wide * x).astype(x.dtype), x)
    for target in TARGETS:
        original = model("PRelu", dtype, source, ("X", "slope"), (list(x.shape), list(slope.shape)))
        # Halves of an int32 are multiplied in double; before 6 there is nothing for an int64.
        reasons = {"bfloat16": (13, NO_BFLOAT16), "int64": (6, "int64")}
        first, reason = reasons.get(dtype, (1, ""))
        if target < first:
            with pytest.raises(ConversionError, match=reason):
                convert_version(original, target)
            continue
        converted = convert_version(original, target)
        onnx.checker.check_model(converted, full_check=target >= 7)
        check_equal(run(converted, X=x, slope=slope), expected)


def test_every_rectifier_of_the_schemas_is_here():
    for op, dtypes in itertools.product(BIRTHS, [FLOATS]):
        newest = admitted(op, NEWEST)
        assert set(newest) <= set(NUMPY), op
        if op != "Celu" or NEWEST >= 28:
            assert set(dtypes) <= set(newest)


def test_the_judges_are_told_apart():
    """The evaluator of old opsets objects to what was not said then."""
    source = model("Mul", "float", 6, ("X", "B"), ([2, 3], [3]))
    with pytest.raises(AssertionError, match="nothing is broadcast"):
        run(source, X=np.ones((2, 3), np.float32), B=np.ones(3, np.float32))
