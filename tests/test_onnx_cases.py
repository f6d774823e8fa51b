"""The node cases that the installed onnx generates, brought to other opsets: the outputs are those that come with them.

The default run takes a fixed sample of cases and opsets; the marker `slow` runs every case at every opset from 7 on.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import relu_tools
from relu_tools import ConversionError, schemas

# For the sample: each such case, at each such opset; two numbers without a common divisor.
STRIDE, OPSETS = 23, 5
TOLERANCE = {"float64": (1e-6, 1e-8), "float32": (1e-4, 1e-5), "float16": (2e-3, 1e-3), "bfloat16": (2e-2, 1e-3)}


@functools.cache
def cases():
    """Name, model, and its sets of inputs and outputs, in the order of the names."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return sorted((case.name, case.model, case.data_sets) for case in found if case.model is not None)


def by_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def by_reference(model, feeds):
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, feeds)


JUDGES = (by_onnxruntime, by_reference)


def close(a, b):
    if isinstance(a, list) or isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "OUSbiuc":
        return bool(np.array_equal(a, b)) if a.dtype.kind != "c" else np.allclose(a, b, 1e-3, 1e-5)
    rtol, atol = TOLERANCE.get(a.dtype.name, (1e-3, 1e-5))
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol, equal_nan=True)


def agrees(judge, model, data_sets):
    for inputs, outputs in data_sets:
        names = [i.name for i in model.graph.input]
        # A case may hold a scalar of numpy, which onnxruntime does not take.
        feeds = {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in zip(names, inputs, strict=False)}
        if not all(map(close, judge(model, feeds), outputs)):
            return False
    return True


def told(judge, model, data_sets):
    """Whether a judge finds the outputs of a model right; None where it cannot run it."""
    try:
        return agrees(judge, model, data_sets)
    except Exception:
        return None


def check(model, data_sets, target, is_sound):
    try:
        converted = relu_tools.convert_version(model, target)
    except ConversionError as error:
        assert error.refusals and all(refusal.reason for refusal in error.refusals)
        return
    onnx.checker.check_model(converted)
    # The first that can run it; one that gets the case wrong unconverted tells nothing.
    judge, right = next(((j, r) for j in JUDGES if (r := told(j, converted, data_sets)) is not None), (None, None))
    assert judge is not None, "no judge can run it"
    assert right or not is_sound(judge)


def pairs(every_case, every_opset):
    opsets = range(7, schemas.newest() + 1)
    for k in range(0, len(cases()), every_case):
        name, model, data_sets = cases()[k]
        own = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
        if own is not None:
            for target in [t for t in opsets if t != own][k % every_opset :: every_opset]:
                yield name, model, data_sets, target


def look(every_case, every_opset):
    """What is wrong, and how many were looked at. A case that the judges get wrong unconverted tells nothing."""
    wrong, count = [], 0

    @functools.cache
    def is_sound(name, judge):
        model, data_sets = models[name]
        return told(judge, model, data_sets) is True

    models = {name: (model, data_sets) for name, model, data_sets in cases()}
    for name, model, data_sets, target in pairs(every_case, every_opset):
        if not any(is_sound(name, judge) for judge in JUDGES):
            continue
        count += 1
        try:
            check(model, data_sets, target, functools.partial(is_sound, name))
        except Exception as error:
            wrong.append(f"{name} to {target}: {type(error).__name__}: {str(error)[:200]}")
    return wrong, count


def test_a_sample():
    wrong, count = look(STRIDE, OPSETS)
    assert count > 150 and wrong == []


@pytest.mark.slow
def test_every_case_at_every_opset():
    wrong, count = look(1, 1)
    assert count > 10_000 and wrong == []
