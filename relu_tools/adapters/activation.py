"""Steps of the activations in ONNX's defs/math: the rectifiers and their kin, Softmax and its like."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import FLOATS, KEEP, adapter, body, same
from relu_tools.adapters.logical import lay
from relu_tools.report import RefusedError

same("Relu", 1, 6, 13, 14)
same("LeakyRelu", 1, 6, 16)
same("PRelu", 1, 6, 7, 9, 16)
same("Elu Selu HardSigmoid", 1, 6, 22)
same("Softplus Softsign", 1, 22)
same("ThresholdedRelu", 10, 22)
same("Celu", 12, 28)
same("HardSwish", 14, 22)
same("Mish", 18, 22)
same("Sigmoid Tanh", 1, 6, 13)
same("Softmax LogSoftmax Hardmax", 1, 11)


@adapter("Relu", 14, 13)
def relu(op, X):
    """14 adds the signed integers.

    Max with 0 is the same where it takes integers; before that a float type that holds the integers is. An int64
    keeps its sign as a double, so a mask of 0 and 1 from there times X is the same.
    """
    dtype = op.dtype(X)
    if dtype in FLOATS:
        return KEEP
    # No runtime has a Max for int16.
    if dtype != T.INT16 and op.version("Max") >= 12:
        return op.Max(X, op.like(0, X))
    if dtype != T.INT64:
        wide = T.DOUBLE if dtype == T.INT32 else T.FLOAT
        return op.Cast(op.Relu(op.Cast(X, to=wide)), to=dtype)
    if op.version("Where"):
        return op.Where(op.Greater(X, op.like(0, X)), X, op.like(0, X))
    if op.version("Mul") < 6:
        raise RefusedError("there is no int64 arithmetic before opset 6")
    sign = op.Cast(X, to=T.DOUBLE)
    if op.version("Greater") >= 7:
        mask = op.Greater(sign, np.float64(0))
    else:
        mask = op.Clip(sign, np.float64(0), np.float64(1))
    return op.Mul(op.Cast(mask, to=T.INT64), X)


@adapter("ThresholdedRelu", 10, None)
def thresholded_relu(op, X, *, alpha):
    """10 is its first version.

    It is X where X is greater than alpha, rounded to the element type, else 0; a NaN is not greater.
    """
    above = _is_above(op, X, alpha) if np.isfinite(alpha) else op.Greater(X, op.like(alpha, X))
    return op.Where(above, X, op.like(0, X))


def _is_above(op, x, bound):
    """Whether x is greater than a finite bound. Onnx's own converter has no way up for comparisons from below 7."""
    if op.version("Greater") >= 7:
        return op.Greater(x, op.like(bound, x))
    # A difference of unequal floats is never 0, and exp(-|x|) is a number unless x is none.
    difference = op.Relu(op.Sub(x, op.like(bound, x)))
    finite = op.Exp(op.Neg(op.Abs(x)))
    is_number = op.Not(op.Cast(op.Sub(finite, finite), to=T.BOOL))
    both = [op.Cast(part, to=T.FLOAT) for part in (op.Cast(difference, to=T.BOOL), is_number)]
    return op.Cast(op.Mul(*both), to=T.BOOL)


@adapter("ThresholdedRelu", 22, 10)
@adapter("LeakyRelu", 16, 6, accuracy="rounding")
@adapter("Elu", 22, 6, accuracy="rounding")
@adapter("Celu", 28, 12, accuracy="rounding")
def in_float(op, X, *, alpha):
    """The newer version adds bfloat16 (Celu: the other float types as well).

    The attribute is rounded to bfloat16 as the function body does it; float holds every bfloat16, and the result is
    rounded once. Celu is computed as below its birth.
    """
    dtype = op.dtype(X)
    if op.type == "Celu" and dtype != T.FLOAT:
        return _celu(op, X, alpha)
    if dtype != T.BFLOAT16:
        return KEEP
    return op.Cast(op.again(op.Cast(X, to=T.FLOAT), alpha=_rounded(alpha)), to=dtype)


@adapter("Selu HardSigmoid", 22, 6, accuracy="rounding")
def in_float_with_two(op, X, **attributes):
    """22 adds bfloat16.

    The attributes are rounded to it as the function body does; float holds every bfloat16, the result is rounded once.
    """
    if op.dtype(X) != T.BFLOAT16:
        return KEEP
    wide = op.again(op.Cast(X, to=T.FLOAT), **{name: _rounded(value) for name, value in attributes.items()})
    return op.Cast(wide, to=T.BFLOAT16)


def _rounded(value: float) -> float:
    return float(np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(T.BFLOAT16)))


@adapter("Celu", 12, None, accuracy="rounding")
@body("Celu", 12, 28)
def celu(op, X, *, alpha):
    """12 is its first version.

    It is X above 0, and below alpha times (exp(X / alpha) - 1), which is an Elu where alpha is above 0.
    """
    return _celu(op, X, alpha)


def _celu(op, X, alpha):
    # The function body, alpha times the Elu of X / alpha, overflows above 0 and does not hold for an alpha below 0.
    below = op.Div(op.Neg(op.Relu(op.Neg(X))), op.like(alpha, X))
    curve = op.Elu(below, alpha=1.0) if alpha > 0 else op.Sub(op.Exp(below), op.like(1, X))
    return op.Add(op.Relu(X), op.Mul(op.like(alpha, X), curve))


@adapter("PRelu", 9, 7, opset=9)
def prelu_integers(op, X, slope):
    """9 adds integers.

    The function body computes them; an unsigned integer is never below 0.
    """
    dtype = op.dtype(X)
    if dtype in FLOATS:
        return KEEP
    if dtype in (T.UINT32, T.UINT64):
        return op.Identity(X)
    return op.Where(op.Less(X, op.like(0, X)), op.Mul(slope, X), X)


@adapter("PRelu", 6, 7)
def prelu_channels(op, X, slope):
    """6 has one slope for each channel or one for all, 7 broadcasts it as numpy does.

    A slope of one dimension gets as many trailing dimensions as X has after the channels.
    """
    shape = op.shape(slope)
    if len(shape) != 1 or shape == [1] or op.rank(X) <= 2:
        return KEEP
    return op.PRelu(X, op.Unsqueeze(slope, axes=list(range(1, op.rank(X) - 1))))


@adapter("PRelu", 7, 6)
def prelu_to_channels(op, X, slope):
    """7 broadcasts the slope as numpy does, 6 has one for each channel or one for all.

    A slope that varies along the channels alone loses its dimensions of 1. Any other is given X's shape, and X
    multiplied by its power of 1 where X is negative and of 0 where not, which is 1 whatever the slope.
    """
    shape = op.shape(slope)
    if all(dim == 1 for dim in shape):
        return KEEP if len(shape) == 1 else op.PRelu(X, op.Reshape(slope, np.array([1])))
    aligned = [1] * (op.rank(X) - len(shape)) + shape
    if any(dim != 1 for k, dim in enumerate(aligned) if k != 1):
        zeros = op.Cast(op.Less(X, X), to=op.dtype(X))
        slope = lay(op, op.Add, zeros, slope, op.shape(X), shape)
        return op.Mul(op.Pow(slope, op.Cast(op.Less(X, zeros), to=op.dtype(X))), X)
    return KEEP if len(shape) == 1 else op.PRelu(X, op.Reshape(slope, np.array([-1])))


# --- Softmax -------------------------------------------------------------------------------
@adapter("Softmax LogSoftmax Hardmax", 11, 13, opset=14)
def softmax(op, input, *, axis):
    """11 works over all axes from `axis` on, taken together, 13 over one axis.

    Flattening makes them one axis; there is no need where `axis` is the last one.
    """
    shape = op.known_shape(input)
    if axis == -1 or (shape is not None and axis == len(shape) - 1):
        return op.again(input, axis=axis)
    flat = op.again(op.Flatten(input, axis=axis), axis=-1)
    # A size may be 0, which Reshape without allowzero takes for a copy.
    full = shape is not None and all(isinstance(dim, int) and dim > 0 for dim in shape)
    return op.Reshape(flat, op.Shape(input), allowzero=None if full else 1)


@adapter("Softmax LogSoftmax Hardmax", 13, 11)
def softmax_flattened(op, input, *, axis):
    """13 works over one axis, 11 over all axes from `axis` on, taken together.

    The axis is moved to the end, where both are the same.
    """
    if axis == -1 or axis == op.rank(input) - 1:
        return op.again(input, axis=axis)
    rank = op.rank(input)
    perm = list(range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return op.Transpose(op.again(op.Transpose(input, perm=perm), axis=-1), perm=perm)


@adapter("Softmax LogSoftmax Hardmax", 11, 1)
def softmax_axis(op, input, *, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.again(input, axis=axis + op.rank(input))
