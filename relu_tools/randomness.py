"""Operators that draw random numbers: with equal seeds equal forms draw the same ones; else distributions tell."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
# How rarely two equal distributions may be called different.
_CHANCE = 1e-9
_RUNS, _ELEMENTS = 300, 1 << 20


def random_operators(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Those of the nodes that draw random numbers."""
    return [node for node in nodes if node.op_type in _RANDOM and node.domain in ("", "ai.onnx")]


def give_seeds(nodes: Sequence[onnx.NodeProto], first: int = 1) -> None:
    """Numbers random operators that have no seed of their own, in order; one that has keeps it."""
    for number, node in enumerate(nodes):
        if all(attribute.name != "seed" for attribute in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("seed", float(first + number)))


def take_seeds(nodes: Sequence[onnx.NodeProto]) -> None:
    """Removes every seed."""
    for node in nodes:
        for attribute in [attribute for attribute in node.attribute if attribute.name == "seed"]:
            node.attribute.remove(attribute)


def unlike(before: Callable[[int], list[Any]], after: Callable[[int], list[Any]], deadline: float) -> str | None:
    """Why two forms give values of different distributions; empty if none is found, None if they cannot be compared.

    Each gives the outputs of one run with seeds from a number on. By the two-sample test of Kolmogorov and Smirnov.
    """
    wanted: list[list[np.ndarray]] = []
    got: list[list[np.ndarray]] = []
    for run in itertools.count():
        # Each run has seeds that no other has, those of the other form included.
        wanted.append(before(1 + 2000 * run))
        got.append(after(1001 + 2000 * run))
        for one, other in zip(wanted[-1], got[-1], strict=True):
            numbers = all(isinstance(value, np.ndarray) and value.dtype.kind in "biuf" for value in (one, other))
            if not numbers or one.shape != other.shape or one.dtype != other.dtype:
                return None
        drawn = (run + 1) * sum(value.size for value in wanted[-1])
        if run + 1 >= _RUNS or (run >= 99 and drawn >= _ELEMENTS) or (run and time.monotonic() > deadline):
            break
    for output in range(len(wanted[0])):
        a, b = (np.sort(np.concatenate([run[output].ravel() for run in runs])) for runs in (wanted, got))
        if not a.size:
            continue
        places = np.concatenate([a, b])
        shares = (np.searchsorted(values, places, side="right") / values.size for values in (a, b))
        distance = float(np.max(np.abs(np.subtract(*shares))))
        # Of one run all values may go back to a single random number.
        if distance > math.sqrt(-math.log(_CHANCE / 2) / len(wanted)):
            return f"{distance:.0%} more of its values lie on one side of some threshold, in {len(wanted)} runs"
    return ""
