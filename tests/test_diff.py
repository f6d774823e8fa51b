"""What `diff` finds between two models: each change, once, and nothing where there is none."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import relu_tools
from relu_tools.cli import main

TEXT = """<ir_version: 8, opset_import: ["": 13], producer_name: "a">
net (float[2] x, bool c) => (float[2] y, float[2] z)
<float[2] w = {1.0, 2.0}>
{
    [first] h = Add (x, w)
    [second] y = LeakyRelu <alpha = 0.5> (h)
    [third] z = If (c) <
        then_branch = t () => (float[2] p) { p = Abs (h) },
        else_branch = e () => (float[2] q) { q = Neg (h) }
    >
}"""


def model(text: str = TEXT) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def told(a, b) -> list[str]:
    return list(map(str, relu_tools.diff(a, b)))


def test_a_model_is_the_same_as_itself():
    assert told(model(), model()) == []


EDITS = {
    "alpha = 0.5": ("alpha = 0.25", ["node second (LeakyRelu): attribute alpha 0.5 became 0.25"]),
    "LeakyRelu <alpha = 0.5>": (
        "Relu",
        ["node second: operator 'LeakyRelu' became 'Relu'", "node second (LeakyRelu): attribute alpha = 0.5 only in A"],
    ),
    "alpha = 0.5>": ("alpha = 0.1>", ["node second (LeakyRelu): attribute alpha 0.5 became 0.1"]),
    "Add (x, w)": ("Add (x, x)", ["node first: inputs [x, w] became [x, x]"]),
    '["": 13]': ('["": 14, "own": 1]', ["opset ai.onnx: 13 became 14", "opset own: 1 only in B"]),
    "ir_version: 8": ("ir_version: 7", ["model: ir version 8 became 7"]),
    'producer_name: "a"': ('producer_name: "b"', ["model: producer name 'a' became 'b'"]),
    "{1.0, 2.0}": ("{1.0, 3.0}", ["initializer w: other values, float[2]"]),
    "<float[2] w = {1.0, 2.0}>": (
        "<float[2] w = {1.0, 2.0}, float[1] v = {0.0}>",
        ["initializer v: float[1] only in B"],
    ),
    "(float[2] x, bool c)": ("(float[N] x, bool c)", ["input x: tensor(float)[2] became tensor(float)[N]"]),
    "p = Abs (h)": ("p = Ceil (h)", ["then_branch of third (If): node p: operator 'Abs' became 'Ceil'"]),
    "[second]": ("[other]", ["node second: name 'second' became 'other'"]),
}


@pytest.mark.parametrize("old", EDITS)
def test_one_edit_is_one_difference(old):
    new, expected = EDITS[old]
    assert TEXT.count(old) == 1
    assert told(model(), model(TEXT.replace(old, new))) == expected


def test_nodes_that_came_and_went():
    longer = TEXT.replace("[third]", "[extra] k = Exp (h)\n    [third]")
    assert told(model(), model(longer)) == ["node extra: Exp only in B"]
    assert told(model(longer), model()) == ["node extra: Exp only in A"]


def test_the_order_of_nodes():
    other = model()
    other.graph.node.append(other.graph.node.pop(1))  # both follow from the first
    assert told(model(), other) == ["nodes: they stand in another order"]


def test_metadata_and_doc_strings():
    other = model()
    other.metadata_props.add(key="author", value="b")
    other.graph.doc_string = "what it does"
    other.graph.node[0].metadata_props.add(key="line", value="3")
    assert told(model(), other) == [
        "metadata author: b only in B",
        "graph: doc string '' became 'what it does'",
        "node first: metadata line: 3 only in B",
    ]


def _full() -> onnx.ModelProto:
    """A model that has something in every field that onnx does not keep for data."""
    full = model("""<ir_version: 10, opset_import: ["": 18, "own": 1], producer_name: "a", producer_version: "1",
        domain: "d", model_version: 3, doc_string: "m">
    net (float[N] x, bool c) => (float[N] y)
    <float[2] w = {1.0, 2.0}, float[2] h>
    {
        [first] h = own.F <alpha = 0.5> (x)
        [second] y = If (c) <
            then_branch = t () => (float[N] p) { p = Abs (h) },
            else_branch = e () => (float[N] q) { q = Neg (w) }
        >
    }
    <domain: "own", opset_import: ["": 18], doc_string: "f">
    F <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }""")
    function, node = full.functions[0], full.graph.node[0]
    function.value_info.append(onnx.helper.make_tensor_value_info("a", 1, ["N"]))
    infos = [*full.graph.input, *full.graph.output, *full.graph.value_info]
    for message in (full, full.graph, function, node, full.graph.initializer[0], *infos):
        message.metadata_props.add(key="k", value="v")
    for message in (full.graph, node, node.attribute[0], full.graph.node[1].attribute[0], *infos):
        message.doc_string = "told"
    for info in infos:
        info.type.denotation = "IMAGE"
        for dim in info.type.tensor_type.shape.dim:
            dim.denotation = "DATA_BATCH"
    note = full.graph.quantization_annotation.add(tensor_name="h")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    full.training_info.add().algorithm.name = "training"
    return full


def _fields(message, path=()):
    """Where the fields of a message, and of all in it, lie."""
    for field, value in message.ListFields():
        many = not isinstance(value, int | float | str | bytes) and not hasattr(value, "ListFields")
        for index, entry in enumerate(value) if many else [(None, value)]:
            place = (*path, (field.name, index))
            # A domain of no letters is no other than none.
            if entry != "" and field.name != "float_data":
                yield place
            if hasattr(entry, "ListFields"):
                yield from _fields(entry, place)


@pytest.mark.parametrize("place", list(_fields(_full())), ids=lambda place: "/".join(name for name, _ in place))
def test_nothing_that_is_gone_is_overlooked(place):
    less = _full()
    message = less
    for name, index in place[:-1]:
        message = getattr(message, name) if index is None else getattr(message, name)[index]
    name, index = place[-1]
    if index is None:
        message.ClearField(name)
    else:
        del getattr(message, name)[index]
    if less != _full():
        assert told(_full(), less) and told(less, _full())


def test_functions():
    text = """<ir_version: 8, opset_import: ["": 13, "own": 1]> net (float[2] x) => (float[2] y) { y = own.F (x) }
        <domain: "own", opset_import: ["": 13]> F (x) => (y) { y = Abs (x) }"""
    assert told(model(text), model(text.replace("Abs", "Neg"))) == [
        "function own::F: node y: operator 'Abs' became 'Neg'"
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.bool_, np.complex64])
def test_how_a_tensor_is_stored_is_no_difference(dtype, tmp_path):
    values = np.arange(2000).astype(dtype)
    a, b = model(), model()
    a.graph.initializer.append(numpy_helper.from_array(values, "weights"))
    b.graph.initializer.add(name="weights", dims=[2000], data_type=a.graph.initializer[-1].data_type)
    typed = onnx.helper.make_tensor("weights", a.graph.initializer[-1].data_type, [2000], values)
    b.graph.initializer[-1].CopyFrom(typed)
    assert told(a, b) == []
    onnx.save(a, tmp_path / "a.onnx")
    onnx.save(a, tmp_path / "b.onnx", save_as_external_data=True, size_threshold=0)
    assert told(tmp_path / "a.onnx", tmp_path / "b.onnx") == []
    assert told(tmp_path / "b.onnx", b) == []


def test_one_element_of_many_is_found_in_files(tmp_path):
    values = np.zeros(1 << 20, np.float32)
    a = model()
    a.graph.initializer.append(numpy_helper.from_array(values, "weights"))
    onnx.save(a, tmp_path / "a.onnx")
    values[-1] = 1e-45
    a.graph.initializer[-1].CopyFrom(numpy_helper.from_array(values, "weights"))
    onnx.save(a, tmp_path / "b.onnx")
    assert told(tmp_path / "a.onnx", tmp_path / "b.onnx") == [f"initializer weights: other values, float[{1 << 20}]"]


def test_weights_are_not_read_into_memory(tmp_path):
    import tracemalloc

    a = model()
    a.graph.initializer.append(numpy_helper.from_array(np.zeros(1 << 23, np.float32), "weights"))
    onnx.save(a, tmp_path / "a.onnx")
    onnx.save(a, tmp_path / "b.onnx", save_as_external_data=True, size_threshold=0)
    tracemalloc.start()
    try:
        assert told(tmp_path / "a.onnx", tmp_path / "b.onnx") == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_tensors_in_attributes():
    text = """<ir_version: 8, opset_import: ["": 13]> net (float[2] x) => (float[2] y)
        { k = Constant <value = float[2] {1.0, 2.0}> () y = Add (x, k) }"""
    assert told(model(text), model(text)) == []
    other = model(text.replace("2.0", "3.0"))
    assert told(model(text), other) == ["node k (Constant): attribute value: other values, float[2]"]


def test_missing_data_is_one_sentence(tmp_path):
    proto = model()
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(9, np.float32), "weights"))
    onnx.save(proto, tmp_path / "a.onnx", save_as_external_data=True, size_threshold=0, location="data")
    (tmp_path / "data").unlink()
    with pytest.raises(relu_tools.ModelFileError):
        told(tmp_path / "a.onnx", tmp_path / "a.onnx")


def test_the_command(tmp_path):
    onnx.save(model(), tmp_path / "a.onnx")
    onnx.save(model(TEXT.replace("0.5", "0.25")), tmp_path / "b.onnx")

    def run(*args):
        result = CliRunner().invoke(main, ["diff", *map(str, args)])
        return result.exit_code, result.output

    assert run(tmp_path / "a.onnx", tmp_path / "a.onnx") == (0, "no difference\n")
    line = "node second (LeakyRelu): attribute alpha 0.5 became 0.25"
    assert run(tmp_path / "a.onnx", tmp_path / "b.onnx") == (1, line + "\n")
    status, text = run(tmp_path / "a.onnx", tmp_path / "b.onnx", "--json")
    assert (status, len(json.loads(text)["differences"])) == (1, 1)
    assert run(tmp_path / "a.onnx", tmp_path / "none.onnx")[0] == 2
