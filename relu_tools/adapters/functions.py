"""Operators that are defined by a function body which computes just what they do: below their birth it stands for them."""

from __future__ import annotations

from relu_tools.adapters import adapter, by_body

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
by_body("MeanVarianceNormalization Shrink", 9)


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
