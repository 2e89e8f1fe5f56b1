"""Row kernels come from their region: 200 random row programs, one dispatch each."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core.builder import Builder
from poot.core.dtypes import Scalar, float32
from poot.core.graph import Graph, ValueId
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.types import TensorType
from poot.lowering.compile import lower, plan
from tests.kernel_harness import device, oracle, run_program

LENGTHS = (1, 2, 3, 5, 8, 31, 32, 33, 64, 100, 255, 257, 1000, 1024, 4097, 70_000)
PROGRAMS = 200
PER_TEST = 10


class RowProgramMaker:
    """Random reductions with random elementwise work before, between and after."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.length = int(self.rng.choice(LENGTHS))
        self.rows = int(self.rng.integers(1, 4 if self.length > 1000 else 12))
        self.builder = Builder()
        whole = TensorType((self.rows, self.length), float32)
        self.full = [self.builder.input(whole) for _ in range(self.rng.integers(1, 3))]
        self.per_row: list[ValueId] = []
        # One operand that all rows share, as the weights of a norm are.
        self.shared: list[ValueId] = []
        if self.rng.integers(2):
            row = TensorType((self.length,), float32)
            self.shared.append(self.builder.input(row))

    def emit(self, op, *operands) -> ValueId:
        return self.builder.emit(op, operands)[0]

    def pick(self, values) -> ValueId:
        return values[self.rng.integers(len(values))]

    def elementwise(self, values) -> ValueId:
        """One more bounded value of the same kind."""
        x = self.pick(values)
        others = self.per_row + (self.shared if values is self.full else [])
        y = self.pick(values + others)
        half = Scalar.of(0.5, float32)
        match self.rng.integers(6):
            case 0:
                return self.emit(Unary(UnaryOp.TANH), x)
            case 1:
                added = self.emit(Binary(BinaryOp.ADD), x, y)
                return self.emit(Binary(BinaryOp.MUL), added, half)
            case 2:
                return self.emit(Binary(BinaryOp.SUB), x, y)
            case 3:
                size = self.emit(Unary(UnaryOp.ABS), x)
                minus = self.emit(Unary(UnaryOp.NEG), size)
                return self.emit(Unary(UnaryOp.EXP), minus)
            case 4:
                above = self.emit(Compare(CompareOp.GT), x, y)
                return self.emit(Select(), above, x, half)
        return self.emit(Binary(BinaryOp.MAX), x, y)

    def reduction(self) -> None:
        kind = self.pick([ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN])
        value = self.emit(Reduce(kind, 1, True), self.pick(self.full))
        if kind is ReduceOp.SUM:
            share = Scalar.of(1 / self.length, float32)
            value = self.emit(Binary(BinaryOp.MUL), value, share)
        self.per_row.append(value)

    def make(self) -> Graph:
        for _ in range(self.rng.integers(1, 5)):
            for _ in range(self.rng.integers(0, 4)):
                self.full.append(self.elementwise(self.full))
            self.reduction()
            if self.rng.integers(2):
                self.per_row.append(self.elementwise(self.per_row))
        scaled = self.per_row[0]
        for value in self.per_row[1:]:
            scaled = self.emit(Binary(BinaryOp.ADD), scaled, value)
        if self.rng.integers(4):
            last = self.full[0]
            for value in self.full[1:] + self.shared:
                last = self.emit(Binary(BinaryOp.ADD), last, value)
            self.builder.result(self.emit(Binary(BinaryOp.MUL), last, scaled))
            if self.rng.integers(2):
                return self.builder.finish()
        self.builder.result(scaled)
        return self.builder.finish()

    def arguments(self, graph: Graph) -> list[np.ndarray]:
        return [
            self.rng.standard_normal(type.shape).astype(np.float32)
            for type in graph.input_types
        ]


def check_program(seed: int) -> None:
    maker = RowProgramMaker(seed)
    graph = maker.make()
    args = maker.arguments(graph)
    lowered = lower(graph, device().info)
    program = plan(lowered.graph, device().info)
    assert len(program.dispatches) == 1, f"seed {seed}\n{graph}\n{lowered.report}"
    got = run_program(lowered.graph, program, args)
    for mine, right in zip(got, oracle(graph, args), strict=True):
        scale = max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(
            mine, right, rtol=1e-4, atol=1e-5 * scale, err_msg=f"seed {seed}\n{graph}"
        )


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_row_programs_are_one_dispatch(first):
    for seed in range(first, first + PER_TEST):
        check_program(seed)
