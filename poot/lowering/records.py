"""Records become rows of a ring in memory, which goes through the whole program.

The ring and the count of records are values that each record takes and gives on, as
carries of the loops and results of the branches that hold one. So a program writes its
records in the order of the user's statements, and passes, planner and runtime need to
know nothing of them. Both are exports, which the host reads when the call is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import (
    Eqn,
    Export,
    Operand,
    Result,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.host import Record, holds, regions
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Broadcast, Concat, Reshape
from poot.core.source import UNKNOWN, Source
from poot.core.types import ANONYMOUS, Identity, Storage, TensorType, scalar_type

# Words of a ring where more records may come than that holds; and the fewest records.
_RING_WORDS = 1 << 18
_FEWEST_ROWS = 16
_COUNT = scalar_type(dtypes.int32)
_FLAG = scalar_type(dtypes.bool_)
EXPORTS = ("records", "record count")


@dataclass(frozen=True, slots=True)
class Site:
    """One record of the program: its op, the types of its operands, its line."""

    op: Record
    types: tuple[TensorType, ...]
    source: Source

    @property
    def encodings(self) -> tuple[dtypes.DType, ...]:
        """The dtypes as which the operands stand in a row."""
        return tuple(encoding(type.dtype) for type in self.types)


@dataclass(frozen=True, slots=True)
class Ring:
    """The rows that a program writes: the number of a site, then its values' words."""

    sites: tuple[Site, ...]
    rows: int
    row_words: int

    @property
    def count_type(self) -> TensorType:
        return _COUNT

    @property
    def type(self) -> TensorType:
        return TensorType((self.rows, self.row_words), dtypes.uint32)

    def __str__(self) -> str:
        return (
            f"{len(self.sites)} records of debug.print and debug.callback go to a ring "
            f"of {self.rows} rows of {4 * self.row_words} B; each call waits for it"
        )


def with_ring(graph: Graph) -> tuple[Graph, Ring]:
    """The graph whose records go to a ring, and that ring. Wrappers must be gone."""
    sites = tuple(dict.fromkeys(_sites(graph)))
    row_words = 1 + max(sum(map(_words, site.types)) for site in sites)
    most = max(_RING_WORDS // row_words, _FEWEST_ROWS)
    rows = int(min(_count(graph), most))
    ring = Ring(sites, rows, row_words)
    return _Threading(ring).whole(graph), ring


def _site(graph: Graph, index: int) -> Site:
    eqn = graph.eqns[index]
    assert isinstance(eqn.op, Record)
    return Site(eqn.op, tuple(map(graph.type, eqn.inputs)), graph.source(index))


def _sites(graph: Graph) -> Iterator[Site]:
    for index, eqn in enumerate(graph.eqns):
        if isinstance(eqn.op, Record):
            yield _site(graph, index)
        for region in regions(eqn.op):
            yield from _sites(region)


def _count(graph: Graph) -> float:
    """How many records one run makes at most."""
    total: float = 0
    for eqn in graph.eqns:
        counts = list(map(_count, regions(eqn.op)))
        if isinstance(eqn.op, Record):
            total += 1
        elif isinstance(eqn.op, Scan):
            total += eqn.op.length * counts[0]
        elif isinstance(eqn.op, While) and any(counts):
            total = math.inf
        elif counts:
            total += max(counts)
    return total


def _words(type: TensorType) -> int:
    return type.size * max(type.dtype.itemsize // 4, 1)


class _Builder(Builder):
    """A builder that emits at one line after another."""

    line: Source = UNKNOWN

    def emit(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        source: Source = UNKNOWN,
        identity: Identity = ANONYMOUS,
    ) -> tuple[ValueId, ...]:
        return super().emit(op, operands, self.line, identity)


# The ring and the count.
_State = tuple[ValueId, ValueId]


class _Threading:
    """Rebuilds graphs so that the ring and the count go through them."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._numbers = {site: number for number, site in enumerate(ring.sites)}

    def whole(self, graph: Graph) -> Graph:
        builder = _Builder()
        builder.line = self._ring.sites[0].source
        known: dict[ValueId, ValueId] = {}
        for value in graph.inputs:
            meta = graph.values[value]
            if meta.storage is Storage.CONST:
                payload = graph.payloads.get(value)
                known[value] = builder.constant(meta.type, payload, meta.identity)
            else:
                known[value] = builder.input(
                    meta.type, meta.storage, meta.identity, meta.slot
                )
        zero = Scalar.of(0, dtypes.uint32)
        (ring,) = builder.emit(Broadcast(self._ring.type.shape), (zero,))
        step = _Step(self, builder, graph, known, (ring, _number(builder, 0)))
        step.run()
        for output in graph.outputs:
            value = known[output.value]
            match output:
                case Result():
                    builder.result(value)
                case Witness() if output.value not in step.silent:
                    builder.witness(value, output.message, output.source)
                case Export():
                    builder.export(output.name, value)
                case StateNext():
                    builder.state_next(known[output.input], value)
        for name, value in zip(EXPORTS, step.state, strict=True):
            builder.export(name, value)
        return builder.finish()

    def region(self, graph: Graph, carries: int, kept: int) -> Graph:
        """A sub-graph that takes the state after its first `carries` inputs.

        It gives it after its first `kept` results.
        """
        builder = _Builder()
        before, after = graph.inputs[:carries], graph.inputs[carries:]
        known = {v: builder.input(graph.type(v)) for v in before}
        state = builder.input(self._ring.type), builder.input(_COUNT)
        known |= {v: builder.input(graph.type(v)) for v in after}
        step = _Step(self, builder, graph, known, state)
        step.run()
        results = [known[v] for v in graph.results]
        for value in (*results[:kept], *step.state, *results[kept:]):
            builder.result(value)
        step.witness()
        return builder.finish()

    def plain(self, condition: Graph) -> Graph:
        """A condition without records, which takes the state last and leaves it."""
        builder = _Builder()
        known = {v: builder.input(condition.type(v)) for v in condition.inputs}
        state = builder.input(self._ring.type), builder.input(_COUNT)
        step = _Step(self, builder, condition, known, state)
        step.run()
        builder.result(known[condition.results[0]])
        step.witness()
        return builder.finish()

    def asking(self, op: While) -> Graph:
        """The body of a loop that asks its condition itself, for the next iteration.

        It takes all consts, the carries, the state and the last answer; it gives the
        next of these from the carries on.
        """
        first, consts = op.condition_consts, op.condition_consts + op.body_consts
        builder = _Builder()
        own = op.condition.inputs[:first]
        given = [
            builder.input(graph.type(v))
            for graph, values in ((op.condition, own), (op.body, op.body.inputs))
            for v in values
        ]
        state = builder.input(self._ring.type), builder.input(_COUNT)
        builder.input(_FLAG)
        known = dict(zip(op.body.inputs, given[first:], strict=True))
        body = _Step(self, builder, op.body, known, state)
        body.run()
        carries = [known[v] for v in op.body.results]
        asked = dict(zip(op.condition.inputs, [*given[:first], *carries], strict=True))
        condition = _Step(self, builder, op.condition, asked, body.state)
        condition.run()
        answer = asked[op.condition.results[0]]
        for value in (*carries, *condition.state, answer):
            builder.result(value)
        condition.witness()
        body.witness()
        assert len(given) == consts + len(carries)
        return builder.finish()

    def row(
        self, builder: _Builder, site: Site, operands: Sequence[Operand]
    ) -> ValueId:
        """The words of one record."""
        number = Scalar.of(self._numbers[site], dtypes.uint32)
        parts = list(builder.emit(Broadcast((1,)), (number,)))
        for operand, type in zip(operands, site.types, strict=True):
            if type.size:
                parts.append(_encoded(builder, operand, type))
        words = parts[0]
        if len(parts) > 1:
            (words,) = builder.emit(Concat(0), tuple(parts))
        (row,) = builder.emit(Reshape((1, *builder.type(words).shape)), (words,))
        return row

    @property
    def rows(self) -> int:
        return self._ring.rows


def _number(builder: _Builder, value: int) -> ValueId:
    (out,) = builder.emit(Broadcast(()), (_literal(value),))
    return out


def _literal(value: int) -> Scalar:
    return Scalar.of(value, dtypes.int32)


def _encoded(builder: _Builder, operand: Operand, type: TensorType) -> ValueId:
    """The elements as words of 32 bits, wider ones as two."""
    if isinstance(operand, Scalar):
        (operand,) = builder.emit(Broadcast(()), (operand,))
    dtype = type.dtype
    if dtype.itemsize < 8:
        wide = encoding(dtype)
        if dtype is not wide:
            (operand,) = builder.emit(Cast(wide), (operand,))
    if builder.type(operand).dtype is not dtypes.uint32:
        (operand,) = builder.emit(BitcastConvert(dtypes.uint32), (operand,))
    (flat,) = builder.emit(Reshape((_words(type),)), (operand,))
    return flat


def encoding(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of 32 bits, or 64, that holds each number of `dtype`."""
    if dtype.itemsize == 8:
        return dtype
    if dtype is dtypes.bool_ or dtype.kind is dtypes.Kind.UINT:
        return dtypes.uint32
    return dtypes.int32 if dtype.kind is dtypes.Kind.INT else dtypes.float32


class _Step:
    """Emits the equations of one graph; `state` is what the ring is by then."""

    def __init__(
        self,
        threading: _Threading,
        builder: _Builder,
        graph: Graph,
        known: dict[ValueId, ValueId],
        state: _State,
    ) -> None:
        self._threading = threading
        self._builder = builder
        self._graph = graph
        self._known = known
        self.state = state
        self.silent = silent_words(graph)

    def run(self) -> None:
        for index, eqn in enumerate(self._graph.eqns):
            self._builder.line = self._graph.source(index)
            operands = tuple(map(self._read, eqn.inputs))
            if isinstance(eqn.op, Record):
                self._record(index, operands)
                self._known[eqn.out] = _number(self._builder, 0)
            elif any(holds(region, Record) for region in regions(eqn.op)):
                assert isinstance(eqn.op, ControlOp)
                self._control(eqn, eqn.op, operands)
            else:
                outs = self._builder.emit(eqn.op, operands)
                self._known.update(zip(eqn.outs, outs, strict=True))

    def witness(self) -> None:
        """Add the witnesses of the graph that are not those of records."""
        for witness in self._graph.witnesses:
            if witness.value not in self.silent:
                word = self._known[witness.value]
                self._builder.witness(word, witness.message, witness.source)

    def words(self) -> list[ValueId]:
        """The words of these witnesses."""
        return [
            self._known[witness.value]
            for witness in self._graph.witnesses
            if witness.value not in self.silent
        ]

    def _read(self, operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else self._known[operand]

    def _record(self, index: int, operands: Sequence[Operand]) -> None:
        builder, (ring, count) = self._builder, self.state
        row = self._threading.row(builder, _site(self._graph, index), operands)
        (place,) = builder.emit(
            Binary(BinaryOp.REM), (count, _literal(self._threading.rows))
        )
        update = (ring, row, place, _literal(0))
        (ring,) = builder.emit(DynamicUpdateSlice(), update)
        (count,) = builder.emit(Binary(BinaryOp.ADD), (count, _literal(1)))
        self.state = ring, count

    # --- control flow -------------------------------------------------------

    def _control(self, eqn: Eqn, op: ControlOp, operands: tuple[Operand, ...]) -> None:
        count = len(eqn.outs) - len(op.witnesses)
        kept = op.carries if isinstance(op, Scan) else count
        asked: list[ValueId] = []
        made: ControlOp
        if isinstance(op, Scan):
            fixed = op.consts + op.carries
            body = self._threading.region(op.body, fixed, kept)
            made = Scan(body, op.length, op.consts, kept + 2, op.reverse)
            operands = (*operands[:fixed], *self.state, *operands[fixed:])
        elif isinstance(op, Cond):
            made = Cond(
                tuple(
                    self._threading.region(branch, len(branch.inputs), count)
                    for branch in op.branches
                )
            )
            operands = (*operands, *self.state)
        else:
            assert isinstance(op, While)
            if holds(op.condition, Record):
                made, operands, asked = self._asking(op, operands)
            else:
                body = self._threading.region(op.body, len(op.body.inputs), count)
                plain = self._threading.plain(op.condition)
                made = While(plain, body, op.condition_consts, op.body_consts)
                operands = (*operands, *self.state)
        outs = self._builder.emit(made, operands)
        self.state = outs[kept], outs[kept + 1]
        results = (*outs[:kept], *outs[kept + 2 : count + 2])
        self._known.update(zip(eqn.outs, results, strict=False))
        words = list(outs[len(outs) - len(made.witnesses) :])
        for number, word in enumerate(asked):
            words[number] = self._first(word, words[number])
        self._take_words(eqn.outs[count:], op, iter(words))

    def _take_words(
        self, outs: Sequence[ValueId], op: ControlOp, words: Iterator[ValueId]
    ) -> None:
        """Know the words of checks; there are none of records any more."""
        places = iter(outs)
        for region in op.regions:
            silent = silent_words(region)
            for witness in region.witnesses:
                is_silent = witness.value in silent
                word = _number(self._builder, 0) if is_silent else next(words)
                self._known[next(places)] = word

    def _asking(
        self, op: While, operands: tuple[Operand, ...]
    ) -> tuple[While, tuple[Operand, ...], list[ValueId]]:
        """A loop whose condition makes records, as one whose body asks the next time.

        It is asked a first time before; the words of that come too.
        """
        first, consts = op.condition_consts, op.condition_consts + op.body_consts
        values = [
            self._builder.emit(Broadcast(()), (operand,))[0]
            if isinstance(operand, Scalar)
            else operand
            for operand in operands
        ]
        given = [*values[:first], *values[consts:]]
        known = dict(zip(op.condition.inputs, given, strict=True))
        step = _Step(self._threading, self._builder, op.condition, known, self.state)
        step.run()
        flag = known[op.condition.results[0]]
        body = self._threading.asking(op)
        answer = _Builder()
        inputs = [answer.input(body.type(v)) for v in body.inputs[consts:]]
        answer.result(inputs[-1])
        made = While(answer.finish(), body, 0, consts)
        return made, (*values, *step.state, flag), step.words()

    def _first(self, before: ValueId, after: ValueId) -> ValueId:
        """The word of a condition that was asked once before the loop.

        In the loop it is asked one iteration ahead of its own.
        """
        builder, zero = self._builder, _literal(0)
        (fails,) = builder.emit(Compare(CompareOp.NE), (before, zero))
        (later,) = builder.emit(Compare(CompareOp.NE), (after, zero))
        (later,) = builder.emit(Cast(dtypes.int32), (later,))
        (moved,) = builder.emit(Binary(BinaryOp.ADD), (after, later))
        (word,) = builder.emit(Select(), (fails, _literal(1), moved))
        return word


def silent_words(graph: Graph) -> set[ValueId]:
    """The values that are the words of records, so always 0."""
    found: set[ValueId] = set()
    for eqn in graph.eqns:
        if isinstance(eqn.op, Record):
            found.add(eqn.out)
        elif isinstance(eqn.op, ControlOp):
            words = iter(eqn.outs[len(eqn.outs) - len(eqn.op.witnesses) :])
            for region in eqn.op.regions:
                silent = silent_words(region)
                for witness in region.witnesses:
                    word = next(words)
                    if witness.value in silent:
                        found.add(word)
    return found
