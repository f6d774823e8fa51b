"""Bodies of onnxruntime's normalizations, alone and after the addition of residuals, biases and embeddings.

They compute in float32 where the element type is narrower, as onnxruntime's kernels do.
"""

from __future__ import annotations

from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.precision import widened
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


def stash_type(x) -> int:
    """The type that a normalization of `x` computes in."""
    return T.DOUBLE if x.dtype == T.DOUBLE else T.FLOAT


def inverse_root(x, axes: list[int], epsilon: float):
    """1 / sqrt(mean of the squares + epsilon), the mean over these axes."""
    return op.Reciprocal(op.Sqrt(op.ReduceMean(x * x, axes) + epsilon))


@body
def SkipLayerNormalization(input, skip, gamma, beta=None, bias=None, epsilon: float = 1e-12):
    """LayerNormalization, over the last axis, of input + skip + bias; the sum is its fourth output."""
    dtype = input.dtype
    input, skip, gamma, beta, bias = widened(input, skip, gamma, beta, bias)
    total = input + skip if bias is None else input + skip + bias
    output, mean, inverse = op.LayerNormalization(
        total, gamma, beta, axis=-1, epsilon=epsilon, stash_type=stash_type(total)
    )
    return output.to(dtype), mean.to(T.FLOAT), inverse.to(T.FLOAT), total.to(dtype)


@body
def SkipSimplifiedLayerNormalization(input, skip, gamma, bias=None, epsilon: float = 1e-12):
    """RMSNormalization, over the last axis, of input + skip + bias; the sum is its fourth output."""
    dtype = input.dtype
    input, skip, gamma, bias = widened(input, skip, gamma, bias)
    total = input + skip if bias is None else input + skip + bias
    output = op.RMSNormalization(total, gamma, axis=-1, epsilon=epsilon, stash_type=stash_type(total))
    inverse = inverse_root(total, [-1], epsilon)
    return output.to(dtype), None, inverse.to(T.FLOAT), total.to(dtype)


@body
def SimplifiedLayerNormalization(X, scale, axis: int = -1, epsilon: float = 1e-5, stash_type: int = T.FLOAT):
    """RMSNormalization over the axes from `axis` on, whose second output is the inverse of the root."""
    x, weight = widened(X, scale)
    if x.dtype != weight.dtype:
        x, weight = x.to(T.DOUBLE), weight.to(T.DOUBLE)
    computed = T.DOUBLE if x.dtype == T.DOUBLE else T.FLOAT
    output = op.RMSNormalization(x, weight, axis=axis, epsilon=epsilon, stash_type=computed)
    axes = [axis] if axis == -1 else list(range(axis, 0 if axis < 0 else X.rank))
    return output.to(scale.dtype), inverse_root(x, axes, epsilon).to(stash_type)


@body
def EmbedLayerNormalization(
    input_ids,
    segment_ids: object | None,
    word_embedding,
    position_embedding,
    segment_embedding: object | None,
    gamma,
    beta,
    mask=None,
    position_ids=None,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
):
    """LayerNormalization of the embeddings of words, positions and segments, added.

    Positions count from 0 where they are not given. The second output is how many elements of each row of the mask
    are 1, 0 where there is no mask; the third is the sum of the embeddings.
    """
    dtype = word_embedding.dtype
    words, positions, segments, gamma, beta = widened(
        word_embedding, position_embedding, segment_embedding, gamma, beta
    )
    if position_ids is None:
        length = op.Shape(input_ids, start=1, end=2)
        total = op.Gather(words, input_ids) + op.Slice(positions, [0], length, [0])
    else:
        total = op.Gather(words, input_ids) + op.Gather(positions, position_ids)
    if segments is not None and segment_ids is not None:
        total = total + op.Gather(segments, segment_ids)
    output = op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon)[0]
    if mask is None:
        counted = op.Expand(input_ids.like(0), op.Shape(input_ids, start=0, end=1))
    else:
        counted = op.ReduceSum(op.Cast(mask == 1, to=T.INT32), [1], keepdims=0)
    return output.to(dtype), counted, total.to(dtype)


# --- over groups of channels ---------------------------------------------------------------
@body
def GroupNorm(X, gamma, beta, *, groups: int, activation: int, channels_last: int = 1, epsilon: float = 1e-5):
    """GroupNormalization of images with their channels last or second, then SiLU where `activation` is 1."""
    return normalized_groups(X, gamma, beta, groups, activation, channels_last, epsilon)


@body
def SkipGroupNorm(
    X, gamma, beta, skip, bias=None, *, groups: int, activation: int, channels_last: int = 1, epsilon: float = 1e-5
):
    """GroupNorm of X + skip + bias, the second output; `skip` is an image, or has a number for each channel."""
    if not channels_last:
        raise RefusedError("it is not said how skip and bias lie where channels are not last")
    dtype = X.dtype
    x, skip, bias = widened(X, skip, bias)
    if skip.rank == 2:
        skip = op.Unsqueeze(skip, [*range(1, x.rank - 1)])
    total = x + skip if bias is None else x + skip + bias
    output = normalized_groups(total, gamma, beta, groups, activation, channels_last, epsilon)
    return output.to(dtype), total.to(dtype)


def normalized_groups(X, gamma, beta, groups: int, activation: int, channels_last: int, epsilon: float):
    if activation not in (0, 1):
        raise RefusedError(f"no activation has the number {activation}")
    x, gamma, beta = widened(X, gamma, beta)
    if channels_last:
        x = op.Transpose(x, perm=[0, x.rank - 1, *range(1, x.rank - 1)])
    y = op.GroupNormalization(x, gamma, beta, num_groups=groups, epsilon=epsilon)
    if activation:
        y = y * op.Sigmoid(y)
    if channels_last:
        y = op.Transpose(y, perm=[0, *range(2, x.rank), 1])
    return y.to(X.dtype)
