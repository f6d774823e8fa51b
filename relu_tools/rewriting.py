"""Changes to graphs, nodes and names that have no meaning of their own: renaming, handing on, leaving out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx import FunctionProto, GraphProto, NodeProto

from relu_tools.builder import Builder
from relu_tools.facts import Scope
from relu_tools.graphs import free_names, graphs_in, subgraphs, uses

if TYPE_CHECKING:
    from relu_tools.legalize import Engine


def prune(engine: Engine) -> None:
    """Removes constants that rewrites took in as attributes and that nothing uses any more, with what made them."""
    if not engine.baked:
        return
    used = uses(engine.work)
    waiting = [name for name in dict.fromkeys(name for _, name in engine.baked) if not used[name]]
    if not waiting:
        return
    places: dict[str, tuple[int, int]] = {}
    stays = {""}
    fields: list = []
    for top in (engine.work.graph, *engine.work.functions):
        for graph in graphs_in(top):
            found = [(output, k) for k, node in enumerate(graph.node) for output in node.output]
            _find(found, len(fields), places, stays)
            fields.append(graph.node)
            if isinstance(graph, FunctionProto):
                stays.update(graph.input)
            else:
                stays.update(info.name for info in graph.input)
                _find([(tensor.name, k) for k, tensor in enumerate(graph.initializer)], len(fields), places, stays)
                fields.append(graph.initializer)
    gone: set[tuple[int, int]] = set()
    while waiting:
        name = waiting.pop()
        if used[name] or name in stays or name not in places or places[name] in gone:
            continue
        field, k = places[name]
        item = fields[field][k]
        if isinstance(item, NodeProto):
            if any(used[output] for output in item.output) or any(True for _ in subgraphs(item)):
                continue
            used.subtract(given for given in item.input if given)
            waiting.extend(item.input)
        gone.add((field, k))
    for field, k in sorted(gone, reverse=True):
        del fields[field][k]


def _find(named: Sequence[tuple[str, int]], field: int, places: dict[str, tuple[int, int]], stays: set[str]) -> None:
    """Notes where values come from. Branches may use a name twice: what is not unique stays."""
    for name, k in named:
        if name in places:
            stays.add(name)
        else:
            places[name] = (field, k)


def tell_shapes(graph: GraphProto, scope: Scope) -> None:
    """Gives a graph's outputs the shapes that are known: runtimes ask for the ranks of what a Scan stacks."""
    for info in graph.output:
        if not info.type.tensor_type.HasField("shape") and (type_ := scope.type(info.name)) is not None:
            info.type.CopyFrom(type_)


def leave_out_unused(builder: Builder, results: Sequence[str]) -> None:
    """Takes out what an adapter made and then had no use for."""
    wanted, kept = set(results), []
    for node in reversed(builder.nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(free_names([node]))
    builder.nodes = kept[::-1]
    builder.initializers = [tensor for tensor in builder.initializers if tensor.name in wanted]


def first(node: NodeProto) -> str:
    return next((name for name in node.output if name), node.op_type)


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Gives values other names, in the node's graphs too."""
    for values in (node.input, node.output):
        for k, name in enumerate(values):
            if name in names:
                values[k] = names[name]
    for _, _, graph in subgraphs(node):
        for inner in graph.node:
            rename(inner, names)
        for info in graph.output:
            info.name = names.get(info.name, info.name)


def inherit(node: NodeProto, made: Sequence[NodeProto]) -> None:
    """Metadata goes to every node made from a node; its name and doc string to the last one."""
    if node.metadata_props:
        for n in made:
            n.metadata_props.extend(p for p in node.metadata_props if p.key not in {q.key for q in n.metadata_props})
    if made:
        made[-1].name = node.name
        if node.doc_string:
            made[-1].doc_string = node.doc_string
