"""What the functions of lax take: operands of one dtype and of shapes that agree."""

from __future__ import annotations

from typing import Any

from poot.core.dtypes import Scalar
from poot.core.errors import DTypeError, ShapeError
from poot.interpreters.promotion import Promoted, converted, dtype_of, join, type_of


def same_dtype(where: str, *xs: Any) -> Promoted:
    """Bring Python numbers to the dtype that all other operands have already."""
    given = [dtype_of(x, f"lax.{where}") for x in xs]
    common = join(given)
    if any(not g.weak and g.dtype is not common.dtype for g in given):
        names = ", ".join(g.dtype.name + " (weak)" * g.weak for g in given)
        raise DTypeError(
            f"lax.{where}: given dtypes {names}, takes equal ones; cast with "
            ".astype(…), or use the function of poot.numpy, which promotes"
        )
    operands = tuple(converted(x, common.dtype, f"lax.{where}") for x in xs)
    return Promoted(operands, common.dtype, common.weak)


def same_rank(where: str, *xs: Any) -> None:
    """Raise ShapeError unless all operands but scalars have one number of axes."""
    shapes = [() if isinstance(x, Scalar) else type_of(x).shape for x in xs]
    if len({len(shape) for shape in shapes if shape}) > 1:
        given = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"lax.{where}: given shapes {given}, takes equal numbers of axes, or "
            "scalars; use lax.expand_dims, or poot.numpy, which puts axes in front"
        )


def same_kind(where: str, *xs: Any) -> Promoted:
    """Operands of one dtype and of as many axes, as binary functions take them."""
    promoted = same_dtype(where, *xs)
    same_rank(where, *promoted.operands)
    return promoted
