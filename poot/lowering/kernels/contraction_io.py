"""What every contraction kernel shares: sizes, places, and moving elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import CHUNK, Contraction, Side, Walk
from poot.lowering.kernels.elements import (
    clamped_index,
    load_run,
    store_element,
    store_run,
)
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.region import Dim
from poot.lowering.program import Access
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value, Variable
from poot.lowering.spirv.types import F32, F64, I32, I64, U32, U64, ScalarType


def accumulator(dtype: DType) -> ScalarType:
    """The type in which products are summed."""
    if dtype.is_float:
        return F64 if dtype.itemsize == 8 else F32
    if dtype.itemsize == 8:
        return I64 if dtype.is_signed else U64
    return I32 if dtype.is_signed else U32


class Frame:
    """The kernel under construction, with its operands, sizes and workgroup's place."""

    def __init__(
        self,
        name: str,
        info: DeviceInfo,
        problem: Contraction,
        workgroup: int,
    ) -> None:
        self.k = k = KernelBuilder(name, info, (workgroup, 1, 1))
        self.problem = problem
        left, right, target = problem.left, problem.right, problem.target
        self._left = k.operand("left", Access.READ, indirect=left.indirect)
        self._right = k.operand("right", Access.READ, indirect=right.indirect)
        if problem.choice is not None:
            indirect = problem.choice.indirect
            self._choice = k.operand("choice", Access.READ, indirect=indirect)
        self._target = k.operand("target", Access.WRITE, indirect=target.indirect)
        self.sum_type = accumulator(target.dtype)
        self.m, self.n = self.size(problem.m), self.size(problem.n)

    def size(self, dim: Dim) -> Size:
        return dim if isinstance(dim, int) else self.k.metadata(dim.number)

    def place(self, walk: Walk, index: Size) -> Size:
        """Where the element at `index` of a walk stands."""
        k = self.k
        place: Size = 0
        for axis in reversed(range(len(walk.strides))):
            stride = self.size(walk.strides[axis])
            at = index
            if axis > 0:
                size = self.size(walk.sizes[axis])
                at, index = k.index_rem(index, size), k.index_div(index, size)
            place = k.add(place, k.mul(at, stride))
        return place

    @contextmanager
    def workgroup(self, tiles: Size) -> Iterator[Size]:
        """The tile that the workgroup computes, one of `tiles` a batch and split.

        Workgroups of the folded grid that are past the end skip the block.
        """
        k, problem = self.k, self.problem
        sizes = [self.size(dim) for dim in problem.batch]
        batches: Size = 1
        for size in sizes:
            batches = k.mul(batches, size)
        number = k.workgroup_index()
        total = k.mul(k.mul(batches, problem.splits), tiles)
        with k.when(k.lt(number, total)):
            self._enter(k.index_div(number, tiles), batches, sizes)
            yield k.index_rem(number, tiles)

    def _enter(self, group: Size, batches: Size, sizes: Sequence[Size]) -> None:
        """Find the split and batch at hand; group = split * batches + batch."""
        k, problem = self.k, self.problem
        split = k.index_div(group, batches)
        batch = k.index_rem(group, batches)
        span, depth = self.size(problem.span), self.size(problem.k)
        self.start = k.mul(split, span)
        self.depth = k.min(k.sub(depth, self.start), span)
        if problem.splits == 1:
            self.start, self.depth = 0, depth
        places = self._places(batch, sizes)
        self.left = Reader(self, problem.left, self._left, places)
        self.right = Reader(self, problem.right, self._right, self._chosen(places))
        base = k.mul(split, self.size(problem.target.split))
        for place, stride in zip(places, problem.target.batch, strict=True):
            base = k.add(base, k.mul(place, self.size(stride)))
        self._base = base

    def _chosen(self, places: list[Size]) -> list[Size]:
        """The right operand's place along each batch axis."""
        k, choice = self.k, self.problem.choice
        if choice is None:
            return places
        row = places[0] if places else 0
        at = k.add(self.size(choice.offset), k.mul(row, self.size(choice.stride)))
        bound = self.size(choice.bound)
        found = load_element(k, self._choice, choice.dtype, k.value(at), bound)
        index = clamped_index(k, found, choice.dtype, self.size(choice.count))
        return [index, *places[1:]]

    def _places(self, batch: Size, sizes: Sequence[Size]) -> list[Size]:
        """The place along each batch axis."""
        places: list[Size] = []
        for size in reversed(sizes[1:]):
            places.append(self.k.index_rem(batch, size))
            batch = self.k.index_div(batch, size)
        if sizes:
            places.append(batch)
        return places[::-1]

    def zeros(self, count: int) -> list[Variable]:
        zero = self.k.const(self.sum_type, 0)
        return [self.k.variable(self.sum_type, zero) for _ in range(count)]

    def accumulate(self, sum: Variable, a: Value, b: Value) -> None:
        sum.store(self.k.add(sum.load(), self.k.mul(a, b)))

    def store(self, row: Size, column: Size, values: Sequence[Value]) -> None:
        """Write neighbouring columns of a row, those that exist."""
        k, target = self.k, self.problem.target
        values = [self._without_sign(value) for value in values]
        bound = self.size(target.bound)
        start = k.add(self._base, self.place(target.row, row))
        with k.when(k.lt(k.value(row), self.m)):
            if target.vector and len(values) == CHUNK:
                with k.when(k.lt(k.value(column), self.n)):
                    at = k.value(k.add(start, self.place(target.column, column)))
                    store_run(k, self._target, target.dtype, at, values, bound)
                return
            for lane, value in enumerate(values):
                here = k.add(column, lane)
                with k.when(k.lt(k.value(here), self.n)):
                    at = k.value(k.add(start, self.place(target.column, here)))
                    store_element(k, self._target, target.dtype, at, value, bound)

    def _without_sign(self, sum: Value) -> Value:
        """+0 for -0: some drivers drop the +0 that sums start from, others do not."""
        if not self.sum_type.is_float:
            return sum
        zero = self.k.const(self.sum_type, 0)
        return self.k.select(self.k.eq(sum, zero), zero, sum)


class Reader:
    """Reads elements of one operand in the batch and split at hand."""

    def __init__(
        self, frame: Frame, side: Side, pointer: Pointer, places: Sequence[Size]
    ) -> None:
        k = frame.k
        self._frame = frame
        self._side = side
        self._pointer = pointer
        self._bound = frame.size(side.bound)
        base = frame.size(side.offset)
        for place, stride in zip(places, side.batch, strict=True):
            base = k.add(base, k.mul(place, frame.size(stride)))
        self._base = base

    @property
    def vector(self) -> str:
        return self._side.vector

    def _outer_place(self, outer: Size) -> Size:
        place = self._frame.place(self._side.outer, outer)
        return self._frame.k.add(self._base, place)

    def find(self, outers: Sequence[Size]) -> None:
        """Before a loop: find rows or columns whose places take divisions to find."""
        if len(self._side.outer.strides) > 1:
            for outer in outers:
                self._outer_place(outer)

    def _at(self, outer: Size, inner: Size) -> Size:
        k, frame = self._frame.k, self._frame
        place = frame.place(self._side.inner, k.add(frame.start, inner))
        return k.add(self._outer_place(outer), place)

    def element(self, outer: Size, inner: Size) -> Value:
        """One element; some other one where the place is outside the operand."""
        k, dtype = self._frame.k, self._side.dtype
        at = k.value(self._at(outer, inner))
        return self._widened(load_element(k, self._pointer, dtype, at, self._bound))

    def run(self, outer: Size, inner: Size) -> list[Value]:
        """CHUNK elements side by side along the axis that `vector` names."""
        k, dtype = self._frame.k, self._side.dtype
        at = k.value(self._at(outer, inner))
        run = load_run(k, self._pointer, dtype, at, CHUNK, self._bound)
        return [self._widened(value) for value in run]

    def along_inner(self, outer: Size, inner: Size) -> list[Value]:
        """(outer, inner), (outer, inner + 1), …: CHUNK of them."""
        if self.vector == "inner":
            return self.run(outer, inner)
        k = self._frame.k
        return [self.element(outer, k.add(inner, i)) for i in range(CHUNK)]

    def along_outer(self, outer: Size, inner: Size) -> list[Value]:
        """(outer, inner), (outer + 1, inner), …: CHUNK of them."""
        if self.vector == "outer":
            return self.run(outer, inner)
        k = self._frame.k
        return [self.element(k.add(outer, o), inner) for o in range(CHUNK)]

    def block(self, outer: Size, inner: Size) -> list[list[Value]]:
        """CHUNK x CHUNK elements, by k and then by row or column."""
        k = self._frame.k
        steps = range(CHUNK)
        if self.vector == "outer":
            return [self.run(outer, k.add(inner, i)) for i in steps]
        rows = [self.along_inner(k.add(outer, o), inner) for o in steps]
        return [list(column) for column in zip(*rows, strict=True)]

    def _widened(self, value: Value) -> Value:
        """To the type in which products are summed."""
        k, wanted = self._frame.k, self._frame.sum_type
        return value if value.ty is wanted else k.convert(value, wanted)
