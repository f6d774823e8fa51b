"""Inference in parts: what onnx's own inference tells of the whole model, and no part larger than it has to be."""

from __future__ import annotations

import itertools

import onnx
import onnx.parser
import pytest
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, helper, shape_inference

import relu_tools
from relu_tools import parts
from relu_tools.graphs import subgraphs
from relu_tools.model import weightless

FLOAT = TensorProto.FLOAT

KINDS = {
    "shapes that are computed": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[n,s,64] x) => (float[] y, int64[] z) <int64[1] one = {1}, int64[2] twice = {-1, 64}, int64[3,?] g> {
            a = Shape(x)
            b = Gather(a, one)
            c = Constant<value = int64[1] {16}>()
            d = Constant<value = int64[1] {4}>()
            e = Concat(b, c, d)
            f = Reshape(x, e)
            g = NonZero(f)
            h = Transpose<perm = [1, 0]>(g)
            i = Shape(f)
            j = Expand(d, e)
            k = Reshape(f, i)
            l = Add(k, f)
            m = Reshape(l, twice)
            z = Add(i, e)
            y = Relu(m)
        }""",
    "graphs that read from around them": """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[n,8] x, bool go) => (float[] y, float[] z) <int64[2] flat = {2, -1}> {
            a = Shape(x)
            b = If(go) <
                then_branch = t () => (float[p,q] c) { d = NonZero(x) e = Cast<to = 1>(d) c = Reshape(e, flat) },
                else_branch = f () => (float[] h) { h = Reshape(x, a) }
            >
            i = If(go) <
                then_branch = t () => (float[] c) { c = Add(b, b) },
                else_branch = f () => (float[] h) { h = Relu(b) }
            >
            s = SplitToSequence(i)
            k = NonZero(x)
            o = SplitToSequence(k)
            y = SequenceAt(s, flat)
            z = Relu(i)
        }""",
    "functions": """
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[n,8] x) => (float[] y) {
            a = own.Shaped(x)
            b = own.Like(x, a)
            c = Reshape(b, a)
            y = own.Like(c, a)
        }
        <domain: "own", opset_import: ["" : 17]>
        Shaped (k) => (m) { l = Relu(k) m = Shape(l) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]>
        Like (k, l) => (m) { n = own.Shaped(k) o = Reshape(k, n) m = Reshape(o, l) }""",
}


def types(graph: GraphProto, path: str = "") -> dict[str, TypeProto]:
    """The types of all values of a graph and of those within it."""
    found = {path + info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)}
    for k, node in enumerate(graph.node):
        for attribute, number, inner in subgraphs(node):
            found |= types(inner, f"{path}{k}.{attribute}.{number}/")
    return found


def by_first_use(found: dict[str, TypeProto]) -> dict[str, str]:
    """The types with sizes that have no name of the model's own numbered as they are met."""
    numbers: dict[str, int] = {}
    texts = {}
    for name in sorted(found):
        words = str(found[name]).replace('"', " ").split()
        texts[name] = " ".join(
            f"size {numbers.setdefault(w, len(numbers))}" if w.startswith("unk__") else w for w in words
        )
    return texts


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_tell_what_the_whole_does(kind, size):
    model = weightless(onnx.parser.parse_model(KINDS[kind]))
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    told = parts._Parts(model, functions).inferred(list(range(0, len(model.graph.node), size)))
    whole = shape_inference.infer_shapes(model, data_prop=True)
    assert by_first_use(types(told.graph)) == by_first_use(types(whole.graph))


# What a Softmax becomes depends on the rank of what it is given.
AXES = {"Softmax": {"axis": 0}}


def branching(count: int, *ops: str) -> ModelProto:
    """A chain of Ifs, with a node of these in each branch."""
    nodes, last = [], "x"
    for k in range(count):
        branches = {}
        for name, op in zip(("then", "else"), ops, strict=True):
            info = helper.make_tensor_value_info(f"{name}{k}", FLOAT, None)
            node = helper.make_node(op, [last], [info.name], **AXES.get(op, {}))
            branches[f"{name}_branch"] = helper.make_graph([node], name, [], [info])
        nodes.append(helper.make_node("If", ["go"], [f"v{k}"], **branches))
        last = f"v{k}"
    return _model(nodes, last)


def calling(count: int, *ops: str) -> ModelProto:
    """A chain of calls, each of a function of its own of these operators."""
    nodes, functions, last = [], [], "x"
    for k in range(count):
        body = [helper.make_node(op, [f"a{n}"], [f"a{n + 1}"], **AXES.get(op, {})) for n, op in enumerate(ops)]
        made = [f"a{len(ops)}"]
        functions.append(helper.make_function("own", f"F{k}", ["a0"], made, body, [helper.make_opsetid("", 14)]))
        nodes.append(helper.make_node(f"F{k}", [last], [f"v{k}"], domain="own"))
        last = f"v{k}"
    return _model(nodes, last, functions)


def _model(nodes, last, functions=()) -> ModelProto:
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", 4])]
    inputs.append(helper.make_tensor_value_info("go", TensorProto.BOOL, []))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(last, FLOAT, None)])
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


@pytest.fixture
def sizes(monkeypatch) -> list[int]:
    """How many nodes inference was given at a time."""
    given: list[int] = []
    infer = shape_inference.infer_shapes

    def counted(model, *more, **options):
        given.append(len(model.graph.node))
        return infer(model, *more, **options)

    monkeypatch.setattr(shape_inference, "infer_shapes", counted)
    return given


@pytest.mark.parametrize("make", [branching, calling])
@pytest.mark.parametrize(
    "change",
    [lambda m: relu_tools.convert(m, 15, verify="off"), lambda m: relu_tools.convert(m, 13, verify="off")],
    ids=["up", "down"],
)
def test_a_rectifier_in_each_of_many_graphs_needs_no_inference(make, change, sizes):
    change(make(40, "Relu", "Sigmoid"))
    assert sizes == []


def test_a_body_that_is_the_same_for_all_types_needs_no_inference(sizes):
    assert len(relu_tools.inline(branching(40, "Relu", "Sigmoid"), ["Relu"]).report.changes) == 40
    assert sizes == []


@pytest.mark.parametrize("make", [branching, calling])
def test_no_inference_is_given_more_graphs_for_a_larger_model(make, sizes, monkeypatch):
    monkeypatch.setattr(parts, "MOST", 8)
    most = set()
    for count in (40, 80, 160):
        sizes.clear()
        assert relu_tools.convert(make(count, "Softmax", "Relu"), 11, ir_version="keep", verify="off").report.changes
        assert sum(sizes) <= count + 8
        most.add(max(sizes))
    assert most == {8}


def test_sizes_of_two_parts_are_not_called_alike(monkeypatch):
    monkeypatch.setattr(parts, "MOST", 1)
    nodes = []
    for k in range(4):
        node = helper.make_node("NonZero", ["x"], [f"t{k}"])
        infos = [helper.make_tensor_value_info(f"t{k}", TensorProto.INT64, None)]
        branch = helper.make_graph([node], "branch", [], infos)
        nodes.append(helper.make_node("If", ["go"], [f"v{k}"], then_branch=branch, else_branch=branch))
    told = types(parts.infer(_model(nodes, "v3")).graph)
    called = [told[f"v{k}"].tensor_type.shape.dim[1].dim_param for k in range(3)]
    assert all(a != b for a, b in itertools.combinations(called, 2))
