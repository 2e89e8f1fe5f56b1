"""The rows of the primitives that combine each element with those before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from tests import op_references as ref
from tests.numerics import Array
from tests.op_row import BOOL, FLOATS, INTEGERS, Case, OpRow, on_64_bits
from tests.op_rows_tensor import as_elements, cases_of

_C = CumulativeOp
NUMBERS = FLOATS + INTEGERS


def _cases(member: CumulativeOp) -> Callable[[DType], list[Case]]:
    return cases_of(
        *(
            (Cumulative(member, axis, reverse), (shape,))
            for shape, axis, reverse in (
                ((1,), 0, False),
                ((3, 5), 0, True),
                ((3, 5), 1, False),
                ((3, 5), 1, True),
                ((0, 3), 1, False),
                ((3, 0), 1, True),
                ((2, 3, 1), 1, True),
                ((2, 9, 16), 1, False),
                ((2, 9, 16), 1, True),
                ((2, 1031), 1, False),
                ((1, 1032), 1, True),
                ((300, 3), 0, False),
            )
        )
    )


def _folded(step: Callable[[Any, Any], Any], start: Any) -> Callable[..., Any]:
    """Fold an axis and keep what is held at each element, in Python's numbers."""

    def prefixes(row: list[Any]) -> list[Any]:
        held, found = start, []
        for element in row:
            held = element if held is None else step(held, element)
            found.append(held)
        return found

    return _by_rows(prefixes)


def _by_rows(prefixes: Callable[[list[Any]], list[Any]]) -> Callable[..., Any]:
    def reference(op: Cumulative, x: Array) -> Array:
        rows = np.moveaxis(x, op.axis, -1)
        dtype = dtypes.as_dtype(x.dtype)
        wide = rows.astype(np.float64) if dtype.is_float else rows
        turn = -1 if op.reverse else 1
        lists = wide.reshape(-1, x.shape[op.axis]).tolist() if x.size else []
        flat = [v for row in lists for v in prefixes(row[::turn])[::turn]]
        return np.moveaxis(as_elements(flat, dtype).reshape(rows.shape), -1, op.axis)

    return reference


def _log_of_sums(row: list[float]) -> list[float]:
    found = []
    for end in range(1, len(row) + 1):
        most = max(row[:end])
        terms = (math.exp(element - most) for element in row[:end])
        found.append(most + math.log(math.fsum(terms)))
    return found


def _row(
    member: CumulativeOp,
    taken: tuple[DType, ...],
    reference: Callable[..., Any],
    **rest: Any,
) -> OpRow:
    key = Cumulative(member, 0).key
    return OpRow(key, taken, _cases(member), reference, **rest)


_SMALL: dict[str, Any] = {"anywhere": False, "whole": True}

ROWS = [
    _row(
        _C.SUM,
        NUMBERS,
        _folded(lambda a, b: a + b, 0),
        domains=((-8.0, 8.0),),
        **_SMALL,
    ),
    _row(
        _C.PROD,
        NUMBERS,
        _folded(lambda a, b: a * b, 1),
        domains=((1.0, 2.0),),
        **_SMALL,
    ),
    *(
        _row(member, NUMBERS + BOOL, _folded(best, None), needs_int64=on_64_bits)
        for member, best in ((_C.MAX, ref.largest), (_C.MIN, ref.smallest))
    ),
    _row(
        _C.LOGSUMEXP,
        FLOATS,
        _by_rows(_log_of_sums),
        # Positive, so that the logarithm of a sum does not cancel the largest element.
        domains=((1.0, 40.0),),
        anywhere=False,
        ulps={"f16": 1, "bf16": 1, "f32": 4, "f64": 32},
        # Exact sums, while the oracle adds up in f64.
        reference_ulps={"f64": 32},
        jax_ulps={"f32": 8, "bf16": 4},
        needs_int64=on_64_bits,
    ),
]
