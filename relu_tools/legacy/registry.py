"""Which function is the meaning of which version of an operator, and which versions onnx.reference may run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from ..compare import is_float

# The newest opset whose texts were read for the functions below that go on "to today".
_READ_UP_TO = 28

MEANINGS: dict[str, list[tuple[int, int, Callable]]] = {}


def meaning(ops: str, since: int, until: int = _READ_UP_TO + 1) -> Callable[[Callable], Callable]:
    """Register a function for operators at opset `since` up to but not including `until`.

    It is called with the node, the inputs (None for one left out) and the attributes with that version's
    defaults, and returns one output or a tuple of them.
    """

    def register(function: Callable) -> Callable:
        for op in ops.split():
            MEANINGS.setdefault(op, []).append((since, until, function))
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
    for since, until, function in MEANINGS.get(op, ()):
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
    **dict.fromkeys(
        (
            "Constant",
            "Gather",
            "GlobalAveragePool",
            "Identity",
            "If",
            "MatMul",
            "Size",
            "Transpose",
        ),
        1,
    ),
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
        (
            name,
            a.type,
            a.required,
            a.default_value.SerializeToString(),
            " ".join(a.description.split()),
        )
        for name, a in sorted(schema.attributes.items())
    )
    return (
        " ".join(schema.doc.split()),
        formals(schema.inputs),
        formals(schema.outputs),
        attributes,
    )


def demand(condition: Any, message: str) -> None:
    """Raise `ValueError` where the specification rejects what it has."""
    if not condition:
        raise ValueError(message)


def widened(x: np.ndarray) -> np.ndarray:
    """Narrow floats as float32, in which runtimes compute them."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def limits(dtype: np.dtype) -> tuple[float, float]:
    """The least and the greatest number of an element type; no infinity."""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype) if is_float(dtype) else ml_dtypes.iinfo(dtype)
    return info.min, info.max
