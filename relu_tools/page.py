"""The frame of a report for the browser: one HTML file that needs no other, with no script in it.

Content is put together from `element`, which escapes every string that is not `Html` already, so nothing that a model
says can become markup. Colours are CSS variables (`--ink`, `--muted`, `--line`, `--tint`, `--good`, `--warn`, `--bad`,
`--accent`), each with a light and a dark value; drawings should use them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from relu_tools.present import printable


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(value: object) -> Html:
    """As text of a page; `Html` stays what it is. Control characters are written as escapes."""
    return value if isinstance(value, Html) else Html(html.escape(printable(str(value))))


def join(*content: object) -> Html:
    """Several pieces one after the other."""
    return Html("".join(map(escape, content)))


_VOID = {"meta", "br", "hr"}


def element(name: str, /, *content: object, **attributes: Any) -> Html:
    """An element of HTML or SVG. `class_` stands for class, `aria_label` for aria-label; None leaves one out."""
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + (f'="{escape(value)}"' if value is not True else "")
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{told}>" + ("" if name in _VOID else f"{join(*content)}</{name}>"))


def page(title: str, *body: object, style: str = "") -> str:
    """The whole file, ready to be written as UTF-8; the title is its heading too, `style` more CSS."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        # Whatever may slip into the page: it cannot load or run anything.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(_STYLE + style)),
    )
    main = element("main", element("h1", title), *body)
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


def section(heading: str, *body: object) -> Html:
    """A part of the page under its heading."""
    return element("section", element("h2", heading), *body)


def table(headers: Sequence[object], rows: Iterable[Sequence[object]], label: str = "") -> Html:
    """A table that scrolls sideways in its own box; `label` says to a screen reader what it shows.

    Cells that are numbers stand to the right, as do the headers above them.
    """
    body = [list(row) for row in rows]
    numeric = [
        bool(body) and all(isinstance(row[i], int | float) for row in body if row[i] != "") for i in range(len(headers))
    ]

    def line(name: str, cells: Sequence[object], **attributes: Any) -> Html:
        return element(
            "tr",
            *(
                element(name, _number(cell), class_="number" if right else None, **attributes)
                for cell, right in zip(cells, numeric, strict=True)
            ),
        )

    inner = element(
        "table",
        element("thead", line("th", headers, scope="col")),
        element("tbody", *(line("td", row) for row in body)),
    )
    return scroll(inner, label or ", ".join(map(str, headers)))


def _number(cell: object) -> object:
    return f"{cell:.3g}" if isinstance(cell, float) else cell


def scroll(content: object, label: str) -> Html:
    """Wide content in a box that scrolls sideways, by keyboard too."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def details(summary: object, *body: object, open_: bool = False) -> Html:
    """What unfolds under its summary; it is printed unfolded."""
    return element("details", element("summary", summary), element("div", *body, class_="inside"), open_=open_)


def badge(text: str, kind: str) -> Html:
    """A word on a coloured ground; `kind` is "good", "warn", "bad" or "none"."""
    return element("span", text, class_=f"badge {kind}")


def facts(rows: Iterable[tuple[object, object]]) -> Html:
    """A list of terms and what is said of each."""
    return element("dl", *(join(element("dt", term), element("dd", said)) for term, said in rows))


_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --tint: #f3f3ee; --line: #dcdcd3; --ink: #23231f; --muted: #65655c;
  --accent: #2f5d8a; --good: #2d6a3e; --warn: #7d5a00; --bad: #a32b22;
  --good-tint: #e4f0e6; --warn-tint: #f7edd0; --bad-tint: #f9e3e0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #181916; --tint: #22231f; --line: #3a3b35; --ink: #e7e6df; --muted: #a3a297;
    --accent: #8fb8e0; --good: #8fcf9f; --warn: #e2bd63; --bad: #f09a90;
    --good-tint: #1f3325; --warn-tint: #372d12; --bad-tint: #40201d;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.2; font-weight: 600; overflow-wrap: anywhere; text-wrap: balance; }
h1 { font-size: 1.7rem; letter-spacing: -0.015em; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.75rem 0 0.9rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 0.5rem; }
p, ul, ol { margin: 0 0 0.8rem; max-width: 44rem; overflow-wrap: anywhere; }
ul, ol { padding-left: 1.2rem; }
a { color: var(--accent); }
.muted { color: var(--muted); }
.lead { font-size: 1.1rem; }
code, .code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.9em; }
code { overflow-wrap: anywhere; }
.badge {
  display: inline-block; padding: 0.05em 0.55em; border-radius: 0.3em; font-weight: 600; white-space: nowrap;
  background: var(--tint); color: var(--muted);
}
.badge.good { background: var(--good-tint); color: var(--good); }
.badge.warn { background: var(--warn-tint); color: var(--warn); }
.badge.bad { background: var(--bad-tint); color: var(--bad); }
.scroll { overflow-x: auto; margin: 0 0 1rem; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 1.4rem 0.35rem 0; }
tr { border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); white-space: nowrap; }
td { max-width: 30rem; overflow-wrap: break-word; }
th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.3rem 1.4rem; margin: 0 0 1rem; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: 0.6rem 0.2rem; overflow-wrap: anywhere; }
summary:hover { background: var(--tint); }
.inside { padding: 0.4rem 0.2rem 1rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 2px; }
svg { display: block; max-width: none; }
svg text { font-family: inherit; }
@media (max-width: 36rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.4rem; }
  dl { column-gap: 1rem; }
  th, td { padding-right: 1rem; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --muted: #444; --line: #bbb; }
  main { max-width: none; padding: 0; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
  tr, figure, dl, .together { break-inside: avoid; }
  h2, h3, summary { break-after: avoid; }
  .scroll { overflow: visible; }
}
"""
