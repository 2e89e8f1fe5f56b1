"""Attention whose invocations have keys of their own: for few queries.

Each invocation walks over keys a subgroup apart, for all rows at once, so that rows
which share a key head share its loads. In the end the invocations put together what
they have; where several workgroups share the keys of a row, another launch does.
"""

from __future__ import annotations

from poot.core import dtypes
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_frame import AttentionFrame
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
)
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.reducers import Team, reduce_team, reducer
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Pointer, Size, Value, Variable
from poot.lowering.spirv.types import F32, U32

# What a split leaves beside the sums of values: its largest score, its sum of powers.
EXTRA_PARTS = 2


@kernel_cache
def attention_keys_kernel(
    info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
) -> Kernel:
    """Operands: the extras, q, k, v, the result.

    With several splits the result is f32 [rows of all batches, splits, E + 2].
    """
    return KeysKernel(info, program, schedule).build()


class KeysKernel(AttentionFrame):
    """One kernel under construction."""

    name = "attention_keys"

    def __init__(
        self, info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
    ) -> None:
        super().__init__(self.name, info, program, schedule)
        self.team = Team(schedule.workgroup, schedule.workgroup)
        self.split: Size = 0

    def build(self) -> Kernel:
        k, program, schedule = self.k, self.program, self.schedule
        blocks = -(-program.row_count // schedule.rows)
        tasks = program.batches * blocks * schedule.splits
        number = k.workgroup_index()
        with k.when(k.lt(number, tasks)):
            self.split = k.index_rem(number, schedule.splits)
            task = k.index_div(number, schedule.splits)
            self.batch = k.index_div(task, blocks)
            self._attend(k.mul(k.index_rem(task, blocks), schedule.rows))
        return k.finish(str(schedule))

    def _attend(self, first: Size) -> None:
        k, program = self.k, self.program
        mine = [k.add(first, number) for number in range(self.schedule.rows)]
        last = program.row_count - 1
        self.rows = [k.min(row, last) for row in mine]
        queries = self.queries(self.rows)
        softmax = [self.start() for _ in self.rows]
        sums = [self.zeros() for _ in self.rows]
        self._walk(queries, softmax, sums)
        self._together(mine, softmax, sums)

    def _head(
        self, pointer: Pointer, stand: Stand, at: Size, features: int
    ) -> list[Value]:
        found: list[Value] = []
        for number in range(-(-features // CHUNK)):
            count = min(CHUNK, features - number * CHUNK)
            found += self.chunk(pointer, stand, at, number, count)
        return found

    # --- keys ---------------------------------------------------------------

    def _walk(
        self,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        """Take the keys seen, of these a share; then, if they count, all others."""
        k, program, keys = self.k, self.program, self.program.keys
        first, end = self._seen_keys()
        start, stop = self._share_of_keys()
        if program.rounds == 1:
            self._loop(start, stop, queries, softmax, sums)
            return
        starts, stops = k.variable(U32, start), k.variable(U32, stop)
        with k.loop(program.rounds) as number, self.evaluator.scope():
            self._loop(starts.load(), stops.load(), queries, softmax, sums)
            k.break_if(k.logical_not(self._others_count(softmax)))
            is_first = k.eq(number, 0)
            starts.store(k.select(is_first, end, k.u32(0)))
            stops.store(k.select(is_first, k.u32(keys), first))
            self._fetch(starts.load())

    def _seen_keys(self) -> tuple[Value, Value]:
        """The first key that some row sees, and one past the last."""
        return self.as_places(*self.ranges(self.rows))

    def _share_of_keys(self) -> tuple[Value, Value]:
        """Those of them that are this split's."""
        k, splits = self.k, self.schedule.splits
        first, end = self._seen_keys()
        share = k.ceil_div(k.sub(end, first), splits)
        start = k.min(k.add(first, k.mul(self.split, share)), end)
        return start, k.min(k.add(start, share), end)

    def _fetch(self, first: Size) -> None:
        """Ask for what `_loop` takes first. Here it asks itself, for one key a time."""

    def _others_count(self, softmax: list[tuple[Variable, Variable]]) -> Value:
        """Whether keys that rows do not see have a share: asked of the first split.

        If its own keys outweigh them, then so do those of all splits.
        """
        k = self.k
        found = k.bool_(False)
        for peak, _ in softmax:
            found = k.logical_or(found, self.hidden_counts(self._largest(peak)))
        return k.logical_and(found, k.lt(k.value(self.split), 1))

    def _largest(self, peak: Variable) -> Value:
        k = self.k
        kind = reducer(Reduce(ReduceOp.MAX, 0), dtypes.float32)
        carriers = kind.lift(k, peak.load(), k.u32(0))
        return kind.finish(k, reduce_team(k, self.team, kind, carriers))

    def _loop(
        self,
        start: Value,
        stop: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        k, keys, size = self.k, self.program.keys, self.schedule.workgroup
        stop = k.assume_below(k.min(stop, keys), keys + 1)
        mine = k.add(start, k.local_index())
        most = -(-keys // size)
        with (
            k.loop(stop, start=mine, step=size, max_trips=most) as key,
            self.evaluator.scope(),
        ):
            self._key(key, queries, softmax, sums)

    def _key(
        self,
        key: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        k, program = self.k, self.program
        own = self._of_key(self.keys, program.k, key, program.features)
        weights = []
        for row, query, (peak, total) in zip(self.rows, queries, softmax, strict=True):
            product = k.const(F32, 0)
            for a, b in zip(query, own, strict=False):
                product = self.multiply_add(a.load(), b, product)
            scores = self.scores(row, key, (product,))
            powers, shrink = self.powers(peak, total, scores)
            weights.append((powers[0], shrink))
        values = self._of_key(self.values, program.v, key, program.values)
        for (weight, shrink), row_sums in zip(weights, sums, strict=True):
            for sum, value in zip(row_sums, values, strict=False):
                shrunk = k.mul(sum.load(), shrink)
                sum.store(self.multiply_add(weight, value, shrunk))

    def _of_key(
        self, pointer: Pointer, stand: Stand, key: Value, features: int
    ) -> list[Value]:
        at = self.k.add(self.base(stand), self.k.mul(key, stand.strides[-2]))
        return self._head(pointer, stand, at, features)

    # --- results ------------------------------------------------------------

    def _together(
        self,
        rows: list[Size],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        """Put together and write what all invocations have of each row."""
        k, is_split = self.k, self.schedule.splits > 1
        kind = reducer(Reduce(ReduceOp.SUM, 0), dtypes.float32)
        ends = []
        for (peak, total), own in zip(softmax, sums, strict=True):
            largest = self._largest(peak)
            shrink = self.exp(k.sub(peak.load(), self.finite(largest)))
            mine = k.mul(total.load(), shrink)
            (whole,) = reduce_team(k, self.team, kind, (mine,))
            factor = shrink if is_split else self.divide(shrink, whole)
            for sum in own:
                sum.store(k.mul(sum.load(), factor))
            ends.append((largest, whole))
        # A chunk a round, moving the others up: sums and stores are much code.
        flat = [sum for own in sums for sum in own]
        chunks = self.chunk_count(self.program.values)
        with k.loop(len(flat) // CHUNK) as number:
            row = k.add(rows[0], k.index_div(number, chunks))
            first = k.mul(k.index_rem(number, chunks), CHUNK)
            found = [
                reduce_team(k, self.team, kind, (sum.load(),))[0]
                for sum in flat[:CHUNK]
            ]
            self._store(row, first, found, self.program.values)
            for into, sum in zip(flat, flat[CHUNK:], strict=False):
                into.store(sum.load())
        if is_split:
            for at, (largest, whole) in zip(rows, ends, strict=True):
                values = self.program.values
                self._store(at, values, [largest, whole], values + EXTRA_PARTS)

    def _store(self, row: Size, first: Size, found: list[Value], end: int) -> None:
        """Write elements of a row from `first` on, those before `end`."""
        k, program, target = self.k, self.program, self.program.target
        if self.schedule.splits > 1:
            width = program.values + EXTRA_PARTS
            number = k.add(k.mul(self.batch, program.row_count), row)
            number = k.add(k.mul(number, self.schedule.splits), self.split)
            at, step = k.mul(number, width), 1
        else:
            at, step = self.row_base(target, row), target.strides[-1]
        is_mine = k.logical_and(
            k.lt(k.local_index(), 1), k.lt(k.value(row), program.row_count)
        )
        with k.when(is_mine):
            for lane, value in enumerate(found):
                place = k.add(first, lane)
                with k.when(k.lt(k.value(place), end)):
                    index = k.value(k.add(at, k.mul(place, step)))
                    dtype, bound = target.dtype, target.bound
                    store_element(k, self.target, dtype, index, value, bound)
