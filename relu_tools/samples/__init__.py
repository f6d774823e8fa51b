"""Inputs for a model: random, special, of several sizes, and for small types every value there is.

What is known about the use of an input (an index, a divisor, a shape ...) keeps the values where the
specification defines a result.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from .plan import Draw, Known, Plan, ranks
from .uses import Use, find_uses
from .values import all_values, large, moderate, neighbours, plain, small, special_values, tied, wide, with_one

__all__ = ["SPECIAL", "WIDE", "Draw", "Use", "all_values", "draws", "find_uses", "special_values"]

_LARGE = 1 << 20
SPECIAL, WIDE = "special values", "wide values"


def draws(
    inputs: Mapping[str, onnx.TypeProto],
    seed: int = 0,
    *,
    uses: Mapping[str, Sequence[Use]] | None = None,
    known: Mapping[str, Known] | None = None,
    values: Sequence[float] = (),
    every_value: bool = False,
    overflow: bool = True,
    limits: bool = True,
    alike: bool = False,
) -> Iterator[Draw]:
    """Sets of inputs by name, the same for the same seed.

    `uses` is what `find_uses` returns; `known` are the shapes of what else those nodes take, with None for a
    dimension that is not known; `values` are numbers at which the model may change its mind (thresholds), which
    take part with their neighbours; `every_value` asks for every value of a single 8 or 16 bit input. Without
    `overflow` no value is so large that sums and products leave the type's range, and NaN and infinity come one at
    a time among plain values: two equal formulas over many elements may overflow at different places. Without
    `limits` none is within an eighth of the greatest number: nor is it held against a formula that it doubles one.
    Dimensions of different names are `alike` or, if they may be, of different sizes.
    """
    plan = Plan(inputs, seed, uses or {}, known or {}, values, overflow, limits, alike)
    yield plan.draw("plain values", 0, plain)
    if not inputs:
        return
    if every_value:
        yield from plan.every_value()
    yield from plan.special_values(SPECIAL, 1 if plan.elements(0) > _LARGE else 24)
    if plan.elements(0) > _LARGE:
        return
    yield plan.draw("plain values", 1, plain)
    yield plan.draw(WIDE, 0, wide if overflow else moderate)
    for lone in () if overflow else (np.nan, np.inf, -np.inf):
        yield plan.draw(f"a single {lone}", 0, functools.partial(with_one, lone))
    if plan.flexible:
        yield plan.draw("other sizes", 2, plain)
        yield plan.draw("dynamic sizes of 1", 3, plain)
        yield plan.draw("unequal dynamic sizes", 4, plain)
    for number, rank in enumerate(ranks()[1:] if plan.rankless else (), 11):
        yield plan.draw(f"rank {rank}", number, plain)
    if plan.flexible:
        yield plan.draw("dynamic sizes of 0", 5, plain)
    yield plan.draw("few distinct values", 0, tied)
    yield plan.draw("neighbouring values", 0, neighbours)
    yield plan.draw("small values", 0, small)
    yield plan.draw("large values", 0, large)
