"""Normalization and Dropout."""

from __future__ import annotations

import numpy as np
import onnx

from .registry import demand, meaning, widened


def _statistics(x: np.ndarray, scale: np.ndarray, spatial: int = 1) -> tuple[np.ndarray, np.ndarray, tuple]:
    axes = tuple(i for i in range(x.ndim) if i != 1) if spatial else (0,)
    wide = widened(x)
    return wide.mean(axes), wide.var(axes), scale.shape


def _normalize(x, scale, bias, mean, var, epsilon, spatial=1):
    shape = (-1,) + (1,) * (x.ndim - 2) if spatial else scale.shape
    scale, bias, mean, var = (widened(v).reshape(shape) for v in (scale, bias, mean, var))
    return (scale * (widened(x) - mean) / np.sqrt(var + np.float32(epsilon)) + bias).astype(x.dtype)


def _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial):
    """Y, running mean and variance, saved mean and variance."""
    now, spread, shape = _statistics(x, scale, spatial)
    y = _normalize(x, scale, bias, now, spread, epsilon, spatial)
    running = [
        widened(old) * momentum + new.reshape(shape) * (1 - momentum) for old, new in ((mean, now), (var, spread))
    ]
    return (y, *running, now.reshape(shape), spread.reshape(shape))[: len(node.output)]


def _in_one_type(x, outputs):
    return tuple(v.astype(x.dtype) for v in outputs)


@meaning("BatchNormalization", 1, 7)
def _batch_normalization_1(node, x, scale, bias, mean, var, *, epsilon, momentum, is_test, spatial):
    if not is_test:
        return _in_one_type(x, _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial))
    return _normalize(x, scale, bias, mean, var, epsilon, spatial)


@meaning("BatchNormalization", 7, 14)
def _batch_normalization_7(node, x, scale, bias, mean, var, *, epsilon, momentum, spatial=1):
    """Training is what asks for the statistics as outputs."""
    if len(node.output) > 1:
        return _in_one_type(x, _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial))
    return _normalize(x, scale, bias, mean, var, epsilon, spatial)


@meaning("BatchNormalization", 14)
def _batch_normalization(node, x, scale, bias, mean, var, *, epsilon, momentum, training_mode):
    if not training_mode:
        return _normalize(x, scale, bias, mean, var, epsilon)
    y, *running = _train(node, x, scale, bias, mean, var, epsilon, momentum, 1)
    return (y, *(v.astype(mean.dtype) for v in running))


@meaning("LayerNormalization", 17)
def _layer_normalization(node, x, scale, bias=None, *, axis, epsilon, stash_type):
    """The first stage is of the type `stash_type`, what comes out of it of the type of x."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(onnx.helper.tensor_dtype_to_np_dtype(stash_type))
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    inverse = 1 / np.sqrt(var + wide.dtype.type(epsilon))
    y = ((wide - mean) * inverse).astype(x.dtype) * scale
    return (y if bias is None else y + bias, mean, inverse)[: len(node.output)]


@meaning("InstanceNormalization", 1)
def _instance_normalization(node, x, scale, bias, *, epsilon):
    axes = tuple(range(2, x.ndim))
    wide = widened(x)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    shape = (-1,) + (1,) * (x.ndim - 2)
    normal = (wide - mean) / np.sqrt(var + np.float32(epsilon))
    return (widened(scale).reshape(shape) * normal + widened(bias).reshape(shape)).astype(x.dtype)


@meaning("GroupNormalization", 18, 21)
def _group_normalization_18(node, x, scale, bias, *, epsilon, num_groups):
    """Scale and bias are one number for each group."""
    demand(
        scale.shape == bias.shape == (num_groups,),
        f"scale {scale.shape} and bias {bias.shape} of {num_groups}",
    )
    demand(x.shape[1] and x.shape[1] % num_groups == 0, f"{num_groups} groups of {x.shape[1]} channels")
    wide = widened(x).reshape(x.shape[0], num_groups, -1)
    mean, var = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    normal = (wide - mean) / np.sqrt(var + np.float32(epsilon))
    return (widened(scale)[:, None] * normal + widened(bias)[:, None]).reshape(x.shape).astype(x.dtype)


@meaning("MeanVarianceNormalization", 9)
def _mean_variance_normalization(node, x, *, axes):
    axes, wide = tuple(axes), widened(x)
    mean = wide.mean(axes, keepdims=True)
    spread = np.sqrt((wide**2).mean(axes, keepdims=True) - mean**2)
    return ((wide - mean) / (spread + np.float32(1e-9))).astype(x.dtype)


@meaning("LRN", 1)
def _lrn(node, x, *, alpha, beta, bias, size):
    wide = widened(x)
    square, channels = wide * wide, x.shape[1]
    before, after = (size - 1) // 2, -(-(size - 1) // 2)
    total = np.stack(
        [square[:, max(0, c - before) : min(channels - 1, c + after) + 1].sum(1) for c in range(channels)],
        1,
    )
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


@meaning("Dropout", 1, 7)
def _dropout_1(node, x, *, is_test, ratio):
    if not is_test and ratio:
        raise NotImplementedError("Dropout in training mode draws random numbers")
    return _dropped(node, x, x.dtype)


@meaning("Dropout", 7, 10)
def _dropout_7(node, x, *, ratio):
    return _dropped(node, x, x.dtype)


@meaning("Dropout", 10, 12)
def _dropout_10(node, x, *, ratio):
    return _dropped(node, x, np.dtype(bool))


@meaning("Dropout", 12)
def _dropout(node, x, ratio=None, training_mode=None, *, seed=None):
    if training_mode is not None and training_mode.item() and (ratio is None or ratio.item()):
        raise NotImplementedError("Dropout in training mode draws random numbers")
    return _dropped(node, x, np.dtype(bool))


def _dropped(node, x, mask_type):
    return (x, np.ones(x.shape, mask_type))[: len(node.output)]
