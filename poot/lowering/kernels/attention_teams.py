"""Attention for few queries on GPUs: a team of lanes has a key at a time.

The lanes of a team share the features of a key and of its value, 16 bytes a lane, so
that neighbouring lanes load neighbouring bytes; all rows use what is loaded. Several
keys are on their way at once. In the end the subgroups put together what they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_keys import EXTRA_PARTS, KeysKernel
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
)
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import from_units, load_units, store_element
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
    """What a lane of a team has of each head of an operand: chunks of features."""

    pointer: Pointer
    stand: Stand
    features: int
    # A chunk is of so many features, and there are so many.
    width: int
    rounds: int
    # Whether features past the last one are to be 0.
    ends: bool = True

    @property
    def runs(self) -> bool:
        """Whether a chunk is loaded at once."""
        return self.features % self.width == 0 and self.stand.runs_of(self.width)


class _TeamsKernel(KeysKernel):
    """One kernel under construction.

    A lane waits for memory at the first use of what it loads. So whatever can be asked
    for is asked for first: queries, the keys and values of the first trip, then what
    tells the keys seen; and each trip asks for the keys and values of the next.
    """

    name = "attention_teams"

    def _attend(self, first: Size) -> None:
        k, program, schedule = self.k, self.program, self.schedule
        self.lane = k.index_rem(k.local_index(), schedule.parts)
        self.team_number = k.index_div(k.local_index(), schedule.parts)
        self.teams = schedule.workgroup // schedule.parts
        # Keys of a trip.
        self.step = self.teams * schedule.ahead
        self.of_queries = self._share(self.q, program.q, program.features)
        self.of_keys = self._share(self.keys, program.k, program.features)
        # Sums past the last feature are not stored.
        values = self._share(self.values, program.v, program.values)
        self.of_values = replace(values, ends=False)
        # What is on its way: for each key, then for each value.
        self._coming: list[list[Variable]] = []
        super()._attend(first)

    def _share(self, pointer: Pointer, stand: Stand, features: int) -> _Share:
        width, parts = self.schedule.width, self.schedule.parts
        rounds = -(-features // (width * parts))
        return _Share(pointer, stand, features, width, rounds)

    def queries(self, rows: Sequence[Size]) -> list[list[Variable]]:
        """The lane's features of each row, 0 past the last feature."""
        k, share = self.k, self.of_queries
        loaded = [self._load(share, self.row_base(share.stand, row)) for row in rows]
        first = self.known_first(rows) if self.schedule.splits == 1 else None
        if first is not None:
            self._fetch(first)
        start, _ = self._share_of_keys()
        if first is None:
            self._fetch(start)
        return [
            [k.variable(F32, value) for value in self._features(share, some)]
            for some in loaded
        ]

    def zeros(self) -> list[Variable]:
        share, zero = self.of_values, self.k.const(F32, 0)
        return [self.k.variable(F32, zero) for _ in range(share.rounds * share.width)]

    def _load(self, share: _Share, base: Size) -> list[Value]:
        """The lane's share of a head, as it is loaded: see `_features`."""
        k, stand, width = self.k, share.stand, share.width
        loaded: list[Value] = []
        for number in range(share.rounds):
            place = self._place(share, number)
            at = k.value(k.add(base, k.mul(place, stand.strides[-1])))
            if share.runs:
                bound = stand.bound
                loaded += load_units(k, share.pointer, stand.dtype, at, width, bound)
            else:
                loaded += self.features_at(share.pointer, stand, at, width, False)
        return loaded

    def _features(self, share: _Share, loaded: Sequence[Value]) -> list[Value]:
        """The features that were loaded so; past the last 0, if need be."""
        k, width = self.k, share.width
        found = list(loaded)
        if share.runs:
            found = from_units(k, loaded, share.stand.dtype)
        zero = k.const(F32, 0)
        for number in range(share.rounds if share.ends else 0):
            if (number + 1) * width * self.schedule.parts <= share.features:
                continue
            place = self._place(share, number)
            for n in range(width):
                is_inside = k.lt(k.value(k.add(place, n)), share.features)
                value = found[number * width + n]
                found[number * width + n] = k.select(is_inside, value, zero)
        return found

    def _place(self, share: _Share, number: int) -> Size:
        """The first feature of a chunk of the lane."""
        k = self.k
        return k.mul(k.add(number * self.schedule.parts, self.lane), share.width)

    # --- keys ---------------------------------------------------------------

    def _own(self, first: Size) -> list[Value]:
        """The keys of the lane's team in the trip from `first` on, or past the end."""
        k = self.k
        own = k.add(first, self.team_number)
        return [k.value(k.add(own, n * self.teams)) for n in range(self.schedule.ahead)]

    def _within(self, key: Value) -> Value:
        """The key, or the last one past the end."""
        keys = self.program.keys
        return self.k.assume_below(self.k.min(key, keys - 1), keys)

    def _fetch(self, first: Size) -> None:
        """Ask for the keys and values of the trip from `first` on."""
        k = self.k
        keys = [self._within(key) for key in self._own(first)]
        loaded = []
        for share in (self.of_keys, self.of_values):
            for key in keys:
                at = k.mul(key, share.stand.strides[-2])
                loaded.append(self._load(share, k.add(self.base(share.stand), at)))
        if not self._coming:
            self._coming = [[k.variable(x.ty) for x in some] for some in loaded]
        for variables, some in zip(self._coming, loaded, strict=True):
            for variable, value in zip(variables, some, strict=True):
                variable.store(value)

    def _fetched(self) -> tuple[list[list[Value]], list[list[Value]]]:
        """The features of the keys and of the values that were asked for."""
        ahead = self.schedule.ahead
        shares = [self.of_keys] * ahead + [self.of_values] * ahead
        found = [
            self._features(share, [variable.load() for variable in variables])
            for share, variables in zip(shares, self._coming, strict=True)
        ]
        return found[:ahead], found[ahead:]

    def _loop(
        self,
        start: Value,
        stop: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        """All lanes take as many trips; keys past the end have no weight."""
        k, program, step = self.k, self.program, self.step
        stop = k.assume_below(k.min(stop, program.keys), program.keys + 1)
        # One split takes all keys that rows do not see, if they count.
        splits = self.schedule.splits if program.rounds == 1 else 1
        trips = -(-program.keys // (splits * step))
        with (
            k.loop(stop, start=start, step=step, max_trips=trips) as first,
            self.evaluator.scope(),
        ):
            own, values = self._fetched()
            if trips > 1:
                following = k.add(first, step)
                with k.when(k.lt(following, stop)):
                    self._fetch(following)
            self._take(self._own(first), own, values, stop, queries, softmax, sums)

    def _take(
        self,
        keys: Sequence[Value],
        own: Sequence[Sequence[Value]],
        values: Sequence[Sequence[Value]],
        stop: Value,
        queries: list[list[Variable]],
        softmax: list[tuple[Variable, Variable]],
        sums: list[list[Variable]],
    ) -> None:
        k = self.k
        inside = [k.lt(key, stop) for key in keys]
        keys = [self._within(key) for key in keys]
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
