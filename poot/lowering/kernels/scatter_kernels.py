"""Kernels that write rows of updates to rows of a target.

Each row of the updates has a key: the row of the target that it goes to; keys beyond
the last row mean none. A row is walked in units of `lanes` elements, which are loaded
and stored together. Sizes stand in the metadata, so that a kernel serves all shapes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.elementwise import BinaryOp
from poot.core.ops.scatter import ScatterOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import load_run, store_element, store_run
from poot.lowering.kernels.math import lower_binary, round_to
from poot.lowering.kernels.memory import form, load_element
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value
from poot.lowering.spirv.types import U32

# Rows, places and units are below this.
PLACES_END = 1 << 31
# So many rows may be asked one by one whether a later one has the same key.
MOST_ASKED = 64

_FUNCTIONS = {
    ScatterOp.ADD: BinaryOp.ADD,
    ScatterOp.MUL: BinaryOp.MUL,
    ScatterOp.MIN: BinaryOp.MIN,
    ScatterOp.MAX: BinaryOp.MAX,
}


class Repeats(enum.Enum):
    """How a kernel learns whether a key comes again."""

    NEVER = "never"  # no two keys are equal
    SORTED = "sorted"  # equal keys are neighbours
    ORDERED = "ordered"  # they are in the order that an operand lists
    ASKED = "asked"  # by a look at all later keys, which are few


def load_unit(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    unit: Value,
    lanes: int,
    units: Value,
) -> list[Value]:
    """The elements of unit number `unit` of `units`, in compute form."""
    if lanes == 1:
        return [load_element(k, pointer, dtype, unit, units)]
    return load_run(k, pointer, dtype, k.mul(unit, lanes), lanes, k.mul(units, lanes))


def store_unit(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    unit: Value,
    values: Sequence[Value],
    units: Value,
) -> None:
    """Write unit number `unit` of `units`, if there is one."""
    lanes = len(values)
    if lanes == 1:
        store_element(k, pointer, dtype, unit, values[0], units)
        return
    with k.when(k.lt(unit, units)):
        store_run(k, pointer, dtype, k.mul(unit, lanes), values, k.mul(units, lanes))


# --- the last of the updates ------------------------------------------------


@kernel_cache
def set_kernel(
    info: DeviceInfo,
    dtype: DType,
    lanes: int,
    repeats: Repeats,
    indirect: tuple[bool, bool],
    workgroup: int,
) -> Kernel:
    """Write each row whose key does not come again to the row of the target.

    Operands: keys, order if there is one, updates, target. Metadata: units a row, rows
    of the updates, rows of the target. `indirect` says whether the addresses of updates
    and target come through the table.
    """
    k = KernelBuilder(f"scatter_set_{dtype}", info, (workgroup, 1, 1))
    keys = k.operand("keys", Access.READ)
    ordered = repeats is Repeats.ORDERED
    order = k.operand("order", Access.READ) if ordered else None
    updates = k.operand("updates", Access.READ, indirect=indirect[0])
    target = k.operand("target", Access.WRITE, indirect=indirect[1])
    units, count, rows = (k.metadata(word, limit=PLACES_END) for word in range(3))
    width = k.max(units, 1)
    number = k.add(k.mul(k.workgroup_index(), workgroup), k.local_index())
    place, unit = k.index_div(number, width), k.index_rem(number, width)

    def source(place: Value) -> Value:
        return place if order is None else k.load(order, U32, place, count)

    with k.when(k.lt(place, count)):
        row = source(place)
        key = k.load(keys, U32, row, count)
        wanted = k.lt(key, rows)
        after = k.add(place, 1)
        if repeats in (Repeats.SORTED, Repeats.ORDERED):
            following = k.load(keys, U32, source(after), count)
            is_last = k.logical_or(k.ge(after, count), k.ne(following, key))
            wanted = k.logical_and(wanted, is_last)
        elif repeats is Repeats.ASKED:
            wanted = k.logical_and(wanted, _comes_no_more(k, keys, key, after, count))
        with k.when(wanted):
            at = k.add(k.mul(row, units), unit)
            values = load_unit(k, updates, dtype, at, lanes, k.mul(count, units))
            at = k.add(k.mul(key, units), unit)
            store_unit(k, target, dtype, at, values, k.mul(rows, units))
    return k.finish(f"{lanes} lanes, {workgroup} invocations, repeats {repeats.value}")


def _comes_no_more(
    k: KernelBuilder, keys: Pointer, key: Value, after: Value, count: Value
) -> Value:
    comes = k.variable(U32, 0)
    rest = k.sub(k.max(count, after), after)
    with k.loop(rest, max_trips=MOST_ASKED) as i:
        other = k.load(keys, U32, k.add(after, i), count)
        same = k.convert(k.eq(other, key), U32)
        comes.store(k.or_(comes.load(), same))
    return k.eq(comes.load(), 0)


# --- combinations of the updates --------------------------------------------


def carrier(dtype: DType) -> DType:
    """The dtype in which elements of `dtype` are combined."""
    if dtype.is_float:
        return dtypes.float64 if dtype.itemsize == 8 else dtypes.float32
    if dtype.itemsize == 8:
        return dtype
    return dtypes.int32 if dtype.is_signed else dtypes.uint32


@dataclass(frozen=True, slots=True)
class CombineProgram:
    """All that shapes the code of a combining kernel but its schedule."""

    op: ScatterOp
    # Of the target.
    dtype: DType
    # Of the updates: the target's, or the carrier of pieces.
    given: DType
    has_order: bool
    # Whether there is but one chunk, so that no piece is left.
    is_last: bool
    # Whether the addresses of updates and target come through the table.
    indirect: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class CombineSchedule:
    """An invocation walks a chunk of `rows` along one unit, `batch` rows at a time."""

    lanes: int
    rows: int
    batch: int
    workgroup: int

    def __str__(self) -> str:
        return (
            f"{self.lanes} lanes, chunks of {self.rows} rows, {self.batch} at a time, "
            f"{self.workgroup} invocations"
        )


def choose_combine_schedule(
    info: DeviceInfo, lanes: int, is_distinct: bool
) -> CombineSchedule:
    """The schedule; where no two keys are equal a chunk is one row."""
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    workgroup = min(64 if info.is_cpu else 128, most)
    if is_distinct:
        return CombineSchedule(lanes, 1, 1, workgroup)
    batch = 1 if info.is_cpu else max(1, 32 // max(lanes, 4))
    return CombineSchedule(lanes, 32, batch, workgroup)


@kernel_cache
def combine_kernel(
    info: DeviceInfo, program: CombineProgram, schedule: CombineSchedule
) -> Kernel:
    """Combine the rows of each chunk by key, in order, where equal keys are neighbours.

    What is between the first and the last key of a chunk is complete, and goes into the
    target. The first and the last combination, the pieces, are listed with their keys,
    in order, for the next level; a chunk of one key lists a second piece that changes
    nothing. Operands: keys, order if there is one, updates, target, and, unless the
    chunk is the only one, keys and elements of the pieces. Metadata: units a row, rows
    of the updates, rows of the target, chunks.
    """
    return _Combine(info, program, schedule).build()


class _Combine:
    """One combining kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: CombineProgram, schedule: CombineSchedule
    ) -> None:
        name = f"scatter_{program.op.value}_{program.dtype}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.program, self.schedule = program, schedule
        self.carrier = carrier(program.dtype)
        self.keys = k.operand("keys", Access.READ)
        self.order = k.operand("order", Access.READ) if program.has_order else None
        updates, target = program.indirect
        self.updates = k.operand("updates", Access.READ, indirect=updates)
        self.target = k.operand("target", Access.UPDATE, indirect=target)
        if not program.is_last:
            self.piece_keys = k.operand("piece_keys", Access.WRITE)
            self.pieces = k.operand("pieces", Access.WRITE)
        self.units, self.count, self.rows, self.chunks = (
            k.metadata(word, limit=PLACES_END) for word in range(4)
        )
        width = k.max(self.units, 1)
        number = k.add(k.mul(k.workgroup_index(), schedule.workgroup), k.local_index())
        self.chunk, self.unit = k.index_div(number, width), k.index_rem(number, width)

    def build(self) -> Kernel:
        k, schedule = self.k, self.schedule
        with k.when(k.lt(self.chunk, self.chunks)):
            first = k.mul(self.chunk, schedule.rows)
            self.key = k.variable(U32, self._key(first))
            # Whether the key is the first of the chunk.
            self.leads = k.variable(U32, 1)
            self.held = [
                k.variable(form(self.carrier), self._neutral())
                for _ in range(schedule.lanes)
            ]
            rounds = schedule.rows // schedule.batch
            with k.loop(rounds, unroll=False) as turn:
                self._take(k.add(first, k.mul(turn, schedule.batch)))
            self._end()
        return k.finish(str(schedule))

    def _source(self, place: Value) -> Value:
        """The row of the updates that comes at a place in the order."""
        if self.order is None:
            return place
        return self.k.load(self.order, U32, place, self.count)

    def _key(self, place: Value) -> Value:
        return self.k.load(self.keys, U32, self._source(place), self.count)

    # --- walking ------------------------------------------------------------

    def _take(self, first: Value) -> None:
        """Load the rows from a place on, all at once, and combine one by one."""
        k = self.k
        places = [k.add(first, i) for i in range(self.schedule.batch)]
        loaded = [(place, self._key(place), self._row(place)) for place in places]
        for place, key, values in loaded:
            inside = k.lt(place, self.count)
            key = k.select(inside, key, self.key.load())
            with k.when(k.ne(key, self.key.load())):
                self._complete()
                self.key.store(key)
                for held in self.held:
                    held.store(self._neutral())
            for held, value in zip(self.held, values, strict=True):
                value = k.select(inside, value, self._neutral())
                held.store(self._combined(held.load(), value))

    def _row(self, place: Value) -> list[Value]:
        """The unit of a row of the updates, ready to be combined."""
        k, given = self.k, self.program.given
        at = k.add(k.mul(self._source(place), self.units), self.unit)
        total = k.mul(self.count, self.units)
        values = load_unit(k, self.updates, given, at, self.schedule.lanes, total)
        return [self._lifted(value) for value in values]

    def _complete(self) -> None:
        """All rows of a key have been seen, unless it leads the chunk."""
        k = self.k
        if self.program.is_last:
            self._write()
            return
        with k.when(k.ne(self.leads.load(), 0)) as branch:
            self._list(0)
            self.leads.store(0)
        with branch.otherwise():
            self._write()

    def _end(self) -> None:
        k = self.k
        if self.program.is_last:
            self._write()
            return
        with k.when(k.ne(self.leads.load(), 0)):
            self._list(0)
            for held in self.held:
                held.store(self._neutral())
        self._list(1)

    # --- what comes out -----------------------------------------------------

    def _list(self, number: int) -> None:
        """Make what is held piece `number` of the chunk."""
        k = self.k
        place, total = k.add(k.mul(self.chunk, 2), number), k.mul(self.chunks, 2)
        with k.when(k.lt(self.unit, 1)):
            k.store(self.piece_keys, U32, place, self.key.load(), total)
        at = k.add(k.mul(place, self.units), self.unit)
        values = [held.load() for held in self.held]
        store_unit(k, self.pieces, self.carrier, at, values, k.mul(total, self.units))

    def _write(self) -> None:
        """Combine what is held with the row of the target, if there is one."""
        k, dtype = self.k, self.program.dtype
        key = self.key.load()
        with k.when(k.lt(key, self.rows)):
            at = k.add(k.mul(key, self.units), self.unit)
            total = k.mul(self.rows, self.units)
            before = load_unit(k, self.target, dtype, at, self.schedule.lanes, total)
            after = [
                self._lowered(self._combined(self._lifted(value), held.load()))
                for value, held in zip(before, self.held, strict=True)
            ]
            store_unit(k, self.target, dtype, at, after, total)

    # --- arithmetic ---------------------------------------------------------

    def _lifted(self, value: Value) -> Value:
        """An element in compute form, as what is combined."""
        return self.k.convert(value, U32) if value.ty.scalar.is_bool else value

    def _lowered(self, value: Value) -> Value:
        dtype = self.program.dtype
        return self.k.ne(value, 0) if dtype.is_bool else round_to(self.k, value, dtype)

    def _combined(self, a: Value, b: Value) -> Value:
        return lower_binary(self.k, _FUNCTIONS[self.program.op], a, b, self.carrier)

    def _neutral(self) -> Value:
        """What changes nothing that it is combined with."""
        op, dtype = self.program.op, self.carrier
        number: float
        if op is ScatterOp.ADD:
            number = -0.0 if dtype.is_float else 0
        elif op is ScatterOp.MUL:
            number = 1
        elif dtype.is_float:
            number = float("inf" if op is ScatterOp.MIN else "-inf")
        elif op is ScatterOp.MAX:
            number = -(1 << dtype.bits - 1) if dtype.is_signed else 0
        else:
            number = (1 << dtype.bits - (1 if dtype.is_signed else 0)) - 1
        return self.k.const(form(dtype), number)
