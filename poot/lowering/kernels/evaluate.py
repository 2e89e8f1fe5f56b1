"""Computes values of a Region at an index, on demand.

Each step is asked for the elements that the lanes need and asks its operands in turn.
A value that was computed at an index is not computed there again. Operands are asked
for by `yield`, so that a long chain of steps needs no deep recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from poot.core.dtypes import DType, Scalar
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.index_dims import GatherDims
from poot.lowering.kernels.constants import literal
from poot.lowering.kernels.coordinates import (
    ZERO,
    Coordinate,
    Coordinates,
    Lanes,
    Strided,
)
from poot.lowering.kernels.elements import clamped_index
from poot.lowering.kernels.elementwise import (
    apply_lanes,
    counted,
    piece,
    together,
)
from poot.lowering.kernels.index import SCALAR_INDEX, Block, Index, IndexMaps
from poot.lowering.kernels.memory import ChunkMemory, form
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import (
    Apply,
    Border,
    Count,
    Dim,
    Edge,
    Given,
    Join,
    Load,
    Mirror,
    Part,
    Permute,
    PutTogether,
    Ref,
    Region,
    Regroup,
    Repeat,
    Rotate,
    Source,
    Step,
    Stretch,
    Take,
    TakeApart,
    TakeWindow,
    Window,
)
from poot.lowering.spirv.builder import Pointer, Size, Value
from poot.lowering.spirv.types import U32, U64

# Sizes in metadata are below this.
SIZE_LIMIT = 1 << 31

Wish = tuple[Ref, Index]
Steps = Generator[Wish, Pack, Pack]
GivenValue = Callable[[Index], Pack]


class Evaluator:
    """Evaluates the steps of one Region inside one kernel."""

    def __init__(
        self,
        coordinates: Coordinates,
        region: Region,
        pointers: Sequence[Pointer],
        given: Sequence[GivenValue] = (),
    ) -> None:
        self.coordinates = coordinates
        self.k = coordinates.k
        self.region = region
        self.maps = IndexMaps(coordinates)
        self.memory = ChunkMemory(coordinates)
        self._pointers = pointers
        self._given = given
        # What is known in each open block, innermost last.
        self._known: list[dict[Wish, Pack]] = [{}]
        self._rules: dict[type, Callable[[Any, Step, Index], Steps | Pack]] = {
            Load: self._load,
            Given: self._hold,
            Apply: self._apply,
            Part: self._part,
            Repeat: self._repeat,
            Permute: self._permute,
            Regroup: self._regroup,
            Stretch: self._stretch,
            Mirror: self._mirror,
            Border: self._border,
            Join: self._join,
            Count: self._count,
            Take: self._take,
            TakeWindow: self._take_window,
            Window: self._window,
            TakeApart: self._take_apart,
            PutTogether: self._put_together,
            Rotate: self._rotate,
        }

    # --- sizes --------------------------------------------------------------

    def size(self, dim: Dim) -> Size:
        if isinstance(dim, int):
            return dim
        word = self.k.metadata(dim.number, limit=SIZE_LIMIT)
        return self.coordinates.note_multiple(word, dim.multiple)

    def sizes(self, dims: Sequence[Dim]) -> tuple[Size, ...]:
        return tuple(self.size(dim) for dim in dims)

    def shape(self, ref: Ref) -> tuple[Size, ...]:
        return () if isinstance(ref, Scalar) else self.sizes(self._step(ref).shape)

    def dtype(self, ref: Ref) -> DType:
        return ref.dtype if isinstance(ref, Scalar) else self._step(ref).dtype

    def _step(self, ref: int) -> Step:
        return self.region.steps[ref]

    # --- driving ------------------------------------------------------------

    def value(self, ref: Ref, index: Index) -> Pack:
        """The elements of a value that the lanes of `index` look at."""
        wish = ref, index
        found = self._find(wish)
        return self._run(wish) if found is None else found

    def _run(self, wish: Wish) -> Pack:
        waiting: list[tuple[Wish, Steps]] = []
        while True:
            pack = self._find(wish)
            if pack is None:
                started = self._start(wish)
                if isinstance(started, Generator):
                    waiting.append((wish, started))
                    pack = None
                else:
                    pack = self._learn(wish, started)
            while waiting:
                try:
                    steps = waiting[-1][1]
                    wish = next(steps) if pack is None else steps.send(pack)
                    break
                except StopIteration as end:
                    pack = self._learn(waiting.pop()[0], end.value)
            else:
                assert pack is not None
                return pack

    def _start(self, wish: Wish) -> Steps | Pack:
        ref, index = wish
        if isinstance(ref, Scalar):
            return (literal(self.k, ref),)
        step = self._step(ref)
        return self._rules[type(step.action)](step.action, step, index)

    def _find(self, wish: Wish) -> Pack | None:
        for known in reversed(self._known):
            found = known.get(wish)
            if found is not None:
                return found
        return None

    def _learn(self, wish: Wish, pack: Pack) -> Pack:
        self._known[-1][wish] = pack
        return pack

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block of the kernel; what is computed in it is forgotten at its end."""
        self._known.append({})
        try:
            yield
        finally:
            self._known.pop()

    @contextmanager
    def _branch(self, condition: Value) -> Iterator[None]:
        with self.k.when(condition), self.scope():
            yield

    # --- operands and elementwise steps -------------------------------------

    def _load(self, action: Load, step: Step, index: Index) -> Pack:
        source = self.region.sources[action.source]
        return self.memory.load(
            self._pointers[source.pointer],
            source.dtype,
            self._place(source, index),
            self.size(source.bound),
            source.alignment,
        )

    def _place(self, source: Source, index: Index) -> Coordinate:
        """Where in its buffer an element of an operand stands."""
        return self.place(source.groups, source.offset, index)

    def place(
        self, groups: Sequence[tuple[int, Dim]], offset: Dim, index: Index
    ) -> Coordinate:
        """Where in its buffer an element stands, by strides of groups of axes."""
        at: Coordinate = self.coordinates.uniform(self.size(offset))
        axis = 0
        for count, stride in groups:
            if stride != 0:
                flat = self.maps.merged(index, axis, axis + count)
                step = self.coordinates.scale(flat, self.size(stride))
                at = self.coordinates.add(at, step)
            axis += count
        return at

    def _hold(self, action: Given, step: Step, index: Index) -> Pack:
        return self._given[action.number](index)

    def _apply(self, action: Apply, step: Step, index: Index) -> Steps:
        packs = []
        for ref in step.inputs:
            packs.append((yield ref, self.operand_index(ref, index)))
        given = self.dtype(step.inputs[-1])
        return apply_lanes(self.k, action.op, packs, given, step.dtype)

    def _part(self, action: Part, step: Step, index: Index) -> Steps:
        pack = yield step.inputs[0], index
        lanes = len(pack) // action.count
        return pack[action.number * lanes : (action.number + 1) * lanes]

    def operand_index(self, ref: Ref, index: Index) -> Index:
        """The index of an operand that is broadcast to the shape of `index`."""
        if isinstance(ref, Scalar):
            return SCALAR_INDEX
        shape = self.shape(ref)
        return index if shape == index.sizes else self.maps.broadcast(index, shape)

    # --- steps that move elements -------------------------------------------

    def _repeat(self, action: Repeat, step: Step, index: Index) -> Steps:
        ref = step.inputs[0]
        return (yield ref, self.operand_index(ref, index))

    def _permute(self, action: Permute, step: Step, index: Index) -> Steps:
        return (yield step.inputs[0], self.maps.transpose(index, action.perm))

    def _regroup(self, action: Regroup, step: Step, index: Index) -> Steps:
        ref = step.inputs[0]
        there = self.maps.reshape(index, self.shape(ref), action.groups)
        return (yield ref, there)

    def _stretch(self, action: Stretch, step: Step, index: Index) -> Steps:
        ref = step.inputs[0]
        size = self.shape(ref)[action.axis]
        start, stride = self.size(action.start), self.size(action.stride)
        return (yield ref, self.maps.stretch(index, action.axis, size, start, stride))

    def _mirror(self, action: Mirror, step: Step, index: Index) -> Steps:
        return (yield step.inputs[0], self.maps.reverse(index, action.axes))

    def _border(self, action: Border, step: Step, index: Index) -> Steps:
        ref, fill = step.inputs
        inside: list[Pack] = []
        for edge in action.edges:
            size = self.shape(ref)[edge.axis]
            index, masks = self._within(edge, size, index)
            inside += masks
        value = yield ref, index
        other = yield fill, SCALAR_INDEX
        return self._choose(inside, value, other)

    def _within(self, edge: Edge, size: Size, index: Index) -> tuple[Index, list[Pack]]:
        """The index inside a border along one axis, and where it is inside."""
        maps, coordinates = self.maps, self.coordinates
        low = self.size(edge.low)
        distance = coordinates.uniform(low) if edge.cut else self._negative(low)
        if edge.spread == 1:
            inside = maps.inside(index, edge.axis, distance, size)
            return maps.moved(index, edge.axis, size, distance), [inside]
        spread = self.size(edge.spread)
        at = coordinates.add(maps.axis(index, edge.axis), distance)
        reach = self.k.add(self.k.mul(self.k.sub(size, 1), spread), 1)
        place = coordinates.divide(at, spread)
        rest = coordinates.remainder(at, spread)
        masks = [coordinates.below(at, reach), coordinates.below(rest, 1)]
        return maps.with_axis(index, edge.axis, size, place), masks

    def _choose(self, inside: Sequence[Pack], value: Pack, other: Pack) -> Pack:
        """`value` where all of `inside` hold, else `other`."""
        k = self.k
        lanes = max(len(pack) for pack in (*inside, value, other))
        chosen = []
        for lane in range(lanes):
            truth = k.bool_(True)
            for mask in inside:
                truth = k.logical_and(truth, lane_of(mask, lane))
            chosen.append(k.select(truth, lane_of(value, lane), lane_of(other, lane)))
        return tuple(chosen)

    def _join(self, action: Join, step: Step, index: Index) -> Steps:
        k, maps = self.k, self.maps
        if len(step.inputs) == 1:
            return (yield step.inputs[0], index)
        lanes = 1 if index.is_uniform else self.coordinates.lanes
        kind = form(step.dtype)
        results = [k.variable(kind, k.bits(kind, 0)) for _ in range(lanes)]
        for ref, first in zip(step.inputs, action.starts, strict=True):
            distance = self._negative(self.size(first))
            size = self.shape(ref)[action.axis]
            inside = maps.inside(index, action.axis, distance, size)
            with self._branch(self._any(inside)):
                pack = yield ref, maps.moved(index, action.axis, size, distance)
                for lane, result in enumerate(results):
                    value = lane_of(pack, lane)
                    if len(inside) > 1:
                        value = k.select(inside[lane], value, result.load())
                    result.store(value)
        return tuple(result.load() for result in results)

    def _any(self, mask: Pack) -> Value:
        found = mask[0]
        for truth in mask[1:]:
            found = self.k.logical_or(found, truth)
        return found

    def _count(self, action: Count, step: Step, index: Index) -> Pack:
        at = self.maps.axis(index, action.axis)
        return self._numbers(at, step.dtype)

    def _numbers(self, at: Coordinate, dtype: DType) -> Pack:
        places = self.coordinates.distinct(at)
        return tuple(counted(self.k, place, dtype) for place in places)

    # --- steps that read where data says ------------------------------------

    def _take(self, action: Take, step: Step, index: Index) -> Steps:
        source, at = step.inputs
        axis, rank = action.axis, action.rank
        maps = self.maps
        wanted = yield at, Index(maps.take(index, axis, axis + rank))
        size = self.shape(source)[axis]
        place = self._clamped(wanted, self.dtype(at), size)
        value = yield (
            source,
            Index(
                (
                    *maps.take(index, 0, axis),
                    Block((size,), place),
                    *maps.take(index, axis + rank, len(index.sizes)),
                )
            ),
        )
        if action.fill is None:
            return value
        inside = tuple(self._is_below(each, size) for each in wanted)
        return self._choose([inside], value, (literal(self.k, action.fill),))

    def _take_window(self, action: TakeWindow, step: Step, index: Index) -> Steps:
        source, at = step.inputs
        dims, maps = action.dims, self.maps
        whole, window = self.shape(source), self.sizes(action.sizes)
        batch = maps.some(index, dims.batch_dims(len(index.sizes)))
        there = self._in_window(dims, index, len(window))
        for axis in action.fixed:
            there = maps.moved(there, axis, whole[axis], ZERO)
        inside: list[Pack] = []
        for component in action.components:
            axis = dims.start_index_map[component]
            place = self.coordinates.uniform(component)
            vector = Block((len(dims.start_index_map),), place)
            wanted = yield at, Index((*batch, vector))
            room = self.k.add(self.k.sub(whole[axis], window[axis]), 1)
            start = self._clamped(wanted, self.dtype(at), room)
            there = maps.moved(there, axis, whole[axis], start)
            inside.append(tuple(self._is_below(each, room) for each in wanted))
        value = yield source, there
        if action.fill is None:
            return value
        return self._choose(inside, value, (literal(self.k, action.fill),))

    def _in_window(self, dims: GatherDims, index: Index, ndim: int) -> Index:
        """The place in the window, whose sizes are not those of the operand yet."""
        vectors, kept = dims.batch_dims(len(index.sizes)), iter(dims.offset_dims)
        blocks: list[Block] = []
        run: list[int] = []
        for axis in range(ndim):
            if axis in dims.collapsed_slice_dims:
                blocks += [*self.maps.some(index, run), Block((1,), ZERO)]
                run = []
            elif axis in dims.operand_batching_dims:
                other = dims.operand_batching_dims.index(axis)
                run.append(vectors[dims.start_indices_batching_dims[other]])
            else:
                run.append(next(kept))
        return Index((*blocks, *self.maps.some(index, run)))

    def _window(self, action: Window, step: Step, index: Index) -> Steps:
        source, *starts = step.inputs
        whole = self.shape(source)
        block = index.sizes
        for axis, ref in zip(action.axes, starts, strict=True):
            wanted = yield ref, SCALAR_INDEX
            room = self.k.add(self.k.sub(whole[axis], block[axis]), 1)
            place = self._clamped(wanted, self.dtype(ref), room)
            index = self.maps.moved(index, axis, whole[axis], place)
        return (yield source, index)

    def _clamped(self, wanted: Pack, dtype: DType, size: Size) -> Coordinate:
        """Integers as a coordinate, the nearest below `size`."""
        values = tuple(clamped_index(self.k, v, dtype, size) for v in wanted)
        places = tuple(self.coordinates.linear(value) for value in values)
        return Strided(places[0], 0) if len(places) == 1 else Lanes(places)

    def _is_below(self, value: Value, size: Size) -> Value:
        """Whether an integer is in 0..size-1; negative ones are large if unsigned."""
        k = self.k
        if value.ty.scalar.bits == 64:
            return k.lt(k.bitcast(value, U64), k.convert(k.value(size), U64))
        return k.lt(k.bitcast(value, U32), size)

    # --- rotary embedding ---------------------------------------------------

    def _rotate(self, action: Rotate, step: Step, index: Index) -> Steps:
        """Each element by cos, and its partner, negated in the first of a pair, by sin.

        Elements behind those that are turned read a partner somewhere in the operand.
        """
        k, maps, dtype = self.k, self.maps, step.dtype
        x, cos, sin = step.inputs
        last = len(index.sizes) - 1
        at = maps.axis(index, last)
        place, first = self._in_pair(action, at)
        own = yield x, index
        partner = self._swapped(action, at, own)
        if partner is None:
            there = self._partner(action, at)
            partner = yield x, maps.with_axis(index, last, index.sizes[last], there)
        tables = []
        for ref in (cos, sin):
            table = maps.with_axis(index, last, self.shape(ref)[-1], place)
            tables.append((yield ref, self.operand_index(ref, table)))
        product = Binary(BinaryOp.MUL)
        straight = apply_lanes(k, product, (own, tables[0]), dtype, dtype)
        across = apply_lanes(k, product, (partner, tables[1]), dtype, dtype)
        negative = apply_lanes(k, Unary(UnaryOp.NEG), (across,), dtype, dtype)
        across = self._choose([first], negative, across)
        turned = apply_lanes(k, Binary(BinaryOp.ADD), (straight, across), dtype, dtype)
        if action.rotary == step.shape[-1]:
            return turned
        inside = self.coordinates.below(at, self.size(action.rotary))
        return self._choose([inside], turned, own)

    def _in_pair(self, action: Rotate, at: Coordinate) -> tuple[Coordinate, Pack]:
        """Where cos and sin of elements stand, and whether these lead their pairs."""
        maps, half = self.coordinates, self.size(action.half)
        if action.interleaved:
            place = at if action.wide else maps.divide(at, 2)
            return place, maps.below(maps.remainder(at, 2), 1)
        return at if action.wide else maps.remainder(at, half), maps.below(at, half)

    def _partner(self, action: Rotate, at: Coordinate) -> Coordinate:
        maps = self.coordinates
        half = self.size(action.half)
        if action.interleaved:
            pair = maps.scale(maps.divide(at, 2), 2)
            return maps.add(pair, maps.mirror(maps.remainder(at, 2), 1))
        other = maps.mirror(maps.divide(at, half), 1)
        return maps.add(maps.scale(other, half), maps.remainder(at, half))

    def _swapped(self, action: Rotate, at: Coordinate, own: Pack) -> Pack | None:
        """The partners of neighbouring elements, if the lanes hold whole pairs."""
        maps = self.coordinates
        if not action.interleaved or not isinstance(at, Strided) or at.step != 1:
            return None
        if maps.multiple(at.base) % 2 or len(own) % 2:
            return None
        return tuple(own[lane ^ 1] for lane in range(len(own)))

    # --- bits ---------------------------------------------------------------

    def _take_apart(self, action: TakeApart, step: Step, index: Index) -> Steps:
        ref = step.inputs[0]
        last = len(index.sizes) - 1
        whole = yield ref, Index(self.maps.take(index, 0, last))
        numbers = self.coordinates.distinct(self.maps.axis(index, last))
        given = self.dtype(ref)
        return tuple(
            piece(
                self.k, lane_of(whole, lane), lane_of(numbers, lane), given, step.dtype
            )
            for lane in range(max(len(whole), len(numbers)))
        )

    def _put_together(self, action: PutTogether, step: Step, index: Index) -> Steps:
        ref = step.inputs[0]
        packs = []
        for number in range(action.count):
            place = self.coordinates.uniform(number)
            last = Block((action.count,), place)
            packs.append((yield ref, Index((*index.blocks, last))))
        given = self.dtype(ref)
        return tuple(
            together(self.k, [lane_of(p, lane) for p in packs], given, step.dtype)
            for lane in range(max(len(pack) for pack in packs))
        )

    def _negative(self, size: Size) -> Coordinate:
        return self.coordinates.scale(self.coordinates.uniform(size), -1)
