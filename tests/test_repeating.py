"""Nodes that are alike: rewritten once, and as if each were rewritten by itself."""

from __future__ import annotations

import onnx.parser
import pytest
from onnx import ModelProto, helper

import relu_tools
from relu_tools import adapters, lowering, repeating
from relu_tools.model import Model

HEAD = '<ir_version: 9, opset_import: ["" : 20, "own" : 1]>'

# Pairs of nodes that differ in all that may decide on what stands for them, and in names alone.
UNLIKE = {
    "constants that become attributes": """
        g (float[2,3] x, float[2,3] z) => (float[] a, float[] b, float[] c, float[] d, float[] e)
        <int64[1] first = {0}, int64[1] last = {1}, int64[1] other = {1}> {
            ["n1"] a = ReduceSum<keepdims = 0>(x, first)
            ["n2"] b = ReduceSum<keepdims = 0>(x, last)
            ["n3"] c = ReduceSum<keepdims = 0>(z, other)
            ["n4"] d = ReduceSum<keepdims = 0>(z)
            ["n5"] e = ReduceSum<keepdims = 0>(z, first)
        }""",
    "ranks": """
        g (float[2,3] x, float[2,3,4] z, float u) => (float[] a, float[] b, float[] c, float[] d)
        {
            ["n1"] a = Softmax<axis = 1>(x)
            ["n2"] b = Softmax<axis = 1>(z)
            ["n3"] c = Softmax<axis = 1>(a)
            ["n4"] d = Softmax<axis = 1>(b)
        }""",
    "types": """
        g (float[2,3] x, double[2,3] z) => (float[] a, double[] b, float[] c, double[] d)
        {
            ["n1"] a = Gelu(x)
            ["n2"] b = Gelu(z)
            ["n3"] c = Gelu(a)
            ["n4"] d = Gelu(b)
        }""",
    "attributes": """
        g (float[2,3] x) => (float[] a, float[] b, float[] c)
        {
            ["n1"] a = Gelu(x)
            ["n2"] b = Gelu<approximate = "tanh">(x)
            ["n3"] c = Gelu<approximate = "none">(x)
        }""",
    "inputs that are one": """
        g (float[2,3] x, float[3] s, float[3] t) => (float[] a, float[] b, float[] c, float[] d)
        {
            ["n1"] e = LayerNormalization(x, s, t)
            ["n5"] a = LayerNormalization(e, s, s)
            ["n2"] b = LayerNormalization(x, s)
            ["n3"] c = LayerNormalization(a, s, s)
            ["n4"] d = LayerNormalization(a, s)
        }""",
    "outputs that are left out or not read": """
        g (float[2,3] x, float[3] s) => (float[] a, float[] b, float[] c, float[] d, float[] m, float[] i)
        {
            ["n1"] a, m, i = LayerNormalization(x, s)
            ["n2"] b = LayerNormalization(x, s)
            ["n3"] c, unread, more = LayerNormalization(x, s)
            ["n4"] d, , j = LayerNormalization(x, s)
        }""",
    "names that are taken": """
        g (float[2,3] x) => (float[] a, float[] b, float[] c, float[] "n3/Mul_2")
        {
            ["n1"] a = Gelu(x)
            ["n2"] b = Gelu(x)
            ["n3"] c = Gelu(x)
            ["n4"] "n3/Mul_2" = Gelu(x)
            ["n5"] "n2/Mul" = Gelu(x)
        }""",
    "nodes without names": """
        g (float[2,3] x) => (float[] a, float[] b, float[] c)
        {
            a = Gelu(x)
            b = Gelu(a)
            c = Gelu(b)
        }""",
    "nodes in functions and branches": """
        g (float[2,3] x, bool go) => (float[] a, float[] b, float[] c)
        {
            ["n1"] a = Gelu(x)
            ["n2"] b = If(go) <
                then_branch = t () => (float[] p) { ["n3"] p = Gelu(a) },
                else_branch = e () => (float[] q) { ["n4"] r = Gelu(a) ["n5"] q = Gelu(r) }
            >
            ["n6"] c = own.Twice(b)
        }
        <domain: "own", opset_import: ["" : 20]>
        Twice (k) => (m) { ["n1"] l = Gelu(k) ["n2"] m = Gelu(l) }""",
}


def parse(text: str) -> ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def notes(model: ModelProto) -> ModelProto:
    """The model with a note on each node, each its own."""
    for number, node in enumerate(model.graph.node):
        node.metadata_props.add(key="place", value=str(number))
        node.doc_string = f"the node at {number}"
    return model


def convert(model: ModelProto, opset: int) -> tuple[bytes, list]:
    conversion = relu_tools.convert(model, opset, ir_version="keep", verify="off")
    return conversion.model.SerializeToString(deterministic=True), conversion.report.changes


@pytest.fixture
def found(monkeypatch):
    """The rewritings that were repeated; and a way to have none."""
    repeated = []
    find = repeating.Rewritings.find

    def listed(*given):
        if (known := find(*given)) is not None:
            repeated.append(known)
        return known

    monkeypatch.setattr(repeating.Rewritings, "find", listed)
    yield repeated


@pytest.mark.parametrize("what", UNLIKE)
@pytest.mark.parametrize("opset", [9, 11, 13])
def test_what_is_repeated_is_what_would_be_made_anew(what, opset, found, monkeypatch):
    model = notes(parse(UNLIKE[what]))
    repeated = convert(model, opset)
    assert found or opset != 11 or what in ("attributes", "outputs that are left out or not read")
    monkeypatch.setattr(repeating.Rewritings, "find", lambda *given: None)
    assert convert(model, opset) == repeated


def asked_in_between(op, input, *, axis):
    """Asks about a value that it made itself, of which only the input can tell."""
    negated = op.Neg(input)
    return op.again(negated, axis=op.rank(negated) - 1)


def read_in_between(op, input, *, axis):
    """Asks what made the input."""
    return op.again(input, axis=int(op.maker(input) is not None))


@pytest.mark.parametrize("rule, axes", [(asked_in_between, [1, 2, 2]), (read_in_between, [0, 0, 1])])
def test_what_depends_on_more_than_the_node_is_not_repeated(rule, axes, monkeypatch):
    adapters.find("", "Softmax", 13, 11)  # which loads its family
    monkeypatch.setitem(adapters.TABLE, ("", "Softmax", 13, 11), adapters.Adapter(rule, "exact", None))
    model = parse("""
        g (float[2,3] x, float[2,3,4] z) => (float[] a, float[] b, float[] d) {
            ["n1"] a = Softmax(x)
            ["n2"] b = Softmax(z)
            ["n3"] c = Tanh(z)
            ["n4"] d = Softmax(c)
        }""")
    after = relu_tools.convert(model, 11, verify="off").model
    assert [node.attribute[0].i for node in after.graph.node if node.op_type == "Softmax"] == axes


def layers(count: int) -> ModelProto:
    """Layers of nodes of which each is like the one of the layer before."""
    nodes, last = [], "x"
    for k in range(count):
        for op, inputs, attributes in (
            ("LayerNormalization", ["s", "s"], {}),
            ("Softmax", [], {"axis": 1}),
            ("ReduceMean", ["axes"], {"keepdims": 1}),
            ("Gelu", [], {}),
        ):
            made = f"{op}{k}"
            nodes.append(helper.make_node(op, [last, *inputs], [made], name=f"node{made}", **attributes))
            last = made
    model = parse("g (float[2,3,4] x, float[4] s) => (float[2,3,4] y) <int64[1] axes = {1}> { y = Identity(x) }")
    del model.graph.node[:]
    model.graph.node.extend([*nodes, helper.make_node("Identity", [last], ["y"])])
    return model


def test_nodes_that_are_alike_are_rewritten_once(monkeypatch):
    adapted = []
    adapt = lowering.Lowering._adapt
    monkeypatch.setattr(lowering.Lowering, "_adapt", lambda *given: adapted.append(given[1]) or adapt(*given))
    taken = []
    for count in (4, 40):
        adapted.clear()
        assert len(relu_tools.convert(layers(count), 11, verify="off").report.changes) == 4 * count
        taken.append(len(adapted))
    assert taken[0] == taken[1] > 0


def test_names_are_found_without_a_try_for_each_that_is_taken():
    class Counted(set):
        asked = 0

        def __contains__(self, name):
            self.asked += 1
            return super().__contains__(name)

    engine = lowering.Lowering(Model(ModelProto(), {"": 20}, lambda tensor: tensor), ModelProto(), {}, ir_version=9)
    engine.names = Counted(["t_3"])
    assert [engine.fresh("t") for _ in range(1000)] == ["t", "t_2", *(f"t_{k}" for k in range(4, 1002))]
    assert engine.names.asked <= 2010
