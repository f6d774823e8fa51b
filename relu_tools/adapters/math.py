"""Steps of the operators in ONNX's defs/math and defs/logical: elementwise, activations, Softmax, Gemm."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
WIDE_INTEGERS = (T.INT64, T.UINT64)
LARGEST_EXACT = 2**53  # up to here every integer is a double

same("Relu", 1, 6, 13, 14)
same("LeakyRelu", 1, 6, 16)
same("PRelu", 1, 6, 7, 9, 16)
same("Elu Selu HardSigmoid", 1, 6, 22)
same("Softplus Softsign", 1, 22)
same("ThresholdedRelu", 10, 22)
same("Celu", 12, 28)
same("Add Sub Mul Div", 1, 6, 7, 13, 14)
same("Max Min", 1, 6, 8, 12, 13)
same("Sum Mean", 1, 6, 8, 13)
same("Abs Ceil Exp Floor Log Neg Reciprocal Sigmoid Sqrt Tanh", 1, 6, 13)
same("Erf Sign", 9, 13)
same("Sin Cos Tan Asin Acos Atan", 7, 22)
same("Sinh Cosh Asinh Acosh Atanh", 9, 22)
same("MatMul", 1, 9, 13)
same("Gemm", 1, 6, 7, 9, 11, 13)
same("Clip", 1, 6, 11, 12, 13)
same("Softmax LogSoftmax Hardmax", 1, 11)
same("Greater Less", 1, 7, 9, 13)
same("Equal", 1, 7, 11, 13, 19)
same("And Or Xor", 1, 7)
same("LessOrEqual GreaterOrEqual", 12, 16)
same("Pow", 1, 7)


# --- rectifiers --------------------------------------------------------------------------
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
    return op.Where(op.Greater(X, op.like(alpha, X)), X, op.like(0, X))


@adapter("ThresholdedRelu", 22, 10)
@adapter("LeakyRelu", 16, 6)
@adapter("Elu", 22, 6)
@adapter("Celu", 28, 12)
def in_float(op, X, *, alpha):
    """The newer version adds bfloat16 (Celu: the other float types as well).

    The attribute is rounded to bfloat16 as the function body does it; float holds every bfloat16, and the result is
    rounded once. Celu is its function body in Elu.
    """
    dtype = op.dtype(X)
    if op.type == "Celu" and dtype != T.FLOAT:
        return op.Mul(op.like(alpha, X), op.Elu(op.Div(X, op.like(alpha, X)), alpha=1.0))
    if dtype != T.BFLOAT16:
        return KEEP
    return op.Cast(op.again(op.Cast(X, to=T.FLOAT), alpha=_rounded(alpha)), to=dtype)


@adapter("Selu", 22, 6)
def selu(op, X, *, alpha, gamma):
    """22 adds bfloat16.

    The attributes are rounded to it as the function body does; float holds every bfloat16, the result is rounded once.
    """
    if op.dtype(X) != T.BFLOAT16:
        return KEEP
    wide = op.again(op.Cast(X, to=T.FLOAT), alpha=_rounded(alpha), gamma=_rounded(gamma))
    return op.Cast(wide, to=T.BFLOAT16)


def _rounded(value: float) -> float:
    return float(np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(T.BFLOAT16)))


@adapter("Celu", 12, None, accuracy="rounding")
def celu(op, X, *, alpha):
    """12 is its first version.

    It is alpha times the Elu, with alpha 1, of X over alpha: its function body.
    """
    return op.Mul(op.like(alpha, X), op.Elu(op.Div(X, op.like(alpha, X)), alpha=1.0))


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

    A slope that varies along the channels alone loses its dimensions of 1; any other is refused.
    """
    shape = op.shape(slope)
    if all(dim == 1 for dim in shape):
        return KEEP if len(shape) == 1 else op.PRelu(X, op.Reshape(slope, np.array([1])))
    aligned = [1] * (op.rank(X) - len(shape)) + shape
    if any(dim != 1 for k, dim in enumerate(aligned) if k != 1):
        raise RefusedError(f"before 7 the slope varies along the channels alone, here its shape is {shape}")
    return KEEP if len(shape) == 1 else op.PRelu(X, op.Reshape(slope, np.array([-1])))


# --- broadcasting ------------------------------------------------------------------------
@adapter("Add Sub Mul Div", 6, 7)
@adapter("Pow And Or Xor Greater Less Equal", 1, 7)
def broadcast(op, A, B, *, axis, broadcast):
    """Before 7 B is laid along the axes of A from `axis` on, where `broadcast` allows it; 7 does as numpy does.

    B gets as many trailing dimensions as A has after it.
    """
    trailing = 0
    if broadcast and axis is not None:
        first = axis + op.rank(A) if axis < 0 else axis
        trailing = op.rank(A) - first - op.rank(B)
    if trailing > 0:
        return op.again(A, op.Unsqueeze(B, axes=list(range(op.rank(B), op.rank(B) + trailing))))
    return op.again(A, B)


SWAPPED = {"Add": "Add", "Mul": "Mul", "And": "And", "Or": "Or", "Xor": "Xor", "Equal": "Equal", "Greater": "Less", "Less": "Greater"}


@adapter("Add Sub Mul Div", 7, 6)
@adapter("Pow And Or Xor Greater Less Equal", 7, 1)
def broadcast_one_way(op, A, B):
    """7 broadcasts as numpy does; before it B is laid along axes of A that follow each other.

    Dimensions of 1 around B are taken away; where A is the smaller one the operands change places if the operator
    allows it. What is left, or is not known, is refused.
    """
    shapes = op.known_shape(A), op.known_shape(B)
    if shapes[0] is not None and shapes[0] == shapes[1] and None not in shapes[0]:
        return KEEP
    if shapes[1] == [] or (shapes[1] == [1] and op.rank(A) > 0):
        return op.again(A, B, broadcast=1)
    a, b = op.shape(A), op.shape(B)
    if len(b) > len(a) or (len(a) == len(b) and _covers(b, a) and not _covers(a, b)) or a == []:
        if op.type == "Sub":
            return op.Add(op.Neg(B), A)
        if op.type not in SWAPPED:
            raise RefusedError(f"before 7 the first operand must have the result's shape, here {a} against {b}")
        return getattr(op, SWAPPED[op.type])(B, A)
    aligned = [1] * (len(a) - len(b)) + b
    inner = [k for k, dim in enumerate(aligned) if dim != 1]
    first, last = (inner[0], inner[-1] + 1) if inner else (len(a), len(a))
    if any(aligned[k] is None or aligned[k] != a[k] for k in range(first, last)):
        raise RefusedError(f"before 7 an operand cannot be broadcast like this: {a} with {b}")
    if len(b) != last - first:
        B = op.Reshape(B, np.array([d if isinstance(d, int) else -1 for d in aligned[first:last]], np.int64))
    return op.again(A, B, broadcast=1, axis=first)


def _covers(a: list, b: list) -> bool:
    """Whether b broadcasts to a shape without changing it."""
    return all(x == y or y == 1 for x, y in zip(a, b, strict=True))


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
        return total if op.type == "Sum" else op.Div(total, op.like(len(data_0), data_0[0]))
    dtype = op.dtype(data_0[0])
    zeros = [op.Cast(op.Less(x, x), to=dtype) for x in data_0]
    spread = []
    for x in data_0:
        for other, zero in zip(data_0, zeros, strict=True):
            if other != x:
                x = op.Add(x, zero)
        spread.append(x)
    return op.again(*spread)


# --- integers in comparisons ---------------------------------------------------------------
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


@adapter("Greater Less", 9, 7)
def compare(op, A, B):
    """9 adds integers.

    Rounding 64-bit ones to double keeps their order; where two become equal, their difference tells.
    """
    if op.dtype(A) not in WIDE_INTEGERS:
        return KEEP
    a, b = op.Cast(A, to=T.DOUBLE), op.Cast(B, to=T.DOUBLE)
    for value in (op.known(A), op.known(B)):
        if value is not None and all(abs(int(v)) < LARGEST_EXACT for v in value.ravel()):
            return op.again(a, b)
    difference = op.Cast(op.Cast(op.Sub(A, B), to=T.INT64), to=T.DOUBLE)
    equal = op.Not(op.Or(op.Greater(a, b), op.Less(a, b)))
    return op.Or(op.again(a, b), op.And(equal, op.again(difference, np.float64(0))))


@adapter("Equal", 11, 7)
def equal(op, A, B):
    """11 adds floats and the other integers.

    Two floats that are numbers are equal where neither is the greater one; an uint64 is equal where its bits are.
    """
    dtype = op.dtype(A)
    if dtype == T.UINT64:
        return op.Equal(op.Cast(A, to=T.INT64), op.Cast(B, to=T.INT64))
    if dtype not in FLOATS:
        return KEEP
    unequal = op.Or(op.Greater(A, B), op.Less(A, B))
    return op.And(op.Not(unequal), op.And(_is_number(op, A), _is_number(op, B)))


@adapter("LessOrEqual GreaterOrEqual", 12, None)
def or_equal(op, A, B):
    """12 is their first version.

    They hold where the opposite comparison does not, and both are numbers.
    """
    opposite = op.Greater if op.type == "LessOrEqual" else op.Less
    if op.dtype(A) not in FLOATS:
        return op.Not(opposite(A, B))
    return op.And(op.Not(opposite(A, B)), op.And(_is_number(op, A), _is_number(op, B)))


def _is_number(op, x):
    """True where x is not NaN."""
    return op.Or(op.Less(x, op.like(1, x)), op.Greater(x, op.like(0, x)))


# --- Clip, Gemm, Softmax ---------------------------------------------------------------------
FLOAT_LIMIT = float(np.finfo(np.float32).max)


@adapter("Clip", 6, 11)
def clip_inputs(op, input, *, min, max):
    """6 has the bounds as attributes, by default the limits of float; 11 has them as inputs, by default the type's own.

    A bound that is the limit of float is left out for a float.
    """
    dtype = op.dtype(input)
    bounds = []
    for bound, limit in ((min, -FLOAT_LIMIT), (max, FLOAT_LIMIT)):
        bounds.append(None if bound == limit and dtype == T.FLOAT else op.like(bound, input))
    return op.Clip(input, *bounds)


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
    if all(np.float32(bound) == bound for bound in attributes.values()):
        return op.Clip(input, **{k: v for k, v in attributes.items() if abs(v) != FLOAT_LIMIT})
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


@adapter("Gemm", 6, 7)
def gemm(op, A, B, C, *, broadcast, **same):
    """6 broadcasts C where `broadcast` says so, 7 always does.

    What 6 broadcasts, 7 broadcasts alike.
    """
    return op.Gemm(A, B, C, **same)


@adapter("Gemm", 7, 6)
def gemm_broadcast(op, A, B, C, **same):
    """7 broadcasts C as numpy does, 6 where `broadcast` says so.

    6 has no place for a C with one column: that is refused.
    """
    shape = op.shape(C)
    if len(shape) == 2 and shape[0] == 1:
        C = op.Reshape(C, np.array([-1]))
    elif len(shape) == 2 and shape[1] in (1, None):
        raise RefusedError(f"before 7 Gemm cannot broadcast '{C}' of shape {shape}")
    return op.Gemm(A, B, C, broadcast=1, **same)


@adapter("Gemm", 11, 9)
def gemm_with_c(op, A, B, C, **same):
    """11 lets C be left out.

    A scalar 0 in its place adds nothing.
    """
    return KEEP if C else op.Gemm(A, B, op.like(0, A), **same)


@adapter("Softmax LogSoftmax Hardmax", 11, 13)
def softmax(op, input, *, axis):
    """11 works over all axes from `axis` on, taken together, 13 over one axis.

    Flattening makes them one axis; there is no need where `axis` is the last one.
    """
    shape = op.known_shape(input)
    if axis == -1 or (shape is not None and axis == len(shape) - 1):
        return op.again(input, axis=axis)
    flat = op.again(op.Flatten(input, axis=axis), axis=-1)
    return op.Reshape(flat, op.Shape(input))


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
