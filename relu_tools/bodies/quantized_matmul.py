"""Bodies of com.microsoft's matrix products and convolutions of 8-bit integers."""

from __future__ import annotations

from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.quantized import saturated, scalar, to_last, to_second
from relu_tools.bodies.tracing import body


def per_column(value):
    """A scale or zero point of one element as a scalar; one for each column as it is."""
    return scalar(value) if value is not None and value.known_shape == [1] else value


def product(A, B, a_zero_point, b_zero_point):
    """(A - a_zero_point) @ (B - b_zero_point), summed in int32, as float."""
    return op.Cast(op.MatMulInteger(A, B, per_column(a_zero_point), per_column(b_zero_point)), to=T.FLOAT)


@body
def MatMulIntegerToFloat(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    """What A and B stand for, multiplied; and the vector `bias`."""
    y = product(A, B, a_zero_point, b_zero_point) * (scalar(a_scale) * per_column(b_scale))
    return y if bias is None else y + bias


@body
def DynamicQuantizeMatMul(A, B, b_scale, b_zero_point=None, bias=None):
    """A quantized by its own range, times what B stands for; and the vector `bias`."""
    a, a_scale, a_zero_point = op.DynamicQuantizeLinear(A)
    y = product(a, B, a_zero_point, b_zero_point) * (a_scale * per_column(b_scale))
    return y if bias is None else y + bias


@body
def MatMulInteger16(A, B):
    """The product of integers of 16 bits, summed in 32."""
    dtype = T.UINT32 if A.dtype == B.dtype == T.UINT16 else T.INT32
    return op.MatMul(op.Cast(A, to=dtype), op.Cast(B, to=dtype))


@body
def QGemm(
    A,
    a_scale,
    a_zero_point,
    B,
    b_scale,
    b_zero_point,
    C=None,
    y_scale=None,
    y_zero_point=None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
):
    """alpha times what A and B stand for, multiplied, with integers C added; a float where Y has no scale."""
    a, b = (op.Transpose(x, perm=[1, 0]) if turned else x for x, turned in ((A, transA), (B, transB)))
    total = op.MatMulInteger(a, b, scalar(a_zero_point), per_column(b_zero_point))
    total = op.Cast(total if C is None else total + C, to=T.FLOAT)
    scale = scalar(a_scale) * per_column(b_scale)
    if alpha != 1:
        scale = scalar(a_scale) * alpha * per_column(b_scale)
    if y_scale is None:
        return total * scale
    return saturated(op.Round(total * (scale / scalar(y_scale))), y_zero_point, y_zero_point)


@body
def QLinearConv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """QLinearConv, over the axes in the middle of x and y where `channels_last` is set."""
    y = op.QLinearConv(
        to_second(x) if channels_last else x,
        scalar(x_scale),
        scalar(x_zero_point),
        w,
        per_column(w_scale),
        per_column(w_zero_point),
        scalar(y_scale),
        scalar(y_zero_point),
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return to_last(y, x.rank) if channels_last else y
