"""Small graphs of nodes as SVG: layers from top to bottom, few crossings, colours from `page`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from relu_tools.graphs import free_names
from relu_tools.page import Html, element, join
from relu_tools.report import qualified

MOST_NODES = 30
"""Of a graph with more nodes the middle is drawn as one box, between this many nodes on either side:"""
_ENDS = 7

STYLE = """
.graph { font: 12px/1 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.graph text { text-anchor: middle; fill: var(--ink); }
.graph .small { font-size: 10.5px; fill: var(--muted); }
.graph .strong { font-weight: 600; }
.graph rect { fill: var(--paper); stroke: var(--line); }
.graph .node rect { fill: var(--tint); stroke: var(--muted); }
.graph .constant rect { stroke-dasharray: 3 2; }
.graph .more rect { stroke: none; }
.graph .wire { fill: none; stroke: var(--muted); stroke-width: 1.2; }
.graph .tip { fill: var(--muted); }
"""

_CHARACTER, _SMALL, _MARGIN, _GAP, _BETWEEN = 7.3, 6.4, 12, 18, 34
_MOST_CHARACTERS, _FEW, _CROWD = 30, 4, 12


@dataclasses.dataclass(eq=False)
class _Box:
    """What is drawn; a box without lines is a bend of a wire that passes a layer."""

    kind: str
    lines: list[str] = dataclasses.field(default_factory=list)
    tip: str = ""
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        if not self.lines:
            return 6
        sizes = [len(line) * (_SMALL if i else _CHARACTER) for i, line in enumerate(self.lines)]
        return max(34, max(sizes) + 2 * 9)

    @property
    def height(self) -> float:
        return 0 if not self.lines else 10 + 15 * len(self.lines)


def draw(
    nodes: Sequence[onnx.NodeProto],
    *,
    outputs: Iterable[str],
    types: Mapping[str, str],
    constants: Mapping[str, onnx.TensorProto],
    label: str,
) -> Html:
    """The nodes, what goes in and what comes out, as an SVG element.

    `types` says of names what is written below them; `constants` are names with a known value, of which those with
    many elements, and in a large graph all, are written into the boxes that take them. `label` is for screen
    readers, which are told the operators besides.
    """
    boxes, wires = _boxes(nodes, list(outputs), types, constants)
    layers = _layers(boxes, wires)
    _order(layers, wires)
    width, height = _place(layers, wires)
    operators = ", ".join(node.op_type for node in nodes[:MOST_NODES]) or "no node"
    return element(
        "svg",
        *(_wire(a, b) for a, b in wires),
        *(_drawn(box) for box in boxes),
        class_="graph",
        width=round(width),
        height=round(height),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=f"{label}: {operators}",
    )


# --- what there is to draw ---------------------------------------------------------------------
_Wires = list[tuple[_Box, _Box]]


def _boxes(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    types: Mapping[str, str],
    constants: Mapping[str, onnx.TensorProto],
) -> tuple[list[_Box], _Wires]:
    known = {**constants, **{n.output[0]: t for n in nodes if (t := _constant(n)) is not None}}
    nodes = [node for node in nodes if not (node.op_type == "Constant" and node.output[0] in known)]
    crowded = len(nodes) > _CROWD
    weights = {
        name: _shape(tensor) if _count(tensor) > _FEW else _value(tensor)
        for name, tensor in known.items()
        if name not in outputs and (crowded or _count(tensor) > _FEW)
    }
    boxes: list[_Box] = []
    makers: dict[str, _Box] = {}
    wires: dict[tuple[_Box, _Box], None] = {}

    def maker(name: str) -> _Box:
        if name not in makers:
            if name in known:
                box = _Box("constant", [_short(_value(known[name])), *_below(_shape(known[name]))], name)
            else:
                box = _Box("value", [_short(name), *_below(types.get(name, ""))], name)
            boxes.append(box)
            makers[name] = box
        return makers[name]

    hidden = range(_ENDS, len(nodes) - _ENDS) if len(nodes) > MOST_NODES else range(0)
    more = _Box("more", _summary([nodes[i] for i in hidden]))
    for number, node in enumerate(nodes):
        box = more if number in hidden else _Box("node", _node_lines(node, weights), _node_tip(node))
        if box not in boxes:
            boxes.append(box)
        for name in free_names([node]):
            source = maker(name) if name not in weights else box
            if source is not box:
                wires[source, box] = None
        makers.update({name: box for name in node.output if name})
    for name in outputs:
        box = _Box("value", [_short(name), *_below(types.get(name, ""))], name)
        wires[maker(name), box] = None
        boxes.append(box)
    return boxes, list(wires)


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.type == AttributeProto.TENSOR:
        return attribute.t
    if attribute.name.startswith("value_") and attribute.type != AttributeProto.SPARSE_TENSOR:
        value = helper.get_attribute_value(attribute)
        dtype = {"f": np.float32, "i": np.int64}.get(attribute.name[6], object)
        return numpy_helper.from_array(np.asarray(value, dtype))
    return None


def _value(tensor: onnx.TensorProto) -> str:
    if _count(tensor) > _FEW:
        return tensor.name or f"{_count(tensor)} numbers"
    try:
        values = numpy_helper.to_array(tensor).ravel().tolist()
    except (ValueError, TypeError):  # its data lies in another file, or was not read
        return tensor.name or "constant"
    said = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
    return said[0] if not tensor.dims and said else f"[{', '.join(said)}]"


def _count(tensor: onnx.TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))


def _shape(tensor: onnx.TensorProto) -> str:
    element = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    return f"{element}[{', '.join(map(str, tensor.dims))}]" if tensor.dims else element


def _below(text: str) -> list[str]:
    return [_short(text)] if text else []


def _short(text: str, most: int = _MOST_CHARACTERS) -> str:
    """The end of a long name says more than its beginning, so that the middle goes."""
    return text if len(text) <= most else f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _node_lines(node: onnx.NodeProto, weights: Mapping[str, str]) -> list[str]:
    said = ", ".join(_attribute(attribute) for attribute in node.attribute)
    given = ", ".join(weights[name] for name in free_names([node]) if name in weights)
    return [_short(qualified(node.domain, node.op_type)), *(_cut(line) for line in (said, given) if line)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS + 4 else text[: _MOST_CHARACTERS + 3] + "…"


def _attribute(attribute: AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"{attribute.name}={attribute.ref_attr_name}"
    if attribute.type == AttributeProto.GRAPH:
        return f"{attribute.name}: {', '.join(node.op_type for node in attribute.g.node) or 'nothing'}"
    if attribute.type in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR, AttributeProto.GRAPHS):
        return attribute.name
    value = helper.get_attribute_value(attribute)
    if attribute.name in ("to", "dtype") and value in onnx.TensorProto.DataType.values():
        value = onnx.TensorProto.DataType.Name(value).lower()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return f"{attribute.name}={value:.6g}" if isinstance(value, float) else f"{attribute.name}={value}"


def _node_tip(node: onnx.NodeProto) -> str:
    made = f"{', '.join(node.output)} = {qualified(node.domain, node.op_type)}({', '.join(node.input)})"
    return "\n".join([f"{node.name}: {made}" if node.name else made, *map(_attribute, node.attribute)])


def _summary(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    counts = Counter(node.op_type for node in nodes).most_common(3)
    return [f"… {len(nodes)} more nodes …", _short(", ".join(f"{count} {op}" for op, count in counts) + " …", 40)]


# --- where it stands --------------------------------------------------------------------------
def _layers(boxes: list[_Box], wires: _Wires) -> list[list[_Box]]:
    """The boxes by layer, every wire cut into pieces from one layer to the next."""
    sources: dict[_Box, list[_Box]] = {box: [] for box in boxes}
    targets: dict[_Box, list[_Box]] = {box: [] for box in boxes}
    for a, b in wires:
        sources[b].append(a)
        targets[a].append(b)

    def depth(box: _Box) -> int:
        return max((a.layer + 1 for a in sources[box]), default=0)

    # Boxes stand in the order of the nodes, but what goes in may come after the first node that takes it.
    for box in sorted(boxes, key=lambda box: bool(sources[box])):
        box.layer = depth(box)
    for box in boxes:
        if not sources[box] and targets[box]:
            box.layer = min(b.layer for b in targets[box]) - 1
    last = max((box.layer for box in boxes), default=0)
    for box in boxes:
        if sources[box] and not targets[box]:
            box.layer = last
    layers: list[list[_Box]] = [[] for _ in range(last + 1)]
    for box in boxes:
        layers[box.layer].append(box)
    for a, b in list(wires):
        if b.layer - a.layer < 2:
            continue
        wires.remove((a, b))
        bends = [_Box("bend", layer=layer) for layer in range(a.layer + 1, b.layer)]
        for bend in bends:
            layers[bend.layer].append(bend)
        wires += zip([a, *bends], [*bends, b], strict=True)
    return layers


def _order(layers: list[list[_Box]], wires: _Wires) -> None:
    """Each layer by the middle of its neighbours in the one above, then the one below, a few times over."""
    for sweep in range(8):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            for i, box in enumerate(layer):
                box.x = i
        for layer in layers[1:] if down else layers[-2::-1]:
            middles = {}
            for i, box in enumerate(layer):
                near = [a.x for a, b in wires if b is box] if down else [b.x for a, b in wires if a is box]
                middles[box] = sum(near) / len(near) if near else i
            layer.sort(key=middles.__getitem__)
            for i, box in enumerate(layer):
                box.x = i


def _place(layers: list[list[_Box]], wires: _Wires) -> tuple[float, float]:
    """Coordinates of the middles of all boxes; width and height of the drawing."""
    y = _MARGIN / 2
    for layer in layers:
        height = max(box.height for box in layer)
        # Layers are stacked by their middles, where a plain chain is to stay.
        x = -(sum(box.width for box in layer) + _GAP * (len(layer) - 1)) / 2
        for box in layer:
            box.x, box.y = x + box.width / 2, y + height / 2
            x += box.width + _GAP
        y += height + _BETWEEN
    for sweep in range(12):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            _pull(layer, wires)
    left = min(box.x - box.width / 2 for layer in layers for box in layer) - _MARGIN
    for layer in layers:
        for box in layer:
            box.x -= left
    width = max(box.x + box.width / 2 for layer in layers for box in layer) + _MARGIN
    return width, y - _BETWEEN + _MARGIN / 2


def _pull(layer: list[_Box], wires: _Wires) -> None:
    """Moves each box towards its neighbours, as far as the others of its layer leave room on both sides."""
    wanted = []
    for box in layer:
        near = [a.x for a, b in wires if b is box] + [b.x for a, b in wires if a is box]
        wanted.append(sum(near) / len(near) if near else box.x)
    gaps = [(a.width + b.width) / 2 + _GAP for a, b in zip(layer, layer[1:], strict=False)]
    # The mean of two packings, one pushed to the right and one to the left, keeps all gaps and stays near the middle.
    right, left = list(wanted), list(wanted)
    for i, gap in enumerate(gaps):
        right[i + 1] = max(right[i + 1], right[i] + gap)
    for i, gap in reversed(list(enumerate(gaps))):
        left[i] = min(left[i], left[i + 1] - gap)
    for box, a, b in zip(layer, left, right, strict=True):
        box.x = (a + b) / 2


# --- how it looks -------------------------------------------------------------------------------
def _drawn(box: _Box) -> Html:
    lines = [
        element(
            "text",
            line,
            x=f"{box.x:.1f}",
            y=f"{box.y - box.height / 2 + 18 + 15 * i:.1f}",
            class_=("small" if i else "strong" if box.kind == "node" else None),
        )
        for i, line in enumerate(box.lines)
    ]
    frame = element(
        "rect",
        x=f"{box.x - box.width / 2:.1f}",
        y=f"{box.y - box.height / 2:.1f}",
        width=f"{box.width:.1f}",
        height=f"{box.height:.1f}",
        rx=4 if box.kind in ("node", "more") else f"{min(box.height / 2, 13):.0f}",
    )
    return element("g", element("title", box.tip) if box.tip else "", frame, *lines, class_=box.kind)


def _wire(a: _Box, b: _Box) -> Html:
    x, y, u, v = a.x, a.y + a.height / 2, b.x, b.y - b.height / 2
    tip = 5 if b.lines else 0
    middle = (y + v - tip) / 2
    line = element(
        "path",
        d=f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v - tip:.1f}",
        class_="wire",
    )
    head = element("path", d=f"M{u - 3.5:.1f} {v - 6:.1f}L{u:.1f} {v:.1f}L{u + 3.5:.1f} {v - 6:.1f}Z", class_="tip")
    return join(line, head) if tip else line
