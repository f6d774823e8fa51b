"""Shape inference over models of many graphs and functions, one part of the outermost graph after the other.

For each graph within a graph, and for each call of a function, onnx's own inference copies what it knows of all that
lies around: over a whole model of many that takes quadratically long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    shape_inference,
)

from relu_tools import schemas
from relu_tools.graphs import free_names, graphs_in, subgraphs

# Nodes that hold graphs or call functions, in one part.
MOST = 256
# Graphs within one another, the outermost not counted, that inference reads.
DEEPEST = 30
# Inference follows the values of these, to find shapes that are computed.
_FOLLOWED = (TensorProto.INT32, TensorProto.INT64)
# What inference calls sizes that it does not know, and a number.
_UNKNOWN = "unk__"


def infer(model: ModelProto) -> ModelProto:
    """The model with all types that can be inferred, less the nodes that lie too deep, which `model` loses.

    Raises whatever inference raises.
    """
    for function in model.functions:
        _cut(function, DEEPEST)
    functions = {(schemas.normal(f.domain), f.name, f.overload): f for f in model.functions}
    starts, holders = [0], 0
    for k, node in enumerate(model.graph.node):
        inner = [graph for _, _, graph in subgraphs(node)]
        for graph in inner:
            _cut(graph, DEEPEST - 1)
        if inner or _key(node) in functions:
            holders += 1
            if holders % MOST == 0:
                starts.append(k + 1)
    if holders <= MOST:
        return shape_inference.infer_shapes(model, data_prop=True)
    return _Parts(model, functions).inferred(starts)


def _cut(graph: GraphProto | FunctionProto, levels: int) -> None:
    """Empties the graphs that lie in more graphs within this one than that; what these declare stays."""
    for node in graph.node:
        for _, _, inner in subgraphs(node):
            if levels > 1:
                _cut(inner, levels - 1)
            else:
                del inner.node[:]


def _key(node: NodeProto) -> tuple[str, str, str]:
    return schemas.normal(node.domain), node.op_type, node.overload


class _Parts:
    def __init__(self, model: ModelProto, functions: Mapping[tuple, FunctionProto]):
        self.model, self.functions = model, functions
        graph = model.graph
        self.nodes = list(graph.node)
        self.makers = {name: k for k in reversed(range(len(self.nodes))) for name in self.nodes[k].output}
        self.inputs = {info.name: info for info in graph.input}
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.outputs = {info.name: info for info in graph.output}
        self.told = {info.name: info for info in graph.value_info}
        self.found: dict[str, ValueInfoProto] = {}  # what the parts before told
        # Sizes of two parts must not be called alike.
        self.sizes = ValueInfoProto(name="\0sizes")
        self.sizes.type.tensor_type.elem_type = TensorProto.FLOAT
        self.named: set[str] = set()
        self._name_sizes(model)

    def inferred(self, starts: list[int]) -> ModelProto:
        nodes: list[NodeProto] = []
        for start, end in zip(starts, [*starts[1:], len(self.nodes)], strict=True):
            again = self._again(start, end)
            part = shape_inference.infer_shapes(self._part([*again, *range(start, end)]), data_prop=True)
            nodes.extend(part.graph.node[len(again) :])
            for info in (*part.graph.value_info, *part.graph.output):
                self.found.setdefault(info.name, info)
            self._name_sizes(part)
        whole = ModelProto()
        whole.CopyFrom(self.model)
        del whole.graph.node[:]
        whole.graph.node.extend(nodes)
        for info in whole.graph.output:
            info.CopyFrom(self.found.get(info.name, info))
        whole.graph.value_info.extend(info for name, info in self.found.items() if name not in self.outputs)
        return whole

    def _part(self, places: list[int]) -> ModelProto:
        """A model of some of the nodes, which knows what has been found of all that they read."""
        nodes = [self.nodes[k] for k in places]
        part = ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        graph = part.graph
        graph.name = self.model.graph.name
        graph.node.extend(nodes)
        graph.input.append(self.sizes)
        for name in free_names(nodes):
            if name in self.stored:
                graph.initializer.append(self.stored[name])
            if name in self.sparse:
                graph.sparse_initializer.append(self.sparse[name])
            for infos in (self.inputs, self.found, self.told, self.outputs):
                if name in infos:
                    graph.input.append(infos[name])
                    break
        for name in (name for node in nodes for name in node.output):
            if name in self.outputs:
                graph.output.append(self.found.get(name, self.outputs[name]))
            elif name in self.found or name in self.told:
                graph.value_info.append(self.found.get(name) or self.told[name])
        part.functions.extend(self._called(nodes))
        return part

    def _again(self, start: int, end: int) -> list[int]:
        """The earlier nodes of which a part must know what they compute, not the types alone."""
        waiting = free_names(self.nodes[start:end])
        found: set[int] = set()
        while waiting and len(found) < MOST:
            name = waiting.pop()
            k = self.makers.get(name, start)
            if k >= start or k in found:
                continue
            node = self.nodes[k]
            type_ = self.found[name].type if name in self.found else TypeProto()
            if node.op_type == "Constant" or type_.tensor_type.elem_type in _FOLLOWED:
                found.add(k)
                waiting.extend(free_names([node]))
        return sorted(found)

    def _called(self, nodes: list[NodeProto]) -> Iterator[FunctionProto]:
        """The functions that nodes call, and those that these call."""
        seen: set[tuple] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            for _, _, graph in subgraphs(node):
                waiting.extend(graph.node)
            key = _key(node)
            if key in self.functions and key not in seen:
                seen.add(key)
                waiting.extend(self.functions[key].node)
                yield self.functions[key]

    def _name_sizes(self, model: ModelProto) -> None:
        """Takes in what sizes are called that inference did not know, here or when the model was made."""
        for graph in graphs_in(model.graph):
            for info in (*graph.value_info, *graph.output, *graph.input):
                for dim in _dims(info.type):
                    if dim.dim_param.startswith(_UNKNOWN) and dim.dim_param not in self.named:
                        self.named.add(dim.dim_param)
                        self.sizes.type.tensor_type.shape.dim.add(dim_param=dim.dim_param)


def _dims(type_: TypeProto) -> Sequence[TensorShapeProto.Dimension]:
    kind = type_.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _dims(getattr(type_, kind).elem_type)
    if kind == "map_type":
        return _dims(type_.map_type.value_type)
    return getattr(type_, kind).shape.dim if kind in ("tensor_type", "sparse_tensor_type") else ()
