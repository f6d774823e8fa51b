"""The page of `check --html` in a browser: no complaint, all in reach of the keyboard, readable in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import chromium
import onnx
import pytest

import relu_tools
from relu_tools.compatibility_page import compatibility

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="there is no Chromium")

TEXT = """<ir_version: 7, opset_import: ["": 14]> net (bfloat16[2] x, int32[2] k, float[2] z)
    => (bfloat16[2] y, int32[2] m, float[2] n) { y = Relu (x)  m = Relu (k)  n = HardSwish (z) }"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Iterator[chromium.Tab]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "net.html"
    found = relu_tools.check(onnx.parser.parse_model(TEXT), range(7, 20), runtime="onnxruntime==1.4")
    path.write_text(compatibility(found, "net.onnx"), "utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
def test_only_the_matrix_scrolls_sideways(tab, page, width):
    tab.open(page, width=width)
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert not tab.complaints


def test_the_keyboard_leads_from_each_cell_to_its_reason(tab, page):
    tab.open(page)
    links = tab.run("document.querySelectorAll('.matrix a').length")
    assert links > 0
    reached = []
    tab.run("document.querySelector('.scroll').focus()")
    for _ in range(links):
        tab.press("Tab")
        reached.append(tab.run("document.activeElement.getAttribute('href')"))
        assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached == tab.run("[...document.querySelectorAll('.matrix a')].map(a => a.getAttribute('href'))")
    tab.press("Enter")
    assert tab.run("location.hash") == reached[-1]
    assert tab.run("document.querySelector(':target').getBoundingClientRect().top < innerHeight")
    assert not tab.complaints


def test_names_of_operators_stay_in_sight(tab, page):
    tab.open(page, width=390)
    tab.run("document.querySelector('.scroll').scrollLeft = 300")
    left = "document.querySelector('.matrix tbody tr:last-child th').getBoundingClientRect().left"
    assert tab.run(left) == tab.run("document.querySelector('.scroll').getBoundingClientRect().left")


@pytest.mark.parametrize("dark", [False, True])
def test_cells_stand_out_in_light_and_dark(tab, page, dark):
    """By the contrast that WCAG 2.2 asks of text, 4.5 to 1."""
    tab.open(page, dark=dark)
    pairs = tab.run("""[...document.querySelectorAll('.matrix a, .matrix span, .matrix th, .reason li')].map(e => {
        const color = getComputedStyle(e).color;
        for (let o = e; o; o = o.parentElement) {
            const ground = getComputedStyle(o).backgroundColor;
            if (ground != 'rgba(0, 0, 0, 0)') return [color, ground];
        } })""")

    def luminance(color: str) -> float:
        channels = [int(c) / 255 for c in re.findall(r"\d+", color)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(part * c for part, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for pair in {tuple(pair) for pair in pairs}:
        low, high = sorted(map(luminance, pair))
        assert (high + 0.05) / (low + 0.05) >= 4.5, pair
    assert not tab.complaints
