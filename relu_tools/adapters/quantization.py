"""Steps of the operators in ONNX's defs/quantization."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.adapters.indexing import arange, size
from relu_tools.casts import FLOAT8

same("QuantizeLinear DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
same("QLinearMatMul", 10, 21)

WORDS = (T.INT16, T.UINT16)
# The older types that hold every value of these, as far as the installed onnx knows them.
HOLDS = {
    T.DataType.Value(name): older
    for name, older in {
        "FLOAT6E2M3": T.FLOAT8E4M3FN,
        "FLOAT6E3M2": T.FLOAT8E4M3FN,
        "FLOAT4E2M1": T.FLOAT8E4M3FN,
        "INT2": T.INT4,
        "UINT2": T.UINT4,
        "INT4": T.INT8,
        "UINT4": T.UINT8,
    }.items()
    if hasattr(T, name)
}


# --- scales and zero points ----------------------------------------------------------------
def _cast(op, value, dtype: int):
    return value if not value or op.dtype(value) == dtype else op.Cast(value, to=dtype)


def _per_tensor(op, scale) -> bool:
    return op.shape(scale) in ([], [1])


def _spread(op, value, x, axis: int, block_size: int):
    """A scale or zero point so that it broadcasts over x: along its axis, or repeated for blocks."""
    rank = op.rank(x)
    axis %= rank
    if block_size:
        places = arange(op, size(op, x, axis))
        blocks = places // block_size if isinstance(places, np.ndarray) else op.Div(places, np.array([block_size]))
        return op.Gather(value, blocks, axis=axis)
    if _per_tensor(op, value) or axis == rank - 1:
        return value
    return op.Reshape(value, np.array([-1] + [1] * (rank - 1 - axis)))


def _is_zero(op, zero_point) -> bool:
    known = op.known(zero_point)
    return not zero_point or (known is not None and not known.astype(np.float32).any())


def _zero(dtype: int, shape: list[int]) -> np.ndarray:
    return np.zeros(shape, helper.tensor_dtype_to_np_dtype(dtype))


# --- QuantizeLinear ------------------------------------------------------------------------
def _quantized(op, x, scale, zero_point, *, axis: int, block_size: int, dtype: int, **saturate):
    """Quantization by parts: the quotients are rounded with a scale of 1, or by Round where there is a zero point."""
    float_ = T.FLOAT if op.dtype(x) == T.INT32 else op.dtype(x)
    x, scale = _cast(op, x, float_), _cast(op, scale, float_)
    quotient = op.Div(x, _spread(op, scale, x, axis, block_size))
    if dtype not in WORDS and (_is_zero(op, zero_point) or dtype not in (T.INT8, T.UINT8)):
        return op.QuantizeLinear(quotient, op.like(1, quotient), _zero(dtype, []), **saturate)
    rounded = _cast(op, op.Round(quotient), T.FLOAT)
    if zero_point:
        rounded = op.Add(rounded, _spread(op, op.Cast(zero_point, to=T.FLOAT), x, axis, block_size))
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return op.Cast(op.Clip(rounded, np.float32(limits.min), np.float32(limits.max)), to=dtype)


@adapter("QuantizeLinear", 13, 10)
def quantize_per_tensor(op, x, y_scale, y_zero_point, *, axis):
    """13 can have a scale for each index of an axis, 10 has one.

    Then the quotients are computed by Div and rounded.
    """
    if _per_tensor(op, y_scale):
        return KEEP if axis == 1 else op.QuantizeLinear(x, y_scale, y_zero_point)
    dtype = op.dtype(y_zero_point) if y_zero_point else T.UINT8
    return _quantized(op, x, y_scale, y_zero_point, axis=axis, block_size=0, dtype=dtype)


@adapter("QuantizeLinear", 13, 19)
def quantize_integers(op, x, y_scale, y_zero_point, *, axis):
    """13 divides integers by a float scale, 19 wants one type for both.

    The integers are cast to float, which is what the division does.
    """
    if op.dtype(x) != T.INT32:
        return KEEP
    return op.QuantizeLinear(op.Cast(x, to=T.FLOAT), y_scale, y_zero_point, axis=axis)


@adapter("QuantizeLinear", 19, 13)
def quantize_floats(op, x, y_scale, y_zero_point, *, axis, saturate):
    """19 adds float16, bfloat16, float8 and `saturate`, which concerns float8 alone.

    Other floats are cast to float, in which the quotient is rounded less before it is rounded to an integer.
    """
    if op.dtype(x) == op.dtype(y_scale) == T.FLOAT:
        return KEEP if saturate else op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis)
    op.rounds()
    x = x if op.dtype(x) == T.INT32 else _cast(op, x, T.FLOAT)
    return op.QuantizeLinear(x, _cast(op, y_scale, T.FLOAT), y_zero_point, axis=axis)


@adapter("QuantizeLinear", 21, 19)
def quantize_by_axis(op, x, y_scale, y_zero_point, *, axis, block_size, output_dtype, saturate):
    """21 adds scales for blocks, 16-bit and 4-bit integers, and `output_dtype`.

    The type is said by a zero point of 0; blocks and 16-bit integers are computed by Div and Round.
    """
    dtype = op.dtype(y_zero_point) if y_zero_point else output_dtype or T.UINT8
    if block_size or dtype in WORDS:
        how = {"axis": axis, "block_size": block_size, "dtype": dtype, "saturate": saturate}
        return _quantized(op, x, y_scale, y_zero_point, **how)
    if not output_dtype:
        return KEEP
    if not y_zero_point and dtype != T.UINT8:
        shape = op.shape(y_scale)
        known = all(isinstance(dim, int) for dim in shape)
        # Runtimes make constants of no shape for float, not for float8.
        y_zero_point = _zero(dtype, shape) if known else op.Cast(op.ConstantOfShape(op.Shape(y_scale)), to=dtype)
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis, saturate=saturate)


@adapter("QuantizeLinear", 23, 21)
def quantize_in_scale_type(op, x, y_scale, y_zero_point, *, precision, **same):
    """23 lets x and scale differ in type and divides in the scale's, or in that which `precision` says.

    Both are cast to it.
    """
    wanted = precision or op.dtype(y_scale)
    if op.dtype(x) == op.dtype(y_scale) == wanted:
        return KEEP if not precision else op.QuantizeLinear(x, y_scale, y_zero_point, **same)
    op.rounds()
    return op.QuantizeLinear(_cast(op, x, wanted), _cast(op, y_scale, wanted), y_zero_point, **same)


# --- DequantizeLinear ----------------------------------------------------------------------
def _dequantized(op, x, scale, zero_point, *, axis: int, block_size: int):
    """The differences to the zero point times the scale; integers of 16 bits and less are floats to the last bit."""
    dtype = op.dtype(scale)
    difference = _as_float(op, x)
    if zero_point:
        difference = op.Sub(difference, _spread(op, _as_float(op, zero_point), x, axis, block_size))
    return _cast(op, op.Mul(difference, _spread(op, _cast(op, scale, T.FLOAT), x, axis, block_size)), dtype)


def _held(op, x, zero_point) -> tuple | None:
    """Constants of a type that older versions lack in one that they have; None where x is no such constant."""
    wide = HOLDS.get(op.dtype(x))
    known = op.known(x) if wide else None
    if wide is None or known is None:
        return None
    return _constant(op, known, wide), zero_point and _constant(op, op.const(zero_point), wide)


def _constant(op, value: np.ndarray, dtype: int) -> str:
    return op.Constant(value=numpy_helper.from_array(value.astype(helper.tensor_dtype_to_np_dtype(dtype))))


def _as_float(op, x):
    """x as float; a constant float8, which has no Cast before 19, as such."""
    known = op.known(x) if op.dtype(x) in FLOAT8 and op.version("Cast") < 19 else None
    return op.Cast(x, to=T.FLOAT) if known is None else _constant(op, known, T.FLOAT)


@adapter("DequantizeLinear", 13, 10)
def dequantize_per_tensor(op, x, x_scale, x_zero_point, *, axis):
    """13 can have a scale for each index of an axis, 10 has one.

    Then the differences to the zero points are multiplied with them by Mul.
    """
    if _per_tensor(op, x_scale):
        return KEEP if axis == 1 else op.DequantizeLinear(x, x_scale, x_zero_point)
    return _dequantized(op, x, x_scale, x_zero_point, axis=axis, block_size=0)


@adapter("DequantizeLinear", 19, 13)
def dequantize_to_float(op, x, x_scale, x_zero_point, *, axis):
    """19 adds scales of float16 and bfloat16, and float8.

    In float the product is rounded once on its way to them, as their own is; float8 that is constant becomes float.
    """
    dtype = op.dtype(x_scale)
    scale = _cast(op, x_scale, T.FLOAT)
    if op.dtype(x) in FLOAT8 and op.known(x) is not None:
        return _cast(op, _dequantized(op, x, scale, x_zero_point, axis=axis, block_size=0), dtype)
    if dtype == T.FLOAT:
        return KEEP
    return op.Cast(op.DequantizeLinear(x, scale, x_zero_point, axis=axis), to=dtype)


@adapter("DequantizeLinear", 21, 19)
def dequantize_by_axis(op, x, x_scale, x_zero_point, *, axis, block_size):
    """21 adds scales for blocks, and 16-bit and 4-bit integers.

    Constants of 4 bits become such of 8; the difference of 16-bit integers is taken in int32, which has no zero point;
    blocks are multiplied by Mul.
    """
    held = _held(op, x, x_zero_point)
    x, x_zero_point = held or (x, x_zero_point)
    if block_size:
        return _dequantized(op, x, x_scale, x_zero_point, axis=axis, block_size=block_size)
    if op.dtype(x) in WORDS:
        difference = op.Cast(x, to=T.INT32)
        if x_zero_point:
            difference = op.Sub(difference, _spread(op, op.Cast(x_zero_point, to=T.INT32), x, axis, 0))
        return op.DequantizeLinear(difference, x_scale, axis=axis)
    return op.DequantizeLinear(x, x_scale, x_zero_point, axis=axis) if held else KEEP


@adapter("DequantizeLinear", 23, 21)
def dequantize_to_scale_type(op, x, x_scale, x_zero_point, *, output_dtype, **same):
    """23 adds `output_dtype`, in which the product is computed, and float4.

    The scale is cast to it; constants of float4 become such of float8.
    """
    held = _held(op, x, x_zero_point)
    if not output_dtype and held is None:
        return KEEP
    if output_dtype and output_dtype != op.dtype(x_scale):
        op.rounds()
    x, x_zero_point = held or (x, x_zero_point)
    return op.DequantizeLinear(x, _cast(op, x_scale, output_dtype or op.dtype(x_scale)), x_zero_point, **same)


@adapter("DequantizeLinear", 28, 25)
@adapter("DequantizeLinear", 25, 24)
def dequantize_held(op, x, x_scale, x_zero_point, **same):
    """28 adds float6, 25 integers of 2 bits.

    Constants become such of a type that holds them.
    """
    held = _held(op, x, x_zero_point)
    return KEEP if held is None else op.DequantizeLinear(held[0], x_scale, held[1], **same)


@adapter("QuantizeLinear DequantizeLinear", 24, 23)
def scale_of_powers(op, x, scale, zero_point, **same):
    """24 adds scales of float8e8m0.

    A float holds these powers of 2.
    """
    if op.dtype(scale) != T.FLOAT8E8M0:
        return KEEP
    return op.again(x, op.const(scale).astype(np.float32), zero_point, **same)


# --- QLinearMatMul -------------------------------------------------------------------------
@adapter("QLinearMatMul", 21, 10)
def scales_of_float(op, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """21 adds scales of float16 and bfloat16, and float8.

    A float holds these scales.
    """
    if op.dtype(a_scale) == T.FLOAT:
        return KEEP
    op.rounds()
    scales = [_cast(op, scale, T.FLOAT) for scale in (a_scale, b_scale, y_scale)]
    return op.QLinearMatMul(a, scales[0], a_zero_point, b, scales[1], b_zero_point, scales[2], y_zero_point)
