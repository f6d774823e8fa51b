"""How large integers can be, so that a double holds them where an older opset has no integers of 64 bits."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, numpy_helper
from onnx import TensorProto as T

from relu_tools import fold, schemas
from relu_tools.facts import Scope
from relu_tools.model import elements

PLACES = 45
"""A tensor has no more than 2^45 elements: at 1 byte each these are 35 TB."""
DOUBLE = 53
"""Up to 2^53 every integer is a double."""

_OF_TYPE: dict[int, int] = {
    **dict.fromkeys((T.BOOL,), 1),
    **dict.fromkeys((T.INT8, T.UINT8), 8),
    **dict.fromkeys((T.INT16, T.UINT16), 16),
    **dict.fromkeys((T.INT32, T.UINT32), 32),
}
_MOST = 100  # values that shape arithmetic is made from

# What gives a number of places, by the index of the output that does.
_PLACES = {**dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), (0,)), "TopK": (1,), "Unique": (1, 2, 3)}

# What gives back values of its inputs from the first index up to the second; None for all that there are.
_CARRIES: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("Cast", "Compress", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"), (0, 1)),
    **dict.fromkeys(("Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"), (0, 1)),
    **dict.fromkeys(("Abs", "Ceil", "Floor", "Identity", "Neg", "Round"), (0, 1)),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), (0, 1)),
    **dict.fromkeys(("Concat", "Max", "Min"), (0, None)),
    "Range": (0, 2),
    "Where": (1, 3),
}


# The inputs that count a tensor's places, axes or dimensions, or lead to them.
_COUNTED = {
    **dict.fromkeys(("Expand", "Gather", "GatherElements", "GatherND", "Reshape", "Split", "Tile", "TopK"), (1,)),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ScatterElements", "ScatterND", "CumSum"), (1,)),
    "ConstantOfShape": (0,),
    "Pad": (1, 3),
    "Slice": (3,),  # where it ends may be the largest integer
}


def counted(node: NodeProto) -> list[str]:
    """What a node is given that counts places."""
    if schemas.normal(node.domain) != "":
        return []
    return [node.input[k] for k in _COUNTED.get(node.op_type, ()) if k < len(node.input)]


def in_double(scope: Scope, node: NodeProto) -> bool:
    """Whether a double holds each integer of 64 bits that a node is given, and each that it gives."""
    given = [bits(scope, name) for name in node.input if name and scope.dtype(name) in (T.INT64, T.UINT64)]
    made = bits(scope, node.output[0]) if node.op_type in _COMPUTES else 0
    return all(n is not None and n <= DOUBLE for n in (*given, made))


def bits(scope: Scope, name: str, found: dict[str, int | None] | None = None) -> int | None:
    """The n for which no number of a value is beyond 2^n in size; None where nothing tells.

    `found` is what has been asked for on the way.
    """
    found = {} if found is None else found
    if name not in found:
        found[name] = None  # an unknown that a cycle would come back to
        found[name] = _bits(scope, name, found)
    return found[name]


def _bits(scope: Scope, name: str, found: dict[str, int | None]) -> int | None:
    if (of_type := _OF_TYPE.get(scope.dtype(name) or 0)) is not None:
        return of_type
    constant = scope.constant(name, fold.LIMIT)
    if constant is not None:
        return _of_array(numpy_helper.to_array(constant))
    if _is_said(scope, name):
        return PLACES
    owner = scope.owner(name)
    entry = owner.producers.get(name) if owner is not None else None
    if owner is None or entry is None or len(found) > _MOST:
        return None
    return _bits_made(owner, entry[0], list(entry[0].output).index(name), found)


def _bits_made(scope: Scope, node: NodeProto, place: int, found: dict[str, int | None]) -> int | None:
    if schemas.normal(node.domain) != "":
        return None
    if place in _PLACES.get(node.op_type, ()):
        return PLACES
    if node.op_type in _CARRIES:
        given = node.input[slice(*_CARRIES[node.op_type])]
        if node.op_type == "Cast" and not _counts(scope, node):
            return None
    elif node.op_type in _COMPUTES:
        given = node.input[: 1 if node.op_type in ("Div", "ReduceSum") else None]
    else:
        return None
    if node.op_type == "Sub" and scope.dtype(node.input[0]) == T.UINT64:
        return None  # below 0 it begins again at the other end
    if node.op_type == "Mul" and (whole := _whole(scope, *node.input)) is not None:
        return bits(scope, whole, found)
    sizes = [bits(scope, name, found) for name in given if name]
    known = [n for n in sizes if n is not None]
    if len(known) < len(sizes) or not known:
        return None
    if node.op_type == "Mul":
        return sum(known)
    if node.op_type == "Div":
        return known[0] if scope.dtype(node.input[0]) in _INTEGERS else None
    if node.op_type == "ReduceSum":
        shape = scope.shape(node.input[0])
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        return known[0] + elements(shape).bit_length()  # type: ignore[arg-type]
    return max(known) + (len(known) - 1).bit_length() if node.op_type in ("Add", "Sub", "Sum") else max(known)


_COMPUTES = ("Add", "Sub", "Sum", "Mul", "Div", "ReduceSum")
_INTEGERS = (*_OF_TYPE, T.INT64, T.UINT64)
_UNSIGNED = (T.BOOL, T.UINT8, T.UINT16, T.UINT32, T.UINT64)
_NUMBERS = (*_INTEGERS, T.FLOAT, T.DOUBLE, T.FLOAT16)


def _counts(scope: Scope, cast: NodeProto) -> bool:
    """Whether a Cast keeps the size of numbers: those below 0 become large where the type has none."""
    given = scope.dtype(cast.input[0])
    return given in _NUMBERS and (given in _UNSIGNED or scope.dtype(cast.output[0]) != T.UINT64)


def _whole(scope: Scope, *factors: str) -> str | None:
    """The number that one factor is an integer quotient of, by the other one: the product is not beyond it."""
    for quotient, divisor in (factors, factors[::-1]):
        owner = scope.owner(quotient)
        node, _ = owner.producers.get(quotient, (None, None)) if owner is not None else (None, None)
        if node is None or node.op_type != "Div" or scope.dtype(quotient) not in _INTEGERS:
            continue
        if node.input[1] == divisor or _same_constant(scope, node.input[1], divisor):
            return node.input[0]
    return None


def _same_constant(scope: Scope, a: str, b: str) -> bool:
    first, second = scope.constant(a, fold.LIMIT), scope.constant(b, fold.LIMIT)
    if first is None or second is None:
        return False
    return np.array_equal(numpy_helper.to_array(first), numpy_helper.to_array(second))


def _of_array(array: np.ndarray) -> int | None:
    if array.dtype.kind in "iub":
        return max((abs(int(number)) for number in array.ravel()), default=0).bit_length()
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        return None
    return math.ceil(np.abs(array).max(initial=0)).bit_length()


def _is_said(scope: Scope | None, name: str) -> bool:
    """Whether it was said of a value; of one in a branch, that was before the branch had a scope of its own."""
    while scope is not None:
        if name in scope.places:
            return True
        scope = scope.parent
    return False
