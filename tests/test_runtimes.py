"""What is known of runtimes, against onnxruntime itself, and conversions for a runtime."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import helper
from test_onnx_cases import by_onnxruntime as outputs_of
from test_onnx_cases import cases

import relu_tools
from relu_tools import opening, runtimes, schemas
from relu_tools.cli import main
from relu_tools.loading import objections
from relu_tools.model import Model
from relu_tools.runtimes import RuntimeDataError, capture

NPU = """
name = "my_npu"
version = "2.1"
ir_version = 7

[opsets]
"ai.onnx" = [7, 13]

[operators]
Abs = "*"
Conv = "float, float16"
Max = ["8-11: float", "12: not int64", "13: int8"]
Gather = "1, 13: Tind = int64"
Resize = "float"

[attributes]
"Resize.mode" = ["nearest"]
"""


def run(*args: object):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def objected(proto: onnx.ModelProto, runtime: runtimes.Runtime) -> list[str]:
    return list(map(str, objections(Model(proto, opening.imported(proto), lambda tensor: tensor), runtime)))


def loads(proto: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:
        return False
    return True


@pytest.fixture
def npu(tmp_path):
    (tmp_path / "my_npu.toml").write_text(NPU)
    return runtimes.find(str(tmp_path / "my_npu.toml"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The onnxruntime that is installed, as captured."""
    path = tmp_path_factory.mktemp("runtime") / "captured.toml"
    path.write_text(capture.onnxruntime_installed())
    return runtimes.load(path)


# --- the data ------------------------------------------------------------------------------------
def test_every_file_can_be_read_and_says_where_it_is_from():
    for name in runtimes.names():
        found = runtimes.find(name)
        assert f"{found.name}=={found.version}" == name
        assert found.source and found.opsets
        if not name.startswith("onnx=="):
            assert re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", found.date)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="an older onnx lacks newer operators")
def test_operators_of_the_files_are_those_of_the_specification():
    """A name that no schema knows can only be one that a runtime has by itself."""
    for name in runtimes.names():
        found = runtimes.find(name)
        unknown = [op for op in found.operators or () if "::" not in op and not schemas.history("", op)]
        own = "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh SimplifiedLayerNormalization"
        own += " MemcpyFromHost MemcpyToHost Inverse GroupNorm GRUUnit GivenTensorFill"
        assert set(unknown) <= set(own.split()), name


# The releases' own words: the opset and IR version of each, as onnx's table of versions has them.
@pytest.mark.parametrize(
    ("name", "opset", "ir_version"),
    [("onnxruntime==1.4", 12, 7), ("onnxruntime==1.10", 15, 8), ("onnxruntime==1.16", 19, 9), ("onnx==1.7", 12, 7)],
)
def test_opset_and_ir_version_of_releases(name, opset, ir_version):
    found = runtimes.find(name)
    assert (found.opsets[""][1], found.ir_version) == (opset, ir_version)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('Rezise = "*"', "no operator 'Rezise' in ai.onnx (is it Resize?)"),
        ('"ai.onnx.ml::Scalar" = "*"', "no operator 'Scalar' in ai.onnx.ml (is it Scaler?)"),
        ('Gather = "Tindex = int64"', "Gather has no type variable 'Tindex'; it has T, Tind"),
        ('Abs = "*"\n[attributes]\n"Rezise.mode" = ["nearest"]', "no operator 'Rezise' in ai.onnx"),
        ('Abs = "*"\n[attributes]\n"Resize.mood" = ["nearest"]', "Resize has no attribute 'mood' (is it mode?)"),
    ],
)
def test_a_name_that_onnx_does_not_know(tmp_path, line, told):
    path = tmp_path / "npu.toml"
    path.write_text(f'[opsets]\n"ai.onnx" = [7, 13]\n"ai.onnx.ml" = [1, 2]\n[operators]\n{line}\n')
    with pytest.raises(RuntimeDataError, match=re.escape(told)):
        runtimes.find(path)


def test_names_that_need_no_schema(tmp_path):
    """Of other domains, with a body of ours, or of a domain that the runtime has to a newer opset than onnx."""
    path = tmp_path / "npu.toml"
    newest = schemas.newest()
    head = '[opsets]\n"ai.onnx" = [7, %d]\n"com.microsoft" = 1\nown = 1\n[operators]\n'
    path.write_text(head % newest + '"com.microsoft::Anything" = "*"\n"own::F" = "T = float"\nScaledTanh = "1"\n')
    assert set(runtimes.find(path).operators) == {"com.microsoft::Anything", "own::F", "ScaledTanh"}
    path.write_text(head % (newest + 1) + 'Tomorrow = "*"\n')
    assert set(runtimes.find(path).operators) == {"Tomorrow"}


def test_a_release_that_is_not_named():
    with pytest.raises(RuntimeDataError, match="'onnxruntime==' names no release; known are 1.4.0, "):
        runtimes.find("onnxruntime==")


def test_a_name_alone_is_the_newest_release():
    assert runtimes.find("onnxruntime").version == "1.32.0"
    with pytest.raises(RuntimeDataError, match="nothing is known of onnxruntime 1.1;"):
        runtimes.find("onnxruntime==1.1")


def test_what_is_captured_is_what_the_registry_holds(installed):
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    versions = {
        kernel.version_range[0]
        for kernel in state.get_all_opkernel_def()
        if (kernel.domain, kernel.op_name, kernel.provider) == ("", "Relu", "CPUExecutionProvider")
    }
    relu = installed.operators["Relu"]
    for version in schemas.history("", "Relu"):
        assert any(kernel.has_version(version) for kernel in relu) == (version.since in versions)


# --- does it load? -------------------------------------------------------------------------------
def foretold(installed, found):
    wrong = [name for name, case, _ in found if bool(objected(case, installed)) == loads(case)]
    # Shapes that do not fit, and the like, are told by no registry.
    return wrong, len(found)


def test_it_is_foretold_what_the_installed_onnxruntime_loads(installed):
    wrong, count = foretold(installed, cases()[::31])
    assert len(wrong) <= 0.01 * count, wrong


@pytest.mark.slow
def test_it_is_foretold_of_every_case(installed):
    wrong, count = foretold(installed, cases())
    assert len(wrong) <= 0.01 * count, wrong


def types_of(version):
    """A node of the version for each element type of its first variable, all others as in the first combination."""
    for type_ in sorted(version.inputs[0].types):
        if type_.startswith("tensor("):
            yield type_[7:-1]


@pytest.mark.parametrize("op", ["Relu", "Add", "MatMul", "Sign", "Erf", "Gelu", "HardSwish", "Mish", "IsNaN", "Round"])
def test_each_element_type_is_foretold(installed, op):
    for version in schemas.history("", op):
        opset = max(version.since, 7)
        if version.last < 7 or version.deprecated:
            continue
        for name in types_of(version):
            dtype = onnx.TensorProto.DataType.Value(name.upper())
            count = len(version.inputs)
            infos = [helper.make_tensor_value_info(f"x{k}", dtype, [2, 2]) for k in range(count)]
            node = helper.make_node(op, [info.name for info in infos], ["y"])
            graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name="y")])
            proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
            assert bool(objected(proto, installed)) != loads(proto), f"{op} {opset} {name}"


@pytest.mark.parametrize("dtype", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_only_what_enters_of_a_type_is_cast(installed, dtype):
    """onnxruntime puts casts around what takes float16; what only makes it gets none."""
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2], dtype=dtype)
    graph = helper.make_graph([node], "graph", [], [helper.make_tensor_value_info("y", dtype, [2])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    assert bool(objected(proto, installed)) != loads(proto)


# --- a runtime of one's own -------------------------------------------------------------------------
def one(op: str, type_: str, opset: int = 13, attributes: str = "", inputs: str = "x") -> onnx.ModelProto:
    text = f'<ir_version: 7, opset_import: ["": {opset}]> net ({type_}[2] x) => ({type_}[2] y)'
    return model(f"{text} {{ [n] y = {op} {attributes} ({inputs}) }}")


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (one("Abs", "int16"), []),
        (one("Max", "float", 11), []),
        (one("Max", "double", 11), ["n: Max: it has no kernel for T = double"]),
        (one("Max", "double", 12), []),
        (one("Max", "int64", 12), ["n: Max: it has no kernel for T = int64"]),
        (one("Max", "int8", 13), []),
        (one("Max", "float", 13), ["n: Max: it has no kernel for T = float"]),
        (one("Relu", "float"), ["n: Relu: it does not have the operator"]),
        (one("Abs", "float", 14), ["it reads opsets 7 to 13 of ai.onnx, the model has 14"]),
    ],
)
def test_versions_and_types(npu, proto, expected):
    assert objected(proto, npu) == expected


def test_ir_version_type_variable_and_attribute_value(npu):
    proto = one("Abs", "float")
    proto.ir_version = 8
    assert objected(proto, npu) == ["it reads IR versions up to 7, the model has 8"]
    gather = """<ir_version: 7, opset_import: ["": 13]> net (float[2] x, {}[1] k) => (float[1] y)
        {{ [n] y = Gather (x, k) }}"""
    assert objected(model(gather.format("int64")), npu) == []
    assert "Tind = int32" in objected(model(gather.format("int32")), npu)[0]
    resize = """<ir_version: 7, opset_import: ["": 13]> net (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y)
        {{ [n] y = Resize <mode = "{}"> (x, , s) }}"""
    assert objected(model(resize.format("nearest")), npu) == []
    assert objected(model(resize.format("cubic")), npu) == ["n: Resize: it takes mode = nearest, not cubic"]


@pytest.mark.parametrize(
    "text",
    [
        "[[",
        "name = 'a'",
        "names = 'a'\n[opsets]\n'ai.onnx' = [7, 13]",
        "[opsets]\n'ai.onnx' = [13, 7]",
        "[opsets]\n'ai.onnx' = 'all'",
        "ir_version = 'x'\n[opsets]\n'ai.onnx' = [7, 13]",
        "[opsets]\n'ai.onnx' = [7, 13]\n[operators]\nRelu = 'flaot'",
        "[opsets]\n'ai.onnx' = [7, 13]\n[operators]\nRelu = '7-x: float'",
        "[opsets]\n'ai.onnx' = [7, 13]\n[operators]\nRelu = 3",
        "[opsets]\n'ai.onnx' = [7, 13]\n[attributes]\nmode = ['a']",
    ],
)
def test_data_that_is_none(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(RuntimeDataError, match=re.escape(str(path))):
        runtimes.find(str(path))
    onnx.save(one("Abs", "float"), tmp_path / "net.onnx")
    result = run("check", tmp_path / "net.onnx", "--runtime", path)
    assert result.exit_code == 2
    assert re.fullmatch(r"relu-tools: [^\n]+\n", result.output)


# --- converting for a runtime ------------------------------------------------------------------------
THREE = """<ir_version: 10, opset_import: ["": 20]> net (int32[3] x, float[3] z) => (int32[3] y, float[3] w, int8[3] v)
    { y = Relu (x)  w = Gelu (z)  a = Cast <to = 3> (x)  v = Relu (a) }"""


@pytest.mark.parametrize("name", ["onnxruntime==1.4", "onnxruntime==1.10", "tensorrt==8.4", "onnx==1.7", "openvino"])
def test_what_is_converted_for_a_runtime_loads_there(name):
    runtime = runtimes.find(name)
    result = relu_tools.convert(model(THREE), runtime=name)
    assert objected(result.model, runtime) == []
    feeds = {"x": np.array([-1, 0, 5], np.int32), "z": np.array([-1, 0, 2], np.float32)}
    y, _, v = outputs_of(result.model, feeds)
    assert y.tolist() == [0, 0, 5] and v.tolist() == [0, 0, 5]


def test_the_highest_opset_that_will_do_and_the_ir_version_that_the_runtime_reads():
    report = relu_tools.convert(model(THREE), runtime="onnxruntime==1.10").report
    assert (report.opsets_after, report.ir_after) == ({"": 15}, 8)


def test_a_model_that_the_runtime_loads_stays_as_it_is():
    proto = one("Abs", "float")
    result = relu_tools.convert(proto, runtime="onnxruntime==1.10")
    assert result.model == proto and not result.report.changes


def test_what_no_rewrite_gives_a_kernel_for_is_refused(npu):
    with pytest.raises(relu_tools.ConversionError) as caught:
        relu_tools.convert(one("Tan", "float"), runtime=npu)
    (refusal,) = caught.value.refusals
    assert refusal.node == "n" and "my_npu 2.1" in refusal.reason


def test_an_operator_that_only_another_runtime_has_is_refused(npu):
    text = '<ir_version: 7, opset_import: ["": 13, "own": 1]> net (float[2] x) => (float[2] y) { [n] y = own.F (x) }'
    with pytest.raises(relu_tools.ConversionError, match="does not know the domain own"):
        relu_tools.convert(model(text), runtime=npu)


def test_check_says_so_beforehand(npu):
    for op in ("Abs", "Tan"):
        found = relu_tools.check(one(op, "float", 20), runtime=npu)
        assert not found.fit.loads
        try:
            after = relu_tools.convert(one(op, "float", 20), runtime=npu, verify="off").report.opsets_after[""]
        except relu_tools.ConversionError:
            after = None
        assert (found.fit.outcome and found.fit.outcome.opset) == after
        assert bool(found) == (after is not None)


@pytest.mark.parametrize("name", ["onnxruntime==1.4", "onnxruntime==1.10", "onnxruntime==1.20"])
def test_check_and_convert_agree_for_runtimes(name):
    for number, (title, case, _) in enumerate(cases()[::131]):
        found = relu_tools.check(case, runtime=name)
        try:
            result = relu_tools.convert(case, runtime=name, verify="off")
        except relu_tools.ConversionError:
            assert not found, title
            continue
        assert found, title
        assert objected(result.model, runtimes.find(name)) == [], f"{number} {title}"


def test_functions_are_inlined_for_a_runtime_that_knows_none():
    text = """<ir_version: 8, opset_import: ["": 13, "own": 1]> net (float[2] x) => (float[2] y) { y = own.F (x) }
        <domain: "own", opset_import: ["": 13]> F (x) => (y) { y = Abs (x) }"""
    result = relu_tools.convert(model(text), runtime="onnxruntime==1.4").model
    assert not result.functions and [node.op_type for node in result.graph.node] == ["Abs"]


# --- the command -------------------------------------------------------------------------------------
def test_the_list():
    names = [
        entry["name"] + "==" + entry["version"] for entry in json.loads(run("runtimes", "--json").output)["runtimes"]
    ]
    assert names == runtimes.names()
    shown = run("runtimes").output
    assert re.search(r"onnxruntime==1\.10\.0 +1-15 +8 +[0-9]+ ", shown)
    assert re.search(r"tensorrt==7\.2 +1-13 +\? +\? ", shown)
    assert re.findall(r"^onnx==.*  all ", shown, re.MULTILINE) and len(re.findall("^onnx==", shown, re.MULTILINE)) == 1
    assert max(map(len, shown.splitlines())) < 130


def test_capturing_writes_a_file_once(tmp_path):
    path = tmp_path / "mine.toml"
    assert run("runtimes", "capture", "-o", path).exit_code == 0
    assert runtimes.find(str(path)).version == onnxruntime.__version__
    assert run("runtimes", "capture", "-o", path).exit_code == 2


def test_the_result_is_named_after_the_runtime(tmp_path):
    onnx.save(model(THREE), tmp_path / "net.onnx")
    assert run("convert", tmp_path / "net.onnx", "--for", "onnxruntime==1.10").exit_code == 0
    assert onnx.load(tmp_path / "net.onnxruntime-1.10.onnx").opset_import[0].version == 15
    assert run("convert", tmp_path / "net.onnx").exit_code == 2
    assert run("convert", tmp_path / "net.onnx", "--for", "none").exit_code == 2
