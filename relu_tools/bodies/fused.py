"""The activations that com.microsoft's products and convolutions end with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxscript import opset18 as op

from relu_tools.report import RefusedError

# The operators of ai.onnx by the names of their parameters.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softmax": ("axis",),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}


def activated(x, activation: str, **parameters: Any):
    """The activation of this name, its parameters by name, those that are None left out; `x` where there is none."""
    if not activation:
        return x
    if activation not in _PARAMETERS:
        raise RefusedError(f"its body knows no activation '{activation}'")
    given = {name: value for name, value in parameters.items() if value is not None}
    return getattr(op, activation)(x, **{name: given[name] for name in _PARAMETERS[activation] if name in given})


def activated_in_order(x, activation: str, parameters: Sequence[float]):
    """The same with the parameters in order, where all must be given, and Clip and Silu besides."""
    if activation == "Silu":
        return x * op.Sigmoid(x)
    wanted = ("min", "max") if activation == "Clip" else _PARAMETERS.get(activation, ())
    if len(parameters) < len(wanted):
        raise RefusedError(f"the activation {activation} needs {len(wanted)} parameters, here are {len(parameters)}")
    if activation == "Clip":
        return op.Clip(x, x.like(parameters[0]), x.like(parameters[1]))
    return activated(x, activation, **dict(zip(wanted, parameters, strict=False)))
