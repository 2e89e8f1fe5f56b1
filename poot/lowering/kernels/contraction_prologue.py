"""The left operand of a contraction, made by a row program in each workgroup."""

from __future__ import annotations

from poot.lowering.kernels.contraction import CHUNK, Prologue
from poot.lowering.kernels.pack import lane_of
from poot.lowering.kernels.row_kernel import RowWalk
from poot.lowering.kernels.row_program import RowSchedule
from poot.lowering.spirv.builder import KernelBuilder, Shared, Size, Value
from poot.lowering.spirv.types import F32, vector

_F32_CHUNK = vector(F32, CHUNK)
# Chunks of a row that an invocation keeps in registers, and what it calculates of them.
_MOST_RESIDENT, _MOST_STEPS = 8, 256


class _Walk(RowWalk):
    """The whole workgroup walks each row in turn."""

    def __init__(self, k: KernelBuilder, prologue: Prologue) -> None:
        count = k.workgroup_count
        resident = _resident(k, prologue, count)
        schedule = RowSchedule(prologue.lanes, count, count, resident)
        super().__init__(k, prologue.program, schedule)
        self.member = k.local_index()
        self.first, self.end, self.walk = 0, self.length, self.length

    def store(self, prologue: Prologue, rows: Shared) -> None:
        """Write the row at hand to shared memory."""
        k, program = self.k, self.program
        for phase in range(program.phases):
            self.prepare(phase)
            self.reduce(phase)
        self.prepare(program.phases)
        start = k.mul(self.row, prologue.length)

        def visit(chunk: Value) -> None:
            pack = self.evaluator.value(prologue.value, self.chunk_index(chunk))
            at = k.add(start, k.mul(chunk, prologue.lanes))
            valid = [k.bool_(True) if v is None else v for v in self.valid(chunk)]
            if prologue.in_chunks:
                with k.when(valid[0]):
                    for first in range(0, prologue.lanes, CHUNK):
                        parts = [lane_of(pack, first + i) for i in range(CHUNK)]
                        there = _chunk_place(k, k.add(at, first))
                        rows.store(there, k.construct(_F32_CHUNK, *parts))
                return
            for lane, inside in enumerate(valid):
                with k.when(inside):
                    rows.store(k.add(at, lane), lane_of(pack, lane))

        self.each_chunk(visit)


def _resident(k: KernelBuilder, prologue: Prologue, team: int) -> int:
    """The chunks that an invocation keeps; 0 where it reads them in every phase.

    On a GPU they are all on their way at once, for which a loop would wait in turn.
    """
    chunks = -(-prologue.length // (prologue.lanes * team))
    steps = len(prologue.program.region.steps)
    fits = chunks <= _MOST_RESIDENT and chunks * steps <= _MOST_STEPS
    return chunks if fits and not k.info.is_cpu else 0


def _chunk_place(k: KernelBuilder, element: Size) -> Size:
    """Where the chunk of an element stands in shared memory.

    Neighbours change places in every second run of eight: lanes that read two chunks
    each find their first ones in different banks.
    """
    chunk = k.value(k.index_div(element, CHUNK))
    return k.xor(chunk, k.and_(k.shr(chunk, 3), 1))


def run_prologue(k: KernelBuilder, prologue: Prologue) -> Shared:
    """Compute all rows; they are there for the whole workgroup."""
    count = prologue.rows * prologue.length
    if prologue.in_chunks:
        rows = k.shared(_F32_CHUNK, 2 * -(-count // (2 * CHUNK)))
    else:
        rows = k.shared(F32, count)
    walk = _Walk(k, prologue)
    with k.loop(prologue.rows) as row, walk.evaluator.scope():
        walk.row = row
        walk.store(prologue, rows)
    k.barrier()
    return rows


class KeptRows:
    """Reads elements of rows that the workgroup keeps, in the split at hand."""

    vector = ""

    def __init__(
        self, k: KernelBuilder, rows: Shared, prologue: Prologue, start: Size
    ) -> None:
        self._k = k
        self._rows = rows
        self._length = prologue.length
        self._in_chunks = prologue.in_chunks
        self._start = start

    def find(self, outers: object) -> None:
        """Nothing: no place takes a division to find."""

    def element(self, outer: Size, inner: Size) -> Value:
        k, place = self._k, self._place(outer, inner)
        if not self._in_chunks:
            return self._rows.load(place)
        chunk = self._rows.load(_chunk_place(k, place))
        lane, found = k.index_rem(place, CHUNK), k.extract(chunk, 0)
        for i in range(1, CHUNK):
            here = k.eq(k.value(lane), i)
            found = k.select(here, k.extract(chunk, i), found)
        return found

    def _place(self, outer: Size, inner: Size) -> Size:
        k = self._k
        return k.add(k.mul(outer, self._length), k.add(self._start, inner))

    def along(self, outer: Size, inner: Size, count: int) -> list[Value]:
        """(outer, inner), (outer, inner + 1), …: `count` of them.

        Runs of whole chunks begin at one.
        """
        k = self._k
        if self._in_chunks and count % CHUNK == 0:
            chunks = [
                self._rows.load(_chunk_place(k, self._place(outer, k.add(inner, i))))
                for i in range(0, count, CHUNK)
            ]
            return [k.extract(chunk, i) for chunk in chunks for i in range(CHUNK)]
        return [self.element(outer, k.add(inner, i)) for i in range(count)]

    def along_inner(self, outer: Size, inner: Size) -> list[Value]:
        return self.along(outer, inner, CHUNK)

    def run(self, outer: Size, inner: Size) -> list[Value]:
        return self.along(outer, inner, CHUNK)
