"""Walks over graphs and the graphs in them: which there are, what they read and make."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

_GRAPH, _GRAPHS = AttributeProto.GRAPH, AttributeProto.GRAPHS


def subgraphs(node: NodeProto) -> Iterable[tuple[int, int, GraphProto]]:
    """The graphs that a node holds, each with the index of its attribute and its index in it."""
    return _subgraphs(node) if node.attribute else ()


def _subgraphs(node: NodeProto) -> Iterator[tuple[int, int, GraphProto]]:
    for a, attribute in enumerate(node.attribute):
        if attribute.type == _GRAPH:
            yield a, 0, attribute.g
        elif attribute.type == _GRAPHS:
            for g, graph in enumerate(attribute.graphs):
                yield a, g, graph


def refers(node: NodeProto) -> bool:
    """Whether a node has an attribute that refers to one of the function around it."""
    return bool(node.attribute) and any(attribute.ref_attr_name for attribute in node.attribute)


def graphs_in(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    """A graph and all graphs nested in it."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.node:
            if attributes := node.attribute:
                for attribute in attributes:
                    kind = attribute.type
                    if kind == _GRAPH:
                        waiting.append(attribute.g)
                    elif kind == _GRAPHS:
                        waiting.extend(attribute.graphs)


def names_in(model: ModelProto) -> Iterator[str]:
    """The names of all values and nodes of a model's graphs and functions, those that only a type is told of too."""
    for top in (model.graph, *model.functions):
        for graph in graphs_in(top):
            yield from (info.name for info in graph.value_info)
            for node in graph.node:
                yield node.name
                yield from node.output
                yield from node.input
            if isinstance(graph, FunctionProto):
                yield from graph.input
            else:
                yield from (i.name for i in graph.input)
                yield from (t.name for t in graph.initializer)
                yield from (t.values.name for t in graph.sparse_initializer)


def uses(model: ModelProto) -> Counter[str]:
    """How often each name is read, by nodes or as an output of a graph."""
    count: Counter[str] = Counter()
    for top in (model.graph, *model.functions):
        for graph in graphs_in(top):
            count.update(itertools.chain.from_iterable([node.input for node in graph.node]))
            outputs = graph.output
            count.update(outputs if isinstance(graph, FunctionProto) else (o.name for o in outputs))
    return count


def free_names(nodes: Iterable[NodeProto]) -> list[str]:
    """The values that nodes read and do not make themselves, in order, those read in their subgraphs included."""
    made: set[str] = set()
    found: dict[str, None] = {}

    def read(nodes: Iterable[NodeProto], made: set[str]) -> None:
        for node in nodes:
            found.update((name, None) for name in node.input if name and name not in made)
            for _, _, graph in subgraphs(node):
                inner = made | {i.name for i in graph.input} | {t.name for t in graph.initializer}
                inner |= {t.values.name for t in graph.sparse_initializer}
                read(graph.node, inner)
                found.update((o.name, None) for o in graph.output if o.name not in inner)
            made.update(node.output)

    read(nodes, made)
    return list(found)
