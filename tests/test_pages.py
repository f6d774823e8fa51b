"""Pages for the browser: what they hold, and how they behave in one."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from pathlib import Path

import chromium
import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from relu_tools import drawing, plot
from relu_tools.cli import main
from relu_tools.page import Html, element, page, table

MODELS = Path(__file__).parents[1] / "models"


def run(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def parsed(opset: int, text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


BEFORE = "(float[N, 8] x) => (float[N, 8] y) { a = Relu(x) b = Sigmoid(a) y = Softmax<axis = 1>(b) }"
AFTER = "(float[N, 8] x) => (float[N, 8] y) { a = Relu(x) q = Identity(a) b = Tanh(q) y = Softmax<axis = 1>(b) }"
ROUNDS = "(float[2, 3, 8] x, float[8] s) => (float[2, 3, 8] y) { a = Gelu(x) y = LayerNormalization(a, s) }"
HOSTILE = "<script>alert(1)</script><img src=http://example.com/x>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every kind that the commands write."""
    folder = tmp_path_factory.mktemp("pages")
    for name, model in (("a", parsed(14, BEFORE)), ("b", parsed(13, AFTER)), ("rounds", parsed(20, ROUNDS))):
        onnx.save(model, folder / f"{name}.onnx")
    hostile = parsed(14, "(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax(x) }")
    hostile.graph.node[0].name = hostile.graph.node[0].input[0] = hostile.graph.input[0].name = HOSTILE
    hostile.graph.node[0].output[0] = hostile.graph.output[0].name = "\u202e\x1b[31m'\"&"
    onnx.save(hostile, folder / "hostile.onnx")
    made = {name: folder / f"{name}.html" for name in ("digits", "rounds", "hostile", "equal", "different", "refused")}
    digits = folder / ("a_long_name_without_a_break_" * 4) / "digits7.onnx"
    digits.parent.mkdir()
    for name, *args in (
        ("digits", "convert", MODELS / "digits.onnx", "--opset", 7, "-o", digits),
        ("rounds", "convert", folder / "rounds.onnx", "--opset", 11),
        ("hostile", "convert", folder / "hostile.onnx", "--opset", 12, "--verify", "full"),
        ("equal", "verify", MODELS / "digits.onnx", digits),
        ("different", "verify", folder / "a.onnx", folder / "b.onnx", "--locate"),
        ("refused", "convert", MODELS / "relu_14.onnxtxt", "--opset", 12, "-o", folder / "none.onnx"),
    ):
        result = run(*args, "--report", made[name])
        assert result.exit_code == (name in ("different", "refused")), result.output
    return made


NAMES = ["digits", "rounds", "hostile", "equal", "different", "refused"]


# --- what they hold ----------------------------------------------------------------------------
class Reader(html.parser.HTMLParser):
    """Elements that a page opens, checking that they are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open[-1:] != ["style"] else ""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_whole_and_needs_no_other_file(pages, name):
    text = pages[name].read_text("utf-8")
    reader = Reader(text)
    assert not reader.open
    tags = {tag for tag, _ in reader.seen}
    assert {"html", "title", "main", "h1", "style"} <= tags
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    outside = {"src", "href", "srcset", "data", "action", "style"}
    assert not [(tag, key) for tag, told in reader.seen for key in told if key in outside or key.startswith("on")]
    assert "url(" not in text and "@import" not in text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in reader.seen
    assert all(told.get("aria-label") for tag, told in reader.seen if tag == "svg")


def test_what_a_model_says_is_text(pages):
    text = pages["hostile"].read_text("utf-8")
    assert "&lt;script&gt;" in text and "<script" not in text
    assert "\x1b" not in text and "\u202e" not in text and r"\x1b[31m" in text


def test_a_conversion_page_tells_all_of_it(pages):
    text = Reader(pages["digits"].read_text("utf-8")).text
    for told in ("bit-exact", "onnxruntime", "seed 0", "ai.onnx 14 to 7", "ThresholdedRelu", "Greater", "alpha=0.1"):
        assert told in text, told
    assert re.search(r"special values\d+float\[\d+, 64\]", text)
    # Before and after of four kinds of rewrites.
    assert pages["digits"].read_text("utf-8").count('<svg class="graph"') == 8


def test_error_plots_show_where_there_are_errors(pages):
    text = pages["rounds"].read_text("utf-8")
    assert "within rounding" in text and '<svg class="plot"' in text
    assert '<svg class="plot"' not in pages["digits"].read_text("utf-8")


def test_a_page_of_different_models_says_where_they_part(pages):
    text = Reader(pages["different"].read_text("utf-8")).text
    assert "part at b: Sigmoid of a in A, Tanh of q in B" in text


def test_refusals_are_listed(pages):
    text = Reader(pages["refused"].read_text("utf-8")).text
    assert "Nothing was written: 3 refusals" in text and "no bfloat16 before opset 13" in text


def test_forms_that_differ_leave_a_page_and_no_model(tmp_path, monkeypatch):
    from relu_tools import conversion, verification

    onnx.save(parsed(14, "(float[N, 3] x) => (float[N, 3] y) { y = Softmax(x) }"), tmp_path / "a.onnx")
    verdict = verification.Verification("different", reason="y differs on plain values: 1.0 against 2.0")

    def differ(rewrites, **settings):
        return verification._overall([(rewrites[0].name, verdict)], 0)

    monkeypatch.setattr(verification, "verify_rewrites", differ)
    assert conversion.VerificationError
    result = run("convert", tmp_path / "a.onnx", "--opset", 12, "--report", tmp_path / "a.html")
    assert result.exit_code == 1 and not (tmp_path / "a.opset12.onnx").exists()
    text = Reader((tmp_path / "a.html").read_text("utf-8")).text
    assert "different" in text and "Nothing was written" in text and "1.0 against 2.0" in text


@pytest.mark.parametrize("place", ["a.onnx", "there.html", "-", "none/a.html"])
def test_a_report_overwrites_nothing(tmp_path, place):
    model = parsed(14, "(float[N] x) => (float[N] y) { y = Relu(x) }").SerializeToString()
    (tmp_path / "a.onnx").write_bytes(model)
    (tmp_path / "there.html").write_text("mine")
    target = place if place == "-" else tmp_path / place
    result = run("verify", tmp_path / "a.onnx", tmp_path / "a.onnx", "--report", target)
    assert result.exit_code == 2 and result.stderr.startswith("relu-tools: ") and result.stderr.count("\n") == 1
    assert (tmp_path / "a.onnx").read_bytes() == model and (tmp_path / "there.html").read_text() == "mine"
    forced = run("verify", tmp_path / "a.onnx", tmp_path / "a.onnx", "--report", target, "--force")
    assert forced.exit_code == (0 if place == "there.html" else 2)
    assert (tmp_path / "a.onnx").read_bytes() == model


def test_the_frame_escapes():
    text = page("<t>", table(["<h>"], [["<c>"], [Html("<b>kept</b>")]]), element("p", "a & b", title='"><x>'))
    assert "<t>" not in text and "<h>" not in text and "<c>" not in text and "<x>" not in text
    assert "<b>kept</b>" in text and "a &amp; b" in text


# --- drawings -----------------------------------------------------------------------------------
Frame = tuple[float, float, float, float]


def frames(svg: str) -> list[Frame]:
    found = re.findall(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    return [tuple(map(float, numbers)) for numbers in found]


def assert_readable(svg: str) -> None:
    """No box over another, all of them inside."""
    boxes = frames(svg)
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + w <= width + 1 and y + h <= height + 1
        for u, v, p, q in boxes[:i]:
            assert x >= u + p or u >= x + w or y >= v + q or v >= y + h


def drawn(model: onnx.ModelProto) -> str:
    graph = model.graph
    outputs = [value.name for value in graph.output]
    constants = {tensor.name: tensor for tensor in graph.initializer}
    return drawing.draw(graph.node, outputs=outputs, types={}, constants=constants, label="g")


@pytest.mark.parametrize("seed", range(12))
def test_boxes_stand_apart_whatever_the_graph(seed):
    random = np.random.default_rng(seed)
    values, nodes = ["x", "y"], []
    for i in range(random.integers(1, drawing.MOST_NODES + 1)):
        inputs = random.choice(values, random.integers(1, 4)).tolist()
        nodes.append(helper.make_node("Sum" + "m" * random.integers(9), inputs, [f"v{i}"]))
        values.append(f"v{i}")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values]
    svg = drawn(helper.make_model(helper.make_graph(nodes, "g", info[:2], [info[-1], info[0]])))
    assert_readable(svg)
    assert svg.count('<g class="node">') == len(nodes)


def test_wires_run_downwards_from_maker_to_taker():
    svg = drawn(parsed(13, "(float x) => (float z) { y = Relu(x) w = Neg(y) z = Add(y, w) }"))
    for start, end in re.findall(r'd="M[-\d.]+ ([-\d.]+)C.*? ([-\d.]+)" class="wire"', svg):
        assert float(start) < float(end)


def test_the_middle_of_a_large_graph_is_left_out():
    nodes = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(200))
    svg = drawn(parsed(13, f"(float[N] v0) => (float[N] v200) {{ {nodes} }}"))
    assert svg.count('<g class="node">') == 14 and "186 more nodes" in svg
    assert_readable(svg)


def test_values_of_constants_are_shown():
    text = "(float[N] x) => (float[N] y) { c = Constant<value = float {0.25}>() y = Add(x, c) }"
    assert ">0.25<" in drawn(parsed(13, text))


def test_every_count_of_a_histogram_is_told():
    svg = plot.histogram([5, 0, 3, *[0] * 20, 7], "errors")
    assert "5 elements 0 ULP apart, 3 elements 2–3 ULP apart, 7 elements" in svg
    heights = [
        float(h) for h in re.findall(r'height="([\d.]+)" class="equal"|height="([\d.]+)"></rect', svg) for h in h if h
    ]
    assert max(heights) <= 90 and sum(h > 0 for h in heights) == 3


@pytest.mark.parametrize(
    "counts, told",
    [
        ([5], ["5", "0"]),
        ([1, 2, 3], ["1", "0", "2", "1", "3", "2–3"]),
        ([1, 0, 2], ["1", "0", "1", "2", "2–3"]),
        ([1, 0, 0, 3], ["1", "0", "…", "3", "4–7"]),
        ([0, 0, 0, 4], ["0", "…", "4", "4–7"]),
    ],
)
def test_empty_stretches_of_a_histogram_are_left_out(counts, told):
    assert re.findall(r">([^<>]+)</text>", plot.histogram(counts, "errors")) == told


# --- in a browser ---------------------------------------------------------------------------------
in_chromium = pytest.mark.skipif(chromium.find() is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Tab]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@in_chromium
@pytest.mark.parametrize("name", NAMES)
def test_the_body_does_not_scroll_sideways_on_a_phone(pages, tab, name):
    tab.open(pages[name], width=390)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.run("innerWidth") == 390
    assert tab.run("document.documentElement.scrollWidth") <= 390
    # What is wider scrolls in a box of its own, and nothing is cut off.
    assert tab.run(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && e.scrollWidth > e.clientWidth + 1"
        " && e.clientWidth && getComputedStyle(e).display != 'inline' && !e.matches('.scroll')).map(e => e.outerHTML)"
    ) == []  # fmt: skip
    assert not tab.complaints


@in_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_dark(pages, tab, dark):
    """By the contrast that WCAG 2.2 asks of text, 4.5 to 1."""

    def luminance(color: str) -> float:
        channels = [int(c) / 255 for c in re.findall(r"\d+", color)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(part * c for part, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    script = """(() => {
      const ground = e => { for (; e; e = e.parentElement) {
        const c = getComputedStyle(e).backgroundColor; if (c != 'rgba(0, 0, 0, 0)') return c; } };
      const found = new Set();
      for (const e of document.querySelectorAll('h1, p, dt, dd, th, td, summary, code, .badge, figcaption'))
        found.add(getComputedStyle(e).color + '|' + ground(e));
      for (const e of document.querySelectorAll('svg text')) {
        const box = e.parentElement.querySelector('rect');
        const inside = box && e.closest('.graph') && getComputedStyle(box).fill;
        found.add(getComputedStyle(e).fill + '|' + (inside || ground(e)));
      }
      return [...found];
    })()"""
    grounds = set()
    for name in NAMES:
        tab.open(pages[name], dark=dark)
        for pair in tab.run(script):
            text, ground = map(luminance, pair.split("|"))
            grounds.add(ground > 0.5)
            high, low = max(text, ground), min(text, ground)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, pair)
    assert grounds == {not dark}
    assert not tab.complaints


@in_chromium
@pytest.mark.parametrize("name", ["digits", "equal"])
def test_everything_can_be_reached_by_keyboard(pages, tab, name):
    tab.open(pages[name], width=390)
    tab.run("document.querySelectorAll('summary, .scroll').forEach((e, i) => e.id = 'k' + i)")
    visible = "[...document.querySelectorAll('summary, .scroll')].filter(e => e.checkVisibility())"
    wanted = tab.run(f"{visible}.map(e => e.id)")
    reached = []
    for _ in wanted:
        tab.press("Tab")
        reached.append(tab.run("document.activeElement.id"))
        assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached == wanted
    if name == "digits":
        tab.run("document.querySelector('summary').focus()")
        before = tab.run("document.querySelector('details').open")
        tab.press("Enter")
        assert tab.run("document.querySelector('details').open") is not before


@in_chromium
def test_print_shows_what_is_folded(pages, tab):
    tab.open(pages["digits"])
    inside = "document.querySelector('details details .inside')"
    assert not tab.run(f"{inside}.checkVisibility()")
    tab.send("Emulation.setEmulatedMedia", media="print")
    assert tab.run(f"{inside}.checkVisibility()")
    tab.send("Emulation.setEmulatedMedia", media="")


@in_chromium
def test_texts_fit_their_boxes(pages, tab):
    for name in ("digits", "rounds", "equal", "different"):
        tab.open(pages[name])
        tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.run("""[...document.querySelectorAll('.graph g')].filter(g => {
          const box = g.querySelector('rect').getBBox();
          return [...g.querySelectorAll('text')].some(t => t.getBBox().width > box.width);
        }).map(g => g.textContent)""") == []  # fmt: skip
