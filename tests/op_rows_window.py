"""The rows of the primitives that combine what lies under moving windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.ops.window import ReduceWindow, WindowOp, window_identity
from poot.core.types import TensorType
from tests import op_references as ref
from tests.numerics import Array
from tests.op_row import (
    BOOL,
    FLOATS,
    INTEGERS,
    Case,
    OpRow,
    on_64_bit_integers,
    on_64_bits,
)
from tests.op_rows_tensor import Cases, as_elements, cases_of

NUMBERS = FLOATS + INTEGERS


def _windows(member: WindowOp) -> Cases:
    def window(shape: tuple[int, ...], *axes: tuple[int, ...]) -> Any:
        """Of each axis: window, stride, low, high, base and window dilation."""
        full = [(*axis, *(1, 1, 0, 0, 1, 1)[len(axis) :]) for axis in axes]
        w, s, low, high, base, apart = (tuple(v) for v in zip(*full, strict=True))
        pads = tuple(zip(low, high, strict=True))
        return ReduceWindow(member, w, s, pads, base, apart), (shape,)

    return cases_of(
        window((1,), (1,)),
        window((67,), (5,)),
        window((67,), (4, 3, 2, 5)),
        window((0,), (2, 1, 1, 2)),
        window((3,), (5,)),
        window((9,), (3, 2, -2, 4, 3, 2)),
        window((5, 8), (1,), (3, 1, 1, 1)),
        window((5, 8), (3, 1, 0, 3, 2, 1), (1, 2)),
        window((2, 6, 7), (1,), (3, 2, 1, 1), (2, 2, 0, 1)),
        window((12, 11), (9, 1, 4, 4), (8, 2, 3, 4, 1, 2)),
        window((4, 70), (1,), (40, 1, 39, 0)),
    )


def _combined(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Every place and every offset, in Python's numbers."""

    def reference(op: ReduceWindow, x: Array) -> Array:
        dtype = dtypes.as_dtype(x.dtype)
        start = window_identity(op.op, dtype).value
        out = op.infer(TensorType(x.shape, dtype)).shape
        wide = x.astype(np.float64) if dtype.is_float else x
        elements = dict(zip(np.ndindex(x.shape), wide.ravel().tolist(), strict=True))
        results = []
        for place in np.ndindex(out):
            total = start
            for offset in itertools.product(*map(range, op.window)):
                found = elements.get(_under(op, place, offset), start)
                total = step(total, found)
            results.append(total)
        return as_elements(results, dtype).reshape(out)

    return reference


def _under(op: ReduceWindow, place: Any, offset: Any) -> tuple[int, ...] | None:
    found = []
    for axis, (at, within) in enumerate(zip(place, offset, strict=True)):
        moved = at * op.strides[axis] + within * op.window_dilation[axis]
        index, rest = divmod(moved - op.padding[axis][0], op.base_dilation[axis])
        if rest:
            return None
        found.append(index)
    return tuple(found)


def _row(
    member: WindowOp,
    taken: Any,
    step: Callable[[Any, Any], Any],
    **rest: Any,
) -> OpRow:
    key = ReduceWindow(member, (), (), (), (), ()).key
    return OpRow(key, taken, _windows(member), _combined(step), **rest)


def _compares_64_bits(case: Case) -> bool:
    """Of no element there is nothing but identities."""
    return on_64_bit_integers(case) or (on_64_bits(case) and case.types[0].size > 0)


_SMALL: dict[str, Any] = {"anywhere": False, "whole": True}

ROWS = [
    _row(
        WindowOp.SUM,
        NUMBERS,
        lambda a, b: a + b,
        domains=((-8.0, 8.0),),
        **_SMALL,
    ),
    _row(
        WindowOp.PROD,
        NUMBERS,
        lambda a, b: a * b,
        domains=((1.0, 2.0),),
        **_SMALL,
    ),
    *(
        _row(member, NUMBERS + BOOL, best, needs_int64=_compares_64_bits)
        for member, best in (
            (WindowOp.MAX, ref.largest),
            (WindowOp.MIN, ref.smallest),
        )
    ),
]
