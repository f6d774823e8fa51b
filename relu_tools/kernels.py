"""What onnxruntime does where it has no kernel: it computes the schema's function body, or casts to float and back."""

from __future__ import annotations

import functools
from collections.abc import MutableSequence

import onnx

from relu_tools import adapters, schemas
from relu_tools.trust import all_nodes


def without_kernel(model: onnx.ModelProto) -> str:
    """The operator of a model of one node, where onnxruntime would compute it by a body that is not equal to it.

    "" where there is a kernel, where the body is equal, and where the installed onnxruntime does not list its kernels.
    """
    if len(model.graph.node) != 1 or model.functions:
        return ""
    node = model.graph.node[0]
    domain = schemas.normal(node.domain)
    opset = next((o.version for o in model.opset_import if schemas.normal(o.domain) == domain), 0)
    version = schemas.at(domain, node.op_type, opset)
    if version is None or adapters.body_of(domain, node.op_type, version.since) is None:
        return ""
    values = {info.name: schemas.type_text(info.type) for info in (*model.graph.input, *model.graph.output)}
    values |= {tensor.name: schemas.tensor_text(tensor.data_type) for tensor in model.graph.initializer}
    types: dict[str, str | None] = {}
    for names, formal in ((node.input, version.input), (node.output, version.output)):
        for k, name in enumerate(names):
            if name in values and (parameter := formal(k)) is not None:
                types[parameter.var] = values[name]
    known = _kernels()
    fits = any(
        first <= opset <= last and all(types.get(var) in (None, *admitted) for var, admitted in constraints.items())
        for first, last, constraints in known.get((domain, node.op_type), ())
    )
    return "" if fits or not known else node.op_type


@functools.cache
def _kernels() -> dict[tuple[str, str], list[tuple[int, int, dict[str, list[str]]]]]:
    """First and last opset and admitted types of each kernel on the CPU."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[tuple[str, str], list[tuple[int, int, dict[str, list[str]]]]] = {}
    for kernel in getattr(state, "get_all_opkernel_def", list)():
        if kernel.provider == "CPUExecutionProvider":
            key = schemas.normal(kernel.domain), kernel.op_name
            found.setdefault(key, []).append((*kernel.version_range, kernel.type_constraints))
    return found


_NARROW = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with an Identity behind each Cast to 16 bits.

    Where onnxruntime has no kernel of 16 bits it casts back to float, and takes away that pair of casts as one that
    does nothing; the rounding goes with it.
    """
    if not any(_narrows(node) for node in all_nodes(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {name for node in all_nodes(copy) for name in (*node.input, *node.output)}
    for graph in (copy.graph, *copy.functions):
        _part_casts(graph.node, names)
    return copy


def _part_casts(nodes: MutableSequence[onnx.NodeProto], names: set[str]) -> None:
    made: list[onnx.NodeProto] = []
    for node in nodes:
        made.append(node)
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                _part_casts(graph.node, names)
        if _narrows(node):
            name = node.output[0]
            while (rounded := f"{name}/rounded") in names:
                name = rounded
            names.add(rounded)
            made.append(onnx.NodeProto(op_type="Identity", input=[rounded], output=[node.output[0]]))
            node.output[0] = rounded
    if len(made) > len(nodes):
        del nodes[:]
        nodes.extend(made)


def _narrows(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and not node.domain and any(a.name == "to" and a.i in _NARROW for a in node.attribute)
