"""External data is kept, copied, taken in or gathered into one file, and is the same data wherever it went."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_cli import run, sentence

import relu_tools
from relu_tools.external import external_tensors
from relu_tools.modelfile import open_model
from relu_tools.report import ModelFileError
from relu_tools.writing import write_model

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DATA = np.random.default_rng(0)


def external(name: str, array: np.ndarray, location: str, offset: int | None = None, **entries: str) -> TensorProto:
    tensor = numpy_helper.from_array(array, name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def numbers(*shape: int) -> np.ndarray:
    return DATA.standard_normal(shape, dtype=np.float32)


SHARED, FIRST, SECOND, INNER, TYPED, SMALL = (
    numbers(20, 20),
    numbers(700),
    numbers(20),
    numbers(20),
    numbers(300),
    numbers(3),
)


def model(folder: Path) -> Path:
    """Weights in two data files, some read by two tensors, in a branch, a Constant and a function; and inside."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "one.bin").write_bytes(b"\0" * 4096 + SHARED.tobytes() + b"\1" * 100 + FIRST.tobytes())
    (folder / "sub/two.bin").write_bytes(SECOND.tobytes() + INNER.tobytes())
    later = 4096 + SHARED.nbytes + 100
    size = {"length": str(SHARED.nbytes)}
    weights = [
        external("a", SHARED, "one.bin", 4096, **size),
        external("b", SHARED, "one.bin", 4096, **size),
        external("c", FIRST, "one.bin", later, checksum="0" * 40),
        external("d", SECOND, "sub/two.bin"),
        helper.make_tensor("typed", FLOAT, [300], TYPED),
        numpy_helper.from_array(FIRST * 2, "raw"),
        numpy_helper.from_array(SMALL, "small"),
        numpy_helper.from_array(np.arange(200) + 1, "shape of many"),
    ]
    branch = helper.make_graph(
        [helper.make_node("Add", ["y", "inner"], ["branched"])],
        "branch",
        [],
        [helper.make_tensor_value_info("branched", FLOAT, [20])],
        [external("inner", INNER, "sub/two.bin", 80)],
    )
    function = helper.make_function(
        "own",
        "F",
        ["p"],
        ["q"],
        [
            helper.make_node("Constant", [], ["k"], value=external("", SECOND, "sub/two.bin")),
            helper.make_node("Mul", ["p", "k"], ["q"]),
        ],
        [helper.make_opsetid("", 14)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["xa", "b"], ["xb"]),
        helper.make_node("F", ["xb"], ["y"], domain="own"),
        helper.make_node("If", ["go"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("ReduceSum", ["c"], ["sum c"], keepdims=0),
        helper.make_node("ReduceSum", ["typed"], ["sum typed"], keepdims=0),
        helper.make_node("ReduceSum", ["raw"], ["sum raw"], keepdims=0),
        helper.make_node("ReduceSum", ["small"], ["sum small"], keepdims=0),
        helper.make_node("ReduceSum", ["shape of many"], ["sum shape"], keepdims=0),
        helper.make_node("Cast", ["sum shape"], ["sum float"], to=FLOAT),
        helper.make_node("Sum", ["z", "d", "sum c", "sum typed", "sum raw", "sum small", "sum float"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [20]), helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("out", FLOAT, [20])],
        weights,
    )
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8)
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def outputs(path: Path) -> bytes:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.arange(20, dtype=np.float32), "go": np.array(True)})[0].tobytes()


def places(path: Path) -> dict[str, tuple[str, int]]:
    """File and offset of each external tensor, by name."""
    found = {}
    for tensor in external_tensors(onnx.load(path, load_external_data=False)):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        found[tensor.name] = entries["location"], int(entries.get("offset", 0))
    return found


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def convert(source: Path, target: Path, *more: object):
    return run("convert", source, "--opset", 13, "--verify", "off", "-o", target, *more)


@pytest.mark.parametrize(
    ("how", "target", "data"),
    [
        (None, "m/new.onnx", set()),
        (None, "out/new.onnx", {"out/one.bin", "out/sub/two.bin"}),
        ("keep", "m/new.onnx", set()),
        ("copy", "m/new.onnx", {"m/new.one.bin", "m/sub/new.two.bin"}),
        ("copy", "out/new.onnx", {"out/one.bin", "out/sub/two.bin"}),
        ("embed", "m/new.onnx", set()),
        ("embed", "out/new.onnx", set()),
        ("w.data", "m/new.onnx", {"m/w.data"}),
        ("w.data", "out/new.onnx", {"out/w.data"}),
        ("deep/er/w.data", "out/new.onnx", {"out/deep/er/w.data"}),
    ],
)
def test_the_data_is_the_same_wherever_it_went(tmp_path, how, target, data):
    source = model(tmp_path / "m")
    (tmp_path / "out").mkdir()
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    result = convert(source, tmp_path / target, *(() if how is None else ("--external-data", how)))
    assert result.exit_code == 0, result.stderr
    assert files(tmp_path) == before.keys() | {target} | data
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())
    assert outputs(tmp_path / target) == outputs(source)


def test_whole_files_are_copied_with_what_shares_them(tmp_path):
    source = model(tmp_path / "m")
    (tmp_path / "out").mkdir()
    convert(source, tmp_path / "out/net.onnx")
    assert places(tmp_path / "out/net.onnx") == places(source)
    for name in ("one.bin", "sub/two.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "m" / name).read_bytes()


def test_keep_does_not_part_a_model_from_its_data(tmp_path):
    source = model(tmp_path / "m")
    (tmp_path / "out").mkdir()
    for _ in range(2):
        result = convert(source, tmp_path / "out/net.onnx", "--external-data", "keep")
        assert result.exit_code == 2 and "--external-data copy" in result.stderr
        assert not (tmp_path / "out/net.onnx").exists()
        (tmp_path / "out/sub").mkdir(exist_ok=True)
        for name in ("one.bin", "sub/two.bin"):
            (tmp_path / "out" / name).write_bytes(b"another")


def test_keep_copies_nothing_and_says_the_same_places(tmp_path):
    source = model(tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "out")
    (tmp_path / "out/net.onnx").unlink()
    before = files(tmp_path / "out")
    assert convert(source, tmp_path / "out/net.onnx", "--external-data", "keep").exit_code == 0
    assert files(tmp_path / "out") == before | {"net.onnx"} and places(tmp_path / "out/net.onnx") == places(source)


def test_one_file_is_aligned_and_shares_what_was_shared(tmp_path):
    source = model(tmp_path / "m")
    assert convert(source, tmp_path / "m/new.onnx", "--external-data", "w.data").exit_code == 0
    found = places(tmp_path / "m/new.onnx")
    assert {location for location, _ in found.values()} == {"w.data"}
    assert found.keys() == {"a", "b", "c", "d", "inner", "", "typed", "raw"}
    assert found["a"] == found["b"] and found["d"] == found[""]
    offsets = sorted({offset for _, offset in found.values()})
    assert len(offsets) == 6 and all(offset % 4096 == 0 for offset in offsets)
    data = (tmp_path / "m/w.data").read_bytes()
    for name, array in {"a": SHARED, "c": FIRST, "d": SECOND, "inner": INNER, "typed": TYPED, "raw": FIRST * 2}.items():
        assert data[found[name][1] :].startswith(array.tobytes())


def test_embedded_tensors_are_raw_data(tmp_path):
    source = model(tmp_path / "m")
    convert(source, tmp_path / "m/new.onnx", "--external-data", "embed")
    tensors = {t.name: t for t in onnx.load(tmp_path / "m/new.onnx", load_external_data=False).graph.initializer}
    assert tensors["a"].raw_data == tensors["b"].raw_data == SHARED.tobytes()
    assert not any(t.external_data or t.HasField("data_location") for t in tensors.values())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint16", "bool", "complex64", "float64"])
def test_typed_elements_become_raw_data_in_a_file(tmp_path, dtype):
    import ml_dtypes

    array = np.arange(3000).astype(getattr(ml_dtypes, dtype, dtype)).reshape(3, 1000)
    kind = numpy_helper.from_array(array).data_type
    tensor = helper.make_tensor("w", kind, array.shape, array.flatten())
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", kind, array.shape)],
        [tensor],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    relu_tools.convert(proto, 24, verify="off").save(tmp_path / "a.onnx", external_data="w.bin")
    again = onnx.load(tmp_path / "a.onnx").graph.initializer[0]
    assert (tmp_path / "w.bin").read_bytes() == numpy_helper.from_array(array).raw_data
    assert numpy_helper.to_array(again).tobytes() == array.tobytes()


def test_a_gathered_file_can_be_the_input_again(tmp_path):
    source = model(tmp_path / "m")
    convert(source, tmp_path / "m/new.onnx", "--external-data", "w.data")
    result = run("convert", tmp_path / "m/new.onnx", "--opset", 12, "--in-place", "--verify", "off")
    assert result.exit_code == 0 and outputs(tmp_path / "m/new.onnx") == outputs(source)


def test_what_is_said_of_the_old_file_is_not_said_of_the_new_one(tmp_path):
    source = model(tmp_path / "m")
    proto = onnx.load(source, load_external_data=False)
    said = [t for t in external_tensors(proto) if t.name]
    for tensor in said:
        tensor.external_data.add(key="checksum", value="0" * 40)
        tensor.external_data.add(key="own", value="kept")
    source.write_bytes(proto.SerializeToString())
    convert(source, tmp_path / "m/new.onnx", "--external-data", "w.data")
    after = external_tensors(onnx.load(tmp_path / "m/new.onnx", load_external_data=False))
    keys = [{entry.key for entry in tensor.external_data} for tensor in after]
    assert said and sum("own" in found for found in keys) == len(said) and not any("checksum" in k for k in keys)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../w.data", "no name for a data file"),
        ("/tmp/w.data", "no name for a data file"),
        ("a/../../w.data", "no name for a data file"),
        ("C:\\w.data", "no name for a data file"),
        (".", "no name for a data file"),
        ("new.onnx", "its data is to be there"),
        ("sub", "no regular file"),
        ("link", "link out of the folder"),
        ("one.bin", "exists"),
    ],
)
def test_names_that_no_data_file_can_have(tmp_path, name, why):
    source = model(tmp_path / "m")
    (tmp_path / "m/link").symlink_to("../elsewhere")
    before = files(tmp_path)
    result = convert(source, tmp_path / "m/new.onnx", "--external-data", name)
    assert result.exit_code == 2 and why in sentence(result.stderr)
    assert files(tmp_path) == before


def test_the_data_that_is_read_is_never_written_over(tmp_path):
    source = model(tmp_path / "m")
    before = (tmp_path / "m/one.bin").read_bytes()
    for target in ("new.onnx", "net.onnx"):
        result = convert(source, tmp_path / "m" / target, "--external-data", "one.bin", "--force")
        assert result.exit_code == 2 and "the model that is read keeps its data there" in sentence(result.stderr)
    (tmp_path / "m/net.one.bin").symlink_to("one.bin")
    result = convert(source, tmp_path / "m/net.onnx", "--external-data", "copy", "--force")
    assert result.exit_code == 2 and "take the place of one.bin" in sentence(result.stderr)
    assert (tmp_path / "m/one.bin").read_bytes() == before


def hole(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


def large(folder: Path, weights: int, elements: int) -> Path:
    """MatMul and Relu, time and again, on external weights that are zeros without a place on the disk."""
    folder.mkdir()
    side = int(elements**0.5)
    nodes, tensors, current = [], [], "x"
    for k in range(weights):
        nodes += [
            helper.make_node("MatMul", [current, f"w{k}"], [f"m{k}"]),
            helper.make_node("Relu", [f"m{k}"], [f"r{k}"]),
        ]
        current = f"r{k}"
        tensor = TensorProto(name=f"w{k}", data_type=FLOAT, dims=[side, side], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "w.bin", "offset": k * side * side * 4, "length": side * side * 4}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    infos = [helper.make_tensor_value_info(name, FLOAT, ["N", side]) for name in ("x", current)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    hole(folder / "w.bin", weights * side * side * 4)
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_more_than_a_protobuf_file_holds_is_not_taken_in(tmp_path):
    source = large(tmp_path / "m", 3, 2**28)  # 3 GB
    result = convert(source, tmp_path / "m/new.onnx", "--external-data", "embed")
    assert result.exit_code == 2 and "2 GB" in sentence(result.stderr)
    assert files(tmp_path / "m") == {"net.onnx", "w.bin"}
    result = convert(source, tmp_path / "m/new.onnx")
    assert result.exit_code == 0 and places(tmp_path / "m/new.onnx") == places(source)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["copy", "weights.bin"])
def test_more_than_two_gigabytes_go_out(tmp_path, how):
    source = large(tmp_path / "m", 3, 2**28)
    with open(tmp_path / "m/w.bin", "r+b") as file:
        file.seek(5 << 29)
        file.write(b"within the third")
    assert convert(source, tmp_path / "m/new.onnx", "--external-data", how).exit_code == 0
    [(location, offset)] = [place for name, place in places(tmp_path / "m/new.onnx").items() if name == "w2"]
    with open(tmp_path / "m" / location, "rb") as file:
        file.seek((5 << 29) - (1 << 31) + offset)
        assert file.read(16) == b"within the third"
    assert os.path.getsize(tmp_path / "m" / location) == 3 << 30


def test_a_constant_is_read_from_wherever_it_lies(tmp_path):
    """An adapter asks for the axes of a ReduceSum: in the model, in a data file, or in a Constant's data file."""
    axes = np.array([1])
    (tmp_path / "w.bin").write_bytes(b"\7" * 8 + axes.tobytes())
    results = []
    for nodes, weights in (
        ([], [numpy_helper.from_array(axes, "axes")]),
        ([], [external("axes", axes, "w.bin", 8)]),
        ([helper.make_node("Constant", [], ["axes"], value=external("", axes, "w.bin", 8))], []),
    ):
        graph = helper.make_graph(
            [*nodes, helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum")],
            "g",
            [helper.make_tensor_value_info("x", FLOAT, [2, 3])],
            [helper.make_tensor_value_info("y", FLOAT, [2, 1])],
            weights,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
        converted = relu_tools.convert(tmp_path / "net.onnx", 11).model
        results.append([node for node in converted.graph.node if node.op_type == "ReduceSum"])
    assert results[0] == results[1] == results[2] and results[0][0].attribute[0].ints == [1]


@pytest.mark.parametrize("how", ["keep", "copy", "embed", "w.data", None])
@pytest.mark.parametrize(
    ("key", "value", "why"), [("offset", "999999", "lie outside"), ("offset", "-1", "not a number")]
)
def test_data_outside_its_file_is_refused_by_its_name(tmp_path, how, key, value, why):
    source = model(tmp_path / "m")
    proto = onnx.load(source, load_external_data=False)
    {entry.key: entry for entry in proto.graph.initializer[2].external_data}[key].value = value
    source.write_bytes(proto.SerializeToString())
    before = files(tmp_path)
    result = convert(source, tmp_path / "m/new.onnx", *(("--external-data", how) if how else ()))
    assert result.exit_code == 2 and "tensor 'c'" in sentence(result.stderr) and why in result.stderr
    assert files(tmp_path) == before


def test_standard_output_has_no_folder(tmp_path):
    source = model(tmp_path / "m")
    for how in ("copy", "w.data"):
        result = convert(source, "-", "--external-data", how)
        assert result.exit_code == 2 and "a folder beside it" in sentence(result.stderr)
    result = convert(source, "-", "--external-data", "embed")
    (tmp_path / "new.onnx").write_bytes(result.stdout_bytes)
    assert outputs(tmp_path / "new.onnx") == outputs(source)


def test_the_library_takes_the_same(tmp_path):
    source = model(tmp_path / "m")
    relu_tools.convert(source, 13, verify="off").save(tmp_path / "net.onnx", external_data="embed")
    assert outputs(tmp_path / "net.onnx") == outputs(source) and files(tmp_path) - {"net.onnx"} == {
        "m/net.onnx",
        "m/one.bin",
        "m/sub/two.bin",
    }
    with pytest.raises(ModelFileError, match="exists"):
        write_model(open_model(source), source, external_data="embed")


@pytest.mark.parametrize("ending", [".json", ".textproto"])
@pytest.mark.parametrize("how", ["embed", "w.data"])
def test_text_holds_or_names_the_data(tmp_path, how, ending):
    source = model(tmp_path / "m")
    result = convert(source, tmp_path / f"m/new{ending}", "--external-data", how)
    assert result.exit_code == 0, result.stderr
    assert run("convert", tmp_path / f"m/new{ending}", "--opset", 13, "-o", tmp_path / "m/again.onnx").exit_code == 0
    assert outputs(tmp_path / "m/again.onnx") == outputs(source)


def test_inlining_takes_the_same(tmp_path):
    source = model(tmp_path / "m")
    result = run("inline", source, "--op", "own::F", "--external-data", "w.data", "-o", tmp_path / "m/new.onnx")
    assert result.exit_code == 0, result.stderr
    assert outputs(tmp_path / "m/new.onnx") == outputs(source)
    assert {location for location, _ in places(tmp_path / "m/new.onnx").values()} == {"w.data"}


@pytest.mark.parametrize("order", [("m", "n"), ("n", "m")])
@pytest.mark.parametrize("command", ["verify", "diff"])
def test_missing_data_is_no_verdict(tmp_path, command, order):
    paths = {name: model(tmp_path / name) for name in order}
    (tmp_path / "n/sub/two.bin").unlink()
    result = run(command, *(paths[name] for name in order))
    assert result.exit_code == 2 and result.stdout == ""
    assert re.fullmatch(r"relu-tools: tensor '\w+': its data in \S+/n/sub/two.bin is missing\n", result.stderr)


@pytest.mark.parametrize("how", [(), ("--runtime", "onnxruntime==1.20")])
def test_check_finds_that_data_is_missing(tmp_path, how):
    source = model(tmp_path / "m")
    assert "is missing" not in run("check", source, *how).stdout
    (tmp_path / "m/sub/two.bin").unlink()
    result = run("check", source, *how)
    assert f"its data in {tmp_path}/m/sub/two.bin is missing" in result.stdout
    assert "loads it as it is" not in result.stdout and (result.exit_code == 1) == bool(how)


@pytest.mark.parametrize("name", ["model.onnx", "other.onnx"])
def test_data_takes_the_place_of_no_model(tmp_path, name):
    source = model(tmp_path / "m")
    victim = tmp_path / "m" / name
    victim.write_bytes(source.read_bytes())
    before = victim.read_bytes()
    how = ("--opset", 13, "-o", tmp_path / "m/new.onnx", "--external-data", name, "--force")
    result = run("convert", source, *how)
    assert result.exit_code == 2 and "it is a model" in result.stderr
    assert victim.read_bytes() == before and not (tmp_path / "m/new.onnx").exists()
