"""A histogram of differences in units in the last place, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relu_tools.page import Html, element, escape

STYLE = """
.plot { font: 11px/1 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
.plot text { text-anchor: middle; fill: var(--muted); }
.plot .count { fill: var(--ink); }
.plot rect { fill: var(--accent); }
.plot .equal { fill: var(--good); }
.plot .axis { stroke: var(--line); }
"""

_STEP, _WIDE, _HIGH, _TOP, _BELOW = 56, 38, 90, 18, 22
_FEW = 11


def histogram(counts: Sequence[int], label: str) -> Html:
    """`counts` of elements by the binary digits of their difference in ULP; bars are on a logarithmic scale."""
    bins = [(_range(digits, digits), count) for digits, count in enumerate(counts)]
    if len(bins) > _FEW:
        # Large differences matter by their order of magnitude only.
        rest = range(_FEW - 1, len(bins), 6)
        ends = [min(start + 5, 64) for start in rest]
        bins = bins[: _FEW - 1] + [
            (_range(start, end), sum(counts[start : end + 1])) for start, end in zip(rest, ends, strict=True)
        ]
    # Several empty ones in a row take the place of one.
    empty = [count == 0 and i > 0 for i, (_, count) in enumerate(bins)]
    gaps = [all(empty[i - 1 : i + 1]) and i > 1 for i in range(len(bins))]
    bins = [("…", 0) if i + 1 < len(bins) and gaps[i + 1] else bins[i] for i, gap in enumerate(gaps) if not gap]
    most = math.log10(1 + max((count for _, count in bins), default=0)) or 1
    bars = []
    for i, (name, count) in enumerate(bins):
        high = _HIGH * math.log10(1 + count) / most
        middle = i * _STEP + _STEP / 2
        bars.append(
            element(
                "rect",
                x=f"{middle - _WIDE / 2:.0f}",
                y=f"{_TOP + _HIGH - high:.1f}",
                width=_WIDE,
                height=f"{high:.1f}",
                class_=None if i else "equal",
            )
        )
        if count:
            said = element("text", _said(count), x=f"{middle:.0f}", y=f"{_TOP + _HIGH - high - 5:.1f}", class_="count")
            bars.append(said)
        bars.append(element("text", escape(name), x=f"{middle:.0f}", y=_TOP + _HIGH + 15))
    width, height = len(bins) * _STEP, _TOP + _HIGH + _BELOW
    axis = element("line", x1=0, x2=width, y1=_TOP + _HIGH, y2=_TOP + _HIGH, class_="axis")
    return element(
        "svg",
        *bars,
        axis,
        class_="plot",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"{label}: " + ", ".join(f"{count} elements {name} ULP apart" for name, count in bins if count),
    )


def _range(first: int, last: int) -> str:
    """Differences that have so many binary digits."""
    if last <= 1:
        return str(last)
    return f"{_power(first - 1)}–{_power(last, 1)}"


def _power(exponent: int, less: int = 0) -> str:
    if exponent <= 10:
        return str((1 << exponent) - less)
    return "2" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _said(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if count >= size:
            return f"{count / (1000 if unit == 'k' else size):.3g}{unit}"
    return str(count)
