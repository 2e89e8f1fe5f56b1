"""Random contractions with chains of elementwise equations behind them."""

from __future__ import annotations

import random

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar, bfloat16, float16, float32, int32
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.rope import Rope, RopeForm
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Reshape, Transpose
from poot.core.types import TensorType

DTYPES = (float32, bfloat16, float16)
_ROWS = (1, 2, 5, 9, 17, 33)
_COLUMNS = (1, 2, 5, 8, 32, 33, 64)
_INNER = (1, 3, 8, 40, 128, 131)
_BINARY = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN)
_UNARY = (UnaryOp.NEG, UnaryOp.TANH, UnaryOp.ABS, UnaryOp.EXP, UnaryOp.ERF)


class _RandomEpilogue:
    """One program in the making; `x` is the value that the chain has come to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        self.dtype = self.random.choice(DTYPES)
        self.batch = self.random.choice(((), (), (2,), (2, 3)))

    def make(self) -> Graph:
        x = self.head()
        self.shape = self.builder.type(x).shape
        for _ in range(self.random.randint(1, 7)):
            x = self.step(x)
        if x == self.made:
            x = self.op(Unary(UnaryOp.NEG), x)
        self.builder.result(x)
        return self.builder.finish()

    def op(self, op: Op, *operands: Operand) -> ValueId:
        return self.builder.emit(op, operands)[0]

    def input(self, shape: tuple[int, ...], dtype: DType) -> ValueId:
        return self.builder.input(TensorType(shape, dtype))

    def head(self) -> ValueId:
        choose = self.random
        m, n, k = choose.choice(_ROWS), choose.choice(_COLUMNS), choose.choice(_INNER)
        out = choose.choice((None, None, float32))
        kind = choose.randrange(4)
        if kind == 0:
            left = self.input((*self.batch, m, k), self.dtype)
            right = self.input((*self.batch, k, n), self.dtype)
            op: Op = MatMul(out)
        elif kind == 1:
            left = self.input((*self.batch, m, k), self.dtype)
            right = self.input((n, k), self.dtype)
            op = DotGeneral((len(self.batch) + 1,), (1,), out=out)
        elif kind == 2:
            left = self.input((m, k), self.dtype)
            right = self.op(Transpose((1, 0)), self.input((n, k), self.dtype))
            op = MatMul(out)
        else:
            left = self.input((2, k, m), self.dtype)
            right = self.input((n, 3, k, 2), self.dtype)
            op = DotGeneral((1,), (2,), (0,), (3,), out)
        self.made = self.op(op, left, right)
        return self.made

    def step(self, x: ValueId) -> ValueId:
        choose, dtype = self.random, self.builder.type(x).dtype
        match choose.randrange(7):
            case 0:
                return self.op(Unary(choose.choice(_UNARY)), x)
            case 1 | 2 | 3:
                pair = [x, self.extra(dtype)]
                choose.shuffle(pair)
                return self.op(Binary(choose.choice(_BINARY)), *pair)
            case 4:
                gate = self.op(Unary(UnaryOp.TANH), x)
                return self.op(Binary(BinaryOp.MUL), x, gate)
            case 5:
                other = self.extra(dtype)
                truth = self.op(Compare(choose.choice(list(CompareOp))), x, other)
                return self.op(Select(), truth, x, Scalar.of(2, dtype))
        if choose.random() < 0.4:
            low, high = Scalar.of(-1, dtype), Scalar.of(1, dtype)
            return self.op(Clamp(), low, x, high)
        return self.op(Cast(choose.choice(DTYPES)), x)

    def extra(self, dtype: DType) -> Operand:
        """An operand that is broadcast to the shape in any way."""
        choose = self.random
        if choose.random() < 0.15:
            return Scalar.of(choose.choice((0.5, 2.0, -0.0)), dtype)
        first = choose.randint(0, len(self.shape))
        kept = [size if choose.random() < 0.7 else 1 for size in self.shape[first:]]
        value = self.input(tuple(kept), dtype)
        if choose.random() < 0.2:
            return self.op(Unary(UnaryOp.NEG), value)
        return value


class _RandomPlacement(_RandomEpilogue):
    """Changes of shape and a rope among the steps, and an update at the end, maybe."""

    def make(self) -> Graph:
        choose = self.random
        self.builder = Builder(composites=True)
        x, turned = self.head(), False
        for _ in range(choose.randint(1, 6)):
            self.shape = self.builder.type(x).shape
            kind = choose.random()
            if kind < 0.3:
                x = self.reshaped(x)
            elif kind < 0.6 and not turned and self.shape[-1] % 2 == 0:
                x, turned = self.turned(x), True
            else:
                x = self.step(x)
        x = self.op(Unary(UnaryOp.NEG), x)
        self.builder.result(self.updated(x) if choose.random() < 0.6 else x)
        return self.builder.finish()

    def reshaped(self, x: ValueId) -> ValueId:
        """The last axis taken apart, or a new one of a single element."""
        *outer, last = self.shape
        sizes = [size for size in range(1, last + 1) if last % size == 0]
        size = self.random.choice(sizes)
        shape = [*outer, last // size, size]
        if self.random.random() < 0.3:
            shape = [*self.shape]
            shape.insert(self.random.randint(0, len(shape)), 1)
        return self.op(Reshape(tuple(shape)), x)

    def turned(self, x: ValueId) -> ValueId:
        choose, (*outer, last) = self.random, self.shape
        rotary = choose.randrange(2, last + 1, 2)
        rows = [size if choose.random() < 0.6 else 1 for size in outer]
        pairs = rotary if choose.random() < 0.4 else rotary // 2
        dtype = self.builder.type(x).dtype
        tables = [self.input((*rows, pairs), dtype) for _ in range(2)]
        return self.op(Rope(rotary, choose.choice(list(RopeForm))), x, *tables)

    def updated(self, x: ValueId) -> ValueId:
        """A larger tensor with the value as a block, at places known or computed."""
        choose, type = self.random, self.builder.type(x)
        first, *others = type.shape
        whole = (first + 2, *(size + choose.choice((0, 0, 3)) for size in others))
        starts: list[Operand] = []
        for _ in whole:
            place: Operand = Scalar.of(choose.randint(-1, 4), int32)
            if choose.random() < 0.7:
                place = self.input((), int32)
            if choose.random() < 0.4:
                place = self.op(Binary(BinaryOp.ADD), place, Scalar.of(1, int32))
            starts.append(place)
        old = self.input(whole, type.dtype)
        return self.op(DynamicUpdateSlice(), old, x, *starts)


def random_placement(seed: int) -> Graph:
    """As `random_epilogue`, with other shapes, rope and an update behind it."""
    return _RandomPlacement(seed).make()


def random_epilogue(seed: int) -> Graph:
    """The random program of a seed: a contraction and a chain behind it."""
    return _RandomEpilogue(seed).make()
