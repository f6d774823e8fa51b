"""The sample models are what models/make.py writes, are legal, and compute what they are said to compute."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

MODELS = Path(__file__).parents[1] / "models"

spec = importlib.util.spec_from_file_location("make", MODELS / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

pytestmark = pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")

DTYPES = {
    "float16": np.float16,
    "float": np.float32,
    "double": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
}
ELEMENTWISE = [name for name in make.MODELS if "relu_" in name]
VALUES = np.array([-100, -2.5, -1, 0, 1, 2, 2.5, 3, 100])


def session(name: str) -> onnxruntime.InferenceSession:
    model = onnx.load(MODELS / name)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_folder_holds_the_models_and_stays_small():
    committed = [*make.MODELS, "digits_test.npz"]
    assert sum((MODELS / name).stat().st_size for name in committed) < 2_000_000


@pytest.mark.parametrize("name", make.MODELS)
def test_is_legal(name):
    onnx.checker.check_model(onnx.load(MODELS / name), full_check=True)


@pytest.mark.parametrize("name", [name for name in make.MODELS if name != "digits.onnx"])
def test_is_what_make_writes(name, tmp_path):
    model = make.MODELS[name]()
    assert onnx.load(MODELS / name) == model
    make.write(model, tmp_path / name)
    assert onnx.load(tmp_path / name) == model


def test_write_refuses_what_does_not_read_back(tmp_path):
    with pytest.raises(RuntimeError, match="does not read back"):
        make.write(make.MODELS["functions.onnx"](), tmp_path / "functions.onnxtxt")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_each_schema_type_has_a_node(name):
    """All element types of the schema, but for relu_14_float, which has one."""
    model = onnx.load(MODELS / name)
    op_type, version = model.graph.node[0].op_type, model.opset_import[0].version
    schema = onnx.defs.get_schema(op_type, version)
    assert schema.since_version == version
    types = {f"tensor({kind})" for kind in DTYPES if any(i.name in ("x", f"x_{kind}") for i in model.graph.input)}
    admitted = set(schema.type_constraints[0].allowed_type_strs)
    assert {node.op_type for node in model.graph.node} == {op_type}
    assert types == admitted or name == "relu_14_float.onnxtxt"


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_values(name):
    model = onnx.load(MODELS / name)
    kinds = {value.name: DTYPES[value.name.removeprefix("x_")] for value in model.graph.input if value.name != "x"}
    feeds = {value: VALUES.astype(kind) for value, kind in (kinds or {"x": np.float32}).items()}
    results = ReferenceEvaluator(model).run(None, feeds)
    assert len(results) == len(model.graph.node)
    for node, result in zip(model.graph.node, results, strict=True):
        x = feeds[node.input[0]]
        threshold = 0 if node.op_type == "Relu" else 1 if node.output[0].endswith("_default") else 2.5
        assert result.dtype == x.dtype
        exact = x.astype(np.float64)
        np.testing.assert_array_equal(result.astype(np.float64), np.where(exact > threshold, exact, 0))


@pytest.mark.parametrize("signed", [False, True])
def test_control_descends(signed):
    rng = np.random.default_rng(0)
    dictionary = rng.standard_normal((5, 8)).astype(np.float32)
    signal, start = (rng.standard_normal(size).astype(np.float32) for size in (5, 8))
    rate, penalty, steps = np.array(0.02, np.float32), np.array(0.01, np.float32), np.array(7)
    feeds = {"dictionary": dictionary, "signal": signal, "start": start, "rate": rate, "penalty": penalty}
    code, misses = session("control.onnxtxt").run(None, {**feeds, "steps": steps, "signed": np.array(signed)})

    expected = start if signed else np.maximum(start, 0)
    for miss in misses:
        np.testing.assert_allclose(miss, dictionary @ expected - signal, rtol=1e-4, atol=1e-5)
        moved = expected - rate * dictionary.T @ (dictionary @ expected - signal)
        shrunk = np.maximum(np.abs(moved) - penalty, 0) * np.sign(moved)
        expected = shrunk if signed else np.maximum(shrunk, 0)
    assert len(misses) == steps
    np.testing.assert_allclose(code, expected, rtol=1e-4, atol=1e-5)
    assert signed == (code < 0).any()


def test_functions_values():
    x = np.array([-16, -8, -4, -0.75, -0.5, 0, 0.5, 0.75, 1, 1.5], np.float32)
    leaky, positive = session("functions.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(leaky, np.array([-2, 0, 0, 0, 0, 0, 0, 0, 0, 1.5], np.float32))
    np.testing.assert_array_equal(positive, np.array([0, 0, 0, 0, 0, 0, 0, 0.75, 1, 1.5], np.float32))


def test_digits_structure():
    model = onnx.load(MODELS / "digits.onnx")
    assert (model.ir_version, model.opset_import[0].version) == (7, 14)
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators.keys() >= {"Conv", "BatchNormalization", "Relu", "ThresholdedRelu", "Dropout", "Clip", "Softmax"}
    assert {value.name for value in model.graph.input} == {"image"}
    assert 20_000 < sum(np.prod(tensor.dims) for tensor in model.graph.initializer) < 60_000


def test_digits_accuracy_is_the_stated_one():
    with np.load(MODELS / "digits_test.npz") as test:
        image, digit = test["image"], test["digit"]
    assert (image.shape, image.dtype, digit.shape, digit.dtype) == ((360, 1, 8, 8), np.float32, (360,), np.int64)
    (probabilities,) = session("digits.onnx").run(["probabilities"], {"image": image})
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    correct = int((probabilities.argmax(1) == digit).sum())

    stated = {entry.key: entry.value for entry in onnx.load(MODELS / "digits.onnx").metadata_props}
    assert correct / 360 >= 0.975
    assert (stated["correct"], stated["accuracy"]) == (str(correct), f"{correct / 360:.4f}")
    assert f"{correct} of 360 test images right ({correct / 360:.1%})".replace("%", " %") in make.__doc__
