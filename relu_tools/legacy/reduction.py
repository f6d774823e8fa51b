"""Reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..compare import is_float
from .registry import demand, meaning, widened


def _log_sum_exp(x, **how):
    most = np.max(x, axis=how["axis"], keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0)
    total = np.log(np.sum(np.exp(x - most), **how))
    return total + (most if how["keepdims"] else np.squeeze(most, how["axis"]))


def _extreme(compute, sign, x, **how):
    """Of nothing it is the type's limit (from opset 20 on; older texts do not say)."""
    if x.size:
        return compute(x, **how)
    if x.dtype == np.bool_:
        return compute(x, initial=sign > 0, **how)
    limits = np.iinfo(x.dtype) if not is_float(x.dtype) else None
    limit = sign * np.inf if limits is None else limits.max if sign > 0 else limits.min
    return compute(x, initial=x.dtype.type(limit), **how)


_REDUCTIONS: dict[str, Callable] = {
    "ReduceL1": lambda x, **how: np.sum(np.abs(x), **how),
    "ReduceL2": lambda x, **how: np.sqrt(np.sum(np.square(x), **how)),
    "ReduceLogSum": lambda x, **how: np.log(np.sum(x, **how)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": functools.partial(_extreme, np.max, -1),
    "ReduceMean": np.mean,
    "ReduceMin": functools.partial(_extreme, np.min, 1),
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **how: np.sum(np.square(x), **how),
}


def _reduced(node, x, axes, keepdims):
    how = {
        "axis": tuple(range(x.ndim)) if not axes else tuple(axes),
        "keepdims": bool(keepdims),
    }
    return np.asarray(_REDUCTIONS[node.op_type](widened(x), **how)).astype(x.dtype)


def _reduce_by_attribute(node, x, *, axes=None, keepdims):
    demand(not axes or len(set(axes)) == len(axes), f"axes {axes} repeat")
    return _reduced(node, x, axes, keepdims)


def _reduce_by_input(node, x, axes=None, *, keepdims, noop_with_empty_axes):
    if noop_with_empty_axes and (axes is None or axes.size == 0):
        raise NotImplementedError(f"{node.op_type} with noop_with_empty_axes and no axes is read in two ways")
    return _reduced(node, x, None if axes is None else axes.tolist(), keepdims)


for _name in _REDUCTIONS:
    _since = 13 if _name == "ReduceSum" else 18
    meaning(_name, 1, _since)(_reduce_by_attribute)
    meaning(_name, _since)(_reduce_by_input)


@meaning("ArgMax ArgMin", 1)
def _arg(node, x, *, axis, keepdims, select_last_index=0):
    pick = np.argmax if node.op_type == "ArgMax" else np.argmin
    index = x.shape[axis] - 1 - pick(np.flip(x, axis), axis) if select_last_index else pick(x, axis)
    return (np.expand_dims(index, axis) if keepdims else np.asarray(index)).astype(np.int64)
