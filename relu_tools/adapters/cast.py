"""Steps of Cast and CastLike."""

from __future__ import annotations

from onnx import TensorProto as T

from relu_tools.adapters import KEEP, adapter, same

same("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28)
same("CastLike", 15, 19, 21, 23, 24, 25)


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

    It is left out: for any other type it says nothing, and those types are refused.
    """
    return KEEP if saturate else op.Cast(input, to=to)


@adapter("Cast", 24, 23)
def cast_round_mode(op, input, *, to, saturate, round_mode):
    """24 adds float8e8m0 and `round_mode`, which concerns it alone.

    It is left out: for any other type it says nothing, and that type is refused.
    """
    return KEEP if round_mode == "up" else op.Cast(input, to=to, saturate=saturate)


@adapter("CastLike", 15, None)
def cast_like(op, input, target_type):
    """15 is its first version.

    It is a Cast to the element type of `target_type`.
    """
    return op.Cast(input, to=op.dtype(target_type))


@adapter("CastLike", 19, 15)
def cast_like_saturate(op, input, target_type, *, saturate):
    """19 adds float8 types and `saturate`, which concerns them alone.

    It is left out: for any other type it says nothing, and those types are refused.
    """
    return KEEP if saturate else op.CastLike(input, target_type)


@adapter("CastLike", 24, 23)
def cast_like_round_mode(op, input, target_type, *, saturate, round_mode):
    """24 adds float8e8m0 and `round_mode`, which concerns it alone.

    It is left out: for any other type it says nothing, and that type is refused.
    """
    return KEEP if round_mode == "up" else op.CastLike(input, target_type, saturate=saturate)
