"""Forward-mode rules called by themselves, and the same by JAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.dtypes import DType, as_dtype
from poot.core.op import Op
from poot.interpreters.array import Array
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_oracle import OracleBackend
from poot.interpreters.jvp.rules import jvp
from poot.interpreters.jvp.table import results_of
from poot.testing import _jax_run  # noqa: F401 (it fills the table)
from poot.testing._jax_table import jax as jax_rules
from tests.numerics import assert_same_bits, random_in, rng_of
from tests.op_row import Case, OpRow

Numbers = np.ndarray[Any, Any]
# An op, its operands and their tangents.
Application = tuple[Op, Sequence[Numbers], Sequence[Numbers | None]]


@pytest.fixture()
def on_the_oracle() -> Iterator[None]:
    use_backend(OracleBackend())
    poot.clear_caches()
    yield
    poot.clear_caches()
    use_backend(None)


def pushed(
    op: Op, primals: Sequence[Numbers], tangents: Sequence[Numbers | None]
) -> list[Numbers | None]:
    """The tangents of the results by the rule, whose types are checked."""
    arrays = [Array.from_numpy(x) for x in primals]
    moved = [None if t is None else Array.from_numpy(t) for t in tangents]
    results, made = jvp[op.key](op, arrays, moved)
    expected = results_of(op, arrays)
    assert len(made) == len(results) == len(expected)
    for result, wanted, tangent in zip(results, expected, made, strict=True):
        assert result.type == wanted.type
        assert_same_bits(result.numpy(), wanted.numpy(), str(op))
        assert tangent is None or tangent.type == wanted.type
        assert tangent is None or wanted.type.dtype.is_differentiable
    return [None if t is None else t.numpy() for t in made]


def by_jax(applications: Sequence[Application]) -> list[list[Numbers | None]]:
    """JAX's tangents of the results of each, None for those that are no floats.

    All are compiled as one, which takes less time.
    """
    jax = pytest.importorskip("jax")

    def one(op: Op, primals: Any, tangents: Any) -> Any:
        places = [place for place, t in enumerate(tangents) if t is not None]

        def applied(*floats: Any) -> Any:
            given = list(primals)
            for place, x in zip(places, floats, strict=True):
                given[place] = x
            made = jax_rules[op.key](op, jax, *given)
            return made if op.multiple_results else (made,)

        floats, moved = ([xs[i] for i in places] for xs in (primals, tangents))
        return jax.jvp(applied, tuple(floats), tuple(moved))

    def every(operands: Any) -> Any:
        ops = [op for op, _, _ in applications]
        return [one(op, *given) for op, given in zip(ops, operands, strict=True)]

    operands = [(list(primals), list(moved)) for _, primals, moved in applications]
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        made = jax.jit(every)(operands)
    return [
        [
            np.asarray(moved) if as_dtype(result.dtype).is_float else None
            for result, moved in zip(results, tangents, strict=True)
        ]
        for results, tangents in made
    ]


def floats_of(operands: Sequence[Numbers]) -> list[int]:
    return [i for i, x in enumerate(operands) if as_dtype(x.dtype).is_float]


def operands_of(row: OpRow, case: Case) -> list[Numbers]:
    """Operands as the row has them, but floats without ties."""
    found = row.operands(case, anywhere=False)
    rng = rng_of(str(case))
    for place in floats_of(found):
        low, high = row.domains[min(place, len(row.domains) - 1)]
        found[place] = random_in(rng, case.types[place], low, high)
    return found


def tangents_of(case: Case, operands: Sequence[Numbers]) -> list[Numbers | None]:
    """One for each operand of floats."""
    rng, places = rng_of(f"tangents of {case}"), floats_of(operands)
    return [
        random_in(rng, type, -2.0, 2.0) if place in places else None
        for place, type in enumerate(case.types)
    ]


def cases_of(row: OpRow, dtype: DType) -> Iterator[tuple[Case, list[Numbers]]]:
    for case in row.cases(dtype):
        operands = operands_of(row, case)
        made = case.op.infer_all(*case.types)
        if floats_of(operands) and any(type.size for type in made):
            yield case, operands
