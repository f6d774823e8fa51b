"""Bodies of com.microsoft's quantized operators against onnxruntime's own kernels.

Each test draws its shapes, types, scales and optional inputs; the default run takes two draws, the marker `slow` many.
"""

from __future__ import annotations

import drawing
import kernels
import ml_dtypes
import numpy as np
import pytest
from drawing import draws

import relu_tools

BYTES = (np.uint8, np.int8)
# Some scales make every second quotient a half, which is where ways of rounding differ.
SCALES = (0.5, 0.25, 1.0, 0.75, 0.1, 0.3, 0.6, 0.013, 0.11)


class Draw(drawing.Draw):
    """What a test draws, of int8 or uint8."""

    def __init__(self, seed):
        super().__init__(seed, *BYTES)
        self.dtype = BYTES[seed % 2]

    def bytes(self, *shape, dtype=None):
        limits = np.iinfo(dtype or self.dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype or self.dtype)

    def floats(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def scale(self, *shape):
        scale = np.float32(self.any(*SCALES, self.rng.uniform(0.005, 0.3)))
        return scale if not shape else (scale * self.rng.uniform(0.5, 1.5, shape)).astype(np.float32)

    def zero(self, optional=True, dtype=None):
        return self.any(None, self.bytes(dtype=dtype)) if optional else self.bytes(dtype=dtype)

    def zeros(self):
        """A zero point as a scalar or a vector of one element, or none."""
        return self.any(None, self.bytes(), self.bytes(1))

    def one(self):
        """A scale, as a scalar or a vector of one element."""
        return self.any(self.scale(), self.scale().reshape(1))

    def sizes(self, low=1, high=4):
        """The shape of so many axes, or fewer."""
        return self.shape(int(self.rng.integers(low, high + 1)), high=8)

    def broadcast(self, shape):
        return tuple(self.any(size, size, 1) for size in shape[self.rng.integers(len(shape)) :])


@draws
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op, seed):
    draw = Draw(seed)
    shape = draw.sizes()
    a = [draw.bytes(*shape), draw.scale(), draw.zero(optional=False)]
    b = [draw.bytes(*draw.broadcast(shape)), draw.scale(), draw.zero(optional=False)]
    kernels.check(op, [*a, *b, draw.scale(), draw.zero(optional=False)], **draw.how)


@draws
def test_sigmoid(seed):
    draw = Draw(seed)
    inputs = [draw.bytes(*draw.sizes()), draw.one(), draw.zeros(), np.float32(1 / 256), draw.zeros()]
    kernels.check("QLinearSigmoid", inputs, **draw.how)


@draws
def test_leaky_relu(seed):
    draw = Draw(seed)
    inputs = [draw.bytes(*draw.sizes()), draw.one(), draw.zeros(), draw.one(), draw.zeros()]
    kernels.check("QLinearLeakyRelu", inputs, alpha=draw.any(None, 0.5, 0.1), **draw.how)


@draws
def test_softmax(seed):
    draw = Draw(seed)
    shape = draw.sizes(2)
    low = np.iinfo(draw.dtype).min
    # onnxruntime wraps around where a probability of 1 is more than the type holds.
    scale, zero = draw.any((1 / 200, low), (1 / 255, low), (0.02, low + 9), (0.7, low))
    inputs = [draw.bytes(*shape), draw.one(), draw.zero(), np.float32(scale), draw.dtype(zero)]
    axis = draw.any(None, *range(-len(shape), len(shape)))
    # Its exponentials are kept as floats of a table.
    kernels.check("QLinearSoftmax", inputs, attr_opset=draw.any(11, 13), axis=axis, quanta=1, **draw.how)


def test_softmax_of_a_coarse_scale():
    """1 / 0.7 is more than 1, with which onnxruntime multiplies."""
    draw = Draw(0)
    inputs = [draw.bytes(4, 3), np.float32(0.02), draw.bytes(), np.float32(0.7), np.uint8(0)]
    kernels.check("QLinearSoftmax", inputs, attr_opset=13)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 2, 3), (2, 3, 0), (2, 3, 4)])
def test_softmax_of_sizes_that_may_be_0(shape, opset, dynamic):
    draw = Draw(0)
    inputs = [draw.bytes(*shape), np.float32(0.02), draw.bytes(), np.float32(1 / 256), np.uint8(0)]
    for axis in (0, 1, 2, -1):
        kernels.check("QLinearSoftmax", inputs, attr_opset=opset, opset=opset, axis=axis, quanta=1, dynamic=dynamic)


@draws
def test_where(seed):
    draw = Draw(seed)
    shape = draw.sizes()
    condition = draw.rng.integers(0, 2, draw.broadcast(shape)).astype(bool)
    x = [draw.bytes(*shape), draw.scale(), draw.zero(optional=False)]
    y = [draw.bytes(*draw.broadcast(shape)), draw.scale(), draw.zero(optional=False)]
    kernels.check("QLinearWhere", [condition, *x, *y, draw.scale(), draw.zero(optional=False)], **draw.how)


@draws
def test_concat(seed):
    draw = Draw(seed)
    shape, axis = draw.sizes(), 0
    axis = int(draw.rng.integers(-len(shape), len(shape)))
    inputs = [draw.scale(), draw.zero(optional=False)]
    for _ in range(draw.any(1, 2, 3)):
        other = [*shape]
        other[axis] = draw.any(1, 2, 5)
        inputs += [draw.bytes(*other), draw.scale(), draw.zero(optional=False)]
    kernels.check("QLinearConcat", inputs, axis=axis, **draw.how)


@draws
def test_average_pool(seed):
    draw = Draw(seed)
    rank = draw.any(1, 2, 2, 3)
    sizes = [int(draw.rng.integers(4, 10)) for _ in range(rank)]
    last = draw.any(None, 1)
    shape = (2, *sizes, 3) if last else (2, 3, *sizes)
    kernel = [int(draw.rng.integers(1, 4)) for _ in range(rank)]
    pads = [int(draw.rng.integers(0, size)) for size in kernel + kernel]
    how = draw.any({}, {"pads": pads}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"})
    if draw.any(True, False):
        how["strides"] = [min(size, draw.any(1, 2)) for size in kernel]
    kernels.check(
        "QLinearAveragePool",
        [draw.bytes(*shape), draw.scale(), draw.zero(optional=False), draw.scale(), draw.zero(optional=False)],
        kernel_shape=kernel,
        channels_last=last,
        count_include_pad=draw.any(None, 1),
        quanta=1,  # the order in which a window is summed
        **how,
        **draw.how,
    )


@draws
def test_global_average_pool(seed):
    draw = Draw(seed)
    shape = (2, 64, *draw.sizes(1, 3))
    last = draw.any(0, 1)
    if last:
        shape = (2, *shape[2:], 64)
    inputs = [draw.bytes(*shape), draw.scale(), draw.zero(optional=False), draw.scale(), draw.zero(optional=False)]
    kernels.check("QLinearGlobalAveragePool", inputs, channels_last=last, **draw.how)


@draws
def test_mean(seed):
    """onnxruntime has no kernel any more."""
    draw = Draw(seed)
    x, scale, zero = draw.bytes(2, 3, 4), draw.scale(), draw.zero()
    to_scale, to_zero = draw.scale(), draw.zero()
    axes, keep = draw.any([0], [1, 2], [-1]), draw.any(0, 1)
    number = (x.astype(np.float64) - (0 if zero is None else int(zero))) * np.float64(scale)
    limits = np.iinfo(x.dtype)
    y = np.rint(number.mean(tuple(axes), keepdims=bool(keep)) / to_scale) + (0 if to_zero is None else int(to_zero))
    expected = [np.clip(y, limits.min, limits.max).astype(x.dtype)]
    inputs = [x, scale, zero, to_scale, to_zero]
    # The mean is taken in float32: where it is a half of the scale, that decides.
    kernels.check("QLinearReduceMean", inputs, expected=expected, axes=axes, keepdims=keep, quanta=1, **draw.how)


def test_global_average_of_halves():
    """A half goes to the even multiple of the scale, though the zero point is odd."""
    draw = Draw(0)
    inputs = [draw.bytes(2, 64, 1, 1), np.float32(0.25), np.uint8(0), np.float32(0.5), np.uint8(61)]
    kernels.check("QLinearGlobalAveragePool", inputs)


@draws
def test_quantize(seed):
    draw = Draw(seed)
    dtype = draw.any(np.uint8, np.int8, np.uint16, np.int16)
    shape = draw.sizes()
    axis = draw.any(None, int(draw.rng.integers(0, len(shape))))
    x = draw.floats(*shape) * 30
    size = () if axis is None else (shape[axis],)
    scale, zero = draw.scale(*size), draw.bytes(*size, dtype=dtype)
    if dtype is np.uint8 and axis is None:
        zero = draw.any(zero, None)
    kernels.check("QuantizeLinear", [x, scale, zero], axis=axis, **draw.how)


@draws
def test_dequantize(seed):
    draw = Draw(seed)
    dtype = draw.any(np.uint8, np.int8, np.uint16, np.int16, np.int32)
    shape = draw.sizes()
    axis = draw.any(None, int(draw.rng.integers(0, len(shape))))
    size = () if axis is None else (shape[axis],)
    zero = np.zeros(size, dtype) if dtype is np.int32 else draw.bytes(*size, dtype=dtype)
    inputs = [draw.bytes(*shape, dtype=dtype), draw.scale(*size), draw.any(zero, None)]
    kernels.check("DequantizeLinear", inputs, axis=axis, **draw.how)


def operands(draw, seed):
    """A product's operands: onnxruntime has a kernel for uint8 with both, and for int8 with int8."""
    m, k, n = (int(size) for size in draw.rng.integers(1, 9, 3))
    right = draw.any(np.uint8, np.int8) if draw.dtype is np.uint8 else np.int8
    columns = draw.any((), (n,))
    return draw.bytes(m, k), draw.bytes(k, n, dtype=right), right, columns


@draws
@pytest.mark.parametrize("lead", [(), (3,)])
def test_matmul_to_float(lead, seed):
    draw = Draw(seed)
    a, b, right, columns = operands(draw, seed)
    a = draw.bytes(*lead, *a.shape)
    zeros = [draw.any(None, draw.bytes()), draw.any(None, draw.bytes(*columns, dtype=right))]
    bias = draw.any(None, draw.floats(b.shape[1]))
    inputs = [a, b, draw.scale(), draw.scale(*columns), *zeros, bias]
    kernels.check("MatMulIntegerToFloat", inputs, constants=draw.any((), (1, 3, 5)), **draw.how)


@draws
def test_dynamic_matmul(seed):
    draw = Draw(seed)
    a, b, right, columns = operands(draw, seed)
    a = draw.floats(*draw.any((), (2,)), *a.shape)
    zero = draw.any(None, draw.bytes(*columns, dtype=b.dtype))
    inputs = [a, b, draw.scale(*columns), zero, draw.any(None, draw.floats(b.shape[1]))]
    kernels.check("DynamicQuantizeMatMul", inputs, constants=draw.any((), (1, 2, 3)), **draw.how)


@draws
def test_matmul_16(seed):
    draw = Draw(seed)
    a, b, _, _ = operands(draw, seed)
    inputs = [draw.bytes(*x.shape, dtype=np.int16) // 16 for x in (a, b)]
    kernels.check("MatMulInteger16", inputs, **draw.how)


@draws
def test_gemm(seed):
    draw = Draw(seed)
    a, b, right, columns = operands(draw, seed)
    m, n = a.shape[0], b.shape[1]
    turned = draw.any(0, 1), draw.any(0, 1)
    a, b = (x.T.copy() if turn else x for x, turn in zip((a, b), turned, strict=True))
    c = draw.any(None, draw.rng.integers(-500, 500, draw.any((n,), (m, n), (1, n))).astype(np.int32))
    y = draw.any([], [np.float32(draw.scale() * 40), draw.zero(optional=False)])
    inputs = [a, draw.scale(), draw.bytes(), b, draw.scale(*columns), draw.bytes(*columns, dtype=right), c, *y]
    how = {"transA": turned[0], "transB": turned[1], "alpha": draw.any(None, 0.5, 1.7)}
    kernels.check("QGemm", inputs, constants=draw.any((), (3, 4, 5)), **how, **draw.how)


@draws
def test_conv(seed):
    draw = Draw(seed)
    groups = draw.any(1, 2)
    last = draw.any(0, 1)
    x = draw.bytes(2, 4, 7, 8)
    w = draw.bytes(6, 4 // groups, 3, 2, dtype=draw.any(np.uint8, np.int8) if draw.dtype is np.uint8 else np.int8)
    per = draw.any((), (6,))
    zero = np.zeros(per, w.dtype) if w.dtype == np.int8 else np.full(per, 7, w.dtype)
    inputs = [
        x.transpose(0, 2, 3, 1).copy() if last else x,
        draw.scale(),
        draw.bytes(),
        w,
        draw.scale(*per),
        zero,
        np.float32(draw.scale() * 60),
        draw.bytes(),
        draw.any(None, draw.rng.integers(-500, 500, 6).astype(np.int32)),
    ]
    how = draw.any({}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"})
    kernels.check(
        "QLinearConv", inputs, group=groups, channels_last=last, constants=(3, 4, 5, 8), quanta=1, **how, **draw.how
    )


@draws
def test_max_pool(seed):
    draw = Draw(seed)
    how = draw.any({}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"}, {"dilations": [2, 1]}, {"ceil_mode": 1})
    kernels.check("NhwcMaxPool", [draw.bytes(2, 7, 8, 3)], kernel_shape=[3, 2], strides=[2, 1], **how, **draw.how)


@draws
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction, seed):
    draw = Draw(seed)
    count = 2 if direction == "bidirectional" else 1
    places, batch, width, size = draw.any(1, 5), draw.any(1, 3), 6, 8
    # onnxruntime has no kernel for scales of each column where a zero point is not 0.
    columns = draw.any((), (4 * size,)) if draw.dtype is np.int8 else ()

    def scaled():
        zero = 99 if draw.dtype is np.uint8 else 0
        return draw.scale(count, *columns) / 50, np.full((count, *columns), zero, draw.dtype)

    state = draw.any([None, None], [draw.floats(count, batch, size) for _ in range(2)])
    bias = draw.any(None, draw.floats(count, 8 * size))
    weights = [draw.bytes(count, rows, 4 * size) for rows in (width, size)]
    inputs = [draw.floats(places, batch, width), *weights, bias, None, *state, None, *scaled(), *scaled()]
    how = {"direction": direction, "hidden_size": size, "constants": (1, 2, 8, 9, 10, 11)}
    kernels.check("DynamicQuantizeLSTM", inputs, 3, **how, **draw.how)


@draws
def test_embedding(seed):
    draw = Draw(seed)
    batch, places, width = draw.any(1, 3), 4, 8
    tables = [draw.bytes(rows, width) for rows in (20, places, 2)]
    scales, zeros = [draw.scale() for _ in range(5)], [draw.bytes() for _ in range(5)]
    words = draw.rng.integers(0, 20, (batch, places)).astype(np.int32)
    segments = draw.rng.integers(0, 2, (batch, places)).astype(np.int32)
    if draw.any(0, 1):
        segments = tables[2] = scales[2] = zeros[2] = None
    mask = draw.any(None, np.tile(np.array([1, 1, 0, 0], np.int32), (batch, 1)))
    inputs = [words, segments, *tables, draw.bytes(width), draw.bytes(width), mask, *scales, *zeros]
    how = {"constants": (2, 3, 4, 5, 6), "epsilon": draw.any(None, 1e-3), "rtol": 1e-4, "atol": 1e-4}
    kernels.check("QEmbedLayerNormalization", inputs, 2, **how, **draw.how)


# --- weights of a few bits -----------------------------------------------------------------
def packed(rng, bits, *shape):
    """Bytes that hold numbers of so many bits along the last axis, low bits first."""
    return rng.integers(0, 256, (*shape[:-1], -(-shape[-1] * bits // 8))).astype(np.uint8)


@draws
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_nbits(bits, seed):
    draw = Draw(seed)
    block, n, k = draw.any(16, 32), draw.any(1, 5, 16), draw.any(16, 32, 48, 75)
    blocks = -(-k // block)
    dtype = draw.any(np.float32, np.float32, np.float16)
    weight = packed(draw.rng, bits, n, blocks, block)
    zeros = [None, packed(draw.rng, bits, n, blocks), draw.rng.uniform(0, 2**bits, (n, blocks)).astype(dtype)]
    # onnxruntime has no kernel for 8 bits with zero points that are not packed, or that are no initializers.
    zero = draw.any(*zeros[: 2 if bits == 8 else 3])
    groups = None
    if bits == 4 and (zero is None or zero.dtype == dtype):
        groups = draw.any(None, draw.rng.integers(0, blocks, blocks * block).astype(np.int32))
    inputs = [draw.floats(*draw.any((3,), (2, 3)), k).astype(dtype), weight, draw.scale(n, blocks).astype(dtype)]
    inputs += [zero, groups, draw.any(None, draw.floats(n).astype(dtype))]
    tolerance = {"rtol": 2e-2, "atol": 2**bits * 0.05} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-3}
    constants = (1, 2, 3, 4, 5) if bits == 8 else draw.any((1, 2, 3, 4, 5), (5,))
    how = {"K": k, "N": n, "block_size": block, "bits": bits, "accuracy_level": draw.any(None, 1)}
    kernels.check("MatMulNBits", inputs, constants=constants, **how, **tolerance, **draw.how)


def bnb4(draw):
    """Weights in blocks: their number of rows and columns, their bytes, and what they are to be multiplied with."""
    block, n, k = draw.any(16, 32), draw.any(1, 3, 5, 16), draw.any(16, 32, 35)
    b = draw.rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    absmax = draw.rng.uniform(0.1, 2, -(-n * k // block)).astype(np.float32)
    return b, absmax, {"K": k, "N": n, "block_size": block, "quant_type": draw.any(0, 1)}


@draws
def test_bnb4(seed):
    draw = Draw(seed)
    b, absmax, how = bnb4(draw)
    a = draw.floats(*draw.any((3,), (2, 3)), how["K"])
    kernels.check("MatMulBnb4", [a, b, absmax], constants=(1, 2), rtol=1e-4, atol=1e-4, **how, **draw.how)


@draws
def test_bnb4_as_it_is(seed):
    """onnxruntime leaves much of this product unwritten; its weights come from the product with the transpose."""
    draw = Draw(seed)
    b, absmax, how = bnb4(draw)
    eye = np.eye(how["K"], dtype=np.float32)
    turned = kernels.one_node("MatMulBnb4", [eye, b, absmax], constants=(1, 2), **how)[2][0]
    a = draw.floats(2, how["N"])
    model, feeds, _ = kernels.one_node("MatMulBnb4", [a, b, absmax], constants=(1, 2), transB=0, **how)
    kernels.compare([a @ turned.T], kernels.run(kernels.inlined(model), feeds), rtol=1e-4, atol=1e-4)


@draws
def test_gather_blocks(seed):
    draw = Draw(seed)
    bits, block = draw.any(2, 4, 8), 16
    rows, columns = draw.any(3, 7), draw.any(16, 48, 64)
    blocks = -(-columns // block)
    indices = draw.rng.integers(-rows, rows, draw.any((), (4,), (2, 3))).astype(draw.any(np.int32, np.int64))
    inputs = [
        packed(draw.rng, bits, rows, columns),
        indices,
        draw.scale(rows, blocks),
        draw.any(None, packed(draw.rng, bits, rows, blocks)),
    ]
    how = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    kernels.check("GatherBlockQuantized", inputs, constants=(0, 2, 3), **how, **draw.how)


@draws
def test_gather_blocks_along_any_axis(seed):
    draw = Draw(seed)
    dtype, low = draw.any((ml_dtypes.int4, -8), (ml_dtypes.uint4, 0))
    quantize_axis, gather_axis = (int(axis) for axis in draw.rng.integers(-3, 3, 2))
    shape = [int(size) for size in draw.rng.integers(1, 5, 3)]
    shape[quantize_axis] = draw.any(16, 40)
    few = [*shape]
    few[quantize_axis] = -(-shape[quantize_axis] // 16)
    length = shape[gather_axis]
    # What lies beyond the axis is 0.
    indices = draw.rng.integers(-length - 1, length + 2, draw.any((), (4,), (2, 3)))
    data, zero = (draw.rng.integers(low, low + 16, size).astype(dtype) for size in (shape, few))
    inputs = [data, indices, draw.scale(*few), draw.any(None, zero)]
    how = {"block_size": 16, "gather_axis": gather_axis, "quantize_axis": quantize_axis}
    kernels.check("GatherBlockQuantized", inputs, constants=(0, 2, 3), **how, **{**draw.how, "opset": draw.any(21, 23)})


# --- what is refused -----------------------------------------------------------------------
def refused(op, inputs, reason, **how):
    model, _, _ = kernels.one_node(op, inputs, expected=[np.zeros((1, 1), np.float32)], **how)
    with pytest.raises(relu_tools.ConversionError, match=reason):
        relu_tools.inline(model)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"weight_prepacked": 1}, "laid out for a processor"),
        ({"bits": 3}, "3 bits"),
        ({"bits": 2}, "g_idx"),
    ],
)
def test_bits_are_refused(how, reason):
    weight = np.zeros((4, 1, 4), np.uint8)
    groups = np.zeros(16, np.int32)
    inputs = [np.zeros((2, 16), np.float32), weight, np.ones((4, 1), np.float32), None, groups]
    refused("MatMulNBits", inputs, reason, K=16, N=4, block_size=16, **how)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"clip": 1.0}, "clipping"),
        ({"input_forget": 1}, "coupled"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "other"),
    ],
)
def test_lstms_are_refused(how, reason):
    weights = [np.zeros((1, 4, 16), np.int8)] * 2
    scaled = [np.ones(1, np.float32), np.zeros(1, np.int8)] * 2
    inputs = [np.zeros((2, 1, 4), np.float32), *weights, None, None, None, None, None, *scaled]
    refused("DynamicQuantizeLSTM", inputs, reason, **how)


def test_float_blocks_are_refused():
    data = np.zeros((3, 16), ml_dtypes.float8_e4m3fn)
    inputs = [data, np.zeros(1, np.int64), np.ones((3, 1), np.float32)]
    refused("GatherBlockQuantized", inputs, "float8e4m3fn", block_size=16)
