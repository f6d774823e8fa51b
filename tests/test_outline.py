"""Nodes that stay bytes: what is found in them is what protobuf finds, and what is converted is the same."""

from __future__ import annotations

import functools
import random
import time

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given, settings
from onnx import ModelProto, NodeProto, TensorProto, helper
from test_cli import MODELS
from test_onnx_cases import cases

from relu_tools import ConversionError, convert, modelfile, wire
from relu_tools.census import census, census_of_outline
from relu_tools.modelfile import open_model
from relu_tools.opening import imported
from relu_tools.outline import Outline, outline
from relu_tools.report import ModelFileError

OVERLONG = "z" * 20000
LONG = ["z" * size for size in (7, 8, 9, 16, 127, 128, 1024)]
# Some are the beginning of others, or differ at their end alone.
NAMES = st.sampled_from(["x", "w", "a", "a\0", "b", "c", "d", "", "é", "名前", *LONG, OVERLONG, LONG[3][:-1] + "y"])


def model_of(nodes: list[NodeProto], outputs=("a",), **more) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in ("x", *outputs)]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8, **more)


@st.composite
def models(draw) -> ModelProto:
    """Any nodes: in any order, with values made twice or nowhere, of operators that there are and are not."""
    nodes = []
    for _ in range(draw(st.integers(0, 6))):
        node = NodeProto(input=draw(st.lists(NAMES, max_size=3)), output=draw(st.lists(NAMES, max_size=2)))
        node.op_type = draw(st.sampled_from(["Relu", "Add", "Cast", "Constant", "Own", ""]))
        if draw(st.booleans()):
            node.name = draw(NAMES)
        if draw(st.integers(0, 3)) == 0:
            node.domain = draw(st.sampled_from(["", "ai.onnx", "own"]))
        if draw(st.integers(0, 3)) == 0:
            node.doc_string = draw(st.text(max_size=3))
        if draw(st.integers(0, 3)) == 0:
            node.attribute.append(helper.make_attribute("to", draw(st.integers(0, 400))))
        nodes.append(node)
    return model_of(nodes, draw(st.sampled_from([("a",), ("b",), ("x",)])))


def check_same(data: bytes) -> bool:
    """Whether there is an outline, which must hold what protobuf finds."""
    found = outline(data)
    if found is None:
        return False
    model = wire.parse(ModelProto, data)
    assert found.serialize() == model.SerializeToString() and not found.model.graph.node
    ours, theirs = census_of_outline(found, imported(model)), census(model, imported(model))
    assert (ours.counts, ours.types, ours.in_order) == (theirs.counts, theirs.types, theirs.in_order)
    # What the operator at that opset has no attributes for need not be looked at.
    assert all(node in ours.attributed for node in theirs.attributed)
    return True


@given(models())
@settings(max_examples=400, deadline=None)
def test_it_is_what_protobuf_reads(model):
    assert check_same(model.SerializeToString()) or any(OVERLONG in (*n.input, *n.output) for n in model.graph.node)


@pytest.mark.parametrize("count", [2, 100, 1_000_000])
def test_a_node_of_many_inputs_takes_its_time(count):
    data = model_of([NodeProto(op_type="Concat", input=["x"] * count, output=["a"])]).SerializeToString()
    start = time.process_time()
    assert check_same(data) == (count < 1000) and time.process_time() - start < 5


def test_external_data_is_found_however_it_is_spelled():
    model = model_of([helper.make_node("Add", ["x", "w"], ["a"])])
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    data = model.SerializeToString()
    # A length may take more bytes than it needs.
    data = data.replace(b"\x0a\x08location\x12\x05w.bin", b"\x0a\x88\x00location\x12\x04w.bi")
    assert ModelProto.FromString(data).graph.initializer[0].external_data[0].value == "w.bi" and outline(data) is None


def test_an_input_without_a_name_is_found():
    model = model_of([helper.make_node("Relu", ["x"], ["a"])])
    model.graph.input.add().CopyFrom(helper.make_tensor_value_info("", TensorProto.FLOAT, ["N"]))
    assert check_same(model.SerializeToString()) and not outline(model.SerializeToString()).in_order


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.name)
def test_the_models(path):
    check_same(wire.take_out(path.read_bytes(), b"0" * 16)[0])


def test_operators_of_every_kind():
    """The cases that the installed onnx generates; those with graphs in nodes or functions have no outline."""
    outlined = 0
    for _, model, _ in cases()[::5]:
        outlined += not model.functions and check_same(model.SerializeToString())
    assert outlined > 200


def test_damage_is_left_to_protobuf():
    """Bytes that are changed make another model or none; the two ways of reading agree on which."""
    chance = random.Random(0)
    model = model_of(
        [
            helper.make_node("Relu", ["x"], ["b"], name="n"),
            helper.make_node("LeakyRelu", ["b"], ["c"], alpha=0.5),
            helper.make_node("Add", ["c", "w"], ["a"]),
        ]
    )
    data = model.SerializeToString()
    outlined = 0
    for _ in range(6000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 2)):
            changed[chance.randrange(len(changed))] = chance.choice([0, 1, 2, 0x0A, 0x12, 0x22, 0x7F, 0x80, 0xFF])
        try:
            outlined += check_same(bytes(changed))
        except wire.WireError as error:
            pytest.fail(f"{bytes(changed)!r} has an outline, and {error}")
        except ModelFileError:  # a domain imported twice
            continue
    assert outlined > 1000


NODE = b"\x0a\x01x\x12\x01a\x22\x03Abs"


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(b"\x0a\x8b\x00" + NODE, id="length in two bytes"),
        pytest.param(b"\x0a\x0b" + NODE[3:6] + NODE[:3] + NODE[6:], id="output before input"),
        pytest.param(b"\x0a\x10" + NODE[:6] + b"\x22\x03Neg" + NODE[6:], id="operator twice"),
        pytest.param(b"\x1a\x01g\x0a\x0b" + NODE, id="node behind the name"),
    ],
)
def test_other_spellings_are_converted_all_the_same(node, tmp_path):
    rest = model_of([])
    graph = node + rest.graph.SerializeToString()
    rest.ClearField("graph")
    data = rest.SerializeToString() + b"\x3a" + wire.encode(len(graph)) + graph
    assert ModelProto.FromString(data).graph.node[0].op_type == "Abs" and outline(data) is None
    (tmp_path / "a.onnx").write_bytes(data)
    convert(tmp_path / "a.onnx", 13).save(tmp_path / "b.onnx")
    assert onnx.load(tmp_path / "b.onnx").graph == ModelProto.FromString(data).graph
    assert node in (tmp_path / "b.onnx").read_bytes()


@functools.cache
def chain(*ops: str, count: int = 40) -> bytes:
    nodes = []
    for k in range(count):
        op = ops[k % len(ops)]
        inputs = [f"v{k}" if k else "x"] + ["w"] * (op == "Add")
        more = {"alpha": 0.2} if op == "LeakyRelu" else {}
        nodes.append(helper.make_node(op, inputs, [f"v{k + 1}" if k < count - 1 else "a"], f"n{k}", **more))
    return model_of(nodes, producer_name="p", doc_string="d").SerializeToString()


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 13, 14, 15, 16, 21, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize("ops", [("Relu", "Add", "Sigmoid"), ("LeakyRelu", "Abs"), ("Softmax", "Relu")], ids="-".join)
def test_conversions_are_the_same(ops, opset, tmp_path, monkeypatch):
    (tmp_path / "a.onnx").write_bytes(chain(*ops))
    results = []
    for way in (outline, lambda *_: None):
        monkeypatch.setattr(modelfile, "outline", way)
        try:
            conversion = convert(tmp_path / "a.onnx", opset, verify="off")
        except ConversionError as error:
            results.append(str(error))
            continue
        conversion.save(tmp_path / "b.onnx", overwrite=True)
        assert conversion.model == onnx.load(tmp_path / "b.onnx")
        results.append((conversion.report.to_dict(), (tmp_path / "b.onnx").read_bytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("opset", [13, 15])
def test_nodes_that_stay_become_no_objects(opset, tmp_path):
    """Float has been taken by Relu all along, so that one down from 14 changes nothing either."""
    (tmp_path / "a.onnx").write_bytes(chain("Relu", "Add", "Sigmoid"))
    conversion = convert(tmp_path / "a.onnx", opset)
    conversion.save(tmp_path / "b.onnx")
    assert isinstance(conversion._file.content, Outline)
    after = onnx.load(tmp_path / "b.onnx")
    assert imported(after) == {"": opset} and len(after.graph.node) == 40
    onnx.checker.check_model(after)


def test_a_damaged_graph_is_refused_as_before(tmp_path, monkeypatch):
    for nodes, reason in (
        ([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["a"])], "'a' is defined twice"),
        ([helper.make_node("Relu", ["nothing"], ["a"])], "nothing makes the value 'nothing'"),
        ([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])], "of its own results"),
        ([helper.make_node("Relu", ["x"], ["a"], alpha=1), helper.make_node("", ["x"], ["b"])], "no operator"),
    ):
        onnx.save(model_of(nodes), tmp_path / "a.onnx")
        assert isinstance(open_model(tmp_path / "a.onnx").content, Outline)
        with pytest.raises(ModelFileError, match=reason):
            convert(tmp_path / "a.onnx", 15)
