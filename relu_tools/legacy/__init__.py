"""Reference operators in numpy: the meanings of opset 1 to 6, and later ones that onnx.reference gets wrong.

Each function is written from the specification of the versions that it names and raises `ValueError` for what
those reject. `evaluator` runs a model on them and, for versions whose meaning it has, on onnx.reference; any
other version raises `NotImplementedError`, since onnx.reference would run it with today's meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator

# The families register their meanings.
from . import (  # noqa: F401
    activation,
    arithmetic,
    collections,
    control,
    linear,
    normalization,
    parts,
    placement,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    shapes,
)
from .registry import MEANINGS, implementation, reference_knows

__all__ = ["MEANINGS", "evaluator", "implementation", "reference_knows"]


class _Evaluator(ReferenceEvaluator):
    """onnx.reference with our operators before its own; subgraphs and functions are evaluated by this class too."""

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if (node.domain, node.op_type) not in self.functions_ and node.domain in (
            "",
            "ai.onnx.ml",
        ):
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
