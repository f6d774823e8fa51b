"""What tests of bodies draw, and how near a body's result has to be."""

from __future__ import annotations

import kernels
import numpy as np
import pytest

draws = pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
OPSETS = (21, 13, 17, 23, 11)


class Draw:
    """What a test draws: an element type of `types`, an opset, whether dimensions are symbols, and what it asks for."""

    def __init__(self, seed, *types):
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(types[seed % len(types)] if types else np.float32)
        self.how = {"dynamic": bool(seed % 3 == 1), "opset": OPSETS[seed % len(OPSETS)]}

    @property
    def bound(self):
        """How far results may be off that are rounded to the element type once, relative to the greatest."""
        return {np.dtype(np.float16): 2e-3}.get(self.dtype, 1e-5)

    def turn(self, *choices):
        """One after the other, so that the first draws have all of a few choices."""
        return choices[self.seed % len(choices)]

    def any(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def shape(self, rank, low=1, high=6):
        return tuple(int(size) for size in self.rng.integers(low, high, rank))

    def floats(self, *shape):
        return self.rng.standard_normal(shape).astype(self.dtype)

    def maybe(self, *shape):
        """An optional input: the first draw has all of them, the second none."""
        return self.any(None, self.floats(*shape)) if self.seed > 1 else self.turn(self.floats(*shape), None)


def same(op, inputs, outputs=1, *, bound=1e-5, **how):
    """That the inlined node gives what the kernel, or `expected`, says: within `bound` times the greatest element."""
    model, feeds, expected = kernels.one_node(op, inputs, outputs, **how)
    actual = kernels.run(kernels.inlined(model), feeds)
    for a, b in zip(expected, actual, strict=True):
        finite = np.abs(a[np.isfinite(a)]).max(initial=0) if a.dtype.kind == "f" else 0
        kernels.compare([a], [b], rtol=0, atol=bound * float(finite))
