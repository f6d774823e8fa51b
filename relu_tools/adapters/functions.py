"""Operators that are defined by a function body: below their birth it stands for them, or the same made exact."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, adapter, body, by_body
from relu_tools.adapters.shapes import channels_of
from relu_tools.report import RefusedError

by_body("Attention", 23, 24, 25)
by_body("RotaryEmbedding RMSNormalization", 23)
by_body("LinearAttention CausalConvWithState", 27)
by_body("SequenceMap", 17)
by_body("BlackmanWindow HammingWindow HannWindow", 17)
by_body("CenterCropPad Mish", 18)
by_body("Gelu", 20)
by_body("HardSwish", 14)
by_body("Swish", 24)
by_body("SwiGLU", 28)
by_body("DynamicQuantizeLinear", 11)
by_body("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", 12)
by_body("Bernoulli", 15, 22)


@adapter("LayerNormalization", 17, None, accuracy="rounding")
@body("LayerNormalization", 17, opset=16, accuracy="rounding")
def layer_normalization(op, X, Scale, B, *, axis, epsilon, stash_type):
    """17 is its first version.

    It is the formula of its documentation, computed in the type that `stash_type` says. The function body flattens X
    and gives it back its shape, which fails where two sizes are 0.
    """
    axes = _axes_from(op, X, axis)
    dtype = op.dtype(X)
    data = X if dtype == stash_type else op.Cast(X, to=stash_type)
    mean = op.ReduceMean(data, axes=axes, keepdims=1)
    deviation = op.Sub(data, mean)
    variance = op.ReduceMean(op.Mul(deviation, deviation), axes=axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.like(epsilon, data))))
    normalized = op.Mul(deviation, inverse)
    scaled = op.Mul(normalized if dtype == stash_type else op.Cast(normalized, to=dtype), Scale)
    return op.Add(scaled, B) if B else scaled, mean, inverse


def _axes_from(op, X, axis):
    return list(range(axis, 0)) if axis < 0 else list(range(axis, op.rank(X)))


@body("RMSNormalization", 23, opset=17)
def rms_normalization(op, X, scale, *, axis, epsilon, stash_type):
    """It is the formula of its documentation.

    The function body is not well typed where `scale` and the result have another type than X.
    """
    dtype, result = op.dtype(X), op.dtype(scale)
    data = X if dtype == stash_type else op.Cast(X, to=stash_type)
    mean = op.ReduceMean(op.Mul(data, data), axes=_axes_from(op, X, axis), keepdims=1)
    normalized = op.Div(data, op.Sqrt(op.Add(mean, op.like(epsilon, data))))
    for before, after in ((stash_type, dtype), (dtype, result)):
        normalized = normalized if before == after else op.Cast(normalized, to=after)
    return op.Mul(normalized, scale)


@adapter("MeanVarianceNormalization", 9, None, accuracy="rounding")
@body("MeanVarianceNormalization", 9, opset=9, accuracy="rounding")
@body("MeanVarianceNormalization", 13, opset=13, accuracy="rounding")
def mean_variance_normalization(op, X, *, axes):
    """9 is its first version.

    It is the formula of its documentation, with the 1e-9 of its function body. That adds floats to every type, and
    takes the difference of two squares for the variance, which rounding can make negative.
    """
    deviation = op.Sub(X, op.ReduceMean(X, axes=axes))
    variance = op.ReduceMean(op.Mul(deviation, deviation), axes=axes)
    return op.Div(deviation, op.Add(op.Sqrt(variance), op.like(np.float32(1e-9), X)))


@adapter("Shrink", 9, None, opset=9)
@body("Shrink", 9, opset=9, accuracy="exact")
def shrink(op, input, *, bias, lambd):
    """9 is its first version.

    It is the formula of its documentation; an integer is above `lambd` where it is above its whole part. The function
    body takes the negative of an unsigned integer.
    """
    dtype = op.dtype(input)
    if dtype not in FLOATS:
        if bias != int(bias):
            raise RefusedError("it is not said how integers are moved by a bias that is none")
        bias, lambd = int(bias), math.floor(lambd)
    unsigned = dtype in (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
    if unsigned and min(lambd, bias) < 0:
        raise RefusedError("before 9 unsigned integers are not compared with, or moved by, a number below 0")
    zero = op.like(0, input)
    above = op.Greater(input, op.like(lambd, input))
    result = op.Where(above, op.Sub(input, op.like(bias, input)), zero)
    if unsigned:
        return result
    below = op.Less(input, op.like(-lambd, input))
    return op.Where(below, op.Add(input, op.like(bias, input)), result)


@body("HardSwish", 14, 22, opset=13)
def hard_swish(op, X):
    """It is X times the clipped X / 6 + 0.5.

    The function body has 1/6 as an attribute, which is a float where X is a double.
    """
    inner = op.Add(op.Div(X, op.like(6, X)), op.like(0.5, X))
    return op.Mul(X, op.Clip(inner, op.like(0, X), op.like(1, X)))


@body("Gelu", 20)
def gelu(op, X, *, approximate):
    """It is the formula of its documentation.

    The function body has its numbers in float, where X may be a double.
    """
    half = op.Mul(op.like(0.5, X), X)
    if approximate == "tanh":
        cubic = op.Mul(op.like(0.044715, X), op.Mul(X, op.Mul(X, X)))
        curve = op.Tanh(op.Mul(op.like(math.sqrt(2 / math.pi), X), op.Add(X, cubic)))
    else:
        curve = op.Erf(op.Mul(X, op.like(math.sqrt(0.5), X)))
    return op.Mul(half, op.Add(op.like(1, X), curve))


@body("Softplus", 1, opset=7)
@body("Softplus", 22)
def softplus(op, X):
    """It is log(1 + exp(-|X|)), and X more where that is above 0.

    The function body, log(exp(X) + 1), is infinite from 12 on for float16, and from 89 on for float.
    """
    return op.Add(op.Relu(X), op.Log(op.Add(op.Exp(op.Neg(op.Abs(X))), op.like(1, X))))


@body("Bernoulli", 15, 22)
def bernoulli(op, input, *, dtype, seed):
    """It is 1 where a random number from 0 to 1 is below the probability.

    The function body has it 1 where it is above, so with the probability that 0 is to have.
    """
    own = op.dtype(input)
    wide = T.DOUBLE if own == T.DOUBLE else T.FLOAT
    drawn = op.RandomUniformLike(input, dtype=wide, low=0.0, high=1.0, seed=seed)
    return op.Cast(op.Less(drawn, input if own == wide else op.Cast(input, to=wide)), to=dtype or own)


# --- sizes and states ----------------------------------------------------------------------
ONE = np.array([1])


@body("CenterCropPad", 18)
def center_crop_pad(op, input_data, shape, *, axes):
    """Half of what is missing, or too much, lies before the data along each axis.

    The function body mixes its int64 with the int32 that `shape` may be of.
    """
    sizes = shape if op.dtype(shape) == T.INT64 else op.Cast(shape, to=T.INT64)
    axes = None if axes is None else np.array(axes, np.int64)
    has = op.Shape(input_data) if axes is None else op.Gather(op.Shape(input_data), axes)
    padded = op.Max(has, sizes)
    missing, two = op.Sub(padded, has), np.array([2])
    before = op.Div(missing, two)
    data = op.Pad(input_data, op.Concat(before, op.Sub(missing, before), axis=0), None, axes)
    start = op.Div(op.Sub(padded, sizes), two)
    return op.Slice(data, start, op.Add(start, sizes), axes)


@body("CausalConvWithState", 27)
def causal_convolution(op, input, weight, bias, past_state, *, activation):
    """It is a Conv of the state and the input, one after the other, each channel by itself.

    No function body is given where the number of channels is not known. Then each place of the kernel is multiplied
    with what it meets, so that the kernel's size must be known.
    """
    dtype, wide = op.dtype(input), T.FLOAT
    size = op.Shape(weight, start=2, end=3)
    kept = op.Sub(size, ONE)
    if past_state:
        whole = op.Concat(past_state, input, axis=2)
    else:
        whole = op.Pad(input, op.Concat(np.zeros(2, np.int64), kept, np.zeros(3, np.int64), axis=0))
    shapes = [op.known_shape(value) or [None] for value in (weight, input)]
    channels = next((n for n in (shapes[0][0], shapes[1][min(1, len(shapes[1]) - 1)]) if isinstance(n, int)), None)
    if channels is not None:
        result = op.Conv(whole, weight, bias, group=channels)
    else:
        result = _by_places(op, input, whole, weight, bias, shapes[0][-1])
    if activation != "none":
        result = result if dtype == wide else op.Cast(result, to=wide)
        result = op.Mul(result, op.Sigmoid(result))
        result = result if dtype == wide else op.Cast(result, to=dtype)
    length = op.Shape(whole, start=2, end=3)
    return result, op.Slice(whole, op.Sub(length, kept), length, np.array([2]))


def _by_places(op, input, whole, weight, bias, size):
    if not isinstance(size, int):
        channels_of(op, input)  # refused, since these are not known either
    dtype, two = op.dtype(input), np.array([2])
    if dtype != T.FLOAT:
        whole, weight = op.Cast(whole, to=T.FLOAT), op.Cast(weight, to=T.FLOAT)
        bias = op.Cast(bias, to=T.FLOAT) if bias else None
    kernel, length, total = op.Squeeze(weight, ONE), op.Shape(input, start=2, end=3), None
    for k in range(size):
        place = np.array([k])
        met = op.Slice(whole, place, op.Add(length, place), two)
        part = op.Mul(met, op.Slice(kernel, place, place + 1, ONE))
        total = part if total is None else op.Add(total, part)
    total = op.Add(total, op.Unsqueeze(bias, ONE)) if bias else total
    return total if dtype == T.FLOAT else op.Cast(total, to=dtype)


# --- sums ------------------------------------------------------------------------------------
@body("ReduceL2", 18)
def norm(op, data, axes, **how):
    """It is the root of the sum of squares, integers in double.

    The function body squares in the type itself, where that can leave its range, and takes the root in float.
    """
    wide, back = _widened(op, data)
    return back(op.Sqrt(op.ReduceSum(op.Mul(wide, wide), axes, **how)))


@body("ReduceLogSum", 18, 28)
def log_sum(op, data, axes, **how):
    """It is the logarithm of the sum, integers in double.

    The function body takes the logarithm of integers, which none does.
    """
    wide, back = _widened(op, data)
    return back(op.Log(op.ReduceSum(wide, axes, **how)))


@body("ReduceLogSumExp", 18, 28)
def log_sum_exp(op, data, axes, *, keepdims, noop_with_empty_axes):
    """It is computed in double; where that is the type, powers of the distance from the greatest are summed.

    In the function body these leave the range of double from 710 on.
    """
    dtype = op.dtype(data)
    if dtype != T.DOUBLE:
        wide = op.Cast(data, to=T.DOUBLE)
        how = {"keepdims": keepdims, "noop_with_empty_axes": noop_with_empty_axes}
        return op.Cast(op.Log(op.ReduceSum(op.Exp(wide), axes, **how)), to=dtype)
    how = {"keepdims": 1, "noop_with_empty_axes": noop_with_empty_axes}
    most = op.ReduceMax(data, axes, **how)
    most = op.Where(op.IsInf(most), np.float64(0), most)
    result = op.Add(op.Log(op.ReduceSum(op.Exp(op.Sub(data, most)), axes, **how)), most)
    # Along an axis of one place a sum drops the axis, whichever it is.
    return result if keepdims else op.ReduceSum(result, axes, keepdims=0, noop_with_empty_axes=noop_with_empty_axes)


def _widened(op, data):
    """The data in a type that holds the results on the way, and what brings a result back to its own."""
    dtype = op.dtype(data)
    wide = {T.FLOAT16: T.FLOAT, T.BFLOAT16: T.FLOAT, T.FLOAT: T.FLOAT}.get(dtype, T.DOUBLE)
    if dtype == wide:
        return data, lambda result: result
    return op.Cast(data, to=wide), lambda result: op.Cast(result, to=dtype)
