"""Nodes that are alike and differ in what no rewriting reads: each keeps what is its own."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto, helper

import relu_tools
from relu_tools import repeating


def casts() -> ModelProto:
    """CastLikes that keep their operator on the way down, and lose an attribute at each of two steps."""
    nodes = [
        helper.make_node("CastLike", ["x", "t"], [f"y{k}"], f"n{k}", saturate=1, round_mode="up") for k in range(3)
    ]
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("t", TensorProto.DOUBLE, [2]),
    ]
    made = [helper.make_tensor_value_info(node.output[0], TensorProto.DOUBLE, [2]) for node in nodes]
    graph = helper.make_graph(nodes, "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def with_devices(model: ModelProto, devices: list[str]) -> None:
    for node, device in zip(model.graph.node, devices, strict=True):
        if device:
            node.device_configurations.add(configuration_id=device)


def with_unknown_fields(model: ModelProto, marks: list[str]) -> None:
    for node, mark in zip(model.graph.node, marks, strict=True):
        if mark:
            # Field 1000 of wire type 2, which no version of onnx knows.
            node.MergeFromString(b"\xc2\x3e" + bytes([len(mark)]) + mark.encode())


def with_repeated_metadata(model: ModelProto, values: list[str]) -> None:
    for node, value in zip(model.graph.node, values, strict=True):
        if value:
            node.metadata_props.add(key="k", value=value)
            node.metadata_props.add(key="k", value="again")


@pytest.mark.parametrize("give", [with_devices, with_unknown_fields, with_repeated_metadata])
@pytest.mark.parametrize("values", [["a", "b", "c"], ["a", "", "c"], ["", "b", "c"]], ids="-".join)
def test_each_node_keeps_what_is_its_own(give, values, monkeypatch):
    model = casts()
    give(model, values)
    results = []
    for find in (repeating.Rewritings.find, lambda *given: None):
        monkeypatch.setattr(repeating.Rewritings, "find", find)
        after = relu_tools.convert(model, 15, ir_version="keep", verify="off").model
        results.append([node.SerializeToString(deterministic=True) for node in after.graph.node])
    assert results[0] == results[1]
