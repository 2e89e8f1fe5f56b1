"""What the row of one primitive says, and the operands that are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.op import Op, PrimitiveKey
from poot.core.types import TensorType
from tests.numerics import Array, random_bits, random_in, rng_of, special_values

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS = SIGNED + UNSIGNED
BOOL = (dtypes.bool_,)
STORAGE = (dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e8m0)
# One dtype of each size and kind: for primitives that only move elements.
MOVED = (
    *BOOL,
    dtypes.int8,
    dtypes.uint16,
    dtypes.int32,
    dtypes.uint64,
    *FLOATS,
    dtypes.float8_e4m3fn,
)

Domain = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One application of a primitive."""

    op: Op
    types: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.types))})"

    def touches(self, *given: DType) -> bool:
        """Whether it makes any elements, and takes or makes some of these dtypes."""
        results = self.op.infer_all(*self.types)
        makes = any(type.size for type in results)
        return makes and any(type.dtype in given for type in (*self.types, *results))


def on_64_bit_integers(case: Case) -> bool:
    """It takes or makes 64-bit integers."""
    return case.touches(dtypes.int64, dtypes.uint64)


def on_64_bits(case: Case) -> bool:
    """So it does, or it works on the bits of 64-bit floats."""
    return on_64_bit_integers(case) or case.touches(dtypes.float64)


def never(case: Case) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class OpRow:
    """All that the tests need to know of one primitive."""

    key: PrimitiveKey
    dtypes: tuple[DType, ...]
    # The applications to try with a dtype: size 0, size 1 and odd sizes among them.
    cases: Callable[[DType], Sequence[Case]]
    # The op and the operands to the result, by NumPy or Python, not by the oracle.
    reference: Callable[..., Any]
    # Where operands lie, one an operand; the last one serves the operands after it.
    domains: tuple[Domain, ...] = ((-100.0, 100.0),)
    # Whether any bit pattern is an operand too.
    anywhere: bool = True
    # Whether operands are whole numbers, so that sums and products are exact.
    whole: bool = False
    # How far the device may be from the oracle; 0 for dtypes that are not listed.
    ulps: Mapping[str, float] = field(default_factory=dict)
    # How far the reference and JAX may be.
    reference_ulps: Mapping[str, float] = field(default_factory=dict)
    jax_ulps: Mapping[str, float] = field(default_factory=dict)
    # Results that are smaller than this are measured in its ulps.
    floor: float = 0.0
    # How many operands run over the special values (in all pairs, if two).
    special: int = 0
    # True where JAX means something else at a pair of operands: they are left out.
    jax_differs: Callable[..., Any] | None = None
    # Which applications a device without 64-bit integers refuses. No other missing
    # feature that the tests mask out may make poot refuse any.
    needs_int64: Callable[[Case], bool] = on_64_bit_integers

    def __str__(self) -> str:
        return str(self.key)

    def operands(self, case: Case, anywhere: bool, number: int = 0) -> list[Array]:
        """Operands that depend on the case only; by another number, other ones."""
        rng = rng_of(f"{case}{anywhere}{number or ''}")
        return [
            self._operand(rng, place, type, anywhere)
            for place, type in enumerate(case.types)
        ]

    def _operand(
        self, rng: np.random.Generator, number: int, type: TensorType, anywhere: bool
    ) -> Array:
        low, high = self.domains[min(number, len(self.domains) - 1)]
        x = random_in(rng, type, low, high)
        if self.whole and type.dtype.is_float:
            # Without -0, the sum of which is +0 here and what it likes elsewhere.
            x = (np.rint(x.astype(np.float64)) + 0.0).astype(type.dtype.numpy)
        if anywhere and self.anywhere:
            return np.where(rng.random(type.shape) < 0.5, x, random_bits(rng, type))
        return x

    def special_case(self, dtype: DType) -> tuple[Case, list[Array]]:
        """The primitive on special values; all pairs of them if it takes two."""
        values = special_values(dtype)
        (op, types) = (lambda case: (case.op, case.types))(self.cases(dtype)[0])
        if self.special == 1:
            operands = [values]
        else:
            one, other = np.meshgrid(values, values, indexing="ij")
            operands = [one.ravel(), other.ravel()]
        made = tuple(TensorType(x.shape, dtype) for x in operands)
        return Case(op, made[: len(types)]), operands
