"""Functions of one number below the opsets that have them, against numpy in its widest float.

No runtime has opset 6, so what comes out is brought up again, by steps that leave these operators alone.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx.parser
import pytest

import relu_tools
from relu_tools.report import BOUNDS

FUNCTIONS = {"Acos": np.arccos, "Asin": np.arcsin, "Atan": np.arctan}
TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}


def numbers(dtype) -> np.ndarray:
    """All there are of float16; of wider floats some of every size, more near 1, and the special ones."""
    if dtype == np.float16:
        return np.arange(2**16, dtype=np.uint16).view(np.float16)
    sizes = np.concatenate([np.logspace(-320, 300, 5000), 1 - np.logspace(-17, 0, 2000), 1 + np.logspace(-16, 1, 500)])
    special = [0.0, 1.0, np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max]
    random = np.random.default_rng(0).uniform(0, 1, 20000)
    with np.errstate(over="ignore"):
        found = np.concatenate([sizes, special, random]).astype(dtype)
    return np.concatenate([found, -found])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_inverse_trigonometric(op, name):
    import onnxruntime

    text = f'<ir_version: 4, opset_import: ["" : 9]> g ({name}[N] x) => ({name}[N] y) {{ y = {op}(x) }}'
    low = relu_tools.convert_version(onnx.parser.parse_model(text), 6)
    assert op not in {node.op_type for node in low.graph.node}
    model = relu_tools.convert_version(low, 13)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = numbers(TYPES[name])
    (got,) = session.run(None, {"x": x})
    with np.errstate(all="ignore"):
        want = FUNCTIONS[op](x.astype(np.longdouble)).astype(x.dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])
        apart = np.abs(got.astype(np.longdouble) - want) / np.spacing(np.abs(want))
    assert apart[number].max() <= BOUNDS["rounding"][x.dtype == np.float16]
    if name != "double":
        assert apart[number].max() <= 1  # double leaves digits to spare


def test_constants_that_overflow_are_no_warnings():
    """The default of Clip 6 is more than a float16 holds."""
    text = '<ir_version: 7, opset_import: ["": 6]> g (float16[3] x) => (float16[3] y) { y = Clip<max = 1.0>(x) }'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relu_tools.convert(onnx.parser.parse_model(text), 12, verify="off")
