"""Which functions an inlining expands: properties of the choices, over random chains and over every function schema."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from function_checks import VERSIONS, build, calls, opsets
from hypothesis import given, settings
from hypothesis import strategies as st

import relu_tools
from relu_tools import ConversionError, schemas
from relu_tools.graphs import graphs_in

EACH = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: f"{v.op}-{v.since}")
OPSET = 22
# Operators with a function body, the opset that brought it to them, and functions of two domains.
STANDARD = {"Relu": 1, "Celu": 12, "Selu": 1, "HardSwish": 14, "Mish": 18, "ThresholdedRelu": 10, "Gelu": 20}
LOCAL = ["own::Twice", "own::Square", "other::Half"]
PLAIN = ["Abs", "Neg"]
FUNCTIONS = """
<domain: "own", opset_import: ["" : 22]> Twice (a) => (b) { b = Add (a, a) }
<domain: "own", opset_import: ["" : 22]> Square (a) => (b) { b = Mul (a, a) }
<domain: "other", opset_import: ["" : 22]> Half (a) => (b) { two = Constant <value = float {2}> () b = Div (a, two) }
"""
NAMES = st.lists(st.sampled_from([*STANDARD, *LOCAL, *PLAIN]), min_size=1, max_size=6)


def chain(names: list[str]) -> onnx.ModelProto:
    nodes = " ".join(
        f"[n{k}] {f'v{k}' if k + 1 < len(names) else 'y'} = {name.replace('::', '.')} ({f'v{k - 1}' if k else 'x'})"
        for k, name in enumerate(names)
    )
    head = f'<ir_version: 10, opset_import: ["" : {OPSET}, "own" : 1, "other" : 1]>'
    return onnx.parser.parse_model(f"{head} g (float[5] x) => (float[5] y) {{ {nodes} }} {FUNCTIONS}")


def run(model: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.array([-2, -0.25, 0, 0.5, 1.5], np.float32)})[0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    NAMES,
    st.none() | st.sets(st.sampled_from([*STANDARD, *LOCAL])),
    st.none() | st.sets(st.sampled_from(["", "ai.onnx", "own", "other"]), min_size=1),
    st.sets(st.sampled_from([*STANDARD, *LOCAL]), max_size=3),
    st.none() | st.integers(7, OPSET),
    st.booleans(),
)
def test_what_is_chosen_is_expanded_and_nothing_else(names, ops, domains, exclude, missing_at, primitive):
    def chosen(name: str) -> bool:
        domain, _, _ = name.rpartition("::")
        return (
            name not in PLAIN
            and name not in exclude
            and (ops is None or name in ops)
            and (domains is None or domain in {"" if d == "ai.onnx" else d for d in domains})
            # Functions of the model came with IR version 8, and that with opset 15.
            and (missing_at is None or missing_at < STANDARD.get(name, 15))
        )

    model = chain(names)
    result = relu_tools.inline(
        model, ops, domains=domains, exclude=exclude, missing_at=missing_at, primitive=primitive
    ).model
    onnx.checker.check_model(result, full_check=True)
    left = {node.name: node for node in result.graph.node}
    for node in model.graph.node:
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        if chosen(name):
            assert node.name not in left or left[node.name].op_type != node.op_type
        else:
            assert left[node.name] == node
    called = {(node.domain, node.op_type) for node in result.graph.node}
    inlined = {name for name in names if name in LOCAL and chosen(name)}
    for function in result.functions:
        assert f"{function.domain}::{function.name}" not in inlined or (function.domain, function.name) in called
    assert len(result.functions) == len(LOCAL) - len(inlined)
    np.testing.assert_allclose(run(result), run(model), rtol=1e-4, atol=1e-6)


# --- every function schema -------------------------------------------------------------------
def first_call(version: schemas.Version) -> onnx.ModelProto:
    # The plainest call whose sizes are known.
    return build(next(c for c in calls(version) if c.how == "fixed"), opsets(version)[-1]).model


def left_with_body(model: onnx.ModelProto) -> set[str]:
    imports = {schemas.normal(o.domain): o.version for o in model.opset_import}
    left = set()
    for graph in graphs_in(model.graph):
        for node in graph.node:
            domain = schemas.normal(node.domain)
            version = schemas.at(domain, node.op_type, imports[domain])
            if version.has_body:
                left.add(node.op_type)
    return left


@EACH
@pytest.mark.parametrize("oldest", [True, False], ids=["first opset", "last opset"])
def test_nothing_with_a_body_is_left_of_the_primitive(version, oldest):
    model = first_call(version)
    model.opset_import[0].version = opsets(version)[0 if oldest else -1]
    result = relu_tools.inline(model, primitive=True).model
    onnx.checker.check_model(result, full_check=True)
    assert left_with_body(result) == set()
    # Named alone, the operator brings those that its body calls along, and no other.
    assert left_with_body(relu_tools.inline(model, [version.op], primitive=True).model) == set()


@EACH
def test_what_an_opset_lacks_is_expanded_whatever_is_in_it(version):
    model = first_call(version)
    birth = schemas.history(version.domain, version.op)[0].since
    for opset in {*range(7, opsets(version)[-1] + 1, 3), birth - 1, birth, opsets(version)[-1]} - {0}:
        try:
            result = relu_tools.inline(model, missing_at=opset).model
        except ConversionError:
            raise AssertionError(f"refused at {opset}") from None
        left = {node.op_type for graph in graphs_in(result.graph) for node in graph.node}
        lacking = {op for op in left_with_body(result) if schemas.at(version.domain, op, opset) is None}
        assert lacking == set()
        assert (version.op in left) == (opset >= birth)
