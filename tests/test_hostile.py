"""Models made to do harm: each is refused in a sentence, or converted, within bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from test_cli import run, sentence
from test_datafiles import files
from test_modelfile import HOSTILE as NO_MODELS

from relu_tools import check, convert, inline, wire
from relu_tools.report import ModelFileError

FLOAT, INT8, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64
HUGE = 1 << 40


def value(name: str, kind: int = FLOAT, shape=("N",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs, outputs, **attributes) -> NodeProto:
    return helper.make_node(op, inputs, outputs, name=f"node of {outputs[0]}" if outputs else "node", **attributes)


def model(nodes, inputs=None, outputs=None, initializers=(), functions=(), imports=None, ir_version=8):
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x")] if inputs is None else inputs,
        [value("y")] if outputs is None else outputs,
        list(initializers),
    )
    imports = imports or [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=ir_version)


def tensor(name: str, kind: int, dims, **data) -> TensorProto:
    return TensorProto(name=name, data_type=kind, dims=dims, **data)


def softmax(*attributes: AttributeProto) -> onnx.ModelProto:
    made = node("Softmax", ["x"], ["y"])
    made.attribute.extend(attributes)
    return model([made])


def branching(*nodes: NodeProto, output: str = "t") -> onnx.ModelProto:
    branch = helper.make_graph(nodes, "branch", [], [value(output)])
    return model(
        [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        [value("x"), value("c", TensorProto.BOOL, [])],
    )


def function(name: str, *nodes: NodeProto) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports)


def calling(*functions: onnx.FunctionProto, ir_version: int = 8) -> onnx.ModelProto:
    call = node(functions[0].name, ["x"], ["y"], domain="own")
    return model([call], [value("x", INT8)], [value("y", INT8)], functions=functions, ir_version=ir_version)


def own(op: str, inputs, outputs) -> NodeProto:
    return node(op, inputs, outputs, domain="own")


def kind_99() -> AttributeProto:
    return AttributeProto.FromString(AttributeProto(name="axis", i=1).SerializeToString() + b"\xa0\x01\x63")


def stored(kind: int, values, indices, kind_of_indices: int = INT64, dims=(4, 2)) -> onnx.ModelProto:
    """A sparse initializer of these element types and dimensions."""

    def zeros(name: str, kind: int, dims) -> TensorProto:
        size = int(np.prod(dims)) * (8 if kind == INT64 else 4)
        return tensor(name, kind, dims, raw_data=bytes(size))

    made = model([node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.add(
        values=zeros("w", kind, values), indices=zeros("i", kind_of_indices, indices), dims=dims
    )
    return made


RELU = node("Relu", ["x"], ["y"])
ADD = node("Add", ["x", "w"], ["y"])
VALUELESS = AttributeProto(name="value", type=AttributeProto.TENSOR)
AXIS = {"name": "axis", "type": AttributeProto.INT}
MALFORMED = {
    "a cycle": (
        model([node("Relu", ["b"], ["y"]), node("Relu", ["y"], ["b"])]),
        "reads what is made of its own results",
    ),
    "a cycle of one": (model([node("Relu", ["y"], ["y"])]), "node 'node of y' .Relu. reads what is made of its own"),
    "a cycle through a branch": (
        model(
            [
                node(
                    "If",
                    ["c"],
                    ["y"],
                    then_branch=helper.make_graph([node("Relu", ["z"], ["t"])], "b", [], [value("t")]),
                    else_branch=helper.make_graph([node("Relu", ["x"], ["e"])], "b", [], [value("e")]),
                ),
                node("Relu", ["y"], ["z"]),
            ],
            [value("x"), value("c", TensorProto.BOOL, [])],
        ),
        "node 'node of y' .If. reads what",
    ),
    "a cycle in a function": (
        calling(function("F", node("Relu", ["b"], ["t"]), node("Relu", ["t"], ["b"]))),
        "its own results, in function own::F",
    ),
    "nothing to read": (model([node("Relu", ["nowhere"], ["y"])]), "nothing makes the value 'nowhere', .*node of y"),
    "nothing to read in a branch": (branching(node("Relu", ["no"], ["t"])), "nothing makes the value 'no'"),
    "nothing to read in a function": (calling(function("F", node("Relu", ["x"], ["b"]))), "'x', .* in function own::F"),
    "nothing to give": (model([node("Relu", ["x"], ["z"])]), "nothing makes the value 'y', .*an output of the graph"),
    "nothing to give in a branch": (branching(node("Relu", ["x"], ["t"]), output="u"), "nothing makes the value 'u'"),
    "a value twice": (model([RELU, RELU]), "value 'y' is defined twice"),
    "an input made by a node": (
        model([node("Relu", ["x"], ["x"])], outputs=[value("x")]),
        "value 'x' is defined twice",
    ),
    "an input twice": (model([RELU], [value("x"), value("x", INT8)]), "value 'x' is defined twice"),
    "an initializer twice": (
        model([ADD], initializers=[tensor("w", FLOAT, [1], float_data=[k]) for k in (1, 2)]),
        "value 'w' is defined twice",
    ),
    "no operator": (model([NodeProto(input=["x"], output=["y"])]), "node 'y' .no operator. has no operator"),
    "an attribute of another type": (
        softmax(helper.make_attribute("axis", "one")),
        "attribute 'axis' of node 'node of y' .Softmax. is of type STRING, not INT",
    ),
    "an attribute that is a graph": (softmax(helper.make_attribute("axis", GraphProto(name="g"))), "GRAPH, not INT"),
    "an attribute of two types": (softmax(AttributeProto(**AXIS, f=1.5)), "a value of another type than it says"),
    "an attribute of no type": (softmax(AttributeProto(name="axis", i=1)), "has no type that onnx"),
    "an attribute of type 99": (softmax(kind_99()), "has no type that onnx"),
    "an attribute twice": (softmax(*(AttributeProto(**AXIS, i=k) for k in (0, 1))), "has an attribute twice"),
    "an element type of 99": (
        model([ADD], initializers=[tensor("w", 99, [1], raw_data=b"1234")]),
        "an element type that",
    ),
    "no data": (
        model([ADD], initializers=[tensor("w", FLOAT, [2])]),
        "tensor 'w' has 0 values where its shape takes 2",
    ),
    "little data": (
        model([ADD], initializers=[tensor("w", FLOAT, [2], raw_data=b"1234567")]),
        "7 bytes where .* takes 8",
    ),
    "much data": (model([ADD], initializers=[tensor("w", FLOAT, [2], raw_data=bytes(4000))]), "4000 bytes where"),
    "data in another field": (model([ADD], initializers=[tensor("w", FLOAT, [1], int64_data=[1])]), "0 values where"),
    "a size below 0": (model([ADD], initializers=[tensor("w", FLOAT, [-1, -4], float_data=[1] * 4)]), "a size below 0"),
    "huge dims": (
        model([ADD], initializers=[tensor("w", FLOAT, [HUGE, HUGE])]),
        f"0 values where its shape takes {HUGE**2}",
    ),
    "huge dims in a Constant": (
        model([node("Constant", [], ["w"], value=tensor("", FLOAT, [HUGE, HUGE])), ADD]),
        "0 values where",
    ),
    "huge dims in a branch": (
        branching(node("Constant", [], ["w"], value=tensor("", FLOAT, [HUGE])), node("Add", ["x", "w"], ["t"])),
        "0 values where",
    ),
    "an attribute of no value": (
        model([NodeProto(op_type="Constant", output=["w"], attribute=[VALUELESS]), ADD]),
        "holds no value",
    ),
    "sparse values without places": (stored(FLOAT, [2], [3]), "has not as many indices as values"),
    "sparse values in places of another rank": (stored(FLOAT, [2], [2, 3]), "has not as many indices as values"),
    "sparse values in places that are floats": (stored(FLOAT, [2], [2], FLOAT), "indices that are no int64"),
    "sparse values of a size below 0": (stored(FLOAT, [2], [2], dims=[-4]), "a size below 0"),
    "sparse values of type 99": (stored(99, [2], [2]), "an element type that"),
    "a name of two lines": (model([node("Relu", ["a\nrelu-tools: b"], ["y"])]), r"the value 'a\\nrelu-tools: b'"),
    "an opset twice": (
        model([RELU], imports=[helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx", 14)]),
        "imports ai.onnx twice",
    ),
}


@pytest.mark.parametrize("command", [("convert", "--opset", 9), ("inline",), ("check",)])
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_models_are_refused_in_a_sentence(tmp_path, case, command):
    proto, why = MALFORMED[case]
    path = tmp_path / "a.onnx"
    path.write_bytes(proto.SerializeToString())
    result = run(*command, path)
    assert (result.exit_code, result.stdout) == (2, "")
    import re

    assert re.search(why, sentence(result.stderr)) and "a.onnx is malformed" in result.stderr or "twice" in why
    assert files(tmp_path) == {"a.onnx"}


@pytest.mark.parametrize("case", NO_MODELS)
def test_no_models_are_refused_in_a_sentence(tmp_path, case):
    data, why = NO_MODELS[case]
    (tmp_path / "a.onnx").write_bytes(data)
    result = run("convert", tmp_path / "a.onnx", "--opset", 9)
    assert (result.exit_code, result.stdout) == (2, "") and why in sentence(result.stderr)
    assert files(tmp_path) == {"a.onnx"}


def constant(name: str, numbers, dtype=np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, dtype), name)


def reducing(op: str, inputs, *initializers: TensorProto, **attributes) -> onnx.ModelProto:
    """A ReduceSum whose axes are whatever an operator makes; below 13 they must be known."""
    nodes = [node(op, inputs, ["axes"], **attributes), node("ReduceSum", ["x", "axes"], ["y"])]
    return model(nodes, initializers=initializers)


LAUGHS = [
    *(function(f"F{k}", own(f"F{k + 1}", ["a"], ["t"]), own(f"F{k + 1}", ["t"], ["b"])) for k in range(40)),
    function("F40", node("Relu", ["a"], ["b"])),
]
SPARSE = helper.make_sparse_tensor(constant("w", [1], np.float32), constant("", [[0, 0]]), [HUGE, HUGE])


def sparse(ir_version: int) -> onnx.ModelProto:
    made = model([ADD], ir_version=ir_version)
    made.graph.sparse_initializer.append(SPARSE)
    return made


BOMBS = {
    "constants of a huge shape": reducing("ConstantOfShape", ["s"], constant("s", [HUGE]), value=constant("", [1])),
    "a huge range": reducing("Range", ["a", "b", "c"], constant("a", 0), constant("b", HUGE), constant("c", 1)),
    "a huge expansion": reducing("Expand", ["a", "b"], constant("a", [1]), constant("b", [HUGE])),
    "a huge tile": reducing("Tile", ["a", "b"], constant("a", [1]), constant("b", [HUGE])),
    "a huge padding": reducing("Pad", ["a", "b"], constant("a", [1]), constant("b", [0, HUGE])),
    "a huge one-hot": reducing(
        "OneHot", ["a", "b", "c"], constant("a", [1]), constant("b", HUGE), constant("c", [0, 1])
    ),
    "huge inputs": model([RELU], [value("x", INT8, [HUGE, HUGE])], [value("y", INT8, [HUGE, HUGE])]),
    "a huge rank": model([RELU], [value("x", INT8, [1] * 50_000)], [value("y", INT8, None)]),
    "a huge sparse tensor": sparse(11),
    "a huge sparse tensor to be made dense": sparse(5),
    "functions that call two others each": calling(*LAUGHS),
    "functions to be inlined that call two others each": calling(*LAUGHS, ir_version=7),
    "a function that calls itself": calling(function("F", own("F", ["a"], ["b"]))),
    "functions that call each other": calling(
        function("F", own("G", ["a"], ["b"])), function("G", own("F", ["a"], ["b"]))
    ),
    "a long chain of values of no known type": model(
        [
            node("Odd", ["x"], ["t0"], domain="own"),
            *(node("Relu", [f"t{k}"], [f"t{k + 1}"]) for k in range(5000)),
            node("Relu", ["t5000"], ["y"]),
        ]
    ),
    "a long chain of shapes": model(
        [
            node("Shape", ["x"], ["s0"]),
            *(node("Add", [f"s{k}", f"s{k}"], [f"s{k + 1}"]) for k in range(1000)),
            node("Reshape", ["x", "s1000"], ["y"]),
        ]
    ),
    "an axis out of all bounds": softmax(AttributeProto(**AXIS, i=2**63 - 1)),
    "an axis below all bounds": softmax(AttributeProto(**AXIS, i=-(2**63))),
    "an opset of 2^62": model([RELU], imports=[helper.make_opsetid("", 2**62)]),
    "an opset below 0": model([RELU], imports=[helper.make_opsetid("", -3)]),
    "an IR version of 2^62": model([RELU], ir_version=2**62),
    "an IR version below 0": model([RELU], ir_version=-5),
    "a Loop with an empty body": model([node("Loop", ["", "", "x"], ["y"], body=GraphProto(name="b"))]),
    "a Scan of minus five": model([node("Scan", ["x"], ["y"], body=GraphProto(name="b"), num_scan_inputs=-5)]),
    "an If without branches": model([node("If", ["x"], ["y"])]),
    "names that talk to the terminal": model(
        [node("Relu", ["\x1b[31m"], ["y"])], [value("\x1b[31m", TensorProto.BFLOAT16)]
    ),
    "a name of a megabyte": model([node("Relu", ["x" * 2**20], ["y"])], [value("x" * 2**20, TensorProto.BFLOAT16)]),
}


@pytest.mark.parametrize("target", [9, 21])
@pytest.mark.parametrize("case", BOMBS)
def test_bombs_take_little_time_and_memory(tmp_path, case, target):
    path = tmp_path / "a.onnx"
    path.write_bytes(BOMBS[case].SerializeToString())
    run("explain", "Relu")  # what is imported is not the model's
    tracemalloc.start()
    start = time.process_time()
    result = run("convert", path, "--opset", target, "--ir-version", 4 if target == 9 else "keep", "--verify", "off")
    took, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.exit_code in (0, 1, 2) and "\x1b" not in result.output
    assert result.exit_code == 0 or result.stderr.startswith("relu-tools: ")
    assert took < 10 and peak < 100e6


@pytest.mark.parametrize(
    ("field", "content"),
    [
        (b"\x3a", b"\x80" * 9 + b"\x01"),
        (b"\x3a", b"\xff" * 9 + b"\x01"),
        (b"\x0a", b"\xff" * 4 + b"\x0f"),
        (b"\x4a", b""),
    ],
)
def test_lengths_that_lie_within_a_tensor(tmp_path, field, content):
    """In every place on the way from the model to the data of a weight."""
    weight = tensor("w", FLOAT, [500], raw_data=bytes(2000)).SerializeToString()
    for depth in range(3):
        data = weight + field + content if depth == 0 else weight
        data = b"\x2a" + wire.encode(len(data)) + data + (field + content if depth == 1 else b"")
        data = b"\x08\x08\x3a" + wire.encode(len(data)) + data + (field + content if depth == 2 else b"")
        (tmp_path / "a.onnx").write_bytes(data)
        result = run("check", tmp_path / "a.onnx")
        assert result.exit_code == 2 and "damaged" in sentence(result.stderr)


@pytest.mark.parametrize("index", [-1, 8, HUGE])
@pytest.mark.parametrize("ranked", [True, False])
def test_values_that_lie_outside_of_a_sparse_tensor(index, ranked, tmp_path):
    """It is made dense for an IR version that has none."""
    made = model([node("Add", ["x", "w"], ["y"])], [value("x", FLOAT, [4, 2])])
    places = np.array([[3, 0], [index, 1]] if ranked else [0, index])
    values, indices = numpy_helper.from_array(np.ones(2, np.float32), "w"), numpy_helper.from_array(places)
    made.graph.sparse_initializer.add(values=values, indices=indices, dims=[4, 2])
    onnx.save(made, tmp_path / "a.onnx")
    result = run("convert", tmp_path / "a.onnx", "--opset", 9, "-o", tmp_path / "b.onnx")
    assert result.exit_code == 2 and "'w' has an index outside of its shape" in sentence(result.stderr)
    assert not (tmp_path / "b.onnx").exists()


def deep(levels: int) -> onnx.ModelProto:
    """Ifs within one another, made one message at a time, which protobuf lets be deeper than what it reads.

    The innermost graph has the Relu of an integer, which 13 did not have.
    """
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 14]> g (bool c, int32[N] x) => (int32[N] y) { z = Identity (x) }'
    )
    graph, made = model.graph, "y"
    for level in range(levels):
        node = graph.node.add(op_type="If", input=["c"], output=[made])
        branches = []
        for name in ("else_branch", "then_branch"):
            graph = node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g
            graph.name = f"{name}{level}"
            graph.output.add(name=graph.name).type.tensor_type.elem_type = INT32
            branches.append(graph)
        branches[0].node.add(op_type="Identity", input=["x"], output=[f"else_branch{level}"])
        made = f"then_branch{level}"
    graph.node.add(op_type="Relu", input=["x"], output=[made])
    return model


@pytest.mark.parametrize(
    "action", [lambda m: convert(m, 13, verify="off"), inline, check], ids=["convert", "inline", "check"]
)
def test_graphs_deeper_than_any_model_has_them(action):
    with pytest.raises(ModelFileError, match="more than 64 graphs lie within one another"):
        action(deep(65))


@pytest.mark.parametrize("levels", [32, 33, 50, 64])
def test_graphs_deeper_than_protobuf_reads_by_itself(levels, tmp_path):
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    source.write_bytes(deep(levels).SerializeToString())
    result = run("convert", source, "--opset", 13, "-o", target)
    assert result.exit_code == 0 and "1 rewritten" in result.stdout and "bit-exact" in result.stdout
    assert (f"{levels} graphs lie within one another" in result.stdout) == (levels > 32)
    before, after = (wire.parse(onnx.ModelProto, path.read_bytes()) for path in (source, target))
    assert after.opset_import[0].version == 13
    innermost = []
    for model in (before, after):
        graph = model.graph
        for _ in range(levels):
            graph = graph.node[-1].attribute[-1].g
        innermost.append([node.op_type for node in graph.node])
        x = np.array([-3, 0, 7, np.iinfo(np.int32).min], np.int32)
        found = ReferenceEvaluator(model).run(None, {"c": np.array(True), "x": x})[0]
        np.testing.assert_array_equal(found, np.maximum(x, 0))
        del graph.node[:]
    assert innermost[0] == ["Relu"] and innermost[1][-1] == "Max"
    before.opset_import[0].version, before.ir_version = 13, after.ir_version
    assert before == after
    found = check(source)
    assert found.rows["Relu"][13].changes and bool(found.findings) == (levels > 32)
    fit = check(source, runtime="onnxruntime==1.32").fit
    assert fit.loads == (levels <= 32)


def test_what_would_overflow_the_stack_is_never_read(tmp_path):
    """Also where deep models were read before: then protobuf has no limit that helps."""
    wire.lift_depth()
    size, type_ = 0, []
    for tag in (b"\x0a", b"\x22") * 40_000:  # the type of what a sequence holds, and a sequence of that
        type_.append(tag + wire.encode(size))
        size += len(type_[-1])
    data = b"".join(reversed(type_))
    for tag in (b"\x12", b"\x5a", b"\x3a"):  # an input's type, an input of a graph, a model's graph
        data = tag + wire.encode(len(data)) + data
    (tmp_path / "a.onnx").write_bytes(b"\x08\x08" + data)
    result = run("check", tmp_path / "a.onnx")
    assert result.exit_code == 2 and "nested more than" in sentence(result.stderr)
