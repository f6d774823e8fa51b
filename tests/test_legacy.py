"""Reference operators against values worked out from the specification of their versions."""

from __future__ import annotations

import functools
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relu_tools.legacy import evaluator, implementation, reference_knows

NAN, INF = np.nan, np.inf


def run(opset: int, op: str, *inputs, outputs: int = 1, domain: str = "", **attributes):
    """The outputs of one node; None is an input left out."""
    arrays = {f"i{n}": np.asarray(x) for n, x in enumerate(inputs) if x is not None}
    names = [f"i{n}" if x is not None else "" for n, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{n}" for n in range(outputs)], domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.output]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, results), opset_imports=[helper.make_opsetid(domain, opset)]
    )
    with np.errstate(all="ignore"):
        values = evaluator(model).run(None, arrays)
    return values[0] if outputs == 1 else values


def f(*values) -> np.ndarray:
    return np.array(values, np.float32)


GRID = np.arange(6, dtype=np.float32).reshape(2, 3)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


# Arithmetic with axis and broadcast


def test_axis_says_where_the_second_input_begins() -> None:
    b = f(10, 20, 30)
    assert np.array_equal(run(6, "Add", CUBE, b, axis=1, broadcast=1), CUBE + b[:, None])
    assert np.array_equal(run(6, "Add", CUBE, f(1, 2), axis=0, broadcast=1), CUBE + f(1, 2)[:, None, None])
    assert np.array_equal(run(6, "Add", CUBE, CUBE[1], broadcast=1), CUBE + CUBE[1])
    assert np.array_equal(run(1, "Mul", CUBE, np.float32(2), broadcast=1), CUBE * 2)
    assert np.array_equal(run(6, "Sub", CUBE, np.array([[1]], np.float32), broadcast=1), CUBE - 1)


@pytest.mark.parametrize(
    "shape, attributes", [((3,), {}), ((4,), {}), ((3,), {"broadcast": 1}), ((1, 2, 3, 4), {"broadcast": 1})]
)
def test_what_opset_6_does_not_broadcast(shape, attributes) -> None:
    with pytest.raises(ValueError):
        run(6, "Add", CUBE, np.zeros(shape, np.float32), **attributes)


def test_comparison_and_logic_of_opset_1() -> None:
    assert run(1, "Greater", f(1, 2), f(2, 1)).tolist() == [False, True]
    assert run(1, "Less", GRID, f(1, 1, 9), broadcast=1).tolist() == [[True, False, True], [False, False, True]]
    assert run(1, "And", np.array([[True, False]]), np.array([True, True]), broadcast=1).tolist() == [[True, False]]


def test_integers_divide_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 2**53 + 1], np.int64), np.array([2, 2, -2, -2, 1], np.int64)
    for opset in (6, 7, 14):
        assert run(opset, "Div", a, b).tolist() == [3, -3, -3, 3, 2**53 + 1]


def test_integer_powers_are_exact() -> None:
    assert run(13, "Pow", np.array([3], np.int64), np.array([39], np.int64)).tolist() == [3**39]
    assert run(13, "Pow", np.array([2, 9], np.int32), f(3, 0.5)).tolist() == [8, 3]


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_variadic_operators_broadcast_from_opset_8_on(op: str) -> None:
    wanted = {"Max": np.maximum, "Min": np.minimum}.get(op, np.add)(GRID, f(3, 3, 3)) / (2 if op == "Mean" else 1)
    assert np.array_equal(run(8, op, GRID, f(3, 3, 3)), wanted)
    for opset in (1, 7):
        assert np.array_equal(run(opset, op, GRID, GRID), run(8, op, GRID, GRID))
        with pytest.raises(ValueError, match="shapes differ"):
            run(opset, op, GRID, f(3, 3, 3))


# Activations


@pytest.mark.parametrize("opset", [1, 6, 13, 14])
def test_relu(opset: int) -> None:
    assert np.array_equal(run(opset, "Relu", f(-1, -0.0, 2, NAN, INF, -INF)), f(0, 0, 2, NAN, INF, 0), equal_nan=True)


def test_consumed_inputs_are_ignored() -> None:
    assert run(1, "Relu", f(-1, 1), consumed_inputs=[0]).tolist() == [0, 1]


@pytest.mark.parametrize("opset", [8, 10, 22])
def test_thresholded_relu(opset: int) -> None:
    x = np.array([[-1, 0, 1], [2, 2.5, 3]], np.float32)
    assert run(opset, "ThresholdedRelu", x, alpha=2.0).tolist() == [[0, 0, 0], [0, 2.5, 3]]
    assert run(opset, "ThresholdedRelu", f(0.5, 1, 1.5, NAN, INF)).tolist() == [0, 0, 1.5, 0, INF]


def test_defaults_are_those_of_the_version() -> None:
    old, new = run(1, "Selu", f(1)), run(6, "Selu", f(1))
    assert old.tolist() == f(1.0507).tolist() and new.tolist() == f(1.05070102214813232421875).tolist()
    assert np.allclose(run(6, "LeakyRelu", f(-1)), -0.01) and np.allclose(run(1, "Elu", f(-1)), np.expm1(-1))
    assert np.allclose(run(12, "Celu", f(-2, 3), alpha=2.0), [2 * np.expm1(-1), 3])


def test_prelu() -> None:
    x = np.array([[[-1, -1], [-1, 1]]], np.float32)
    assert run(6, "PRelu", x, f(2, 3)).tolist() == [[[-2, -2], [-3, 1]]]
    assert run(6, "PRelu", x, f(2)).tolist() == [[[-2, -2], [-2, 1]]]
    assert run(7, "PRelu", x, f(2, 3)).tolist() == [[[-2, -3], [-2, 1]]]
    with pytest.raises(ValueError):
        run(7, "PRelu", x[:, :, :1], np.ones((1, 2, 2), np.float32))


def test_clip() -> None:
    x = f(-3, 0.5, 9, NAN, INF)
    assert np.array_equal(run(6, "Clip", x, min=-1.0, max=6.0), f(-1, 0.5, 6, NAN, 6), equal_nan=True)
    # Left out, they are the limits of float, which an infinity exceeds.
    assert run(6, "Clip", f(INF, -INF)).tolist() == [np.finfo(np.float32).max, np.finfo(np.float32).min]
    assert run(1, "Clip", f(INF)).tolist() == [INF]
    assert run(12, "Clip", np.array([-5, 5], np.int8), None, np.int8(2)).tolist() == [-5, 2]
    assert run(13, "Clip", f(1), np.float32(5), np.float32(2)).tolist() == [2]
    assert run(13, "Clip", f(-INF, INF), np.float32(0)).tolist() == [0, np.finfo(np.float32).max]


# Softmax


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def test_softmax_takes_rows_before_13_and_one_axis_after() -> None:
    rows = np.stack([softmax(row) for row in CUBE])
    for opset in (1, 11):
        assert np.allclose(run(opset, "Softmax", CUBE), rows)
    assert np.allclose(run(13, "Softmax", CUBE), np.apply_along_axis(softmax, -1, CUBE))
    assert np.allclose(run(13, "Softmax", CUBE, axis=1), np.apply_along_axis(softmax, 1, CUBE))


def test_log_softmax_does_not_underflow() -> None:
    assert run(13, "LogSoftmax", f(0, 1000)).tolist() == [-1000, 0]


def test_hardmax_takes_the_first_of_equals() -> None:
    x = np.array([[[1, 3], [3, 0]]], np.float32)
    assert run(11, "Hardmax", x).tolist() == [[[0, 1], [0, 0]]]
    assert run(13, "Hardmax", x).tolist() == [[[0, 1], [1, 0]]]


# Normalization


def statistics(channels: int = 2) -> list[np.ndarray]:
    return [f(2, 3)[:channels], f(1, -1)[:channels], f(0.5, 1)[:channels], f(4, 9)[:channels]]


BATCH = np.arange(8, dtype=np.float32).reshape(2, 2, 2)


@pytest.mark.parametrize("opset, attributes", [(6, {"is_test": 1}), (7, {}), (8, {}), (9, {}), (14, {}), (15, {})])
def test_batch_normalization_of_inference(opset: int, attributes: dict) -> None:
    wanted = np.stack([2 * (BATCH[:, 0] - 0.5) / 2 + 1, 3 * (BATCH[:, 1] - 1) / 3 - 1], 1)
    assert np.allclose(run(opset, "BatchNormalization", BATCH, *statistics(), epsilon=0.0, **attributes), wanted)


@pytest.mark.parametrize("opset", [6, 14])
def test_batch_normalization_of_training(opset: int) -> None:
    mode = {"training_mode": 1} if opset == 14 else {}
    y, mean, var = run(opset, "BatchNormalization", BATCH, *statistics(), epsilon=0.0, momentum=0.75, outputs=3, **mode)
    now, spread = BATCH.mean((0, 2)), BATCH.var((0, 2))
    assert np.allclose(mean, f(0.5, 1) * 0.75 + now * 0.25) and np.allclose(var, f(4, 9) * 0.75 + spread * 0.25)
    assert np.allclose(y[:, 0], 2 * (BATCH[:, 0] - now[0]) / np.sqrt(spread[0]) + 1)


def test_batch_normalization_of_single_activations() -> None:
    full = [np.full((2, 2), v, np.float32) for v in (2, 1, 0.5, 4)]
    y = run(7, "BatchNormalization", BATCH, *full, epsilon=0.0, spatial=0)
    assert np.allclose(y, 2 * (BATCH - 0.5) / 2 + 1)


def test_lrn_goes_over_channels() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1, 1)
    squares = [1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16]
    wanted = [v / (1 + 3 / 3 * s) ** 0.5 for v, s in zip((1, 2, 3, 4), squares, strict=True)]
    assert np.allclose(run(13, "LRN", x, size=3, alpha=3.0, beta=0.5, bias=1.0).ravel(), wanted)


@pytest.mark.parametrize("opset, attributes", [(6, {"is_test": 1}), (7, {}), (10, {}), (12, {}), (13, {})])
def test_dropout_of_inference(opset: int, attributes: dict) -> None:
    assert run(opset, "Dropout", GRID, **attributes).tolist() == GRID.tolist()


def test_dropout_masks_and_training() -> None:
    assert run(7, "Dropout", GRID, outputs=2)[1].dtype == np.float32
    assert run(10, "Dropout", GRID, outputs=2)[1].dtype == np.bool_
    with pytest.raises(NotImplementedError, match="random"):
        run(6, "Dropout", GRID)
    with pytest.raises(NotImplementedError, match="random"):
        run(13, "Dropout", GRID, np.float32(0.5), np.array(True))


# Matrices and windows


def test_gemm() -> None:
    a, b = GRID, GRID.T.copy()
    c = f(1, 2)
    assert np.allclose(run(6, "Gemm", a, b, c, broadcast=1, alpha=2.0, beta=3.0), 2 * a @ b + 3 * c)
    assert np.allclose(run(7, "Gemm", a, a, c, transB=1), a @ a.T + c)
    assert np.allclose(run(11, "Gemm", a, a, transA=1), a.T @ a)
    with pytest.raises(ValueError):
        run(6, "Gemm", a, b, c)


def test_convolution_by_hand() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    w = np.array([[[[1, 0], [0, 2]]]], np.float32)
    assert run(11, "Conv", x, w).tolist() == [[[[8, 11], [17, 20]]]]
    assert run(11, "Conv", x, w, f(100), dilations=[2, 2]).tolist() == [[[[116]]]]
    same = run(11, "Conv", x, w, auto_pad="SAME_UPPER", strides=[2, 2])
    assert same.tolist() == [[[[8, 2], [6, 8]]]]


def test_grouped_convolution_is_one_for_each_group() -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((2, 4, 5)).astype("f"), random.standard_normal((6, 2, 3)).astype("f")
    parts = [run(11, "Conv", x[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3]) for g in (0, 1)]
    assert np.allclose(run(11, "Conv", x, w, group=2), np.concatenate(parts, 1), atol=1e-6)
    v = random.standard_normal((4, 3, 3)).astype("f")
    parts = [run(11, "ConvTranspose", x[:, 2 * g : 2 * g + 2], v[2 * g : 2 * g + 2]) for g in (0, 1)]
    assert np.allclose(run(11, "ConvTranspose", x, v, group=2), np.concatenate(parts, 1), atol=1e-6)


def test_transposed_convolution() -> None:
    x, w = np.array([[[1, 2, 3]]], np.float32), np.array([[[1, 10]]], np.float32)
    assert run(11, "ConvTranspose", x, w).tolist() == [[[1, 12, 23, 30]]]
    assert run(11, "ConvTranspose", x, w, strides=[2]).tolist() == [[[1, 10, 2, 20, 3, 30]]]
    assert run(11, "ConvTranspose", x, w, strides=[2], pads=[1, 0]).tolist() == [[[10, 2, 20, 3, 30]]]
    assert run(11, "ConvTranspose", x, w, auto_pad="SAME_UPPER").tolist() == [[[1, 12, 23]]]
    assert run(11, "ConvTranspose", x, w, auto_pad="SAME_LOWER").tolist() == [[[12, 23, 30]]]
    with pytest.raises(NotImplementedError):
        run(1, "ConvTranspose", x, w, output_shape=[3])


POOLED = np.array([[[1, 5, 2, 4, 3]]], np.float32)


def test_max_pool() -> None:
    assert run(1, "MaxPool", POOLED, kernel_shape=[2]).tolist() == [[[5, 5, 4, 4]]]
    assert run(1, "MaxPool", POOLED, kernel_shape=[2], strides=[2], pads=[1, 0]).tolist() == [[[1, 5, 4]]]
    assert run(10, "MaxPool", POOLED, kernel_shape=[2], dilations=[3]).tolist() == [[[4, 5]]]
    assert run(10, "MaxPool", POOLED, kernel_shape=[2], strides=[2], ceil_mode=1).tolist() == [[[5, 4, 3]]]
    assert run(12, "MaxPool", np.array([[[-5, -7]]], np.int8), kernel_shape=[2], pads=[1, 0]).tolist() == [[[-5, -5]]]


def test_max_pool_indices_count_over_the_whole_tensor() -> None:
    x = np.array([[[[1, 2], [4, 3]], [[8, 7], [5, 6]]]], np.float32)
    assert run(8, "MaxPool", x, kernel_shape=[2, 2], outputs=2)[1].ravel().tolist() == [2, 4]
    assert run(8, "MaxPool", x, kernel_shape=[2, 2], storage_order=1, outputs=2)[1].ravel().tolist() == [1, 4]


def test_a_window_in_the_padding_at_the_end() -> None:
    how = {"kernel_shape": [1], "strides": [2], "pads": [0, 1], "ceil_mode": 1}
    assert run(22, "MaxPool", POOLED[..., :4], **how).tolist() == [[[1, 2]]]
    with pytest.raises(NotImplementedError):
        run(12, "MaxPool", POOLED[..., :4], **how)


def test_average_pool() -> None:
    how = {"kernel_shape": [2], "strides": [2], "pads": [1, 0]}
    assert run(1, "AveragePool", POOLED, **how).tolist() == [[[1, 3.5, 3.5]]]
    assert run(7, "AveragePool", POOLED, count_include_pad=1, **how).tolist() == [[[0.5, 3.5, 3.5]]]
    for side, wanted in (("SAME_UPPER", [3, 3.5, 3, 3.5, 3]), ("SAME_LOWER", [1, 3, 3.5, 3, 3.5])):
        assert run(7, "AveragePool", POOLED, kernel_shape=[2], auto_pad=side).tolist() == [[wanted]]
    assert np.isnan(run(7, "AveragePool", f(1, NAN, 1).reshape(1, 1, 3), kernel_shape=[2])).all()


def test_global_max_pool_of_any_rank() -> None:
    assert run(1, "GlobalMaxPool", CUBE).tolist() == CUBE.max(-1, keepdims=True).tolist()


# Shapes and moves


def test_cast_takes_a_name_before_opset_6() -> None:
    assert run(1, "Cast", f(1.5, -1.5), to="INT32").dtype == np.int32


def test_axes_may_be_in_any_order() -> None:
    for opset in (1, 11):
        assert run(opset, "Unsqueeze", GRID, axes=[3, 0]).shape == (1, 2, 3, 1)
    assert run(13, "Unsqueeze", GRID, np.array([-1, 0])).shape == (1, 2, 3, 1)
    assert run(1, "Squeeze", GRID.reshape(1, 2, 1, 3), axes=[2, 0]).shape == (2, 3)
    for op in ("Unsqueeze", "Squeeze"):
        with pytest.raises(ValueError, match="negative"):
            run(1, op, GRID.reshape(2, 3, 1), axes=[-1])
    with pytest.raises(ValueError):
        run(11, "Squeeze", GRID, axes=[0])


def test_reshape_by_attribute() -> None:
    assert run(1, "Reshape", CUBE, shape=[0, -1]).shape == (2, 12)


def test_flatten_of_nothing() -> None:
    assert run(9, "Flatten", np.zeros((0, 3, 4), np.float32), axis=-2).shape == (0, 12)


def test_concat_defaults_to_axis_1_before_opset_4() -> None:
    assert run(1, "Concat", GRID, GRID).shape == (2, 6)


def test_slice() -> None:
    assert run(1, "Slice", GRID, starts=[1, 0], ends=[9, -1]).tolist() == [[3, 4]]
    backwards = run(10, "Slice", np.arange(5), np.array([-1]), np.array([-9]), np.array([0]), np.array([-2]))
    assert backwards.tolist() == [4, 2, 0]
    assert run(10, "Slice", np.arange(5), np.array([2]), np.array([1])).size == 0


def test_split() -> None:
    assert [p.shape for p in run(2, "Split", GRID, axis=1, split=[1, 2], outputs=2)] == [(2, 1), (2, 2)]
    assert [p.shape for p in run(18, "Split", CUBE, axis=2, num_outputs=3, outputs=3)] == [
        (2, 3, 2),
        (2, 3, 2),
        (2, 3, 0),
    ]
    with pytest.raises(ValueError):
        run(2, "Split", GRID, axis=1, outputs=2)


def test_pad() -> None:
    x = f(1, 2, 3)
    assert run(1, "Pad", x, paddings=[1, 2], value=9.0).tolist() == [9, 1, 2, 3, 9, 9]
    assert run(2, "Pad", x, pads=[2, -1], mode="edge").tolist() == [1, 1, 1, 2]
    assert run(11, "Pad", x, np.array([1, 1]), mode="reflect").tolist() == [2, 1, 2, 3, 2]
    assert run(18, "Pad", GRID, np.array([0, 1]), np.float32(7), np.array([-1])).tolist() == [
        [0, 1, 2, 7],
        [3, 4, 5, 7],
    ]
    assert run(19, "Pad", x, np.array([1, 1]), mode="wrap").tolist() == [3, 1, 2, 3, 1]


def test_tile_and_upsample() -> None:
    assert run(1, "Tile", f(1, 2), f(2), f(0)).tolist() == [1, 2, 1, 2]
    assert run(6, "Tile", GRID, np.array([1, 2])).shape == (2, 6)
    x = f(1, 2).reshape(1, 1, 1, 2)
    assert run(1, "Upsample", x, height_scale=2.0, width_scale=1.5).tolist() == [[[[1, 1, 2], [1, 1, 2]]]]
    assert run(7, "Upsample", x, scales=[1.0, 1.0, 1.0, 2.0]).ravel().tolist() == [1, 1, 2, 2]
    with pytest.raises(NotImplementedError, match="linear"):
        run(9, "Upsample", x, f(1, 1, 1, 2), mode="linear")


def test_expand_keeps_every_value() -> None:
    assert np.array_equal(
        run(8, "Expand", f(NAN, INF), np.array([2, 1])), f(NAN, INF) + np.zeros((2, 1)), equal_nan=True
    )
    assert run(13, "Expand", np.array(["a"], object), np.array([2])).tolist() == ["a", "a"]


def test_shape_clamps_its_ends() -> None:
    assert run(15, "Shape", CUBE, start=-2).tolist() == [3, 4]
    assert run(15, "Shape", CUBE, start=-9, end=9).tolist() == [2, 3, 4]
    assert run(15, "Shape", CUBE, start=2, end=1).tolist() == []


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_reductions_by_attribute(opset: int) -> None:
    assert run(opset, "ReduceMean", CUBE, axes=[1], keepdims=0).tolist() == CUBE.mean(1).tolist()
    assert run(opset, "ReduceL2", CUBE).shape == (1, 1, 1)
    assert np.allclose(run(opset, "ReduceLogSumExp", f(1000, 1000)), 1000 + np.log(2))


def test_arg_max_takes_the_first_or_the_last_of_equals() -> None:
    x = np.array([[1, 3, 3]], np.float32)
    assert run(1, "ArgMax", x, axis=1).tolist() == [[1]]
    assert run(12, "ArgMax", x, axis=-1, keepdims=0, select_last_index=1).tolist() == [2]
    assert run(13, "ArgMin", x, axis=1).tolist() == [[0]]


def test_reductions_by_input() -> None:
    assert run(13, "ReduceSum", CUBE, np.array([0, 2]), keepdims=0).tolist() == CUBE.sum((0, 2)).tolist()
    assert run(20, "ReduceMax", np.zeros((0,), np.float32)).tolist() == [-INF]


# Control flow


def loop(opset: int, trips, condition, x: np.ndarray, going: str = "Identity") -> list:
    body = helper.make_graph(
        [
            helper.make_node(going, ["g"], ["h"]),
            helper.make_node("Add", ["v", "outer"], ["w"]),
            helper.make_node("Identity", ["w"], ["s"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, ()), ("g", 9, ()), ("v", 1, None))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("h", 9, ()), ("w", 1, None), ("s", 1, None))],
    )
    names = ["m" if trips is not None else "", "c" if condition is not None else "", "x"]
    node = helper.make_node("Loop", names, ["y", "stack"], body=body)
    feeds = {"m": trips, "c": condition, "x": x, "outer": np.float32(1)}
    feeds = {name: np.asarray(value) for name, value in feeds.items() if value is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("y", "stack")]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, outputs), opset_imports=[helper.make_opsetid("", opset)]
    )
    return evaluator(model).run(None, feeds)


@pytest.mark.parametrize("opset", [8, 13])
def test_loop_stacks_scalars_into_a_vector(opset: int) -> None:
    y, stack = loop(opset, 3, True, np.float32(0))
    assert y.tolist() == 3 and stack.tolist() == [1, 2, 3]


def test_loop_without_a_condition_or_a_count() -> None:
    assert loop(13, 2, None, f(0, 5))[1].tolist() == [[1, 6], [2, 7]]
    assert loop(13, None, True, f(0), going="Not")[0].tolist() == [1]
    with pytest.raises(NotImplementedError):
        loop(13, 0, True, f(0))


def test_scan_backwards_along_another_axis() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "r"], ["b"]), helper.make_node("Identity", ["b"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, 1, (2,)) for n in ("a", "r")],
        [helper.make_tensor_value_info(n, 1, (2,)) for n in ("b", "o")],
    )
    node = helper.make_node(
        "Scan", ["s", "x"], ["y", "z"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1]
    )
    values = {"s": f(0, 0), "x": GRID}
    infos = [helper.make_tensor_value_info(n, 1, v.shape) for n, v in values.items()]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("y", "z")]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, outputs), opset_imports=[helper.make_opsetid("", 11)]
    )
    y, z = evaluator(model).run(None, values)
    assert y.tolist() == [3, 12] and z.tolist() == [[2, 5], [3, 9], [3, 12]]


def test_scan_8_goes_over_a_batch_of_sequences_of_their_own_length() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "r"], ["b"]), helper.make_node("Identity", ["b"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, 1, (1,)) for n in ("a", "r")],
        [helper.make_tensor_value_info(n, 1, (1,)) for n in ("b", "o")],
    )
    node = helper.make_node("Scan", ["l", "s", "x"], ["y", "z"], body=body, num_scan_inputs=1, directions=[1])
    values = {"l": np.array([3, 2]), "s": np.zeros((2, 1), np.float32), "x": f(1, 2, 3, 4, 5, 6).reshape(2, 3, 1)}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in values.items()
    ]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("y", "z")]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, outputs), opset_imports=[helper.make_opsetid("", 8)]
    )
    y, z = evaluator(model).run(None, values)
    assert y.tolist() == [[6], [9]] and z[..., 0].tolist() == [[3, 5, 6], [5, 9, 0]]


# Recurrent operators, against their equations for one step and one unit


def sigmoid(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def recurrent(opset: int, op: str, gates: int, *more, outputs: int = 2, **attributes):
    """Two steps of one unit: inputs 1 and 2, weights 0.1, 0.2 ... and recurrence 0.5, 0.6 ..."""
    x = f(1, 2).reshape(2, 1, 1)
    w = (np.arange(1, gates + 1, dtype=np.float32) / 10).reshape(1, gates, 1)
    return run(opset, op, x, w, w + np.float32(0.4), *more, outputs=outputs, hidden_size=1, **attributes)


@pytest.mark.parametrize("opset", [1, 7, 14])
def test_rnn(opset: int) -> None:
    first = np.tanh(0.1)
    second = np.tanh(0.2 + 0.5 * first)
    y, last = recurrent(opset, "RNN", 1)
    assert y.shape == (2, 1, 1, 1) and np.allclose(y.ravel(), [first, second]) and np.allclose(last, second)
    y, last = recurrent(opset, "RNN", 1, direction="reverse")
    assert np.allclose(y.ravel(), [np.tanh(0.1 + 0.5 * np.tanh(0.2)), np.tanh(0.2)]) and np.allclose(last, y[0])
    y, last = recurrent(opset, "RNN", 1, None, np.array([1], np.int32))
    assert np.allclose(y.ravel(), [first, 0]) and np.allclose(last, first)
    assert np.allclose(recurrent(opset, "RNN", 1, clip=0.05)[0].ravel(), np.tanh(0.05))
    assert np.allclose(recurrent(opset, "RNN", 1, activations=["LeakyRelu"], activation_alpha=[0.3])[0].ravel()[0], 0.1)


@pytest.mark.parametrize("opset", [1, 3, 7])
def test_gru(opset: int) -> None:
    bias = f(0, 0, 0, 0.3, 0.2, 0.1).reshape(1, 6)
    h = 0.5
    z, r = sigmoid(0.1 + 0.5 * h + 0.3), sigmoid(0.2 + 0.6 * h + 0.2)
    wanted = (1 - z) * np.tanh(0.3 + 0.7 * r * h + 0.1) + z * h
    state = np.full((1, 1, 1), h, np.float32)
    assert np.allclose(recurrent(opset, "GRU", 3, bias, None, state)[0].ravel()[0], wanted)
    if opset >= 3:
        wanted = (1 - z) * np.tanh(0.3 + r * (0.7 * h + 0.1)) + z * h
        y, _ = recurrent(opset, "GRU", 3, bias, None, state, linear_before_reset=1)
        assert np.allclose(y.ravel()[0], wanted)


@pytest.mark.parametrize("opset", [1, 7])
def test_lstm(opset: int) -> None:
    peepholes = f(0.2, 0.3, 0.4).reshape(1, 3)
    h, c = 0.5, 0.25
    i, o, forget = sigmoid(0.1 + 0.5 * h + 0.2 * c), 0.2 + 0.6 * h, sigmoid(0.3 + 0.7 * h + 0.4 * c)
    cell = forget * c + i * np.tanh(0.4 + 0.8 * h)
    wanted = sigmoid(o + 0.3 * cell) * np.tanh(cell)
    states = [np.full((1, 1, 1), v, np.float32) for v in (h, c)]
    x, w = f(1).reshape(1, 1, 1), (np.arange(1, 5, dtype=np.float32) / 10).reshape(1, 4, 1)
    inputs = (x, w, w + np.float32(0.4), None, None, *states, peepholes)
    y, last, last_cell = run(opset, "LSTM", *inputs, outputs=3, hidden_size=1)
    assert np.allclose(y, wanted) and np.allclose(last, wanted) and np.allclose(last_cell, cell)


def test_layout_puts_the_batch_first() -> None:
    x, w = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 12, np.full((1, 4, 2), 0.1, np.float32)
    r = np.full((1, 4, 4), 0.2, np.float32)
    y, last = run(14, "RNN", x, w, r, outputs=2, hidden_size=4)
    turned, turned_last = run(14, "RNN", x.swapaxes(0, 1), w, r, outputs=2, hidden_size=4, layout=1)
    assert np.array_equal(turned, y.transpose(2, 0, 1, 3)) and np.array_equal(turned_last, last.swapaxes(0, 1))


# Elements picked and put by an index


def test_top_k_by_attribute_takes_the_lower_index_first() -> None:
    values, indices = run(1, "TopK", f(1, 3, 2, 3), k=3, outputs=2)
    assert values.tolist() == [3, 3, 2] and indices.tolist() == [1, 3, 2]
    assert run(10, "TopK", GRID, np.array([1]), axis=0, outputs=2)[0].tolist() == [[3, 4, 5]]
    with pytest.raises(ValueError):
        run(1, "TopK", f(1, 2), k=3, outputs=2)


def test_depth_and_space() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
    assert run(1, "DepthToSpace", x, blocksize=2).tolist() == [[[[0, 1], [2, 3]]]]
    x = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    assert run(11, "DepthToSpace", x, blocksize=2, mode="CRD")[0, 1].tolist() == [[4, 5], [6, 7]]
    assert run(11, "DepthToSpace", x, blocksize=2)[0, 1].tolist() == [[1, 3], [5, 7]]
    back = run(1, "SpaceToDepth", run(1, "DepthToSpace", x, blocksize=2), blocksize=2)
    assert np.array_equal(back, x)


def test_an_index_outside_of_one_hot_sets_nothing() -> None:
    y = run(9, "OneHot", np.array([0, 2, -1]), np.array(2), f(0, 5))
    assert y.tolist() == [[5, 0], [0, 0], [0, 0]]


def test_scatter() -> None:
    data, index, updates = np.zeros((2, 3), np.float32), np.array([[1, 0, 1]]), f(1, 2, 3)[None]
    for op, opset in (("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 16)):
        assert run(opset, op, data, index, updates).tolist() == [[0, 2, 0], [1, 0, 3]]
    twice = run(16, "ScatterElements", data, np.array([[0, 0, 0]]), updates, axis=1, reduction="add")
    assert twice.tolist() == [[6, 0, 0], [0, 0, 0]]
    assert run(11, "ScatterND", data, np.array([[1]]), updates).tolist() == [[0, 0, 0], [1, 2, 3]]
    with pytest.raises(ValueError, match="not within"):
        run(11, "ScatterElements", data, np.array([[2, 0, 0]]), updates)


def test_resize_10_rounds_up_where_it_shrinks() -> None:
    assert run(10, "Resize", f(0, 1, 2, 3), f(0.6)).tolist() == [0, 2]
    assert run(10, "Resize", f(0, 1), f(1.5)).tolist() == [0, 0, 1]


# What onnx.reference gets wrong of later versions


def test_groups_have_one_scale_each_before_21() -> None:
    x = np.array([[[1, 3], [2, 6]]], np.float32)
    y = run(18, "GroupNormalization", x, f(2, 10), f(0, 1), num_groups=2, epsilon=0.0)
    assert np.allclose(y, [[[-2, 2], [-9, 11]]])
    with pytest.raises(ValueError):
        run(18, "GroupNormalization", x, f(2), f(0), num_groups=2)


def test_the_first_stage_of_layer_normalization_has_a_type_of_its_own() -> None:
    x = np.array([[300, 301, 302]], np.float16)
    y, mean, _ = run(17, "LayerNormalization", x, np.ones(3, np.float16), epsilon=0.0, outputs=3)
    assert y.dtype == np.float16 and mean.dtype == np.float32 and mean.item() == 301
    assert np.allclose(y, [[-(1.5**0.5), 0, 1.5**0.5]], atol=1e-3)


def test_lp_pool_of_a_window_that_ends_in_the_padding() -> None:
    x = f(3, 4, 6, 8, 5).reshape(1, 1, 5)
    assert run(18, "LpPool", x, kernel_shape=[2], strides=[2], ceil_mode=1).ravel().tolist() == [5, 10, 5]
    assert run(1, "LpPool", x, kernel_shape=[2], strides=[2], p=1.0).ravel().tolist() == [7, 14]


def test_quantized_halves_go_to_even_and_limits_hold() -> None:
    x = f(0.5, 1.5, 2.5, -1, 1000)
    assert run(10, "QuantizeLinear", x, f(1).reshape(())).tolist() == [0, 2, 2, 0, 255]
    per_row = run(13, "QuantizeLinear", GRID, f(1, 2), np.array([0, 10], np.int8), axis=0)
    assert per_row.tolist() == [[0, 1, 2], [12, 12, 12]]
    back = run(13, "DequantizeLinear", np.array([[0, 255]], np.uint8), f(2, 3), np.array([128, 0], np.uint8))
    assert back.tolist() == [[-256, 765]]


def test_unique_keeps_the_order_in_which_values_come() -> None:
    values, first, inverse, counts = run(11, "Unique", f(2, 1, 2, 3), sorted=0, outputs=4)
    assert values.tolist() == [2, 1, 3] and first.tolist() == [0, 1, 3]
    assert inverse.tolist() == [0, 1, 0, 2] and counts.tolist() == [2, 1, 1]


def test_string_normalizer() -> None:
    words = np.array(["Monday", "Ärger", "x"], object)
    assert run(10, "StringNormalizer", words).tolist() == ["Monday", "Ärger", "x"]
    assert run(10, "StringNormalizer", words, case_change_action="UPPER", stopwords=["X"]).tolist() == [
        "MONDAY",
        "ÄRGER",
    ]
    assert run(10, "StringNormalizer", words[2:], is_case_sensitive=1, stopwords=["x"]).tolist() == [""]


# Cases that ONNX 1.2 and 1.3 were released with


CASES = Path(__file__).parent / "legacy_cases.zip"


@functools.cache
def release_cases() -> dict[str, dict[str, bytes]]:
    """The files of each case by their names: a sample of opset 6 to 8, of every operator that has a meaning here."""
    with zipfile.ZipFile(CASES) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return {
        case: {name[len(case) + 1 :]: data for name, data in files.items() if name.startswith(f"{case}/")}
        for case in sorted({"/".join(name.split("/")[:3]) for name in files})
    }


@pytest.mark.parametrize("case", release_cases())
def test_a_release_gives_what_it_expects(case: str) -> None:
    files = release_cases()[case]
    model = onnx.load_from_string(files["model.onnx"])
    names = [value.name for value in model.graph.input]

    def tensors(kind: str) -> list[np.ndarray]:
        found = sorted(name for name in files if name.startswith(f"test_data_set_0/{kind}_"))
        return [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(files[name])) for name in found]

    with np.errstate(all="ignore"):
        results = evaluator(model).run(None, dict(zip(names, tensors("input"), strict=False)))
    for result, wanted in zip(results, tensors("output"), strict=True):
        assert result.dtype == wanted.dtype and result.shape == wanted.shape
        assert (
            np.allclose(result, wanted, 1e-4, 1e-5, equal_nan=True)
            if wanted.dtype.kind == "f"
            else (np.array_equal(result, wanted))
        )


# What is trusted


@pytest.mark.parametrize(
    "op, opset",
    [("Celu", 11), ("Resize", 11), ("TfIdfVectorizer", 99), ("Gelu", 19), ("Attention", 23)],
)
def test_versions_without_a_meaning_here(op: str, opset: int) -> None:
    with pytest.raises(NotImplementedError):
        implementation(op, opset)


@pytest.mark.parametrize(
    "op, version, known",
    [("Cast", 6, True), ("Concat", 1, False), ("Identity", 1, True), ("Resize", 19, True), ("Resize", 18, False)],
)
def test_reference_knows(op: str, version: int, known: bool) -> None:
    assert reference_knows(op, version) is known


def test_the_long_name_of_the_default_domain() -> None:
    assert run(13, "Relu", f(-1, 1), domain="ai.onnx").tolist() == [0, 1]


def test_functions_follow_their_own_opset() -> None:
    old = helper.make_function(
        "local", "F", ["x"], ["y"], [helper.make_node("Softmax", ["x"], ["y"])], [helper.make_opsetid("", 11)]
    )
    x, y = (helper.make_tensor_value_info(n, 1, (2, 3, 4)) for n in "xy")
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="local")], "g", [x], [y])
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, functions=[old], opset_imports=imports)
    assert np.allclose(evaluator(model).run(None, {"x": CUBE})[0], np.stack([softmax(row) for row in CUBE]))


def test_training_operators_are_not_trusted() -> None:
    node = helper.make_node("Adam", ["r", "t", "x", "g", "v", "h"], ["a", "b", "c"], domain="ai.onnx.preview.training")
    infos = [helper.make_tensor_value_info(n, 1, (1,)) for n in node.input]
    outputs = [helper.make_tensor_value_info(n, 1, (1,)) for n in node.output]
    imports = [helper.make_opsetid("ai.onnx.preview.training", 1)]
    model = helper.make_model(helper.make_graph([node], "g", infos, outputs), opset_imports=imports)
    with pytest.raises(NotImplementedError):
        evaluator(model)


def test_every_meaning_names_an_operator_and_its_versions() -> None:
    from relu_tools.legacy import MEANINGS

    for op, meanings in MEANINGS.items():
        assert onnx.defs.has(op)
        spans = sorted((since, until) for since, until, _ in meanings)
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False)), op
