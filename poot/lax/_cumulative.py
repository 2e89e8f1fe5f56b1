"""Scans along an axis, under lax's names, in the operand's own dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, result_like
from poot.interpreters.shaping import canonical_axis


def _scan(name: str, op: CumulativeOp, doc: str) -> Callable[..., Value]:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Value:
        x = as_value(operand, f"lax.{name}")
        place = canonical_axis(axis, x.ndim, f"lax.{name}")
        return result_like(x, Cumulative(op, place, bool(reverse)).bind(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


cumsum = _scan(
    "cumsum",
    CumulativeOp.SUM,
    "The sum of each element and those before it, or after it if `reverse`.",
)
cumprod = _scan(
    "cumprod",
    CumulativeOp.PROD,
    "The product of each element and those before it, or after it if `reverse`.",
)
cummax = _scan(
    "cummax",
    CumulativeOp.MAX,
    "The largest of each element and those before it, or after it if `reverse`.",
)
cummin = _scan(
    "cummin",
    CumulativeOp.MIN,
    "The smallest of each element and those before it, or after it if `reverse`.",
)
cumlogsumexp = _scan(
    "cumlogsumexp",
    CumulativeOp.LOGSUMEXP,
    "log(sum(exp(x))) of each element x and those before it, or after it if `reverse`.",
)
