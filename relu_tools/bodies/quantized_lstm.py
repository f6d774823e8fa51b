"""The body of com.microsoft's DynamicQuantizeLSTM."""

from __future__ import annotations

import numpy as np
from onnxscript import opset23 as op

from relu_tools.bodies.quantized_matmul import product
from relu_tools.bodies.tracing import body, scan
from relu_tools.report import RefusedError

_ACTIVATIONS = ["Sigmoid", "Tanh", "Tanh"]


@body
def DynamicQuantizeLSTM(
    X,
    W,
    R,
    B: object | None,
    sequence_lens: object | None,
    initial_h: object | None,
    initial_c: object | None,
    P: object | None,
    W_scale,
    W_zero_point,
    R_scale,
    R_zero_point,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
):
    """LSTM with weights of 8-bit integers: the input is quantized by its own range, the state by its own at each step.

    W and R are (directions, size of what they are multiplied with, 4 * hidden_size), of the gates i, o, f and c.
    """
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    if sequence_lens is not None or P is not None:
        raise RefusedError("sequences of different lengths, and peepholes, have no body")
    if input_forget or clip or activation_alpha or activation_beta:
        raise RefusedError("coupled gates, clipping and parameters of activations have no body")
    if activations not in (None, _ACTIVATIONS * len(backward)):
        raise RefusedError("other activations than Sigmoid, Tanh and Tanh have no body")
    x, x_scale, x_zero_point = op.DynamicQuantizeLinear(X)
    results = []
    for which, reverse in enumerate(backward):

        def of(value, which=which):
            return op.Gather(value, which)

        gates = product(x, of(W), x_zero_point, of(W_zero_point)) * (x_scale * of(W_scale))
        if B is not None:
            for part in op.Split(of(B), num_outputs=2, axis=0):
                gates = gates + part
        weight = of(R), of(R_scale), of(R_zero_point)
        nothing = _zeros(gates)
        states = [nothing if given is None else of(given) for given in (initial_h, initial_c)]
        results.append(scan(_step(*weight), states, [gates], backward=reverse))
    last_h, last_c, hidden = zip(*results, strict=True)
    joined = [op.Concat(*(op.Unsqueeze(part, [0]) for part in parts), axis=0) for parts in (last_h, last_c)]
    return op.Concat(*(op.Unsqueeze(part, [1]) for part in hidden), axis=1), *joined


def _zeros(gates):
    """A state of zeros: of the batch, and a quarter as wide as the gates."""
    sizes = op.Shape(gates, start=1) / np.array([1, 4])
    return op.Expand(np.float32(0), sizes)


def _step(weight, scale, zero_point):
    def step(h, c, gates):
        quantized, h_scale, h_zero_point = op.DynamicQuantizeLinear(h)
        gates = gates + product(quantized, weight, h_zero_point, zero_point) * (h_scale * scale)
        i, o, f, new = op.Split(gates, num_outputs=4, axis=-1)
        c = op.Sigmoid(f) * c + op.Sigmoid(i) * op.Tanh(new)
        h = op.Sigmoid(o) * op.Tanh(c)
        return h, c, op.Identity(h)

    return step
