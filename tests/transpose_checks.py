"""The identity that a transposition rule is checked by, for one application at a time.

A linear map A and its transpose B have <ct, A t> = <B ct, t> for all t. Elements are
small whole numbers, so that every sum is exact and both sides are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.op import Op, PrimitiveKey
from poot.core.oracle import evaluate
from poot.core.types import TensorType
from poot.interpreters.array import Array as PootArray
from poot.interpreters.transpose.rules import Linear, transpose_rule
from tests.numerics import Array, rng_of
from tests.op_row import Case
from tests.op_table import graph_of

# The operands that may be linear; all operands of Concat may.
LINEAR: dict[str, tuple[int, ...]] = {
    "Unary[NEG]": (0,),
    "Binary[ADD]": (0, 1),
    "Binary[SUB]": (0, 1),
    "Binary[MUL]": (0, 1),
    "Binary[DIV]": (0,),
    "Select": (1, 2),
    "Cast": (0,),
    "Broadcast": (0,),
    "Reshape": (0,),
    "Transpose": (0,),
    "Slice": (0,),
    "Concat": (0, 1, 2),
    "Pad": (0, 1),
    "Reverse": (0,),
    "Reduce[SUM]": (0,),
    "Cumulative[SUM]": (0,),
    "ReduceWindow[SUM]": (0,),
    "MatMul": (0, 1),
    "DotGeneral": (0, 1),
    "IndexedMatMul": (0, 1),
    "Conv": (0, 1),
    "Gather": (0,),
    "GeneralGather": (0,),
    "DynamicSlice": (0,),
    "DynamicUpdateSlice": (0, 1),
    "Scatter[SET]": (0, 2),
    "Scatter[ADD]": (0, 2),
    "Scatter[MUL]": (0,),
    "ScatterUpdate": (0, 1),
}
# Linear in each factor, not in both at once.
PRODUCTS = {"Binary[MUL]", "MatMul", "DotGeneral", "IndexedMatMul", "Conv"}
# Sums of so small numbers stay exact in each dtype.
LARGEST = {"bf16": 1, "f16": 2, "f32": 9, "f64": 9}
DIRECTIONS = 6


def small(rng: np.random.Generator, type: TensorType) -> Array:
    """Whole numbers of both signs, none of which is 0."""
    sizes = rng.integers(1, LARGEST[type.dtype.name], type.shape, endpoint=True)
    return (sizes * rng.choice([-1, 1], type.shape)).astype(type.dtype.numpy)


def transposed(
    op: Op, cotangent: Array, operands: Sequence[Array], linear: Sequence[int]
) -> list[Array]:
    """The cotangents of the operands in `linear`, checked to have their types."""
    types = [TensorType(x.shape, dtypes.as_dtype(x.dtype)) for x in operands]
    given = [
        Linear(types[number]) if number in linear else PootArray.from_numpy(x)
        for number, x in enumerate(operands)
    ]
    found = transpose_rule(op)(op, (PootArray.from_numpy(cotangent),), given)
    assert len(found) == len(operands)
    assert all(found[n] is None for n in range(len(found)) if n not in linear)
    made = []
    for number in linear:
        type, each = types[number], found[number]
        if each is None:
            made.append(np.zeros(type.shape, type.dtype.numpy))
            continue
        assert each.type == type, (op, number)
        made.append(np.asarray(each))
    return made


def dot(one: Sequence[Array], other: Sequence[Array]) -> float:
    pairs = zip(one, other, strict=True)
    return sum(float(np.sum(a.astype(np.float64) * b)) for a, b in pairs)


def assert_transposed(case: Case, operands: list[Array], linear: Sequence[int]) -> None:
    """In some directions at random, the operands that are not in `linear` kept."""
    rng, graph = rng_of(f"{case}{linear}"), graph_of(case)

    def forward(*values: Array) -> Array:
        given = list(operands)
        for number, value in zip(linear, values, strict=True):
            given[number] = value
        return evaluate(graph, *given)[0].astype(np.float64)

    nothing = [np.zeros_like(operands[number]) for number in linear]
    start = forward(*nothing)
    cotangent = small(rng, graph.result_types[0])
    back = transposed(case.op, cotangent, operands, linear)
    for _ in range(DIRECTIONS):
        along = [small(rng, case.types[number]) for number in linear]
        # What mode FILL fills is NaN, wherever the operand goes.
        ahead = np.nan_to_num(forward(*along) - start)
        assert dot([cotangent], [ahead]) == dot(back, along), (case, linear)


def groups(case: Case, key: PrimitiveKey) -> Iterator[tuple[int, ...]]:
    taken = [number for number in LINEAR[str(key)] if number < len(case.types)]
    yield from ((number,) for number in taken)
    if len(taken) > 1 and str(key) not in PRODUCTS:
        yield tuple(taken)


def operands_of(case: Case, *integers: Any) -> list[Array]:
    """Small numbers for floats, and the integers given in turn."""
    rng, given = rng_of(str(case)), iter(integers)
    return [
        small(rng, type)
        if type.dtype.is_float
        else np.array(next(given), type.dtype.numpy).reshape(type.shape)
        for type in case.types
    ]


def assert_all_transposed(case: Case, *integers: Any) -> None:
    """In each operand that may be linear, and in all at once if that may be."""
    key = case.op.key
    for linear in groups(case, key):
        assert_transposed(case, operands_of(case, *integers), linear)


def f32(*shape: int) -> TensorType:
    return TensorType(shape, dtypes.float32)


def i32(*shape: int) -> TensorType:
    return TensorType(shape, dtypes.int32)
