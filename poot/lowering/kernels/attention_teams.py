"""Attention for few queries on GPUs: a team of lanes has a key at a time.

The lanes of a team share the features of a key and of its value, 16 bytes a lane, so
that neighbouring lanes load neighbouring bytes; all rows use what is loaded. Several
keys are on their way at once. In the end the subgroups put together what they have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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

_Combine = Callable[[Value, Value], Value]

# So few numbers each lane takes exp of, rather than share the work and hand it round.
_FEW_EXPS = 4
# Terms of a sum that are added in code without a loop.
_UNROLLED = 16


@kernel_cache
def attention_teams_kernel(
    info: DeviceInfo, program: AttentionProgram, schedule: AttentionSchedule
) -> Kernel:
    """Operands and results are those of `attention_keys_kernel`."""
    return _TeamsKernel(info, program, schedule).build()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the subgroups of a workgroup, a power of two, have of its rows.

    A row's: the sums of values by feature, the largest score, the sum of powers.
    """

    kept: Shared
    subgroups: int
    # From one subgroup to the next, and from one row to the next.
    step: int
    stride: int


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
        """The lane's features of each row, 0 past the last feature.

        Before it waits for them it asks for all else that the first trip needs.
        """
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
        below = []
        for row, query, (peak, _) in zip(self.rows, queries, softmax, strict=True):
            scores = []
            for key, is_inside, features in zip(keys, inside, own, strict=True):
                product = self._team_sum(self._product(query, features))
                (score,) = self.scores(row, key, (product,))
                scores.append(k.select(is_inside, score, nothing))
            below.append(self.below(peak, scores))
        found = self._exps(below)
        for (shrink, *powers), (_, total), row_sums in zip(
            found, softmax, sums, strict=True
        ):
            self.add_powers(total, shrink, powers)
            for number, sum in enumerate(row_sums):
                mean = k.mul(sum.load(), shrink)
                for power, value in zip(powers, values, strict=True):
                    mean = self.multiply_add(power, value[number], mean)
                sum.store(mean)

    def _exps(self, rows: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """exp of numbers that all lanes of a team have: by one of them, if many."""
        k, parts = self.k, self.schedule.parts
        given = [x for row in rows for x in row]
        if len(given) <= _FEW_EXPS or parts == 1:
            return [[self.exp(x) for x in row] for row in rows]
        start = k.sub(k.index_rem(k.local_index(), k.subgroup_size), self.lane)
        found: list[Value] = []
        for first in range(0, len(given), parts):
            some = given[first : first + parts]
            mine = some[0]
            for n, x in enumerate(some[1:], 1):
                mine = k.select(k.eq(self.lane, n), x, mine)
            power = self.exp(mine)
            found += [
                k.subgroup_shuffle(power, k.add(start, n)) for n in range(len(some))
            ]
        count = len(rows[0])
        return [found[at : at + count] for at in range(0, len(found), count)]

    def _product(self, query: Sequence[Variable], features: Sequence[Value]) -> Value:
        product = self.k.const(F32, 0)
        for a, b in zip(query, features, strict=True):
            product = self.multiply_add(a.load(), b, product)
        return product

    def _team_sum(self, value: Value) -> Value:
        return self._across(self.k.add, value, 1, self.schedule.parts)

    def _across(self, combine: _Combine, value: Value, step: int, end: int) -> Value:
        """All values `step`, 2 `step` … lanes away, within `end`: given to each lane.

        Lanes combine the same in the same order, or with both sides exchanged.
        """
        while step < end:
            value = combine(value, self.k.subgroup_shuffle_xor(value, step))
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
        parts = _Parts(
            k.shared(F32, subgroups * len(rows) * stride),
            subgroups,
            len(rows) * stride,
            stride,
        )
        lane = k.index_rem(k.local_index(), width)
        subgroup = k.index_div(k.local_index(), width)
        own = k.mul(subgroup, parts.step)
        for number, ((peak, total), row_sums) in enumerate(
            zip(softmax, sums, strict=True)
        ):
            start = k.add(own, number * stride)
            found = self._of_subgroup(peak, total, row_sums)
            self._keep(parts.kept, start, lane, *found)
        k.barrier()
        # A subgroup has as many features of one row as lanes.
        pieces = -(-values // width)
        count = len(rows) * pieces
        with k.loop(
            count, start=subgroup, step=subgroups, max_trips=-(-count // subgroups)
        ) as piece:
            feature = k.add(k.mul(k.index_rem(piece, pieces), width), lane)
            self._finish(rows, parts, k.index_div(piece, pieces), feature, lane)

    def _of_subgroup(
        self, peak: Variable, total: Variable, sums: Sequence[Variable]
    ) -> tuple[Value, Value, list[Value]]:
        """The largest score of the subgroup, and sums of powers below it."""
        k, lanes = self.k, (self.schedule.parts, self.k.subgroup_size)
        largest = self._across(self.larger, peak.load(), *lanes)
        shrink = self.exp(k.sub(peak.load(), self.finite(largest)))
        whole, *means = (
            self._across(k.add, k.mul(sum.load(), shrink), *lanes)
            for sum in (total, *sums)
        )
        return largest, whole, means

    def _keep(
        self,
        kept: Shared,
        start: Size,
        lane: Value,
        largest: Value,
        whole: Value,
        means: Sequence[Value],
    ) -> None:
        """Lay down what a subgroup has of a row from `start` on."""
        k, share, values = self.k, self.of_values, self.program.values
        with k.when(k.lt(lane, self.schedule.parts)):
            for n, mean in enumerate(means):
                number, inner = divmod(n, share.width)
                place = k.add(self._place(share, number), inner)
                with k.when(k.lt(k.value(place), values)):
                    kept.store(k.add(start, place), mean)
        with k.when(k.lt(lane, 1)):
            kept.store(k.add(start, values), largest)
            kept.store(k.add(start, values + 1), whole)

    def _finish(
        self,
        rows: list[Size],
        parts: _Parts,
        number: Value,
        feature: Value,
        lane: Value,
    ) -> None:
        """Put together an element of the result of all subgroups, and write it."""
        k, values = self.k, self.program.values
        start = k.mul(number, parts.stride)
        largest, total, weights = self._weights(parts, start, lane)
        at = k.value(k.add(start, k.min(feature, values - 1)))
        sum = self._weighted(parts, at, weights)
        row = k.add(rows[0], number)
        inside = k.lt(k.value(row), self.program.row_count)
        with k.when(k.logical_and(inside, k.lt(feature, values))):
            if self.schedule.splits > 1:
                found = sum, largest, total
                self._write_part(row, feature, parts.stride, found)
            else:
                target = self.program.target
                at = k.mul(feature, target.strides[-1])
                at = k.add(self.row_base(target, row), at)
                self._put(at, self.divide(sum, total))

    def _weights(
        self, parts: _Parts, start: Value, lane: Value
    ) -> tuple[Value, Value, list[Value]]:
        """The largest score of a row, the sum of powers, and each subgroup's weight.

        Each lane finds the weight of the subgroup of its number, once for all features;
        of the ones as many further on as there are lanes, if there are.
        """
        k, width, values = self.k, self.k.subgroup_size, self.program.values
        # Of fewer subgroups than lanes all are found several times over.
        lanes = min(parts.subgroups, width)
        own = k.add(start, k.mul(k.index_rem(lane, lanes), parts.step))
        places = [
            k.add(own, first * parts.step) for first in range(0, parts.subgroups, width)
        ]
        peaks = [parts.kept.load(k.add(place, values)) for place in places]
        totals = [parts.kept.load(k.add(place, values + 1)) for place in places]
        largest = functools.reduce(self.larger, peaks)
        largest = self._across(self.larger, largest, 1, lanes)
        base = self.finite(largest)
        weights = [self.exp(k.sub(peak, base)) for peak in peaks]
        powers = functools.reduce(k.add, map(k.mul, totals, weights))
        return largest, self._across(k.add, powers, 1, lanes), weights

    def _weighted(self, parts: _Parts, at: Value, weights: Sequence[Value]) -> Value:
        """The sum over subgroups of what stands at a place, by their weights."""
        k, width = self.k, self.k.subgroup_size
        sum = k.variable(F32, k.const(F32, 0))

        def add(weight: Value, before: int, first: Size, count: int) -> None:
            found = sum.load()
            for n in range(count):
                lane = k.add(first, n)
                place = k.add(at, k.mul(k.add(lane, before), parts.step))
                part = parts.kept.load(place)
                factor = k.subgroup_shuffle(weight, lane)
                found = self.multiply_add(part, factor, found)
            sum.store(found)

        for number, weight in enumerate(weights):
            before = number * width
            count = min(parts.subgroups - before, width)
            if count <= _UNROLLED:
                add(weight, before, 0, count)
                continue
            # Code that runs once takes long to load.
            with k.loop(count, step=_UNROLLED) as first:
                add(weight, before, first, _UNROLLED)
        return sum.load()

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
