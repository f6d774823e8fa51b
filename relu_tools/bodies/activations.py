"""Bodies of com.microsoft's activations, alone and after the addition of a bias."""

from __future__ import annotations

from onnxscript import opset20 as op
from onnxscript import script

from relu_tools.bodies.tracing import MICROSOFT, body


@script(MICROSOFT)
def Gelu(X):
    """Half of X times 1 + erf(X / sqrt(2)), which ai.onnx has from opset 20 on."""
    return op.Gelu(X)


@script(MICROSOFT)
def BiasGelu(A, B):
    """Gelu of A plus the vector B."""
    return op.Gelu(op.Add(A, B))


@body
def FastGelu(X, bias=None):
    """Gelu by way of tanh, of X plus the vector `bias`."""
    return op.Gelu(X if bias is None else X + bias, approximate="tanh")


@body
def QuickGelu(X, alpha: float = 1.702):
    """X times the sigmoid of alpha times X."""
    return X * op.Sigmoid(X * alpha)


@body
def BiasSplitGelu(X, bias):
    """Of X plus `bias` the left half of the last axis times the Gelu of the right half."""
    left, right = op.Split(X + bias, axis=-1, num_outputs=2)
    return left * op.Gelu(right)
