"""Random scans and whiles over i32, whose arithmetic is exact in any order."""

from __future__ import annotations

import random

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import Binary, BinaryOp, Compare, CompareOp, Select
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Broadcast, Reverse
from poot.core.types import Storage, TensorType

_MEMBERS = (
    *(BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.XOR),
    *(BinaryOp.MAX, BinaryOp.MIN),
)
_SHAPES = ((8,), (3, 5), (2, 4), (33,), (1,))
_NESTED = 0.25


class _Body(Builder):
    """Grows by random equations on the values that there are."""

    def __init__(self, choose: random.Random, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.choose, self.shape = choose, shape
        self.values: list[ValueId] = []

    def given(self, shape: tuple[int, ...]) -> ValueId:
        value = self.input(TensorType(shape, dtypes.int32))
        self.values.append(value)
        return value

    def _made(self, op: Op, *operands: ValueId | Scalar) -> ValueId:
        (out,) = self.emit(op, operands)
        self._keep(out)
        return out

    def _keep(self, out: ValueId) -> None:
        """Use a value again if it is one of the two shapes that go together."""
        type = self.type(out)
        if type.dtype is dtypes.int32 and type.shape in (self.shape, ()):
            self.values.append(out)

    def grow(self, equations: int, elementwise: bool, depth: int) -> None:
        for _ in range(equations):
            self._grow(elementwise, depth)

    def _grow(self, elementwise: bool, depth: int) -> None:
        a, b = (self.choose.choice(self.values) for _ in range(2))
        kind = self.choose.random()
        if depth and not elementwise and kind < _NESTED:
            self._nest(depth - 1)
        elif kind < 0.6 or elementwise:
            self._made(Binary(self.choose.choice(_MEMBERS)), a, b)
        elif kind < 0.75:
            less = self._made(Compare(CompareOp.LT), a, b)
            self._made(Select(), less, self.of(self.type(less).shape), self.number())
        elif self.type(a).shape:
            op = self.choose.choice((Reverse((0,)), Cumulative(CumulativeOp.MAX, 0)))
            self._made(op, a)
            self._sum(a)

    def _sum(self, value: ValueId) -> None:
        """Of all elements, so that the shapes stay two."""
        axes = len(self.type(value).shape)
        for axis in reversed(range(axes)):
            (value,) = self.emit(Reduce(ReduceOp.SUM, axis), (value,))
        self.values.append(value)

    def number(self) -> Scalar:
        return Scalar.of(self.choose.randint(-3, 3), dtypes.int32)

    def of(self, shape: tuple[int, ...]) -> ValueId:
        """A value of a shape, made of another if need be."""
        found = [v for v in self.values if self.type(v).shape == shape]
        if found and self.choose.random() < 0.9:
            return self.choose.choice(found[-4:])
        scalars = [v for v in self.values if not self.type(v).shape]
        one = self.choose.choice(scalars) if scalars else self.number()
        return self._made(Broadcast(shape), one)

    def _nest(self, depth: int) -> None:
        op, shapes = random_control(self.choose, self.shape, depth)
        operands = tuple(self.of(shape) for shape in shapes)
        for out in self.emit(op, operands):
            self._keep(out)


def random_control(
    choose: random.Random, shape: tuple[int, ...], depth: int
) -> tuple[Op, list[tuple[int, ...]]]:
    """An op, and the shapes of its operands."""
    elementwise = choose.random() < 0.5
    kind = choose.random()
    if kind < 0.6:
        return _random_scan(choose, shape, depth, elementwise)
    if kind < 0.8:
        return _random_while(choose, shape, depth, elementwise)
    bodies = [_random_body(choose, [shape, ()], [shape, ()], depth) for _ in range(2)]
    return Cond(tuple(bodies)), [(), shape, ()]


def _random_body(
    choose: random.Random,
    inputs: list[tuple[int, ...]],
    results: list[tuple[int, ...]],
    depth: int,
    elementwise: bool = False,
) -> Graph:
    body = _Body(choose, max(inputs, key=len))
    for shape in inputs:
        body.given(shape)
    body.grow(choose.randint(1, 6), elementwise, depth)
    for shape in results:
        body.result(body.of(shape))
    return body.finish()


def _random_scan(
    choose: random.Random, shape: tuple[int, ...], depth: int, elementwise: bool
) -> tuple[Op, list[tuple[int, ...]]]:
    kinds = [shape, ()]
    consts, carries, xs, ys = (
        [choose.choice(kinds) for _ in range(choose.randint(least, 3))]
        for least in (0, 1, 0, 0)
    )
    inputs = [*consts, *carries, *xs]
    body = _random_body(choose, inputs, [*carries, *ys], depth, elementwise)
    length = choose.randint(0, 5)
    op = Scan(body, length, len(consts), len(carries), choose.random() < 0.5)
    return op, [*consts, *carries, *((length, *each) for each in xs)]


def _random_while(
    choose: random.Random, shape: tuple[int, ...], depth: int, elementwise: bool
) -> tuple[Op, list[tuple[int, ...]]]:
    """Counts up from a carry to the number of iterations or its wrapped self."""
    condition = Builder()
    counter, *_ = [condition.input(TensorType(s, dtypes.int32)) for s in ((), shape)]
    bound = Scalar.of(choose.randint(0, 5), dtypes.int32)
    condition.result(*condition.emit(Compare(CompareOp.LT), (counter, bound)))
    body = _Body(choose, shape)
    counter, _ = body.given(()), body.given(shape)
    # Not below -3, so that it ends soon.
    (least,) = body.emit(Binary(BinaryOp.MAX), (counter, Scalar.of(-3, dtypes.int32)))
    (following,) = body.emit(Binary(BinaryOp.ADD), (least, Scalar.of(1, dtypes.int32)))
    body.grow(choose.randint(1, 6), elementwise, depth)
    body.result(following)
    body.result(body.of(shape))
    return While(condition.finish(), body.finish(), 0, 0), [(), shape]


def random_loop_graph(seed: int) -> Graph:
    """A graph of a few nested loops and choices, with donated state."""
    choose = random.Random(seed)
    shape = choose.choice(_SHAPES)
    builder = Builder()
    values: dict[tuple[int, ...], list[ValueId]] = {}

    def operand(wanted: tuple[int, ...]) -> ValueId:
        known = values.setdefault(wanted, [])
        if not known or choose.random() < 0.5:
            known.append(builder.input(TensorType(wanted, dtypes.int32)))
        return choose.choice(known)

    state = builder.input(TensorType(shape, dtypes.int32), Storage.STATE)
    values[shape] = [state]
    for _ in range(choose.randint(1, 3)):
        op, shapes = random_control(choose, shape, 2)
        for out in builder.emit(op, tuple(operand(each) for each in shapes)):
            values.setdefault(builder.type(out).shape, []).append(out)
            if choose.random() < 0.8:
                builder.result(out)
    builder.state_next(state, choose.choice(values[shape]))
    return builder.finish()
