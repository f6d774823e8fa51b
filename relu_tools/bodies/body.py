"""A function body: what it asks of a node, and what its trace makes of one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import FunctionProto, GraphProto, NodeProto, TypeProto
from onnxscript import OnnxFunction
from onnxscript.values import TracedOnnxFunction

from relu_tools import schemas
from relu_tools.bodies.tracing import opset_of, trace
from relu_tools.builder import Builder
from relu_tools.facts import Scope
from relu_tools.report import RefusedError, qualified


def body_of(function: OnnxFunction | TracedOnnxFunction | FunctionProto, means: str) -> StaticBody | TracedBody:
    """The body that a function is; `means` is what the report calls it."""
    if isinstance(function, TracedOnnxFunction):
        return TracedBody(schemas.normal(function.opset.domain), function.name, means, function)
    proto = function.to_function_proto() if isinstance(function, OnnxFunction) else function
    return StaticBody(schemas.normal(proto.domain), proto.name, means, proto, function)


@dataclasses.dataclass(frozen=True)
class Formals:
    """The names of a function's parameters; those in `required` and `required_attributes` must be given.

    With `more_inputs`, or `more_attributes`, it takes others as well.
    """

    inputs: Sequence[str]
    required: Sequence[str]
    attributes: frozenset[str]
    required_attributes: frozenset[str]
    more_inputs: bool = False
    more_attributes: bool = False

    def check(self, node: NodeProto) -> None:
        """Raises RefusedError where a node has not what the function asks for, or has what that does not know."""
        attributes = {attribute.name for attribute in node.attribute}
        for name in sorted(attributes - self.attributes) if not self.more_attributes else ():
            raise RefusedError(f"its body knows no attribute '{name}'")
        for name in sorted(self.required_attributes - attributes):
            raise RefusedError(f"its body asks for the attribute '{name}'")
        given = {name for name, actual in zip(self.inputs, node.input, strict=False) if actual}
        for name in self.required:
            if name not in given:
                raise RefusedError(f"its body asks for the input '{name}'")
        if not self.more_inputs and any(node.input[len(self.inputs) :]):
            raise RefusedError(f"its body takes no more than {len(self.inputs)} inputs")


@dataclasses.dataclass(frozen=True)
class Body:
    """A function that stands for nodes of its name and domain."""

    domain: str
    op: str
    means: str

    @property
    def key(self) -> tuple[str, str]:
        return self.domain, self.op

    def __str__(self) -> str:
        return qualified(self.domain, self.op)


@dataclasses.dataclass(frozen=True)
class StaticBody(Body):
    """One that is the same for all nodes."""

    proto: FunctionProto
    function: OnnxFunction | FunctionProto

    traced = False

    def called(self) -> Iterator[StaticBody | TracedBody]:
        """The functions that it calls, where it is an onnxscript function."""
        if isinstance(self.function, OnnxFunction):
            for function in self.function.function_ir.get_called_functions().values():
                yield body_of(function, self.means)

    def check(self, node: NodeProto) -> None:
        """Raises RefusedError where it does not fit a node."""
        with_default = {attribute.name for attribute in self.proto.attribute_proto}
        without = frozenset(self.proto.attribute)
        # A FunctionProto does not say which inputs it can do without.
        required = _required(self.function) if isinstance(self.function, OnnxFunction) else ()
        Formals(self.proto.input, required, without | with_default, without).check(node)
        if sum(map(bool, node.output)) > len(self.proto.output):
            raise RefusedError(f"its body gives no more than {len(self.proto.output)} outputs")


@dataclasses.dataclass(frozen=True)
class TracedBody(Body):
    """One that is run for each node: its form may depend on which inputs are there, on element types and ranks."""

    function: TracedOnnxFunction

    traced = True

    def called(self) -> Iterator[StaticBody | TracedBody]:
        """None: what it calls is run with it."""
        return iter(())

    @functools.cached_property
    def opset(self) -> int:
        """The opset of ai.onnx that it is written in."""
        return opset_of(self.function.func)

    @functools.cached_property
    def formals(self) -> Formals:
        """Parameters by keyword only are attributes too, and inputs that may be None need not be given."""
        parameters = inspect.signature(self.function.func).parameters
        signature = self.function.op_signature
        kinds = inspect.Parameter
        of_attributes = {p.name for p in signature.params if not _is_input(p)} if signature is not None else set()
        of_attributes |= {name for name, p in parameters.items() if p.kind is kinds.KEYWORD_ONLY}
        variable = {p.kind for p in parameters.values()}
        inputs = [
            p
            for name, p in parameters.items()
            if name not in of_attributes and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        ]
        return Formals(
            [p.name for p in inputs],
            [p.name for p in inputs if p.default is kinds.empty and not _admits_none(p.annotation)],
            frozenset(of_attributes),
            frozenset(name for name in of_attributes if parameters[name].default is kinds.empty),
            kinds.VAR_POSITIONAL in variable,
            kinds.VAR_KEYWORD in variable,
        )

    def trace(self, op: Builder, node: NodeProto) -> tuple[str | None, ...]:
        """The values that it gives for a node's outputs, its nodes made by `op`.

        Raises RefusedError where it does not fit the node, or refuses it itself.
        """
        formals = self.formals
        formals.check(node)
        inputs: list[str | None] = [name or None for name in node.input]
        inputs += [None] * (len(formals.inputs) - len(inputs))
        if not formals.more_inputs:
            del inputs[len(formals.inputs) :]
        attributes = {attribute.name: schemas.value_of(attribute) for attribute in node.attribute}
        results = trace(self.function, op, self.opset, inputs, attributes)
        if any(op.outputs[len(results) :]):
            raise RefusedError(f"its body gives no more than {len(results)} outputs")
        for k, (output, result) in enumerate(zip(op.outputs, results, strict=False)):
            if output and result is None:
                raise RefusedError(f"its body does not give output {k} of this node")
        return tuple(result if output else None for output, result in zip(op.outputs, results, strict=False))

    def type_of(self, scope: Scope, node: NodeProto, opsets: Mapping[str, int], output: str) -> TypeProto | None:
        """The type of an output of a node in a scope, from a trace that is thrown away; None where it is not known."""
        inner = Scope(scope.model, GraphProto(), {**opsets, "": self.opset}, scope, None)
        numbers = itertools.count()
        op = Builder(inner, inner.opsets, node, bool, lambda hint: f"{hint}@{next(numbers)}", inner.opsets)
        try:
            result = self.trace(op, node)[list(node.output).index(output)]
        except Exception:  # what stops the trace is said where the node is expanded
            return None
        return None if result is None else inner.type(result)


def _required(function: OnnxFunction) -> list[str]:
    signature = function.op_signature
    return [p.name for p in signature.params if _is_input(p) and p.required] if signature is not None else []


def _is_input(parameter: Any) -> bool:
    """Whether a parameter of a signature is one of the inputs; all others are attributes."""
    return hasattr(parameter, "type_constraint")


def _admits_none(annotation: Any) -> bool:
    """Whether an annotation is `Optional[...]` or `... | None`, as text or as a type."""
    text = str(annotation)
    return text.endswith("| None") or "Optional[" in text
