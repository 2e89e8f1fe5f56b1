"""The rule table of the oracle, and the arithmetic that its rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from poot.core import dtypes
from poot.core.conversion import round_float
from poot.core.op import RuleTable

Array = np.ndarray[Any, Any]
# A rule takes the op, the arithmetic and the operands; it gives the result (a tuple of
# results if the op has several).
Impl = Callable[..., Any]

impl: RuleTable[Impl] = RuleTable("impl")

# Dtypes whose subnormals are subnormals of f32 too, the format devices calculate in.
_SHARES_F32_EXPONENT = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))
_SMALLEST_NORMAL_F32 = 2.0**-126


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How an equation calculates: in f64 (f32 and narrower too), rounded once.

    With `flush`, f32 arithmetic takes subnormal operands and results for zeros of their
    sign, as devices do that cannot keep them. Rules that only move elements do without
    an Arithmetic, and so keep every bit.
    """

    flush: bool = False

    def widen(self, x: Array) -> Array:
        """Floats as f64; anything else as it is."""
        dtype = dtypes.as_dtype(x.dtype)
        if dtype.is_integer or dtype.is_bool:
            return x
        wide = x.astype(np.float64)
        if self.flush and x.dtype in _SHARES_F32_EXPONENT:
            return _flushed(wide)
        return wide

    def round(self, x: Any, dtype: np.dtype[Any]) -> Array:
        """The f64 results `x` in an equation's own dtype, integers mod 2^n."""
        values = np.asarray(x)
        if values.dtype == np.float64:
            values = round_float(values, dtype)
            if self.flush and dtype in _SHARES_F32_EXPONENT:
                return _flushed(values)
        return values.astype(dtype)


def _flushed(x: Array) -> Array:
    tiny = np.abs(x) < np.asarray(_SMALLEST_NORMAL_F32, x.dtype)
    return np.where(tiny, np.copysign(np.zeros((), x.dtype), x), x)
