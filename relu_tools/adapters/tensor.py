"""Steps of the other operators in ONNX's defs/tensor: Identity, Where, Concat, Transpose."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

ARITHMETIC = (T.INT32, T.INT64, T.UINT32, T.UINT64)

same("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
same("Concat", 1, 4, 11, 13)
same("Transpose", 1, 13, 21, 23, 24, 25)
same("Where", 9, 16)


@adapter("Identity", 14, 13)
def identity_of_sequence(op, input):
    """14 takes sequences too.

    An element that is put in front and taken away again leaves the sequence as it was.
    """
    text = op.text(input)
    if not text.startswith("seq("):
        return KEEP
    dtype = helper.tensor_dtype_to_np_dtype(T.DataType.Value(text[len("seq(tensor(") : -2].upper()))
    element = np.array("", object) if dtype.kind == "O" else np.zeros((), dtype)
    return op.SequenceErase(op.SequenceInsert(input, element, np.int64(0)), np.int64(0))


@adapter("Concat", 1, 4)
def concat_default_axis(op, *inputs, axis):
    """1 lets the axis be left out for 1, 4 requires it.

    It is written out.
    """
    return KEEP if axis is not None else op.Concat(*inputs, axis=1)


@adapter("Concat", 11, 4)
def concat_axis(op, *inputs, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.Concat(*inputs, axis=axis + op.rank(inputs[0]))


@adapter("Where", 9, None, opset=9)
def where(op, condition, X, Y):
    """9 is its first version.

    With m as 1 where the condition holds and n = 1 - m, X to the power of m is X or 1, and 1 even for NaN and infinity,
    so that X^m - n + Y^n - m chooses; integers are multiplied by m and n.
    """
    dtype = op.dtype(X)
    if dtype == T.BOOL:
        return op.Or(op.And(condition, X), op.And(op.Not(condition), Y))
    if dtype in ARITHMETIC:
        m, n = op.Cast(condition, to=dtype), op.Cast(op.Not(condition), to=dtype)
        chosen = op.Mul(X, m)
        return chosen if _is_zero(op, Y) else op.Add(chosen, op.Mul(Y, n))
    if dtype in (T.FLOAT, T.DOUBLE):
        m, n = op.Cast(condition, to=dtype), op.Cast(op.Not(condition), to=dtype)
        chosen = op.Sub(op.Pow(X, m), n)
        return chosen if _is_zero(op, Y) else op.Add(chosen, op.Sub(op.Pow(Y, n), m))
    wide = {T.FLOAT16: T.FLOAT, T.INT8: T.INT32, T.INT16: T.INT32, T.UINT8: T.INT32, T.UINT16: T.INT32}.get(dtype)
    if wide is None:
        raise RefusedError(
            f"before 9 there is no Where, and nothing else chooses between {T.DataType.Name(dtype).lower()}"
        )
    return op.Cast(op.Where(condition, op.Cast(X, to=wide), op.Cast(Y, to=wide)), to=dtype)


def _is_zero(op, value) -> bool:
    known = op.known(value)
    return known is not None and known.shape == () and not known.any()
