"""Steps of the operators in ONNX's defs/nn: convolutions, pooling, normalization, Dropout, Flatten."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

same("Conv", 1, 11, 22)
same("ConvTranspose", 1, 11, 22)
same("GlobalAveragePool GlobalMaxPool", 1, 22)
same("AveragePool", 1, 7, 10, 11, 19, 22)
same("MaxPool", 1, 8, 10, 11, 12, 22)
same("LRN", 1, 13)
same("InstanceNormalization", 1, 6, 22)
same("Flatten", 1, 9, 11, 13, 21, 23, 24, 25)
same("BatchNormalization", 1, 6, 7, 9, 14, 15)
same("Dropout", 1, 6, 7, 10, 12, 13, 22)


# --- convolution and pooling ---------------------------------------------------------------
@adapter("ConvTranspose", 11, 1)
def conv_transpose(op, X, W, B, *, auto_pad, **same):
    """1 and 11 write differently which side gets the odd padding of SAME_UPPER and SAME_LOWER.

    The padding does not depend on the input's size, so it is written out as `pads`.
    """
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER") or same["output_shape"]:
        return KEEP
    kernel = same["kernel_shape"] or op.shape(W)[2:]
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    begin, end = [], []
    for size, dilation, stride, extra in zip(
        kernel, same["dilations"] or ones, same["strides"] or ones, same["output_padding"] or zeros, strict=True
    ):
        if not isinstance(size, int) or (total := (size - 1) * dilation + 1 + extra - stride) < 0:
            raise RefusedError(f"auto_pad {auto_pad} cannot be written as pads for the kernel {kernel}")
        small, large = total // 2, total - total // 2
        begin.append(small if auto_pad == "SAME_UPPER" else large)
        end.append(large if auto_pad == "SAME_UPPER" else small)
    return op.ConvTranspose(X, W, B, **{**same, "pads": begin + end})


@adapter("MaxPool", 8, 1)
def max_pool_one_output(op, X, *, storage_order, **same):
    """8 adds the output Indices, and the order in which they count.

    Without that output the order says nothing.
    """
    if any(op.outputs[1:]):
        raise RefusedError("before 8 MaxPool gives no Indices")
    return KEEP if not storage_order else op.MaxPool(X, **same)


@adapter("MaxPool", 10, 8)
@adapter("AveragePool", 10, 7)
def pool_floor(op, X, *, ceil_mode, **same):
    """10 adds `ceil_mode`, and to MaxPool `dilations`.

    Padding at the end that completes the last window, and that neither maximum nor average counts, gives as many
    outputs; it needs the spatial sizes. Dilated windows are refused.
    """
    dilations = same.pop("dilations", None)
    if any(d != 1 for d in dilations or []):
        raise RefusedError(f"before 10 {op.type} has no dilations")
    if not ceil_mode and dilations is None:
        return KEEP
    if ceil_mode and same["auto_pad"] == "NOTSET":
        if same.get("count_include_pad"):
            raise RefusedError("before 10 an average that counts padding has no ceil_mode")
        sizes = op.shape(X)[2:]
        same["pads"] = _completing(sizes, same["kernel_shape"], None, same["strides"], same["pads"])
    return op.again(X, outputs=len(op.outputs), **same)


def _completing(sizes, kernel, dilations, strides, pads, *, whole: bool = False) -> list[int] | None:
    """The pads with which rounding down counts the windows that rounding up does, but for one that starts behind the data.

    With `whole`, None where there is no such window.
    """
    rank = len(kernel)
    ones = [1] * rank
    strides, dilations, pads = strides or ones, dilations or ones, list(pads or [0] * 2 * rank)
    behind = False
    for k, size in enumerate(sizes):
        if not isinstance(size, int):
            raise RefusedError("before 10 there is no ceil_mode, and without the spatial sizes no pads for it")
        width = (kernel[k] - 1) * dilations[k] + 1
        reach = size + pads[k] + pads[rank + k] - width
        windows = -(-reach // strides[k]) + 1
        if (windows - 1) * strides[k] >= size + pads[k]:
            windows -= 1
            behind = True
        pads[rank + k] += max(0, (windows - 1) * strides[k] - reach)
        if pads[rank + k] >= width:
            raise RefusedError("rounding up would take pads as wide as the window")
    return None if whole and not behind else pads


@adapter("MaxPool", 22, 12)
@adapter("AveragePool", 22, 19)
def pool_last_window(op, X, *, ceil_mode, auto_pad, kernel_shape, strides, pads, dilations, **same):
    """22 leaves out a last window, counted by `ceil_mode`, that would start in the padding at the end.

    Where the sizes tell that there is one, rounding down counts the windows as 22 does.
    """
    sizes = (op.known_shape(X) or [])[2:]
    if not ceil_mode or auto_pad != "NOTSET" or not all(isinstance(size, int) for size in sizes):
        return KEEP
    floor = _completing(sizes, kernel_shape, dilations, strides, pads, whole=True)
    if floor is None:
        return KEEP
    if floor != (pads or [0] * len(floor)) and same.get("count_include_pad"):
        raise RefusedError("an average that counts padding cannot tell a last window in the padding from others")
    attributes = dict(kernel_shape=kernel_shape, strides=strides, dilations=dilations, pads=floor, **same)
    return op.again(X, outputs=len(op.outputs), ceil_mode=0, **attributes)


@adapter("AveragePool", 19, 11)
def average_pool(op, X, *, dilations, **same):
    """19 adds `dilations`.

    Those of 1 are left out, others are refused.
    """
    if any(d != 1 for d in dilations or []):
        raise RefusedError("before 19 AveragePool has no dilations")
    return KEEP if dilations is None else op.AveragePool(X, **same)


@adapter("AveragePool", 7, 1)
def average_pool_padded(op, X, *, count_include_pad, **same):
    """7 can count the padding in the average.

    Padding with zeros beforehand counts it.
    """
    if not count_include_pad or not any(same["pads"] or []):
        return op.AveragePool(X, **same) if count_include_pad else KEEP
    if same["auto_pad"] != "NOTSET":
        raise RefusedError(
            f"before 7 padding is not counted, and auto_pad {same['auto_pad']} does not tell how much it is"
        )
    rank = len(same["kernel_shape"])
    pads = [0, 0, *same["pads"][:rank], 0, 0, *same["pads"][rank:]]
    return op.AveragePool(op.Pad(X, pads=pads), **{**same, "pads": None})


# --- normalization ---------------------------------------------------------------------------
@adapter("BatchNormalization", 6, 7)
def batch_normalization_inference(op, X, scale, B, mean, var, *, is_test, **same):
    """6 trains unless `is_test` says otherwise or it has one output alone; 7 trains where it has more.

    With the one output both use the given statistics.
    """
    if any(op.outputs[1:]):
        raise RefusedError("it gives training statistics, which 7 counts otherwise")
    return op.BatchNormalization(X, scale, B, mean, var, **same)


@adapter("BatchNormalization", 7, 6)
def batch_normalization_is_test(op, X, scale, B, mean, var, **same):
    """7 has no `is_test`: with one output it uses the given statistics.

    6 is told so.
    """
    if any(op.outputs[1:]):
        raise RefusedError("it gives training statistics, which 6 counts otherwise")
    return op.BatchNormalization(X, scale, B, mean, var, is_test=1, **same)


@adapter("BatchNormalization", 6, 1)
def batch_normalization_hint(op, X, scale, B, mean, var, **same):
    """1 requires `consumed_inputs`, a hint for reusing memory.

    Zeros say that nothing is reused.
    """
    return op.BatchNormalization(X, scale, B, mean, var, consumed_inputs=[0, 0, 0, 0, 0], **same)


@adapter("BatchNormalization", 7, 9, accuracy="rounding")
def batch_normalization_per_element(op, X, scale, B, mean, var, *, spatial, **same):
    """7 can have statistics for each element (`spatial` 0), 9 has them for each channel.

    The former are computed as the formula says.
    """
    if spatial:
        return KEEP
    if any(op.outputs[1:]):
        raise RefusedError("it gives training statistics for each element, which 9 does not know")
    deviation = op.Sqrt(op.Add(var, op.like(same["epsilon"], X)))
    return op.Add(op.Mul(op.Div(op.Sub(X, mean), deviation), scale), B)


@adapter("BatchNormalization", 9, 14)
def batch_normalization_outputs(op, X, scale, B, mean, var, **same):
    """9 trains where it has more than one output, 14 where `training_mode` says so, with other outputs.

    With the one output both use the given statistics; a training node is refused.
    """
    if any(op.outputs[1:]):
        raise RefusedError("it gives training statistics, which 14 counts otherwise")
    return KEEP


@adapter("BatchNormalization", 14, 9)
def batch_normalization_training(op, X, scale, B, input_mean, input_var, *, training_mode, **same):
    """14 adds `training_mode` and gives running statistics with it.

    Without it nothing changes; a training node is refused.
    """
    if training_mode:
        raise RefusedError("training_mode 1 has no older form", "export the model for inference")
    return KEEP


@adapter("Dropout", 6, 7)
def dropout_inference(op, data, *, is_test, ratio):
    """6 drops at random unless `is_test` says otherwise, 7 never does.

    A node that drops at random is refused.
    """
    if not is_test:
        raise RefusedError("it drops at random (is_test 0), which 7 cannot", "export the model for inference")
    return op.Dropout(data, ratio=ratio, outputs=len(op.outputs))


@adapter("Dropout", 7, 6)
def dropout_is_test(op, data, *, ratio):
    """7 never drops, 6 drops unless `is_test` says otherwise.

    6 is told so; it fills no mask then.
    """
    if any(op.outputs[1:]):
        raise RefusedError("before 7 the mask is not filled outside of training")
    return op.Dropout(data, ratio=ratio, is_test=1)


@adapter("Dropout", 7, 10)
def dropout_mask_of_bool(op, data, *, ratio):
    """The mask is of the data's type in 7 and of bool in 10.

    A mask that is used is cast.
    """
    if not any(op.outputs[1:]):
        return KEEP if len(op.outputs) == 1 else op.Dropout(data, ratio=ratio)
    output, mask = op.Dropout(data, ratio=ratio, outputs=2)
    return output, op.Cast(mask, to=op.dtype(data))


@adapter("Dropout", 10, 7)
def dropout_mask_of_data(op, data, *, ratio):
    """The mask is of bool in 10 and of the data's type in 7.

    A mask that is used is cast.
    """
    if not any(op.outputs[1:]):
        return KEEP if len(op.outputs) == 1 else op.Dropout(data, ratio=ratio)
    output, mask = op.Dropout(data, ratio=ratio, outputs=2)
    return output, op.Cast(mask, to=T.BOOL)


@adapter("Dropout", 10, 12)
def dropout_ratio_input(op, data, *, ratio):
    """10 has the ratio as an attribute, 12 as an input.

    It becomes a constant.
    """
    return op.Dropout(data, np.float32(ratio), outputs=len(op.outputs))


@adapter("Dropout", 12, 10)
def dropout_ratio_attribute(op, data, ratio, training_mode, *, seed):
    """12 has the ratio as an input and can drop at random (`training_mode`), 10 never does.

    Outside of training the ratio has no effect, so it is kept where it is a constant. The mask is all ones then.
    """
    training = op.known(training_mode)
    if training_mode and (training is None or training.any()):
        raise RefusedError("it drops at random (training_mode), which 10 cannot", "export the model for inference")
    known = op.known(ratio)
    made = op.Dropout(data, ratio=float(known.reshape(-1)[0]) if known is not None else None)
    if not any(op.outputs[1:]):
        return made
    true = numpy_helper.from_array(np.array([True]))
    return made, op.ConstantOfShape(op.Shape(data), value=true)


@adapter("Flatten", 11, 9)
def flatten(op, input, *, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.Flatten(input, axis=axis + op.rank(input))
