"""Two arrays of one output against each other, and how far apart rounding may leave them."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest
from typing import Any

import numpy as np

from .report import BOUNDS

BIT_EXACT, WITHIN_ROUNDING, DIFFERENT, NOT_VERIFIED = "bit-exact", "within rounding", "different", "not verified"

# Multiples of the type's epsilon, first for types of 32 bits and more, then for narrower ones. "judges" is the
# noise between two implementations of one transcendental function; a model's noise grows with its nodes.
_MULTIPLES = {**BOUNDS, "judges": BOUNDS["rounding"], "model": BOUNDS["body"]}


@dataclasses.dataclass
class Figures:
    """The worst seen of one output.

    `max_abs`, `max_rel` and `max_ulp` are over the elements that are finite on both sides; `place` says where
    `max_abs` was found; `differing` and `elements` count over all runs; `problem` says in words why an output is
    different, or is empty. `histogram` counts the elements by the binary digits of their difference in ULP: equal
    ones, those 1 apart, 2 to 3, 4 to 7 and so on. `nonfinite` counts NaN and infinities by where they stand, those
    that stand alike first.
    """

    name: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int = 0
    differing: int = 0
    elements: int = 0
    verdict: str = BIT_EXACT
    problem: str = ""
    place: str = ""
    histogram: list[int] = dataclasses.field(default_factory=list)
    nonfinite: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, other: Figures) -> None:
        """Take in another run of the same output."""
        if other.max_abs > self.max_abs:
            self.place = other.place
        self.histogram = [sum(counts) for counts in zip_longest(self.histogram, other.histogram, fillvalue=0)]
        for pattern, count in other.nonfinite.items():
            self.nonfinite[pattern] = self.nonfinite.get(pattern, 0) + count
        for field in ("max_abs", "max_rel", "max_ulp"):
            setattr(self, field, max(getattr(self, field), getattr(other, field)))
        self.differing += other.differing
        self.elements += other.elements
        self.verdict = worst(self.verdict, other.verdict)
        self.problem = self.problem or other.problem


@dataclasses.dataclass(frozen=True)
class Bound:
    """What counts as rounding: `multiple` epsilons of the element's size, and of the output's typical size.

    `wide` is for types of 32 bits and more, `narrow` for the others; both 0 demands equal bits.
    """

    wide: float
    narrow: float

    @classmethod
    def of(cls, accuracy: str, nodes: int = 1) -> Bound:
        """`accuracy`: "exact", "judges", "rounding", "body" or "model" (of so many nodes)."""
        wide, narrow = _MULTIPLES[accuracy]
        if accuracy == "model":
            wide, narrow = wide * np.clip(nodes**0.5 / 2, 1, 12), narrow * np.clip(nodes**0.5 / 4, 1, 4)
        return cls(float(wide), float(narrow))


def worst(*verdicts: str) -> str:
    """The worst of bit-exact, within rounding, different."""
    return max(verdicts, key=[BIT_EXACT, WITHIN_ROUNDING, DIFFERENT].index)


def is_float(dtype: np.dtype) -> bool:
    """True also for the types of ml_dtypes, which numpy calls void-like."""
    import ml_dtypes

    if dtype.kind in "biucOUSM":
        return False
    try:
        ml_dtypes.finfo(dtype)
    except (ValueError, TypeError, KeyError):
        return False
    return True


def compare(name: str, before: Any, after: Any, bound: Bound, typical: float = 0.0) -> Figures:
    """`before` and `after`: an array, a list of arrays (sequence), a dict (map) or None (empty optional).

    `typical` is the size that elements of this output usually have, for runs that show few or unusual ones.
    """
    figures = Figures(name)
    _compare(figures, before, after, bound, typical, "")
    return figures


def typical_size(value: Any) -> float:
    """A size that three quarters of the finite elements that are not 0 do not exceed, 0 where there are none.

    Not the median: half of a spectrum may be what rounding left of zeros.
    """
    if not isinstance(value, np.ndarray) or not is_float(value.dtype):
        return 0.0
    sizes = np.abs(np.asarray(value.astype(np.float64)))
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return float(np.quantile(sizes, 0.75)) if sizes.size else 0.0


def _compare(figures: Figures, before: Any, after: Any, bound: Bound, typical: float, where: str) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return _fail(figures, f"keys {sorted(before)} against {sorted(after)}{where}")
        for key in before:
            _compare(
                figures, np.asarray(before[key]), np.asarray(after[key]), bound, typical, f" at key {key!r}{where}"
            )
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        if len(before) != len(after):
            return _fail(figures, f"a sequence of {len(before)} against one of {len(after)}{where}")
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            _compare(figures, one, other, bound, typical, f" in element {i} of the sequence{where}")
    elif before is None and after is None:
        figures.elements += 1
    elif isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        _arrays(figures, before, after, bound, typical, where)
    else:
        _fail(figures, f"{_kind(before)} against {_kind(after)}{where}")


def _kind(value: Any) -> str:
    return {np.ndarray: "a tensor", list: "a sequence", dict: "a map", type(None): "nothing"}.get(
        type(value), type(value).__name__
    )


def _fail(figures: Figures, problem: str, differing: int = 1) -> None:
    figures.add(Figures(figures.name, differing=differing, verdict=DIFFERENT, problem=problem))


def _arrays(figures: Figures, before: np.ndarray, after: np.ndarray, bound: Bound, typical: float, where: str) -> None:
    if before.dtype.kind == after.dtype.kind == "c":
        before, after = _parts(before), _parts(after)
    figures.elements += before.size
    text = {"O", "U", "S"}
    if before.dtype.kind in text and after.dtype.kind in text:
        before, after = _texts(before), _texts(after)
    elif before.dtype != after.dtype:
        return _fail(figures, f"{before.dtype} against {after.dtype}{where}", before.size)
    if before.shape != after.shape:
        return _fail(figures, f"shape {before.shape} against {after.shape}{where}", before.size)
    if before.size == 0:
        return None
    if not is_float(before.dtype):
        unequal = np.asarray(before != after)
        if not unequal.any():
            figures.add(Figures(figures.name, histogram=[before.size]))
            return None
        if before.dtype.kind in "iu":
            apart = _apart(before, after)
            relative = apart / np.maximum(np.abs(before.astype(np.float64)), 1)
            figures.add(
                Figures(
                    figures.name,
                    float(apart.max()),
                    float(relative.max()),
                    int(apart.max()),
                    place=_index(apart == apart.max()) + where,
                    histogram=_histogram(apart),
                )
            )
        return _fail(figures, _first(before, after, unequal) + where, int(unequal.sum()))
    return _floats(figures, before, after, bound, typical, where)


def _parts(numbers: np.ndarray) -> np.ndarray:
    """Complex numbers as their real and imaginary parts, along a last axis."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def _texts(strings: np.ndarray) -> np.ndarray:
    """Strings as Python has them: numpy's own drop zeros at the end."""
    found = np.empty(strings.size, object)
    found[:] = [
        text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else str(text) for text in strings.ravel()
    ]
    return found.reshape(strings.shape)


def _floats(figures: Figures, before: np.ndarray, after: np.ndarray, bound: Bound, typical: float, where: str) -> None:
    import ml_dtypes

    info = ml_dtypes.finfo(before.dtype)
    multiple = bound.wide if before.dtype.itemsize >= 4 else bound.narrow
    a, b = (np.asarray(x.astype(np.float64)) for x in (before, after))
    finite = np.asarray(np.isfinite(a) & np.isfinite(b))
    both_nan = np.isnan(a) & np.isnan(b)
    unequal = np.asarray(~((a == b) | both_nan))
    figures.add(Figures(figures.name, nonfinite=_nonfinite(a, b), histogram=[int(np.sum(~unequal & finite))]))
    if not unequal.any():
        return None
    wild = np.asarray(unequal & ~finite)
    if wild.any():
        nan = np.asarray(np.isnan(a) != np.isnan(b))
        if nan.any():
            at = _index(nan)
            _fail(figures, f"NaN {at} only {'before' if np.isnan(a[nan][0]) else 'after'}{where}", int(wild.sum()))
        else:
            _fail(figures, _first(before, after, wild) + where, int(wild.sum()))
    apart = np.asarray(unequal & finite)
    if not apart.any():
        return None
    with np.errstate(over="ignore"):
        difference = np.abs(a[apart] - b[apart])
    size = np.abs(a[apart])
    steps = _steps(before[apart], after[apart])
    greatest = apart.copy()
    greatest[apart] = difference == difference.max()
    figures.add(
        Figures(
            figures.name,
            float(difference.max()),
            float((difference / np.maximum(size, float(info.smallest_normal))).max()),
            int(steps.max()),
            place=_index(greatest) + where,
            histogram=_histogram(steps),
        )
    )
    typical = max(typical, typical_size(before))
    allowed = multiple * (float(info.eps) * (size + typical) + float(info.smallest_subnormal))
    too_far = apart.copy()
    too_far[apart] = difference > allowed
    if too_far.any():
        return _fail(figures, _first(before, after, too_far) + where, int(apart.sum()))
    figures.add(Figures(figures.name, differing=int(apart.sum()), verdict=WITHIN_ROUNDING))
    return None


def _nonfinite(before: np.ndarray, after: np.ndarray) -> dict[str, int]:
    nan, other_nan, infinite = np.isnan(before), np.isnan(after), np.isinf(before)
    counts = {
        "NaN in both": nan & other_nan,
        "the same infinity in both": infinite & (before == after),
        "NaN only before": nan & ~other_nan,
        "NaN only after": other_nan & ~nan,
        "infinite only before, or of the other sign": infinite & ~other_nan & (before != after),
        "infinite only after": np.isinf(after) & np.isfinite(before),
    }
    return {pattern: int(where.sum()) for pattern, where in counts.items() if where.any()}


def ulps(a: np.ndarray, b: np.ndarray) -> int:
    """The greatest number of representable values between finite elements of one floating type."""
    return int(_steps(a, b).max())


def _steps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """For finite elements of one floating type the number of representable values from one to the other."""

    def ordered(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
        return np.where(bits < 0, -(bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)), bits)

    return _apart(ordered(a), ordered(b))


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Differences of integers without their sign, as uint64: that of two int64 may need 64 bits."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64))


def _histogram(apart: np.ndarray) -> list[int]:
    return np.bincount(np.searchsorted(_POWERS, apart.ravel(), side="right")).tolist()


_POWERS = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))


def _index(mask: np.ndarray) -> str:
    index = tuple(int(i) for i in np.argwhere(mask)[0])
    return f"at index {index}" if index else "in the only element"


def _first(before: np.ndarray, after: np.ndarray, mask: np.ndarray) -> str:
    return f"{before[mask][0]} against {after[mask][0]} {_index(mask)}"
