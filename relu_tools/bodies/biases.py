"""Bodies of com.microsoft's additions of a bias, alone and before a dropout or a softmax."""

from __future__ import annotations

from onnxscript import opset18 as op

from relu_tools.bodies.precision import widened
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


@body
def BiasAdd(X, bias, skip):
    """X + bias + skip."""
    x, wide_bias, wide_skip = widened(X, bias, skip)
    return (x + wide_bias + wide_skip).to(X.dtype)


@body
def BiasDropout(data, bias, residual=None, ratio=None, training_mode=None, seed: int = 0):
    """Dropout of data + bias, then the residual added; outside of training nothing is dropped, and the mask is true."""
    if training_mode is not None and (training_mode.known is None or training_mode.known.any()):
        raise RefusedError("it may drop at random")
    total = data + bias
    output, mask = op.Dropout(total)
    return output if residual is None else output + residual, mask


@body
def BiasSoftmax(data, bias, *, is_inner_broadcast: int, axis: int = 1):
    """Softmax of data + bias over all axes from `axis` on, taken together.

    The bias has the extents of the data, but for those where it is broadcast, which are 1.
    """
    total = data + bias
    if axis in (-1, total.rank - 1):
        return op.Softmax(total, axis=-1)
    return op.Reshape(op.Softmax(op.Flatten(total, axis=axis), axis=-1), op.Shape(total))
