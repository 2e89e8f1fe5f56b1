"""Drawings of boxes and lines as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from poot.inspection._layers import Point, arrange

_FONT_PX, _LINE_PX, _CHARACTER_PX = 11, 15, 6.7
_PADDING = 8
# Characters of a line; the tooltip has all of it.
MOST_COLUMNS = 72

STYLE = """
.poot text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24; }
.poot .title { font-weight: bold; }
.poot .inner { fill: #57606a; }
.poot .place { fill: #0550ae; }
.poot rect { fill: #ffffff; stroke: #8c959f; rx: 4px; }
.poot .argument rect { fill: #ddf4ff; stroke: #54aeff; }
.poot .slot rect { fill: #fff1e5; stroke: #fb8f44; }
.poot .state rect { fill: #dafbe1; stroke: #4ac26b; }
.poot .constant rect { fill: #f6f8fa; }
.poot .composite rect { fill: #fbefff; stroke: #c297ff; }
.poot .control rect { fill: #fff8c5; stroke: #d4a72c; }
.poot .view rect { stroke-dasharray: 4 3; }
.poot .result rect { fill: #f6f8fa; stroke: #1b1f24; }
.poot path { fill: none; stroke: #6e7781; stroke-width: 1.1; }
.poot .arena rect { fill: #b6e3ff; stroke: #0969da; }
""".strip()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a box; `kind` is a class of the style."""

    text: str
    kind: str = "inner"


@dataclass(frozen=True, slots=True)
class Box:
    """Lines with a frame; `kind` is a class of the style, `tooltip` all there is."""

    kind: str
    lines: tuple[Line, ...]
    tooltip: str = ""

    @property
    def size(self) -> tuple[float, float]:
        columns = max((len(_cut(line.text)) for line in self.lines), default=0)
        width = columns * _CHARACTER_PX + 2 * _PADDING
        return width, len(self.lines) * _LINE_PX + _PADDING


def boxes_svg(
    boxes: Sequence[Box], edges: Sequence[tuple[int, int]], names: Sequence[str]
) -> str:
    """Boxes from top to bottom, and lines between, whose tooltips are `names`."""
    found = arrange([box.size for box in boxes], edges)
    parts = []
    for route, name in zip(found.routes, names, strict=True):
        parts.append(f'<path d="{_curve(route)}">{_title(name)}</path>')
    for box, corner in zip(boxes, found.corners, strict=True):
        parts += _box(box, corner)
    return whole_svg(parts, found.width, found.height)


def whole_svg(parts: Sequence[str], width: float, height: float) -> str:
    """One SVG document around what is in it."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="poot" {size} {box}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"])


def rectangle(x: float, y: float, width: float, height: float, tooltip: str) -> str:
    """A bare rectangle that tells something when pointed at."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"{_title(tooltip)}</rect>"
    )


def label(x: float, y: float, text: str, kind: str = "inner") -> str:
    """A line of text whose base begins there."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{clean(_cut(text))}</text>'


def clean(text: str) -> str:
    """Text for XML: marks escaped, what XML cannot hold left out."""
    kept = "".join(c for c in text if c in "\t\n" or (c.isprintable() and c < "\ud800"))
    return escape(kept)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_COLUMNS else f"{text[: MOST_COLUMNS - 1]}…"


def _title(text: str) -> str:
    return f"<title>{clean(text)}</title>" if text else ""


def _box(box: Box, corner: Point) -> Iterator[str]:
    (x, y), (width, height) = corner, box.size
    yield f'<g class="{box.kind}">'
    yield rectangle(x, y, width, height, box.tooltip)
    for number, line in enumerate(box.lines):
        base = y + _PADDING / 2 + number * _LINE_PX + _FONT_PX
        yield label(x + _PADDING, base, line.text, line.kind)
    yield "</g>"


def _curve(points: Sequence[Point]) -> str:
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for end_x, end_y in rest:
        middle = (y + end_y) / 2
        parts.append(
            f"C{x:.1f} {middle:.1f} {end_x:.1f} {middle:.1f} {end_x:.1f} {end_y:.1f}"
        )
        x, y = end_x, end_y
    return " ".join(parts)
