"""Random damage and random models: what is read is what protobuf reads, and all ends in a result or an error."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scramble import scrambled
from test_onnx_cases import STRIDE, cases

import relu_tools
from relu_tools import wire
from relu_tools.modelfile import open_model
from relu_tools.report import ConversionError, ModelFileError
from relu_tools.writing import write_model

MODELS = sorted((Path(__file__).parents[1] / "models").glob("*.onnx"))
EVIL = [0, 1, 0x7F, 0x80, 0xFF]


def damaged(original: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three changes: a byte, a piece left out, put in, repeated, or the end cut off."""
    data = bytearray(original)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at, size = chance.randrange(len(data)), chance.choice([1, 2, 8, 100])
        match chance.randrange(6):
            case 0 | 1:
                data[at] = chance.choice([*EVIL, chance.randrange(256)])
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = bytes(chance.choice(EVIL) for _ in range(size))
            case 4:
                data[at:at] = data[at : at + size]
            case 5:
                del data[chance.randrange(len(data)) :]
        if not data:
            break
    return bytes(data)


def agrees(data: bytes, folder: Path) -> str:
    """Holds the reader to what protobuf says about the bytes, and the converter to a result or an error."""
    path = folder / "a.onnx"
    path.write_bytes(data)
    try:
        expected = onnx.ModelProto.FromString(data)
    except Exception:
        expected = None
    try:
        file = open_model(path)
    except ModelFileError as error:
        # Protobuf lets through what proto3 forbids and what ONNX has not.
        assert expected is None or any(clause in str(error) for clause in ("UTF-8", "group", "no graph", "is empty"))
        return "refused"
    assert expected is not None and file.whole().SerializeToString() == expected.SerializeToString()
    write_model(file, folder / "b.onnx", overwrite=True)
    assert (folder / "b.onnx").read_bytes() == data
    file.model.producer_name = expected.producer_name = "another"
    write_model(file, folder / "c.onnx", overwrite=True)
    assert onnx.ModelProto.FromString((folder / "c.onnx").read_bytes()) == expected
    try:
        relu_tools.convert(path, 9, verify="off").save(folder / "d.onnx", overwrite=True)
    except (ModelFileError, ConversionError, ValueError) as error:
        assert str(error)
        return "not converted"
    return "converted"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_damaged_files(tmp_path, path):
    chance = random.Random(path.stem)
    original = path.read_bytes()
    if len(original) > 20_000:
        # Most of it is weights, whose bytes are like any others.
        skeleton, _ = wire.take_out(original, b"0" * 16)
        original = skeleton.replace(b"~weight~", b"whatever")
    outcomes = {agrees(damaged(original, chance), tmp_path) for _ in range(150)}
    assert outcomes >= {"refused", "not converted"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_more_damaged_files(tmp_path, path, seed):
    chance = random.Random(f"{path.stem} {seed}")
    original = path.read_bytes()
    for _ in range(300):
        agrees(damaged(original, chance), tmp_path)


# --- the cases of the installed onnx -----------------------------------------------------------
def round_trips(name: str, model: onnx.ModelProto, folder: Path) -> None:
    data = model.SerializeToString()
    (folder / "a.onnx").write_bytes(data)
    file = open_model(folder / "a.onnx")
    assert file.whole() == model, name
    write_model(file, folder / "b.onnx", overwrite=True)
    assert (folder / "b.onnx").read_bytes() == data, name
    file.model.producer_name = model.producer_name = "another"
    write_model(file, folder / "b.onnx", overwrite=True)
    assert (folder / "b.onnx").read_bytes() == model.SerializeToString(), name
    other = scrambled(data, random.Random(name))
    (folder / "a.onnx").write_bytes(other)
    write_model(open_model(folder / "a.onnx"), folder / "b.onnx", overwrite=True)
    assert (folder / "b.onnx").read_bytes() == other, name


def test_cases_come_out_as_they_went_in(tmp_path):
    for name, model, _ in cases()[::STRIDE]:
        round_trips(name, model, tmp_path)


@pytest.mark.slow
def test_all_cases_come_out_as_they_went_in(tmp_path):
    for name, model, _ in cases():
        round_trips(name, model, tmp_path)


# --- random models -----------------------------------------------------------------------------
UNARY = [
    "Relu",
    "Softmax",
    "Abs",
    "Neg",
    "Identity",
    "Sigmoid",
    "Elu",
    "LeakyRelu",
    "Flatten",
    "Dropout",
    "Shape",
    "Cast",
]
BINARY = ["Add", "Mul", "Max", "Pow", "Clip", "MatMul", "Reshape", "ReduceSum", "Squeeze", "Gather", "Concat", "Gemm"]


@st.composite
def models(draw) -> onnx.ModelProto:
    """Nodes that read any values before them, valid or not, with branches that read from around them."""
    names = ["x", "w", "k"]
    counter = iter(range(10_000))

    def graph(depth: int) -> list[onnx.NodeProto]:
        nodes = []
        for _ in range(draw(st.integers(1, 4))):
            op = draw(st.sampled_from([*UNARY, *BINARY, *(["If"] * (depth < 2))]))
            output = f"v{next(counter)}"
            if op == "If":
                outer = len(names)
                branches = {}
                for name in ("then_branch", "else_branch"):
                    inner = graph(depth + 1)
                    info = helper.make_tensor_value_info(inner[-1].output[0], TensorProto.FLOAT, None)
                    branches[name] = helper.make_graph(inner, name, [], [info])
                    del names[outer:]
                node = helper.make_node(op, ["c"], [output], **branches)
            else:
                inputs = [draw(st.sampled_from(names)) for _ in range(1 if op in UNARY else 2)]
                node = helper.make_node(op, inputs, [output])
                for name in draw(st.sets(st.sampled_from(["axis", "to", "alpha", "keepdims", "axes"]), max_size=2)):
                    value = {"alpha": 0.5, "axes": [0]}.get(name, draw(st.integers(-2, 3)))
                    node.attribute.append(helper.make_attribute(name, value))
            nodes.append(node)
            names.append(output)
        return nodes

    nodes = graph(0)
    kind = draw(st.sampled_from([TensorProto.FLOAT, TensorProto.INT8, TensorProto.BFLOAT16]))
    shape = draw(st.sampled_from([None, [2, 3], ["N", 3], []]))
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)],
        [
            numpy_helper.from_array(np.arange(3), "k"),
            TensorProto(
                name="w",
                data_type=kind,
                dims=[400],
                raw_data=bytes(1600 // (4 if kind == 3 else 2 if kind == 16 else 1)),
            ),
        ],
    )
    version = draw(st.integers(6, 21))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", version)], ir_version=9)


@hypothesis.given(models(), st.integers(6, 21), st.randoms(use_true_random=False))
@hypothesis.settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_random_models(tmp_path_factory, model, target, chance):
    folder = tmp_path_factory.mktemp("fuzz")
    data = scrambled(model.SerializeToString(), chance)
    path = folder / "a.onnx"
    path.write_bytes(data)
    written = []
    for name in ("b.onnx", "c.onnx"):
        try:
            conversion = relu_tools.convert(path, target, ir_version="keep", verify="off")
        except (ConversionError, ModelFileError) as error:
            assert getattr(error, "refusals", None) or "malformed" in str(error)
            return
        conversion.save(folder / name)
        written.append((folder / name).read_bytes())
    assert written[0] == written[1]
    assert path.read_bytes() == data
    if target == model.opset_import[0].version:
        assert written[0] == data
    elif not conversion.report.changes:
        # The graph is as it was, byte for byte.
        [graph] = [data[start:end] for tag, _, start, end in wire.fields(data, 0, len(data)) if tag == 0x3A]
        assert graph in written[0]
