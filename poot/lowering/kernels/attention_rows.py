"""Attention whose invocations have rows of their own: for many queries.

A row's query and the weighted sum of values stay with its invocation, or are dealt out
by features to a few of them. Keys and values come by tiles. On a CPU device, where
loads cost by the lane, each lane loads one key of a tile and hands it to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_frame import AttentionFrame
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
)
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK
from poot.lowering.kernels.elements import store_element, store_run
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Pointer, Size, Value, Variable
from poot.lowering.spirv.types import F32, U32


@kernel_cache
def attention_rows_kernel(
    info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
) -> Kernel:
    """Operands: the extras, q, k, v, the result."""
    return _RowsKernel(info, program, schedule).build()


class _RowsKernel(AttentionFrame):
    """One kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
    ) -> None:
        super().__init__("attention_rows", info, program, schedule)
        self.width = info.subgroup_size
        self.shuffles = info.subgroup_shuffle

    def build(self) -> Kernel:
        k, program, schedule = self.k, self.program, self.schedule
        tiles = -(-program.row_count // schedule.rows_each)
        number = k.workgroup_index()
        with k.when(k.lt(number, program.batches * tiles)):
            self.batch = k.index_div(number, tiles)
            first = k.mul(k.index_rem(number, tiles), schedule.rows_each)
            self._attend(first)
        return k.finish(str(schedule))

    def _attend(self, first: Size) -> None:
        k, program, schedule = self.k, self.program, self.schedule
        lane = k.local_index()
        self.part = k.index_rem(lane, schedule.parts)
        slot = k.add(first, k.index_div(lane, schedule.parts))
        step = self.width // schedule.parts
        mine: list[Size] = [
            k.add(slot, number * step) for number in range(schedule.rows)
        ]
        self.rows = [k.min(row, program.row_count - 1) for row in mine]
        queries = self.queries(self.rows)
        softmax = [self.start() for _ in self.rows]
        sums = [self.zeros() for _ in self.rows]
        for at in self._tiles(softmax):
            self._tile(at, queries, softmax, sums)
        self._store(mine, [total.load() for _, total in softmax], sums)

    def _own_chunks(self, features: int) -> list[tuple[Size, int]]:
        """Number and size of the chunks of this invocation."""
        k, parts = self.k, self.schedule.parts
        chunks = -(-features // CHUNK)
        return [
            (k.add(number, self.part), min(CHUNK, features - number * CHUNK))
            for number in range(0, chunks, parts)
        ]

    # --- keys ---------------------------------------------------------------

    def _range(self) -> tuple[Value, Value]:
        """The whole tiles that hold keys which some row of the subgroup sees."""
        k, keys, tile = self.k, self.program.keys, self.schedule.tile
        first, end = self.ranges(self.rows)
        if self.program.visible is not None and self.shuffles:
            step = 1
            while step < self.width:
                first = k.min(first, k.subgroup_shuffle_xor(first, step))
                end = k.max(end, k.subgroup_shuffle_xor(end, step))
                step *= 2
        first, end = self.as_places(first, end)
        first = k.mul(k.index_div(first, tile), tile)
        end = k.min(k.mul(k.ceil_div(end, tile), tile), keys)
        return first, k.assume_below(end, keys + 1)

    def _tiles(self, softmax: list[tuple[Variable, Variable]]) -> Iterator[Value]:
        """Walk over the tiles seen; over all others too where these count."""
        k, program, tile = self.k, self.program, self.schedule.tile
        keys = program.keys
        first, end = self._range()
        most = -(-keys // tile)
        if program.rounds == 1:
            with self._loop(first, end, most) as at:
                yield at
            return
        start, stop = k.variable(U32, first), k.variable(U32, end)
        with k.loop(program.rounds) as number, self.evaluator.scope():
            bound = k.assume_below(k.min(stop.load(), keys), keys + 1)
            with self._loop(start.load(), bound, most) as at:
                yield at
            k.break_if(k.logical_not(self._others_count(softmax)))
            is_first = k.eq(number, 0)
            start.store(k.select(is_first, end, k.u32(0)))
            stop.store(k.select(is_first, k.u32(keys), first))

    @contextmanager
    def _loop(self, first: Value, end: Value, most: int) -> Iterator[Value]:
        tile = self.schedule.tile
        with (
            self.k.loop(end, start=first, step=tile, max_trips=most) as at,
            self.evaluator.scope(),
        ):
            yield self.coordinates.note_multiple(at, tile)

    def _others_count(self, softmax: list[tuple[Variable, Variable]]) -> Value:
        """Whether some row of the subgroup gives keys a share that it does not see."""
        k = self.k
        found = self.hidden_counts(softmax[0][0].load())
        for peak, _ in softmax[1:]:
            found = k.logical_or(found, self.hidden_counts(peak.load()))
        if not self.shuffles:
            return found
        word = k.convert(found, U32)
        step = 1
        while step < self.width:
            word = k.or_(word, k.subgroup_shuffle_xor(word, step))
            step *= 2
        return k.ne(word, 0)

    # --- one tile -----------------------------------------------------------

    def _tile(
        self,
        at: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        k, program, tile = self.k, self.program, self.schedule.tile
        is_whole = program.keys % tile == 0
        inside = [
            None if is_whole else k.lt(k.add(at, t), program.keys) for t in range(tile)
        ]
        products = self._products(at, queries)
        weights: list[list[Value]] = []
        shrinks: list[Value] = []
        least = k.const(F32, float("-inf"))
        for number, row in enumerate(self.rows):
            scores = self.scores(row, at, tuple(products[number]))
            scores = [
                score if there is None else k.select(there, score, least)
                for score, there in zip(scores, inside, strict=True)
            ]
            peak, total = softmax[number]
            powers, shrink = self.powers(peak, total, scores)
            weights.append(powers)
            shrinks.append(shrink)
        self._weigh(at, weights, shrinks, sums)

    def _products(self, at: Value, queries: list[list[Variable]]) -> list[list[Value]]:
        k, program, tile = self.k, self.program, self.schedule.tile
        totals = [[k.const(F32, 0)] * tile for _ in queries]
        place = 0
        for chunk, count in self._own_chunks(program.features):
            for t, key in enumerate(
                self._fetch(self.keys, program.k, at, chunk, count)
            ):
                for row, own in enumerate(queries):
                    for lane in range(count):
                        totals[row][t] = self.multiply_add(
                            own[place + lane].load(), key[lane], totals[row][t]
                        )
            place += count
        step = 1
        while step < self.schedule.parts:
            totals = [
                [k.add(x, k.subgroup_shuffle_xor(x, step)) for x in row]
                for row in totals
            ]
            step *= 2
        return totals

    def _fetch(
        self, pointer: Pointer, stand: Stand, at: Value, chunk: Size, count: int
    ) -> Iterator[list[Value]]:
        """A chunk of each key of the tile in turn; those past the end give 0."""
        k, keys, tile = self.k, self.program.keys, self.schedule.tile
        step = stand.strides[-2]
        base = self.base(stand)

        def of(key: Size) -> list[Value]:
            place = k.add(base, k.mul(k.min(key, keys - 1), step))
            found = self.chunk(pointer, stand, place, chunk, count)
            if keys % tile == 0:
                return found
            there, zero = k.lt(k.value(key), keys), k.const(F32, 0)
            return [k.select(there, value, zero) for value in found]

        if not self.schedule.handed:
            for t in range(tile):
                yield of(k.add(at, t))
            return
        own = of(k.add(at, k.subgroup_lane()))
        for t in range(tile):
            yield [k.subgroup_shuffle(value, t) for value in own]

    def _weigh(
        self,
        at: Value,
        weights: list[list[Value]],
        shrinks: list[Value],
        sums: list[list[Variable]],
    ) -> None:
        """Add the values of a tile, weighted, to what is summed so far."""
        k, program = self.k, self.program
        place = 0
        for chunk, count in self._own_chunks(program.values):
            values = list(self._fetch(self.values, program.v, at, chunk, count))
            for row, own in enumerate(sums):
                for lane in range(count):
                    sum = own[place + lane]
                    total = k.mul(sum.load(), shrinks[row])
                    for weight, value in zip(weights[row], values, strict=True):
                        total = self.multiply_add(weight, value[lane], total)
                    sum.store(total)
            place += count

    # --- results ------------------------------------------------------------

    def _store(
        self, rows: list[Size], totals: list[Value], sums: list[list[Variable]]
    ) -> None:
        """Write all rows, a chunk of each a round, moving the others up."""
        k, program, target = self.k, self.program, self.program.target
        values, step = program.values, target.strides[-1]
        bases = [self.row_base(target, row) for row in self.rows]
        with k.loop(self.chunk_count(values)) as number:
            chunk = k.add(k.mul(number, self.schedule.parts), self.part)
            first = k.mul(chunk, CHUNK)
            for row, base, total, own in zip(rows, bases, totals, sums, strict=True):
                means = [self.divide(sum.load(), total) for sum in own[:CHUNK]]
                at = k.add(base, k.mul(first, step))
                with k.when(k.lt(k.value(row), program.row_count)):
                    self._store_chunk(at, first, means)
                for into, sum in zip(own, own[CHUNK:], strict=False):
                    into.store(sum.load())

    def _store_chunk(self, at: Size, first: Size, means: list[Value]) -> None:
        k, target, values = self.k, self.program.target, self.program.values
        dtype, bound = target.dtype, target.bound
        if target.runs and values % CHUNK == 0:
            store_run(k, self.target, dtype, k.value(at), means, bound)
            return
        for lane, mean in enumerate(means):
            index = k.value(k.add(at, lane * target.strides[-1]))
            with k.when(k.lt(k.value(k.add(first, lane)), values)):
                store_element(k, self.target, dtype, index, mean, bound)
