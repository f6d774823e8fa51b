"""Steps of the operators in ONNX's defs/tensor and defs/generator: shapes, casts, constants, padding."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

BEFORE_9 = (T.FLOAT, T.DOUBLE, T.FLOAT16)
FLOAT8 = {getattr(T, name) for name in dir(T) if name.startswith("FLOAT8")}
ARITHMETIC = (T.INT32, T.INT64, T.UINT32, T.UINT64)

same("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
same("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25)
same("ConstantOfShape", 9, 20, 21, 23, 24, 25)
same("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28)
same("CastLike", 15, 19, 21, 23, 24, 25)
same("Concat", 1, 4, 11, 13)
same("Expand", 8, 13)
same("Reshape", 5, 13, 14, 19, 21, 23, 24, 25)
same("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
same("Squeeze Unsqueeze", 1, 11)
same("Squeeze Unsqueeze", 13, 21, 23, 24, 25)
same("Tile", 6, 13)
same("Transpose", 1, 13, 21, 23, 24, 25)
same("Where", 9, 16)
same("Pad", 11, 13, 18, 19, 21, 23, 24, 25)
same("Slice", 10, 11, 13)


# --- Cast ----------------------------------------------------------------------------------
@adapter("Cast", 1, 6)
def cast_number(op, input, *, to):
    """1 names the type in words, 6 by its number in TensorProto."""
    return op.Cast(input, to=T.DataType.Value(to.upper()))


@adapter("Cast", 6, 1)
def cast_word(op, input, *, to):
    """6 has the type's number in TensorProto, 1 its name."""
    return op.Cast(input, to=to)


@adapter("Cast", 19, 13)
def cast_saturate(op, input, *, to, saturate):
    """19 adds float8 types and `saturate`, which concerns them alone.

    For any other type it is left out.
    """
    return KEEP if to in FLOAT8 or saturate else op.Cast(input, to=to)


@adapter("Cast", 24, 23)
def cast_round_mode(op, input, *, to, saturate, round_mode):
    """24 adds float8e8m0 and `round_mode`, which concerns it alone.

    For any other type it is left out.
    """
    return KEEP if to == T.FLOAT8E8M0 or round_mode == "up" else op.Cast(input, to=to, saturate=saturate)


@adapter("CastLike", 15, None)
def cast_like(op, input, target_type):
    """15 is its first version.

    It is a Cast to the element type of `target_type`.
    """
    return op.Cast(input, to=op.dtype(target_type))


@adapter("CastLike", 19, 15)
def cast_like_saturate(op, input, target_type, *, saturate):
    """19 adds float8 types and `saturate`, which concerns them alone.

    For any other type it is left out.
    """
    return KEEP if saturate or op.dtype(target_type) in FLOAT8 else op.CastLike(input, target_type)


@adapter("CastLike", 24, 23)
def cast_like_round_mode(op, input, target_type, *, saturate, round_mode):
    """24 adds float8e8m0 and `round_mode`, which concerns it alone.

    For any other type it is left out.
    """
    if round_mode == "up" or op.dtype(target_type) == T.FLOAT8E8M0:
        return KEEP
    return op.CastLike(input, target_type, saturate=saturate)


# --- constants -----------------------------------------------------------------------------
@adapter("Constant", 12, 11)
def constant_tensor(
    op,
    *,
    value,
    sparse_value,
    value_float,
    value_floats,
    value_int,
    value_ints,
    value_string,
    value_strings,
):
    """12 can hold a number, a string or a list of them, 11 a tensor.

    They become the tensor that they stand for.
    """
    for given, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if given is not None:
            return op.Constant(value=numpy_helper.from_array(np.asarray(op.value(given), dtype)))
    return KEEP


@adapter("Constant", 11, 9)
def constant_dense(op, *, value, sparse_value):
    """11 can hold a sparse tensor.

    It becomes the dense one, which is what the operator yields.
    """
    if sparse_value is None:
        return KEEP
    values = numpy_helper.to_array(sparse_value.values)
    indices = numpy_helper.to_array(sparse_value.indices)
    dense = np.zeros(list(sparse_value.dims), values.dtype)
    dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)] = values
    return op.Constant(value=numpy_helper.from_array(dense))


@adapter("Constant", 9, 1)
def constant_of_float(op, *, value):
    """9 holds every type, 1 float types alone.

    Others are stored in the graph, or cast from a double that holds them.
    """
    return KEEP if value.data_type in BEFORE_9 else op.initializer(value)


@adapter("ConstantOfShape", 9, None)
def constant_of_shape(op, input, *, value):
    """9 is its first version.

    It is Expand of the value.
    """
    scalar = numpy_helper.to_array(value).reshape(()) if value is not None else np.float32(0)
    return op.Expand(scalar, input)


@adapter("Expand", 8, None)
def expand(op, input, shape):
    """8 is its first version.

    A tensor of one element is repeated by Tile; any other takes its shape from a zero that is repeated so.
    """
    dims = op.shape(shape)
    if not isinstance(dims[0], int):
        raise RefusedError(f"before 8 there is no Expand, and Tile needs the number of elements of '{shape}'")
    ones = np.ones(dims[0], np.int64)
    if all(dim == 1 for dim in op.shape(input)) and op.rank(input) <= dims[0]:
        return op.Tile(op.Reshape(input, ones), shape)
    dtype = op.dtype(input)
    zero = op.Tile(op.like(0, input).reshape(ones), shape)
    return op.Or(input, zero) if dtype == T.BOOL else op.Add(input, zero)


# --- Where ---------------------------------------------------------------------------------
@adapter("Where", 9, None, opset=9)
def where(op, condition, X, Y):
    """9 is its first version.

    With m as 1 where the condition holds and n = 1 - m, X to the power of m is X or 1, and 1 even for NaN and infinity,
    so that X^m - n + Y^n - m chooses; integers are multiplied by m and n.
    """
    dtype = op.dtype(X)
    if dtype == T.BOOL:
        return op.Or(op.And(condition, X), op.And(op.Not(condition), Y))
    if dtype in ARITHMETIC:
        m, n = op.Cast(condition, to=dtype), op.Cast(op.Not(condition), to=dtype)
        chosen = op.Mul(X, m)
        return chosen if _is_zero(op, Y) else op.Add(chosen, op.Mul(Y, n))
    if dtype in (T.FLOAT, T.DOUBLE):
        m, n = op.Cast(condition, to=dtype), op.Cast(op.Not(condition), to=dtype)
        chosen = op.Sub(op.Pow(X, m), n)
        return chosen if _is_zero(op, Y) else op.Add(chosen, op.Sub(op.Pow(Y, n), m))
    wide = {T.FLOAT16: T.FLOAT, T.INT8: T.INT32, T.INT16: T.INT32, T.UINT8: T.INT32, T.UINT16: T.INT32}.get(dtype)
    if wide is None:
        raise RefusedError(
            f"before 9 there is no Where, and nothing else chooses between {T.DataType.Name(dtype).lower()}"
        )
    return op.Cast(op.Where(condition, op.Cast(X, to=wide), op.Cast(Y, to=wide)), to=dtype)


def _is_zero(op, value) -> bool:
    known = op.known(value)
    return known is not None and known.size == 1 and not known.any()


# --- shapes --------------------------------------------------------------------------------
@adapter("Reshape", 1, 5)
def reshape_input(op, data, *, shape):
    """1 has the shape as an attribute, 5 as an input.

    It becomes a constant.
    """
    return op.Reshape(data, np.array(shape, np.int64))


@adapter("Reshape", 5, 1)
def reshape_attribute(op, data, shape):
    """5 has the shape as an input, 1 as an attribute.

    It must be a constant.
    """
    return op.Reshape(data, shape=op.const(shape).tolist())


@adapter("Reshape", 14, 13)
def reshape_allowzero(op, data, shape, *, allowzero):
    """14 can take a 0 in the shape for a dimension of 0 (`allowzero`), before it always copies the dimension.

    A constant shape without 0 means the same in both; one with 0 makes an empty tensor of that very shape.
    """
    if not allowzero:
        return KEEP
    if (op.const(shape) != 0).all():
        return op.Reshape(data, shape)
    empty = numpy_helper.from_array(op.like(0, data).reshape(1))
    return op.ConstantOfShape(shape, value=empty)


@adapter("Shape", 15, 13)
def shape_slice(op, data, *, start, end):
    """15 can give a part of the shape, from `start` to `end`.

    The part is sliced from the whole; bounds beyond it are clamped by both.
    """
    if not start and end is None:
        return KEEP
    whole = op.Shape(data)
    end = np.iinfo(np.int64).max if end is None else end
    return op.Slice(whole, np.array([start or 0], np.int64), np.array([end], np.int64), np.array([0], np.int64))


@adapter("Slice", 1, 10)
def slice_inputs(op, data, *, starts, ends, axes):
    """1 has starts, ends and axes as attributes, 10 as inputs.

    They become constants.
    """
    lists = [np.array(v, np.int64) for v in (starts, ends, axes) if v is not None]
    return op.Slice(data, *lists)


@adapter("Slice", 10, 1)
def slice_attributes(op, data, starts, ends, axes, steps):
    """10 has starts, ends and axes as inputs, 1 as attributes; steps are new.

    They must be constants, and the steps 1.
    """
    if steps and (op.const(steps) != 1).any():
        raise RefusedError("before 10 Slice has no steps")
    lists = {"starts": op.const(starts), "ends": op.const(ends), "axes": op.const(axes) if axes else None}
    if axes and (lists["axes"] < 0).any():
        lists["axes"] = lists["axes"] % op.rank(data)
    return op.Slice(data, **lists)


@adapter("Squeeze Unsqueeze", 11, 13)
def axes_input(op, data, *, axes):
    """11 has the axes as an attribute, 13 as an input.

    They become a constant.
    """
    return op.again(data, None if axes is None else np.array(axes, np.int64))


@adapter("Squeeze Unsqueeze", 13, 11)
def axes_attribute(op, data, axes):
    """13 has the axes as an input, 11 as an attribute.

    They must be a constant.
    """
    return op.again(data, axes=op.const(axes).reshape(-1) if axes else None)


@adapter("Squeeze Unsqueeze", 11, 1)
def axes_from_front(op, data, *, axes):
    """11 lets axes count from the back.

    They are counted from the front; for Unsqueeze those are axes of the output.
    """
    if all(axis >= 0 for axis in axes or []):
        return KEEP
    rank = op.rank(data) + (len(axes) if op.type == "Unsqueeze" else 0)
    return op.again(data, axes=[axis % rank for axis in axes])


@adapter("Concat", 11, 4)
def concat_axis(op, *inputs, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.Concat(*inputs, axis=axis + op.rank(inputs[0]))


# --- Pad -----------------------------------------------------------------------------------
@adapter("Pad", 1, 2)
def pad_renamed(op, data, *, paddings, mode, value):
    """1 calls the attribute `paddings`, 2 `pads`."""
    return op.Pad(data, pads=paddings, mode=mode, value=value)


@adapter("Pad", 2, 1)
def pad_named_before(op, data, *, pads, mode, value):
    """2 calls the attribute `pads`, 1 `paddings`, which cannot be negative."""
    if any(p < 0 for p in pads):
        raise RefusedError("before 2 Pad cannot take away")
    return op.Pad(data, paddings=pads, mode=mode, value=value)


@adapter("Pad", 2, 11)
def pad_inputs(op, data, *, pads, mode, value):
    """2 has the pads and the value as attributes, 11 as inputs.

    They become constants; the value is of the data's type.
    """
    return op.Pad(data, np.array(pads, np.int64), op.like(value, data) if value else None, mode=mode)


@adapter("Pad", 11, 2)
def pad_attributes(op, data, pads, constant_value, *, mode):
    """11 has the pads and the value as inputs, 2 as attributes, the value as a float.

    They must be constants, and a float hold the value.
    """
    value = op.const(constant_value).reshape(-1)[0] if constant_value and mode == "constant" else 0
    if np.float32(value) != np.float64(value):
        raise RefusedError(f"before 11 the value is a float, which does not hold {value}")
    return op.Pad(data, pads=op.const(pads), mode=mode, value=float(value))


@adapter("Pad", 18, 13)
def pad_all_axes(op, data, pads, constant_value, axes, *, mode):
    """18 can name the axes that the pads are for.

    The pads of the other axes are 0.
    """
    if not axes:
        return KEEP
    rank, given, named = op.rank(data), op.const(pads), op.const(axes).reshape(-1)
    full = np.zeros((2, rank), np.int64)
    full[:, [int(axis) % rank for axis in named]] = given.reshape(2, -1)
    return op.Pad(data, full.reshape(-1), constant_value, mode=mode)


@adapter("Pad", 19, 18)
def pad_wrap(op, data, pads, constant_value, axes, *, mode):
    """19 adds the mode `wrap`.

    It is refused; the other modes are alike.
    """
    if mode == "wrap":
        raise RefusedError("before 19 Pad has no mode 'wrap'")
    return KEEP
