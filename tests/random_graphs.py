"""Random graphs of elementwise, shape, reduction and contraction equations."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.indexing import Gather
from poot.core.ops.matmul import MatMul
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
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
from poot.core.types import Storage, TensorType

F32 = dtypes.float32
# Exact on small integers, so that results do not hang on the order of sums.
_UNARY = (UnaryOp.NEG, UnaryOp.ABS, UnaryOp.SIGN, UnaryOp.FLOOR)
_BINARY = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MAX, BinaryOp.MIN)


@dataclass(frozen=True)
class DrawnGraph:
    """A graph, and how many ulps each result may be off (0 where none is told)."""

    graph: Graph
    limits: tuple[float, ...] = ()

    def __repr__(self) -> str:
        return f"ulps {self.limits} of\n{self.graph}"


class RandomGraph:
    """A graph that grows by random equations on the values that there are."""

    def __init__(self, choose: random.Random) -> None:
        self.random = choose
        self.builder = Builder()
        self.values: list[ValueId] = []

    def make(self, equations: int) -> Graph:
        """A graph of about so many equations, with outputs of every kind."""
        choose = self.random
        sizes = choose.sample([1, 2, 3, 4, 5, 8], 3)
        for _ in range(choose.randint(1, 4)):
            self._add_input(sizes)
        state = self._add_input(sizes, Storage.STATE)
        for _ in range(equations):
            choose.choice(_STEPS)(self)
        computed = self.values[-max(4, equations // 3) :]
        for value in choose.sample(computed, min(3, len(computed))):
            self.builder.result(value)
        self.builder.export("extra", choose.choice(self.values))
        same = [v for v in self.values if self._type(v) == self._type(state)]
        self.builder.state_next(state, choose.choice(same))
        return self.builder.finish()

    def _type(self, value: Operand) -> TensorType:
        return self.builder.type(value)

    def _add_input(
        self, sizes: list[int], storage: Storage = Storage.DEVICE
    ) -> ValueId:
        shape = tuple(self.random.choices(sizes, k=self.random.randint(0, 3)))
        value = self.builder.input(TensorType(shape, F32), storage)
        self.values.append(value)
        return value

    def _pick(self, rank: int = 0) -> ValueId | None:
        """A recent value more often than an old one."""
        found = [v for v in self.values if self._type(v).ndim >= rank]
        if not found:
            return None
        if self.random.random() < 0.6:
            found = found[-4:]
        return self.random.choice(found)

    def emit(self, op: Op, *operands: Operand) -> ValueId:
        (out,) = self.builder.emit(op, operands)
        if self._type(out).size > 4096:
            return out
        self.values.append(out)
        return out

    # --- steps --------------------------------------------------------------

    def unary(self) -> None:
        value = self._pick()
        assert value is not None
        self.emit(Unary(self.random.choice(_UNARY)), value)

    def binary(self) -> None:
        value = self._pick()
        assert value is not None
        shape = self._type(value).shape
        fitting: list[Operand] = [
            other
            for other in self.values
            if _broadcasts(self._type(other).shape, shape)
        ]
        fitting.append(Scalar.of(self.random.randint(-3, 3), F32))
        pair = [value, self.random.choice(fitting)]
        self.random.shuffle(pair)
        self.emit(Binary(self.random.choice(_BINARY)), *pair)

    def select(self) -> None:
        value = self._pick()
        assert value is not None
        zero = Scalar.of(0, F32)
        condition = self.emit(Compare(CompareOp.GT), value, zero)
        self.values.remove(condition)
        self.emit(Select(), condition, value, zero)

    def iota(self) -> None:
        value = self._pick(1)
        if value is not None:
            shape = self._type(value).shape
            axis = self.random.randrange(len(shape))
            counted = self.emit(Iota(F32, shape, axis))
            self.emit(Binary(BinaryOp.MIN), value, counted)

    def broadcast(self) -> None:
        value = self._pick()
        assert value is not None
        shape = self._type(value).shape
        extra = tuple(self.random.choices([1, 2, 3], k=self.random.randint(0, 1)))
        grown = tuple(self.random.choice([2, 4]) if n == 1 else n for n in shape)
        self.emit(Broadcast(extra + grown), value)

    def reshape(self) -> None:
        value = self._pick(1)
        if value is None:
            return
        shape = list(self._type(value).shape)
        axis = self.random.randrange(len(shape))
        how = self.random.randrange(3)
        if how == 0:
            shape.insert(axis, 1)
        elif how == 1 and len(shape) > 1:
            axis = max(axis, 1)
            shape[axis - 1 : axis + 1] = [shape[axis - 1] * shape[axis]]
        elif shape[axis] % 2 == 0:
            shape[axis : axis + 1] = [2, shape[axis] // 2]
        self.emit(Reshape(tuple(shape)), value)

    def transpose(self) -> None:
        value = self._pick(2)
        if value is not None:
            perm = list(range(self._type(value).ndim))
            self.random.shuffle(perm)
            self.emit(Transpose(tuple(perm)), value)

    def slice(self) -> None:
        value = self._pick(1)
        if value is not None:
            shape = self._type(value).shape
            axis = self.random.randrange(len(shape))
            start = self.random.randrange(shape[axis])
            end = self.random.randint(start + 1, shape[axis])
            self.emit(Slice(axis, start, end, self.random.choice([1, 1, 2])), value)

    def move(self) -> None:
        value = self._pick(1)
        if value is None:
            return
        axis = self.random.randrange(self._type(value).ndim)
        how = self.random.randrange(3)
        if how == 0:
            self.emit(Reverse((axis,)), value)
        elif how == 1:
            self.emit(Concat(axis), value, value)
        else:
            config = [(0, 0, 0)] * self._type(value).ndim
            config[axis] = (1, 2, self.random.randint(0, 1))
            self.emit(Pad(tuple(config)), value, Scalar.of(-1, F32))

    def gather(self) -> None:
        value, index = self._pick(1), self._pick()
        if value is not None and index is not None and self._type(index).ndim <= 2:
            (number,) = self.builder.emit(Cast(dtypes.int32), (index,))
            self.emit(
                Gather(self.random.randrange(self._type(value).ndim)), value, number
            )

    def reduce(self) -> None:
        value = self._pick(1)
        if value is None:
            return
        last = self._type(value).ndim - 1
        axis = last if self.random.random() < 0.8 else self.random.randint(0, last)
        keepdim = self.random.random() < 0.6
        if self.random.random() < 0.15:
            op = ArgReduce(self.random.choice(list(ArgReduceOp)), axis, keepdim)
            (place,) = self.builder.emit(op, (value,))
            self.emit(Cast(F32), place)
            return
        kind = self.random.choice((ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN))
        total = self.emit(Reduce(kind, axis, keepdim), value)
        if keepdim and self.random.random() < 0.7:
            self.emit(Binary(BinaryOp.SUB), value, total)

    def matmul(self) -> None:
        value = self._pick(2)
        if value is not None:
            perm = list(range(self._type(value).ndim))
            perm[-2:] = perm[:-3:-1]
            turned = self.emit(Transpose(tuple(perm)), value)
            product = self.emit(MatMul(), value, turned)
            # Keep numbers small, so that they stay exact.
            self.emit(Binary(BinaryOp.MIN), product, Scalar.of(7, F32))


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(
        size in (1, wanted) for size, wanted in zip(shape[::-1], to[::-1], strict=False)
    )


_STEPS = (
    *(RandomGraph.unary,) * 3,
    *(RandomGraph.binary,) * 6,
    *(RandomGraph.reduce,) * 5,
    RandomGraph.select,
    RandomGraph.iota,
    *(RandomGraph.broadcast,) * 2,
    *(RandomGraph.reshape,) * 3,
    *(RandomGraph.transpose,) * 2,
    RandomGraph.slice,
    RandomGraph.move,
    RandomGraph.gather,
    RandomGraph.matmul,
)


def random_graph(seed: int, equations: int = 24) -> Graph:
    """The random graph of a seed."""
    return RandomGraph(random.Random(seed)).make(equations)


@st.composite
def random_graphs(draw: st.DrawFn, equations: int = 24) -> DrawnGraph:
    """Random graphs whose every choice is Hypothesis', so that failures shrink."""
    choose = draw(st.randoms(use_true_random=False))
    return DrawnGraph(RandomGraph(choose).make(draw(st.integers(1, equations))))
