"""Sums of products and determinants, below the opsets that have them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import FLOATS, adapter
from relu_tools.adapters.indexing import arange, known_size, size
from relu_tools.report import RefusedError

LARGEST_DET = 32


# --- Einsum --------------------------------------------------------------------------------
@adapter("Einsum", 12, None, accuracy="rounding", opset=13)
def einsum(op, *Inputs, equation):
    """12 is its first version.

    Operands are multiplied one after the other: by MatMul where a label is in both and needed no more, else by Mul.
    What is in one alone and needed no more is summed first. Integers are computed modulo 2^32 or 2^64.
    """
    dtype = op.dtype(Inputs[0])
    native = dtype in (*FLOATS, T.INT32, T.INT64)
    wide = T.INT64 if dtype == T.UINT64 else T.INT32
    terms, result = _labels(op.value(equation), [op.rank(x) for x in Inputs])
    operands = [(x if native else op.Cast(x, to=wide), term) for x, term in zip(Inputs, terms, strict=True)]
    operands = [_diagonal(op, *operand) for operand in operands]
    value, labels = operands[0]
    for k in range(len(operands)):
        needed = {label for _, term in operands[k + 1 :] for label in term} | set(result)
        if k:
            value, labels = _product(op, (value, labels), operands[k], needed)
        value, labels = _summed(op, value, labels, needed)
    value = _laid(op, value, labels, result)
    return op.Identity(value) if value in Inputs else value if native else op.Cast(value, to=dtype)


def _labels(equation, ranks):
    """The labels of each operand's axes and of the result's; those that an ellipsis stands for count from the back."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms, widest = [], 0
    for term, rank in zip(left.split(","), ranks, strict=True):
        first, dots, last = term.partition("...")
        more = rank - len(first) - len(last) if dots else 0
        widest = max(widest, more)
        terms.append([*first, *range(-more, 0), *last])
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." + "".join(sorted(c for c in letters if letters.count(c) == 1))
    first, dots, last = right.partition("...")
    return terms, [*first, *(range(-widest, 0) if dots else ()), *last]


def _diagonal(op, value, labels):
    """An operand in which no label is there twice."""
    for label in labels:
        if labels.count(label) == 1:
            continue
        one, other = [k for k, found in enumerate(labels) if found == label][:2]
        rest = [k for k in range(len(labels)) if k not in (one, other)]
        numbers = arange(op, size(op, value, one))
        place = numbers[:, None] if isinstance(numbers, np.ndarray) else op.Unsqueeze(numbers, np.array([1]))
        perm = [one, other, *rest]
        value = value if perm == [*range(len(perm))] else op.Transpose(value, perm=perm)
        value = op.GatherND(value, op.Concat(place, place, axis=1))
        return _diagonal(op, value, [label, *(labels[k] for k in rest)])
    return value, labels


def _summed(op, value, labels, needed):
    axes = [k for k, label in enumerate(labels) if label not in needed]
    if not axes:
        return value, labels
    return op.ReduceSum(value, np.array(axes), keepdims=0), [label for label in labels if label in needed]


def _laid(op, value, labels, wanted):
    """An operand with its axes in the order of the labels that are wanted, and axes of 1 for those that it lacks."""
    perm = [labels.index(label) for label in wanted if label in labels]
    missing = [k for k, label in enumerate(wanted) if label not in labels]
    value = value if perm == sorted(perm) else op.Transpose(value, perm=perm)
    return op.Unsqueeze(value, np.array(missing)) if missing else value


def _product(op, one, other, needed):
    """The product of two operands and its labels, summed over those that are in both and needed no more."""
    one, other = (_summed(op, *a, needed | set(b[1])) for a, b in ((one, other), (other, one)))
    shared = [label for label in one[1] if label in other[1]]
    # What an ellipsis stands for may have a size of 1 in one of them, which MatMul does not sum over.
    summed = [label for label in shared if label not in needed and isinstance(label, str)]
    if not summed:
        labels = one[1] + [label for label in other[1] if label not in shared]
        return op.Mul(_laid(op, *one, labels), _laid(op, *other, labels)), labels
    one, other, summed = _merged(op, one, other, summed)
    batch = [label for label in shared if label in one[1] and label != summed]
    rows = [label for label in one[1] if label not in shared and label != summed] or ["row"]
    columns = [label for label in other[1] if label not in shared and label != summed] or ["column"]
    outer = batch + rows[:-1] + columns[:-1]
    left = _laid(op, *one, [*outer, rows[-1], summed])
    right = _laid(op, *other, [*outer, summed, columns[-1]])
    labels = [*outer, rows[-1], columns[-1]]
    value = op.MatMul(left, right)
    extra = [k for k, label in enumerate(labels) if label in ("row", "column")]
    if extra:
        value = op.Squeeze(value, np.array(extra))
    return value, [label for label in labels if label not in ("row", "column")]


def _merged(op, one, other, summed):
    """Both operands with the labels that are summed as one, where their sizes are known; else all but one are left."""
    if len(summed) == 1:
        return one, other, summed[0]
    sizes = []
    for label in summed:
        known = [known_size(op, value, labels.index(label)) for value, labels in (one, other)]
        sizes.append(next((number for number in known if number is not None), None))
    if None in sizes:
        return one, other, summed[-1]
    made = []
    for value, labels in (one, other):
        kept = [label for label in labels if label not in summed]
        shape = np.array([0] * len(kept) + [int(np.prod(sizes))])
        made.append((op.Reshape(_laid(op, value, labels, kept + summed), shape), [*kept, "summed"]))
    return *made, "summed"


# --- Det -----------------------------------------------------------------------------------
@adapter("Det", 11, None, accuracy="rounding", opset=13)
def determinant(op, X):
    """11 is its first version.

    It is the product of the pivots of an elimination in double; the pivot is the greatest number of the column.
    """
    dtype, count = op.dtype(X), known_size(op, X, -1)
    if count is None or not 0 < count <= LARGEST_DET:
        here = f"it has {count}" if count is not None else "their number is not known"
        raise RefusedError(f"before 11 a determinant is written out, of up to {LARGEST_DET} rows; here {here}")
    rows = X if dtype == T.DOUBLE else op.Cast(X, to=T.DOUBLE)
    result = None
    for left in range(count, 0, -1):
        pivot, rows = _eliminated(op, rows, left)
        result = op.Mul(result, pivot) if result else pivot
    return result if dtype == T.DOUBLE else op.Cast(result, to=dtype)


def _eliminated(op, rows, count):
    """The pivot of the first column, with the sign of moving its row to the top, and what is left of the other rows."""
    column = op.Squeeze(_cut(op, rows, -1, 0, 1), np.array([-1]))
    if count == 1:
        return op.Squeeze(column, np.array([-1])), None
    place = op.ArgMax(op.Abs(column), axis=-1, keepdims=1)
    chosen = op.Unsqueeze(op.Equal(place, np.arange(count)), np.array([-1]))
    top = op.ReduceSum(op.Where(chosen, rows, np.float64(0)), np.array([-2]), keepdims=1)
    others = _cut(op, op.Where(chosen, _cut(op, rows, -2, 0, 1), rows), -2, 1, count)
    pivot = _cut(op, top, -1, 0, 1)
    factor = op.Div(_cut(op, others, -1, 0, 1), pivot)
    # A column of zeros needs no elimination.
    factor = op.Where(op.Cast(pivot, to=T.BOOL), factor, np.float64(0))
    rest = op.Sub(_cut(op, others, -1, 1, count), op.Mul(factor, _cut(op, top, -1, 1, count)))
    moved = op.Cast(op.Cast(place, to=T.BOOL), to=T.DOUBLE)
    signed = op.Mul(op.Squeeze(pivot, np.array([-1])), op.Sub(np.float64(1), op.Add(moved, moved)))
    return op.Squeeze(signed, np.array([-1])), rest


def _cut(op, value, axis, start, end):
    return op.Slice(value, np.array([start]), np.array([end]), np.array([axis + op.rank(value)]))
