"""PlanContext: what a lower rule sees of the plan, and how it adds to it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import LimitError
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.shape import Broadcast
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.aliasing import aliased, overwrites
from poot.lowering.plan.frame import Frame
from poot.lowering.plan.layout import ALIGNMENT, Layout, View, padded
from poot.lowering.plan.rules import lower
from poot.lowering.program import (
    INDIRECT_SPACES,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    Node,
    Space,
)
from poot.lowering.spirv.grid import fold_grid

_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the address of a row stands that a loop moves along, and all the rows."""

    entry: BufferRange
    rows: BufferRange


class PlanContext:
    """One plan in the making: the places of values and the launches so far."""

    def __init__(
        self,
        graph: Graph,
        info: DeviceInfo,
        generic: bool = False,
        homes: Mapping[ValueId, BufferRange] | None = None,
        stored: Collection[ValueId] = (),
    ) -> None:
        self.graph = graph
        self.info = info
        # Whether kernels take sizes from metadata, so that one serves all shapes.
        self.generic = generic
        self.nodes: list[Node] = []
        # Sizes of the scratch buffers; planning places them in the arena at the end.
        self.arena: list[int] = []
        # In how many bodies of loops and branches each of them stands.
        self.arena_depths: list[int] = []
        self.depth = 0
        # Of the rows that loops move along.
        self.cursors: list[Cursor] = []
        self.label = ""
        # Of the equation that is being planned.
        self.index = 0
        self._homes = dict(homes or {})
        self._stored = frozenset(stored)
        self._places: dict[ValueId, View] = {}
        self._dense: dict[ValueId, View] = {}
        # Values that stand for views of rules which plan a region of their own.
        self._extra: list[TensorType] = []
        self._uses = graph.uses()
        self._shown = {output.value for output in graph.outputs}
        # What their buffers hold is not this graph's to end.
        self._inputs = frozenset(graph.inputs)

    def inner(self, graph: Graph, frame: Frame, *, deeper: bool) -> PlanContext:
        """A plan of a sub-graph, whose scratch is of the same arena."""
        ctx = PlanContext(graph, self.info, self.generic, frame.homes, frame.stored)
        ctx.arena, ctx.arena_depths = self.arena, self.arena_depths
        ctx.cursors = self.cursors
        ctx.depth = self.depth + deeper
        return ctx

    @contextmanager
    def body(self) -> Iterator[list[Node]]:
        """Plan within the block what is to stand in the body of a loop: these nodes."""
        around, self.nodes = self.nodes, []
        self.depth += 1
        try:
            yield self.nodes
        finally:
            self.nodes = around
            self.depth -= 1

    # --- places -------------------------------------------------------------

    def type(self, operand: Operand) -> TensorType:
        if isinstance(operand, Scalar) or operand < len(self.graph.values):
            return self.graph.type(operand)
        return self._extra[operand - len(self.graph.values)]

    def view(self, operand: Operand) -> View | Scalar:
        """Where an operand stands, strided maybe; a literal is its Scalar."""
        return operand if isinstance(operand, Scalar) else self._places[operand]

    def dense(self, operand: Operand) -> View:
        """The operand row-major from the start of a buffer, copied there if need be."""
        view = self.view(operand)
        if isinstance(view, View) and view.is_dense:
            return view
        if not isinstance(operand, Scalar) and operand in self._dense:
            return self._dense[operand]
        copy = self.scratch(self.type(operand))
        self.copy(view, copy)
        if not isinstance(operand, Scalar):
            self._dense[operand] = copy
        return copy

    def in_order(self, operand: Operand) -> View | Scalar:
        """Where an operand stands, copied where a GPU would read across its order.

        For kernels that walk the last axis; a copy by tiles costs far less.
        """
        view = self.view(operand)
        if self.info.is_cpu or isinstance(view, Scalar) or not view.crosses:
            return view
        return self.dense(operand)

    def output(self, value: ValueId) -> View:
        """The dense place that a result of the equation is to be written to."""
        place = self._places.get(value)
        if place is None:
            home = self._homes.get(value)
            if home is None:
                place = self.scratch(self.type(value))
            else:
                type = self.type(value)
                self.require_size(type)
                place = View(home, Layout.dense(type.shape), type.dtype)
            self._places[value] = place
        return place

    def place_of(self, value: ValueId) -> BufferRange | None:
        """The bytes that a value stands in; None where it needs none."""
        view = self._places.get(value)
        return None if view is None else view.touched

    def place(self, value: ValueId, view: View) -> None:
        """Record that a value stands in `view` already."""
        self._places[value] = view

    def dies(self, operand: Operand) -> bool:
        """Whether nobody reads a computed operand's buffer after this equation."""
        if isinstance(operand, Scalar):
            return False
        where = self._places[operand].range
        if where.space is not Space.ARENA:
            return False
        for value, view in self._places.items():
            if view.range == where:
                if value in self._inputs:
                    return False
                last = self._uses.get(value, [-1])[-1]
                # Other values there are views, which this equation may not read either.
                ends = self.index + (value == operand)
                if last >= ends or value in self._shown:
                    return False
        return True

    def is_stored(self, value: ValueId) -> bool:
        """Whether the value needs a buffer of its own, were it but a view."""
        return value in self._homes or value in self._stored

    def scratch(self, type: TensorType) -> View:
        """A dense buffer of the arena, live from its first to its last use."""
        self.require_size(type)
        self.arena.append(padded(type.size_bytes))
        self.arena_depths.append(self.depth)
        where = BufferRange(Space.ARENA, len(self.arena) - 1, 0, type.size_bytes)
        return View(where, Layout.dense(type.shape), type.dtype)

    def require_size(self, type: TensorType, what: str = "") -> None:
        """Raise LimitError if the device has no buffers of that size."""
        limit = min(self.info.max_allocation_bytes, self.info.max_buffer_bytes)
        if padded(type.size_bytes) > limit:
            raise LimitError(
                f"{what}{type} needs a buffer of {padded(type.size_bytes)} B; "
                f"{self.info.name} allocates at most {limit} B. Split the tensor"
            )

    # --- launches -----------------------------------------------------------

    def indirect(self, view: View) -> bool:
        """Whether a kernel gets the address of `view` from an entry."""
        return view.range.space in INDIRECT_SPACES

    def emit(
        self,
        kernel: Kernel,
        operands: Sequence[View | BufferRange],
        groups: int,
        *,
        metadata: Sequence[int] = (),
        label: str = "",
        flops: int = 0,
        reads: Sequence[BufferRange] | None = None,
        writes: Sequence[BufferRange] | None = None,
    ) -> None:
        """Launch `kernel` over `groups` workgroups.

        Without `reads` and `writes` an operand counts as touched from its first to its
        last element, out to whole 16 bytes. Of rows all that there are count.
        """
        ranges = tuple(o.range if isinstance(o, View) else o for o in operands)
        self._check_launch(kernel, ranges)
        if overwrites(kernel, ranges):
            kernel = aliased(kernel)
        touched = [o.touched if isinstance(o, View) else _whole(o) for o in operands]
        access = [operand.access for operand in kernel.operands]
        if reads is None:
            reads = [t for t, a in zip(touched, access, strict=True) if a.reads]
        if writes is None:
            writes = [t for t, a in zip(touched, access, strict=True) if a.writes]
        entries = [self.entry(where) for where in ranges if where.space is Space.ROW]
        self.nodes.append(
            Dispatch(
                kernel,
                tuple(map(self.entry, ranges)),
                fold_grid(groups, self.info.max_workgroup_count),
                tuple(metadata),
                tuple(dict.fromkeys([*map(self._whole, reads), *entries])),
                tuple(dict.fromkeys(map(self._whole, writes))),
                label or self.label,
                flops,
            )
        )

    def entry(self, where: BufferRange) -> BufferRange:
        """The range itself, or that of the entry which holds the address of a row."""
        return self.cursors[where.index].entry if where.space is Space.ROW else where

    def _whole(self, where: BufferRange) -> BufferRange:
        """The range itself, or that of all rows."""
        return self.cursors[where.index].rows if where.space is Space.ROW else where

    def row(self, rows: View, entry: BufferRange) -> View:
        """A row of dense `rows`, whose address `entry` of the arena is to hold."""
        shape = rows.shape[1:]
        size = math.prod(shape) * rows.dtype.itemsize
        self.cursors.append(Cursor(entry, self._whole(rows.touched)))
        # What addresses are a multiple of, which the offset stands for.
        offset = math.gcd(size, ALIGNMENT) % ALIGNMENT
        where = BufferRange(Space.ROW, len(self.cursors) - 1, offset, size)
        return View(where, Layout.dense(shape), rows.dtype)

    def _check_launch(self, kernel: Kernel, ranges: Sequence[BufferRange]) -> None:
        assert len(kernel.operands) == len(ranges), kernel.name
        for operand, where in zip(kernel.operands, ranges, strict=True):
            assert operand.indirect == (where.space in INDIRECT_SPACES), (
                f"{kernel.name}: operand {operand.name} in {where}"
            )
        needs = (
            ("push constants", kernel.push_bytes, self.info.max_push_bytes, "B"),
            ("shared memory", kernel.shared_bytes, self.info.max_shared_bytes, "B"),
            (
                "a workgroup",
                math.prod(kernel.workgroup),
                self.info.max_workgroup_invocations,
                "invocations",
            ),
            ("loops", kernel.loop_trips, self.info.max_loop_trips, "trips"),
        )
        for what, need, limit, unit in needs:
            if limit is not None and need > limit:
                raise LimitError(
                    f"kernel {kernel.name} needs {what} of {need} {unit}; "
                    f"{self.info.name} takes {limit}"
                )

    def copy(self, source: View | Scalar, target: View, label: str = "") -> None:
        """Write the elements of `source` to the dense `target`."""
        node = self._as_copy(source, target, label or self.label)
        if node is not None:
            self.nodes.append(node)
            return
        builder = Builder()
        if isinstance(source, Scalar):
            builder.result(*builder.emit(Broadcast(target.shape), (source,)))
            self.run(builder.finish(), [], [target])
        else:
            builder.result(builder.input(source.type))
            self.run(builder.finish(), [source], [target])

    def _as_copy(self, source: View | Scalar, target: View, label: str) -> Copy | None:
        """The node that copies, if a copy of neighbouring bytes will do."""
        if isinstance(source, Scalar) or not source.layout.is_contiguous:
            return None
        if Space.ROW in (source.range.space, target.range.space):
            return None
        size = source.layout.size * source.dtype.itemsize
        start = source.range.offset + source.layout.offset * source.dtype.itemsize
        if self.depth:
            # A kernel may have to do it, which copies whole words: buffers are padded.
            unit = math.gcd(start, target.range.offset, ALIGNMENT)
            if unit % _WORD_BYTES:
                return None
            size = -(-size // unit) * unit
        where = BufferRange(source.range.space, source.range.index, start, size)
        into = replace(target.range, size=size)
        return Copy(where, into, label)

    def run(
        self, body: Graph, operands: Sequence[View | Scalar], outs: Sequence[View]
    ) -> None:
        """Plan the pointwise region `body` from `operands` to `outs`, here and now."""
        inputs = tuple(
            o if isinstance(o, Scalar) else self._stand_in(o) for o in operands
        )
        eqn = Eqn(Fused(body), inputs, tuple(self._stand_in(out) for out in outs))
        lower[eqn.op.key](self, eqn)

    def _stand_in(self, view: View) -> ValueId:
        """A value id, beyond those of the graph, that means `view`."""
        value = ValueId(len(self.graph.values) + len(self._extra))
        self._extra.append(view.type)
        self._places[value] = view
        return value


def _whole(where: BufferRange) -> BufferRange:
    """The bytes that may be touched of a range handed over as such."""
    return BufferRange(where.space, where.index, where.offset, padded(where.size))
