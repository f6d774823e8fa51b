"""Reference operators in numpy: the meanings of opset 1 to 6, and later ones that onnx.reference gets wrong.

Each function is written from the specification of the versions that it names and raises `ValueError` for what
those reject. `evaluator` runs a model on them and, for versions whose meaning it has, on onnx.reference; any
other version raises `NotImplementedError`, since onnx.reference would run it with today's meaning.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from .compare import is_float

# The newest opset whose texts were read for the functions below that go on "to today".
_READ_UP_TO = 28

_MEANINGS: dict[str, list[tuple[int, int, Callable]]] = {}


def _meaning(ops: str, since: int, until: int = _READ_UP_TO + 1) -> Callable[[Callable], Callable]:
    """Register a function for operators at opset `since` up to but not including `until`.

    It is called with the node, the inputs (None for one left out) and the attributes with that version's
    defaults, and returns one output or a tuple of them.
    """

    def register(function: Callable) -> Callable:
        for op in ops.split():
            _MEANINGS.setdefault(op, []).append((since, until, function))
        return function

    return register


@functools.cache
def implementation(op: str, opset: int) -> type[OpRun] | None:
    """Our operator for that opset, None where onnx.reference has it right. Raises `NotImplementedError`."""
    if opset > onnx.defs.onnx_opset_version():
        raise NotImplementedError(f"opset {opset} is not known")
    try:
        version = onnx.defs.get_schema(op, opset).since_version
    except onnx.defs.SchemaError:
        # Exported as experimental before it got a schema, with the meaning that it has had ever since.
        if op != "ThresholdedRelu" or opset >= 10:
            raise NotImplementedError(f"{op} does not exist at opset {opset}") from None
        version = 10
    schema = onnx.defs.get_schema(op, version)
    for since, until, function in _MEANINGS.get(op, ()):
        if since <= version < until:
            return function if isinstance(function, type) else _operator(op, schema, function)
    if not reference_knows(op, version):
        raise NotImplementedError(f"there is no reference for {op} of opset {version}")
    return None


def _operator(op: str, schema: onnx.defs.OpSchema, function: Callable) -> type[OpRun]:
    def run(self: OpRun, *inputs: Any, **attributes: Any) -> tuple:
        attributes.pop("consumed_inputs", None)
        outputs = function(self.onnx_node, *inputs, **attributes)
        # numpy turns results of rank 0 into scalars, and onnx.reference knows its own types' scalars only.
        return tuple(map(np.asarray, outputs if isinstance(outputs, tuple) else (outputs,)))

    return type(op, (OpRun,), {"op_domain": "", "op_schema": schema, "_run": run})


# The lowest version that onnx.reference runs with its own meaning, for operators that were compared with the
# texts of all versions from there on.
_TRUSTED_SINCE = {
    **dict.fromkeys(("Constant", "Gather", "GlobalAveragePool", "Identity", "If", "MatMul", "Size", "Transpose"), 1),
    "Concat": 4,
    "Reshape": 5,
    "Cast": 6,
    "ConstantOfShape": 9,
    **dict.fromkeys(("GatherElements", "GatherND", "Range"), 11),
    "Mod": 10,
    "CastLike": 15,
}


@functools.cache
def reference_knows(op: str, version: int, domain: str = "") -> bool:
    """Whether onnx.reference gives this version of an operator its own meaning.

    It implements the newest one; an older one counts if its text differs in element types alone, or if it was
    read and found the same.
    """
    since = None if domain else _TRUSTED_SINCE.get(op)
    if since is not None:
        return version >= since
    try:
        newest = onnx.defs.get_schema(op, domain)
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return False
    return _contract(schema) == _contract(newest)


def _contract(schema: onnx.defs.OpSchema) -> tuple:
    """All that a schema says apart from element types."""

    def formals(group: Iterable) -> tuple:
        return tuple((f.name, f.option, " ".join(f.description.split())) for f in group)

    attributes = tuple(
        (name, a.type, a.required, a.default_value.SerializeToString(), " ".join(a.description.split()))
        for name, a in sorted(schema.attributes.items())
    )
    return " ".join(schema.doc.split()), formals(schema.inputs), formals(schema.outputs), attributes


class _Evaluator(ReferenceEvaluator):
    """onnx.reference with our operators before its own; subgraphs and functions are evaluated by this class too."""

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if (node.domain, node.op_type) not in self.functions_ and node.domain in ("", "ai.onnx.ml"):
            opset = self.opsets.get(node.domain)
            if opset is None:
                raise NotImplementedError(f"{node.op_type} comes from a domain that the model does not import")
            if node.domain == "":
                ours = implementation(node.op_type, opset)
                if ours is not None:
                    return ours
            elif not _knows_domain(node, opset):
                raise NotImplementedError(f"there is no reference for {node.op_type} of {node.domain} {opset}")
        elif node.domain.startswith("ai.onnx.preview"):
            raise NotImplementedError(f"there is no reference for the preview domain {node.domain}")
        return super()._load_impl(node, input_types)


def _knows_domain(node: onnx.NodeProto, opset: int) -> bool:
    if not onnx.defs.has(node.op_type, opset, node.domain):
        return False
    version = onnx.defs.get_schema(node.op_type, opset, node.domain).since_version
    return reference_knows(node.op_type, version, node.domain)


def evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    """An evaluator of the model. Raises `NotImplementedError` for an operator version without a meaning here."""
    return _Evaluator(_plain_domain(model))


def _plain_domain(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its default domain written as "", of which "ai.onnx" is an alias."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)

    def nodes(group: Iterable[onnx.NodeProto]) -> None:
        for node in group:
            node.domain = "" if node.domain == "ai.onnx" else node.domain
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
                    nodes(graph.node)

    for scope in [copy, *copy.functions]:
        for entry in scope.opset_import:
            entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    nodes(copy.graph.node)
    for function in copy.functions:
        nodes(function.node)
    return copy


def _demand(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _wide(x: np.ndarray) -> np.ndarray:
    """Narrow floats as float32, in which runtimes compute them."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


# Arithmetic, comparison and logic with the attributes `axis` and `broadcast`


def _spread(a: np.ndarray, b: np.ndarray, axis: int | None, broadcast: int) -> np.ndarray:
    """`b` with dimensions of 1 so that numpy aligns it with `a` as opset 1 and 6 do."""
    if not broadcast:
        _demand(a.shape == b.shape, f"shapes {a.shape} and {b.shape} differ and broadcast is 0")
        return b
    if b.size == 1 and b.ndim <= a.ndim:
        return b.reshape(())
    start = a.ndim - b.ndim if axis is None else axis + (a.ndim if axis < 0 else 0)
    # The text says that dimensions of 1 do not expand yet; the cases of its release expand them.
    fits = start >= 0 and start + b.ndim <= a.ndim
    fits = fits and all(n in (1, m) for m, n in zip(a.shape[start:], b.shape, strict=False))
    _demand(fits, f"{b.shape} does not fit into {a.shape} at {start}")
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers are truncated towards zero."""
    if is_float(a.dtype):
        return np.divide(a, b)
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


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
    "Pow": (np.power, 7),
    "Sub": (np.subtract, 7),
    "Xor": (np.logical_xor, 7),
}


def _binary(compute: Callable) -> Callable:
    def run(node, a, b, *, axis=None, broadcast=1):
        _demand(a.dtype == b.dtype or a.dtype.kind in "OUS", f"element types {a.dtype} and {b.dtype} differ")
        result = np.asarray(compute(a, b))
        return result if result.dtype == np.bool_ else result.astype(a.dtype)

    return run


def _binary_with_axis(compute: Callable) -> Callable:
    def run(node, a, b, *, axis=None, broadcast=0):
        return _binary(compute)(node, a, _spread(a, b, axis, broadcast))

    return run


for _name, (_compute, _since) in _BINARY.items():
    _meaning(_name, 1, _since)(_binary_with_axis(_compute))
    if _name != "Pow":
        _meaning(_name, _since)(_binary(_compute))


@_meaning("Pow", 7)
def _pow(node, x, y):
    """Of the base's type; integers stay integers, so that none is rounded on the way."""
    if is_float(x.dtype) or is_float(y.dtype):
        return np.power(*(_wide(v) if is_float(v.dtype) else v.astype(np.float64) for v in (x, y))).astype(x.dtype)
    return np.power(x, y.astype(x.dtype)).astype(x.dtype)


@_meaning("Max Min Sum Mean", 1, 8)
def _of_equal_shapes(node, *inputs):
    """Before opset 8 these do not broadcast."""
    _demand(len({x.shape for x in inputs}) == 1, f"shapes differ: {[x.shape for x in inputs]}")
    return _of_all(node, *inputs)


@_meaning("Max Min Sum Mean", 8)
def _of_all(node, *inputs):
    combine = {"Max": np.maximum, "Min": np.minimum}.get(node.op_type, np.add)
    total = functools.reduce(combine, inputs)
    return (total / len(inputs) if node.op_type == "Mean" else total).astype(inputs[0].dtype)


@_meaning("Where", 9)
def _where(node, condition, x, y):
    _demand(x.dtype == y.dtype or x.dtype.kind in "OUS", f"element types {x.dtype} and {y.dtype} differ")
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
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -_wide(x))),
    "Sign": np.sign,
    "Sin": np.sin,
    "Softplus": lambda x: np.logaddexp(0, _wide(x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}


def _unary(compute: Callable) -> Callable:
    def run(node, x):
        result = np.asarray(compute(x))
        return result if result.dtype == np.bool_ else result.astype(x.dtype)

    return run


for _name, _compute in _UNARY.items():
    _meaning(_name, 1)(_unary(_compute))


# Activations


@_meaning("Relu", 1)
def _relu(node, x):
    return np.maximum(x, x.dtype.type(0))


@_meaning("ThresholdedRelu", 10)
def _thresholded_relu(node, x, *, alpha=1.0):
    return np.where(x > x.dtype.type(alpha), x, x.dtype.type(0))


def _as_in(x, *attributes):
    """Attributes rounded to the element type of x, as the function bodies do it."""
    return tuple(float(x.dtype.type(attribute)) for attribute in attributes)


@_meaning("LeakyRelu", 1)
def _leaky_relu(node, x, *, alpha):
    (alpha,) = _as_in(x, alpha)
    return np.where(x < 0, _wide(x) * alpha, x).astype(x.dtype)


@_meaning("Elu", 1)
def _elu(node, x, *, alpha):
    (alpha,) = _as_in(x, alpha)
    return np.where(x < 0, alpha * np.expm1(_wide(x)), x).astype(x.dtype)


@_meaning("Selu", 1)
def _selu(node, x, *, alpha, gamma):
    wide = _wide(x)
    alpha, gamma = _as_in(x, alpha, gamma)
    return (gamma * np.where(wide > 0, wide, alpha * np.expm1(wide))).astype(x.dtype)


@_meaning("Celu", 12)
def _celu(node, x, *, alpha):
    wide = _wide(x)
    (alpha,) = _as_in(x, alpha)
    return (np.maximum(wide, 0) + np.minimum(0, alpha * np.expm1(wide / alpha))).astype(x.dtype)


@_meaning("PRelu", 1, 7)
def _prelu_by_channel(node, x, slope):
    """One slope for all, or one for each channel (the second dimension)."""
    if slope.size > 1:
        _demand(x.ndim > 1 and slope.size == x.shape[1] == max(slope.shape), f"slope {slope.shape} for {x.shape}")
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope.reshape(slope.shape if slope.size > 1 else ()), x).astype(x.dtype)


@_meaning("PRelu", 7)
def _prelu(node, x, slope):
    _demand(np.broadcast_shapes(x.shape, slope.shape) == x.shape, f"slope {slope.shape} is no part of {x.shape}")
    return np.where(x < 0, x * slope, x).astype(x.dtype)


@_meaning("Clip", 1, 11)
def _clip_between(node, x, *, min=None, max=None):
    for bound, limit in ((min, np.maximum), (max, np.minimum)):
        x = x if bound is None else limit(x, np.asarray(bound).astype(x.dtype))
    return x


@_meaning("Clip", 11)
def _clip(node, x, low=None, high=None):
    for bound, limit in ((low, np.maximum), (high, np.minimum)):
        x = x if bound is None else limit(x, bound.reshape(()))
    return x


def _rows(x: np.ndarray, axis: int) -> tuple[np.ndarray, int]:
    """Before opset 13 all dimensions from `axis` on are one row."""
    axis += x.ndim if axis < 0 else 0
    _demand(0 <= axis <= x.ndim, f"axis {axis} for rank {x.ndim}")
    first = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(first, int(np.prod(x.shape[axis:], dtype=np.int64))), 1


def _softmax(node, x, axis):
    if x.size == 0:
        return x
    wide = _wide(x)
    if node.op_type == "Hardmax":
        return (np.expand_dims(np.argmax(wide, axis), axis) == _along(wide.shape, axis)).astype(x.dtype)
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return (np.exp(shifted) / total if node.op_type == "Softmax" else shifted - np.log(total)).astype(x.dtype)


def _along(shape: Sequence[int], axis: int) -> np.ndarray:
    index = np.arange(shape[axis])
    return index.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


@_meaning("Softmax LogSoftmax Hardmax", 1, 13)
def _softmax_of_rows(node, x, *, axis):
    rows, within = _rows(x, axis)
    return _softmax(node, rows, within).reshape(x.shape)


@_meaning("Softmax LogSoftmax Hardmax", 13)
def _softmax_along(node, x, *, axis):
    _demand(-x.ndim <= axis < x.ndim, f"axis {axis} for rank {x.ndim}")
    return _softmax(node, x, axis)


# Normalization


def _statistics(x: np.ndarray, scale: np.ndarray, spatial: int = 1) -> tuple[np.ndarray, np.ndarray, tuple]:
    axes = tuple(i for i in range(x.ndim) if i != 1) if spatial else (0,)
    wide = _wide(x)
    return wide.mean(axes), wide.var(axes), scale.shape


def _normalize(x, scale, bias, mean, var, epsilon, spatial=1):
    shape = (-1,) + (1,) * (x.ndim - 2) if spatial else scale.shape
    scale, bias, mean, var = (_wide(v).reshape(shape) for v in (scale, bias, mean, var))
    return (scale * (_wide(x) - mean) / np.sqrt(var + np.float32(epsilon)) + bias).astype(x.dtype)


def _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial):
    """Y, running mean and variance, saved mean and variance."""
    now, spread, shape = _statistics(x, scale, spatial)
    y = _normalize(x, scale, bias, now, spread, epsilon, spatial)
    running = [old * momentum + new.reshape(shape) * (1 - momentum) for old, new in ((mean, now), (var, spread))]
    outputs = [y, *running, now.reshape(shape), spread.reshape(shape)]
    return tuple(v.astype(x.dtype) for v in outputs[: len(node.output)])


@_meaning("BatchNormalization", 1, 7)
def _batch_normalization_1(node, x, scale, bias, mean, var, *, epsilon, momentum, is_test, spatial):
    if not is_test:
        return _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial)
    return _normalize(x, scale, bias, mean, var, epsilon, spatial)


@_meaning("BatchNormalization", 7, 14)
def _batch_normalization_7(node, x, scale, bias, mean, var, *, epsilon, momentum, spatial=1):
    """Training is what asks for the statistics as outputs."""
    if len(node.output) > 1:
        return _train(node, x, scale, bias, mean, var, epsilon, momentum, spatial)
    return _normalize(x, scale, bias, mean, var, epsilon, spatial)


@_meaning("BatchNormalization", 14)
def _batch_normalization(node, x, scale, bias, mean, var, *, epsilon, momentum, training_mode):
    if not training_mode:
        return _normalize(x, scale, bias, mean, var, epsilon)
    y, *running = _train(node, x, scale, bias, mean, var, epsilon, momentum, 1)
    return (y, *(v.astype(mean.dtype) for v in running))


@_meaning("InstanceNormalization", 1)
def _instance_normalization(node, x, scale, bias, *, epsilon):
    axes = tuple(range(2, x.ndim))
    wide = _wide(x)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    shape = (-1,) + (1,) * (x.ndim - 2)
    normal = (wide - mean) / np.sqrt(var + np.float32(epsilon))
    return (_wide(scale).reshape(shape) * normal + _wide(bias).reshape(shape)).astype(x.dtype)


@_meaning("LRN", 1)
def _lrn(node, x, *, alpha, beta, bias, size):
    wide = _wide(x)
    square, channels = wide * wide, x.shape[1]
    before, after = (size - 1) // 2, -(-(size - 1) // 2)
    total = np.stack(
        [square[:, max(0, c - before) : min(channels - 1, c + after) + 1].sum(1) for c in range(channels)], 1
    )
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


@_meaning("Dropout", 1, 7)
def _dropout_1(node, x, *, is_test, ratio):
    if not is_test and ratio:
        raise NotImplementedError("Dropout in training mode draws random numbers")
    return _dropped(node, x, x.dtype)


@_meaning("Dropout", 7, 10)
def _dropout_7(node, x, *, ratio):
    return _dropped(node, x, x.dtype)


@_meaning("Dropout", 10, 12)
def _dropout_10(node, x, *, ratio):
    return _dropped(node, x, np.dtype(bool))


@_meaning("Dropout", 12)
def _dropout(node, x, ratio=None, training_mode=None, *, seed=None):
    if training_mode is not None and training_mode.item() and (ratio is None or ratio.item()):
        raise NotImplementedError("Dropout in training mode draws random numbers")
    return _dropped(node, x, np.dtype(bool))


def _dropped(node, x, mask_type):
    return (x, np.ones(x.shape, mask_type))[: len(node.output)]


# Matrices and windows


@_meaning("Gemm", 1, 7)
def _gemm_1(node, a, b, c, *, alpha, beta, transA, transB, broadcast):
    product = (a.T if transA else a) @ (b.T if transB else b)
    return (alpha * product + beta * _spread(product, c, None, broadcast)).astype(a.dtype)


@_meaning("Gemm", 7)
def _gemm(node, a, b, c=None, *, alpha, beta, transA, transB):
    product = (_wide(a).T if transA else _wide(a)) @ (_wide(b).T if transB else _wide(b))
    if not is_float(a.dtype):
        _demand(alpha == int(alpha) and beta == int(beta), "integers with a factor that is none")
        alpha, beta = a.dtype.type(alpha), a.dtype.type(beta)
    result = alpha * product
    if c is not None and beta != 0:
        _demand(np.broadcast_shapes(result.shape, c.shape) == result.shape, f"C {c.shape} for {result.shape}")
        result = result + beta * _wide(c)
    return result.astype(a.dtype)


def _window_plan(
    size: Sequence[int], kernel: Sequence[int], strides: Any, dilations: Any, pads: Any, auto_pad: Any, ceil: int = 0
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides, dilations, padding before and after, and the number of windows along each spatial axis."""
    count = len(size)
    strides, dilations = list(strides or [1] * count), list(dilations or [1] * count)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    before, after = [0] * count, [0] * count
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        windows = [-(-n // s) for n, s in zip(size, strides, strict=True)]
        for i in range(count):
            total = max(0, (windows[i] - 1) * strides[i] + extent[i] - size[i])
            before[i] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            after[i] = total - before[i]
        return strides, dilations, before, after, windows
    if auto_pad != "VALID" and pads:
        before, after = list(pads[:count]), list(pads[count:])
    windows = []
    for i in range(count):
        room = size[i] + before[i] + after[i] - extent[i]
        windows.append((-(-room // strides[i]) if ceil else room // strides[i]) + 1)
    return strides, dilations, before, after, windows


def _windows(x: np.ndarray, kernel: Sequence[int], plan: tuple, fill: Any) -> np.ndarray:
    """Of shape (N, C, windows..., kernel...): every element that each window sees, `fill` outside of `x`."""
    strides, dilations, before, after, windows = plan
    spatial = range(len(kernel))
    reach = [(windows[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in spatial]
    late = [max(after[i], reach[i] - x.shape[2 + i] - before[i]) for i in spatial]
    padded = np.pad(x, [(0, 0), (0, 0), *((before[i], late[i]) for i in spatial)], constant_values=fill)
    for i in spatial:
        index = np.arange(windows[i])[:, None] * strides[i] + np.arange(kernel[i])[None] * dilations[i]
        padded = np.take(padded, index, axis=2 + 2 * i)
    order = [0, 1, *(2 + 2 * i for i in spatial), *(3 + 2 * i for i in spatial)]
    return padded.transpose(order)


def _without_late(plan: tuple, size: Sequence[int], silent: bool) -> tuple:
    """A window that would begin in the padding at the end is left out; of that the older texts say nothing."""
    strides, dilations, before, after, windows = plan
    kept = [w - ((w - 1) * s >= n + b) for w, s, n, b in zip(windows, strides, size, before, strict=True)]
    if kept != windows and silent:
        raise NotImplementedError("before opset 22 a window that begins in the padding at the end has no meaning")
    return strides, dilations, before, after, kept


def _average_pool(silent: bool) -> Callable:
    def run(
        node, x, *, kernel_shape, auto_pad, pads=None, strides=None, dilations=None, ceil_mode=0, count_include_pad=0
    ):
        size = x.shape[2:]
        plan = _window_plan(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        strides, dilations, before, after, windows = plan = _without_late(plan, size, silent)
        axes = tuple(range(-len(kernel_shape), 0))
        inside, plan_inside = np.ones((1, 1, *size), np.float32), plan
        if count_include_pad:
            inside = np.pad(inside, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=1)
            plan_inside = (strides, dilations, [0] * len(size), [0] * len(size), windows)
        counted = _windows(inside, kernel_shape, plan_inside, 0).sum(axes)
        return (_windows(_wide(x), kernel_shape, plan, 0).sum(axes) / counted).astype(x.dtype)

    return run


def _max_pool(silent: bool) -> Callable:
    def run(node, x, *, kernel_shape, auto_pad, pads=None, strides=None, dilations=None, ceil_mode=0, storage_order=0):
        size = x.shape[2:]
        plan = _window_plan(size, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        plan = _without_late(plan, size, silent)
        lowest = -np.inf if is_float(x.dtype) else np.iinfo(x.dtype).min
        seen = _windows(x, kernel_shape, plan, lowest)
        seen = seen.reshape(*seen.shape[: x.ndim], -1)
        if len(node.output) == 1:
            return seen.max(-1)
        place = np.arange(int(np.prod(size)), dtype=np.int64).reshape(size, order="F" if storage_order else "C")
        places = _windows(place[None, None], kernel_shape, plan, -1)
        places = np.broadcast_to(places.reshape(1, 1, *seen.shape[2:]), seen.shape)
        best = np.argmax((seen == seen.max(-1, keepdims=True)) & (places >= 0), -1)[..., None]
        channel = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *(1 for _ in size))
        values, indices = (np.take_along_axis(v, best, -1)[..., 0] for v in (seen, places))
        return values, indices + channel * place.size

    return run


for _name, _pool in (("AveragePool", _average_pool), ("MaxPool", _max_pool)):
    _meaning(_name, 1, 22)(_pool(silent=True))
    _meaning(_name, 22)(_pool(silent=False))


@_meaning("GlobalMaxPool", 1)
def _global_max_pool(node, x):
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


@_meaning("Conv", 1)
def _conv(node, x, w, b=None, *, auto_pad, group, dilations=None, kernel_shape=None, pads=None, strides=None):
    kernel = w.shape[2:]
    _demand(x.shape[1] == w.shape[1] * group and w.shape[0] % group == 0, f"X {x.shape}, W {w.shape}, {group} groups")
    _demand(not kernel_shape or tuple(kernel_shape) == kernel, f"kernel_shape {kernel_shape} for W {w.shape}")
    plan = _window_plan(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    seen = _windows(_wide(x), kernel, plan, 0)
    spatial = len(kernel)
    parts = []
    for part, weights in zip(np.split(seen, group, 1), np.split(_wide(w), group, 0), strict=True):
        axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
        parts.append(np.moveaxis(np.tensordot(part, weights, (axes, [1, *range(2, 2 + spatial)])), -1, 1))
    y = np.concatenate(parts, 1)
    return (y if b is None else y + _wide(b).reshape((-1,) + (1,) * spatial)).astype(x.dtype)


def _conv_transpose_from(even_only: bool) -> Callable:
    def run(
        node,
        x,
        w,
        b=None,
        *,
        auto_pad,
        group,
        dilations=None,
        kernel_shape=None,
        output_padding=None,
        output_shape=None,
        pads=None,
        strides=None,
    ):
        kernel, size, spatial = w.shape[2:], x.shape[2:], range(x.ndim - 2)
        strides, dilations = strides or [1] * len(size), dilations or [1] * len(size)
        extra = output_padding or [0] * len(size)
        full = [strides[i] * (size[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 for i in spatial]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
            output_shape = [size[i] * strides[i] for i in spatial]
        if output_shape:
            output_shape = list(output_shape)[-len(size) :]
            total = [full[i] - output_shape[i] for i in spatial]
            _demand(min(total) >= 0, f"output_shape {output_shape} is larger than {full}")
            if even_only and any(t % 2 for t in total):
                raise NotImplementedError("the texts of ConvTranspose 1 contradict each other on an odd padding")
            begin = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        else:
            begin = list(pads[: len(size)]) if pads and auto_pad != "VALID" else [0] * len(size)
            end = list(pads[len(size) :]) if pads and auto_pad != "VALID" else [0] * len(size)
            output_shape = [full[i] - begin[i] - end[i] for i in spatial]
        wide, weights = np.split(_wide(x), group, 1), np.split(_wide(w), group, 0)
        canvas = np.zeros((x.shape[0], w.shape[1] * group, *full), wide[0].dtype)
        for offset in itertools.product(*map(range, kernel)):
            place = tuple(
                slice(offset[i] * dilations[i], offset[i] * dilations[i] + strides[i] * (size[i] - 1) + 1, strides[i])
                for i in spatial
            )
            taps = [ws[(..., *offset)] for ws in weights]
            spots = [np.einsum("nc...,cm->nm...", part, tap) for part, tap in zip(wide, taps, strict=True)]
            canvas[(slice(None), slice(None), *place)] += np.concatenate(spots, 1)
        y = canvas[(..., *(slice(begin[i], begin[i] + output_shape[i]) for i in spatial))]
        return (y if b is None else y + _wide(b).reshape((-1,) + (1,) * len(size))).astype(x.dtype)

    return run


_meaning("ConvTranspose", 1, 11)(_conv_transpose_from(even_only=True))
_meaning("ConvTranspose", 11)(_conv_transpose_from(even_only=False))


# Shapes and moves


@_meaning("Cast", 1, 6)
def _cast_by_name(node, x, *, to):
    """The type is a name in capitals."""
    from onnx.reference.ops.op_cast import cast_to

    return cast_to(x, onnx.TensorProto.DataType.Value(to), True)


@_meaning("Concat", 1, 4)
def _concat(node, *inputs, axis=None):
    return np.concatenate(inputs, 1 if axis is None else axis)


@_meaning("Reshape", 1, 5)
def _reshape(node, x, *, shape=None):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape or [])])


@_meaning("Flatten", 1)
def _flatten(node, x, *, axis):
    return _rows(x, axis)[0]


@_meaning("Unsqueeze", 1, 11)
def _unsqueeze_1(node, x, *, axes):
    _demand(min(axes) >= 0, f"axes {axes} may not be negative")
    return np.expand_dims(x, tuple(axes))


@_meaning("Unsqueeze", 11, 13)
def _unsqueeze_11(node, x, *, axes):
    return np.expand_dims(x, tuple(axes))


@_meaning("Unsqueeze", 13)
def _unsqueeze(node, x, axes):
    return np.expand_dims(x, tuple(axes.ravel().tolist()))


@_meaning("Squeeze", 1, 11)
def _squeeze_1(node, x, *, axes=None):
    _demand(not axes or min(axes) >= 0, f"axes {axes} may not be negative")
    return np.squeeze(x, tuple(axes) if axes is not None else None)


@_meaning("Squeeze", 11, 13)
def _squeeze_11(node, x, *, axes=None):
    return np.squeeze(x, tuple(axes) if axes is not None else None)


@_meaning("Squeeze", 13)
def _squeeze(node, x, axes=None):
    return np.squeeze(x, tuple(axes.ravel().tolist()) if axes is not None else None)


def _cut(x, starts, ends, axes, steps):
    axes = range(len(starts)) if axes is None else [a + (x.ndim if a < 0 else 0) for a in axes]
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        n = x.shape[axis]
        start, end = (v + n if v < 0 else v for v in (start, end))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        start, end = min(max(start, max(low, 0)), high), min(max(end, low), high)
        index[axis] = slice(start, end if end >= 0 else None, step)
        if step < 0 and n == 0:
            index[axis] = slice(0, 0)
    return x[tuple(index)]


@_meaning("Slice", 1, 10)
def _slice_1(node, x, *, starts, ends, axes=None):
    return _cut(x, starts, ends, axes, None)


@_meaning("Slice", 10)
def _slice(node, x, starts, ends, axes=None, steps=None):
    return _cut(x, *(None if v is None else v.tolist() for v in (starts, ends, axes, steps)))


def _parts(x, axis, sizes, count):
    if sizes is None:
        _demand(x.shape[axis] % count == 0, f"{x.shape[axis]} does not split into {count} equal parts")
        sizes = [x.shape[axis] // count] * count
    _demand(sum(sizes) == x.shape[axis], f"parts of {sizes} for {x.shape[axis]}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


@_meaning("Split", 1, 2)
def _split_1(node, x, sizes=None, *, axis=None, split=None):
    sizes = split if sizes is None else sizes.tolist()
    return _parts(x, axis or 0, sizes, len(node.output))


@_meaning("Split", 2, 13)
def _split_2(node, x, *, axis, split=None):
    return _parts(x, axis, split, len(node.output))


@_meaning("Split", 13, 18)
def _split_13(node, x, split=None, *, axis):
    return _parts(x, axis, None if split is None else split.tolist(), len(node.output))


@_meaning("Split", 18)
def _split(node, x, split=None, *, axis, num_outputs=None):
    """Of `num_outputs` parts the last one is smaller where they cannot be equal."""
    if split is None:
        count, size = num_outputs or len(node.output), x.shape[axis]
        chunk = -(-size // count)
        return _parts(x, axis, [chunk] * (count - 1) + [size - chunk * (count - 1)], count)
    return _parts(x, axis, split.tolist(), len(node.output))


def _padded(x, pads, value, mode, axes=None):
    axes = range(x.ndim) if axes is None else [a % x.ndim for a in axes]
    widths = [[0, 0] for _ in range(x.ndim)]
    for i, axis in enumerate(axes):
        widths[axis] = [int(pads[i]), int(pads[i + len(pads) // 2])]
    cut = x[tuple(slice(max(0, -b), x.shape[i] - max(0, -e)) for i, (b, e) in enumerate(widths))]
    widths = [[max(0, b), max(0, e)] for b, e in widths]
    if mode == "constant":
        return np.pad(cut, widths, constant_values=np.asarray(value).astype(x.dtype))
    return np.pad(cut, widths, mode)


@_meaning("Pad", 1, 2)
def _pad_1(node, x, *, paddings, mode, value):
    return _padded(x, paddings, value, mode)


@_meaning("Pad", 2, 11)
def _pad_2(node, x, *, pads, mode, value):
    return _padded(x, pads, value, mode)


@_meaning("Pad", 11)
def _pad(node, x, pads, value=None, axes=None, *, mode):
    empty = "" if x.dtype.kind in "OUS" else 0
    value = empty if value is None else value.reshape(())
    return _padded(x, pads.tolist(), value, mode, None if axes is None else axes.tolist())


@_meaning("Tile", 1, 6)
def _tile_1(node, x, tiles, axis):
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return np.tile(x, repeats)


@_meaning("Tile", 6)
def _tile(node, x, repeats):
    _demand(len(repeats) == x.ndim, f"{len(repeats)} repeats for rank {x.ndim}")
    return np.tile(x, repeats)


@_meaning("Expand", 8)
def _expand(node, x, shape):
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist()))).copy()


@_meaning("Shape", 1, 15)
def _shape_1(node, x):
    return np.array(x.shape, np.int64)


@_meaning("Shape", 15)
def _shape(node, x, *, start, end=None):
    rank = x.ndim
    begin, stop = (min(max(v + (rank if v < 0 else 0), 0), rank) for v in (start, rank if end is None else end))
    return np.array(x.shape[begin:stop], np.int64)


def _nearest(x, scales):
    """Each output element is the input element at its index divided by the scale, rounded down."""
    for axis, scale in enumerate(scales):
        size = int(np.floor(x.shape[axis] * np.float32(scale)))
        index = np.floor(np.arange(size) / np.float64(scale)).astype(np.int64)
        x = np.take(x, np.minimum(index, x.shape[axis] - 1), axis)
    return x


def _upsampled(x, scales, mode):
    if mode != "nearest":
        raise NotImplementedError("the specification of Upsample does not say where linear samples lie")
    _demand(len(scales) == x.ndim and min(scales) >= 1, f"scales {scales} for rank {x.ndim}")
    return _nearest(x, scales)


@_meaning("Upsample", 1, 7)
def _upsample_1(node, x, *, height_scale, width_scale, mode):
    return _upsampled(x, [1, 1, height_scale, width_scale], mode)


@_meaning("Upsample", 7, 9)
def _upsample_7(node, x, *, scales, mode):
    return _upsampled(x, scales, mode)


@_meaning("Upsample", 9, 10)
def _upsample_9(node, x, scales, *, mode):
    return _upsampled(x, scales.tolist(), mode)


# Reductions


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
    how = {"axis": tuple(range(x.ndim)) if not axes else tuple(axes), "keepdims": bool(keepdims)}
    return np.asarray(_REDUCTIONS[node.op_type](_wide(x), **how)).astype(x.dtype)


def _reduce_by_attribute(node, x, *, axes=None, keepdims):
    _demand(not axes or len(set(axes)) == len(axes), f"axes {axes} repeat")
    return _reduced(node, x, axes, keepdims)


def _reduce_by_input(node, x, axes=None, *, keepdims, noop_with_empty_axes):
    if noop_with_empty_axes and (axes is None or axes.size == 0):
        raise NotImplementedError(f"{node.op_type} with noop_with_empty_axes and no axes is read in two ways")
    return _reduced(node, x, None if axes is None else axes.tolist(), keepdims)


for _name in _REDUCTIONS:
    _since = 13 if _name == "ReduceSum" else 18
    _meaning(_name, 1, _since)(_reduce_by_attribute)
    _meaning(_name, _since)(_reduce_by_input)


@_meaning("ArgMax ArgMin", 1)
def _arg(node, x, *, axis, keepdims, select_last_index=0):
    pick = np.argmax if node.op_type == "ArgMax" else np.argmin
    index = x.shape[axis] - 1 - pick(np.flip(x, axis), axis) if select_last_index else pick(x, axis)
    return (np.expand_dims(index, axis) if keepdims else np.asarray(index)).astype(np.int64)


# Control flow


class _WithBody(OpRun):
    def need_context(self) -> bool:
        return True

    def body_outputs(self, context: dict, feeds: dict, attributes: dict | None) -> list:
        return self.body.run(None, {**context, **feeds}, attributes=attributes or {})


@_meaning("Loop", 1)
class Loop(_WithBody):
    """Scan outputs are stacked along a new first axis; of no iterations at all their shape is not known."""

    op_domain = ""

    def _run(self, trips, condition, *carried, context=None, body=None, attributes=None, **_):
        names = self.body.input_names
        values, stacks = list(carried), [[] for _ in range(len(self.body.output_names) - 1 - len(carried))]
        going, number = condition is None or bool(np.asarray(condition).item()), 0
        while going and (trips is None or number < int(np.asarray(trips).item())):
            feeds = dict(zip(names, [np.array(number, np.int64), np.array(True), *values], strict=True))
            going, *results = self.body_outputs(context, feeds, attributes)
            going = bool(np.asarray(going).item())
            values = results[: len(values)]
            for stack, value in zip(stacks, results[len(values) :], strict=True):
                stack.append(value)
            number += 1
        if not number and stacks:
            raise NotImplementedError("the shape of what a Loop without iterations stacks is not known")
        return (*values, *map(np.stack, stacks))


@_meaning("Scan", 9)
class Scan(_WithBody):
    """Opset 8 has another Scan, over batches."""

    op_domain = ""

    def _run(
        self,
        *inputs,
        context=None,
        body=None,
        num_scan_inputs,
        scan_input_axes=None,
        scan_input_directions=None,
        scan_output_axes=None,
        scan_output_directions=None,
        attributes=None,
        **_,
    ):
        state, scanned = list(inputs[: len(inputs) - num_scan_inputs]), inputs[len(inputs) - num_scan_inputs :]
        moved = []
        for i, value in enumerate(scanned):
            value = np.moveaxis(value, scan_input_axes[i] if scan_input_axes else 0, 0)
            moved.append(value[::-1] if scan_input_directions and scan_input_directions[i] else value)
        stacks: list[list] = [[] for _ in range(len(self.body.output_names) - len(state))]
        _demand(len({len(v) for v in moved}) == 1, "scan inputs of different lengths")
        for row in zip(*moved, strict=True):
            feeds = dict(zip(self.body.input_names, [*state, *row], strict=True))
            results = self.body_outputs(context, feeds, attributes)
            state = results[: len(state)]
            for stack, value in zip(stacks, results[len(state) :], strict=True):
                stack.append(value)
        if stacks and not stacks[0]:
            raise NotImplementedError("the shape of what a Scan over nothing stacks is not known")
        stacked = []
        for i, stack in enumerate(stacks):
            rows = stack[::-1] if scan_output_directions and scan_output_directions[i] else stack
            stacked.append(np.moveaxis(np.stack(rows), 0, scan_output_axes[i] if scan_output_axes else 0))
        return (*state, *stacked)
