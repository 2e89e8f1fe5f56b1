"""How functions composed of several ops take operands and give their result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from poot.core.errors import ArgumentError
from poot.core.op import Op
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    cast_to,
    converted,
    promote_inexact,
    result_of,
)

P = ParamSpec("P")
R = TypeVar("R")


def ufunc(function: Callable[P, R]) -> Callable[P, R]:
    """A function of elements; what NumPy's ufuncs take besides, it refuses by name."""
    name = function.__name__.strip("_")

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            given = ", ".join(f"{option}=" for option in options)
            raise ArgumentError(
                f"poot.numpy.{name} does not take {given}; arrays never change, so use "
                "what it returns, with .astype(…) for another dtype and "
                "poot.numpy.where for a choice of elements"
            )
        return function(*args)  # type: ignore[call-arg]

    call.__name__ = call.__qualname__ = name
    return cast(Callable[P, R], call)


def in_compute_dtype(where: str, function: Callable[..., Value], *xs: Any) -> Value:
    """Apply a function of several ops in f32 at least, and round its result once."""
    promoted = promote_inexact(where, *xs)
    compute = promoted.dtype.compute
    result = function(*(converted(x, compute, where) for x in promoted.operands))
    return result_of(promoted, cast_to(result, promoted.dtype))


def bound(op: Op, *operands: Any) -> Value:
    """Bind an op of one result on operands of the right dtypes."""
    result: Value = op.bind(*operands)
    return result
