"""Products of which one factor is left out, which are good for zeros too."""

from __future__ import annotations

from typing import Any

from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.shape import Pad
from poot.interpreters.jvp.definitions import like
from poot.interpreters.primitives import cast, mul, type_of


def shifted(x: Any, axis: int, reverse: bool, first: float) -> Any:
    """Each element of an axis one place further on (back, if `reverse`)."""
    config = [(0, 0, 0)] * type_of(x).ndim
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return Pad(tuple(config)).bind(x, like(x, first))


def product_of_earlier(x: Any, axis: int, reverse: bool) -> Any:
    """The product of all elements before each (after, if `reverse`)."""
    product = Cumulative(CumulativeOp.PROD, axis, reverse)
    return product.bind(shifted(x, axis, reverse, 1))


def product_of_others(x: Any, axis: int) -> Any:
    """The product of all elements of the axis but each one itself.

    Narrow floats in f32, as a Reduce has it, since parts of a product may overflow.
    """
    dtype = type_of(x).dtype
    wide = cast(x, dtype.compute)
    before, after = (product_of_earlier(wide, axis, back) for back in (False, True))
    return cast(mul(before, after), dtype)
