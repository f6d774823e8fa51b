"""Steps of the other operators in ONNX's defs/math: unary functions, Max and its like, Clip."""

from __future__ import annotations

import math

import numpy as np

from relu_tools.adapters import KEEP, WIDE_INTEGERS, adapter, same

same("Max Min", 1, 6, 8, 12, 13)
same("Sum Mean", 1, 6, 8, 13)
same("Abs Ceil Exp Floor Log Neg Reciprocal Sqrt", 1, 6, 13)
same("Erf Sign", 9, 13)
same("Sin Cos Tan Asin Acos Atan", 7, 22)
same("Sinh Cosh Asinh Acosh Atanh", 9, 22)
same("Clip", 1, 6, 11, 12, 13)


# --- Max and its like ------------------------------------------------------------------------
@adapter("Max Min Mean Sum", 8, 6)
def same_shapes(op, *data_0):
    """8 broadcasts as numpy does, before it all operands have one shape.

    Adding a zero of the other operands' shapes gives an operand the result's shape; that zero is `x < x`, which is
    false for NaN too. Sum and Mean add one by one.
    """
    shapes = [op.known_shape(x) for x in data_0]
    if len(data_0) == 1 or all(s is not None and s == shapes[0] and None not in s for s in shapes):
        return KEEP
    if op.type in ("Sum", "Mean"):
        total = data_0[0]
        for x in data_0[1:]:
            total = op.Add(total, x)
        if op.type == "Sum":
            return total
        op.rounds()  # some divide, some multiply by the reciprocal
        return op.Div(total, op.like(len(data_0), data_0[0]))
    dtype = op.dtype(data_0[0])
    zeros = [op.Cast(op.Less(x, x), to=dtype) for x in data_0]
    spread = []
    for x in data_0:
        for other, zero in zip(data_0, zeros, strict=True):
            if other != x:
                x = op.Add(x, zero)
        spread.append(x)
    return op.again(*spread)


@adapter("Max Min", 12, 8)
def extremes(op, *data_0):
    """12 adds integers.

    A comparison chooses between 64-bit ones; smaller ones fit into a double.
    """
    if op.dtype(data_0[0]) not in WIDE_INTEGERS:
        return KEEP
    compare = op.Greater if op.type == "Max" else op.Less
    result = data_0[0]
    for x in data_0[1:]:
        result = op.Where(compare(result, x), result, x)
    return result


# --- Clip ------------------------------------------------------------------------------
FLOAT_LIMIT = float(np.finfo(np.float32).max)


@adapter("Clip", 1, 6)
def clip_without_bounds(op, input, *, min, max):
    """1 applies a bound that is given, 6 has the limits of float for one that is not.

    Infinity is a bound for none.
    """
    if min is not None and max is not None:
        return KEEP
    return op.Clip(input, min=-math.inf if min is None else min, max=math.inf if max is None else max)


@adapter("Clip", 6, 11)
def clip_inputs(op, input, *, min, max):
    """6 has the bounds as attributes, by default the limits of float; 11 has them as inputs.

    They become constants of the input's type, the limits too: an infinity is clipped to them.
    """
    return op.Clip(input, op.like(min, input), op.like(max, input))


@adapter("Clip", 11, 6)
def clip_attributes(op, input, min, max):
    """11 has the bounds as inputs, 6 as attributes of type float.

    Constants that a float holds become attributes; other bounds are applied by Max and Min.
    """
    limits = np.finfo(op.like(0, input).dtype)
    attributes = {}
    for name, value, limit in (("min", min, limits.min), ("max", max, limits.max)):
        known = op.known(value) if value else limit
        attributes[name] = math.nan if known is None else float(np.asarray(known).reshape(-1)[0])
    held = all(abs(bound) <= FLOAT_LIMIT and float(np.float32(bound)) == bound for bound in attributes.values())
    # With the bounds crossed 11 gives the maximum, and 6 says nothing.
    if held and attributes["min"] <= attributes["max"]:
        defaults = {"min": -FLOAT_LIMIT, "max": FLOAT_LIMIT}
        return op.Clip(input, **{name: v for name, v in attributes.items() if v != defaults[name]})
    result = op.Max(input, min or op.like(limits.min, input))
    return op.Min(result, max or op.like(limits.max, input))


@adapter("Clip", 12, 11, opset=12)
def clip_integers(op, input, min, max):
    """12 adds integers.

    Smaller ones fit into a float or double; 64-bit ones go by Max and Min.
    """
    if op.dtype(input) not in WIDE_INTEGERS:
        return KEEP
    result = op.Max(input, min) if min else input
    return op.Min(result, max) if max else result
