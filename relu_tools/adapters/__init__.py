"""The table of steps: what is to be done where a step between neighbouring versions changes more than types.

A step that changed no meaning is declared with `same`; types, defaults and attributes that are at their default
are then the engine's work. Any other step needs an `adapter`. A step with neither is refused by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from onnx import TensorProto

from relu_tools import schemas

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
WIDE_INTEGERS = (TensorProto.INT64, TensorProto.UINT64)

KEEP = object()
"""What an adapter returns for a node that it has no objection to: the general rules go on with it."""


@dataclasses.dataclass(frozen=True)
class Adapter:
    """A function that takes a node over one step.

    `accuracy` is "exact" or "rounding" (equal but for rounding). `opset` is the one that its nodes are written in,
    None for the step's own: the last opset before the node's version, or the first of the next version.
    `instead_of_body` has it take the place of the schema's function body wherever that would be expanded.
    """

    function: Callable[..., Any]
    accuracy: str
    opset: int | None = None
    instead_of_body: bool = False

    @property
    def doc(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")


TABLE: dict[tuple[str, str, int, int | None], Adapter] = {}
SAME: set[tuple[str, str, int, int]] = set()
BODIES: set[tuple[str, str, int]] = set()


def adapter(
    ops: str,
    source: int,
    target: int | None,
    *,
    accuracy: str = "exact",
    opset: int | None = None,
    instead_of_body: bool = False,
    domain: str = "",
):
    """Registers a function for the step `source` to `target` of each operator named in `ops`.

    Its parameters are the formal parameters of the source schema: after the builder the inputs by position, then
    the attributes by keyword, defaults filled in. `target` is None for the step below an operator's first version.
    With `opset` its nodes are written in another opset than the step's own, and legalized from there. With
    `instead_of_body` it is put in when the operator is inlined, too, since the schema's body is not exact.
    It returns the values that stand for the node's outputs, or `KEEP`.

    Raises ValueError where the step does not exist or is taken twice, a parameter is none of the schema's, or the
    docstring is missing.
    """

    def register(function):
        if not function.__doc__:
            raise ValueError(f"the adapter {function.__name__} says nothing of what changed")
        for op in ops.split():
            if max(source, target or 0) > schemas.newest(domain):
                continue  # a step that the installed onnx does not know yet
            _check_step(domain, op, source, target)
            _check_parameters(function, domain, op, source)
            key = (domain, op, source, target)
            if key in TABLE:
                raise ValueError(f"{op} {source} to {target} is taken twice")
            TABLE[key] = Adapter(function, accuracy, opset, instead_of_body)
        return function

    return register


def same(ops: str, *versions: int, domain: str = "") -> None:
    """Declares that each step between these neighbouring versions kept the meaning, in both directions."""
    for op in ops.split():
        for lower, upper in zip(versions, versions[1:], strict=False):
            if upper > schemas.newest(domain):
                continue
            _check_step(domain, op, lower, upper)
            SAME.add((domain, op, lower, upper))


def by_body(ops: str, *versions: int, domain: str = "") -> None:
    """Declares that these versions' function bodies compute what the operators do: they stand for the step down.

    For operators whose schema has a body that was compared with them and found equal, at every element type.
    """
    for op in ops.split():
        for version in versions:
            if version > schemas.newest(domain):
                continue
            found = schemas.at(domain, op, version)
            if found is None or found.since != version or not found.has_body:
                raise ValueError(f"{op} {version} has no function body")
            BODIES.add((domain, op, version))


def is_same(domain: str, op: str, source: int, target: int) -> bool:
    """Whether the step kept the meaning, by declaration."""
    return (domain, op, min(source, target), max(source, target)) in SAME


def _check_step(domain: str, op: str, source: int, target: int | None) -> None:
    births = [version.since for version in schemas.history(domain, op)]
    low, high = sorted((source, target or 0))
    known = births[:1] == [source] if target is None else (low, high) in zip(births, births[1:], strict=False)
    if not known:
        raise ValueError(f"{op} has no step {source} to {target}: its versions are {births}")


def _check_parameters(function: Callable, domain: str, op: str, source: int) -> None:
    version = schemas.at(domain, op, source)
    assert version is not None
    inputs = [formal.name for formal in version.inputs]
    kinds = inspect.Parameter
    for k, parameter in enumerate(list(inspect.signature(function).parameters.values())[1:]):
        if parameter.kind is kinds.POSITIONAL_OR_KEYWORD:
            known = k < len(inputs)
        elif parameter.kind is kinds.KEYWORD_ONLY:
            known = parameter.name in version.attributes
        else:
            known = True
        if not known:
            raise ValueError(f"{function.__name__}: '{parameter.name}' is no formal of {op} {source}")


for _family in (
    "activation",
    "attention",
    "bitwise",
    "cast",
    "control",
    "cumulative",
    "elementary",
    "elements",
    "functions",
    "gathering",
    "generator",
    "image",
    "indexing",
    "integers",
    "linalg",
    "linear",
    "logical",
    "loops",
    "math",
    "ml",
    "nn",
    "normalization",
    "numeric",
    "padding",
    "placement",
    "pooling",
    "quantization",
    "reduction",
    "resize",
    "rnn",
    "sampling",
    "scattering",
    "sequence",
    "shapes",
    "slicing",
    "spectrum",
    "suppression",
    "tensor",
    "text",
    "unique",
):
    importlib.import_module(f"relu_tools.adapters.{_family}")
