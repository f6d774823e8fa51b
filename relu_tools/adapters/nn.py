"""Steps of the convolutions in ONNX's defs/nn, of Dropout and Flatten."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

same("Conv ConvTranspose", 1, 11, 22)
same("DeformConv", 19, 22)
same("Flatten", 1, 9, 11, 13, 21, 23, 24, 25)
same("Dropout", 1, 6, 7, 10, 12, 13, 22)


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


# --- Dropout and Flatten ---------------------------------------------------------------------
@adapter("Dropout", 6, 7)
def dropout_inference(op, data, *, is_test, ratio):
    """6 drops at random unless `is_test` says otherwise, 7 never does.

    A node that drops at random is refused; a ratio of 0 drops nothing.
    """
    if not is_test and ratio:
        raise RefusedError("it drops at random (is_test 0), which 7 cannot", "export the model for inference")
    return op.Dropout(data, ratio=ratio, outputs=len(op.outputs))


@adapter("Dropout", 7, 6)
def dropout_is_test(op, data, *, ratio):
    """7 never drops, 6 drops unless `is_test` says otherwise.

    6 is told so. It fills no mask then; nothing is dropped, so it is all ones.
    """
    made = op.Dropout(data, ratio=ratio, is_test=1)
    # No value is less than itself, not even NaN.
    ones = op.Cast(op.Not(op.Less(data, data)), to=op.dtype(data))
    return (made, ones) if any(op.outputs[1:]) else made


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

    Outside of training the ratio has no effect, so it is kept where it is a constant; one of 0 drops nothing in
    training. The mask is all ones then.
    """
    training, known = op.known(training_mode), op.known(ratio)
    if training_mode and (training is None or training.any()) and (known is None or known.any()):
        raise RefusedError("it drops at random (training_mode), which 10 cannot", "export the model for inference")
    made = op.Dropout(data, ratio=float(known.reshape(-1)[0]) if known is not None else None)
    true = numpy_helper.from_array(np.array([True]))
    return (made, op.ConstantOfShape(op.Shape(data), value=true)) if any(op.outputs[1:]) else made


@adapter("Flatten", 11, 9)
def flatten(op, input, *, axis):
    """11 lets the axis count from the back.

    It is counted from the front.
    """
    return KEEP if axis >= 0 else op.Flatten(input, axis=axis + op.rank(input))
