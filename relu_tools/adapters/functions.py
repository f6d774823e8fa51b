"""Operators that are defined by a function body: below their birth it stands for them, or the same made exact."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, adapter, by_body
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


@adapter("LayerNormalization", 17, None, accuracy="rounding", instead_of_body=True)
def layer_normalization(op, X, Scale, B, *, axis, epsilon, stash_type):
    """17 is its first version.

    It is the formula of its documentation, computed in the type that `stash_type` says. The function body flattens X
    and gives it back its shape, which fails where two sizes are 0.
    """
    axes = list(range(axis, 0)) if axis < 0 else list(range(axis, op.rank(X)))
    dtype = op.dtype(X)
    data = X if dtype == stash_type else op.Cast(X, to=stash_type)
    mean = op.ReduceMean(data, axes=axes, keepdims=1)
    deviation = op.Sub(data, mean)
    variance = op.ReduceMean(op.Mul(deviation, deviation), axes=axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.like(epsilon, data))))
    normalized = op.Mul(deviation, inverse)
    scaled = op.Mul(normalized if dtype == stash_type else op.Cast(normalized, to=dtype), Scale)
    return op.Add(scaled, B) if B else scaled, mean, inverse


@adapter("MeanVarianceNormalization", 9, None, accuracy="rounding", instead_of_body=True)
def mean_variance_normalization(op, X, *, axes):
    """9 is its first version.

    It is the formula of its documentation, with the 1e-9 of its function body. That adds floats to every type, and
    takes the difference of two squares for the variance, which rounding can make negative.
    """
    deviation = op.Sub(X, op.ReduceMean(X, axes=axes))
    variance = op.ReduceMean(op.Mul(deviation, deviation), axes=axes)
    return op.Div(deviation, op.Add(op.Sqrt(variance), op.like(np.float32(1e-9), X)))


@adapter("Shrink", 9, None, opset=9, instead_of_body=True)
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
