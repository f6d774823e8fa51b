"""What the operators with function bodies compute, in numpy, as their specification's text says it.

Each takes the inputs by position (None for one that is left out) and the attributes by keyword, defaults filled in,
and gives the outputs. Floats come and go as float64, integers as int64; the caller rounds to the element type.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from onnx import TensorProto as T
from onnx import helper

FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
MEANINGS = {}


def meaning(*ops):
    def register(function):
        MEANINGS.update(dict.fromkeys(ops, function))
        return function

    return register


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def typed(array, dtype):
    return np.asarray(array).astype(helper.tensor_dtype_to_np_dtype(dtype))


# --- of each element ---------------------------------------------------------------------------
MEANINGS["Relu"] = lambda x: np.maximum(x, 0)
MEANINGS["LeakyRelu"] = lambda x, alpha: np.where(x < 0, alpha * x, x)
MEANINGS["PRelu"] = lambda x, slope: np.where(x < 0, slope * x, x)
MEANINGS["ThresholdedRelu"] = lambda x, alpha: np.where(x > alpha, x, 0)
MEANINGS["Elu"] = lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x)
MEANINGS["Celu"] = lambda x, alpha: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha))
MEANINGS["Selu"] = lambda x, alpha, gamma: np.where(x > 0, gamma * x, gamma * alpha * np.expm1(x))
MEANINGS["HardSigmoid"] = lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1)
MEANINGS["HardSwish"] = lambda x: x * np.clip(x / 6 + 0.5, 0, 1)
MEANINGS["Softplus"] = lambda x: np.logaddexp(x, 0)
MEANINGS["Softsign"] = lambda x: x / (1 + np.abs(x))
MEANINGS["Mish"] = lambda x: x * np.tanh(np.logaddexp(x, 0))
MEANINGS["Swish"] = lambda x, alpha: x * sigmoid(alpha * x)
MEANINGS["SwiGLU"] = lambda a, b, alpha: a * sigmoid(alpha * a) * b
MEANINGS["Shrink"] = lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
MEANINGS["GreaterOrEqual"] = np.greater_equal
MEANINGS["LessOrEqual"] = np.less_equal


@meaning("Gelu")
def gelu(x, approximate):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@meaning("Clip")
def clip(x, low, high):
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@meaning("CastLike")
def cast_like(x, like, **_):
    """The table's values are numbers that every type holds, so that all ways to round give the same."""
    return np.asarray(x).astype(np.float64) if x.dtype == object else np.asarray(x)


@meaning("Bernoulli")
def bernoulli(p, dtype=None, **_):
    """The table's probabilities are 0 and 1."""
    return p if dtype is None else typed(p, dtype)


# --- along axes --------------------------------------------------------------------------------
@meaning("Softmax")
def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@meaning("LogSoftmax")
def log_softmax(x, axis):
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def reduction(function, prepare=lambda x: x):
    def reduce(x, axes, keepdims, noop_with_empty_axes):
        if axes is None or not axes.size:
            if noop_with_empty_axes:
                return function(prepare(x)[None], 0, False)
            axes = np.arange(x.ndim)
        return function(prepare(x), tuple(axes.tolist()), bool(keepdims))

    return reduce


def _log_sum_exp(x, axes, keepdims):
    return np.log(np.exp(x).sum(axis=axes, keepdims=keepdims))


MEANINGS["ReduceL1"] = reduction(lambda x, a, k: x.sum(axis=a, keepdims=k), np.abs)
MEANINGS["ReduceL2"] = reduction(lambda x, a, k: np.sqrt(x.sum(axis=a, keepdims=k)), np.square)
MEANINGS["ReduceSumSquare"] = reduction(lambda x, a, k: x.sum(axis=a, keepdims=k), np.square)
MEANINGS["ReduceLogSum"] = reduction(lambda x, a, k: np.log(x.sum(axis=a, keepdims=k)))
MEANINGS["ReduceLogSumExp"] = reduction(_log_sum_exp)


@meaning("MeanVarianceNormalization")
def mean_variance_normalization(x, axes):
    """With the 1e-9 that the function body has, and onnxruntime's kernel, and the text has not."""
    axes = tuple(axes)
    return (x - x.mean(axis=axes, keepdims=True)) / (x.std(axis=axes, keepdims=True) + 1e-9)


@meaning("LayerNormalization")
def layer_normalization(x, scale, bias, axis, epsilon, stash_type):
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    y = (x - mean) * inverse * scale
    return y if bias is None else y + bias, typed(mean, stash_type), typed(inverse, stash_type)


@meaning("RMSNormalization")
def rms_normalization(x, scale, axis, epsilon, stash_type):
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + epsilon) * scale


@meaning("GroupNormalization")
def group_normalization(x, scale, bias, num_groups, epsilon, stash_type=1):
    """Scale and bias are one for each group in version 18, and one for each channel in 21."""
    groups = x.reshape(x.shape[0], num_groups, -1)
    normalized = (groups - groups.mean(axis=-1, keepdims=True)) / np.sqrt(groups.var(axis=-1, keepdims=True) + epsilon)
    each = x.shape[1] // scale.size
    scale, bias = (np.repeat(v, each).reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias))
    return normalized.reshape(x.shape) * scale + bias


# --- losses ------------------------------------------------------------------------------------
@meaning("NegativeLogLikelihoodLoss")
def negative_log_likelihood(x, target, weight, reduction, ignore_index=None):
    weight = np.ones(x.shape[1]) if weight is None else weight
    counts = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    classes = np.where(counts, target, 0)
    weights = weight[classes] * counts
    loss = -np.take_along_axis(x, classes[:, None], axis=1)[:, 0] * weights
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


@meaning("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(scores, labels, weights, reduction, ignore_index=None):
    logs = log_softmax(scores, 1)
    return negative_log_likelihood(logs, labels, weights, reduction, ignore_index), logs


# --- that move, or make, elements ----------------------------------------------------------------
@meaning("Range")
def arange(start, limit, delta, **_):
    count = max(math.ceil((limit - start) / delta), 0)
    return start + np.arange(count) * delta


@meaning("DepthToSpace")
def depth_to_space(x, blocksize, mode):
    n, c, h, w = x.shape
    if mode == "DCR":
        return (
            x.reshape(n, blocksize, blocksize, -1, h, w)
            .transpose(0, 3, 4, 1, 5, 2)
            .reshape(n, -1, h * blocksize, w * blocksize)
        )
    return (
        x.reshape(n, -1, blocksize, blocksize, h, w)
        .transpose(0, 1, 4, 2, 5, 3)
        .reshape(n, -1, h * blocksize, w * blocksize)
    )


@meaning("SpaceToDepth")
def space_to_depth(x, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.transpose(order).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@meaning("CenterCropPad")
def center_crop_pad(x, shape, axes=None):
    for axis, size in zip(range(x.ndim) if axes is None else axes, shape.tolist(), strict=True):
        has = x.shape[axis]
        if size < has:
            start = (has - size) // 2
            x = x.take(range(start, start + size), axis=axis)
        elif size > has:
            start = (size - has) // 2
            wider = np.zeros([size if k == axis % x.ndim else n for k, n in enumerate(x.shape)], x.dtype)
            if x.dtype == object:
                wider[...] = ""
            np.moveaxis(wider, axis, 0)[start : start + has] = np.moveaxis(x, axis, 0)
            x = wider
    return x


@meaning("SequenceMap")
def sequence_map(xs, added=None, **_):
    """The table's graphs are Identity, of one input, and an Add of the additional one, a tensor or a sequence."""
    if added is None:
        return xs
    return [x + (added[k] if isinstance(added, list) else added) for k, x in enumerate(xs)]


def window(size, output_datatype, periodic, factors):
    size = int(size)
    angle = 2 * math.pi * np.arange(size) / (size if periodic else max(size - 1, 1))
    wave = typed(sum(factor * np.cos(k * angle) for k, factor in enumerate(factors)), T.DOUBLE)
    # An integer is cut from what the sum is, not from what rounding makes of it.
    return typed(wave if output_datatype in FLOATS else wave.round(12), output_datatype)


MEANINGS["HannWindow"] = functools.partial(window, factors=(0.5, -0.5))
MEANINGS["HammingWindow"] = functools.partial(window, factors=(25 / 46, -21 / 46))
MEANINGS["BlackmanWindow"] = functools.partial(window, factors=(0.42, -0.5, 0.08))


@meaning("AffineGrid")
def affine_grid(theta, size, align_corners):
    axes = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in size.tolist()[2:]]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size.tolist()[2:])], axis=-1)
    return np.einsum("nij,...j->n...i", theta, places)


@meaning("DynamicQuantizeLinear")
def dynamic_quantize(x):
    x = x.astype(np.float32)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.round(np.clip(-low / scale, 0, 255))
    return np.clip(np.round(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero.astype(np.uint8)
