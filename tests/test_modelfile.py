"""Models go through files unchanged, without their weights being read; what is no model is refused in a sentence."""

from __future__ import annotations

import errno
import io
import os
import random
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relu_tools import external, filling, modelfile, textformats, wire, writing
from relu_tools.modelfile import ModelFile, open_model
from relu_tools.outline import Outline
from relu_tools.report import ModelFileError
from relu_tools.writing import write_model

FLOATS = numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(2, 300), "floats")
TYPED = {
    "float_data": helper.make_tensor("f", TensorProto.FLOAT, [2, 300], np.linspace(-1, 1, 600, dtype=np.float32)),
    "int32_data": helper.make_tensor("i", TensorProto.INT8, [2, 600], [-1, 5] * 600),
    "int64_data": helper.make_tensor("l", TensorProto.INT64, [2, 300], range(-300, 300)),
    "double_data": helper.make_tensor("d", TensorProto.DOUBLE, [2, 300], np.linspace(-1, 1, 600)),
    "uint64_data": helper.make_tensor("u", TensorProto.UINT64, [2, 300], range(2**64 - 600, 2**64)),
}


def value(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def sample() -> onnx.ModelProto:
    """A model with large tensors in every place that can hold one."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=FLOATS)], "branch", [], [value("c")], [TYPED["float_data"]]
    )
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.arange(1, 401, dtype=np.float32), "sparse"),
        numpy_helper.from_array(np.arange(800).reshape(400, 2), "where"),
        [900, 900],
    )
    nodes = [
        helper.make_node("If", ["cond"], ["y"], then_branch=branch, else_branch=branch, name="née"),
        helper.make_node("Constant", [], ["s"], sparse_value=sparse),
        helper.make_node("F", ["y"], ["z"], domain="local", many=[FLOATS, TYPED["int32_data"]]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("cond", TensorProto.BOOL, [])],
        [value("z")],
        [FLOATS, *TYPED.values(), helper.make_tensor("words", TensorProto.STRING, [200], [b"word"] * 200)],
        sparse_initializer=[sparse],
        doc_string="d" * 2000,
    )
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("Constant", [], ["k"], value=FLOATS), helper.make_node("Add", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    model.training_info.add().initialization.initializer.append(FLOATS)
    return model


def small() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", shape=["N"])], [value("y", shape=["N"])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def save(model: onnx.ModelProto | bytes, path: Path) -> Path:
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


# Through a file and back


def test_every_large_payload_is_left_out_and_comes_back(tmp_path):
    model = sample()
    source = save(model, tmp_path / "a.onnx")
    file = open_model(source)
    # 2 branches of 2, function, training info, 2 tensors of `many`, 6 initializers, 2 sparse tensors of 2.
    assert len(file.origin.source.parts) == 2 * 2 + 1 + 1 + 2 + 6 + 2 * 2
    rest = len(file.model.SerializeToString()) - len("d" * 2000) - 200 * len(b"..word")
    assert rest < 4000 < 40_000 < source.stat().st_size
    assert file.whole().SerializeToString() == model.SerializeToString()

    file.model.producer_name = model.producer_name = "someone else"
    write_model(file, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == model.SerializeToString()


@pytest.mark.parametrize("field", TYPED)
def test_typed_fields_come_back_in_their_field(tmp_path, field):
    model = small()
    model.graph.initializer.append(TYPED[field])
    file = open_model(save(model, tmp_path / "a.onnx"))
    skeleton = file.model.graph.initializer[0]
    assert skeleton.ByteSize() < 100
    assert list(skeleton.dims) == list(TYPED[field].dims) and skeleton.data_type == TYPED[field].data_type
    assert file.tensor(skeleton) == TYPED[field]


def test_payload_bytes_are_not_recoded(tmp_path):
    """Overlong varints in a packed field mean the same to a parser, and stay."""
    overlong = b"\x81\x80\x00" * 600
    tensor = TensorProto(dims=[2, 300], data_type=TensorProto.INT8).SerializeToString()
    tensor += b"\x2a" + wire.encode(len(overlong)) + overlong
    graph = b"\x2a" + wire.encode(len(tensor)) + tensor
    file = open_model(save(b"\x08\x08\x3a" + wire.encode(len(graph)) + graph, tmp_path / "a.onnx"))
    file.model.producer_name = "p"
    write_model(file, tmp_path / "b.onnx")
    assert overlong in (tmp_path / "b.onnx").read_bytes()


def test_a_damaged_payload_is_found_when_it_is_read(tmp_path):
    tensor = TensorProto(dims=[2, 300], data_type=TensorProto.INT8).SerializeToString()
    tensor += b"\x2a" + wire.encode(70_000) + b"\xff" * 70_000
    graph = b"\x2a" + wire.encode(len(tensor)) + tensor
    file = open_model(save(b"\x08\x08\x3a" + wire.encode(len(graph)) + graph, tmp_path / "a.onnx"))
    with pytest.raises(ModelFileError, match="the data of a tensor is damaged"):
        file.tensor(file.model.graph.initializer[0])


def test_tensors_may_be_copied_moved_and_dropped(tmp_path):
    model = small()
    model.graph.initializer.extend([FLOATS, TYPED["int64_data"], TYPED["double_data"]])
    file = open_model(save(model, tmp_path / "a.onnx"))
    for edited in (model, file.model):
        floats, longs, _ = edited.graph.initializer
        node = edited.graph.node.add(op_type="Constant", output=["c"])
        node.attribute.append(helper.make_attribute("value", longs))
        inner = onnx.GraphProto(name="inner", initializer=[floats, floats])
        edited.graph.node.add(op_type="If").attribute.append(helper.make_attribute("then_branch", inner))
        del edited.graph.initializer[1:]
    write_model(file, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == model.SerializeToString()
    assert file.tensor(file.model.graph.node[1].attribute[0].t) == TYPED["int64_data"]


def test_merged_chunks_of_a_packed_field(tmp_path):
    """Protobuf joins what a packed field says in several places."""
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2, 300], np.arange(600, dtype=np.float32))
    more = TensorProto(float_data=[1.5] * 300)
    few = TensorProto(float_data=[2.5, 3.5])
    joined = tensor.SerializeToString() + few.SerializeToString() + more.SerializeToString()
    graph = b"\x2a" + wire.encode(len(joined)) + joined
    file = open_model(save(b"\x08\x08\x3a" + wire.encode(len(graph)) + graph, tmp_path / "a.onnx"))
    expected = [*range(600), 2.5, 3.5, *[1.5] * 300]
    assert list(file.tensor(file.model.graph.initializer[0]).float_data) == expected
    file.model.producer_name = "p"
    write_model(file, tmp_path / "b.onnx")
    assert list(onnx.load(tmp_path / "b.onnx").graph.initializer[0].float_data) == expected


def test_a_tensor_of_another_file_is_not_written_without_its_data(tmp_path):
    model = small()
    model.graph.initializer.append(FLOATS)
    one, other = (open_model(save(model, tmp_path / name)) for name in ("a.onnx", "b.onnx"))
    one.model.graph.initializer[0].CopyFrom(other.model.graph.initializer[0])
    with pytest.raises(ModelFileError, match="another file"):
        write_model(one, tmp_path / "c.onnx")
    with pytest.raises(ModelFileError, match="another file"):
        ModelFile(other.model).tensor(other.model.graph.initializer[0])
    assert files(tmp_path) == {"a.onnx", "b.onnx"}


def test_unknown_fields_stay(tmp_path):
    unknown = b"\xfa\x7d\x03new"  # Field 2015, in none of the messages.
    node = onnx.NodeProto(op_type="Relu", input=["x"], output=["y"]).SerializeToString() + unknown
    graph = b"\x0a" + wire.encode(len(node)) + node + b"\x12\x01g"
    for tensor in (FLOATS.SerializeToString() + unknown,):
        graph += b"\x2a" + wire.encode(len(tensor)) + tensor
    data = b"\x08\x08\x3a" + wire.encode(len(graph)) + graph + unknown
    file = open_model(save(data, tmp_path / "a.onnx"))
    file.model.producer_name = "p"
    file.model.graph.node[0].op_type = "Sigmoid"
    write_model(file, tmp_path / "b.onnx")
    written = (tmp_path / "b.onnx").read_bytes()
    assert written.count(unknown) == 3
    assert onnx.load_from_string(written).graph.initializer[0].raw_data == FLOATS.raw_data


def test_an_unchanged_model_keeps_the_order_of_its_file(tmp_path):
    model = small()
    model.graph.initializer.append(FLOATS)
    parts = [onnx.ModelProto(graph=model.graph), onnx.ModelProto(ir_version=8), onnx.ModelProto(producer_name="last")]
    data = b"".join(part.SerializeToString() for part in parts)
    file = open_model(save(data, tmp_path / "a.onnx"))
    write_model(file, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == data != file.whole().SerializeToString()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("op", ["MatMul", "Gather", "Reshape", "Expand"])
def test_shape_inference_sees_what_it_sees_in_the_whole_model(tmp_path, op, strict):
    shape = np.array([1] * 399 + [4])  # 3200 bytes
    inputs, operand = {
        "MatMul": (["x", "w"], np.zeros((64, 32), np.float32)),
        "Gather": (["w", "i"], np.zeros((100, 32), np.float32)),
        "Reshape": (["z", "w"], shape),
        "Expand": (["z", "w"], shape),
    }[op]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"])],
        "g",
        [value("x", shape=["N", 64]), value("i", TensorProto.INT64, [3]), value("z", shape=[4])],
        [value("y")],
        [numpy_helper.from_array(operand, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    file = open_model(save(model, tmp_path / "a.onnx"))
    assert bool(file.origin.source.parts) == (operand is not shape)
    outputs = [
        onnx.shape_inference.infer_shapes(m, data_prop=True, strict_mode=strict).graph.output
        for m in (model, file.model)
    ]
    assert outputs[0] == outputs[1] and outputs[0][0].type.tensor_type.HasField("shape")


@hypothesis.given(
    st.lists(st.integers(0, 5000), max_size=4), st.lists(st.integers(0, 5000), max_size=4), st.integers(0, 2**32)
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_lengths_are_right_at_every_size(raw, nested, seed):
    """Lengths of enclosing messages cross the boundaries of their varints."""
    data = random.Random(seed)
    model = small()
    model.graph.initializer.extend(TensorProto(dims=[n], data_type=2, raw_data=data.randbytes(n)) for n in raw)
    inner = onnx.GraphProto(
        initializer=[TensorProto(dims=[n], data_type=2, raw_data=data.randbytes(n)) for n in nested]
    )
    model.graph.node.add(op_type="If").attribute.append(helper.make_attribute("then_branch", inner))
    skeleton, spans = wire.take_out(model.SerializeToString(), b"0" * 16)
    assert len(spans) == sum(n >= 1024 for n in raw + nested)
    original = model.SerializeToString()
    pieces = wire.put_in(skeleton, onnx.ModelProto, lambda _, index: spans[index])
    joined = [original[p.start : p.start + p.size] if isinstance(p, wire.Span) else p for p in pieces]
    assert b"".join(joined) == original and wire.size(pieces) == len(original)


def test_weights_are_not_read_and_nodes_stay_bytes(tmp_path):
    model = small()
    relu = model.graph.node[0]
    model.graph.node.extend([relu] * 30_000)
    data = model.SerializeToString()
    hole = 1 << 30
    tensor = TensorProto(dims=[hole], data_type=2).SerializeToString() + b"\x4a" + wire.encode(hole)
    initializer = b"\x2a" + wire.encode(len(tensor) + hole) + tensor
    with open(tmp_path / "a.onnx", "wb") as out:
        graph = model.graph.SerializeToString()
        out.write(data[: data.index(b"\x3a")])
        out.write(b"\x3a" + wire.encode(len(graph) + len(initializer) + hole) + graph + initializer)
        out.seek(hole - 1, os.SEEK_CUR)
        out.write(b"!")
    tracemalloc.start()
    file = open_model(tmp_path / "a.onnx")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6 and isinstance(file.content, Outline)
    assert len(file.model.graph.node) == 30_001 and file.origin.source.parts[0][1] == hole


# Text


def onnx_text_sample() -> onnx.ModelProto:
    # Some versions of onnx print six digits, which is refused, so these values need no more.
    tensor = numpy_helper.from_array(np.array([[1.5, np.nan, -np.inf], [0.125, -0.0, 2.0**18]], np.float32), "w")
    model = small()
    model.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.25))
    model.graph.initializer.extend([tensor, FLOATS])
    model.metadata_props.add(key="k", value='a "b"')
    return model


@pytest.mark.parametrize("ending", [".onnxtxt", ".json", ".textproto", ".TEXTPROTO"])
def test_text_formats_hold_the_whole_model(tmp_path, ending):
    model = onnx_text_sample()
    write_model(open_model(save(model, tmp_path / "a.onnx")), tmp_path / f"b{ending}")
    write_model(open_model(tmp_path / f"b{ending}"), tmp_path / "c.onnx")
    again = onnx.load(tmp_path / "c.onnx")
    for one, other in zip(model.graph.initializer, again.graph.initializer, strict=True):
        assert numpy_helper.to_array(one).tobytes() == numpy_helper.to_array(other).tobytes()
        other.CopyFrom(one)
    assert again == model or ending == ".onnxtxt"
    model.graph.node[0].domain = again.graph.node[0].domain = ""  # The same as not set.
    assert again.graph.node == model.graph.node and again.metadata_props == model.metadata_props


def test_json_and_textproto_are_those_of_protobuf(tmp_path):
    model = sample()
    for ending, load in (("json", "json"), ("textproto", "textproto")):
        write_model(ModelFile(model), tmp_path / f"a.{ending}")
        assert onnx.load(tmp_path / f"a.{ending}", format=load) == model


@pytest.mark.parametrize(
    ("ending", "edit", "lost"),
    [
        (".onnxtxt", lambda m: setattr(m.graph.node[0], "doc_string", "why"), r"graph.node\[0\].doc_string"),
        (".onnxtxt", lambda m: m.graph.initializer[0].metadata_props.add(key="k"), r"initializer\[0\].metadata_props"),
        (".onnxtxt", lambda m: m.graph.node[0].attribute.add(name="odd"), "onnxtxt"),
        (".onnxtxt", lambda m: m.MergeFromString(b"\xfa\x7d\x03new"), "unknown to"),
        (".onnxtxt", lambda m: m.graph.initializer[0].MergeFromString(b"\xfa\x7d\x03new"), r"initializer\[0\] in part"),
        (".json", lambda m: m.graph.MergeFromString(b"\xfa\x7d\x03new"), "graph in part, unknown to"),
        (".textproto", lambda m: m.graph.node[0].MergeFromString(b"\xfa\x7d\x03new"), "textproto"),
    ],
)
def test_text_that_would_lose_something_is_not_written(tmp_path, ending, edit, lost):
    model = onnx_text_sample()
    edit(model)
    with pytest.raises(ModelFileError, match=lost):
        write_model(ModelFile(model), tmp_path / f"a{ending}")
    assert files(tmp_path) == set()


def test_deep_onnx_text_is_refused_instead_of_ending_the_process():
    text = "seq(" * 100_000
    with pytest.raises(ModelFileError, match="nested more than"):
        textformats.from_text(f'<ir_version: 8, opset_import: ["": 18]> g ({text}', ".onnxtxt")


# Streams


def test_a_pipe_that_has_a_path(tmp_path):
    """As `<(command)` in a shell."""
    data = small().SerializeToString()
    os.mkfifo(tmp_path / "a.onnx")
    writer = threading.Thread(target=(tmp_path / "a.onnx").write_bytes, args=[data])
    writer.start()
    file = open_model(tmp_path / "a.onnx")
    writer.join()
    write_model(file, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == data


def test_standard_input_and_output(tmp_path):
    model = sample()
    program = (
        "from relu_tools.modelfile import open_model; from relu_tools.writing import write_model;"
        "f = open_model('-'); f.model.producer_name = 'p'; write_model(f, '-')"
    )
    data = model.SerializeToString()
    model.producer_name = "p"
    environment = {**os.environ, "PYTHONPATH": str(Path(modelfile.__file__).parents[1])}
    command = [sys.executable, "-c", program]
    piped = subprocess.run(command, input=data, capture_output=True, check=True, env=environment)
    assert piped.stdout == model.SerializeToString()
    save(data, tmp_path / "a.onnx")
    with open(tmp_path / "a.onnx", "rb") as stdin, open(tmp_path / "b.onnx", "wb") as stdout:
        subprocess.run(command, stdin=stdin, stdout=stdout, check=True, env=environment)
    assert (tmp_path / "b.onnx").read_bytes() == model.SerializeToString()


def test_binary_streams():
    file = open_model(io.BytesIO(sample().SerializeToString()))
    assert file.path is None and file.whole() == sample()


def test_a_closed_standard_output_is_a_sentence(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as raw:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw))
        with pytest.raises(ModelFileError, match="cannot write to standard output: Broken pipe"):
            write_model(ModelFile(small()), "-")


def test_a_model_in_memory_needs_no_file(tmp_path):
    file = ModelFile(sample())
    assert file.tensor(file.model.graph.initializer[0]) is file.model.graph.initializer[0]
    write_model(file, tmp_path / "a.onnx")
    assert onnx.load(tmp_path / "a.onnx") == sample()


# Writing


def test_an_existing_file_is_overwritten_only_when_told(tmp_path):
    target = save(b"precious", tmp_path / "b.onnx")
    target.chmod(0o640)
    file = ModelFile(small())
    with pytest.raises(ModelFileError, match="b.onnx exists; --force overwrites it"):
        write_model(file, target)
    assert target.read_bytes() == b"precious"
    write_model(file, target, overwrite=True)
    assert onnx.load(target) == small() and target.stat().st_mode & 0o777 == 0o640 and files(tmp_path) == {"b.onnx"}


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    write_model(ModelFile(small()), tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_source_and_target_may_be_one_file(tmp_path):
    model = sample()
    file = open_model(save(model, tmp_path / "a.onnx"))
    file.model.producer_name = model.producer_name = "p"
    write_model(file, tmp_path / "a.onnx", overwrite=True)
    write_model(file, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes() == model.SerializeToString()


def test_a_link_as_target_stays_a_link(tmp_path):
    save(b"old", tmp_path / "real.onnx")
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    write_model(ModelFile(small()), tmp_path / "link.onnx", overwrite=True)
    assert (tmp_path / "link.onnx").is_symlink() and onnx.load(tmp_path / "real.onnx") == small()


def test_a_device_is_written_to_and_stays():
    write_model(ModelFile(small()), os.devnull)
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("at", ["_read", "replace"])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, failure, at):
    def fail(*_):
        raise failure

    file = open_model(save(sample(), tmp_path / "a.onnx"))
    file.model.producer_name = "p"
    save(b"old", tmp_path / "b.onnx")
    monkeypatch.setattr(filling if at == "_read" else os, at, fail)
    expected = (KeyboardInterrupt, None) if failure is KeyboardInterrupt else (ModelFileError, "b.onnx: No space left")
    with pytest.raises(expected[0], match=expected[1]):
        write_model(file, tmp_path / "b.onnx", overwrite=True)
    assert (tmp_path / "b.onnx").read_bytes() == b"old" and files(tmp_path) == {"a.onnx", "b.onnx"}


@pytest.mark.parametrize("target", ["nowhere/b.onnx", "folder", "a.onnx/b.onnx"])
def test_targets_that_cannot_be(tmp_path, target):
    save(small(), tmp_path / "a.onnx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelFileError, match="cannot write") as caught:
        write_model(ModelFile(small()), tmp_path / target, overwrite=True)
    assert "\n" not in str(caught.value) and files(tmp_path) == {"a.onnx"}


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ModelFileError, match="Permission denied"):
        write_model(ModelFile(small()), tmp_path / "b.onnx")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("change", ["append", "truncate", "rewrite", "remove", "replace"])
def test_a_source_that_changed_is_not_copied_from(tmp_path, change):
    path = save(sample(), tmp_path / "a.onnx")
    file = open_model(path)
    file.model.producer_name = "p"
    size = path.stat().st_size
    if change == "append":
        with open(path, "ab") as out:
            out.write(b"\0")
    elif change == "truncate":
        os.truncate(path, size // 2)
    elif change == "rewrite":
        time.sleep(0.02)
        with open(path, "r+b") as out:
            out.write(b"\x08")
    elif change == "remove":
        path.unlink()
    else:
        os.replace(save(sample(), tmp_path / "c.onnx"), path)
    with pytest.raises(ModelFileError, match="since it was opened"):
        write_model(file, tmp_path / "b.onnx")
    with pytest.raises(ModelFileError, match="since it was opened"):
        file.tensor(file.model.graph.initializer[0])
    assert not (tmp_path / "b.onnx").exists()


# External data


def externalized(folder: Path, location: str = "data/w.bin", array=None, **entries: object) -> Path:
    """A model whose weight has its data in a file."""
    array = np.arange(500, dtype=np.float32) if array is None else array
    model = small()
    tensor = numpy_helper.from_array(array, "weight")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, "offset": 64, "length": array.nbytes, **entries}.items():
        if text is not None:
            tensor.external_data.add(key=key, value=str(text))
    model.graph.initializer.append(tensor)
    folder.mkdir(exist_ok=True)
    if location == "data/w.bin":
        (folder / "data").mkdir()
        (folder / location).write_bytes(b"\0" * 64 + array.tobytes() + b"tail")
    return save(model, folder / "a.onnx")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "int4", "float8_e4m3fn", "bool"])
def test_external_data_is_read_as_its_type(tmp_path, dtype):
    import ml_dtypes

    array = np.array([0, 1, 1, 0, 1]).astype(getattr(ml_dtypes, dtype, dtype))
    whole = numpy_helper.from_array(array, "weight")
    data = np.frombuffer(whole.raw_data, np.uint8)
    path = externalized(tmp_path / "m", array=data, length=None)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].data_type, model.graph.initializer[0].dims[:] = whole.data_type, [5]
    file = open_model(save(model, path))
    assert file.tensor(file.model.graph.initializer[0]) == whole


def test_external_data_in_the_same_folder_is_referenced(tmp_path):
    path = externalized(tmp_path / "m")
    before = files(tmp_path)
    write_model(open_model(path), tmp_path / "m" / "b.onnx")
    assert files(tmp_path) == before | {"m/b.onnx"}
    assert onnx.load(tmp_path / "m" / "b.onnx") == onnx.load(path)


def test_external_data_is_copied_to_another_folder(tmp_path):
    path = externalized(tmp_path / "m")
    (tmp_path / "out").mkdir()
    write_model(open_model(path), tmp_path / "out" / "b.onnx")
    assert files(tmp_path / "out") == {"b.onnx", "data/w.bin"}
    assert (tmp_path / "out/data/w.bin").read_bytes() == (tmp_path / "m/data/w.bin").read_bytes()
    assert onnx.load(tmp_path / "out" / "b.onnx") == onnx.load(path)

    (tmp_path / "out/b.onnx").unlink()
    write_model(open_model(path), tmp_path / "out" / "b.onnx")  # The data there is the same.
    (tmp_path / "out/b.onnx").unlink()
    (tmp_path / "out/data/w.bin").write_bytes(b"other")
    with pytest.raises(ModelFileError, match="w.bin, for the data of 'weight', exists"):
        write_model(open_model(path), tmp_path / "out" / "b.onnx")
    assert files(tmp_path / "out") == {"data/w.bin"} and (tmp_path / "out/data/w.bin").read_bytes() == b"other"
    write_model(open_model(path), tmp_path / "out" / "b.onnx", overwrite=True)
    assert onnx.load(tmp_path / "out" / "b.onnx") == onnx.load(path)


def test_a_failed_copy_leaves_no_folder(tmp_path, monkeypatch):
    file = open_model(externalized(tmp_path / "m"))
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(writing, "fill", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_model(file, tmp_path / "out" / "b.onnx")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_model_is_not_written_over_its_data(tmp_path):
    path = externalized(tmp_path / "m")
    data = (tmp_path / "m/data/w.bin").read_bytes()
    (tmp_path / "m/w.onnx").symlink_to("data/w.bin")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "w.onnx"
    with pytest.raises(ModelFileError, match="'weight' keeps its data there"):
        write_model(open_model(save(model, path)), tmp_path / "m" / "w.onnx", overwrite=True)
    (tmp_path / "alias.onnx").symlink_to("m/data/w.bin")
    with pytest.raises(ModelFileError, match="'weight' keeps its data there"):
        write_model(open_model(path), tmp_path / "alias.onnx", overwrite=True)
    assert (tmp_path / "m/data/w.bin").read_bytes() == data


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/etc/passwd", "outside the folder"),
        ("../secret", "outside the folder"),
        ("data/../../secret", "outside the folder"),
        ("..\\secret", "outside the folder"),
        ("C:\\secret", "outside the folder"),
        ("link", "link out of the folder"),
        ("linked/secret", "link out of the folder"),
        ("pipe", "not a regular file"),
        (".", "no location"),
        ("", "no location"),
        ("nul\0", "no location"),
        ("folder", "not a regular file"),
    ],
)
def test_hostile_locations(tmp_path, location, why):
    path = externalized(tmp_path / "m", location)
    (tmp_path / "secret").write_bytes(b"\0" * 5000)
    (tmp_path / "m/link").symlink_to("../secret")
    (tmp_path / "m/linked").symlink_to("..")
    (tmp_path / "m/folder").mkdir()
    os.mkfifo(tmp_path / "m/pipe")
    (tmp_path / "out").mkdir()
    file = open_model(path)
    with pytest.raises(ModelFileError, match=f"'weight'.*{why}"):
        file.tensor(file.model.graph.initializer[0])
    for target in ("m/b.onnx", "out/b.onnx"):
        with pytest.raises(ModelFileError, match=f"'weight'.*{why}"):
            write_model(file, tmp_path / target)
    assert not (tmp_path / "m/b.onnx").exists() and files(tmp_path / "out") == set()


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"offset": -1}, "offset .* '-1', not a number"),
        ({"offset": "٣"}, "not a number"),
        ({"offset": 2**63}, "lie outside"),
        ({"offset": 69}, "lie outside"),
        ({"length": 2**40}, "has 1099511627776 bytes where its shape takes 2000"),
        ({"length": 1999}, "has 1999 bytes"),
    ],
)
def test_hostile_extents(tmp_path, entries, why):
    file = open_model(externalized(tmp_path / "m", **entries))
    with pytest.raises(ModelFileError, match=f"'weight'.*{why}"):
        file.tensor(file.model.graph.initializer[0])


def test_missing_data_matters_when_it_is_needed(tmp_path):
    path = externalized(tmp_path / "m")
    (tmp_path / "m/data/w.bin").unlink()
    file = open_model(path)
    write_model(file, tmp_path / "m/b.onnx")
    with pytest.raises(ModelFileError, match="'weight'.*missing"):
        file.tensor(file.model.graph.initializer[0])
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelFileError, match="'weight'.*missing"):
        write_model(file, tmp_path / "out/b.onnx")
    assert files(tmp_path / "out") == set()


def test_external_data_of_a_model_without_a_folder(tmp_path):
    path = externalized(tmp_path / "m")
    model = onnx.load(path, load_external_data=False)
    for file in (ModelFile(model), open_model(io.BytesIO(model.SerializeToString()))):
        with pytest.raises(ModelFileError, match="'weight'.*folder of the model is unknown"):
            file.tensor(model.graph.initializer[0])
        with pytest.raises(ModelFileError, match="'weight'.*folder of the model is unknown"):
            write_model(file, tmp_path / "b.onnx")
    known = open_model(io.BytesIO(model.SerializeToString()), base=tmp_path / "m")
    assert numpy_helper.to_array(known.tensor(model.graph.initializer[0])).tolist() == list(range(500))


def test_external_tensors_are_found_wherever_they_are():
    tensor = TensorProto(name="t", data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    model = sample()
    model.graph.node[0].attribute[0].g.node[0].attribute[0].t.CopyFrom(tensor)
    model.functions[0].node[0].attribute[0].t.CopyFrom(tensor)
    model.graph.node[2].attribute[0].tensors[1].CopyFrom(tensor)
    model.graph.sparse_initializer[0].indices.CopyFrom(tensor)
    assert external.external_tensors(model) == [tensor] * 4


# What is no model


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model.onnx", small().SerializeToString())
    return buffer.getvalue()


def nested(levels: int) -> bytes:
    graph = b"\x12\x01g" + b"\x62" + wire.encode(2000) + b"x" * 2000
    for _ in range(levels):
        attribute = b"\x32" + wire.encode(len(graph)) + graph
        node = b"\x2a" + wire.encode(len(attribute)) + attribute
        graph = b"\x0a" + wire.encode(len(node)) + node
    return b"\x3a" + wire.encode(len(graph)) + graph


LARGEST = b"\xff" * 8 + b"\x7f"
HOSTILE = {
    "empty": (b"", "it is empty"),
    "text": (b"Dear reader,\nthis is not a model.\n", "it is text"),
    "zip": (zipped(), "a zip archive"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 1, 1), "a PNG image"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
    "no graph": (onnx.ModelProto(ir_version=8).SerializeToString(), "it has no graph"),
    "a tensor": (TensorProto(name="t", raw_data=b"x").SerializeToString(), "not an ONNX model"),
    "truncated": (sample().SerializeToString()[:-500], "damaged"),
    "truncated in a tag": (b"\x08\x08\xfa", "damaged"),
    "length 2^63": (b"\x08\x08\x3a" + b"\x80" * 9 + b"\x01", "runs past the end"),
    "length 2^63 - 1": (b"\x08\x08\x3a" + LARGEST, "runs past the end"),
    "varint of 11 bytes": (b"\x08" + b"\xff" * 10 + b"\x01", "has no end"),
    "varint without end": (b"\x08" + b"\xff" * 3, "has no end"),
    "group": (b"\x08\x08\x13\x14", "group"),
    "end of group": (b"\x08\x08\x14", "group"),
    "field 0": (b"\x08\x08\x00\x00", "damaged"),
    "wire type 7": (b"\x08\x08\x17", "damaged"),
    "deep": (nested(70), "nested more than 200"),
    "deeper": (nested(5000), "nested more than 200"),
    "no UTF-8": (small().SerializeToString().replace(b"Relu", b"R\xff\xfeu"), "UTF-8"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_model_is_refused_in_a_sentence(tmp_path, case):
    data, why = HOSTILE[case]
    with pytest.raises(ModelFileError, match=why) as caught:
        open_model(save(data, tmp_path / "a.onnx"))
    assert "a.onnx" in str(caught.value) and "\n" not in str(caught.value)


def test_as_deep_as_protobuf_reads(tmp_path):
    """33 graphs within graphs are 100 messages."""
    data = nested(32)
    assert open_model(save(data, tmp_path / "a.onnx")).whole() == onnx.ModelProto.FromString(data)


@pytest.mark.parametrize("ending", textformats.FORMATS)
@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"hello", b"{" * 100_000, b"[" * 100_000, b"graph {" * 5000])
def test_bad_text_is_refused_in_a_sentence(tmp_path, ending, text):
    with pytest.raises(ModelFileError) as caught:
        open_model(save(text, tmp_path / f"a{ending}"))
    assert f"a{ending}" in str(caught.value) and "\n" not in str(caught.value)


def test_paths_that_cannot_be_read(tmp_path):
    for path, why in ((tmp_path / "no.onnx", "No such file"), (tmp_path, "Is a directory"), (os.devnull, "a device")):
        with pytest.raises(ModelFileError, match=why):
            open_model(path)


def test_damage_is_an_error_or_what_protobuf_says(tmp_path):
    original = sample().SerializeToString()
    payloads = wire.take_out(original, b"0" * 16)[1]
    inside = {i for start, size in payloads for i in range(start, start + size)}
    structure = [i for i in range(len(original)) if i not in inside]
    chance = random.Random(7)
    outcomes = set()
    for _ in range(300):
        data = bytearray(original)
        for _ in range(chance.choice([1, 1, 3])):
            data[chance.choice(structure)] = chance.choice([0, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        if chance.random() < 0.2:
            del data[chance.choice(structure) :]
        path = save(bytes(data), tmp_path / "a.onnx")
        try:
            expected = onnx.ModelProto.FromString(bytes(data))
        except Exception:
            expected = None
        try:
            file = open_model(path)
        except ModelFileError as error:
            outcomes.add("refused")
            clauses = ("UTF-8", "group", "no graph")
            assert expected is None or any(clause in str(error) for clause in clauses)
            continue
        outcomes.add("read")
        assert expected is not None and file.whole().SerializeToString() == expected.SerializeToString()
        write_model(file, tmp_path / "b.onnx", overwrite=True)
        assert (tmp_path / "b.onnx").read_bytes() == data
    assert outcomes == {"refused", "read"}
