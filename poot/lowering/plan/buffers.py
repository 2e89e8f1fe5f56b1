"""Lifetimes of scratch buffers, and their offsets in the one arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from poot.lowering.program import (
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Loop,
    Node,
    Space,
    While,
)

# Above this many buffers only the orders of placing that need no search are tried.
_SEARCH_LIMIT = 2000
# How often what sticks out is placed anew.
_ATTEMPTS = 24


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The nodes from the first to the last that touches a scratch buffer."""

    buffer: int
    size: int
    first: int
    last: int


class _Uses:
    """Where each scratch buffer is first and last touched in a tree of nodes.

    Nodes are numbered in the order of printing. What stands outside of a loop keeps its
    memory for all of the loop if the loop touches it, since iterations come again.
    """

    def __init__(self, depths: Sequence[int]) -> None:
        self.depths = depths
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._number = 0

    def visit(self, nodes: Sequence[Node], depth: int) -> set[int]:
        """The buffers that nodes of a depth touch."""
        touched: set[int] = set()
        for node in nodes:
            found = self._visit(node, depth)
            touched |= found
        return touched

    def _visit(self, node: Node, depth: int) -> set[int]:
        start = self._number
        self._number += 1
        if isinstance(node, Dispatch | Copy):
            ranges = [*node.reads, *node.writes]
            ranges += node.operands if isinstance(node, Dispatch) else ()
            touched = _scratch(ranges)
        else:
            touched = _scratch(_asked(node))
            for body in node.bodies:
                touched |= self.visit(body, depth + 1)
            touched = {b for b in touched if self._depth(b) <= depth}
        for buffer in touched:
            self.first.setdefault(buffer, start)
            self.first[buffer] = min(self.first[buffer], start)
            self.last[buffer] = self._number - 1
        return touched

    def _depth(self, buffer: int) -> int:
        return self.depths[buffer] if self.depths else 0


def _asked(node: Loop | While | Branch) -> tuple[BufferRange, ...]:
    """The word that decides how a node goes on."""
    if isinstance(node, While):
        return (node.flag,)
    return (node.selector,) if isinstance(node, Branch) else ()


def _scratch(ranges: Iterable[BufferRange]) -> set[int]:
    return {where.index for where in ranges if where.space is Space.ARENA}


def lifetimes(
    nodes: Sequence[Node], sizes: Sequence[int], depths: Sequence[int] = ()
) -> list[Lifetime]:
    """The lifetime of each scratch buffer that some node touches.

    `depths` says in how many bodies of loops or branches each buffer stands (none).
    """
    uses = _Uses(depths)
    uses.visit(nodes, 0)
    first, last = uses.first, uses.last
    return [Lifetime(b, sizes[b], first[b], last[b]) for b in sorted(first)]


def largest_live(spans: Sequence[Lifetime]) -> int:
    """The most bytes that are live at one node: no arena can be smaller."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + span.size
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.size
    live = peak = 0
    for node in sorted(changes):
        live += changes[node]
        peak = max(peak, live)
    return peak


def place(spans: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """An offset for each buffer such that live ones never overlap; the arena's size.

    Several orders are tried, up to the first that is as small as can be.
    """
    lowest = largest_live(spans)
    orders = [
        sorted(spans, key=lambda s: (s.first, -s.size, s.buffer)),
        sorted(spans, key=lambda s: (-s.size, s.first, s.buffer)),
        sorted(spans, key=lambda s: (s.first - s.last, -s.size, s.buffer)),
        sorted(spans, key=lambda s: (-s.size * (s.last - s.first + 1), s.buffer)),
    ]
    best = _place_in_order(orders[0])
    best_order = orders[0]
    if len(spans) > _SEARCH_LIMIT:
        return best
    for order in orders[1:]:
        found = _place_in_order(order) if best[1] > lowest else best
        if found[1] < best[1]:
            best, best_order = found, order
    return _improved(best_order, best, lowest)


def _improved(
    order: list[Lifetime], best: tuple[dict[int, int], int], lowest: int
) -> tuple[dict[int, int], int]:
    """Place first what sticks out, again and again, while this may help."""
    found = best
    for _ in range(_ATTEMPTS):
        if best[1] <= lowest:
            break
        offsets, size = found
        high = {s.buffer for s in order if offsets[s.buffer] + s.size == size}
        order = sorted(order, key=lambda s: s.buffer not in high)
        found = _place_in_order(order)
        if found[1] < best[1]:
            best = found
    return best


class _Placed:
    """Buffers that have an offset, in groups by time so that few are looked at."""

    def __init__(self, spans: Sequence[Lifetime]) -> None:
        nodes = max((span.last for span in spans), default=0) + 1
        self._width = max(1, nodes // 64)
        self._groups: dict[int, list[tuple[int, int, Lifetime]]] = {}

    def _reach(self, span: Lifetime) -> range:
        return range(span.first // self._width, span.last // self._width + 1)

    def live_with(self, span: Lifetime) -> list[tuple[int, int]]:
        """(offset, end) of the placed buffers that live when `span` does, sorted."""
        found = {
            (offset, end)
            for group in self._reach(span)
            for offset, end, other in self._groups.get(group, ())
            if other.first <= span.last and span.first <= other.last
        }
        return sorted(found)

    def add(self, offset: int, span: Lifetime) -> None:
        for group in self._reach(span):
            entry = (offset, offset + span.size, span)
            self._groups.setdefault(group, []).append(entry)


def _place_in_order(order: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """Give each buffer in turn the tightest gap that is free all its life."""
    placed = _Placed(order)
    offsets: dict[int, int] = {}
    size = 0
    for span in order:
        offset = _tightest_gap(placed.live_with(span), span.size, size)
        placed.add(offset, span)
        offsets[span.buffer] = offset
        size = max(size, offset + span.size)
    return offsets, size


def _tightest_gap(taken: Sequence[tuple[int, int]], size: int, arena: int) -> int:
    """The offset of the smallest free gap of `size` bytes; else past all that is taken.

    The room between the last taken byte and the end of the arena is a gap too.
    """
    best, best_room = -1, 0
    end = 0
    for start, stop in [*taken, (arena, arena)]:
        room = start - end
        if room >= size and (best < 0 or room < best_room):
            best, best_room = end, room
        end = max(end, stop)
    if best >= 0:
        return best
    return max((stop for _, stop in taken), default=0)


def relocate(nodes: Sequence[Node], offsets: dict[int, int]) -> tuple[Node, ...]:
    """The nodes with scratch buffers as ranges of the arena."""

    def moved(where: BufferRange) -> BufferRange:
        if where.space is not Space.ARENA:
            return where
        start = offsets[where.index] + where.offset
        return BufferRange(Space.ARENA, 0, start, where.size)

    def all_moved(ranges: Sequence[BufferRange]) -> tuple[BufferRange, ...]:
        return tuple(moved(where) for where in ranges)

    def all_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(map(one_node, nodes))

    def one_node(node: Node) -> Node:
        match node:
            case Copy():
                return Copy(moved(node.source), moved(node.target), node.label)
            case Loop():
                return Loop(node.trips, all_nodes(node.body))
            case While():
                predicate, body = all_nodes(node.predicate), all_nodes(node.body)
                return While(predicate, moved(node.flag), body)
            case Branch():
                return Branch(moved(node.selector), tuple(map(all_nodes, node.bodies)))
        return replace(
            node,
            operands=all_moved(node.operands),
            reads=all_moved(node.reads),
            writes=all_moved(node.writes),
        )

    return all_nodes(nodes)
