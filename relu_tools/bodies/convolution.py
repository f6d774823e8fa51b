"""Bodies of com.microsoft's convolutions: with an activation, or with the channels last."""

from __future__ import annotations

from collections.abc import Sequence

from onnxscript import opset18 as op

from relu_tools.bodies.fused import activated_in_order
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


@body
def FusedConv(X, W, B=None, Z=None, activation: str = "", activation_params: Sequence[float] = (), **of_conv):
    """Conv, then Z added, then the activation."""
    y = op.Conv(X, W, B, **of_conv)
    return activated_in_order(y if Z is None else y + Z, activation, activation_params)


@body
def NhwcFusedConv(X, W, B=None, Z=None, activation: str = "", activation_params: Sequence[float] = (), **of_conv):
    """FusedConv with the channels of X, Z and the result last; the weights are as Conv has them."""
    y = channels_last(op.Conv(channels_second(X), W, B, **of_conv), X.rank)
    return activated_in_order(y if Z is None else y + Z, activation, activation_params)


@body
def NhwcConv(X, W, B=None, group: int = 1, **of_conv):
    """Conv with the channels of X, the weights and the result last.

    Its documentation has the weights as in Conv; onnxruntime's kernel and its fusions have their channels last.
    """
    channels, taken = X.shape[-1], W.shape[-1]
    if isinstance(channels, int) and isinstance(taken, int) and channels != taken * group:
        raise RefusedError(f"{group} groups of weights with {taken} channels last do not go with {channels} channels")
    return channels_last(op.Conv(channels_second(X), channels_second(W), B, group=group, **of_conv), X.rank)


def channels_second(x):
    return op.Transpose(x, perm=[0, x.rank - 1, *range(1, x.rank - 1)])


def channels_last(y, rank: int):
    return op.Transpose(y, perm=[0, *range(2, rank), 1])
