"""The three kernels of a radix pass: count, sum, place.

Their sizes stand in the metadata, so that one of each serves all shapes. Elements past
the end of a row count as keys with all bits set: they come last in the last tile, where
nothing is placed after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.block_sort import PLACES_END
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.workgroup_scan import exclusive_sum
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import (
    KernelBuilder,
    Loop,
    Pointer,
    Size,
    Value,
)
from poot.lowering.spirv.types import U32

# Values of a digit.
DIGITS = 1 << 8
_WORD_BYTES = 4
_BEYOND = 0xFFFFFFFF
# Tiles of a row that one invocation adds up at most, twice.
MOST_ROUNDS = 1 << 14
# Lanes that are ranked together where subgroups cannot vote.
_LANES_WITHOUT_VOTES = 16


@dataclass(frozen=True, slots=True)
class RadixSchedule:
    """A workgroup takes tiles of `workgroup * items` elements.

    Each group of `lanes` neighbouring invocations ranks `lanes` elements at a time: by
    votes of the subgroup, or through shared memory. With `looped` an invocation walks
    its elements in loops and keeps what belongs to them in shared memory; else the code
    is unrolled and keeps it in registers, which CPU drivers take seconds to compile.
    """

    workgroup: int
    items: int
    lanes: int
    votes: bool
    looped: bool

    @property
    def tile(self) -> int:
        return self.workgroup * self.items

    @property
    def groups(self) -> int:
        return self.workgroup // self.lanes

    @property
    def shared_bytes(self) -> int:
        """Of the largest kernel: counters, digits, the tile, and sums."""
        words = (self.groups + 1) * DIGITS + 3 * self.workgroup
        words += self.tile * (3 if self.looped else 1)
        return words * _WORD_BYTES

    def __str__(self) -> str:
        how = "votes" if self.votes else "shared memory"
        return (
            f"tiles of {self.workgroup} invocations by {self.items} elements, ranked "
            f"by {how} of {self.lanes} lanes"
        )


def choose_radix_schedule(info: DeviceInfo) -> RadixSchedule:
    """As large a tile as shared memory takes."""
    votes = info.subgroup_ballot
    lanes = info.subgroup_size if votes else _LANES_WITHOUT_VOTES
    most = 1 << info.max_workgroup_invocations.bit_length() - 1
    workgroup = min(max(64, lanes) if info.is_cpu else 256, most)
    schedule = RadixSchedule(workgroup, 16, lanes, votes, info.is_cpu)
    while schedule.shared_bytes > info.max_shared_bytes:
        if schedule.items > 4 or workgroup == max(64, lanes):
            items, workgroup = schedule.items // 2, schedule.workgroup
        else:
            items, workgroup = 16, schedule.workgroup // 2
        schedule = RadixSchedule(workgroup, items, lanes, votes, info.is_cpu)
    return schedule


class _Pass:
    """What the kernels that walk tiles share."""

    def __init__(self, name: str, info: DeviceInfo, schedule: RadixSchedule) -> None:
        self.k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.schedule = schedule

    def read_sizes(self) -> None:
        """The words of the metadata, and the tile of the workgroup."""
        k = self.k
        self.all_tiles = k.metadata(0, limit=PLACES_END)
        self.length = k.metadata(1, limit=PLACES_END)
        self.tiles = k.max(k.metadata(2, limit=PLACES_END), 1)
        self.total = k.metadata(3, limit=PLACES_END)
        self.shift = k.metadata(4, limit=32)
        self.mask = k.metadata(5, limit=DIGITS)
        self.counts_total = k.metadata(6, limit=PLACES_END)
        self.rows = k.metadata(7, limit=PLACES_END)
        number = k.workgroup_index()
        self.inside = k.lt(number, self.all_tiles)
        self.row = k.index_div(number, self.tiles)
        self.number = k.index_rem(number, self.tiles)
        self.row_start = k.mul(self.row, self.length)
        self.first = k.mul(self.number, self.schedule.tile)

    def digit(self, key: Value) -> Value:
        return self.k.and_(self.k.shr(key, self.shift), self.mask)

    def count_place(self, digit: Value) -> Value:
        """Where the count of a digit in the tile stands."""
        k = self.k
        line = k.add(k.mul(self.row, DIGITS), digit)
        return k.add(k.mul(line, self.tiles), self.number)

    def each_item(self) -> Iterator[Size]:
        """The numbers of the elements that the invocation has of a tile."""
        if not self.schedule.looped:
            yield from range(self.schedule.items)
            return
        with self.k.loop(self.schedule.items, unroll=False) as item:
            yield item

    def in_turn(self, item: Size) -> Value:
        """The place in the tile when all invocations take neighbours in each turn."""
        k = self.k
        return k.add(k.local_index(), k.mul(item, self.schedule.workgroup))

    def each_digit(self) -> range:
        """Turns in which the invocations together take each digit once."""
        return range(-(-DIGITS // self.schedule.workgroup))

    def digit_in_turn(self, turn: int) -> Value:
        k = self.k
        return k.add(k.local_index(), turn * self.schedule.workgroup)


class _Slots:
    """A u32 for each element of an invocation: in registers or in shared memory."""

    def __init__(self, k: KernelBuilder, schedule: RadixSchedule) -> None:
        self._k, self._schedule = k, schedule
        self._shared = k.shared(U32, schedule.tile) if schedule.looped else None
        self._registers: dict[Size, Value] = {}

    def put(self, item: Size, value: Value) -> None:
        if self._shared is None:
            self._registers[item] = value
        else:
            self._shared.store(self._slot(item), value)

    def get(self, item: Size) -> Value:
        if self._shared is None:
            return self._registers[item]
        return self._shared.load(self._slot(item))

    def _slot(self, item: Size) -> Value:
        k = self._k
        return k.add(k.local_index(), k.mul(item, self._schedule.workgroup))


@kernel_cache
def count_kernel(info: DeviceInfo, schedule: RadixSchedule, indirect: bool) -> Kernel:
    """How often each tile has each digit: counts [rows, digits, tiles]."""
    walk = _Pass("radix_count", info, schedule)
    k = walk.k
    keys = k.operand("keys", Access.READ, indirect=indirect)
    counts = k.operand("counts", Access.WRITE)
    walk.read_sizes()
    held = k.shared(U32, DIGITS)
    for turn in walk.each_digit():
        held.store(walk.digit_in_turn(turn), 0)
    k.barrier()
    loaded = _Slots(k, schedule)
    for item in walk.each_item():
        place = k.add(walk.first, walk.in_turn(item))
        loaded.put(item, k.load(keys, U32, k.add(walk.row_start, place), walk.total))
    for item in walk.each_item():
        place = k.add(walk.first, walk.in_turn(item))
        with k.when(k.logical_and(walk.inside, k.lt(place, walk.length))):
            held.atomic_add(walk.digit(loaded.get(item)), 1)
    k.barrier()
    for turn in walk.each_digit():
        digit = walk.digit_in_turn(turn)
        with k.when(k.logical_and(walk.inside, k.lt(digit, DIGITS))):
            at = walk.count_place(digit)
            k.store(counts, U32, at, held.load(digit), walk.counts_total)
    return k.finish(str(schedule))


@kernel_cache
def sum_kernel(info: DeviceInfo, schedule: RadixSchedule) -> Kernel:
    """The counts of each line of tiles become running sums; totals has the whole."""
    k = KernelBuilder("radix_sum", info, (schedule.workgroup, 1, 1))
    counts = k.operand("counts", Access.UPDATE)
    totals = k.operand("totals", Access.WRITE)
    lines = k.metadata(0, limit=PLACES_END)
    tiles = k.metadata(1, limit=PLACES_END)
    bound = k.metadata(2, limit=PLACES_END)
    line, local = k.workgroup_index(), k.local_index()
    each = k.ceil_div(k.max(tiles, 1), schedule.workgroup)
    first = k.mul(local, each)
    end = k.min(each, k.sub(k.max(tiles, first), first))
    start = k.add(k.mul(line, tiles), first)
    inside = k.lt(line, lines)
    sum_ = k.variable(U32, 0)
    with k.when(inside), k.loop(end, max_trips=MOST_ROUNDS) as i:
        count = k.load(counts, U32, k.add(start, i), bound)
        sum_.store(k.add(sum_.load(), count))
    before, total = exclusive_sum(k, sum_.load())
    sum_.store(before)
    with k.when(inside):
        with k.loop(end, max_trips=MOST_ROUNDS) as i:
            at = k.add(start, i)
            count = k.load(counts, U32, at, bound)
            k.store(counts, U32, at, sum_.load(), bound)
            sum_.store(k.add(sum_.load(), count))
        with k.when(k.lt(local, 1)):
            k.store(totals, U32, line, total, lines)
    return k.finish(str(schedule))


@kernel_cache
def place_kernel(
    info: DeviceInfo,
    schedule: RadixSchedule,
    indirect: bool,
    has_payload: bool,
    writes_keys: bool,
) -> Kernel:
    """Write the elements of each tile to where they stand in the order by the digit."""
    return _Place(info, schedule).build(indirect, has_payload, writes_keys)


class _Place(_Pass):
    """The placing kernel under construction.

    The elements are brought into order in shared memory first, so that neighbours are
    written together.
    """

    def __init__(self, info: DeviceInfo, schedule: RadixSchedule) -> None:
        super().__init__("radix_place", info, schedule)

    def build(self, indirect: bool, has_payload: bool, writes_keys: bool) -> Kernel:
        k = self.k
        keys = k.operand("keys", Access.READ, indirect=indirect)
        counts = k.operand("counts", Access.READ)
        totals = k.operand("totals", Access.READ)
        payload = k.operand("payload", Access.READ) if has_payload else None
        keys_out = k.operand("keys_out", Access.WRITE) if writes_keys else None
        out = k.operand("out", Access.WRITE)
        self.read_sizes()
        self._allot()
        for item in self.each_item():
            self.keys.put(item, self._load_key(keys, item))
        for item in self.each_item():
            rank = self._rank(self.digit(self.keys.get(item)))
            self.places.put(item, rank)
        k.barrier()
        self._sum_digits(counts, totals)
        for item in self.each_item():
            digit = self.digit(self.keys.get(item))
            self.places.put(item, self._place(digit, self.places.get(item)))
        self._exchange(self.keys.get)
        self._write_keys(keys_out)
        self._exchange(lambda item: self._payload(payload, item))
        for item in self.each_item():
            value = self.tile.load(self.in_turn(item))
            k.store(out, U32, self.targets.get(item), value, self.total)
        return k.finish(str(self.schedule))

    def _allot(self) -> None:
        """Shared memory, with counters at 0, and the place in the group."""
        k, schedule = self.k, self.schedule
        self.counters = k.shared(U32, schedule.groups * DIGITS)
        # How far the elements of a digit move from the tile to the row.
        self.moves = k.shared(U32, DIGITS)
        self.tile = k.shared(U32, schedule.tile)
        self.keys, self.places = _Slots(k, schedule), _Slots(k, schedule)
        # Keys are needed no more once it is known where they belong.
        self.targets = self.keys
        if schedule.votes:
            self.lane, self.group = k.subgroup_lane(), k.subgroup_index()
        else:
            self.lane = k.index_rem(k.local_index(), schedule.lanes)
            self.group = k.index_div(k.local_index(), schedule.lanes)
        turns = schedule.groups * DIGITS // schedule.workgroup
        with k.loop(turns, unroll=not schedule.looped) as turn:
            self.counters.store(self.in_turn(turn), 0)
        k.barrier()

    def _element(self, item: Size) -> Value:
        """Where in the row the element stands that the invocation has as its `item`."""
        k, schedule = self.k, self.schedule
        start = k.mul(self.group, schedule.lanes * schedule.items)
        inside = k.add(start, k.add(self.lane, k.mul(item, schedule.lanes)))
        return k.add(self.first, inside)

    def _load_key(self, keys: Pointer, item: Size) -> Value:
        k = self.k
        place = self._element(item)
        key = k.load(keys, U32, k.add(self.row_start, place), self.total)
        return k.select(k.lt(place, self.length), key, _BEYOND)

    def _payload(self, payload: Pointer | None, item: Size) -> Value:
        k, place = self.k, self._element(item)
        if payload is None:
            return place
        return k.load(payload, U32, k.add(self.row_start, place), self.total)

    # --- ranks --------------------------------------------------------------

    def _rank(self, digit: Value) -> Value:
        """How many elements of the group with this digit came before."""
        k = self.k
        before, count = self._peers(digit)
        counter = k.add(k.mul(self.group, DIGITS), digit)
        known = self.counters.load(counter)
        self._wait()
        with k.when(k.eq(k.add(before, 1), count)):
            self.counters.store(counter, k.add(known, count))
        self._wait()
        return k.add(known, before)

    def _wait(self) -> None:
        if self.schedule.votes:
            self.k.subgroup_barrier()
        else:
            self.k.barrier()

    def _peers(self, digit: Value) -> tuple[Value, Value]:
        """How many lanes with the same digit are before this one, and in all."""
        if self.schedule.votes:
            return self._peers_by_votes(digit)
        return self._peers_by_memory(digit)

    def _peers_by_votes(self, digit: Value) -> tuple[Value, Value]:
        k, lanes = self.k, self.schedule.lanes
        words = [
            k.u32((1 << min(lanes - first, 32)) - 1) for first in range(0, lanes, 32)
        ]
        for place in range(DIGITS.bit_length() - 1):
            bit = k.and_(k.shr(digit, place), 1)
            turned = k.sub(bit, 1)
            votes = k.subgroup_ballot(k.ne(bit, 0))
            words = [
                k.and_(word, k.xor(vote, turned))
                for word, vote in zip(words, votes, strict=True)
            ]
        below = [
            k.sub(k.shl(1, k.sub(k.max(self.lane, first), first)), 1)
            for first in range(0, lanes, 32)
        ]
        before = [k.and_(w, b) for w, b in zip(words, below, strict=True)]
        return self._bits_of(before), self._bits_of(words)

    def _bits_of(self, words: Sequence[Value]) -> Value:
        count = self.k.u32(0)
        for word in words:
            count = self.k.add(count, self.k.popcount(word))
        return count

    def _peers_by_memory(self, digit: Value) -> tuple[Value, Value]:
        k = self.k
        self.tile.store(k.local_index(), digit)
        k.barrier()
        start = k.mul(self.group, self.schedule.lanes)
        before, count = k.variable(U32, 0), k.variable(U32, 0)
        with k.loop(self.schedule.lanes) as other:
            same = k.eq(self.tile.load(k.add(start, other)), digit)
            count.store(k.add(count.load(), k.convert(same, U32)))
            earlier = k.logical_and(same, k.lt(other, self.lane))
            before.store(k.add(before.load(), k.convert(earlier, U32)))
        return before.load(), count.load()

    # --- places -------------------------------------------------------------

    def _sum_digits(self, counts: Pointer, totals: Pointer) -> None:
        """Where the digits of each group start in the tile, and how far they move."""
        k = self.k
        each = -(-DIGITS // self.schedule.workgroup)
        digits = [k.add(k.mul(k.local_index(), each), i) for i in range(each)]
        in_tile = [self._of_groups(digit) for digit in digits]
        in_row = [self._of_row(totals, digit) for digit in digits]
        tile_start, _ = exclusive_sum(k, self._sum(in_tile))
        row_start, _ = exclusive_sum(k, self._sum(in_row))
        for digit, here, all_ in zip(digits, in_tile, in_row, strict=True):
            with k.when(k.lt(digit, DIGITS)):
                at = self.count_place(digit)
                earlier = k.load(counts, U32, at, self.counts_total)
                target = k.add(self.row_start, k.add(row_start, earlier))
                self.moves.store(digit, k.sub(target, tile_start))
                self._start_groups(digit, tile_start)
            tile_start, row_start = k.add(tile_start, here), k.add(row_start, all_)
        k.barrier()

    def _of_groups(self, digit: Value) -> Value:
        """How often the tile has a digit."""
        k, sum_ = self.k, self.k.variable(U32, 0)
        with self._each_group() as group:
            at = k.add(digit, k.mul(group, DIGITS))
            sum_.store(k.add(sum_.load(), self.counters.load(at)))
        return k.select(k.lt(digit, DIGITS), sum_.load(), 0)

    def _of_row(self, totals: Pointer, digit: Value) -> Value:
        """How often the row has a digit."""
        k = self.k
        line = k.add(k.mul(self.row, DIGITS), digit)
        total = k.load(totals, U32, line, k.mul(self.rows, DIGITS))
        return k.select(k.lt(digit, DIGITS), total, 0)

    def _start_groups(self, digit: Value, start: Value) -> None:
        """Let the counters of a digit say where each group's elements start."""
        k, sum_ = self.k, self.k.variable(U32, start)
        with self._each_group() as group:
            at = k.add(digit, k.mul(group, DIGITS))
            count = self.counters.load(at)
            self.counters.store(at, sum_.load())
            sum_.store(k.add(sum_.load(), count))

    def _each_group(self) -> Loop:
        return self.k.loop(self.schedule.groups, unroll=not self.schedule.looped)

    def _sum(self, values: Sequence[Value]) -> Value:
        total = values[0]
        for value in values[1:]:
            total = self.k.add(total, value)
        return total

    def _place(self, digit: Value, rank: Value) -> Value:
        """Where in the tile's order an element stands."""
        k = self.k
        start = self.counters.load(k.add(k.mul(self.group, DIGITS), digit))
        return k.and_(k.add(start, rank), self.schedule.tile - 1)

    def _exchange(self, value: Callable[[Size], Value]) -> None:
        """Bring the values of all elements into the tile's order."""
        k, schedule = self.k, self.schedule
        # All loads before the first barrier, so that they wait for memory together.
        count = 0 if schedule.looped else schedule.items
        loaded = [value(item) for item in range(count)]
        k.barrier()
        for item in self.each_item():
            held = loaded[item] if isinstance(item, int) else value(item)
            self.tile.store(self.places.get(item), held)
        k.barrier()

    def _write_keys(self, keys_out: Pointer | None) -> None:
        """Note where the elements belong; write the keys there, if asked to."""
        k = self.k
        rest = k.sub(self.length, self.first)
        for item in self.each_item():
            place = self.in_turn(item)
            key = self.tile.load(place)
            target = k.add(self.moves.load(self.digit(key)), place)
            is_there = k.logical_and(self.inside, k.lt(place, rest))
            target = k.select(is_there, target, _BEYOND)
            if keys_out is not None:
                k.store(keys_out, U32, target, key, self.total)
            self.targets.put(item, target)
