"""Steps of the normalizations in ONNX's defs/nn."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

same("LRN", 1, 13)
same("InstanceNormalization", 1, 6, 22)
same("LpNormalization", 1, 22)
same("MeanVarianceNormalization", 9, 13)
same("BatchNormalization", 1, 6, 7, 9, 14, 15)


# --- BatchNormalization ----------------------------------------------------------------------
@adapter("BatchNormalization", 6, 7)
def batch_normalization_inference(op, X, scale, B, mean, var, *, is_test, **same):
    """6 trains unless `is_test` says otherwise or it has one output alone; 7 trains where it has more."""
    if is_test and any(op.outputs[1:]):
        raise RefusedError("it gives statistics without training (is_test)")
    return op.BatchNormalization(X, scale, B, mean, var, outputs=1 if is_test else op.listed, **same)


@adapter("BatchNormalization", 7, 6)
def batch_normalization_is_test(op, X, scale, B, mean, var, *, spatial, **same):
    """7 has no `is_test`: with one output it uses the given statistics.

    6 is told so, and trains with the others. Before 7 there is a scale for each channel alone.
    """
    if not spatial:
        return _per_element(op, X, scale, B, mean, var, broadcast=1, **same)
    return op.BatchNormalization(X, scale, B, mean, var, outputs=op.listed, is_test=int(op.listed == 1), **same)


@adapter("BatchNormalization", 6, 1)
def batch_normalization_hint(op, X, scale, B, mean, var, **same):
    """1 requires `consumed_inputs`, a hint for reusing memory, and is for four dimensions.

    Zeros say that nothing is reused; all dimensions after the channels are taken together.
    """
    hint = {"outputs": op.listed, "consumed_inputs": [0, 0, 0, 0, 0]}
    if op.rank(X) == 4:
        return op.BatchNormalization(X, scale, B, mean, var, **hint, **same)
    made = op.BatchNormalization(_as_image(op, X), scale, B, mean, var, **hint, **same)
    Y, *statistics = made if op.listed > 1 else (made,)
    return op.Reshape(Y, op.Shape(X)), *statistics


def _as_image(op, X):
    return op.Reshape(X, np.array([0, 0, -1, 1]))


@adapter("BatchNormalization", 7, 9)
def batch_normalization_per_element(op, X, scale, B, mean, var, *, spatial, **same):
    """7 can have statistics for each element (`spatial` 0), 9 has them for each channel.

    The former are computed as the formula says.
    """
    return KEEP if spatial else _per_element(op, X, scale, B, mean, var, **same)


def _per_element(op, X, scale, B, mean, var, *, epsilon, momentum, **broadcast):
    if op.listed > 1:
        raise RefusedError("it trains on statistics for each element, which there are for channels alone")
    op.rounds()
    deviation = op.Sqrt(op.Add(var, op.like(epsilon, X), **broadcast))
    normal = op.Div(op.Sub(X, mean, **broadcast), deviation, **broadcast)
    return op.Add(op.Mul(normal, scale, **broadcast), B, **broadcast)


@adapter("BatchNormalization", 9, 14)
def batch_normalization_training_mode(op, X, scale, B, mean, var, **same):
    """9 trains where it has more than one output, 14 where `training_mode` says so.

    The running statistics are the same; 14 has no place for the saved ones of the batch.
    """
    if op.listed == 1:
        return KEEP
    if any(op.outputs[3:]):
        raise RefusedError("it gives saved statistics, of which the specification does not say enough")
    return op.BatchNormalization(X, scale, B, mean, var, outputs=3, training_mode=1, **same)


@adapter("BatchNormalization", 14, 9)
def batch_normalization_of_batch(op, X, scale, B, input_mean, input_var, *, training_mode, **same):
    """14 trains where `training_mode` says so, and can have statistics of another type than the data.

    The statistics of the batch are computed and then used as given ones; types become the widest of them.
    """
    if not training_mode:
        mixed = op.dtype(X) != op.dtype(input_mean)
        return _in_one_type(op, X, scale, B, input_mean, input_var, **same) if mixed else KEEP
    return _trained(op, X, scale, B, input_mean, input_var, **same)


@adapter("BatchNormalization", 15, 14)
def batch_normalization_types(op, X, scale, B, input_mean, input_var, *, training_mode, **same):
    """15 can have scale and bias of another type than the data.

    All are cast to the widest type.
    """
    if op.dtype(X) == op.dtype(scale):
        return KEEP
    if training_mode:
        return _trained(op, X, scale, B, input_mean, input_var, **same)
    return _in_one_type(op, X, scale, B, input_mean, input_var, **same)


def _widest(op, *values) -> int:
    types = [op.dtype(value) for value in values]
    return T.DOUBLE if T.DOUBLE in types else T.FLOAT if len(set(types)) > 1 or T.BFLOAT16 in types else types[0]


def _cast(op, value, dtype: int):
    return value if op.dtype(value) == dtype else op.Cast(value, to=dtype)


def _in_one_type(op, *values, **attributes):
    op.rounds()
    wide = _widest(op, *values)
    Y = op.BatchNormalization(*(_cast(op, value, wide) for value in values), **attributes)
    return _cast(op, Y, op.dtype(values[0]))


def _trained(op, X, scale, B, mean, var, *, epsilon, momentum):
    """What training gives: the normalized data, and running statistics that the batch's have a part in."""
    op.rounds()
    wide = _widest(op, X, scale, B, mean, var)
    # Statistics of float16 are computed in float.
    wide = T.FLOAT if wide == T.FLOAT16 else wide
    x, *given = (_cast(op, value, wide) for value in (X, scale, B, mean, var))
    axes = [axis for axis in range(op.rank(X)) if axis != 1]
    centre = op.ReduceMean(x, axes=axes)
    spread = op.Sub(x, centre)
    found = [op.Reshape(value, np.array([-1])) for value in (centre, op.ReduceMean(op.Mul(spread, spread), axes=axes))]
    Y = op.BatchNormalization(x, *given[:2], *found, epsilon=epsilon)
    old, new = op.like(momentum, x), op.like(1, x) - op.like(momentum, x)
    running = [op.Add(op.Mul(g, old), op.Mul(f, new)) for g, f in zip(given[2:], found, strict=True)]
    results = [_cast(op, Y, op.dtype(X)), *(_cast(op, value, op.dtype(mean)) for value in running)]
    return results[: op.listed]


# --- the others ------------------------------------------------------------------------------
@adapter("InstanceNormalization", 6, 1)
def instance_normalization_of_images(op, input, scale, B, *, epsilon):
    """1 is for four dimensions, 6 for any number of them.

    All after the channels are taken together, since they are normalized together.
    """
    if op.rank(input) == 4:
        return KEEP
    return op.Reshape(op.InstanceNormalization(_as_image(op, input), scale, B, epsilon=epsilon), op.Shape(input))


@adapter("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization_axes(op, X, *, axes):
    """13 is the same, but the inference of its function body misses axes that are left to their default.

    They are written out.
    """
    return op.MeanVarianceNormalization(X, axes=axes)


@adapter("MeanVarianceNormalization", 13, 9)
def mean_variance_normalization(op, X, *, axes):
    """13 adds bfloat16; axes count from the back in opsets from 11 on.

    They are counted from the front.
    """
    if all(axis >= 0 for axis in axes):
        return KEEP
    return op.MeanVarianceNormalization(X, axes=[axis % op.rank(X) for axis in axes])


@adapter("GroupNormalization", 18, 21)
def group_normalization_per_channel(op, X, scale, bias, *, num_groups, epsilon):
    """18 has a scale and a bias for each group, 21 for each channel, and computes in the type that `stash_type` says.

    Those of a group are repeated for its channels; the type stays that of the data.
    """
    channels = op.shape(X)[1]
    if isinstance(channels, int):
        times = np.array([1, channels // num_groups])
    else:
        each = op.Div(op.Gather(op.Shape(X), np.array([1]), axis=0), np.array([num_groups]))
        times = op.Concat(np.array([1]), each, axis=0)
    column, row = np.array([num_groups, 1]), np.array([-1])
    spread = [op.Reshape(op.Expand(op.Reshape(value, column), times), row) for value in (scale, bias)]
    return op.GroupNormalization(X, *spread, num_groups=num_groups, epsilon=epsilon, stash_type=op.dtype(X))


@adapter("GroupNormalization", 21, 18)
def group_normalization_of_instances(op, X, scale, bias, *, num_groups, epsilon, stash_type):
    """18, which is deprecated, has a scale and a bias for each group, 21 for each channel.

    The groups are normalized as the channels of an InstanceNormalization; scale and bias follow.
    """
    op.rounds()
    dtype = op.dtype(X)
    normal = _groups(op, _cast(op, X, stash_type), num_groups, epsilon)
    shape = np.array([1, -1] + [1] * (op.rank(X) - 2))
    scale, bias = (op.Reshape(value, shape) for value in (scale, bias))
    return op.Add(op.Mul(_cast(op, op.Reshape(normal, op.Shape(X)), dtype), scale), bias)


@adapter("GroupNormalization", 18, None)
def group_normalization_per_group(op, X, scale, bias, *, num_groups, epsilon):
    """18 is its first version.

    The groups are normalized, scaled and moved as the channels of an InstanceNormalization.
    """
    op.rounds()
    return op.Reshape(_groups(op, X, num_groups, epsilon, scale, bias), op.Shape(X))


def _groups(op, X, num_groups: int, epsilon: float, scale=None, bias=None):
    """The groups as channels, [N, num_groups, -1], normalized."""
    ones = np.ones(num_groups, op.like(0, X).dtype)
    groups = op.Reshape(X, np.array([0, num_groups, -1]))
    scale, bias = ones if scale is None else scale, 0 * ones if bias is None else bias
    return op.InstanceNormalization(groups, scale, bias, epsilon=epsilon)
