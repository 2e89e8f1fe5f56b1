"""What the kernels of attention have in common: operands, places, scores, softmax."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from poot.core import dtypes
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
    Visible,
)
from poot.lowering.kernels.contraction import CHUNK
from poot.lowering.kernels.coordinates import ZERO, Coordinates, Linear, Strided
from poot.lowering.kernels.elements import load_run
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.math import lower_binary, lower_unary
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.operands import source_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import Ref
from poot.lowering.program import Access
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value, Variable
from poot.lowering.spirv.types import F32, U32

# exp of less is 0 in f32.
_NO_POWER = -104.0
_MINUS_INFINITY = -math.inf


class Places:
    """Where what belongs to the batch at hand stands."""

    def __init__(self, k: KernelBuilder, program: AttentionProgram) -> None:
        self.k = k
        self.program = program
        self.batch: Size = 0

    def places(self, sizes: Sequence[int], flat: Size) -> list[Size]:
        """The place along each axis of a row-major number."""
        found: list[Size] = []
        for size in reversed(sizes[1:]):
            found.append(self.k.index_rem(flat, size))
            flat = self.k.index_div(flat, size)
        return [flat, *found[::-1]] if sizes else []

    def base(self, stand: Stand) -> Size:
        """Where the batch at hand begins in a tensor."""
        places = self.places(self.program.batch, self.batch)
        return self.moved(stand.offset, places, stand.strides)

    def row_base(self, stand: Stand, row: Size) -> Size:
        """Where a row of q or of the result begins."""
        places = self.places(self.program.rows, row)
        first = len(self.program.batch)
        return self.moved(self.base(stand), places, stand.strides[first:])

    def moved(self, at: Size, places: Sequence[Size], strides: Sequence[int]) -> Size:
        for place, stride in zip(places, strides, strict=False):
            at = self.k.add(at, self.k.mul(place, stride))
        return at

    def finite(self, peak: Value) -> Value:
        """0 for -inf: nothing is seen so far, and all powers are to be 0."""
        k = self.k
        none = k.eq(peak, k.const(F32, _MINUS_INFINITY))
        return k.select(none, k.const(F32, 0), peak)

    def larger(self, a: Value, b: Value) -> Value:
        """The larger one; a, if one is no number."""
        return self.k.select(self.k.lt(a, b), b, a)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, with one rounding where the device does that."""
        k = self.k
        return k.fma(a, b, c) if k.info.fused_multiply_add32 else k.add(k.mul(a, b), c)

    def exp(self, x: Value) -> Value:
        return lower_unary(self.k, UnaryOp.EXP, x, dtypes.float32)

    def divide(self, a: Value, b: Value) -> Value:
        return lower_binary(self.k, BinaryOp.DIV, a, b, dtypes.float32)


class AttentionFrame(Places):
    """One attention kernel under construction. Operands: extras, q, k, v, the target.

    Chunks of scores are those of one row with `tile` neighbouring keys.
    """

    def __init__(
        self,
        name: str,
        info: DeviceInfo,
        program: AttentionProgram,
        schedule: AttentionSchedule,
    ) -> None:
        super().__init__(KernelBuilder(name, info, (schedule.workgroup, 1, 1)), program)
        k = self.k
        self.schedule = schedule
        sources = source_operands(k, program.region)
        self.q, self.keys, self.values = (
            k.operand(name, Access.READ, indirect=stand.indirect)
            for name, stand in (("q", program.q), ("k", program.k), ("v", program.v))
        )
        self.target = k.operand("y", Access.WRITE, indirect=program.target.indirect)
        self.coordinates = Coordinates(k, schedule.tile)
        self._held: Pack = ()
        # Which part of the features of a row is this invocation's.
        self.part: Size = 0
        self.evaluator = Evaluator(
            self.coordinates, program.region, sources, [lambda index: self._held]
        )

    def chunk(
        self,
        pointer: Pointer,
        stand: Stand,
        at: Size,
        number: Size,
        count: int,
        whole: bool = True,
    ) -> list[Value]:
        """Chunk `number`, of `count` features, of those that begin at `at`.

        If it may not be `whole`, what is past the last feature is anything.
        """
        k, step = self.k, stand.strides[-1]
        first = k.add(at, k.mul(k.mul(number, CHUNK), step))
        return self.features_at(pointer, stand, first, count, whole and count == CHUNK)

    def features_at(
        self, pointer: Pointer, stand: Stand, first: Size, count: int, whole: bool
    ) -> list[Value]:
        """`count` features from the place `first` on, at once if they are a run."""
        k, step = self.k, stand.strides[-1]
        if whole and stand.runs_of(count):
            index = k.value(first)
            return load_run(k, pointer, stand.dtype, index, count, stand.bound)
        places = [k.value(k.add(first, lane * step)) for lane in range(count)]
        return [
            load_element(k, pointer, stand.dtype, place, stand.bound)
            for place in places
        ]

    def queries(self, rows: Sequence[Size]) -> list[list[Variable]]:
        """The features of some rows of q, each with those of its part.

        By a loop in which all move up: many loads are much code.
        """
        k, stand = self.k, self.program.q
        chunks = self.chunk_count(self.program.features)
        zero = k.const(F32, 0)
        held = [[k.variable(F32, zero) for _ in range(chunks * CHUNK)] for _ in rows]
        bases = [self.row_base(stand, row) for row in rows]
        whole = self.program.features % CHUNK == 0
        with k.loop(chunks) as number:
            place = k.add(k.mul(number, self.schedule.parts), self.part)
            for base, variables in zip(bases, held, strict=True):
                chunk = self.chunk(self.q, stand, base, place, CHUNK, whole)
                moved = [variable.load() for variable in variables[CHUNK:]]
                for variable, value in zip(variables, [*moved, *chunk], strict=True):
                    variable.store(value)
        return held

    def chunk_count(self, features: int) -> int:
        """The chunks of an invocation, the last one cut off maybe."""
        return -(-features // (CHUNK * self.schedule.parts))

    # --- scores -------------------------------------------------------------

    def _index(self, row: Size, keys: Block) -> Index:
        maps, program = self.coordinates, self.program
        blocks = []
        if program.batch:
            blocks.append(Block(program.batch, maps.uniform(self.batch)))
        if program.rows:
            blocks.append(Block(program.rows, maps.uniform(row)))
        return Index((*blocks, keys))

    def scores(self, row: Size, key: Size, products: Pack) -> list[Value]:
        """The scores of a row with `tile` keys from `key` on, given their products."""
        maps, tile = self.coordinates, self.schedule.tile
        flat = maps.shift(Strided(Linear(), 1 if tile > 1 else 0), key)
        index = self._index(row, Block((self.program.keys,), flat))
        self._held = products
        pack = self.evaluator.value(self.program.score, index)
        return [lane_of(pack, lane) for lane in range(tile)]

    def seen(self, visible: Visible, row: Size) -> tuple[Value, Value]:
        """The first key that a row sees, and one past the last: i32."""
        return self._of_row(visible.first, row), self._of_row(visible.end, row)

    def _of_row(self, ref: Ref, row: Size) -> Value:
        """A value that a row has one of."""
        (found,) = self.evaluator.value(ref, self._index(row, Block((1,), ZERO)))
        return found

    def known_first(self, rows: Sequence[Size]) -> int | None:
        """The first key that some of these rows see, if planning can tell."""
        visible = self.program.visible
        if visible is None:
            return 0
        least = self.program.keys
        for row in rows:
            first = self._of_row(visible.first, row)
            if first.const is None:
                return None
            least = min(least, max(int(first.const), 0))
        return least

    def ranges(self, rows: Sequence[Size]) -> tuple[Value, Value]:
        """The keys that some of these rows see, as u32: all, if nothing is known."""
        k, visible, keys = self.k, self.program.visible, self.program.keys
        if visible is None:
            return k.u32(0), k.u32(keys)
        firsts, ends = zip(*(self.seen(visible, row) for row in rows), strict=True)
        first, end = firsts[0], ends[0]
        for other, last in zip(firsts[1:], ends[1:], strict=True):
            first, end = k.min(first, other), k.max(end, last)
        return first, end

    def as_places(self, first: Value, end: Value) -> tuple[Value, Value]:
        """Bounds of keys, of i32 maybe, as u32 within 0 to the number of keys."""
        k, keys = self.k, self.program.keys
        if self.program.visible is None:
            return first, end
        end = k.bitcast(k.min(k.max(end, 0), keys), U32)
        first = k.bitcast(k.min(k.max(first, 0), keys), U32)
        return k.min(first, end), k.assume_below(end, keys + 1)

    # --- softmax ------------------------------------------------------------

    def start(self) -> tuple[Variable, Variable]:
        """The largest score so far, and the sum of powers."""
        k = self.k
        return (
            k.variable(F32, k.const(F32, _MINUS_INFINITY)),
            k.variable(F32, k.const(F32, 0)),
        )

    def zeros(self) -> list[Variable]:
        """What is summed of the values, by feature."""
        k = self.k
        held = self.chunk_count(self.program.values) * CHUNK
        return [k.variable(F32, k.const(F32, 0)) for _ in range(held)]

    def powers(
        self, peak: Variable, total: Variable, scores: Sequence[Value]
    ) -> tuple[list[Value], Value]:
        """exp of the scores below the largest so far, and by what sums shrink."""
        shrink, *powers = map(self.exp, self.below(peak, scores))
        self.add_powers(total, shrink, powers)
        return powers, shrink

    def below(self, peak: Variable, scores: Sequence[Value]) -> list[Value]:
        """The largest score so far, then these, less the largest of them all."""
        before = peak.load()
        largest = functools.reduce(self.larger, scores, before)
        peak.store(largest)
        base = self.finite(largest)
        return [self.k.sub(score, base) for score in (before, *scores)]

    def add_powers(
        self, total: Variable, shrink: Value, powers: Sequence[Value]
    ) -> None:
        added = functools.reduce(self.k.add, powers)
        total.store(self.k.add(self.k.mul(total.load(), shrink), added))

    def hidden_counts(self, peak: Value) -> Value:
        """Whether keys that a row does not see have a share all the same."""
        k, visible = self.k, self.program.visible
        assert visible is not None
        below = k.sub(k.const(F32, visible.masked), peak)
        return k.logical_not(k.lt(below, _NO_POWER))
