"""Attention for few queries on GPUs: a team of lanes has a key at a time.

The lanes of a team share the features of a key and of its value, 16 bytes a lane, so
that neighbouring lanes load neighbouring bytes; all rows use what is loaded. Several
keys are on their way at once. In the end the subgroups put together what they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_keys import EXTRA_PARTS, KeysKernel
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
)
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import store_element
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Pointer, Shared, Size, Value, Variable
from poot.lowering.spirv.types import F32


@kernel_cache
def attention_teams_kernel(
    info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
) -> Kernel:
    """Operands and results are those of `attention_keys_kernel`."""
    return _TeamsKernel(info, program, schedule).build()


@dataclass(frozen=True, slots=True)
class _Share:
    """What a lane of a team has of so many features: `rounds` chunks of `width`."""

    features: int
    width: int
    rounds: int


class _TeamsKernel(KeysKernel):
    """One kernel under construction."""

    name = "attention_teams"

    def _attend(self, first: Size) -> None:
        k, schedule = self.k, self.schedule
        self.lane = k.index_rem(k.local_index(), schedule.parts)
        self.of_keys = self._share(self.program.features)
        self.of_values = self._share(self.program.values)
        super()._attend(first)

    def _share(self, features: int) -> _Share:
        width, parts = self.schedule.width, self.schedule.parts
        return _Share(features, width, -(-features // (width * parts)))

    def queries(self, rows: Sequence[Size]) -> list[list[Variable]]:
        """The lane's features of each row, 0 past the last feature."""
        k, stand = self.k, self.program.q
        zero = k.const(F32, 0)
        held = []
        for row in rows:
            base = self.row_base(stand, row)
            found = self._features(self.q, stand, base, self.of_keys, zero)
            held.append([k.variable(F32, value) for value in found])
        return held

    def zeros(self) -> list[Variable]:
        share, zero = self.of_values, self.k.const(F32, 0)
        return [self.k.variable(F32, zero) for _ in range(share.rounds * share.width)]

    def _features(
        self,
        pointer: Pointer,
        stand: Stand,
        base: Size,
        share: _Share,
        beyond: Value | None = None,
    ) -> list[Value]:
        """The lane's share of a head; past its end `beyond`, or anything."""
        k, step, width = self.k, stand.strides[-1], share.width
        found: list[Value] = []
        for number in range(share.rounds):
            chunk = k.add(number * self.schedule.parts, self.lane)
            place = k.mul(chunk, width)
            at = k.add(base, k.mul(place, step))
            whole = share.features % width == 0
            some = self.features_at(pointer, stand, at, width, whole)
            ends = (number + 1) * width * self.schedule.parts > share.features
            if beyond is not None and ends:
                some = [
                    k.select(
                        k.lt(k.value(k.add(place, lane)), share.features), x, beyond
                    )
                    for lane, x in enumerate(some)
                ]
            found += some
        return found

    # --- keys ---------------------------------------------------------------

    def _loop(
        self,
        start: Value,
        stop: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        """All lanes take as many rounds; keys past the end have no weight."""
        k, keys, ahead = self.k, self.program.keys, self.schedule.ahead
        stop = k.assume_below(k.min(stop, keys), keys + 1)
        teams = self.schedule.workgroup // self.schedule.parts
        team = k.index_div(k.local_index(), self.schedule.parts)
        step = teams * ahead
        with (
            k.loop(stop, start=start, step=step, max_trips=-(-keys // step)) as first,
            self.evaluator.scope(),
        ):
            mine = [k.add(k.add(first, team), n * teams) for n in range(ahead)]
            self._take(mine, stop, queries, softmax, sums)

    def _take(
        self,
        keys: Sequence[Size],
        stop: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        k, program = self.k, self.program
        inside = [k.lt(k.value(key), stop) for key in keys]
        last = program.keys - 1
        keys = [k.assume_below(k.min(k.value(key), last), last + 1) for key in keys]
        own = [self._of(self.keys, program.k, key, self.of_keys) for key in keys]
        values = [self._of(self.values, program.v, key, self.of_values) for key in keys]
        # What stands there may be infinite, and has no weight past the end.
        zero, nothing = k.const(F32, 0), k.const(F32, float("-inf"))
        values = [
            [k.select(is_inside, value, zero) for value in some]
            for is_inside, some in zip(inside, values, strict=True)
        ]
        for row, query, (peak, total), row_sums in zip(
            self.rows, queries, softmax, sums, strict=True
        ):
            scores = []
            for key, is_inside, features in zip(keys, inside, own, strict=True):
                product = self._team_sum(self._product(query, features))
                (score,) = self.scores(row, key, (product,))
                scores.append(k.select(is_inside, score, nothing))
            powers, shrink = self.powers(peak, total, scores)
            for number, sum in enumerate(row_sums):
                found = k.mul(sum.load(), shrink)
                for power, value in zip(powers, values, strict=True):
                    found = self.multiply_add(power, value[number], found)
                sum.store(found)

    def _of(
        self, pointer: Pointer, stand: Stand, key: Size, share: _Share
    ) -> list[Value]:
        at = self.k.add(self.base(stand), self.k.mul(key, stand.strides[-2]))
        return self._features(pointer, stand, at, share, self._beyond(stand, share))

    def _beyond(self, stand: Stand, share: _Share) -> Value | None:
        """0 past the features of keys: what stands there may be infinite or NaN."""
        is_keys = share is self.of_keys
        return self.k.const(F32, 0) if is_keys else None

    def _product(self, query: Sequence[Variable], features: Sequence[Value]) -> Value:
        product = self.k.const(F32, 0)
        for a, b in zip(query, features, strict=True):
            product = self.multiply_add(a.load(), b, product)
        return product

    def _team_sum(self, value: Value) -> Value:
        step = 1
        while step < self.schedule.parts:
            value = self.k.add(value, self.k.subgroup_shuffle_xor(value, step))
            step *= 2
        return value

    # --- results ------------------------------------------------------------

    def _together(
        self,
        rows: list[Size],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        """Each subgroup by shuffles, then all by shared memory."""
        k, schedule, values = self.k, self.schedule, self.program.values
        width = k.subgroup_size
        subgroups = schedule.workgroup // width
        stride = values + EXTRA_PARTS
        kept = k.shared(F32, subgroups * len(rows) * stride)
        lane = k.index_rem(k.local_index(), width)
        own = k.mul(k.index_div(k.local_index(), width), len(rows) * stride)
        share = self.of_values
        for number, ((peak, total), row_sums) in enumerate(
            zip(softmax, sums, strict=True)
        ):
            start = k.add(own, number * stride)
            largest, whole, means = self._of_subgroup(peak, total, row_sums)
            with k.when(k.lt(lane, schedule.parts)):
                for n, mean in enumerate(means):
                    chunk, inner = divmod(n, share.width)
                    place = k.add(
                        k.mul(k.add(chunk * schedule.parts, self.lane), share.width),
                        inner,
                    )
                    with k.when(k.lt(k.value(place), values)):
                        kept.store(k.add(start, place), mean)
            with k.when(k.lt(lane, 1)):
                kept.store(k.add(start, values), largest)
                kept.store(k.add(start, values + 1), whole)
        k.barrier()
        elements = len(rows) * values
        most = -(-elements // schedule.workgroup)
        with k.loop(
            elements, start=k.local_index(), step=schedule.workgroup, max_trips=most
        ) as element:
            self._finish(rows, kept, element, subgroups, stride)

    def _of_subgroup(
        self, peak: Variable, total: Variable, sums: Sequence[Variable]
    ) -> tuple[Value, Value, list[Value]]:
        """The largest score of the subgroup, and sums of powers below it."""
        k, parts = self.k, self.schedule.parts
        largest = peak.load()
        step = parts
        while step < k.subgroup_size:
            other = k.subgroup_shuffle_xor(largest, step)
            largest = k.select(k.lt(largest, other), other, largest)
            step *= 2
        shrink = self.exp(k.sub(peak.load(), self.finite(largest)))

        def whole(value: Value) -> Value:
            value = k.mul(value, shrink)
            step = parts
            while step < k.subgroup_size:
                value = k.add(value, k.subgroup_shuffle_xor(value, step))
                step *= 2
            return value

        return largest, whole(total.load()), [whole(sum.load()) for sum in sums]

    def _finish(
        self,
        rows: list[Size],
        kept: Shared,
        element: Value,
        subgroups: int,
        stride: int,
    ) -> None:
        """Put together one element of the result of all subgroups, and write it."""
        k, values = self.k, self.program.values
        number = k.index_div(element, values)
        feature = k.index_rem(element, values)
        start = k.mul(number, stride)
        step = len(rows) * stride
        peak = k.variable(F32, k.const(F32, float("-inf")))
        # Loops, since code that runs once takes longer to load than to run.
        with k.loop(subgroups) as n:
            other = kept.load(k.add(k.add(start, values), k.mul(n, step)))
            largest = peak.load()
            peak.store(k.select(k.lt(largest, other), other, largest))
        largest = peak.load()
        base = self.finite(largest)
        totals, sums = (k.variable(F32, k.const(F32, 0)) for _ in range(2))
        with k.loop(subgroups) as n:
            own = k.add(start, k.mul(n, step))
            shrink = self.exp(k.sub(kept.load(k.add(own, values)), base))
            part = kept.load(k.add(own, values + 1))
            totals.store(self.multiply_add(part, shrink, totals.load()))
            part = kept.load(k.add(own, feature))
            sums.store(self.multiply_add(part, shrink, sums.load()))
        total, sum = totals.load(), sums.load()
        row = k.add(rows[0], number)
        with k.when(k.lt(k.value(row), self.program.row_count)):
            if self.schedule.splits > 1:
                self._write_part(row, feature, stride, (sum, largest, total))
            else:
                target = self.program.target
                at = k.mul(feature, target.strides[-1])
                at = k.add(self.row_base(target, row), at)
                self._put(at, self.divide(sum, total))

    def _write_part(
        self, row: Size, feature: Value, stride: int, found: tuple[Value, Value, Value]
    ) -> None:
        """What another launch merges: the element, and once a row the two others."""
        k, values = self.k, self.program.values
        sum, largest, total = found
        number = k.add(k.mul(self.batch, self.program.row_count), row)
        number = k.add(k.mul(number, self.schedule.splits), self.split)
        start = k.mul(number, stride)
        self._put(k.add(start, feature), sum)
        with k.when(k.lt(feature, 1)):
            self._put(k.add(start, values), largest)
            self._put(k.add(start, values + 1), total)

    def _put(self, at: Size, value: Value) -> None:
        target = self.program.target
        index = self.k.value(at)
        store_element(self.k, self.target, target.dtype, index, value, target.bound)
