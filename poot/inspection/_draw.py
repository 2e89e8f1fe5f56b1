"""`poot.draw`: a function's graph, what was fused of it, and its buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import ArgumentError
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Composite
from poot.core.ops.control import ControlOp
from poot.core.ops.host import HostCall, holds
from poot.core.text import print_graph
from poot.core.types import Storage
from poot.inspection._explain import described, jitted_form
from poot.inspection._svg import (
    STYLE,
    Box,
    Line,
    boxes_svg,
    clean,
    label,
    rectangle,
    whole_svg,
)
from poot.interpreters.backend import backend
from poot.lowering.compile import placement
from poot.lowering.plan.planner import Placement
from poot.lowering.program import BufferRange, Copy, Dispatch, Node, Space

# Equations within a box; the tooltip has all.
_MOST_INNER = 10
_MOST_LAUNCHES = 3
# An input with more readers is named in each of them, instead of lines to all.
_MOST_LINES = 3
# So is a value that is read further down than so many equations.
_LONGEST_LINE = 40
_ARENA_WIDTH, _ARENA_HEIGHT, _ARENA_LEFT = 900.0, 240.0, 110.0


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """A drawing; notebooks show it.

    `svg` has the graph, `html` is a page with it, the arena over the equations, and a
    table of arguments, constants and results.
    """

    name: str
    svg: str
    arena_svg: str
    rows: tuple[tuple[str, str, str], ...]

    @property
    def html(self) -> str:
        title = clean(self.name)
        return (
            '<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml"><head>'
            f'<meta charset="utf-8"/><title>{title}</title></head>\n'
            f"<body><h1>{title}</h1>\n{self._repr_html_()}</body></html>\n"
        )

    def _repr_html_(self) -> str:
        rows = "\n".join(
            "<tr>" + "".join(f"<td>{clean(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return (
            f"<style>{STYLE}</style>\n<table>\n{rows}\n</table>\n"
            f"<div>{self.arena_svg}</div>\n<div>{self.svg}</div>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write an .svg with the graph alone, or an .html with all."""
        target = Path(path)
        if target.suffix not in (".svg", ".html"):
            raise ArgumentError(
                f"draw: {target.name} ends in {target.suffix!r}, takes .svg or .html"
            )
        content = self.svg if target.suffix == ".svg" else self.html
        target.write_text(content, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<drawing of {self.name}; save it as .svg or .html>"


def draw(function: Callable[..., Any]) -> Callable[..., Drawing]:
    """A function that draws how `function` runs on the arguments that it is given.

        poot.draw(f)(x, y).save("f.html")

    Boxes are what is left after the passes: a composite shows the equations in it, and
    each box its launches and where its results stand. Nothing is run.
    """
    jitted = jitted_form("draw", function)

    def drawn(*args: Any, **kwargs: Any) -> Drawing:
        lowered = jitted.lower(*args, **kwargs)
        graph = lowered.graph
        if holds(graph, HostCall):
            found = Placement(graph, {}, ((),) * len(graph.eqns))
        else:
            found = placement(graph, backend().info)
        return _Drawer(found).drawing(lowered.name)

    return drawn


class _Drawer:
    def __init__(self, found: Placement) -> None:
        self.graph = found.graph
        self.places = found.places
        self.launches = found.launches
        self.boxes: list[Box] = []
        self.edges: list[tuple[int, int]] = []
        self.edge_names: list[str] = []
        self.uses = self.graph.uses()
        self.made = self.graph.definitions()
        self.inputs = {
            value: text for value, text in zip(*_input_names(self.graph), strict=True)
        }
        self.box_of: dict[ValueId, int] = {}

    def drawing(self, name: str) -> Drawing:
        for value in self.graph.inputs:
            readers = self.uses.get(value, ())
            shown = value in {output.value for output in self.graph.outputs}
            if (readers or shown) and len(readers) + shown <= _MOST_LINES:
                self._add(_input_box(self.graph, value, self.inputs[value]), value)
        for index, eqn in enumerate(self.graph.eqns):
            box = self._add(self._equation(index, eqn), *eqn.outs)
            for operand in dict.fromkeys(eqn.inputs):
                self._connect(operand, box, index)
        for number, value in enumerate(self.graph.results):
            text = f"result {number}"
            state = [pair.input for pair in self.graph.state if pair.value == value]
            kind = "state" if state else "result"
            lines = [Line(text, "title"), Line(str(self.graph.type(value)))]
            lines += [Line(f"next {self.inputs[input]}", "place") for input in state]
            box = self._add(Box(kind, tuple(lines)))
            self._connect(value, box, len(self.graph.eqns))
        svg = boxes_svg(self.boxes, self.edges, self.edge_names)
        return Drawing(name, svg, self._arena(), tuple(_rows(self.graph, self.inputs)))

    def _add(self, box: Box, *values: ValueId) -> int:
        self.boxes.append(box)
        self.box_of.update((value, len(self.boxes) - 1) for value in values)
        return len(self.boxes) - 1

    def _connect(self, operand: Operand, box: int, index: int) -> None:
        if isinstance(operand, Scalar) or operand not in self.box_of:
            return
        is_far = index - self.made.get(operand, index) > _LONGEST_LINE
        if is_far and index < len(self.graph.eqns):
            return
        self.edges.append((self.box_of[operand], box))
        self.edge_names.append(f"{self._named(operand)}: {self.graph.type(operand)}")

    def _named(self, operand: Operand) -> str:
        if isinstance(operand, Scalar):
            return str(operand)
        return self.inputs.get(operand, f"%{operand}")

    def _equation(self, index: int, eqn: Eqn) -> Box:
        graph, op = self.graph, eqn.op
        operands = ", ".join(map(self._named, eqn.inputs))
        lines = [Line(f"{_title(op)}({operands})", "title")]
        inner = _inner(op, tuple(map(graph.type, eqn.inputs)))
        lines += [Line(f"  {text}") for text in inner[:_MOST_INNER]]
        if len(inner) > _MOST_INNER:
            lines.append(Line(f"  and {len(inner) - _MOST_INNER} more"))
        for out in eqn.outs:
            where = self.places.get(out)
            text = f"%{out} {graph.type(out)}{f' in {where}' if where else ''}"
            lines.append(Line(text, "place"))
        launches = self.launches[index]
        lines += [Line(_launch(node)) for node in launches[:_MOST_LAUNCHES]]
        if len(launches) > _MOST_LAUNCHES:
            lines.append(Line(f"and {len(launches) - _MOST_LAUNCHES} more launches"))
        kind = "composite" if isinstance(op, Composite) else "equation"
        if isinstance(op, ControlOp):
            kind = "control"
        elif not launches:
            kind += " view"
        tooltip = "\n".join([str(graph.source(index)), *inner, *map(str, launches)])
        return Box(kind, tuple(lines), tooltip)

    def _arena(self) -> str:
        """The arena's bytes downwards, the equations across: who holds what when."""
        spans = list(self._spans())
        size = max((where.offset + where.size for _, where, _, _ in spans), default=0)
        count = max(len(self.graph.eqns), 1)
        parts = [label(8, 14, f"arena: {size} B over {count} equations", "title")]
        if not size:
            return whole_svg(parts, _ARENA_WIDTH, 22)
        across = (_ARENA_WIDTH - _ARENA_LEFT - 16) / count
        parts.append('<g class="arena">')
        for value, where, first, last in spans:
            top = 24 + where.offset / size * _ARENA_HEIGHT
            height = max(1.0, where.size / size * _ARENA_HEIGHT)
            width = (last - first + 1) * across
            text = f"%{value} {self.graph.type(value)} in {where}"
            left = _ARENA_LEFT + first * across
            parts.append(rectangle(left, top, width, height, text))
        parts += ["</g>", label(8, 34, "0"), label(8, 24 + _ARENA_HEIGHT, f"{size} B")]
        return whole_svg(parts, _ARENA_WIDTH, 24 + _ARENA_HEIGHT + 16)

    def _spans(self) -> Iterator[tuple[ValueId, BufferRange, int, int]]:
        """What stands in the arena from which equation to which."""
        ends = len(self.graph.eqns) - 1
        shown = {output.value for output in self.graph.outputs}
        for value, maker in self.made.items():
            where = self.places.get(value)
            if where is None or where.space is not Space.ARENA:
                continue
            if not self.launches[maker]:
                continue
            last = max(self.uses.get(value, (maker,)), default=maker)
            yield value, where, maker, ends if value in shown else last


def _title(op: Op) -> str:
    return type(op).__name__ if isinstance(op, Composite | ControlOp) else op.plain_name


def _inner(op: Op, types: tuple[Any, ...]) -> list[str]:
    """The equations in a composite, or in the bodies of a loop or choice."""
    if isinstance(op, Composite):
        return list(_listed(op.decompose(*types)))
    if not isinstance(op, ControlOp):
        return []
    lines: list[str] = []
    for number, region in enumerate(op.regions):
        lines.append(f"region {number}: {len(region.eqns)} equations")
        lines += _listed(region)
    return lines


def _listed(graph: Graph) -> Iterator[str]:
    """The lines of a graph's text that are equations, regions in them left out."""
    depth = 0
    for line in print_graph(graph).splitlines()[1:]:
        if depth == 0 and line.startswith("  %"):
            yield line.strip()
        depth += line.count("{") - line.count("}")


def _launch(node: Node) -> str:
    if isinstance(node, Dispatch):
        grid = "x".join(map(str, node.grid))
        return f"{node.kernel.name} [{node.kernel.schedule}] {grid}"
    if isinstance(node, Copy):
        return f"copy of {node.source.size} B"
    return type(node).__name__.lower()


def _input_names(graph: Graph) -> tuple[Sequence[ValueId], list[str]]:
    numbers = {value: number for number, value in enumerate(graph.consts)}
    return graph.inputs, [
        f"constant {numbers[value]}"
        if value in numbers
        else described(graph.values[value]).strip() or f"%{value}"
        for value in graph.inputs
    ]


_KINDS = {
    Storage.SLOT: "slot",
    Storage.STATE: "state",
    Storage.CONST: "constant",
}


def _input_box(graph: Graph, value: ValueId, name: str) -> Box:
    meta = graph.values[value]
    lines = [Line(name, "title"), Line(str(meta.type))]
    if meta.slot is not None and meta.slot.low is not None:
        slot = meta.slot
        lines.append(Line(f"{slot.kind} {slot.low}..{slot.high}", "place"))
    elif meta.storage is Storage.STATE:
        lines.append(Line("donated", "place"))
    return Box(_KINDS.get(meta.storage, "argument"), tuple(lines))


def _rows(graph: Graph, names: dict[ValueId, str]) -> Iterator[tuple[str, str, str]]:
    for value in graph.inputs:
        meta = graph.values[value]
        yield names[value], str(meta.type), meta.storage.value
    for number, value in enumerate(graph.results):
        state = [pair.input for pair in graph.state if pair.value == value]
        where = f"in place of {names[state[0]]}" if state else "result"
        yield f"result {number}", str(graph.type(value)), where
