"""Random pointwise regions: elementwise and shape ops over each other."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import TensorType
from tests.kernel_harness import Array

# Arithmetic on these has one right answer, bit for bit.
DTYPES = (dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.float16, dtypes.int16)
_SIZES = (1, 2, 3, 4, 5, 8, 12, 16)


class Region:
    """One random region in the making."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.builder = Builder()
        self.types: list[TensorType] = []
        self.values: list[ValueId] = []

    def shape(self) -> tuple[int, ...]:
        rank = self.random.choice((0, 1, 1, 2, 2, 3, 4))
        return tuple(self.random.choice(_SIZES) for _ in range(rank))

    def input(self, shape: tuple[int, ...], dtype: DType) -> ValueId:
        """An operand, of the same type as an older one now and then."""
        self.types.append(TensorType(shape, dtype))
        return self.builder.input(self.types[-1])

    def emit(self, op: object, *operands: Operand) -> ValueId:
        (value,) = self.builder.emit(op, operands)  # type: ignore[arg-type]
        self.values.append(value)
        return value

    def step(self, x: ValueId) -> ValueId:
        """A random op on `x`."""
        type = self.builder.type(x)
        steps = [self._compute, self._compute, self._repeat, self._pad, self._reshape]
        if type.shape:
            steps += [self._permute, self._slice, self._reverse, self._join]
            steps += [self._gather, self._window, self._count]
        step = self.random.choice(steps)
        return step(x, type.shape, type.dtype)

    def _literal(self, dtype: DType) -> Scalar:
        return Scalar.of(self.random.randrange(0, 5), dtype)

    def _compute(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        choice = self.random.randrange(4)
        if choice == 0:
            to = self.random.choice(DTYPES)
            return self.emit(Cast(to), self.emit(Compare(CompareOp.GT), x, x))
        other = self._partner(x, shape, dtype)
        if choice == 1:
            condition = self.emit(Compare(CompareOp.LT), x, other)
            return self.emit(Select(), condition, x, other)
        op = self.random.choice((BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL))
        return self.emit(Binary(op), x, other)

    def _partner(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> Operand:
        """Something that broadcasts with `x`."""
        choice = self.random.randrange(4)
        if choice == 0:
            return self._literal(dtype)
        if choice == 1:
            return x
        kept = [1 if self.random.random() < 0.4 else size for size in shape]
        dropped = self.random.randrange(len(shape) + 1)
        return self.input(tuple(kept[dropped:]), dtype)

    def _repeat(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        if math.prod(shape) > 2000:
            return self._compute(x, shape, dtype)
        wide = tuple(self.random.choice((2, 3, 4)) if n == 1 else n for n in shape)
        return self.emit(Broadcast((self.random.choice((1, 2, 3)), *wide)), x)

    def _permute(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        perm = list(range(len(shape)))
        self.random.shuffle(perm)
        return self.emit(Transpose(tuple(perm)), x)

    def _axis(self, shape: tuple[int, ...]) -> int:
        return self.random.randrange(len(shape))

    def _slice(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        axis = self._axis(shape)
        start = self.random.randrange(shape[axis])
        end = self.random.randrange(start + 1, shape[axis] + 1)
        return self.emit(Slice(axis, start, end, self.random.choice((1, 1, 2, 3))), x)

    def _reverse(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        return self.emit(Reverse((self._axis(shape),)), x)

    def _reshape(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        sizes, rest = [], math.prod(shape)
        while rest > 1:
            divisors = [d for d in range(2, rest + 1) if rest % d == 0]
            sizes.append(self.random.choice(divisors))
            rest //= sizes[-1]
        sizes.insert(self.random.randrange(len(sizes) + 1), 1)
        return self.emit(Reshape(tuple(sizes)), x)

    def _pad(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        config = []
        for size in shape:
            low, high = self.random.choice(((0, 0), (1, 2), (4, 0), (-1, 3)))
            inner = self.random.choice((0, 0, 0, 2))
            config.append((low if low > -size else 0, high, inner))
        return self.emit(Pad(tuple(config)), x, self._literal(dtype))

    def _join(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        axis = self._axis(shape)
        parts: list[Operand] = [x]
        for _ in range(self.random.choice((1, 1, 2))):
            other = (*shape[:axis], self.random.choice(_SIZES), *shape[axis + 1 :])
            parts.append(self.input(other, dtype))
        self.random.shuffle(parts)
        return self.emit(Concat(axis), *parts)

    def _gather(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        index_shape = self.random.choice(((), (3,), (4,), (2, 3)))
        kind = self.random.choice((dtypes.int32, dtypes.uint8, dtypes.int16))
        mode = self.random.choice((GatherMode.CLIP, GatherMode.FILL))
        index = self.input(index_shape, kind)
        return self.emit(Gather(self._axis(shape), mode), x, index)

    def _window(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        sizes = tuple(self.random.randrange(1, size + 1) for size in shape)
        starts: list[Operand] = []
        for _ in sizes:
            if self.random.random() < 0.5:
                starts.append(Scalar.of(self.random.randrange(-2, 9), dtypes.int32))
            else:
                starts.append(self.input((), dtypes.int32))
        return self.emit(DynamicSlice(sizes), x, *starts)

    def _count(self, x: ValueId, shape: tuple[int, ...], dtype: DType) -> ValueId:
        counts = self.emit(Iota(dtype, shape, self._axis(shape)))
        return self.emit(Binary(BinaryOp.ADD), counts, x)


def random_region(random: Random, most_steps: int = 6) -> Graph:
    """A graph of one Fused region with one or two results."""
    region = Region(random)
    x = region.input(region.shape(), random.choice(DTYPES))
    for _ in range(random.randrange(1, most_steps + 1)):
        x = region.step(x)
        if region.builder.type(x).size > 20_000:
            break
    shape = region.builder.type(x).shape
    region.builder.result(x)
    fitting = [v for v in region.values if region.builder.type(v).shape == shape]
    if len(fitting) > 1 and random.random() < 0.5:
        region.builder.result(random.choice(fitting))
    return fused(region.builder.finish())


def fused(body: Graph) -> Graph:
    """The graph that is one Fused region."""
    outer = Builder(composites=True)
    operands = tuple(outer.input(type) for type in body.input_types)
    for out in outer.emit(Fused(body), operands):
        outer.result(out)
    return outer.finish()


def random_arrays(graph: Graph, seed: int) -> list[Array]:
    """Small whole numbers, some negative, of the types that `graph` takes."""
    random = np.random.default_rng(seed)
    arrays = []
    for type in graph.input_types:
        low = -4 if type.dtype.is_signed or type.dtype.is_float else 0
        numbers = random.integers(low, 12, type.shape)
        arrays.append(np.asarray(numbers).astype(type.dtype.numpy))
    return arrays
