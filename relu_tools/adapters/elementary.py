"""Functions of one number, and the remainder of two, below the opsets that have them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import FLOATS, adapter
from relu_tools.report import RefusedError

UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)


# --- kinds of numbers ----------------------------------------------------------------------
@adapter("IsNaN", 9, None)
def is_nan(op, X):
    """9 is its first version.

    A NaN is neither less than 1 nor greater than 0.
    """
    return op.Not(op.Or(op.Less(X, op.like(1, X)), op.Greater(X, op.like(0, X))))


@adapter("IsInf", 10, None)
def is_inf(op, X, *, detect_negative, detect_positive):
    """10 is its first version.

    An infinity is beyond the largest number.
    """
    largest = np.finfo(op.like(0, X).dtype).max
    above = op.Greater(X, largest) if detect_positive else None
    below = op.Less(X, -largest) if detect_negative else None
    if above and below:
        return op.Or(above, below)
    return above or below or op.And(op.Less(X, largest), op.Greater(X, largest))


@adapter("Sign", 9, None, opset=9)
def sign(op, input):
    """9 is its first version.

    It is 1 where a number is above 0, less 1 where it is below; a NaN and 0 stay.
    """
    dtype = op.dtype(input)
    above = op.Greater(input, op.like(0, input))
    if dtype in UNSIGNED:
        return op.Cast(above, to=dtype)
    below = op.Less(input, op.like(0, input))
    if dtype not in FLOATS:
        return op.Cast(op.Sub(op.Cast(above, to=T.INT32), op.Cast(below, to=T.INT32)), to=dtype)
    one = op.Sub(op.Cast(above, to=dtype), op.Cast(below, to=dtype))
    return op.Where(op.Or(above, below), one, input)


@adapter("Round", 11, None)
def round_to_even(op, X):
    """11 is its first version.

    The whole part of the size goes up by 1 where the rest is above one half, or is that and the whole part is odd.
    Infinities and NaN have no rest, and stay.
    """
    half, two = op.like(0.5, X), op.like(2, X)
    sized = op.Abs(X)
    whole = op.Floor(sized)
    rest = op.Sub(sized, whole)
    odd = op.Greater(op.Sub(whole, op.Mul(two, op.Floor(op.Mul(half, whole)))), half)
    up = op.Or(op.Greater(rest, half), op.And(odd, op.Not(op.Less(rest, half))))
    return _with_sign(op, op.Add(whole, op.Cast(up, to=op.dtype(X))), X)


# --- Mod -----------------------------------------------------------------------------------
@adapter("Mod", 10, None, opset=13)
def mod(op, A, B, *, fmod):
    """10 is its first version.

    Of integers it is what a product with the quotient leaves, plus the divisor where its sign is the other one. Of
    floats the divisor times 2^k is taken away wherever it fits in, for k from where it does no more down to 0: each
    difference is exact in double.
    """
    dtype = op.dtype(A)
    if dtype in FLOATS:
        if not fmod:
            raise RefusedError("before 28 a Mod of floats must have fmod = 1")
        a, b = (x if dtype == T.DOUBLE else op.Cast(x, to=T.DOUBLE) for x in (A, B))
        rest = _float_mod(op, a, b)
        return rest if dtype == T.DOUBLE else op.Cast(rest, to=dtype)
    small = dtype not in (T.INT32, T.INT64, T.UINT32, T.UINT64)
    a, b = (op.Cast(x, to=T.INT32) if small else x for x in (A, B))
    rest = op.Sub(a, op.Mul(op.Div(a, b), b))
    if not fmod and dtype not in UNSIGNED and not (op.nonnegative(A) and op.nonnegative(B)):
        zero = op.like(0, rest)
        wrong = op.Less(rest, zero)
        if not op.nonnegative(B):
            wrong = op.And(op.Cast(rest, to=T.BOOL), op.Xor(wrong, op.Less(b, zero)))
        rest = op.Add(rest, op.Mul(b, op.Cast(wrong, to=op.dtype(rest))))
    return op.Cast(rest, to=dtype) if small else rest


def _float_mod(op, a, b):
    zero, one, two = (np.float64(number) for number in (0, 1, 2))
    sized, by = op.Abs(a), op.Abs(b)
    # How many places the numbers are apart; what is no number is sorted out in the end.
    apart = op.Div(op.Sub(op.Log(sized), op.Log(by)), np.log(two))
    apart = op.Where(op.Less(apart, np.float64(3000)), apart, zero)
    apart = op.Concat(op.Reshape(apart, np.array([-1])), np.zeros(1), axis=0)
    turns = op.Add(op.Ceil(op.ReduceMax(apart, keepdims=0)), two)

    def turn(number, go_on, rest):
        # The power itself may be beyond a double where the product is not.
        power = op.Sub(op.Sub(turns, one), op.Cast(number, to=T.DOUBLE))
        first = op.Floor(op.Div(power, two))
        times = op.Mul(op.Mul(by, op.Pow(two, first)), op.Pow(two, op.Sub(power, first)))
        return op.Identity(go_on), op.Where(op.Less(rest, times), rest, op.Sub(rest, times))

    # What is carried has the shape of the result; false is 0, for NaN too.
    spread = op.Add(sized, op.Cast(op.Less(by, by), to=T.DOUBLE))
    types = [helper.make_tensor_type_proto(kind, []) for kind in (T.INT64, T.BOOL)]
    types.append(helper.make_tensor_type_proto(T.DOUBLE, op.known_shape(spread)))
    rest = op.Loop(op.Cast(turns, to=T.INT64), None, spread, body=op.branch(turn, types))
    defined = op.And(op.Greater(by, zero), op.Less(sized, np.float64(np.inf)))
    return op.Where(defined, _with_sign(op, rest, a), np.float64(np.nan))


# --- the error function, angles and the hyperbolic ones ------------------------------------------------
# erf(x) / x as a quotient of polynomials in x^2, up to 4 with a relative error of 9e-12; lowest coefficient first.
# fmt: off
ERF_OVER = (
    1.1283791670864747, 0.2003170223035096, 0.05811372776929627, 0.004960794786099922, 0.0005129327178978691,
    2.1775688166051102e-05, 7.525261832554651e-07, 3.0044071130054265e-09,
)
ERF_UNDER = (
    1.0, 0.5108596717030096, 0.12178851117704766, 0.017716104488797613, 0.0017148100612879359,
    0.00011147771775510419, 4.516831599708602e-06, 7.328342111042697e-08,
)
# fmt: on


@adapter("Erf", 9, None, accuracy="rounding", opset=13)
def erf(op, input):
    """9 is its first version.

    A quotient of polynomials in double is near enough for a float, which is 1 from 4 on; not for a double.
    """
    dtype = op.dtype(input)
    if dtype not in (T.FLOAT, T.FLOAT16):
        raise RefusedError(
            f"before 9 nothing comes near enough to the error function of {T.DataType.Name(dtype).lower()}"
        )
    x, four = op.Cast(input, to=T.DOUBLE), np.float64(4)
    x = op.Where(op.Greater(x, four), four, op.Where(op.Less(x, -four), -four, x))
    square = op.Mul(x, x)
    quotient = op.Div(_polynomial(op, square, ERF_OVER), _polynomial(op, square, ERF_UNDER))
    return op.Cast(op.Mul(x, quotient), to=dtype)


def _polynomial(op, x, coefficients):
    result = np.float64(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = op.Add(op.Mul(result, x), np.float64(coefficient))
    return result


@adapter("Asin Acos Atan", 7, None, accuracy="rounding", opset=13)
def inverse_trigonometric(op, input):
    """7 is their first version.

    They are arctangents, a series in double of an angle that is halved twice.
    """
    return _in_double(op, input)


@adapter("Sinh Cosh Asinh Acosh Atanh", 9, None, accuracy="rounding", opset=13)
def hyperbolic(op, input):
    """9 is their first version.

    They are computed in double from exponentials and logarithms, in forms that lose no digits to cancellation.
    """
    return _in_double(op, input)


def _in_double(op, input):
    dtype = op.dtype(input)
    x = input if dtype == T.DOUBLE else op.Cast(input, to=T.DOUBLE)
    result = FORMS[op.type](op, x)
    return result if dtype == T.DOUBLE else op.Cast(result, to=dtype)


def _atan(op, x):
    one, sized = np.float64(1), op.Abs(x)
    steep = op.Greater(sized, one)
    size = op.Where(steep, op.Div(one, sized), sized)
    # Of half the angle the tangent is t / (1 + sqrt(1 + t^2)).
    halves, tangent = np.float64(4), size
    for _ in range(2):
        divisor = op.Add(one, op.Sqrt(op.Add(one, op.Mul(tangent, tangent))))
        halves, tangent = op.Div(halves, divisor), op.Div(tangent, divisor)
    series = _polynomial(op, op.Mul(tangent, tangent), [(-1) ** k / (2 * k + 1) for k in range(12)])
    angle = op.Mul(size, op.Mul(halves, series))
    return _with_sign(op, op.Where(steep, op.Sub(np.float64(np.pi / 2), angle), angle), x)


def _asin(op, x):
    one = np.float64(1)
    return _atan(op, op.Div(x, op.Sqrt(op.Mul(op.Sub(one, x), op.Add(one, x)))))


def _acos(op, x):
    one = np.float64(1)
    half = _atan(op, op.Sqrt(op.Div(op.Sub(one, x), op.Add(one, x))))
    return op.Add(half, half)


def _exponentials(op, x):
    """Half of e^x and half of e^-x, which do not overflow before their sum does."""
    root = op.Exp(op.Mul(x, np.float64(0.5)))
    half = np.float64(0.5)
    return op.Mul(op.Mul(root, half), root), op.Div(op.Div(half, root), root)


def _sinh(op, x):
    one = np.float64(1)
    tangent = op.Tanh(op.Mul(x, np.float64(0.5)))
    near = op.Div(op.Add(tangent, tangent), op.Sub(one, op.Mul(tangent, tangent)))
    return op.Where(op.Less(op.Abs(x), one), near, op.Sub(*_exponentials(op, x)))


def _cosh(op, x):
    return op.Add(*_exponentials(op, x))


def _log_of_more(op, x):
    """log(1 + x), with what the sum loses."""
    one = np.float64(1)
    total = op.Add(one, x)
    lost = op.Div(op.Sub(x, op.Sub(total, one)), total)
    return op.Add(op.Log(total), op.Where(op.Less(x, np.float64(np.inf)), lost, np.float64(0)))


def _asinh(op, x):
    one, sized = np.float64(1), op.Abs(x)
    inverse = op.Div(one, sized)
    root = op.Sqrt(op.Add(op.Mul(inverse, inverse), one))
    size = _log_of_more(op, op.Add(sized, op.Div(sized, op.Add(inverse, root))))
    return _with_sign(op, _or_log_of_twice(op, sized, size), x)


def _acosh(op, x):
    more = op.Sub(x, np.float64(1))
    root = op.Mul(op.Sqrt(more), op.Sqrt(op.Add(more, np.float64(2))))
    return _or_log_of_twice(op, x, _log_of_more(op, op.Add(more, root)))


def _or_log_of_twice(op, x, value):
    """The logarithm of twice a number so large that the double may be beyond the type; else the value."""
    return op.Where(op.Greater(x, np.float64(1e300)), op.Add(op.Log(x), np.log(np.float64(2))), value)


def _atanh(op, x):
    sized = op.Abs(x)
    twice = op.Add(sized, sized)
    half = op.Mul(_log_of_more(op, op.Div(twice, op.Sub(np.float64(1), sized))), np.float64(0.5))
    return _with_sign(op, half, x)


def _with_sign(op, size, x):
    """A size with the sign of x; the inverse of -0 is below 0."""
    zero, one = op.like(0, x), op.like(1, x)
    minus = op.Cast(op.Or(op.Less(x, zero), op.Less(op.Div(one, x), zero)), to=op.dtype(x))
    return op.Mul(size, op.Sub(one, op.Add(minus, minus)))


FORMS = {
    "Acos": _acos,
    "Asin": _asin,
    "Atan": _atan,
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": _atanh,
}
