"""Inputs: what always takes part, sizes, and values that keep to what the specification defines."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from relu_tools.samples import Draw, all_values, draws, find_uses, special_values

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def tensor(element: int, shape) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(element, shape)


def graph(text: str, opset: int = 18) -> onnx.GraphProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}').graph


def drawn(text: str, **options) -> list[Draw]:
    parsed = graph(text)
    return list(draws({v.name: v.type for v in parsed.input}, uses=find_uses(parsed), **options))


@pytest.mark.parametrize("dtype", TYPES)
def test_special_floats(dtype) -> None:
    info, values = ml_dtypes.finfo(dtype), special_values(np.dtype(dtype))
    assert np.isnan(values.astype(np.float64)).any()
    bits = set(values.view(f"u{values.dtype.itemsize}").tolist())
    wanted = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        info.smallest_subnormal,
        -info.smallest_subnormal,
        info.max,
        info.min,
        1,
        -1,
        0.5,
    ]
    assert bits >= set(np.array(wanted).astype(dtype).view(f"u{values.dtype.itemsize}").tolist())
    assert len(bits) == values.size


@pytest.mark.parametrize("dtype", TYPES)
def test_a_threshold_comes_with_its_neighbours(dtype) -> None:
    values = special_values(np.dtype(dtype), [2.25])
    at, inf = np.array(2.25, dtype), np.array(np.inf, dtype)
    assert {float(at), float(np.nextafter(at, inf)), float(np.nextafter(at, -inf))} <= set(
        values.astype(float).tolist()
    )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_special_integers(dtype) -> None:
    info, values = np.iinfo(dtype), set(special_values(np.dtype(dtype), [70.0]).tolist())
    assert {info.min, info.max, 0, 1, 69, 70, 71} <= values
    if info.bits > 24:
        assert 2**24 + 1 in values
    if info.bits > 53:
        assert 2**53 + 1 in values


def test_all_special_values_take_part_even_in_small_inputs() -> None:
    for shape in ((2, 3), ("N",), (1,)):
        sets = [d.feeds["x"] for d in draws({"x": tensor(TensorProto.FLOAT, shape)}) if d.what == "special values"]
        seen = np.concatenate([x.ravel() for x in sets])
        assert np.isnan(seen).any() and np.isposinf(seen).any() and np.isneginf(seen).any()
        assert (seen == np.finfo(np.float32).max).any() or shape == (1,)


@pytest.mark.parametrize(
    "dtype, count",
    [(np.int8, 256), (np.uint16, 65536), (np.float16, 65536), (ml_dtypes.bfloat16, 65536), (ml_dtypes.int4, 16)],
)
def test_all_values(dtype, count: int) -> None:
    values = all_values(np.dtype(dtype))
    assert values.size == count and values.dtype == dtype
    assert (
        len(set(values.tobytes()[i : i + values.itemsize] for i in range(0, values.nbytes, values.itemsize))) == count
    )


@pytest.mark.parametrize("shape", [None, ("N",), ("N", 3), (256,), (4, 16), ()])
def test_every_value_in_any_shape(shape) -> None:
    sets = [d.feeds["x"] for d in draws({"x": tensor(TensorProto.INT8, shape)}, every_value=True) if "every" in d.what]
    seen = set(np.concatenate([x.ravel() for x in sets]).tolist())
    assert len(seen) == (64 if shape == () else 256)
    assert all(x.ndim == len(shape) for x in sets if shape is not None)


def test_same_seed_same_values() -> None:
    inputs = {"x": tensor(TensorProto.FLOAT, ("N", 2)), "i": tensor(TensorProto.INT64, ("N",))}
    runs = [[d.feeds for d in draws(inputs, seed)] for seed in (5, 5, 6)]
    same, other = (
        all(np.array_equal(a[k], b[k], equal_nan=True) for a, b in zip(runs[0], run, strict=True) for k in a)
        for run in runs[1:]
    )
    assert same and not other


def test_dynamic_sizes() -> None:
    inputs = {"a": tensor(TensorProto.FLOAT, ("N", "M")), "b": tensor(TensorProto.FLOAT, ("N", 3))}
    sets = list(draws(inputs))
    assert all(d.feeds["a"].shape[0] == d.feeds["b"].shape[0] and d.feeds["b"].shape[1] == 3 for d in sets)
    assert {0, 1} < {d.feeds["a"].shape[0] for d in sets}
    assert any(d.feeds["a"].shape[0] != d.feeds["a"].shape[1] for d in sets)


def test_unnamed_sizes_are_alike_and_unlike() -> None:
    inputs = {n: tensor(TensorProto.FLOAT, (None, None)) for n in ("a", "bb")}
    pairs = [(d.feeds["a"].shape, d.feeds["bb"].shape) for d in draws(inputs)]
    assert any(a == b for a, b in pairs) and any(a != b for a, b in pairs)


def test_a_missing_shape_gets_several_ranks() -> None:
    inputs = {n: tensor(TensorProto.FLOAT, None) for n in ("a", "b")}
    sets = list(draws(inputs))
    assert {d.feeds["a"].ndim for d in sets} >= {0, 1, 2, 3, 4}
    assert all(d.feeds["a"].shape == d.feeds["b"].shape for d in sets)


def test_conditions_take_both_values() -> None:
    inputs = {
        "c": tensor(TensorProto.BOOL, ()),
        "d": tensor(TensorProto.BOOL, (1,)),
        "x": tensor(TensorProto.FLOAT, (2,)),
    }
    seen = {(bool(d.feeds["c"]), bool(d.feeds["d"][0])) for d in draws(inputs)}
    assert len(seen) == 4


def test_large_inputs_are_drawn_twice_only() -> None:
    assert len(list(draws({"x": tensor(TensorProto.FLOAT, (2048, 1024))}))) == 2


def test_sequences_and_optionals() -> None:
    element = tensor(TensorProto.FLOAT, (2, "N"))
    inputs = {"s": helper.make_sequence_type_proto(element), "o": helper.make_optional_type_proto(element)}
    sets = [d.feeds for d in draws(inputs)]
    assert all(isinstance(f["s"], list) and f["s"][0].dtype == np.float32 and f["s"][0].shape[0] == 2 for f in sets)
    assert any(f["o"] is None for f in sets) and any(f["o"] is not None for f in sets)


def test_equal_and_neighbouring_values_take_part() -> None:
    """Within an input, where the lower index may count, and between two, where an operator turns."""
    sets = drawn("(float[N] a, float[N] b) => (bool[N] y) { y = LessOrEqual(a, b) }")
    pairs = [(d.feeds["a"], d.feeds["b"]) for d in sets]
    assert any((a == b).sum() > 1 and (a < b).any() for a, b in pairs)
    assert any(len(set(a.tolist())) < a.size / 2 for a, _ in pairs)
    close = np.concatenate([np.abs(a - b)[(a != b) & np.isfinite(a - b)] for a, b in pairs])
    assert (close < 1e-6).any()


@pytest.mark.parametrize("type_, narrow", [("int32", np.float32), ("int64", np.float64), ("uint64", np.float64)])
def test_integers_that_a_float_cannot_tell_apart_meet(type_: str, narrow) -> None:
    sets = drawn(f"({type_}[N] a, {type_}[N] b) => (bool[N] y) {{ y = Less(a, b) }}")
    assert any(((d.feeds["a"] != d.feeds["b"]) & (d.feeds["a"].astype(narrow) == d.feeds["b"].astype(narrow))).any()
               for d in sets)  # fmt: skip


def test_sizes_of_values_that_show_an_epsilon_and_an_overflow() -> None:
    sets = {d.what: d.feeds["x"] for d in draws({"x": tensor(TensorProto.FLOAT, (6, 6))}, overflow=False)}
    assert np.abs(sets["small values"]).max() < 0.02
    assert 88 < np.abs(sets["large values"]).max() < 1000


def test_without_limits_no_number_is_near_the_greatest() -> None:
    for kind in (TensorProto.FLOAT, TensorProto.FLOAT16):
        for draw in draws({"x": tensor(kind, ("N",))}, limits=False):
            x = draw.feeds["x"]
            assert not x[np.isfinite(x)].size or np.abs(x[np.isfinite(x)]).max() <= ml_dtypes.finfo(x.dtype).max / 8


def test_dimensions_may_be_alike() -> None:
    inputs = {"a": tensor(TensorProto.FLOAT, ("N",)), "b": tensor(TensorProto.FLOAT, ("M",))}
    assert all(d.feeds["a"].shape == d.feeds["b"].shape for d in draws(inputs, alike=True))
    assert any(d.feeds["a"].shape != d.feeds["b"].shape for d in draws(inputs))


@pytest.mark.parametrize(
    "text, name, wanted",
    [
        ("(float[2, 6] x, int64[P] p) => (float[A, B] y) { y = Pad(x, p) }", "p", 4),
        ("(float[2, 6] x, int64[P] p) => (float[A, B] y) { a = Constant<value = int64[1] {0}>() y = Pad(x, p, , a) }",
         "p", 2),
        ("(float[2, 6] x, int64[P] p) => (float[A, B] y) { t = Transpose(x) y = Tile(t, p) }", "p", 2),
        ("(float[1, 2, 3, 4] x, float[S] s) => (float[A, B, C, D] y) { y = Resize(x, , s) }", "s", 4),
        ("(float[7] x, int64[S] s) => (float[A] y, float[B] z, float[C] w) { y, z, w = Split(x, s) }", "s", 3),
        ("(float[2, 6] x, int64[S] s) => (float[A, B] y) { y = Expand(x, s) }", "s", 2),
        ("(float[2, 6] x, int64[S] s) => (float[A, B] y) { y = ReduceMean(x, s) }", "s", 1),
    ],
)  # fmt: skip
def test_lists_are_as_long_as_their_operator_wants(text: str, name: str, wanted: int) -> None:
    parsed = graph(text)
    known = {"t": (6, 2), "a": (1,)}
    sets = draws({v.name: v.type for v in parsed.input}, uses=find_uses(parsed), known=known)
    assert {d.feeds[name].shape for d in sets} == {(wanted,)}


# Values that have a defined result


def test_integer_divisors() -> None:
    for text in ("y = Div(a, b)", "c = Identity(b) y = Div(a, c)", "y = Mod(a, b)"):
        for draw in drawn(f"(int32[N] a, int32[N] b) => (int32[N] y) {{ {text} }}"):
            assert not np.isin(draw.feeds["b"], (0, -1)).any()


def test_float_divisors_may_be_zero() -> None:
    sets = drawn("(float[N] a, float[N] b) => (float[N] y) { y = Div(a, b) }")
    assert any((d.feeds["b"] == 0).any() for d in sets)


def test_unsigned_divisors_keep_their_greatest_value() -> None:
    sets = drawn("(uint8[N] a, uint8[N] b) => (uint8[N] y) { y = Div(a, b) }")
    assert any((d.feeds["b"] == 255).any() for d in sets) and all((d.feeds["b"] != 0).all() for d in sets)


@pytest.mark.parametrize(
    "to, low, high", [(TensorProto.INT8, -129, 128), (TensorProto.INT64, -(2.0**63) - 2048, 2.0**63)]
)
def test_floats_cast_to_integers_stay_in_range(to: int, low: float, high: float) -> None:
    sets = drawn(f"(float[N] x) => (int8[N] y) {{ y = Cast<to = {to}>(x) }}")
    values = np.concatenate([d.feeds["x"] for d in sets]).astype(np.float64)
    assert np.isfinite(values).all() and values.min() > low and values.max() < high


def test_floats_cast_to_floats_keep_everything() -> None:
    sets = drawn("(float[N] x) => (float16[N] y) { y = Cast<to = 10>(x) }")
    assert any(np.isnan(d.feeds["x"]).any() for d in sets)


def test_indices_stay_within_the_axis() -> None:
    for draw in drawn("(float[5, N] x, int64[7] i) => (float[A, B] y) { y = Gather<axis = 1>(x, i) }"):
        n = draw.feeds["x"].shape[1]
        assert not n or (-n <= draw.feeds["i"].min() and draw.feeds["i"].max() < n)


def test_scatter_indices_do_not_repeat() -> None:
    text = "(float[4, 3] x, int64[2, 3] i, float[2, 3] u) => (float[4, 3] y) { y = ScatterElements<axis = 0>(x, i, u) }"
    for draw in drawn(text):
        assert all(len(set(column)) == 2 for column in draw.feeds["i"].T.tolist())


@pytest.mark.parametrize(
    "text",
    [
        "(float[2, 6] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }",
        "(float[2, 6] x, int64[2] s) => (float[A, B] y) { y = Expand(x, s) }",
        "(float[2, 6] x, int64[2] s) => (float[A, B] y) { y = Tile(x, s) }",
        "(float[2, 6] x, int64[1] s) => (float[A, B] y) { y = Unsqueeze(x, s) }",
        "(float[2, 6] x, int64[1] s) => (float[A, B] y) { y = ReduceMean(x, s) }",
        "(float[2, 6] x, int64[4] s) => (float[A, B] y) { y = Pad(x, s) }",
        "(float[7, 2] x, int64[2] s) => (float[A, B] y, float[C, D] z) { y, z = Split(x, s) }",
        "(float[1, 2, 3, 4] x, float[4] s) => (float[A, B, C, D] y) { y = Resize(x, , s) }",
        "(float[1, 2, 3, 4] x, int64[4] s) => (float[A, B, C, D] y) { y = Resize(x, , , s) }",
        "(float[2, 6] x, int64[2] s) => (float y) { y = NegativeLogLikelihoodLoss(x, s) }",
        "(float[2, 6] x, int64[1] s) => (float[A, B] y, int64[A, B] i) { y, i = TopK(x, s) }",
        "(float[2, 6] x, int64[2] s) => (float[A, B] y) { z = ConstantOfShape(s) y = Identity(z) }",
    ],
)
def test_shapes_axes_and_counts_can_be_run(text: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}')
    session = onnxruntime.InferenceSession(model.SerializeToString())
    known = {value.name for value in session.get_inputs()}
    for draw in drawn(text):
        session.run(None, {name: value for name, value in draw.feeds.items() if name in known})


def test_text_becomes_a_number_only_if_it_is_one() -> None:
    for to, kind in ((TensorProto.FLOAT, float), (TensorProto.INT32, int)):
        for draw in drawn(f"(string[N] x) => (float[N] y) {{ y = Cast<to = {to}>(x) }}"):
            assert len([kind(text) for text in draw.feeds["x"].tolist()]) == draw.feeds["x"].size


def test_lengths_of_rows_and_boxes() -> None:
    for draw in drawn("(float[4, 3] x, int64[3] l) => (float[4, 3] y) { y = ReverseSequence(x, l) }"):
        assert (draw.feeds["l"] >= 1).all() and (draw.feeds["l"] <= 4).all()
    text = "(float[1, 4, 4] b, float[1, 1, 4] s) => (int64[A, 3] y) { y = NonMaxSuppression(b, s) }"
    for draw in drawn(text):
        boxes = draw.feeds["b"]
        assert (boxes[..., :2] < boxes[..., 2:]).all() and boxes.min() >= 0


def test_uses_are_found_inside_subgraphs() -> None:
    text = "(bool c, int32[N] i) => (int32[N] y) { y = If(c)<then_branch = t() => (int32[N] p) { p = Div(i, i) }, " \
           "else_branch = e() => (int32[N] q) { q = Identity(i) }> }"  # fmt: skip
    assert ("Div", 1) in {(use.node.op_type, use.index) for use in find_uses(graph(text))["i"]}
