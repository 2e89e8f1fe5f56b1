"""Row programs: the usual ones by name, and random ones."""

from __future__ import annotations

import random

from poot.core.builder import Builder
from poot.core.dtypes import Scalar, float32
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.core.ops.shape import Broadcast, Reshape
from poot.core.types import TensorType


class RowBuilder:
    """A Builder with one-word methods for what row programs are made of."""

    def __init__(self) -> None:
        self.builder = Builder()

    def input(self, *shape: int) -> ValueId:
        return self.builder.input(TensorType(shape, float32))

    def shape(self, value: Operand) -> tuple[int, ...]:
        return self.builder.type(value).shape

    def op(self, op: Op, *operands: Operand | float) -> ValueId:
        values = tuple(
            Scalar.of(o, float32) if isinstance(o, float) else o for o in operands
        )
        return self.builder.emit(op, values)[0]

    def binary(self, kind: BinaryOp, a: Operand | float, b: Operand | float) -> ValueId:
        return self.op(Binary(kind), a, b)

    def add(self, a: Operand | float, b: Operand | float) -> ValueId:
        return self.binary(BinaryOp.ADD, a, b)

    def sub(self, a: Operand | float, b: Operand | float) -> ValueId:
        return self.binary(BinaryOp.SUB, a, b)

    def mul(self, a: Operand | float, b: Operand | float) -> ValueId:
        return self.binary(BinaryOp.MUL, a, b)

    def div(self, a: Operand | float, b: Operand | float) -> ValueId:
        return self.binary(BinaryOp.DIV, a, b)

    def unary(self, kind: UnaryOp, a: Operand) -> ValueId:
        return self.op(Unary(kind), a)

    def reduce(self, kind: ReduceOp, a: ValueId, keepdim: bool = True) -> ValueId:
        return self.op(Reduce(kind, len(self.shape(a)) - 1, keepdim), a)

    def mean(self, a: ValueId, keepdim: bool = True) -> ValueId:
        total = self.reduce(ReduceOp.SUM, a, keepdim)
        return self.div(total, float(self.shape(a)[-1]))

    def finish(self, *results: ValueId) -> Graph:
        for result in results:
            self.builder.result(result)
        return self.builder.finish()


def softmax(k: RowBuilder, x: ValueId) -> ValueId:
    shifted = k.sub(x, k.reduce(ReduceOp.MAX, x))
    powers = k.unary(UnaryOp.EXP, shifted)
    return k.div(powers, k.reduce(ReduceOp.SUM, powers))


def masked_softmax() -> Graph:
    k = RowBuilder()
    x, mask = k.input(2, 3, 4, 8), k.input(2, 1, 1, 8)
    return k.finish(softmax(k, k.add(k.mul(x, 0.5), mask)))


def log_softmax() -> Graph:
    k = RowBuilder()
    x = k.input(4, 8)
    shifted = k.sub(x, k.reduce(ReduceOp.MAX, x))
    total = k.reduce(ReduceOp.SUM, k.unary(UnaryOp.EXP, shifted))
    return k.finish(k.sub(shifted, k.unary(UnaryOp.LOG, total)))


def rms_norm() -> Graph:
    k = RowBuilder()
    x, weight = k.input(2, 3, 8), k.input(8)
    mean = k.mean(k.mul(x, x))
    root = k.unary(UnaryOp.SQRT, k.add(mean, 1e-6))
    return k.finish(k.mul(k.div(x, root), k.add(weight, 1.0)))


def layer_norm() -> Graph:
    k = RowBuilder()
    x, weight, bias = k.input(2, 3, 8), k.input(8), k.input(8)
    centred = k.sub(x, k.mean(x))
    variance = k.mean(k.mul(centred, centred))
    scale = k.unary(UnaryOp.RSQRT, k.add(variance, 1e-5))
    return k.finish(k.add(k.mul(k.mul(centred, scale), weight), bias))


def layer_norm_by_shapes() -> Graph:
    """As a tracer writes it that drops reduced axes and repeats them again."""
    k = RowBuilder()
    x, weight, bias = k.input(2, 3, 8), k.input(8), k.input(8)

    def repeated(value: ValueId) -> ValueId:
        return k.op(Broadcast((2, 3, 8)), k.op(Reshape((2, 3, 1)), value))

    centred = k.sub(x, repeated(k.mean(x, keepdim=False)))
    variance = k.mean(k.mul(centred, centred), keepdim=False)
    scale = k.unary(UnaryOp.RSQRT, k.add(variance, 1e-5))
    scaled = k.mul(k.mul(centred, repeated(scale)), k.op(Broadcast((2, 3, 8)), weight))
    return k.finish(k.add(scaled, bias))


def layer_norm_by_moments() -> Graph:
    """With the variance as the mean of squares less the square of the mean."""
    k = RowBuilder()
    x = k.input(6, 8)
    mean, square = k.mean(x), k.mean(k.mul(x, x))
    variance = k.sub(square, k.mul(mean, mean))
    return k.finish(k.mul(k.sub(x, mean), k.unary(UnaryOp.RSQRT, variance)))


def layer_norm_over_two_axes() -> Graph:
    k = RowBuilder()
    x = k.input(2, 3, 8)
    flat = k.op(Reshape((2, 24)), x)
    mean = k.op(Reshape((2, 1, 1)), k.mean(flat, keepdim=False))
    centred = k.sub(x, mean)
    squares = k.op(Reshape((2, 24)), k.mul(centred, centred))
    variance = k.op(Reshape((2, 1, 1)), k.mean(squares, keepdim=False))
    return k.finish(k.mul(centred, k.unary(UnaryOp.RSQRT, variance)))


def log_sum_exp() -> Graph:
    k = RowBuilder()
    x = k.input(4, 8)
    peak = k.reduce(ReduceOp.MAX, x, keepdim=False)
    shifted = k.sub(x, k.op(Reshape((4, 1)), peak))
    total = k.reduce(ReduceOp.SUM, k.unary(UnaryOp.EXP, shifted), keepdim=False)
    return k.finish(k.add(k.unary(UnaryOp.LOG, total), peak))


def arg_max_of_a_sum() -> Graph:
    k = RowBuilder()
    x, y = k.input(4, 8), k.input(8)
    place = k.op(ArgReduce(ArgReduceOp.ARGMAX, 1), k.add(x, y))
    return k.finish(place)


def several_of_one() -> Graph:
    """Reductions that share no equation, only what they read."""
    k = RowBuilder()
    x = k.input(4, 8)
    powers = k.unary(UnaryOp.EXP, x)
    return k.finish(
        k.reduce(ReduceOp.SUM, powers, keepdim=False),
        k.reduce(ReduceOp.MAX, powers, keepdim=False),
        k.reduce(ReduceOp.MIN, k.mul(x, x)),
        k.op(ArgReduce(ArgReduceOp.ARGMIN, 1), x),
    )


ROW_PROGRAMS = (
    masked_softmax,
    log_softmax,
    rms_norm,
    layer_norm,
    layer_norm_by_shapes,
    layer_norm_by_moments,
    layer_norm_over_two_axes,
    log_sum_exp,
    arg_max_of_a_sum,
    several_of_one,
)

_REDUCTIONS = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN)
_LENGTHS = (1, 2, 3, 5, 7, 16, 31, 33, 64, 100, 257, 1000, 1024, 4099, 70_000)
_ROWS: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 3), (5,), (11,))
_LONG = 1024


class _RandomRows(RowBuilder):
    """One to four reductions with elementwise work before, between and after.

    `exact`: of small whole numbers, so that results do not hang on the order of sums.
    Else of functions and shares of sums too.
    """

    def __init__(self, seed: int, *, exact: bool) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.exact = exact
        self.length = self.random.choice(_LENGTHS)
        few = _ROWS[:3] if self.length > _LONG else _ROWS
        self.rows = self.random.choice(few)
        self.full = (*self.rows, self.length)
        self.row_shape = (*self.rows, 1)

    def make(self) -> Graph:
        choose = self.random
        x = self.input(*self.full)
        shapes = [self.full, (self.length,), self.row_shape, (), (1, self.length)]
        fitting = [shape for shape in shapes if len(shape) <= len(self.full)]
        others: list[Operand] = [self.input(*s) for s in choose.sample(fitting, 2)]
        reduced: list[ValueId] = []
        for _ in range(choose.randint(1, 4)):
            for _ in range(choose.randint(0, 3)):
                x = self.step(x, [*others, *reduced])
            reduced.append(self.reduction(x, reduced))
            if choose.random() < 0.8:
                kind = choose.choice((BinaryOp.SUB, BinaryOp.MIN))
                x = self.binary(kind, x, reduced[-1])
        x = self.add(x, reduced[-1])
        for _ in range(choose.randint(0, 3)):
            x = self.step(x, [*others, *reduced])
        return self.finish(x, *(reduced[-1:] if choose.random() < 0.3 else ()))

    def step(self, x: ValueId, others: list[Operand]) -> ValueId:
        choose = self.random
        if not self.exact and choose.random() < 0.4:
            return self.function(x, choose.choice([*others, x]))
        if choose.random() < 0.4:
            kinds = (UnaryOp.NEG, UnaryOp.ABS, UnaryOp.SIGN)
            return self.unary(choose.choice(kinds), x)
        pair = [x, choose.choice([*others, Scalar.of(2, float32)])]
        choose.shuffle(pair)
        kinds = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MAX)
        return self.binary(choose.choice(kinds), *pair)

    def function(self, x: ValueId, other: Operand) -> ValueId:
        """Continuous in its operands, and bounded by them."""
        match self.random.randrange(3):
            case 0:
                return self.unary(UnaryOp.TANH, x)
            case 1:
                size = self.unary(UnaryOp.ABS, x)
                return self.unary(UnaryOp.EXP, self.unary(UnaryOp.NEG, size))
        return self.mul(self.add(x, other), 0.5)

    def reduction(self, x: ValueId, earlier: list[ValueId]) -> ValueId:
        """A value a row, reduced with or without its axis, and worked on."""
        choose = self.random
        keepdim = choose.random() < 0.5
        kind = choose.choice(_REDUCTIONS)
        value = self.reduce(kind, x, keepdim)
        if kind is ReduceOp.SUM and not self.exact:
            value = self.mul(value, 1 / self.length)
        value = self.binary(BinaryOp.MIN, value, 5.0)
        value = self.binary(BinaryOp.MAX, value, -5.0)
        if not keepdim:
            value = self.op(Reshape(self.row_shape), value)
            if choose.random() < 0.3:
                return self.op(Broadcast(self.full), value)
        same = [v for v in earlier if self.shape(v) == self.row_shape]
        for _ in range(choose.randint(0, 2)):
            value = self.step(value, list(same))
        return value


def random_row_program(seed: int, *, exact: bool = True) -> Graph:
    """The random row program of a seed."""
    return _RandomRows(seed, exact=exact).make()
