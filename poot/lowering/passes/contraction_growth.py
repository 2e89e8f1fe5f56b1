"""What of a graph can be computed where a contraction stores its result."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import (
    ContractionEpilogue,
    DenseContraction,
    GroupedDenseContraction,
)
from poot.core.ops.elementwise import Cast
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Broadcast, Reshape
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cost import CHEAP, cost
from poot.lowering.passes.driver import Reason, named
from poot.lowering.passes.units import MOST_OPERANDS
from poot.lowering.plan.blocks import needs_words
from poot.lowering.plan.layout import VIEWS
from poot.lowering.plan.state import ELEMENTWISE

# Ops that can be heads.
CONTRACTIONS: tuple[type[Op], ...] = (
    MatMul,
    DotGeneral,
    DenseContraction,
    GroupedDenseContraction,
)
# Of an epilogue: every row that a kernel stores repeats its code.
MOST_STEPS = 48
_MOST_WORK = 512
# Values of an unfinished epilogue that are read elsewhere.
_MOST_LIVE = 8


def lhs_axes(op: Op, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The contracted axes of the lhs, and its batch axes."""
    if isinstance(op, MatMul):
        return (ndim - 1,), tuple(range(ndim - 2))
    if isinstance(op, GroupedDenseContraction):
        op = op.dense
    assert isinstance(op, DotGeneral | DenseContraction)
    return op.lhs_contracting, op.lhs_batch


def rhs_axis(op: Op, ndim: int) -> int:
    """The axis of the rhs that is contracted, the last if there are several.

    Of a contraction without batches, which a grouped one has.
    """
    if isinstance(op, MatMul):
        return ndim - 2
    assert isinstance(op, DotGeneral | DenseContraction)
    return op.rhs_contracting[-1]


def rhs_columns(op: Op, ndim: int) -> int:
    """How many axes of the rhs are columns of the result."""
    if isinstance(op, MatMul | GroupedDenseContraction):
        return 1
    assert isinstance(op, DotGeneral | DenseContraction)
    return ndim - len(op.rhs_contracting) - len(op.rhs_batch)


@dataclass(slots=True)
class Uses:
    """Who makes and reads the values of a graph, and what epilogues have taken."""

    graph: Graph
    info: DeviceInfo
    makers: dict[ValueId, int] = field(init=False)
    users: dict[ValueId, list[int]] = field(init=False)
    kept: frozenset[ValueId] = field(init=False)
    taken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.makers = self.graph.definitions()
        self.users = self.graph.uses()
        self.kept = frozenset(output.value for output in self.graph.outputs)

    def is_contraction(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        return (
            isinstance(eqn.op, CONTRACTIONS)
            and not any(isinstance(operand, Scalar) for operand in eqn.inputs)
            and self.graph.type(eqn.out).size > 0
        )

    def other_reader(self, value: ValueId, index: int) -> ValueId | None:
        """A value, or what it is a view of, that not only equation `index` reads."""
        while True:
            if value in self.kept or self.users[value] != [index]:
                return value
            maker = self.makers.get(value)
            if maker is None or not isinstance(self.graph.eqns[maker].op, VIEWS):
                return None
            (operand,) = self.graph.eqns[maker].inputs
            if isinstance(operand, Scalar):
                return None
            value, index = operand, maker


@dataclass(frozen=True, slots=True)
class Stop:
    """Why growth ended: the equation that did not join, and what it is about."""

    index: int
    reason: Reason
    detail: str


@dataclass(slots=True)
class Site:
    """Heads with what is computed of their results: one composite in the making."""

    heads: list[int]
    # Equations of the epilogue, in order.
    members: list[int]
    results: list[ValueId]


class Growth:
    """Grows from the results of heads along equations that keep the order of elements.

    Those are elementwise on what is made of the heads, or reshapes. Of a lone head one
    rope may turn pairs of columns, and the block of an update may be made. What is
    found ends in one value, which is all that is read outside.
    """

    def __init__(self, uses: Uses, heads: list[int]) -> None:
        self.uses = uses
        self.graph = uses.graph
        self.heads = heads
        outs = [self.graph.eqns[head].out for head in heads]
        self.stop: Stop | None = None
        # Last axes of what is made of the heads, and over what columns rope reaches.
        self._widths = {self.graph.type(out).shape[-1:] for out in outs}
        self._period: int | None = None
        self._members: list[int] = []
        self._extras: set[ValueId] = set()
        self._work = 0
        # Values of the region that equations outside read, or that are outputs, by
        # how many of these there are.
        self._live: dict[ValueId, int] = {}
        self._queue: list[int] = []
        self._seen: set[int] = set()
        for out in outs:
            self._note(out)

    def grow(self) -> Site | None:
        """The largest epilogue; None if there is none, and `stop` says why."""
        found: Site | None = None
        while self._queue:
            index = heapq.heappop(self._queue)
            self.stop = self._refusal(index)
            if self.stop is not None:
                break
            self._join(index)
            if len(self._live) == 1 and not self._is_idle(index):
                (result,) = self._live
                found = Site(self.heads, list(self._members), [result])
        if found is None:
            self.stop = self._dead_end()
        return found

    def _dead_end(self) -> Stop:
        """Why nothing was found, though some equations may have joined."""
        live = tuple(self._live)
        if self._members and len(live) == 1 and self._widens(self._members[-1]):
            (narrow,) = values_of(self.graph.eqns[self._members[-1]])
            return self._stop(self._members[-1], Reason.WIDENS, (narrow, *live))
        last = self._members[-1] if self._members else self.heads[-1]
        return self.stop or self._stop(last, Reason.KEPT, live)

    def _stop(
        self, index: int, reason: Reason, values: Iterable[ValueId], limit: str = ""
    ) -> Stop:
        detail = named(self.graph, *values)
        return Stop(index, reason, f"{detail}; {limit}" if limit else detail)

    def _is_idle(self, index: int) -> bool:
        """Whether what an equation gives had better be made where it is read."""
        return isinstance(self.graph.eqns[index].op, Reshape) or self._widens(index)

    def _note(self, out: ValueId, last: bool = False) -> None:
        """Add a value of the region, with those who read it unless it is the `last`."""
        readers = self.uses.users.get(out, [])
        count = len(readers) + (out in self.uses.kept)
        if count:
            self._live[out] = count
        for reader in () if last else readers:
            if reader not in self._seen:
                self._seen.add(reader)
                heapq.heappush(self._queue, reader)

    def _refusal(self, index: int) -> Stop | None:
        eqn = self.graph.eqns[index]
        read = tuple(v for v in values_of(eqn) if v in self._live)
        if len(self._live) > _MOST_LIVE:
            limit = f"{len(self._live)} values, takes {_MOST_LIVE}"
            return self._stop(index, Reason.SEVERAL_READERS, self._live, limit)
        misfit = self._misfit(index, eqn, read)
        if misfit is not None:
            return misfit
        if index in self.uses.taken:
            return self._stop(index, Reason.TAKEN, read)
        extras = self._extras | {v for v in values_of(eqn) if v not in self._live}
        operands = len(extras) + 2 * len(self.heads) + 2
        if operands > MOST_OPERANDS:
            limit = f"{operands} with heads and results, takes {MOST_OPERANDS}"
            return self._stop(index, Reason.OPERAND_LIMIT, sorted(extras), limit)
        work = self._work + cost(eqn.op)
        steps = len(self._members) + 1
        if steps > MOST_STEPS or work > _MOST_WORK:
            limit = f"{steps} equations that cost {work}, takes {MOST_STEPS} and "
            return self._stop(index, Reason.SIZE_LIMIT, read, f"{limit}{_MOST_WORK}")
        return None

    def _misfit(self, index: int, eqn: Eqn, read: tuple[ValueId, ...]) -> Stop | None:
        """Why an equation cannot be part of an epilogue, by its op and shapes."""
        match eqn.op:
            case Reshape():
                return None
            case Rope():
                return self._misfit_turn(index, eqn, read)
            case DynamicUpdateSlice():
                return self._misfit_update(index, eqn, read)
        if not isinstance(eqn.op, ELEMENTWISE) or isinstance(eqn.op, Threefry2x32):
            return self._stop(index, Reason.BOUNDARY, (*read, *eqn.outs))
        shape = self.graph.type(eqn.out).shape
        is_whole = all(self.graph.type(value).shape == shape for value in read)
        if is_whole and self._holds_heads(shape):
            return None
        return self._changed_shape(index, (*read, eqn.out))

    def _changed_shape(self, index: int, values: Iterable[ValueId]) -> Stop:
        limit = "" if self._period is None else f"heads of {self._period} columns"
        return self._stop(index, Reason.CHANGED_SHAPE, values, limit)

    def _holds_heads(self, shape: tuple[int, ...]) -> bool:
        """Whether a last axis holds whole heads, if rope reaches over their columns."""
        return self._period is None or _divides(self._period, shape[-1:])

    def _misfit_turn(
        self, index: int, eqn: Eqn, read: tuple[ValueId, ...]
    ) -> Stop | None:
        """Why rope cannot turn columns where they are computed."""
        head, period = (
            self.graph.eqns[self.heads[0]],
            self.graph.type(eqn.out).shape[-1],
        )
        x, *angles = eqn.inputs
        is_first = len(self.heads) == 1 and self._period is None
        if not is_first or read != (x,) or x in angles:
            return self._stop(index, Reason.BOUNDARY, (*read, eqn.out))
        has_columns = rhs_columns(head.op, self.graph.type(head.inputs[1]).ndim) > 0
        if not has_columns or not all(_divides(period, each) for each in self._widths):
            limit = (
                f"heads of {period} columns in those of {named(self.graph, head.out)}"
            )
            values = (*read, eqn.out)
            return self._stop(index, Reason.CHANGED_SHAPE, values, limit)
        if needs_words(self.graph.type(head.out).dtype, self.uses.info):
            return self._stop(index, Reason.PART_OF_WORD, (*read, head.out))
        return None

    def _misfit_update(
        self, index: int, eqn: Eqn, read: tuple[ValueId, ...]
    ) -> Stop | None:
        """Why an update cannot be made of a block where that is computed."""
        target, block, *_ = eqn.inputs
        if len(self.heads) > 1 or read != (block,) or isinstance(target, Scalar):
            return self._stop(index, Reason.BOUNDARY, (*read, eqn.out))
        type, shape = self.graph.type(target), self.graph.type(block).shape
        if type.shape == shape or not self._holds_heads(shape):
            return self._changed_shape(index, (*read, eqn.out))
        if needs_words(type.dtype, self.uses.info):
            return self._stop(index, Reason.PART_OF_WORD, (*read, target))
        other = self.uses.other_reader(target, index)
        if other is None:
            return None
        return self._stop(index, Reason.OVERWRITTEN, (other, eqn.out))

    def _join(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        self._members.append(index)
        self._work += cost(eqn.op)
        for value in values_of(eqn):
            if value not in self._live:
                self._extras.add(value)
                continue
            self._live[value] -= 1
            if not self._live[value]:
                del self._live[value]
        is_update = isinstance(eqn.op, DynamicUpdateSlice)
        if isinstance(eqn.op, Rope):
            self._period = self.graph.type(eqn.out).shape[-1]
        elif isinstance(eqn.op, ELEMENTWISE):
            self._widths.add(self.graph.type(eqn.out).shape[-1:])
        # Nothing follows an update: what it gives is of another size.
        self._note(eqn.out, last=is_update)

    def _widens(self, index: int) -> bool:
        """Whether a value would be stored only as a wider copy of what it is."""
        eqn = self.graph.eqns[index]
        if not isinstance(eqn.op, Cast) or isinstance(eqn.inputs[0], Scalar):
            return False
        if eqn.out in self.uses.kept:
            return False
        given = self.graph.type(eqn.inputs[0]).dtype
        return self.graph.type(eqn.out).dtype.itemsize > given.itemsize


def _divides(period: int, last: tuple[int, ...]) -> bool:
    return bool(last) and last[0] % period == 0


def values_of(eqn: Eqn) -> list[ValueId]:
    """The values that an equation reads, once each."""
    return list(dict.fromkeys(o for o in eqn.inputs if not isinstance(o, Scalar)))


def absorb_sources(uses: Uses, site: Site) -> list[int]:
    """Take in what makes extras for this epilogue alone, at no further cost.

    That is elementwise, and of the heads' size or cheap. The equations are returned.
    """
    graph = uses.graph
    members = set(site.members)
    size = graph.type(graph.eqns[site.heads[0]].out).size
    heads = set(site.heads)
    absorbed = []
    queue = [-i for i in sorted(members, reverse=True)]
    while queue and len(members) < MOST_STEPS:
        eqn = graph.eqns[-heapq.heappop(queue)]
        is_update = isinstance(eqn.op, DynamicUpdateSlice)
        for value in values_of(eqn):
            if is_update and value == eqn.inputs[0]:
                # It is written over where it stands, not computed.
                continue
            maker = uses.makers.get(value)
            if maker is None or maker in members or maker in heads:
                continue
            if not _is_private(uses, maker, members) or maker in uses.taken:
                continue
            made = graph.eqns[maker]
            whole = graph.type(made.out).size == size
            if whole or cost(made.op) <= CHEAP:
                members.add(maker)
                absorbed.append(maker)
                heapq.heappush(queue, -maker)
    site.members = sorted(members)
    return absorbed


def _is_private(uses: Uses, maker: int, members: set[int]) -> bool:
    eqn = uses.graph.eqns[maker]
    if not isinstance(eqn.op, (*ELEMENTWISE, Broadcast)) or len(eqn.outs) > 1:
        return False
    if any(v in uses.kept for v in eqn.outs) or not uses.graph.type(eqn.out).size:
        return False
    return all(user in members for user in uses.users.get(eqn.out, ()))


def body_of(graph: Graph, site: Site) -> tuple[Graph, list[ValueId]]:
    """The epilogue as a graph of the heads' results and of extras, and the latter."""
    members = [graph.eqns[index] for index in site.members]
    outs = [graph.eqns[head].out for head in site.heads]
    made = {*outs, *(out for eqn in members for out in eqn.outs)}
    read = (value for eqn in members for value in values_of(eqn))
    extras = [value for value in dict.fromkeys(read) if value not in made]
    builder = Builder(composites=True)
    known = {value: builder.input(graph.type(value)) for value in (*outs, *extras)}

    def inner(operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else known[operand]

    for index, eqn in zip(site.members, members, strict=True):
        inputs = tuple(map(inner, eqn.inputs))
        made_here = builder.emit(eqn.op, inputs, graph.source(index))
        known.update(zip(eqn.outs, made_here, strict=True))
    for result in site.results:
        builder.result(known[result])
    return builder.finish(), extras


def emit_sites(graph: Graph, sites: list[Site]) -> Graph:
    """The graph with a composite in place of each site."""
    if not sites:
        return graph
    edit = graph.edit()
    for site in sites:
        heads = [graph.eqns[head] for head in site.heads]
        body, extras = body_of(graph, site)
        op = ContractionEpilogue(tuple(head.op for head in heads), body)
        operands = (heads[0].inputs[0], *(head.inputs[1] for head in heads), *extras)
        assert not any(isinstance(operand, Scalar) for operand in operands)
        last = max(site.members)
        outs = edit.emit(op, operands, last, graph.source(last))
        for old, new in zip(site.results, outs, strict=True):
            edit.replace(old, new)
        for index in (*site.heads, *site.members):
            edit.remove(index)
    return edit.commit()
