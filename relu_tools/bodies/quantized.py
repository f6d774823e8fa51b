"""Bodies of com.microsoft's operators on 8-bit integers that stand for numbers by a scale and a zero point.

x stands for (x - zero_point) * scale. Where onnxruntime rounds once the zero point is added, so do the bodies: a half
then goes to the even integer of the result, not to the even multiple of its scale.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.biases import softmax_from
from relu_tools.bodies.normalization import EmbedLayerNormalization
from relu_tools.bodies.tracing import body


def scalar(value):
    """A value of one element without axes, where there is one."""
    return None if value is None else value.scalar()


def shifted(x, zero_point):
    """x - zero_point, as float."""
    x = op.Cast(x, to=T.FLOAT)
    return x if zero_point is None else x - op.Cast(scalar(zero_point), to=T.FLOAT)


def real(x, scale, zero_point):
    """What x stands for."""
    return op.DequantizeLinear(x, scalar(scale), scalar(zero_point))


def quantized(number, scale, zero_point, x):
    """What stands for a number, of the element type of `x`: the nearest multiple of the scale, a half to the even."""
    return op.QuantizeLinear(number, scalar(scale), x.like(0) if zero_point is None else scalar(zero_point))


def saturated(multiple, zero_point, x):
    """The integer nearest to multiple + zero_point, a half to the even, within what the element type of `x` holds."""
    if zero_point is not None:
        multiple = multiple + op.Cast(scalar(zero_point), to=T.FLOAT)
    limits = np.iinfo(x.dtype.numpy())
    return op.Cast(op.Clip(op.Round(multiple), np.float32(limits.min), np.float32(limits.max)), to=x.dtype)


# --- elementwise ---------------------------------------------------------------------------
@body
def QLinearAdd(
    A, A_scale, A_zero_point: object | None, B, B_scale, B_zero_point: object | None, C_scale, C_zero_point=None
):
    """(A_scale * (A - A_zero_point) + B_scale * (B - B_zero_point)) / C_scale + C_zero_point."""
    a = shifted(A, A_zero_point) * (scalar(A_scale) / scalar(C_scale))
    b = shifted(B, B_zero_point) * (scalar(B_scale) / scalar(C_scale))
    return saturated(a + b, C_zero_point, A)


@body
def QLinearMul(
    A, A_scale, A_zero_point: object | None, B, B_scale, B_zero_point: object | None, C_scale, C_zero_point=None
):
    """A_scale * (A - A_zero_point) * B_scale * (B - B_zero_point) / C_scale + C_zero_point."""
    product = shifted(A, A_zero_point) * shifted(B, B_zero_point)
    return saturated(product * (scalar(A_scale) * scalar(B_scale) / scalar(C_scale)), C_zero_point, A)


@body
def QLinearSigmoid(X, X_scale, X_zero_point: object | None, Y_scale, Y_zero_point=None):
    """Sigmoid."""
    return quantized(op.Sigmoid(real(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@body
def QLinearLeakyRelu(X, X_scale, X_zero_point: object | None, Y_scale, Y_zero_point=None, *, alpha: float = 0.01):
    """X where it is not negative, else alpha times X."""
    return quantized(op.LeakyRelu(real(X, X_scale, X_zero_point), alpha=alpha), Y_scale, Y_zero_point, X)


@body
def QLinearWhere(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    """X where the condition holds, else Y."""
    x = quantized(real(X, x_scale, x_zero_point), z_scale, z_zero_point, X)
    y = quantized(real(Y, y_scale, y_zero_point), z_scale, z_zero_point, X)
    return op.Where(condition, x, y)


@body
def QLinearConcat(Y_scale, Y_zero_point, *inputs, axis: int):
    """The inputs, each with its scale and zero point, one after another."""
    triples = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    return op.Concat(*(quantized(real(*given), Y_scale, Y_zero_point, given[0]) for given in triples), axis=axis)


@body
def QLinearSoftmax(X, X_scale, X_zero_point: object | None, Y_scale, Y_zero_point=None, *, opset: int, axis: int = -1):
    """Softmax of that opset: before 13 all axes from `axis` on are taken together.

    onnxruntime multiplies with the whole number below 1 / Y_scale.
    """
    x = real(X, X_scale, X_zero_point)
    share = op.Softmax(x, axis=axis) if opset >= 13 else softmax_from(x, axis)
    return saturated(op.Round(share * op.Floor(1.0 / scalar(Y_scale))), Y_zero_point, X)


# --- pooling and reduction -----------------------------------------------------------------
def to_second(x):
    """The channels from the end to the second axis."""
    return op.Transpose(x, perm=[0, x.rank - 1, *range(1, x.rank - 1)])


def to_last(x, rank: int):
    """The way back."""
    return op.Transpose(x, perm=[0, *range(2, rank), 1])


@body
def QLinearAveragePool(
    X,
    x_scale,
    x_zero_point: object | None,
    y_scale,
    y_zero_point=None,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """AveragePool, over the axes in the middle where `channels_last` is set."""
    x = real(X, x_scale, x_zero_point)
    y = op.AveragePool(
        to_second(x) if channels_last else x,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        pads=pads,
        strides=strides,
    )
    y = saturated(y / scalar(y_scale), y_zero_point, X)
    return to_last(y, X.rank) if channels_last else y


@body
def QLinearGlobalAveragePool(X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last: int = 0):
    """The mean over all axes but those of the batch and the channels."""
    axes = np.arange(1, X.rank - 1) if channels_last else np.arange(2, X.rank)
    total = op.ReduceSum(shifted(X, x_zero_point), axes)
    count = op.ReduceProd(op.Cast(op.Gather(op.Shape(X), axes), to=T.FLOAT), keepdims=0)
    return saturated(op.Round(total * (scalar(x_scale) / (count * scalar(y_scale)))), y_zero_point, X)


@body
def NhwcMaxPool(
    x,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """MaxPool over the axes in the middle."""
    y, _ = op.MaxPool(
        to_second(x),
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    return to_last(y, x.rank)


@body
def QLinearReduceMean(
    data,
    data_scale,
    data_zero_point: object | None,
    reduced_scale,
    reduced_zero_point=None,
    *,
    axes: list[int],
    keepdims: int,
):
    """ReduceMean."""
    mean = op.ReduceMean(real(data, data_scale, data_zero_point), np.array(axes, np.int64), keepdims=keepdims)
    return quantized(mean, reduced_scale, reduced_zero_point, data)


# --- the steps themselves ------------------------------------------------------------------
@body
def QuantizeLinear(x, y_scale, y_zero_point=None, *, axis: int | None = None):
    """QuantizeLinear, with one scale where no axis is given."""
    if axis is None:
        return op.QuantizeLinear(x, scalar(y_scale), scalar(y_zero_point))
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis)


@body
def DequantizeLinear(x, x_scale, x_zero_point=None, *, axis: int | None = None):
    """DequantizeLinear, with one scale where no axis is given; int32 has a zero point of 0."""
    if x.dtype == T.INT32:
        x_zero_point = None
    if axis is None:
        return op.DequantizeLinear(x, scalar(x_scale), scalar(x_zero_point))
    return op.DequantizeLinear(x, x_scale, x_zero_point, axis=axis)


@body
def QEmbedLayerNormalization(
    input_ids,
    segment_ids: object | None,
    word_embedding_quant,
    position_embedding_quant,
    segment_embedding: object | None,
    gamma_quant,
    beta_quant,
    mask: object | None,
    word_embedding_scale,
    position_embedding_scale,
    segment_embedding_scale: object | None,
    gamma_scale,
    beta_scale,
    word_embedding_zero_point,
    position_embedding_zero_point,
    segment_embedding_zero_point: object | None,
    gamma_zero_point,
    beta_zero_point,
    *,
    epsilon: float = 1e-12,
):
    """EmbedLayerNormalization of what its tables stand for."""
    segments = None
    if segment_embedding is not None:
        segments = real(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    output, counted, _ = EmbedLayerNormalization(
        input_ids,
        segment_ids,
        real(word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        real(position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        segments,
        real(gamma_quant, gamma_scale, gamma_zero_point),
        real(beta_quant, beta_scale, beta_zero_point),
        mask,
        epsilon=epsilon,
    )
    return output, counted
