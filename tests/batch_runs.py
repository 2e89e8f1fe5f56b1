"""Runs rules of batching on NumPy arrays, beside the op on each example."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar, as_dtype
from poot.core.interpreter import interpreting
from poot.core.op import Op
from poot.core.oracle import impl
from poot.core.oracle.table import Arithmetic
from poot.core.types import TensorType
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.batch.rules import batch
from poot.interpreters.batch.table import Axis
from tests.numerics import Array, assert_same_bits, rng_of
from tests.op_row import Case, OpRow

# One operand: an array or Scalar, or the arrays of all examples.
Operand = Array | Scalar | list[Array]


@dataclass(frozen=True, slots=True)
class Held:
    """A value of the interpreter below."""

    array: Array

    @property
    def aval(self) -> Aval:
        return aval_of(type_of(self.array))


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, as_dtype(array.dtype))


class Recording:
    """An interpreter that applies ops by the oracle and keeps what it was given."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Held, ...]:
        self.ops.append(op)
        return tuple(map(Held, apply(op, [operand.array for operand in operands])))

    def lift(self, value: Any, weak: bool = False) -> Any:
        raise AssertionError("a rule gives ops values and Scalars")

    def witness(self, failed: Any, message: str, value: Any = None) -> Any:
        raise AssertionError("no rule reports anything")


def apply(op: Op, operands: Sequence[Array], flush: bool = False) -> tuple[Array, ...]:
    """The results of an op by the oracle, which are of the types that it infers."""
    inferred = op.infer_all(*map(type_of, operands))
    with np.errstate(all="ignore"):
        made = impl[op.key](op, Arithmetic(flush), *operands)
    results = tuple(made) if op.multiple_results else (made,)
    assert tuple(map(type_of, results)) == inferred, op
    return results


def axes_of(
    ranks: Sequence[int | None], most: int, name: str
) -> list[tuple[Axis, ...]]:
    """Choices of axes, at least one of them batched: all, or `most` of them.

    Operands without a rank are never batched.
    """
    ranges = [(None,) if n is None else (None, *range(n + 1)) for n in ranks]
    count = math.prod(map(len, ranges))
    if count <= most + 1:
        every = itertools.product(*ranges)
        return [axes for axes in every if any(axis is not None for axis in axes)]
    rng, found = rng_of(name), {tuple(None if n is None else 0 for n in ranks)}
    while len(found) < most:
        axes = tuple(each[rng.integers(len(each))] for each in ranges)
        if any(axis is not None for axis in axes):
            found.add(axes)
    return sorted(found, key=str)


def row_dtype(row: OpRow) -> DType:
    return dtypes.float32 if dtypes.float32 in row.dtypes else row.dtypes[0]


def examples_of(row: OpRow, case: Case, size: int) -> list[list[Array]]:
    """Of each operand an array an example."""
    sets = [row.operands(case, True, number) for number in range(size)]
    return [list(each) for each in zip(*sets, strict=True)]


def chosen(
    examples: Sequence[list[Array]], axes: Sequence[Axis]
) -> list[Array | list[Array]]:
    """The operands: the first example's where there is no axis."""
    pairs = zip(examples, axes, strict=True)
    return [each[0] if axis is None else each for each, axis in pairs]


def check(
    op: Op, operands: Sequence[Operand], axes: Sequence[Axis], size: int
) -> list[Op]:
    """Compare the rule, bit for bit, with the op on each example; what it bound.

    Where there is an axis, `operands` has a list of an array an example. Of an empty
    batch it has one example, which says what shape an example has.
    """
    where = f"{op}, axes {tuple(axes)}, {size} examples"
    given = [
        _first(operand, axis, size)
        for operand, axis in zip(operands, axes, strict=True)
    ]
    with interpreting(Recording()) as below:
        results, places = batch[op.key](op, size, given, tuple(axes))
    examples = [_example(operands, n) for n in range(max(size, 1))]
    wanted = list(zip(*(apply(op, example) for example in examples), strict=True))
    assert len(results) == len(places) == len(wanted), where
    for result, place, each in zip(results, places, wanted, strict=True):
        if place is None:
            expected = each[0]
            for other in each[1:]:
                assert_same_bits(other, expected, where)
        else:
            assert 0 <= place <= each[0].ndim, where
            expected = np.stack(each, place).take(range(size), place)
        assert isinstance(result, Held), where
        assert_same_bits(result.array, expected, where)
    return below.ops


def _first(operand: Operand, axis: Axis, size: int) -> Held | Scalar:
    """The first `size` examples as one value."""
    if isinstance(operand, list):
        assert axis is not None
        return Held(np.stack(operand, axis).take(range(size), axis))
    assert axis is None
    return operand if isinstance(operand, Scalar) else Held(operand)


def _example(operands: Sequence[Operand], number: int) -> list[Array]:
    def one(operand: Operand) -> Array:
        if isinstance(operand, list):
            return operand[number]
        return operand.array if isinstance(operand, Scalar) else operand

    return [one(operand) for operand in operands]
