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


@pytest.mark.parametrize(
    ("opset", "line", "type_"),
    [
        (19, "t = Cast<to = 17, saturate = 0>(x)", "float8e4m3fn"),
        (19, "z = Cast<to = 17>(x) t = CastLike<saturate = 0>(x, z)", "float8e4m3fn"),
        (24, 'z = Cast<to = 24>(x) t = CastLike<round_mode = "down">(x, z)', "float8e8m0"),
    ],
)
def test_a_cast_to_a_type_that_is_not_born_is_refused_for_the_type(opset, line, type_):
    """Not for an attribute that concerns that type alone."""
    head = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[3] x) => (float[3] y)'
    model = onnx.parser.parse_model(f"{head} {{ {line} y = Cast<to = 1>(t) }}")
    with pytest.raises(relu_tools.ConversionError) as caught:
        relu_tools.convert(model, opset - 1)
    assert {refusal.reason for refusal in caught.value.refusals} == {f"no {type_} before opset {opset}"}
