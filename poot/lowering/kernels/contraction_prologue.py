"""The left operand of a contraction, made by a row program in each workgroup."""

from __future__ import annotations

from poot.lowering.kernels.contraction import CHUNK, Prologue
from poot.lowering.kernels.pack import lane_of
from poot.lowering.kernels.row_kernel import RowWalk
from poot.lowering.kernels.row_program import RowSchedule
from poot.lowering.spirv.builder import KernelBuilder, Shared, Size, Value
from poot.lowering.spirv.types import F32


class _Walk(RowWalk):
    """The whole workgroup walks each row in turn."""

    def __init__(self, k: KernelBuilder, prologue: Prologue) -> None:
        count = k.workgroup_count
        schedule = RowSchedule(prologue.lanes, count, count)
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
            for lane, inside in enumerate(self.valid(chunk)):
                with k.when(k.bool_(True) if inside is None else inside):
                    rows.store(k.add(at, lane), lane_of(pack, lane))

        self.each_chunk(visit)


def run_prologue(k: KernelBuilder, prologue: Prologue) -> Shared:
    """Compute all rows; they are there for the whole workgroup."""
    rows = k.shared(F32, prologue.rows * prologue.length)
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
        self._start = start

    def find(self, outers: object) -> None:
        """Nothing: no place takes a division to find."""

    def element(self, outer: Size, inner: Size) -> Value:
        k = self._k
        place = k.add(self._start, inner)
        return self._rows.load(k.add(k.mul(outer, self._length), place))

    def along(self, outer: Size, inner: Size, count: int) -> list[Value]:
        """(outer, inner), (outer, inner + 1), …: `count` of them."""
        k = self._k
        return [self.element(outer, k.add(inner, i)) for i in range(count)]

    def along_inner(self, outer: Size, inner: Size) -> list[Value]:
        return self.along(outer, inner, CHUNK)

    def run(self, outer: Size, inner: Size) -> list[Value]:
        return self.along(outer, inner, CHUNK)
