"""Steps of the operators in ONNX's defs/generator: constants, ranges, and numbers drawn at random."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools import casts
from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

BEFORE_9 = (T.FLOAT, T.DOUBLE, T.FLOAT16)
SHORT_FLOATS = (T.FLOAT16, T.BFLOAT16)

same("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25)
same("ConstantOfShape", 9, 20, 21, 23, 24, 25)
same("EyeLike", 9, 22)
same("RandomNormal RandomUniform RandomNormalLike RandomUniformLike", 1, 22)
same("Multinomial", 7, 22)
same("Bernoulli", 15, 22)
same("Range", 11, 27)


# --- Constant --------------------------------------------------------------------------------
@adapter("Constant", 19, 13)
@adapter("Constant", 13, 12)
def constant_list(op, *, value_floats, value_ints, value_strings, **others):
    """Both can hold a list of numbers or strings, but the shape inference of releases up to 1.10 takes it for a scalar.

    Runtimes of that time do not load it; it becomes the tensor that it stands for.
    """
    for given, dtype in ((value_floats, np.float32), (value_ints, np.int64), (value_strings, object)):
        if given is not None:
            return op.Constant(value=numpy_helper.from_array(np.asarray(op.value(given), dtype)))
    return KEEP


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


# --- ConstantOfShape -------------------------------------------------------------------------
@adapter("ConstantOfShape", 20, 9)
def constant_of_shape_in_float(op, input, *, value):
    """20 adds bfloat16 and the float8 types.

    A float holds every one of them.
    """
    dtype = value.data_type if value is not None else T.FLOAT
    if dtype != T.BFLOAT16 and dtype not in casts.FLOAT8:
        return KEEP
    wide = numpy_helper.from_array(numpy_helper.to_array(value).astype(np.float32))
    return op.Cast(op.ConstantOfShape(input, value=wide), to=dtype, saturate=0 if dtype in casts.FLOAT8 else None)


@adapter("ConstantOfShape", 9, None)
def constant_of_shape(op, input, *, value):
    """9 is its first version.

    It is Expand of the value.
    """
    scalar = numpy_helper.to_array(value).reshape(()) if value is not None else np.float32(0)
    return op.Expand(scalar, input)


# --- bfloat16 by way of float ----------------------------------------------------------------
@adapter("EyeLike", 22, 9)
@adapter("RandomNormalLike RandomUniformLike", 22, 1, accuracy="rounding")
def like_in_float(op, input, *, dtype, **same):
    """22 adds bfloat16.

    The input gives its shape and type alone; what comes out in float is rounded to bfloat16.
    """
    given = op.dtype(input)
    wanted = dtype or given
    if T.BFLOAT16 not in (given, wanted):
        return KEEP
    wide = op.Cast(input, to=T.FLOAT) if given == T.BFLOAT16 else input
    if wanted != T.BFLOAT16:
        return op.again(wide, dtype=wanted, **same)
    return op.Cast(op.again(wide, dtype=T.FLOAT, **same), to=T.BFLOAT16)


@adapter("RandomNormal RandomUniform", 22, 1, accuracy="rounding")
def random_in_float(op, *, dtype, **same):
    """22 adds bfloat16.

    It is rounded from float.
    """
    return KEEP if dtype != T.BFLOAT16 else op.Cast(op.again(dtype=T.FLOAT, **same), to=T.BFLOAT16)


@adapter("Multinomial", 22, 7)
@adapter("Bernoulli", 22, 15)
def probabilities_in_float(op, input, *, dtype, **same):
    """22 adds bfloat16 for the probabilities.

    A float holds them.
    """
    if op.dtype(input) != T.BFLOAT16:
        return KEEP
    return op.again(op.Cast(input, to=T.FLOAT), dtype=dtype or T.BFLOAT16, **same)


# --- Range ---------------------------------------------------------------------------------
@adapter("Range", 27, 11)
def range_in_float(op, start, limit, delta, *, stash_type):
    """27 adds float16 and bfloat16, counted in the type that `stash_type` names.

    They are cast to it and back, as the function body does it; one that is counted in 16 bits is refused.
    """
    dtype = op.dtype(start)
    if dtype not in SHORT_FLOATS:
        return op.Range(start, limit, delta)
    if stash_type not in (T.FLOAT, T.DOUBLE):
        raise RefusedError("before 27 Range cannot count in 16 bits", "set stash_type to 1")
    return op.Cast(op.Range(*(op.Cast(x, to=stash_type) for x in (start, limit, delta))), to=dtype)
