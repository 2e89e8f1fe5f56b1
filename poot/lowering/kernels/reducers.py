"""What combines the elements of a reduction: start, lift, combine, finish.

Between `lift` and `finish` a reduction is a tuple of Values, its carriers, each of 32
or 64 bits. Largest and smallest floats are found as integers whose order is that of the
floats, with -0 before +0 and NaN beyond all, so that one instruction combines them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.op import Op
from poot.core.ops.elementwise import BinaryOp
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.lowering.kernels.math import lower_binary, round_to
from poot.lowering.kernels.memory import form
from poot.lowering.spirv.builder import KernelBuilder, Size, Value
from poot.lowering.spirv.types import F32, F64, I32, I64, U32, U64, ScalarType

Carriers = tuple[Value, ...]
_DTYPES = {
    F32: dtypes.float32,
    F64: dtypes.float64,
    I32: dtypes.int32,
    I64: dtypes.int64,
    U32: dtypes.uint32,
    U64: dtypes.uint64,
}
# So many parts in shared memory every invocation combines by itself.
_LINEAR = 8
_SIGN = 0x7FFFFFFF


class Reducer(ABC):
    """One kind of reduction on one dtype."""

    # The subgroup operation that does what `combine` does, if there is one.
    subgroup: str | None = None

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    @property
    @abstractmethod
    def types(self) -> tuple[ScalarType, ...]:
        """Of the carriers."""

    @abstractmethod
    def start(self, k: KernelBuilder) -> Carriers:
        """The carriers that change nothing."""

    @abstractmethod
    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        """Of one element, in compute form, at a place along the axis (a u32)."""

    @abstractmethod
    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        """Of two parts; `a` need not come before `b`."""

    @abstractmethod
    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        """The result in compute form, rounded to its dtype."""

    @property
    def carrier_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the carriers, where these are stored as they are."""
        return tuple(_DTYPES[ty] for ty in self.types)

    @property
    def part_dtypes(self) -> tuple[DType, ...]:
        """The dtypes in which a part is stored until all are combined."""
        return self.carrier_dtypes

    def parts(self, k: KernelBuilder, carriers: Carriers) -> Carriers:
        """What is stored of a part."""
        return carriers


class Fold(Reducer):
    """Sums and products."""

    def __init__(self, op: BinaryOp, dtype: DType) -> None:
        super().__init__(dtype)
        self._op = op
        self.subgroup = op.value

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return (form(self.dtype),)

    def start(self, k: KernelBuilder) -> Carriers:
        # A sum starts at +0, so that one of -0 alone is +0, as in JAX.
        neutral = 0 if self._op is BinaryOp.ADD else 1
        return (k.const(self.types[0], neutral),)

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        return (value,)

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        function = k.add if self._op is BinaryOp.ADD else k.mul
        return (function(a[0], b[0]),)

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        (total,) = carriers
        if self._op is BinaryOp.ADD and self.dtype.is_float:
            # Mesa 25 takes 0 + x for x where it unrolls a loop of one trip.
            zero = k.const(total.ty, 0)
            total = k.select(k.eq(total, zero), zero, total)
        return round_to(k, total, self.dtype)


class Truth(Reducer):
    """Whether any or all are true; also the largest and smallest truth value."""

    def __init__(self, any: bool) -> None:
        super().__init__(dtypes.bool_)
        self.subgroup = "or" if any else "and"

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return (U32,)

    def start(self, k: KernelBuilder) -> Carriers:
        return (k.u32(0 if self.subgroup == "or" else 1),)

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        return (k.convert(value, U32),)

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        function = k.or_ if self.subgroup == "or" else k.and_
        return (function(a[0], b[0]),)

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        return k.ne(carriers[0], 0)


def _ordered(k: KernelBuilder, value: Value) -> Value:
    """An f32 as an i32 of the same order, and back."""
    bits = k.bitcast(value, I32)
    return k.xor(bits, k.and_(k.sar(bits, 31), _SIGN))


def _worst(k: KernelBuilder, ty: ScalarType, largest: bool) -> Value:
    """What no number loses against, where the largest or the smallest one wins."""
    if ty.is_float:
        return k.const(ty, float("-inf" if largest else "inf"))
    low, high = 0, (1 << ty.bits) - 1
    if ty.is_signed:
        low, high = -(1 << ty.bits - 1), (1 << ty.bits - 1) - 1
    return k.const(ty, low if largest else high)


class Extreme(Reducer):
    """The largest or smallest of integers, or of floats in 32 bits."""

    def __init__(self, largest: bool, dtype: DType) -> None:
        super().__init__(dtype)
        self.subgroup = "max" if largest else "min"
        self._largest = largest

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return (I32,) if self.dtype.is_float else (form(self.dtype),)

    def start(self, k: KernelBuilder) -> Carriers:
        return (_worst(k, self.types[0], self._largest),)

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        if not self.dtype.is_float:
            return (value,)
        # Any NaN becomes the one that lies beyond all numbers.
        beyond = _SIGN if self._largest else -(1 << 31)
        nan = k.is_nan(value)
        return (k.select(nan, k.i32(beyond), _ordered(k, value)),)

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        return ((k.max if self._largest else k.min)(a[0], b[0]),)

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        if not self.dtype.is_float:
            return carriers[0]
        return k.bitcast(_ordered(k, k.bitcast(carriers[0], F32)), F32)

    @property
    def part_dtypes(self) -> tuple[DType, ...]:
        return (dtypes.float32,) if self.dtype.is_float else super().part_dtypes

    def parts(self, k: KernelBuilder, carriers: Carriers) -> Carriers:
        return (self.finish(k, carriers),)


class WideExtreme(Reducer):
    """The largest or smallest of f64."""

    def __init__(self, largest: bool, dtype: DType) -> None:
        super().__init__(dtype)
        self._op = BinaryOp.MAX if largest else BinaryOp.MIN

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return (F64,)

    def start(self, k: KernelBuilder) -> Carriers:
        return (_worst(k, F64, self._op is BinaryOp.MAX),)

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        return (value,)

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        return (lower_binary(k, self._op, a[0], b[0], self.dtype),)

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        return carriers[0]


class Position(Reducer):
    """Where the first largest or smallest element stands; a NaN is both."""

    def __init__(self, largest: bool, dtype: DType) -> None:
        super().__init__(dtype)
        self._largest = largest

    @property
    def types(self) -> tuple[ScalarType, ...]:
        if self.dtype.is_bool:
            return (U32, U32)
        if self.dtype.is_float and self.dtype.itemsize < 8:
            return (I32, U32)
        return (form(self.dtype), U32)

    def start(self, k: KernelBuilder) -> Carriers:
        """No place at all, which is later than every other and no better."""
        return (_worst(k, self.types[0], self._largest), k.u32((1 << 32) - 1))

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        if self.dtype.is_bool:
            return (k.convert(value, U32), place)
        if self.types[0] is not I32 or not self.dtype.is_float:
            return (value, place)
        # Both zeros are one number here, and all NaN.
        beyond = _SIGN if self._largest else -(1 << 31)
        order = k.select(k.eq(value, 0.0), k.i32(0), _ordered(k, value))
        return (k.select(k.is_nan(value), k.i32(beyond), order), place)

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        better, equal = self._compare(k, b[0], a[0])
        earlier = k.logical_and(equal, k.lt(b[1], a[1]))
        takes = k.logical_or(better, earlier)
        return tuple(k.select(takes, y, x) for x, y in zip(a, b, strict=True))

    def _compare(self, k: KernelBuilder, a: Value, b: Value) -> tuple[Value, Value]:
        """Whether `a` beats `b`, and whether they are level."""
        beats = k.gt(a, b) if self._largest else k.lt(a, b)
        level = k.eq(a, b)
        if a.ty is F64:
            a_nan, b_nan = k.is_nan(a), k.is_nan(b)
            beats = k.logical_or(beats, k.logical_and(a_nan, k.logical_not(b_nan)))
            level = k.logical_or(level, k.logical_and(a_nan, b_nan))
        return beats, level

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        return k.bitcast(carriers[1], I32)


def reducer(op: Op, dtype: DType) -> Reducer:
    """The reducer of a Reduce or ArgReduce on elements of `dtype`."""
    if isinstance(op, ArgReduce):
        return Position(op.op is ArgReduceOp.ARGMAX, dtype)
    assert isinstance(op, Reduce)
    if op.op in (ReduceOp.SUM, ReduceOp.PROD):
        fold = BinaryOp.ADD if op.op is ReduceOp.SUM else BinaryOp.MUL
        return Fold(fold, dtype)
    if dtype.is_bool:
        return Truth(op.op in (ReduceOp.ANY, ReduceOp.MAX))
    largest = op.op is ReduceOp.MAX
    return (WideExtreme if dtype is dtypes.float64 else Extreme)(largest, dtype)


@dataclass(frozen=True, slots=True)
class Team:
    """The invocations that reduce together: whole subgroups, or the workgroup.

    `size` invocations of a workgroup of `workgroup`; a team of one subgroup or less
    needs no shared memory where the device has subgroup operations.
    """

    size: int
    workgroup: int


def reduce_team(
    k: KernelBuilder, team: Team, reducer: Reducer, carriers: Carriers
) -> Carriers:
    """The combination over the team, given to all of its invocations.

    Every invocation of the workgroup must get here.
    """
    info = k.info
    width = info.subgroup_size
    inside = min(width, team.size)
    if not (info.subgroup_arithmetic and info.subgroup_shuffle):
        return _by_shared(k, team, reducer, carriers, 1)
    if reducer.subgroup and len(carriers) == 1 and inside == width:
        carriers = (k.subgroup_reduce(reducer.subgroup, carriers[0]),)
    else:
        step = 1
        while step < inside:
            other = tuple(k.subgroup_shuffle_xor(c, step) for c in carriers)
            carriers = reducer.combine(k, carriers, other)
            step *= 2
    if team.size <= width:
        return carriers
    return _by_shared(k, team, reducer, carriers, width)


def _by_shared(
    k: KernelBuilder, team: Team, reducer: Reducer, carriers: Carriers, width: int
) -> Carriers:
    """Through shared memory; groups of `width` invocations hold equal carriers."""
    local = k.local_index()
    place = k.index_div(local, width)
    arrays = [k.shared(c.ty, team.workgroup // width) for c in carriers]

    def keep(carriers: Carriers, condition: Value) -> None:
        with k.when(condition):
            for array, carrier in zip(arrays, carriers, strict=True):
                array.store(place, carrier)
        k.barrier()

    def kept(number: Size) -> Carriers:
        return tuple(array.load(number) for array in arrays)

    keep(carriers, k.lt(k.index_rem(local, width), 1))
    parts = team.size // width
    number = k.index_rem(place, parts)
    while parts > _LINEAR:
        parts //= 2
        carriers = reducer.combine(k, kept(place), kept(k.add(place, parts)))
        k.barrier()
        first_half = k.lt(number, parts)
        keep(carriers, k.logical_and(first_half, k.lt(k.index_rem(local, width), 1)))
    first = k.sub(place, number)
    carriers = kept(first)
    for part in range(1, parts):
        carriers = reducer.combine(k, carriers, kept(k.add(first, part)))
    k.barrier()
    return carriers
