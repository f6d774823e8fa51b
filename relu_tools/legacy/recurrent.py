"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .registry import demand, meaning, widened


def _sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


# Each takes x, alpha and beta; the defaults are those of the operators of the same names, None where there is none.
_ACTIVATIONS: dict[str, tuple[Callable, tuple]] = {
    "affine": (lambda x, a, b: a * x + b, (None, None)),
    "elu": (lambda x, a: np.where(x >= 0, x, a * np.expm1(x)), (1.0,)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, a: np.where(x >= 0, x, a * x), (0.01,)),
    "relu": (lambda x: np.maximum(x, 0), ()),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (None, None)),
    "sigmoid": (_sigmoid, ()),
    "softplus": (lambda x: np.logaddexp(0, x), ()),
    "softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "tanh": (np.tanh, ()),
    "thresholdedrelu": (lambda x, a: np.where(x >= a, x, 0), (1.0,)),
}


def _activations(
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[Callable]:
    """Functions by their names; each takes of alphas and betas what it has need of."""
    given = iter(alphas or ()), iter(betas or ())

    def bound(name: str) -> Callable:
        demand(name.lower() in _ACTIVATIONS, f"{name} is no activation")
        compute, defaults = _ACTIVATIONS[name.lower()]
        values = [next(source, default) for source, default in zip(given, defaults, strict=False)]
        if None in values:
            raise NotImplementedError(f"{name} without the numbers that it needs has no meaning")

        def run(x):
            x = x if clip is None else np.clip(x, -clip, clip)
            return compute(x, *values)

        return run

    return [bound(name) for name in names]


def _rows(x: np.ndarray, lengths: np.ndarray, reverse: bool) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each step, its rows, where they lie in time, and which sequences still go on."""
    batch = np.arange(x.shape[1])
    for step in range(x.shape[0]):
        going = step < lengths
        time = np.where(going, lengths - 1 - step if reverse else step, 0)
        yield x[time, batch], time, going


def _layer(gates: int, x, w, r, b, lengths, states, direction, layout, cell: Callable) -> list[np.ndarray]:
    """Y and the last states. `cell` takes the number of the direction, the rows times W, R, both biases and states."""
    demand(
        direction in ("forward", "reverse", "bidirectional"),
        f"there is no direction {direction!r}",
    )
    count = 2 if direction == "bidirectional" else 1
    x = x.swapaxes(0, 1) if layout else x
    hidden, size = r.shape[-1], x.shape[1]
    demand(
        w.shape == (count, gates * hidden, x.shape[2]),
        f"W {w.shape} for {gates} gates of {hidden}",
    )
    demand(
        r.shape == (count, gates * hidden, hidden),
        f"R {r.shape} for {gates} gates of {hidden}",
    )
    b = np.zeros((count, 2 * gates * hidden), x.dtype) if b is None else b
    demand(
        b.shape == (count, 2 * gates * hidden),
        f"B {b.shape} for {gates} gates of {hidden}",
    )
    lengths = np.full(size, x.shape[0]) if lengths is None else lengths
    starts = [np.zeros((count, size, hidden)) if s is None else (s.swapaxes(0, 1) if layout else s) for s in states]
    y = np.zeros((x.shape[0], count, size, hidden))
    last = [np.zeros((count, size, hidden)) for _ in states]
    for number in range(count):
        now = [widened(start[number]).astype(np.float64) for start in starts]
        biases = np.split(b[number].astype(np.float64), 2)
        back = direction == "reverse" or number == 1
        for row, time, going in _rows(x.astype(np.float64), lengths, back):
            new = cell(
                number,
                row @ w[number].T.astype(np.float64),
                r[number].astype(np.float64),
                *biases,
                *now,
            )
            now = [np.where(going[:, None], a, c) for a, c in zip(new, now, strict=True)]
            y[time[going], number, going] = now[0][going]
        for place, value in zip(last, now, strict=True):
            place[number] = value
    outputs = [
        y.transpose(2, 0, 1, 3) if layout else y,
        *(v.swapaxes(0, 1) if layout else v for v in last),
    ]
    return [v.astype(x.dtype) for v in outputs]


def _given(node, outputs):
    """The first so many outputs as the node has."""
    return tuple(outputs[: len(node.output)])


@meaning("RNN", 1)
def _rnn(node, x, w, r, b=None, lengths=None, h=None, *, activation_alpha=None, activation_beta=None, activations,
         clip=None, direction, hidden_size=None, output_sequence=0, layout=0):  # fmt: skip
    functions = _activations(activations, activation_alpha, activation_beta, clip)

    def cell(number, xw, recurrence, wb, rb, h):
        return (functions[number](xw + h @ recurrence.T + wb + rb),)

    return _given(node, _layer(1, x, w, r, b, lengths, [h], direction, layout, cell))


@meaning("GRU", 1)
def _gru(node, x, w, r, b=None, lengths=None, h=None, *, activation_alpha=None, activation_beta=None, activations=None,
         clip=None, direction, hidden_size=None, linear_before_reset=0, output_sequence=0, layout=0):  # fmt: skip
    """The default direction of 1 is misspelt."""
    direction = "forward" if direction == "foward" else direction
    names = activations or ["Sigmoid", "Tanh"] * (2 if direction == "bidirectional" else 1)
    functions = _activations(names, activation_alpha, activation_beta, clip)

    def cell(number, xw, recurrence, wb, rb, h):
        f, g = functions[2 * number : 2 * number + 2]
        (xz, xr, xh), (rz, rr, rh) = np.split(xw + wb, 3, -1), np.split(recurrence, 3)
        bz, br, bh = np.split(rb, 3)
        z, reset = f(xz + h @ rz.T + bz), f(xr + h @ rr.T + br)
        inner = reset * (h @ rh.T + bh) if linear_before_reset else (reset * h) @ rh.T + bh
        return ((1 - z) * g(xh + inner) + z * h,)

    return _given(node, _layer(3, x, w, r, b, lengths, [h], direction, layout, cell))


@meaning("LSTM", 1)
def _lstm(node, x, w, r, b=None, lengths=None, h=None, c=None, p=None, *, activation_alpha=None, activation_beta=None,
          activations=None, clip=None, direction, hidden_size=None, input_forget, output_sequence=0,
          layout=0):  # fmt: skip
    """Gates in the order input, output, forget, cell; peepholes in the order input, output, forget."""
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * (2 if direction == "bidirectional" else 1)
    functions = _activations(names, activation_alpha, activation_beta, clip)
    p = np.zeros((w.shape[0], 3 * r.shape[-1])) if p is None else p

    def cell(number, xw, recurrence, wb, rb, h, c):
        f, g, hidden = functions[3 * number : 3 * number + 3]
        i, o, forget, candidate = np.split(xw + h @ recurrence.T + wb + rb, 4, -1)
        pi, po, pf = np.split(p[number].astype(np.float64), 3)
        i = f(i + pi * c)
        forget = 1 - i if input_forget else f(forget + pf * c)
        c = forget * c + i * g(candidate)
        return f(o + po * c) * hidden(c), c

    return _given(node, _layer(4, x, w, r, b, lengths, [h, c], direction, layout, cell))
