"""Runs a traced onnxscript function for one node: each operator that it calls becomes a node of the engine's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import AttributeProto, NodeProto, defs, helper
from onnxscript import OnnxFunction, evaluator
from onnxscript.values import Op, Opset, TracedOnnxFunction

from relu_tools import schemas
from relu_tools.bodies import DOMAIN
from relu_tools.builder import Builder
from relu_tools.graphs import free_names
from relu_tools.report import RefusedError

MICROSOFT = Opset(DOMAIN, 1)

# What onnxscript itself takes for operators on values in a function that names no opset.
_OPSET = 18


def body(function: Callable[..., Any]) -> TracedOnnxFunction:
    """Makes a function the body of the com.microsoft operator of its name.

    Parameters without an annotation, and those of a tensor type, are inputs, `None` where a node leaves them out;
    those of int, float, str and sequences of them are attributes.
    """
    return TracedOnnxFunction(MICROSOFT, function)


def former(function: Callable[..., Any]) -> TracedOnnxFunction:
    """The same for an operator that stands among those of ai.onnx."""
    return TracedOnnxFunction(Opset("", 1), function)


def opset_of(function: Callable[..., Any]) -> int:
    """The opset of ai.onnx that a function is written in, its module's where it names none itself.

    Raises ValueError where there are several.
    """
    found = inspect.getclosurevars(function)
    versions = _versions((*found.globals.values(), *found.nonlocals.values())) or _versions(
        function.__globals__.values()
    )
    if len(versions) > 1:
        raise ValueError(f"the function {function.__name__} is written in several opsets: {sorted(versions)}")
    return versions.pop() if versions else _OPSET


def _versions(values: Iterable[Any]) -> set[int]:
    """The opsets of ai.onnx among values."""
    return {value.version for value in values if isinstance(value, Opset) and schemas.normal(value.domain) == ""}


def trace(
    function: TracedOnnxFunction,
    op: Builder,
    opset: int,
    inputs: Sequence[str | None],
    attributes: Mapping[str, Any],
) -> tuple[str | None, ...]:
    """Runs a function on values of these names; gives the names of what it returns."""
    tracer = _Tracer(op, opset)
    given = [None if name is None else Value(name, tracer) for name in inputs]
    with evaluator.default_as(tracer):
        returned = function(*given, **attributes)
    returned = returned if isinstance(returned, tuple | list) else (returned,)
    results = tuple(None if value is None else tracer.result(value) for value in returned)
    _leave_out_unread(op.nodes, results)
    return results


def _leave_out_unread(nodes: Sequence[NodeProto], results: Sequence[str | None]) -> None:
    """Leaves out the outputs of nodes that nothing reads: onnxscript names all that a schema has."""
    read = {name for node in nodes for name in free_names([node])} | {*results}
    for node in nodes:
        outputs = [name if name in read else "" for name in node.output]
        while outputs and not outputs[-1]:
            outputs.pop()
        if len(node.output) > 1:
            node.output[:] = outputs


class Value:
    """A value in a body that is being run.

    Python's operators are those of ai.onnx; a number among their operands, as among any operator's inputs, takes the
    element type of the others. What is asked of a value and is not known refuses the node.
    """

    def __init__(self, name: str, tracer: _Tracer):
        self.name, self._tracer = name, tracer

    def __repr__(self) -> str:
        return f"Value({self.name!r})"

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        return ir.DataType(self._tracer.op.dtype(self.name))

    @property
    def shape(self) -> list[int | str | None]:
        """The dimensions, symbolic ones by name and unknown ones as None."""
        return self._tracer.op.shape(self.name)

    @property
    def known_shape(self) -> list[int | str | None] | None:
        """The same, or None where the rank is not known."""
        return self._tracer.op.known_shape(self.name)

    @property
    def rank(self) -> int:
        return self._tracer.op.rank(self.name)

    @property
    def constant(self) -> np.ndarray:
        """The value of a constant."""
        return self._tracer.op.const(self.name)

    @property
    def known(self) -> np.ndarray | None:
        """The value where it is a constant, None where it is not."""
        return self._tracer.op.known(self.name)

    def like(self, number: float | int | bool) -> np.ndarray:
        """A scalar of this element type."""
        return self._tracer.op.like(number, self.name)

    def scalar(self) -> Value:
        """This value of one element without axes: onnxruntime takes a vector of one element for a scalar."""
        if self.known_shape == []:
            return self
        return self._tracer.call("Reshape", (self, np.zeros(0, np.int64)))

    def to(self, dtype: int) -> Value:
        """This value cast to an element type, itself where it has that."""
        return self if self.dtype == dtype else self._tracer.call("Cast", (self,), to=dtype)

    def __bool__(self) -> bool:
        raise RefusedError(f"its body asks for the truth of '{self.name}', which is known only when the model is run")

    __hash__ = object.__hash__

    def _call(self, op: str, *operands: Any) -> Value:
        return self._tracer.call(op, operands)

    def __add__(self, other: Any) -> Value:
        return self._call("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self._call("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self._call("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self._call("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self._call("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self._call("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self._call("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._call("Div", other, self)

    def __pow__(self, other: Any) -> Value:
        return self._call("Pow", self, other if isinstance(other, Value) else self.like(other))

    def __matmul__(self, other: Any) -> Value:
        return self._call("MatMul", self, other)

    def __neg__(self) -> Value:
        return self._call("Neg", self)

    def __lt__(self, other: Any) -> Value:
        return self._call("Less", self, other)

    def __le__(self, other: Any) -> Value:
        return self._call("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> Value:
        return self._call("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self._call("GreaterOrEqual", self, other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._call("Equal", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._call("Not", self._call("Equal", self, other))

    def __and__(self, other: Any) -> Value:
        return self._call("And", self, other)

    def __or__(self, other: Any) -> Value:
        return self._call("Or", self, other)


def scan(
    step: Callable[..., Sequence[Value]], states: Sequence[Value], sequences: Sequence[Value], *, backward: bool = False
) -> tuple[Value, ...]:
    """Goes along the first axis of sequences: `step` is given the states and an element of each, and gives new states.

    The last states come out, then what it gives besides, stacked.
    """
    tracer = states[0]._tracer
    op = tracer.op

    def make(*names: str) -> tuple[str, ...]:
        made = step(*(Value(name, tracer) for name in names))
        return tuple(value.name for value in made)

    held = [helper.make_tensor_type_proto(op.dtype(state.name), op.known_shape(state.name)) for state in states]
    body = op.branch(make, [*held, *(op.item(sequence.name) for sequence in sequences)])
    stacked = len(body.output) - len(states)
    made = op.Scan(
        *(value.name for value in (*states, *sequences)),
        outputs=len(body.output),
        body=body,
        num_scan_inputs=len(sequences),
        scan_input_directions=[1] * len(sequences) if backward else None,
        scan_output_directions=[1] * stacked if backward else None,
    )
    return tuple(Value(name, tracer) for name in made)


class _Tracer:
    """An onnxscript evaluator that makes nodes by a builder."""

    def __init__(self, op: Builder, opset: int):
        self.op, self.opset = op, opset

    def eval_op(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        domain = schemas.normal(op.opset.domain)
        if op.op_schema is None:
            raise ValueError(f"no schema tells the inputs and outputs of {op.name}")
        here = schemas.at(domain, op.name, self.opset)
        if domain == "" and (here is None or here.since != op.op_schema.since_version):
            raise ValueError(f"{op.name} is of opset {op.opset.version} in a function of opset {self.opset}")
        defaults = {name: a.default_value for name, a in op.op_schema.attributes.items()}
        attributes = {name: value for name, value in kwargs.items() if not _is_default(value, defaults.get(name))}
        return self._make(op.op_schema, domain, args, attributes, _output_count(op.op_schema, args, kwargs))

    def eval_function(self, function: OnnxFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function.function(*args, **kwargs)

    def call(self, name: str, operands: Sequence[Any], **attributes: Any) -> Any:
        return self._make(defs.get_schema(name, self.opset, ""), "", operands, attributes, 1)

    def _make(
        self, schema: defs.OpSchema, domain: str, args: Sequence[Any], attributes: Mapping[str, Any], outputs: int
    ) -> Any:
        variables = [schema.inputs[min(k, len(schema.inputs) - 1)].type_str for k in range(len(args))]
        bound = {v: self.op.dtype(a.name) for v, a in zip(variables, args, strict=True) if _promotes(v, a, args)}
        inputs = [self.name(arg, bound.get(variable)) for variable, arg in zip(variables, args, strict=True)]
        return self._values(getattr(self.op, schema.name)(*inputs, outputs=outputs, domain=domain, **attributes))

    def _values(self, made: Any) -> Any:
        return Value(made, self) if isinstance(made, str) else tuple(Value(name, self) for name in made)

    def name(self, value: Any, dtype: int | None = None) -> str | np.ndarray | None:
        """The name of a value; an array for numbers, of the element type `dtype` if one is given."""
        if value is None:
            return None
        if isinstance(value, Value):
            return value.name
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value)
        if isinstance(value, schemas.AttributeReference):
            value.unknown()
        array = np.asarray(value)
        if array.dtype == np.float64 or not array.size:
            array = array.astype(np.float32 if array.size else np.int64)
        return array if dtype is None else array.astype(helper.tensor_dtype_to_np_dtype(dtype))

    def result(self, value: Any) -> str | None:
        """The name of a value that a function returns."""
        found = self.name(value)
        return self.op.Identity(found) if isinstance(found, np.ndarray) else found


def _promotes(variable: str, arg: Any, args: Sequence[Any]) -> bool:
    """Whether a value tells the element type of numbers among the inputs."""
    numbers = any(isinstance(other, int | float | list | tuple) for other in args)
    return numbers and isinstance(arg, Value) and "(" not in variable


def _is_default(value: Any, default: AttributeProto | None) -> bool:
    if value is None:
        return True
    if default is None or not default.name or isinstance(value, schemas.AttributeReference):
        return False
    return schemas.value_of(default) == value


def _output_count(schema: defs.OpSchema, args: Sequence[Any], attributes: Mapping[str, Any]) -> int:
    """How many outputs a call has: all that the schema names, or what tells the number of variadic ones."""
    if schema.name == "Split":
        sizes = args[1] if len(args) > 1 else attributes.get("split")
        if sizes is None:
            return attributes.get("num_outputs") or len(schema.outputs)
        return sizes.constant.size if isinstance(sizes, Value) else len(sizes)
    if schema.name in ("If", "Loop", "Scan"):
        raise ValueError(f"a function that is run for each node cannot call {schema.name}; it can call scan")
    return len(schema.outputs)
