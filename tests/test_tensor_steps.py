"""Random models of one operator that indexes, slices, pads or reshapes: both forms give the same on onnxruntime.

Values that older versions want as attributes are fed here, so that the computed forms are met as well.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import relu_tools
from relu_tools import ConversionError, magnitudes
from relu_tools.facts import Scope
from relu_tools.model import Model
from relu_tools.signs import nonnegative

NUMPY = {T.FLOAT: np.float32, T.INT64: np.int64, T.INT32: np.int32, T.UINT8: np.uint8, T.BOOL: np.bool_}
MODELS, FEWER = 25, 8


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


class Case:
    """One node; `put` gives it its next input, fed or as an initializer, of known or of named dimensions."""

    def __init__(self, random: np.random.Generator, op: str, opset: int, **attributes):
        self.random, self.op, self.opset, self.attributes = random, op, opset, attributes
        self.names: list[str] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.feeds: dict[str, np.ndarray] = {}

    def put(self, value, dtype: int = T.INT64, *, constant: float = 0.4, named: float = 0.0) -> Case:
        name = f"i{len(self.names)}" if value is not None else ""
        self.names.append(name)
        if value is None:
            return self
        array = np.asarray(value, NUMPY[dtype])
        if self.random.random() < constant:
            self.initializers.append(numpy_helper.from_array(array, name))
            return self
        dims = [f"{name}_{k}" if self.random.random() < named else dim for k, dim in enumerate(array.shape)]
        self.infos.append(helper.make_tensor_value_info(name, dtype, dims))
        self.feeds[name] = array
        return self

    def data(self, dtype: int, shape) -> Case:
        high = 2 if dtype == T.BOOL else 100
        return self.put(self.random.integers(0, high, shape), dtype, constant=0, named=0.3)

    def model(self, dtype: int, outputs: int = 1) -> onnx.ModelProto:
        node = helper.make_node(self.op, self.names, [f"y{k}" for k in range(outputs)], **self.attributes)
        infos = [helper.make_tensor_value_info(name, dtype, None) for name in node.output]
        graph = helper.make_graph([node], "g", self.infos, infos, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def some(random, *values):
    return values[int(random.integers(len(values)))]


def shape(random, rank, low=1):
    return [int(n) for n in random.integers(low, 5, rank)]


def from_back(random, values, length):
    return np.where(random.random(np.shape(values)) < 0.5, values, values - length)


# --- one random case of each kind --------------------------------------------------------------
def slice_(random):
    rank, dtype, index = int(random.integers(1, 4)), some(random, *NUMPY), some(random, T.INT32, T.INT64)
    count = int(random.integers(1, rank + 1))
    steps = np.array([some(random, 1, 1, 2, -1, -3) for _ in range(count)])
    ends = random.integers(-6, 7, count)
    if random.random() < 0.3:
        limits = np.iinfo(NUMPY[index])
        ends = np.where(steps > 0, limits.max, limits.min)
    axes = from_back(random, random.permutation(rank)[:count], rank)
    case = Case(random, "Slice", 13).data(dtype, shape(random, rank, 0))
    case.put(random.integers(-6, 7, count), index).put(ends, index).put(axes, index)
    return case.put(some(random, steps, None), index).model(dtype), case.feeds


def split(random):
    rank, parts, dtype = int(random.integers(1, 4)), int(random.integers(1, 4)), some(random, *NUMPY)
    axis, dims = int(random.integers(rank)), shape(random, rank)
    by_number = random.random() < 0.5
    lengths = random.integers(0, 4, parts)
    dims[axis] = int(random.integers(parts, 3 * parts)) if by_number else int(lengths.sum())
    if by_number and dims[axis] <= -(-dims[axis] // parts) * (parts - 1):
        dims[axis] = parts  # what a last part below 0 means is not defined
    number = {"num_outputs": parts} if by_number else {}
    case = Case(random, "Split", 18, axis=int(from_back(random, axis, rank)), **number).data(dtype, dims)
    return case.put(None if by_number else lengths).model(dtype, parts), case.feeds


def pad(random):
    rank, dtype = int(random.integers(1, 4)), some(random, *NUMPY)
    mode = some(random, "constant", "edge", "reflect", "wrap")
    dims, axes = shape(random, rank, 3), random.permutation(rank)[: int(random.integers(1, rank + 1))]
    pads = random.integers(-1 if mode == "constant" else 0, 3, 2 * len(axes))
    case = Case(random, "Pad", 19, mode=mode).data(dtype, dims).put(pads)
    case.put(some(random, None, 1) if mode == "constant" else None, dtype)
    return case.put(from_back(random, axes, rank)).model(dtype), case.feeds


def gather(random):
    rank, dtype = int(random.integers(1, 4)), some(random, *NUMPY)
    dims, axis = shape(random, rank), int(random.integers(rank))
    case = Case(random, "Gather", 13, axis=int(from_back(random, axis, rank))).data(dtype, dims)
    indices = random.integers(-dims[axis], dims[axis], shape(random, int(random.integers(0, 3))))
    return case.put(indices, some(random, T.INT32, T.INT64)).model(dtype), case.feeds


def gather_batches(random):
    batches, more = int(random.integers(0, 3)), int(random.integers(1, 3))
    dims, depth = shape(random, batches + more), int(random.integers(1, more + 1))
    lead = dims[:batches] + shape(random, int(random.integers(0, 2)))
    sizes = np.array(dims[batches : batches + depth])
    case = Case(random, "GatherND", 13, batch_dims=batches).data(T.FLOAT, dims)
    return case.put(random.integers(-sizes, sizes, [*lead, depth]), named=0.3).model(T.FLOAT), case.feeds


def scatter(random):
    rank, dtype = int(random.integers(1, 4)), some(random, T.FLOAT, T.INT64, T.INT32)
    dims, axis = shape(random, rank), int(random.integers(rank))
    index = [int(random.integers(1, dim + 1)) for dim in dims]
    index[axis] = int(random.integers(1, 5))
    case = Case(random, "ScatterElements", 18, axis=axis, reduction=some(random, "add", "mul", "max", "min"))
    case.data(dtype, dims).put(random.integers(-dims[axis], dims[axis], index), named=0.3)
    return case.put(random.integers(-9, 9, index), dtype, constant=0).model(dtype), case.feeds


def scatter_nd(random):
    rank, dtype = int(random.integers(1, 4)), some(random, T.FLOAT, T.INT64, T.INT32)
    dims, lead = shape(random, rank), shape(random, int(random.integers(0, 3)))
    depth = int(random.integers(1, rank + 1))
    sizes = np.array(dims[:depth])
    case = Case(random, "ScatterND", 18, reduction=some(random, "add", "mul", "max", "min")).data(dtype, dims)
    case.put(random.integers(-sizes, sizes, [*lead, depth]))
    return case.put(random.integers(-9, 9, [*lead, *dims[depth:]]), dtype, constant=0).model(dtype), case.feeds


def one_hot(random):
    rank = int(random.integers(1, 3))
    case = Case(random, "OneHot", 11, axis=int(random.integers(-rank - 1, rank + 1)))
    case.put(random.integers(-6, 6, shape(random, rank)), constant=0.2)
    return case.put([int(random.integers(1, 4))]).put([2, 5], T.FLOAT, constant=0).model(T.FLOAT), case.feeds


def squeeze(random):
    rank, dtype = int(random.integers(1, 4)), some(random, *NUMPY)
    axes, dims = random.permutation(rank)[: int(random.integers(1, rank + 1))], shape(random, rank, 0)
    dims = [1 if axis in axes else dim for axis, dim in enumerate(dims)]
    case = Case(random, "Squeeze", 13).data(dtype, dims)
    return case.put(from_back(random, axes, rank)).model(dtype), case.feeds


def unsqueeze(random):
    rank, new, dtype = int(random.integers(1, 3)), int(random.integers(1, 3)), some(random, *NUMPY)
    axes = random.permutation(rank + new)[:new]
    case = Case(random, "Unsqueeze", 13).data(dtype, shape(random, rank, 0))
    return case.put(from_back(random, axes, rank + new)).model(dtype), case.feeds


def reshape(random):
    dims, dtype = shape(random, int(random.integers(1, 4)), 0), some(random, *NUMPY)
    target = dims[::-1] if 0 in dims or random.random() < 0.5 else [-1, dims[0]]
    case = Case(random, "Reshape", 14, allowzero=1).data(dtype, dims)
    return case.put(target).model(dtype), case.feeds


def expand(random):
    dims, dtype = shape(random, int(random.integers(0, 4)), 0), some(random, *NUMPY)
    given = [some(random, 1, dim) for dim in dims]
    target = [1 if random.random() < 0.3 and dim == had else dim for dim, had in zip(dims, given, strict=True)]
    cut = int(random.integers(0, 2)) if target[:1] == [1] else 0
    case = Case(random, "Expand", 13).data(dtype, given)
    return case.put(some(random, target[cut:], [2, *target])).model(dtype), case.feeds


def depth_to_space(random):
    mode, channels = some(random, "DCR", "CRD"), int(random.integers(1, 4))
    case = Case(random, "DepthToSpace", 13, blocksize=2, mode=mode)
    case.put(random.integers(0, 100, [2, 4 * channels, 2, 3]), T.FLOAT, constant=0)
    return case.model(T.FLOAT), case.feeds


def upsample(random):
    dims = shape(random, 4)
    case = Case(random, "Upsample", 9).put(random.integers(0, 100, dims), T.FLOAT, constant=0, named=0.3)
    return case.put(random.uniform(1, 3, 4), T.FLOAT, constant=0.2).model(T.FLOAT), case.feeds


KINDS = {
    slice_: 7,
    split: 7,
    pad: 7,
    gather: 7,
    gather_batches: 11,
    scatter: 11,
    scatter_nd: 11,
    one_hot: 9,
    squeeze: 7,
    unsqueeze: 7,
    reshape: 7,
    expand: 7,
    depth_to_space: 7,
    upsample: 7,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.rstrip("_"))
def test_both_forms_give_the_same(kind):
    random = np.random.default_rng(0)
    for number in range(MODELS):
        model, feeds = kind(random)
        want = run(model, feeds)
        for info, value in zip(model.graph.output, want, strict=True):
            dims = [f"{info.name}_{k}" for k in range(np.ndim(value))]
            info.type.CopyFrom(helper.make_tensor_type_proto(info.type.tensor_type.elem_type, dims))
        opset = model.opset_import[0].version
        for target in {KINDS[kind], int(random.integers(KINDS[kind], opset))}:
            converted = relu_tools.convert_version(model, target)
            onnx.checker.check_model(converted, full_check=True)
            for ours, value in zip(run(converted, feeds), want, strict=True):
                message = f"model {number}, {opset} to {target}: {onnx.printer.to_text(model)}"
                np.testing.assert_array_equal(ours, value, err_msg=message, strict=True)


@pytest.mark.parametrize("rois", ["8", "R"])
def test_a_crop_whose_corners_may_be_of_an_unknown_number(rois):
    """By the formula of the specification: onnxruntime's own kernel leaves the outer axes uncropped."""
    text = f"""<ir_version: 6, opset_import: ["" : 11]>
    g (float[A, B, C, D] x, float[{rois}] roi) => (float[E, F, G, H] y) {{
        s = Constant<value = float[0] {{}}>()
        n = Constant<value = int64[4] {{2, 1, 3, 4}}>()
        y = Resize<mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, s, n)
    }}"""
    converted = relu_tools.convert_version(onnx.parser.parse_model(text), 10)
    random = np.random.default_rng(0)
    for _ in range(FEWER):
        x = random.random(shape(random, 4), np.float32)
        starts, ends = (random.uniform(*span, 4).astype(np.float32) for span in ((-0.2, 0.4), (0.6, 1.2)))
        want = x
        for axis, (size, start, end) in enumerate(zip((2, 1, 3, 4), starts, ends, strict=True)):
            last = np.float32(x.shape[axis] - 1)
            at = start * last + np.arange(size, dtype=np.float32) * (end - start) * last / np.float32(max(size - 1, 1))
            at = at if size > 1 else np.float32([0.5]) * (start + end) * last
            outside = np.expand_dims((at < 0) | (at > last), [k for k in range(4) if k != axis])
            want = np.where(outside, 0, np.take(want, np.ceil(np.clip(at, 0, last) - 0.5).astype(int), axis))
        np.testing.assert_array_equal(run(converted, {"x": x, "roi": np.concatenate([starts, ends])})[0], want)


# No runtime has the Cast of before 6: what comes out is brought up again, which has tests of its own.
LOWEST = (slice_, split, pad, gather, squeeze, unsqueeze, reshape, expand)
OF_INT64 = ("does not take tensor(int64)", "none holds int64")


@pytest.mark.parametrize("kind", LOWEST, ids=lambda kind: kind.__name__.rstrip("_"))
def test_both_forms_give_the_same_before_integers_can_be_added(kind):
    """Indices, lengths and shapes are computed in double there; only data of 64 bits may be too large for one."""
    random = np.random.default_rng(1)
    converted = 0
    for number in range(FEWER):
        model, feeds = kind(random)
        want = run(model, feeds)
        for info, value in zip(model.graph.output, want, strict=True):
            dims = [f"{info.name}_{k}" for k in range(np.ndim(value))]
            info.type.CopyFrom(helper.make_tensor_type_proto(info.type.tensor_type.elem_type, dims))
        message = f"model {number}: {onnx.printer.to_text(model)}"
        try:
            low = relu_tools.convert_version(model, int(random.integers(1, 6)))
        except ConversionError as error:
            wide = model.graph.output[0].type.tensor_type.elem_type == T.INT64
            assert wide and any(text in str(error) for text in OF_INT64), f"{error} {message}"
            continue
        onnx.checker.check_model(low, full_check=True)
        for ours, value in zip(run(relu_tools.convert_version(low, 13), feeds), want, strict=True):
            np.testing.assert_array_equal(ours, value, err_msg=message, strict=True)
        converted += 1
    assert converted > FEWER / 2


# --- what the computed forms rest on -------------------------------------------------------------
@pytest.mark.parametrize("dtype", [T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ])
def test_float8_goes_through_a_cast_with_every_value(dtype):
    """Transpose takes float8 from 21 on; infinities come back as they were."""
    import onnxruntime

    text = f"""<ir_version: 9, opset_import: ["" : 21]>
    g ({T.DataType.Name(dtype).lower()}[2, 128] x) => (float[128, 2] y) {{ t = Transpose(x) y = Cast<to = 1>(t) }}"""
    model = onnx.parser.parse_model(text)
    converted = relu_tools.convert_version(model, 20)
    assert [node.op_type for node in converted.graph.node] == ["Cast", "Transpose", "Cast", "Cast"]
    bits = np.arange(256, dtype=np.uint8).reshape(2, 128)
    results = []
    for form in (model, converted):
        session = onnxruntime.InferenceSession(form.SerializeToString(), providers=["CPUExecutionProvider"])
        value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, dtype)
        results.append(session.run_with_ort_values(None, {"x": value})[0].numpy())
    np.testing.assert_array_equal(*results)
    assert np.isinf(results[0]).any() == (dtype == T.FLOAT8E5M2)


NONNEGATIVE = {
    "c": True,
    "negative": False,
    "x": False,
    "small": True,
    "shape": True,
    "where": True,
    "picked": True,
    "joined": True,
    "mixed": False,
    "largest": False,
    "place": True,
    "sum": False,
    "wrapped": False,
    "wide": True,
}


def test_what_is_known_not_to_be_below_0():
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (int64[3] x, uint8[3] b, uint64[3] wide) => (int64[3] y) {
        c = Constant<value = int64[2] {0, 3}>()
        negative = Constant<value = int64[2] {0, -3}>()
        small = Cast<to = 7>(b)
        shape = Shape(x)
        where = NonZero(x)
        picked = Gather(shape, x)
        joined = Concat<axis = 0>(shape, c, small)
        mixed = Concat<axis = 0>(shape, x)
        k = Constant<value = int64[1] {1}>()
        largest, place = TopK(x, k)
        sum = Add(shape, x)
        wrapped = Cast<to = 7>(wide)
        y = Identity(x)
    }"""
    model = onnx.parser.parse_model(text)
    scope = Scope(Model(model, {"": 13}, lambda tensor: tensor), model.graph, {"": 13})
    assert {name: nonnegative(scope, name) for name in NONNEGATIVE} == NONNEGATIVE


MAGNITUDES = {
    "x": None,
    "axes": magnitudes.PLACES,
    "c": 2,
    "b": 8,
    "shape": magnitudes.PLACES,
    "sum": magnitudes.PLACES + 1,
    "product": 2 * magnitudes.PLACES,
    "half": magnitudes.PLACES,
    "whole": magnitudes.PLACES,
    "other": magnitudes.PLACES + 2,
    "mixed": None,
    "chosen": magnitudes.PLACES,
    "below": 8,
    "wrapped": None,
    "back": None,
    "beyond": None,
    "total": magnitudes.PLACES + 2,
}


def test_how_large_integers_can_be():
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (int64[N, 3] x, uint8[3] b, int64[2] axes, uint64[2] wide, int8[2] signed, bool[2] p) => (int64 y) {
        c = Constant<value = int64[2] {0, -3}>()
        z = Unsqueeze(x, axes)
        shape = Shape(x)
        sum = Add(shape, c)
        product = Mul(shape, axes)
        half = Div(shape, c)
        whole = Mul(half, c)
        other = Mul(half, d)
        d = Constant<value = int64[2] {2, 3}>()
        mixed = Concat<axis = 0>(shape, x)
        chosen = Where(p, shape, axes)
        below = Cast<to = 7>(signed)
        wrapped = Cast<to = 13>(signed)
        back = Cast<to = 7>(wrapped)
        small = Cast<to = 13>(b)
        beyond = Sub(small, small)
        total = ReduceSum(shape)
        y = Identity(x)
    }"""
    model = onnx.parser.parse_model(text)
    scope = Scope(Model(model, {"": 13}, lambda tensor: tensor), model.graph, {"": 13})
    scope.places.update(magnitudes.counted(model.graph.node[1]))
    assert {name: magnitudes.bits(scope, name) for name in MAGNITUDES} == MAGNITUDES


def test_a_long_chain_of_sums_is_not_followed_to_its_end():
    lines = ["a0 = Shape(x)", *(f"a{k + 1} = Add(a{k}, a{k})" for k in range(5000))]
    text = f"""<ir_version: 8, opset_import: ["" : 13]>
    g (float[N] x) => (int64 y) {{ {" ".join(lines)} y = Identity(a5000) }}"""
    model = onnx.parser.parse_model(text)
    scope = Scope(Model(model, {"": 13}, lambda tensor: tensor), model.graph, {"": 13})
    assert magnitudes.bits(scope, "a3") == magnitudes.PLACES + 3
    assert magnitudes.bits(scope, "y") is None


def test_a_shape_follows_from_constants_that_are_computed():
    """Inference over a model does not know how Split splits by such lengths; an index counts from the back."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 8] x) => (float[2, 1] y, float[2, 4] b) {
        shape = Shape(x)
        one = Constant<value = int64 {1}>()
        two = Constant<value = int64 {2}>()
        size = Gather(shape, one)
        half = Div(size, two)
        vector = Constant<value = int64[1] {1}>()
        length = Reshape(half, vector)
        lengths = Concat<axis = 0>(length, length)
        a, b = Split<axis = 1>(x, lengths)
        last = Constant<value = int64[1] {-1}>()
        y = Gather<axis = 1>(a, last)
    }"""
    converted = relu_tools.convert_version(onnx.parser.parse_model(text), 10)
    (gather,) = [node for node in converted.graph.node if node.output[0] == "y"]
    (index,) = [node for node in converted.graph.node if node.output[0] == gather.input[1]]
    assert numpy_helper.to_array(index.attribute[0].t).tolist() == [3]
