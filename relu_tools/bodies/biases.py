"""Bodies of com.microsoft's additions of a bias, alone and before a dropout or a softmax."""

from __future__ import annotations

from onnxscript import opset23 as op

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
    return softmax_from(data + bias, axis)


def softmax_from(x, axis: int):
    """Softmax over all axes from `axis` on, taken together."""
    shape = x.known_shape
    if axis == -1 or (shape is not None and axis == len(shape) - 1):
        return op.Softmax(x, axis=-1)
    # A size may be 0, which Reshape without allowzero takes for a copy.
    full = shape is not None and all(isinstance(dim, int) and dim > 0 for dim in shape)
    return op.Reshape(op.Softmax(op.Flatten(x, axis=axis), axis=-1), op.Shape(x), allowzero=0 if full else 1)
