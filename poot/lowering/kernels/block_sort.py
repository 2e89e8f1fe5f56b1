"""Sorts blocks of keys that fit into shared memory, by a bitonic network.

A key is some u32 words, the most significant first. Where words are equal the places
of the elements decide, which makes the sort stable. A workgroup sorts a tile; a tile
holds one block or, of shorter ones, several, each of 2**n places. The sizes of blocks
and rows stand in the metadata, so that one kernel serves all shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.errors import LimitError
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import (
    KernelBuilder,
    Loop,
    Pointer,
    Size,
    Value,
)
from poot.lowering.spirv.types import U32

# Words of a key that are sorted by at once; longer keys are sorted by parts.
MOST_WORDS = 3
_LARGEST_TILE = 1 << 11
_SMALL_TILE = 1 << 8
_WORD_BYTES = 4
_BEYOND = 0xFFFFFFFF
# Places and sizes in the metadata are below this.
PLACES_END = 1 << 31


def largest_block(info: DeviceInfo) -> int:
    """How many elements a block may have, a power of two."""
    most = info.max_shared_bytes // ((MOST_WORDS + 1) * _WORD_BYTES)
    return min(_LARGEST_TILE, 1 << most.bit_length() - 1)


def require_places(rows: int, length: int) -> None:
    """Raise LimitError where places in all rows do not fit a word of the metadata."""
    if rows * length >= PLACES_END:
        raise LimitError(
            f"a sort of {rows} rows of {length} elements; the most is "
            f"{PLACES_END - 1} elements in all. Sort fewer rows at once"
        )


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """All that shapes the code of a block sort but its schedule."""

    words: int
    # Whether the elements bring what the result lists; else it lists their places.
    has_payload: bool
    # Whether the sorted keys are written too.
    keeps_keys: bool
    # Whether the address of each operand comes through the table.
    indirect: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class BlockSchedule:
    """A workgroup sorts a tile of 2**n elements."""

    tile: int
    workgroup: int

    def __str__(self) -> str:
        return f"tiles of {self.tile}, {self.workgroup} invocations"


def _choose_schedule(info: DeviceInfo, places: int) -> BlockSchedule:
    """The schedule for blocks of so many places in all."""
    tile = largest_block(info)
    if places <= _SMALL_TILE < tile:
        tile = _SMALL_TILE
    most = 1 << info.max_workgroup_invocations.bit_length() - 1
    wanted = 64 if info.is_cpu else tile // 4
    return BlockSchedule(tile, min(max(wanted, 32), most, tile // 2))


def sort_blocks(
    ctx: PlanContext,
    words: Sequence[View],
    payload: View | None = None,
    *,
    first: int | None = None,
    keys_out: Sequence[View] = (),
    out: View | None = None,
) -> View:
    """Sort the rows of `words` (u32 [rows, n]) in blocks, and list the order.

    Rows longer than `largest_block` are blocks by themselves in each part of that
    size. The result (u32) has the places of the elements of each block in order, or
    what `payload` has there; with `first` only of so many elements a block. `keys_out`
    get the words of the same elements. Elements beyond the end of a row are taken for
    the largest; what is listed for them is undefined.
    """
    rows, length = words[0].shape
    require_places(rows, length)
    log_places = (min(length, largest_block(ctx.info)) - 1).bit_length()
    blocks = -(-length // (1 << log_places))
    kept = min(length, 1 << log_places) if first is None else first
    if out is None:
        out = ctx.scratch(TensorType((rows, blocks * kept), dtypes.uint32))
    operands = [*words, *([payload] if payload else []), *keys_out, out]
    program = BlockProgram(
        len(words),
        payload is not None,
        bool(keys_out),
        tuple(ctx.indirect(view) for view in operands),
    )
    places = rows * blocks << log_places
    schedule = _choose_schedule(ctx.info, max(places, 1 << log_places))
    kernel = block_sort_kernel(ctx.info, program, schedule)
    sizes = (length, log_places, blocks, rows * blocks, kept, rows * length)
    ctx.emit(kernel, operands, -(-places // schedule.tile), metadata=sizes)
    return out


@kernel_cache
def block_sort_kernel(
    info: DeviceInfo, program: BlockProgram, schedule: BlockSchedule
) -> Kernel:
    """Operands: the words, the payload, the sorted words, the order."""
    return _BlockSort(info, program, schedule).build()


class _BlockSort:
    """One block sort kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: BlockProgram, schedule: BlockSchedule
    ) -> None:
        name = f"sort_blocks_{program.words}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.program, self.schedule = program, schedule
        indirect = iter(program.indirect)

        def operand(name: str, access: Access) -> Pointer:
            return k.operand(name, access, indirect=next(indirect))

        words = range(program.words)
        self.sources = [operand(f"x{n}", Access.READ) for n in words]
        payload = operand("payload", Access.READ) if program.has_payload else None
        self.payload = payload
        kept = words if program.keeps_keys else ()
        self.keys_out = [operand(f"y{n}", Access.WRITE) for n in kept]
        self.out = operand("order", Access.WRITE)
        largest_log = schedule.tile.bit_length()
        self.length = k.metadata(0, limit=PLACES_END)
        self.log_places = k.metadata(1, limit=largest_log)
        self.blocks = k.metadata(2, limit=PLACES_END)
        self.all_blocks = k.metadata(3, limit=PLACES_END)
        self.kept = k.metadata(4, limit=schedule.tile + 1)
        self.total = k.metadata(5, limit=PLACES_END)
        self.last_place = k.sub(k.shl(1, self.log_places), 1)
        # The words, then the places that the elements come from.
        self.held = [k.shared(U32, schedule.tile) for _ in range(program.words + 1)]

    def build(self) -> Kernel:
        k, schedule = self.k, self.schedule
        with self._turns(schedule.tile) as turn:
            self._fetch(self._number(turn))
        k.barrier()
        with k.loop(self.log_places) as stage:
            self._merge(stage)
        with self._turns(schedule.tile) as turn:
            self._deliver(self._number(turn))
        return k.finish(str(schedule))

    def _turns(self, count: int) -> Loop:
        """Turns in which the invocations take each of `count` elements or pairs once.

        CPU drivers take long to compile what they unroll.
        """
        k = self.k
        unroll = False if k.info.is_cpu else None
        return k.loop(count // self.schedule.workgroup, unroll=unroll)

    def _number(self, turn: Value) -> Value:
        """Of the element or pair of the tile that the invocation takes in a turn."""
        k = self.k
        return k.add(k.mul(turn, self.schedule.workgroup), k.local_index())

    def _where(self, number: Value) -> tuple[Value, Value, Value]:
        """Block and place in it of an element of the tile, and where in its row."""
        k = self.k
        per_tile = k.shr(k.u32(self.schedule.tile), self.log_places)
        block = k.add(
            k.mul(k.workgroup_index(), per_tile), k.shr(number, self.log_places)
        )
        first = k.shl(k.index_rem(block, k.max(self.blocks, 1)), self.log_places)
        return block, k.and_(number, self.last_place), first

    def _source(self, block: Value, first: Value, place: Value) -> Value:
        """Which element of all rows stands at a place of a block."""
        k = self.k
        row = k.index_div(block, k.max(self.blocks, 1))
        return k.add(k.mul(row, self.length), k.add(first, place))

    def _fetch(self, number: Value) -> None:
        k = self.k
        block, place, first = self._where(number)
        inside = k.logical_and(
            k.lt(block, self.all_blocks), k.lt(k.add(first, place), self.length)
        )
        index = self._source(block, first, place)
        for pointer, held in zip(self.sources, self.held, strict=False):
            word = k.load(pointer, U32, index, self.total)
            held.store(number, k.select(inside, word, _BEYOND))
        self.held[-1].store(number, place)

    def _merge(self, stage: Value) -> None:
        """Merge neighbouring sorted runs of 2**stage elements."""
        k, schedule = self.k, self.schedule
        with k.loop(k.add(stage, 1)) as step:
            shift = k.and_(k.sub(stage, step), 31)
            with self._turns(schedule.tile // 2) as turn:
                self._exchange(self._number(turn), shift, k.add(stage, 1))
            k.barrier()

    def _exchange(self, pair: Value, shift: Value, run: Value) -> None:
        """Bring two elements 2**shift apart into the order of their run of 2**run."""
        k, tile = self.k, self.schedule.tile
        distance = k.shl(1, shift)
        rest = k.and_(pair, k.sub(distance, 1))
        low = k.or_(k.shl(k.sub(pair, rest), 1), rest)
        low = k.and_(low, tile - 1)
        high = k.and_(k.or_(low, distance), tile - 1)
        # Runs take turns in rising and falling, but the last one, a block, rises.
        falls = k.and_(k.shr(k.and_(low, self.last_place), k.and_(run, 31)), 1)
        ones = [held.load(low) for held in self.held]
        others = [held.load(high) for held in self.held]
        swaps = k.ne(k.convert(self._is_after(ones, others), U32), falls)
        with k.when(swaps):
            for held, one, other in zip(self.held, ones, others, strict=True):
                held.store(low, other)
                held.store(high, one)

    def _is_after(self, a: Sequence[Value], b: Sequence[Value]) -> Value:
        k = self.k
        after = k.gt(a[-1], b[-1])
        for one, other in reversed(list(zip(a[:-1], b[:-1], strict=True))):
            level = k.logical_and(k.eq(one, other), after)
            after = k.logical_or(k.gt(one, other), level)
        return after

    def _deliver(self, number: Value) -> None:
        k = self.k
        block, place, first = self._where(number)
        wanted = k.logical_and(k.lt(block, self.all_blocks), k.lt(place, self.kept))
        with k.when(wanted):
            at = k.add(k.mul(block, self.kept), place)
            bound: Size = k.mul(self.all_blocks, self.kept)
            came = self.held[-1].load(number)
            listed = k.add(first, came)
            if self.payload is not None:
                index = self._source(block, first, came)
                listed = k.load(self.payload, U32, index, self.total)
            for pointer, held in zip(self.keys_out, self.held, strict=False):
                k.store(pointer, U32, at, held.load(number), bound)
            k.store(self.out, U32, at, listed, bound)
