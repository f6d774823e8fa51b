"""Arithmetic, comparison and logic: with the attributes `axis` and `broadcast` before opset 7."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..compare import is_float
from .registry import demand, meaning, widened


def spread(a: np.ndarray, b: np.ndarray, axis: int | None, broadcast: int) -> np.ndarray:
    """`b` with dimensions of 1 so that numpy aligns it with `a` as opset 1 and 6 do."""
    if not broadcast:
        demand(
            a.shape == b.shape,
            f"shapes {a.shape} and {b.shape} differ and broadcast is 0",
        )
        return b
    if b.size == 1 and b.ndim <= a.ndim:
        return b.reshape(())
    start = a.ndim - b.ndim if axis is None else axis + (a.ndim if axis < 0 else 0)
    # The text says that dimensions of 1 do not expand yet; the cases of its release expand them.
    fits = start >= 0 and start + b.ndim <= a.ndim
    fits = fits and all(n in (1, m) for m, n in zip(a.shape[start:], b.shape, strict=False))
    demand(fits, f"{b.shape} does not fit into {a.shape} at {start}")
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers are truncated towards zero."""
    if is_float(a.dtype):
        return np.divide(a, b)
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Anything to the power of 0 is 1, a signalling NaN too, which numpy does not make quiet when it casts."""
    return np.where(y == 0, np.ones_like(x), np.power(x, y))


# Each with the version from which it broadcasts as numpy does.
_BINARY: dict[str, tuple[Callable, int]] = {
    "Add": (np.add, 7),
    "And": (np.logical_and, 7),
    "Div": (_divide, 7),
    "Equal": (np.equal, 7),
    "Greater": (np.greater, 7),
    "GreaterOrEqual": (np.greater_equal, 12),
    "Less": (np.less, 7),
    "LessOrEqual": (np.less_equal, 12),
    "Mul": (np.multiply, 7),
    "Or": (np.logical_or, 7),
    "Pow": (_power, 7),
    "Sub": (np.subtract, 7),
    "Xor": (np.logical_xor, 7),
}


def _binary(compute: Callable) -> Callable:
    def run(node, a, b, *, axis=None, broadcast=1):
        demand(
            a.dtype == b.dtype or a.dtype.kind in "OUS",
            f"element types {a.dtype} and {b.dtype} differ",
        )
        result = np.asarray(compute(a, b))
        return result if result.dtype == np.bool_ else result.astype(a.dtype)

    return run


def _binary_with_axis(compute: Callable) -> Callable:
    def run(node, a, b, *, axis=None, broadcast=0):
        return _binary(compute)(node, a, spread(a, b, axis, broadcast))

    return run


for _name, (_compute, _since) in _BINARY.items():
    meaning(_name, 1, _since)(_binary_with_axis(_compute))
    if _name != "Pow":
        meaning(_name, _since)(_binary(_compute))


@meaning("Pow", 7)
def _pow(node, x, y):
    """Of the base's type; integers stay integers, so that none is rounded on the way."""
    if is_float(x.dtype) or is_float(y.dtype):
        return _power(*(widened(v) if is_float(v.dtype) else v.astype(np.float64) for v in (x, y))).astype(x.dtype)
    return np.power(x, y.astype(x.dtype)).astype(x.dtype)


@meaning("Max Min Sum Mean", 1, 8)
def _of_equal_shapes(node, *inputs):
    """Before opset 8 these do not broadcast."""
    demand(
        len({x.shape for x in inputs}) == 1,
        f"shapes differ: {[x.shape for x in inputs]}",
    )
    return _of_all(node, *inputs)


@meaning("Max Min Sum Mean", 8)
def _of_all(node, *inputs):
    combine = {"Max": np.maximum, "Min": np.minimum}.get(node.op_type, np.add)
    total = functools.reduce(combine, inputs)
    return (total / len(inputs) if node.op_type == "Mean" else total).astype(inputs[0].dtype)


@meaning("Where", 9)
def _where(node, condition, x, y):
    demand(
        x.dtype == y.dtype or x.dtype.kind in "OUS",
        f"element types {x.dtype} and {y.dtype} differ",
    )
    return np.where(condition, x, y)


_UNARY: dict[str, Callable] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -widened(x))),
    "Sign": np.sign,
    "Sin": np.sin,
    "Softplus": lambda x: np.logaddexp(0, widened(x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}


def _unary(compute: Callable) -> Callable:
    def run(node, x):
        result = np.asarray(compute(x))
        return result if result.dtype == np.bool_ else result.astype(x.dtype)

    return run


for _name, _compute in _UNARY.items():
    meaning(_name, 1)(_unary(_compute))
