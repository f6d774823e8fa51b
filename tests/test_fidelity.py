"""What need not change is not changed: a model with every kind of content, compared part by part, byte for byte."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from scramble import scrambled

import relu_tools
from relu_tools import schemas, wire

FLOAT, INT64, BOOL, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT8
# A field with a number that no message of ONNX has: tag (9999 << 3 | 2), a length, that many bytes.
UNKNOWN = b"\xfa\xf0\x04\x07unknown"


def add_unknown(message) -> None:
    message.MergeFromString(UNKNOWN)
    assert len(UnknownFieldSet(message)) == 1


def annotate(message, text: str) -> None:
    message.doc_string = f"of {text}"
    entry = message.metadata_props.add()
    entry.key, entry.value = f"key of {text}", "value ü\n"


def value(name: str, element: int, shape) -> onnx.ValueInfoProto:
    info = helper.make_tensor_value_info(name, element, shape)
    annotate(info, name)
    info.type.denotation = "TENSOR"
    for k, dim in enumerate(info.type.tensor_type.shape.dim):
        dim.denotation = ("DATA_BATCH", "DATA_FEATURE")[k % 2]
    return info


def node(op: str, inputs, outputs, **attributes) -> NodeProto:
    made = helper.make_node(op, inputs, outputs, name=f"{op}/of {outputs[0]}", **attributes)
    annotate(made, made.name)
    return made


def graph(name: str, nodes, inputs, outputs, initializers=()) -> GraphProto:
    made = helper.make_graph(nodes, name, inputs, outputs, initializer=list(initializers))
    annotate(made, name)
    return made


def tensor(name: str, numbers, element: int = FLOAT) -> TensorProto:
    made = helper.make_tensor(name, element, [len(numbers)], numbers)
    annotate(made, name)
    return made


def function(opset: int) -> onnx.FunctionProto:
    """Its attribute goes by reference to a node that changes at no step in question; it has imports of its own."""
    leaky = node("LeakyRelu", ["x 0"], ["l/x"])
    leaky.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope")
    made = helper.make_function(
        "my domain",
        "Own Rectifier",
        ["x 0"],
        ["y 0"],
        [leaky, node("Foreign", ["l/x"], ["f"], domain="vendor"), node("Relu", ["f"], ["y 0"])],
        [helper.make_opsetid("", opset), helper.make_opsetid("vendor", 3)],
        attribute_protos=[helper.make_attribute("slope", 0.5)],
        value_info=[value("l/x", FLOAT, ["N", 3]), value("f", FLOAT, ["N", 3])],
    )
    annotate(made, "the function")
    return made


def branches() -> dict[str, GraphProto]:
    """Both read a value from around them."""
    return {
        f"{name}_branch": graph(
            name,
            [node(op, ["captured x"], [f"{name} out"])],
            [],
            [value(f"{name} out", FLOAT, ["N", 3])],
        )
        for name, op in (("then", "Relu"), ("else", "Sigmoid"))
    }


def loop_body() -> GraphProto:
    return graph(
        "loop body",
        [
            node("Identity", ["go"], ["go on"]),
            node("Add", ["carried", "captured x"], ["carried out"]),
        ],
        [value("i", INT64, []), value("go", BOOL, []), value("carried", FLOAT, ["N", 3])],
        [value("go on", BOOL, []), value("carried out", FLOAT, ["N", 3])],
    )


def scan_body() -> GraphProto:
    return graph(
        "scan body",
        [node("Relu", ["row"], ["row out"]), node("Add", ["state", "row out"], ["state out"])],
        [value("state", FLOAT, [3]), value("row", FLOAT, [3])],
        [value("state out", FLOAT, [3]), value("row out", FLOAT, [3])],
    )


def everything(opset: int) -> ModelProto:
    """Every kind of content. `int8 Relu` is what a step below 14 rewrites."""
    nodes = [
        node("Relu", ["in put/0"], ["captured x"], domain="ai.onnx"),
        node("Own Rectifier", ["captured x"], ["own"], domain="my domain", slope=0.25),
        node("Vendor Op", ["own", "", "weights/ü"], ["foreign", ""], domain="vendor", odd=b"\x00\xff"),
        node("If", ["condition"], ["chosen"], **branches()),
        node("Loop", ["trips", "", "chosen"], ["looped"], body=loop_body()),
        node("Scan", ["weights/ü", "looped"], ["state", "rows"], body=scan_body(), num_scan_inputs=1),
        node("Add", ["rows", "sparse"], ["out put"]),
        node("Relu", ["small"], ["small out"]),
    ]
    made = graph(
        "the graph",
        nodes,
        [
            value("in put/0", FLOAT, ["N", 3]),
            value("condition", BOOL, []),
            value("trips", INT64, []),
            value("small", INT8, ["N"]),
            value("overridable", FLOAT, [2]),
        ],
        [value("out put", FLOAT, ["N", 3]), value("small out", INT8, ["N"]), value("state", FLOAT, [3])],
        [tensor("weights/ü", [1.5, 2.5, 3.5]), tensor("overridable", [0.5, 1.5]), tensor("unused", [7], INT64)],
    )
    made.value_info.extend([value("captured x", FLOAT, ["N", 3]), value("own", FLOAT, ["N", 3])])
    made.sparse_initializer.append(
        helper.make_sparse_tensor(tensor("sparse", [4.5]), helper.make_tensor("", INT64, [1], [1]), [3])
    )
    annotation = made.quantization_annotation.add(tensor_name="captured x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="weights/ü")
    model = ModelProto(
        ir_version=10,
        producer_name="a producer",
        producer_version="1.2",
        domain="org.example",
        model_version=42,
    )
    model.graph.CopyFrom(made)
    model.opset_import.extend(
        helper.make_opsetid(domain, version)
        for domain, version in (("vendor", 3), ("ai.onnx", opset), ("my domain", 1), ("ai.onnx.ml", 2))
    )
    annotate(model, "the model")
    model.functions.append(function(opset))
    training = model.training_info.add()
    training.initialization.CopyFrom(graph("initialization", [], [], []))
    for message in (model, model.graph, model.graph.node[0], model.graph.node[6], model.functions[0]):
        add_unknown(message)
    return model


def parts(message, path: str = "") -> dict[str, bytes]:
    """A message as its fields' bytes by path; repeated fields item by item, graphs and functions taken apart."""
    found = {}
    apart = (ModelProto, GraphProto, onnx.FunctionProto)
    for field, content in message.ListFields():
        items = content if field.is_repeated else [content]
        for k, item in enumerate(items):
            here = f"{path}/{field.name}[{k}]"
            if isinstance(item, NodeProto) and any(a.type == AttributeProto.GRAPH for a in item.attribute):
                found.update(split_node(item, here))
            elif isinstance(item, apart):
                found.update(parts(item, here))
            elif hasattr(item, "SerializeToString"):
                found[here] = item.SerializeToString(deterministic=True)
            else:
                found[here] = repr(item).encode()
    found[f"{path}/unknown"] = b"".join(bytes(f.data) for f in UnknownFieldSet(message))
    return found


def split_node(item: NodeProto, path: str) -> dict[str, bytes]:
    found = {}
    bare = NodeProto()
    bare.CopyFrom(item)
    for k, attribute in enumerate(item.attribute):
        if attribute.type == AttributeProto.GRAPH:
            found.update(parts(attribute.g, f"{path}/{attribute.name}"))
            bare.attribute[k].ClearField("g")
    found[path] = bare.SerializeToString(deterministic=True)
    return found


def differing(a: ModelProto, b: ModelProto) -> set[str]:
    a_parts, b_parts = parts(a), parts(b)
    return {path for path in a_parts.keys() | b_parts.keys() if a_parts.get(path) != b_parts.get(path)}


NODES = [f"/graph[0]/node[{k}]" for k in range(8)]
# The places of opset imports: the model's own and the function's.
IMPORTS = {"/opset_import[1]", "/functions[0]/opset_import[0]"}
STEPS = [(18, 17), (17, 18), (16, 15), (15, 16), (17, 15), (18, 28), (21, 18), (16, 14)]


@pytest.mark.parametrize(("source", "target"), [s for s in STEPS if max(s) <= schemas.newest()])
def test_only_imports_differ_where_no_node_changes(source, target):
    original = everything(source)
    conversion = relu_tools.convert(original, target, ir_version="keep", verify="off")
    assert differing(original, conversion.model) == IMPORTS
    assert conversion.report.changes == []
    assert conversion.report.kept == conversion.report.nodes_before == conversion.report.nodes_after == 17


@pytest.mark.parametrize(("source", "target"), [(14, 13), (18, 13), (16, 11)])
def test_only_rewritten_nodes_differ(source, target):
    original = everything(source)
    conversion = relu_tools.convert(original, target, ir_version="keep", verify="off")
    last = {path for path in differing(original, conversion.model) if path not in IMPORTS}
    assert last and all(path >= NODES[7] for path in last if path.startswith("/graph[0]/node")), sorted(last)
    assert not {path for path in last if not path.startswith("/graph[0]/node")}
    assert [change.node for change in conversion.report.changes] == ["Relu/of small out"]
    rewritten = conversion.model.graph.node[7:]
    final = original.graph.node[7]
    assert rewritten[-1].output == final.output and rewritten[-1].name == final.name
    assert rewritten[-1].doc_string == final.doc_string
    assert all(n.metadata_props == final.metadata_props for n in rewritten)


def test_the_ir_version_alone_is_lowered_with_the_opset():
    original = everything(18)
    model = relu_tools.convert(original, 17, verify="off").model
    assert model.ir_version == 8
    assert differing(original, model) == {"/ir_version[0]", *IMPORTS}


@pytest.mark.parametrize("opset", [7, 12, 13, 14, 15, 17, 18, 21])
def test_the_same_opset_changes_nothing(opset):
    original = everything(opset)
    before = original.SerializeToString(deterministic=True)
    conversion = relu_tools.convert(original, opset, verify="off")
    assert differing(original, conversion.model) == set()
    assert conversion.model.SerializeToString(deterministic=True) == before
    assert conversion.report.changes == [] and conversion.report.kept == conversion.report.nodes_before


@pytest.mark.parametrize("target", [7, 13, 17, 18])
def test_the_input_model_is_not_changed(target):
    original = everything(18)
    before = original.SerializeToString(deterministic=True)
    try:
        relu_tools.convert(original, target, verify="off")
    except relu_tools.ConversionError:
        assert target == 7
    assert original.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("target", [13, 14, 18])
def test_the_result_is_deterministic(target):
    one, two = (relu_tools.convert_version(everything(18), target) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_every_field_is_there():
    model = everything(18)
    assert ModelProto.FromString(model.SerializeToString()) == model
    # Device configurations are of multi-device execution, which no converter touches.
    fields = {f.name for f in ModelProto.DESCRIPTOR.fields} - {"configuration"}
    assert {field.name for field, _ in model.ListFields()} == fields
    assert {field.name for field, _ in model.graph.ListFields()} == {f.name for f in GraphProto.DESCRIPTOR.fields}
    assert {field.name for field, _ in model.functions[0].ListFields()} >= {
        "attribute_proto",
        "value_info",
        "doc_string",
    }


# --- files that protobuf would write otherwise -----------------------------------------------
def written(data: bytes, folder: Path, target: int, **settings) -> bytes:
    (folder / "a.onnx").write_bytes(data)
    conversion = relu_tools.convert(folder / "a.onnx", target, ir_version="keep", verify="off", **settings)
    conversion.save(folder / "b.onnx", overwrite=True)
    return (folder / "b.onnx").read_bytes()


def contents(data: bytes, *numbers: int) -> list[bytes]:
    """What the fields with a number hold, or with the last number within those with the first."""
    found = [data[start:end] for tag, _, start, end in wire.fields(data, 0, len(data)) if tag >> 3 == numbers[0]]
    return found if len(numbers) == 1 else [inner for content in found for inner in contents(content, *numbers[1:])]


GRAPH, FUNCTION, IMPORT = 7, 25, 8
WITHIN = {1: "node", 5: "initializer", 11: "input", 12: "output", 13: "value_info", 14: "quantization_annotation"}


@pytest.mark.parametrize("seed", range(5))
def test_a_file_comes_out_byte_for_byte_at_its_own_opset(tmp_path, seed):
    data = scrambled(everything(18).SerializeToString(), random.Random(seed))
    assert data != everything(18).SerializeToString()
    assert written(data, tmp_path, 18) == data


@pytest.mark.parametrize("seed", range(5))
def test_an_untouched_graph_is_the_same_bytes(tmp_path, seed):
    data = scrambled(everything(18).SerializeToString(), random.Random(seed))
    result = written(data, tmp_path, 17)
    assert contents(result, GRAPH) == contents(data, GRAPH) and contents(result, 14) == contents(data, 14)
    assert contents(result, 20) == contents(data, 20)
    assert contents(result, IMPORT) != contents(data, IMPORT)
    assert contents(result, FUNCTION, 7) == contents(data, FUNCTION, 7)


@pytest.mark.parametrize("seed", range(5))
def test_untouched_parts_of_a_graph_are_the_same_bytes(tmp_path, seed):
    data = scrambled(everything(14).SerializeToString(), random.Random(seed))
    result = written(data, tmp_path, 13)
    for number, name in WITHIN.items():
        before, after = contents(data, GRAPH, number), contents(result, GRAPH, number)
        # The last node is rewritten.
        assert (after[:7] == before[:7] and after[7:] != before[7:]) if name == "node" else after == before, name


@pytest.mark.parametrize("spelling", ["packed dims", "long lengths", "long numbers"])
def test_an_unusual_spelling_stays(tmp_path, spelling):
    model = everything(14)
    data = model.SerializeToString()
    [tensor] = [t for t in model.graph.initializer if t.name == "weights/ü"]
    usual, dims = tensor.SerializeToString(), b"\x08\x03"
    assert usual.startswith(dims)
    unusual = {"packed dims": b"\x0a\x01\x03", "long numbers": b"\x08\x83\x80\x00", "long lengths": b"\x08\x03"}[
        spelling
    ]
    other = unusual + usual[len(dims) :]
    if spelling == "long lengths":
        other = other.replace(b"\x42\x0aweights/\xc3\xbc", b"\x42\x8a\x80\x00weights/\xc3\xbc")
    assert other != usual
    [graph] = contents(data, GRAPH)
    changed = graph.replace(b"\x2a" + wire.encode(len(usual)) + usual, b"\x2a" + wire.encode(len(other)) + other)
    data = data.replace(b"\x3a" + wire.encode(len(graph)) + graph, b"\x3a" + wire.encode(len(changed)) + changed)
    assert ModelProto.FromString(data) == model
    result = written(data, tmp_path, 13)
    assert other in result and ModelProto.FromString(result).graph.initializer == model.graph.initializer


def test_what_looks_like_a_message_of_another_kind_keeps_its_own_bytes(tmp_path):
    """A type told in two pieces is, to protobuf, the same bytes as a shape of one dimension of size 1."""

    def field(number: int, content: bytes) -> bytes:
        return wire.encode(number << 3 | 2) + wire.encode(len(content)) + content

    pieces = field(1, b"\x08\x01") * 2
    model = onnx.parser.parse_model(
        '<ir_version: 7, opset_import: ["": 14]> g (float[1] b) => (float[N] y, float[1] z) '
        "{ y = HardSwish (a) z = Relu (b) }"
    )
    graph = model.graph.SerializeToString() + field(11, field(1, b"a") + field(2, pieces))
    model.ClearField("graph")
    result = written(model.SerializeToString() + field(7, graph), tmp_path, 13)
    inputs = {info.name: info.type for info in ModelProto.FromString(result).graph.input}
    assert [dim.dim_value for dim in inputs["b"].tensor_type.shape.dim] == [1]
    assert inputs["a"].tensor_type.elem_type == 1 and pieces in result


def test_a_model_that_breaks_the_rules_of_its_ir_version_is_left_at_its_own_opset():
    model = onnx.parser.parse_model(
        '<ir_version: 7, opset_import: ["": 14, "own": 1]> g (float[N] x) => (float[N] y) { y = own.F (x) }'
        '<domain: "own", opset_import: ["": 14]> F (a) => (b) { b = Relu (a) }'
        '<domain: "own", opset_import: ["": 14]> Unused (a) => (b) { b = Abs (a) }'
    )
    assert relu_tools.convert(model, 14).model == model
    assert not relu_tools.convert(model, 13).model.functions


def test_weights_of_a_scrambled_file_are_found(tmp_path):
    model = everything(14)
    weights = [onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32) + k, f"large {k}") for k in range(3)]
    model.graph.initializer.extend(weights)
    result = written(scrambled(model.SerializeToString(), random.Random(3)), tmp_path, 13)
    found = list(ModelProto.FromString(result).graph.initializer)[-3:]
    assert [(tensor.name, tensor.raw_data) for tensor in found] == [(w.name, w.raw_data) for w in weights]


@pytest.mark.parametrize("name", ["relu_14.onnxtxt", "control.onnxtxt"])
def test_text_comes_out_as_it_was_at_its_own_opset(tmp_path, name):
    text = "\n\n" + (Path(__file__).parents[1] / "models" / name).read_text().replace("\n", "\n   ")
    (tmp_path / name).write_text(text)
    relu_tools.convert(tmp_path / name, 14).save(tmp_path / "b.onnxtxt")
    assert (tmp_path / "b.onnxtxt").read_text() == text


HASHED = """
import hashlib, sys
import relu_tools
from relu_tools import ConversionError
for path in sys.argv[2:]:
    for target in (9, 13, 21):
        try:
            conversion = relu_tools.convert(path, target, verify="off")
        except ConversionError as error:
            print([str(refusal) for refusal in error.refusals])
            continue
        conversion.save(sys.argv[1], overwrite=True)
        print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
    relu_tools.inline(path).save(sys.argv[1], overwrite=True)
    print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""


def test_the_result_does_not_hang_on_the_seed_of_hashes(tmp_path):
    root = Path(__file__).parents[1]
    models = [str(root / "models" / name) for name in ("digits.onnx", "functions.onnx", "relu_14.onnxtxt")]
    said = set()
    for seed in ("1", "2", "77"):
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", HASHED, str(tmp_path / "out.onnx"), *models]
        said.add(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert len(said) == 1 and len(next(iter(said)).splitlines()) == 12


def test_initializers_that_are_no_inputs_stay_so_at_an_ir_version_that_forbids_it(tmp_path):
    model = everything(18)
    del model.graph.sparse_initializer[:], model.functions[:], model.training_info[:]
    model.graph.node[1].domain = "vendor"
    model.graph.initializer.append(tensor("sparse", [4.5]))
    model.ir_version = 3
    data = model.SerializeToString()
    assert written(data, tmp_path, 18) == data
    assert contents(written(data, tmp_path, 17), GRAPH) == contents(data, GRAPH)
