"""A model as it was given, and what onnx's inference finds in it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

from onnx import ModelProto, TensorProto, TypeProto

from relu_tools import schemas
from relu_tools.bodies import Bodies
from relu_tools.census import Census, census

# More elements than these are a weight, which inference has no use for.
SMALL = 1 << 10


class Model:
    """The model as it was given, with what holds for all of its graphs.

    `read` gives a tensor with its data (weights may lie outside of the proto); `bodies` tell the types of what
    operators give that no schema defines; `census` is that of the model where it is known already.
    """

    def __init__(
        self,
        proto: ModelProto,
        opsets: Mapping[str, int],
        read: Callable[[TensorProto], TensorProto],
        census: Census | None = None,
    ):
        self.proto, self.opsets, self.read = proto, dict(opsets), read
        if census is not None:
            self.census = census
        self.functions = {(schemas.normal(f.domain), f.name, f.overload): f for f in proto.functions}
        self.bodies = Bodies()
        self._inferred: ModelProto | None = None
        self.questions = 0  # that were asked about values, but for their element types
        self.of_calls: dict[tuple, TypeProto | None] = {}  # what functions give for the types that they are given

    @functools.cached_property
    def census(self) -> Census:
        return census(self.proto, self.opsets)

    def inferred(self) -> ModelProto:
        """The model after shape inference; as given where inference fails."""
        if self._inferred is None:
            from relu_tools.parts import infer

            light = weightless(self.proto)
            try:
                self._inferred = infer(light)
            except Exception:  # inference raises whatever the operator's own code raises; without it less is known
                self._inferred = light
        return self._inferred


def weightless(model: ModelProto) -> ModelProto:
    """A copy of a model without the data of its weights and without local functions' doc strings and the like.

    The domain is written as schemas write it, so that inference finds them.
    """
    light = ModelProto()
    light.ir_version = max(model.ir_version, 8)
    seen = set()
    for opset in model.opset_import:
        if (domain := schemas.normal(opset.domain)) not in seen:
            seen.add(domain)
            light.opset_import.add(domain=domain, version=opset.version)
    light.functions.extend(model.functions)
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(model.graph.input)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    for info in (*light.graph.input, *light.graph.output, *light.graph.value_info):
        if (clean := sized(info.type)) is not info.type:
            info.type.CopyFrom(clean)
    light.graph.name = model.graph.name or "graph"
    light.graph.initializer.extend(_light_tensor(t) for t in model.graph.initializer)
    light.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    for node in light.graph.node:
        if node.domain == "ai.onnx":
            node.domain = ""
    return light


def sized(type_: TypeProto) -> TypeProto:
    """A type without sizes below 0, by which some exporters mean one that is not known."""
    if not any(dim.dim_value < 0 for dim in type_.tensor_type.shape.dim):
        return type_
    clean = TypeProto()
    clean.CopyFrom(type_)
    for dim in clean.tensor_type.shape.dim:
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
    return clean


def _light_tensor(tensor: TensorProto) -> TensorProto:
    if tensor.data_location != TensorProto.EXTERNAL and elements(tensor.dims) <= SMALL:
        return tensor
    light = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    # An external tensor need not show its data to inference.
    light.data_location = TensorProto.EXTERNAL
    light.external_data.add(key="location", value="none")
    return light


def elements(dims: Iterable[int]) -> int:
    """How many elements a tensor of these dimensions holds."""
    count = 1
    for dim in dims:
        count *= dim
    return count
