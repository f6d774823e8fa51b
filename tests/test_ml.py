"""ai.onnx.ml: what version a model gets, and its operators' rewrites against onnxruntime on random models."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import relu_tools
from relu_tools import ConversionError, schemas

ML = "ai.onnx.ml"
NUMBERS = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "int64": TensorProto.INT64}


def opsets(model: ModelProto) -> dict[str, int]:
    return {o.domain: o.version for o in model.opset_import}


def run(model: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def single(op: str, version: int, x: Any, outputs: dict[str, Any], attributes: dict[str, Any]) -> ModelProto:
    """A model of one node that imports ai.onnx.ml alone; types are (element type, shape)."""
    infos = [helper.make_tensor_value_info(name, *type_) for name, type_ in outputs.items()]
    node = helper.make_node(op, ["x"], list(outputs), domain=ML, **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", *x)], infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, version)], ir_version=8)


def agree(model: ModelProto, version: int, x: np.ndarray) -> ModelProto:
    after = relu_tools.convert(model, {ML: version}, verify="off").model
    onnx.checker.check_model(after)
    onnx.shape_inference.infer_shapes(after, check_type=True, strict_mode=True)
    for a, b in zip(run(model, x), run(after, x), strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)
    return after


# --- which version ---------------------------------------------------------------------------
IMPORTED = """
<ir_version: 10, opset_import: ["" : %d, "ai.onnx.ml" : %d]>
g (float[3] x) => (float[3] y) { y = Relu(x) }
"""


@pytest.mark.parametrize(
    ("opset", "version", "target", "gets"),
    [(21, 5, 20, 4), (21, 5, 16, 3), (21, 5, 15, 2), (21, 5, 11, 2), (21, 5, 10, 1), (13, 2, 21, 2), (21, 1, 15, 1)],
)
def test_it_is_lowered_with_the_release_even_if_merely_imported(opset, version, target, gets):
    model = onnx.parser.parse_model(IMPORTED % (opset, version))
    assert opsets(relu_tools.convert(model, target, verify="off").model) == {"": target, ML: gets}
    told = relu_tools.convert(model, {"": target, ML: version}, verify="off").model
    assert opsets(told) == {"": target, ML: version}


@pytest.mark.parametrize(
    "node",
    [
        'y = ai.onnx.ml.LabelEncoder<classes_strings = ["a", "a"]>(x)',  # 2 would be refused
        'y = ai.onnx.ml.CategoryMapper<cats_int64s = [1], cats_strings = ["a"]>(x)',
    ],
)
def test_it_is_not_raised(node):
    text = f'<ir_version: 8, opset_import: ["" : 9, "ai.onnx.ml" : 1]> g (string[3] x) => (int64[3] y) {{ {node} }}'
    model = onnx.parser.parse_model(text)
    raised = relu_tools.convert(model, schemas.newest(), verify="off").model
    assert opsets(raised) == {"": schemas.newest(), ML: 1}
    assert list(raised.graph.node) == list(model.graph.node)


def encoder(version: int, x: str, y: str, attributes: str, imports: str = "") -> ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["{ML}" : {version}{imports}]> g ({x}[3] x) => ({y}[3] y) '
        f"{{ y = {ML}.LabelEncoder<{attributes}>(x) }}"
    )


def test_a_rewrite_imports_what_it_needs():
    model = encoder(2, "string", "float", 'keys_strings = ["a", "b"], values_floats = [1.5, 2.5]')
    conversion = relu_tools.convert(model, {ML: 1})
    assert [n.op_type for n in conversion.model.graph.node] == ["CategoryMapper", "Constant", "Gather"]
    assert opsets(conversion.model) == {ML: 1, "": 7}
    assert conversion.report.verification.verdict == "bit-exact"
    assert opsets(relu_tools.convert(model, {ML: 4}, verify="off").model) == {ML: 4}


def test_a_function_imports_what_it_needs():
    text = """
    <ir_version: 8, opset_import: ["my" : 1, "ai.onnx.ml" : 2]>
    g (string[3] x) => (float[3] y) { y = my.F(x) }
    <domain: "my", opset_import: ["ai.onnx.ml" : 2]>
    F (a) => (b) { b = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.5, 2.5]>(a) }
    """
    model = relu_tools.convert(onnx.parser.parse_model(text), {ML: 1}, ir_version="keep", verify="off").model
    assert {o.domain: o.version for o in model.functions[0].opset_import} == {ML: 1, "": 7}
    x = np.array(["b", "c", "a"], object)
    np.testing.assert_array_equal(run(model, x)[0], np.array([2.5, 0, 1.5], np.float32))


def test_an_interface_of_its_own_types_is_no_obstacle():
    text = """
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.ml" : 3]>
    g (float[N, 2] x) => (seq(map(string, float)) y) {
      r = Relu(x)
      y = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b"]>(r)
    }
    """
    assert opsets(relu_tools.convert(onnx.parser.parse_model(text), 12, verify="off").model) == {"": 12, ML: 2}


# --- LabelEncoder ----------------------------------------------------------------------------
def some(kind: str, n: int, random: np.random.Generator) -> list:
    if kind == "string":
        return [f"s{k}" for k in random.permutation(20)[:n]]
    return (random.permutation(20)[:n] - 5).tolist() if kind == "int64" else (random.permutation(20)[:n] / 4).tolist()


@pytest.mark.parametrize("keys", ["string", "int64", "float"])
@pytest.mark.parametrize("values", ["string", "int64", "float"])
@pytest.mark.parametrize(("source", "target"), [(2, 1), (2, 4), (4, 2), (4, 1)])
def test_label_encoder(keys, values, source, target):
    random = np.random.default_rng(0)
    types = {**NUMBERS, "string": TensorProto.STRING}
    given, found = some(keys, 5, random), some(values, 5, random)
    attributes = {f"keys_{keys}s": given, f"values_{values}s": found, f"default_{values}": some(values, 1, random)[0]}
    kind = object if keys == "string" else helper.tensor_dtype_to_np_dtype(types[keys])
    x = np.array((given + some(keys, 7, random))[:12], kind).reshape(3, 4)
    agree(single("LabelEncoder", source, (types[keys], [3, 4]), {"y": (types[values], [3, 4])}, attributes), target, x)


# --- trees -----------------------------------------------------------------------------------
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 4


def forest(random: np.random.Generator, votes: str, ids: Any, low: float, kind: type) -> dict[str, Any]:
    """Three trees whose leaves vote for `ids(tree)` with weights from `low` to 1."""
    columns: dict[str, list] = collections.defaultdict(list)
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")

    def number(least: float) -> float:
        # Tenths, which the samples meet.
        return float(kind(round(random.uniform(least, 1), 1)))

    def grow(tree: int, rows: list, depth: int) -> int:
        place = len(rows)
        rows.append(("LEAF", 0, 0.0, 0, 0))
        if depth:
            branches = [grow(tree, rows, depth - 1 if random.integers(4) else 0) for _ in range(2)]
            rows[place] = (MODES[random.integers(6)], int(random.integers(FEATURES)), number(-1), *branches)
        else:
            for target in ids(tree):
                vote = {"treeids": tree, "nodeids": place, "ids": target, "weights": number(low)}
                for name, value in vote.items():
                    columns[f"{votes}_{name}"].append(value)
        return place

    for tree in range(3):
        rows: list = []
        grow(tree, rows, int(random.integers(4)))
        for place, row in enumerate(rows):
            for name, value in zip(names, (tree, place, *row), strict=True):
                columns[f"nodes_{name}"].append(value)
    missing = random.integers(0, 2, len(columns["nodes_values"])).tolist()
    return {**columns, "nodes_missing_value_tracks_true": missing}


def as_tensors(attributes: dict[str, Any], votes: str) -> dict[str, Any]:
    names = {"nodes_values", f"{votes}_weights", "base_values"} & set(attributes)
    rest = {name: value for name, value in attributes.items() if name not in names}
    return rest | {f"{name}_as_tensor": numpy_helper.from_array(np.array(attributes[name])) for name in names}


def samples(random: np.random.Generator, kind: str) -> np.ndarray:
    x = random.uniform(-1.5, 1.5, (40, FEATURES)).round(1)
    x[random.random(x.shape) < 0.1] = np.nan
    return np.nan_to_num(x * 3).astype(np.int64) if kind == "int64" else x.astype(kind.replace("float", "float32"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("target", [1, 5])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_regressor(seed, kind, target, aggregate, targets):
    random = np.random.default_rng(seed)
    wide = kind == "double"
    based = seed % 2 == 1

    def ids(tree: int) -> Any:
        # Where votes are added, a leaf may have fewer.
        return range(targets if based or aggregate in ("MIN", "MAX") else random.integers(1, targets, endpoint=True))

    attributes = forest(random, "target", ids, -1, np.float64 if wide else np.float32)
    attributes |= {"n_targets": targets, "aggregate_function": aggregate}
    if based:
        attributes["base_values"] = random.uniform(-1, 1, targets).tolist()
    attributes = as_tensors(attributes, "target") if wide else attributes
    outputs = {"y": (TensorProto.FLOAT, ["N", targets])}
    model = single("TreeEnsembleRegressor", 3, (NUMBERS[kind], ["N", FEATURES]), outputs, attributes)
    if wide and target == 1 and targets > 1 and aggregate in ("MIN", "MAX"):
        with pytest.raises(ConversionError, match="no older form"):
            relu_tools.convert(model, {ML: target})
    else:
        agree(model, target, samples(random, kind))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["float", "double", "int64"])
@pytest.mark.parametrize("target", [1, 5])
@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("strings", [False, True])
def test_classifier(seed, kind, target, post, strings):
    random = np.random.default_rng(seed)
    wide = kind == "double"
    attributes = forest(random, "class", lambda tree: range(3), -1, np.float64 if wide else np.float32)
    attributes["post_transform"] = post
    attributes |= {"classlabels_strings": ["a", "b", "c"]} if strings else {"classlabels_int64s": [7, 5, 9]}
    if seed:
        attributes["base_values"] = random.uniform(-1, 1, 3).tolist()
    attributes = as_tensors(attributes, "class") if wide else attributes
    label = TensorProto.STRING if strings else TensorProto.INT64
    outputs = {"l": (label, ["N"]), "z": (TensorProto.FLOAT, ["N", 3])}
    model = single("TreeEnsembleClassifier", 3, (NUMBERS[kind], ["N", FEATURES]), outputs, attributes)
    agree(model, target, samples(random, kind))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("post", "low"), [("NONE", 0), ("LOGISTIC", -1)])
def test_classifier_of_two(seed, post, low):
    random = np.random.default_rng(seed)
    attributes = forest(random, "class", lambda tree: [0], low, np.float32)
    attributes |= {"classlabels_int64s": [0, 1], "post_transform": post}
    outputs = {"l": (TensorProto.INT64, ["N"]), "z": (TensorProto.FLOAT, ["N", 2])}
    model = single("TreeEnsembleClassifier", 3, (TensorProto.FLOAT, ["N", FEATURES]), outputs, attributes)
    agree(model, 5, samples(random, "float"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("version", [3, 2])
def test_ensemble(seed, kind, version):
    """Made by raising a regressor, lowered again."""
    random = np.random.default_rng(seed)
    attributes = forest(random, "target", lambda tree: [tree % 2], -1, np.float64 if kind == "double" else np.float32)
    attributes = as_tensors(attributes, "target") if kind == "double" else attributes
    outputs = {"y": (TensorProto.FLOAT, ["N", 2])}
    given = (NUMBERS[kind], ["N", FEATURES])
    model = single("TreeEnsembleRegressor", 3, given, outputs, attributes | {"n_targets": 2})
    raised = relu_tools.convert(model, {ML: 5}, verify="off").model
    assert raised.graph.node[0].op_type == "TreeEnsemble"
    after = agree(raised, version, samples(random, kind))
    assert "TreeEnsemble" not in [node.op_type for node in after.graph.node]


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_membership(missing, kind):
    text = f"""
    <ir_version: 9, opset_import: ["ai.onnx.ml" : 5]>
    g ({kind}[N, 2] x) => ({kind}[N, 1] y) {{
      y = ai.onnx.ml.TreeEnsemble<tree_roots = [0], nodes_featureids = [1, 0, 1], nodes_modes = uint8[3] {{6, 0, 6}},
        nodes_splits = {kind}[3] {{0.0, 0.5, 0.0}}, nodes_truenodeids = [1, 0, 2], nodes_falsenodeids = [2, 1, 3],
        nodes_trueleafs = [0, 1, 1], nodes_falseleafs = [0, 1, 1], leaf_targetids = [0, 0, 0, 0],
        leaf_weights = {kind}[4] {{1.5, 2.5, 3.5, 4.5}}, membership_values = {kind}[5] {{1, 2, nan, 3, nan}},
        nodes_missing_value_tracks_true = [{missing}, 0, {missing}], n_targets = 1>(x)
    }}
    """
    x = np.array([[a, b] for a in (0, 1) for b in (0, 1, 2, 3, 2.5, np.nan)], kind.replace("float", "float32"))
    model = onnx.parser.parse_model(text)
    after = relu_tools.convert(model, {ML: 3}, verify="off").model
    onnx.checker.check_model(after)
    expected = []
    for a, b in x.tolist():
        inside = {1: True, 2: True}.get(b, bool(missing) and np.isnan(b))
        expected.append((1.5 if a <= 0.5 else 2.5) if inside else 3.5 if b == 3 else 4.5)
    assert run(after, x)[0].ravel().tolist() == expected
