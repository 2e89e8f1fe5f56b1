"""What every contraction kernel shares: sizes, places, and moving elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.lowering.kernels.contraction import (
    CHUNK,
    Contraction,
    Prologue,
    Side,
    Walk,
    Work,
)
from poot.lowering.kernels.contraction_finish import Finish, neighbours
from poot.lowering.kernels.contraction_prologue import KeptRows, run_prologue
from poot.lowering.kernels.coordinates import Coordinates, Linear
from poot.lowering.kernels.elements import (
    clamped_index,
    load_run,
    store_element,
    store_run,
)
from poot.lowering.kernels.math import cast, form
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.operands import Operands, SharedOperands
from poot.lowering.kernels.region import Dim
from poot.lowering.program import Access
from poot.lowering.spirv.builder import (
    KernelBuilder,
    Pointer,
    Shared,
    Size,
    Value,
    Variable,
)
from poot.lowering.spirv.types import F32, ScalarType


def accumulated(dtype: DType) -> DType:
    """The dtype in which the products of a contraction to `dtype` are summed."""
    if dtype.is_float:
        return dtype.compute
    if dtype.itemsize == 8:
        return dtype
    return dtypes.int32 if dtype.is_signed else dtypes.uint32


def accumulator(dtype: DType) -> ScalarType:
    """The same as a type of kernels."""
    return form(accumulated(dtype))


class Kept(NamedTuple):
    """The left operand in shared memory."""

    rows: Shared
    prologue: Prologue


class Frame:
    """One contraction of a kernel under construction, with the workgroup's place."""

    def __init__(
        self,
        k: KernelBuilder,
        problem: Contraction,
        left: Pointer | Kept,
        operands: Operands,
    ) -> None:
        self.k = k
        self.problem = problem
        target = problem.target
        self._left = left
        self._rights = [
            operands.operand("right", Access.READ, indirect=right.indirect)
            for right in problem.rights
        ]
        if problem.choice is not None:
            indirect = problem.choice.indirect
            self._choice = operands.operand("choice", Access.READ, indirect=indirect)
        if problem.epilogue is None:
            self._target = operands.operand(
                "target", Access.WRITE, indirect=target.indirect
            )
        else:
            self._finish = Finish(k, problem.epilogue, problem.landings, operands)
        self.sum_type = accumulator(target.dtype)
        self.m, self.n = self.size(problem.m), self.size(problem.n)
        self._sizes = [self.size(dim) for dim in problem.batch]
        self._batches: Size = 1
        for size in self._sizes:
            self._batches = k.mul(self._batches, size)

    def size(self, dim: Dim) -> Size:
        return dim if isinstance(dim, int) else self.k.metadata(dim.number)

    def place(self, walk: Walk, index: Size) -> Size:
        """Where the element at `index` of a walk stands."""
        k = self.k
        place: Size = 0
        for at, stride in self._along(walk, index):
            place = k.add(place, k.mul(at, stride))
        return place

    def _along(self, walk: Walk, index: Size) -> Iterator[tuple[Size, Size]]:
        """The place along each axis of a walk, last axis first, and its stride."""
        k = self.k
        for axis in reversed(range(len(walk.strides))):
            stride = self.size(walk.strides[axis])
            at = index
            if axis > 0:
                size = self.size(walk.sizes[axis])
                at, index = k.index_rem(index, size), k.index_div(index, size)
            yield at, stride

    def groups(self, tiles: Size) -> Size:
        """Workgroups of the contraction, with `tiles` of them a batch and split."""
        return self.k.mul(self.k.mul(self._batches, self.problem.splits), tiles)

    def enter(self, group: Size) -> None:
        """Find the split and batch at hand; group = split * batches + batch."""
        k, problem = self.k, self.problem
        split = k.index_div(group, self._batches)
        batch = k.index_rem(group, self._batches)
        span, depth = self.size(problem.span), self.size(problem.k)
        self.start = k.mul(split, span)
        self.depth = k.min(k.sub(depth, self.start), span)
        if problem.splits == 1:
            self.start, self.depth = 0, depth
        places = self._places(batch)
        self.left: Reader | KeptRows
        if isinstance(self._left, Kept):
            rows, prologue = self._left
            self.left = KeptRows(k, rows, prologue, self.start)
        else:
            self.left = Reader(self, problem.left, self._left, places)
        chosen = self._chosen(places)
        self.rights = [
            Reader(self, side, pointer, chosen)
            for side, pointer in zip(problem.rights, self._rights, strict=True)
        ]
        self._split, self._at_batch = split, places

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

    def _places(self, batch: Size) -> list[Size]:
        """The place along each batch axis."""
        places: list[Size] = []
        for size in reversed(self._sizes[1:]):
            places.append(self.k.index_rem(batch, size))
            batch = self.k.index_div(batch, size)
        if self._sizes:
            places.append(batch)
        return places[::-1]

    def zeros(self, count: int) -> list[Variable]:
        zero = self.k.const(self.sum_type, 0)
        return [self.k.variable(self.sum_type, zero) for _ in range(count)]

    def accumulate(self, sum: Variable, a: Value, b: Value) -> None:
        """Add a product, rounded with the sum only where the device does that."""
        k = self.k
        if self.sum_type is F32 and k.info.fused_multiply_add32:
            sum.store(k.fma(a, b, sum.load()))
        else:
            sum.store(k.add(sum.load(), k.mul(a, b)))

    # --- results ------------------------------------------------------------

    def store(self, row: Size, column: Size, heads: Sequence[Sequence[Value]]) -> None:
        """Write what the sums of each head are at neighbouring columns of a row.

        Rows and columns that do not exist are left out.
        """
        k, target = self.k, self.problem.target
        sums = [[self._without_sign(value) for value in values] for values in heads]
        with k.when(k.lt(k.value(row), self.m)):
            if self.problem.epilogue is not None:
                with k.when(k.lt(k.value(column), self.n)):
                    self._complete(k.value(row), k.value(column), sums)
                return
            base = k.mul(self._split, self.size(target.split))
            for place, stride in zip(self._at_batch, target.batch, strict=True):
                base = k.add(base, k.mul(place, self.size(stride)))
            for head, values in enumerate(sums):
                start = k.add(base, k.mul(head, self.size(target.head)))
                start = k.add(start, self.place(target.row, row))
                self._write(start, column, values)

    def _write(self, start: Size, column: Size, values: Sequence[Value]) -> None:
        k, target = self.k, self.problem.target
        bound = self.size(target.bound)
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

    def _complete(
        self, row: Value, column: Value, heads: Sequence[Sequence[Value]]
    ) -> None:
        """Give the sums to the epilogue, rounded as results of their own are."""
        k, target, lanes = self.k, self.problem.target, len(heads[0])
        coordinates = Coordinates(k, lanes)
        base = Linear()
        for at, dim in zip(self._at_batch, target.batch, strict=True):
            base = base.plus(coordinates.linear(at).times(_known(dim)))
        base = base.plus(self._linear(coordinates, target.row, row))
        if lanes == CHUNK:
            coordinates.note_multiple(column, CHUNK)
        first = self._linear(coordinates, target.column, column)
        steps = [first]
        stride = _known(target.column.strides[-1]) if target.column.strides else 0
        for lane in range(1, lanes):
            if target.keeps_chunks:
                steps.append(first.plus(Linear((), stride * lane)))
            else:
                here = k.value(k.add(column, lane))
                steps.append(self._linear(coordinates, target.column, here))
        whole = target.vector and lanes == CHUNK
        ragged = lanes > 1 and not (isinstance(self.n, int) and self.n % lanes == 0)
        inside = [
            k.lt(k.value(k.add(column, lane)), self.n) if ragged and lane else None
            for lane in range(lanes)
        ]
        given = accumulated(target.dtype)
        packs = [
            tuple(cast(k, value, given, target.dtype) for value in values)
            for values in heads
        ]
        places = neighbours(coordinates, base, steps)
        self._finish.store(coordinates, places, packs, inside, whole)

    def _linear(self, coordinates: Coordinates, walk: Walk, index: Size) -> Linear:
        """Where the element at `index` of a walk stands."""
        place = Linear()
        for at, stride in self._along(walk, index):
            assert isinstance(stride, int)
            if stride == 1 and isinstance(at, Value):
                multiple = coordinates.multiple(self.k.value(index))
                coordinates.note_multiple(at, CHUNK if multiple % CHUNK == 0 else 1)
            place = place.plus(coordinates.linear(at).times(stride))
        return place

    def _without_sign(self, sum: Value) -> Value:
        """+0 for -0: some drivers drop the +0 that sums start from, others do not."""
        if not self.sum_type.is_float:
            return sum
        zero = self.k.const(self.sum_type, 0)
        return self.k.select(self.k.eq(sum, zero), zero, sum)


def _known(dim: Dim) -> int:
    """A size of a contraction with an epilogue, whose kernel serves one shape."""
    assert isinstance(dim, int)
    return dim


def frames(k: KernelBuilder, work: Work) -> list[Frame]:
    """The contractions that a kernel computes; the left operand is made first."""
    left: Pointer | Kept
    if work.prologue is None:
        indirect = work.parts[0].left.indirect
        left = k.operand("left", Access.READ, indirect=indirect)
    else:
        left = Kept(run_prologue(k, work.prologue), work.prologue)
    operands = SharedOperands(k, work.firsts)
    return [Frame(k, problem, left, operands) for problem in work.parts]


def tasks(
    k: KernelBuilder, all_frames: Sequence[Frame], tiles: Callable[[Frame], Size]
) -> Iterator[tuple[Frame, Size]]:
    """Each contraction with the tile of it that the workgroup computes, in a block.

    There are `tiles` of them a batch and split; workgroups are dealt out to the
    contractions in turn. Those of the folded grid that are past the end do nothing.
    """
    number = k.workgroup_index()
    for frame in all_frames:
        each = tiles(frame)
        total = frame.groups(each)
        with k.when(k.lt(number, total)):
            frame.enter(k.index_div(number, each))
            yield frame, k.index_rem(number, each)
        if frame is not all_frames[-1]:
            # Wraps where the number was lower, and then is past all totals.
            number = k.value(k.sub(number, total))


def move_up(sums: Sequence[Sequence[Sequence[Variable]]], rows: int) -> None:
    """Put the sums of each row in the place of those `rows` before it."""
    for target, source in zip(sums, sums[rows:], strict=False):
        for into, head in zip(target, source, strict=True):
            for variable, sum in zip(into, head, strict=True):
                variable.store(sum.load())


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

    def along(self, outer: Size, inner: Size, count: int) -> list[Value]:
        """`count` elements along k, of which CHUNK or more are loaded at once."""
        k = self._frame.k
        if self.vector == "inner" and count <= self._side.run:
            at = k.value(self._at(outer, inner))
            dtype, bound = self._side.dtype, self._bound
            run = load_run(k, self._pointer, dtype, at, count, bound)
            return [self._widened(value) for value in run]
        runs = [
            self.along_inner(outer, k.add(inner, skip))
            for skip in range(0, count, CHUNK)
        ]
        return [value for run in runs for value in run]

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
