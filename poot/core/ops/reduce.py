"""Primitives that combine the elements of one axis."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.dtypes import Kind
from poot.core.errors import ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind
from poot.core.ops.shape import require_axis
from poot.core.types import TensorType


class ReduceOp(enum.Enum):
    """What combines the elements."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ANY = "any"
    ALL = "all"


class ArgReduceOp(enum.Enum):
    """Which element's position is given."""

    ARGMAX = "argmax"
    ARGMIN = "argmin"


_NUMBER = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT})
_BOOL = frozenset({Kind.BOOL})
_KINDS = {
    ReduceOp.SUM: _NUMBER,
    ReduceOp.PROD: _NUMBER,
    ReduceOp.MAX: _NUMBER | _BOOL,
    ReduceOp.MIN: _NUMBER | _BOOL,
    ReduceOp.ANY: _BOOL,
    ReduceOp.ALL: _BOOL,
}


def _reduced(shape: tuple[int, ...], axis: int, keepdim: bool) -> tuple[int, ...]:
    return shape[:axis] + ((1,) if keepdim else ()) + shape[axis + 1 :]


@register
@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """Combine the elements along one axis.

    Floats are accumulated in f32 (f64 if f64) and rounded once; integers wrap. A max or
    min with a NaN is NaN. An empty axis gives the identity, which max and min have not.
    """

    op: ReduceOp
    axis: int
    keepdim: bool = False
    name: ClassVar[str] = "reduce"
    members: ClassVar[type[enum.Enum]] = ReduceOp

    def infer(self, x: TensorType) -> TensorType:
        where = self.op.value
        require_axis(where, self.axis, x.ndim)
        require_kind(where, x.dtype, _KINDS[self.op])
        if x.shape[self.axis] == 0 and self.op in (ReduceOp.MAX, ReduceOp.MIN):
            raise ShapeError(
                f"{where}: axis {self.axis} of {x.shape} is empty, and {where} has no "
                "identity"
            )
        return TensorType(_reduced(x.shape, self.axis, self.keepdim), x.dtype)


@register
@dataclass(frozen=True, slots=True)
class ArgReduce(Op):
    """The index (i32) of the first largest or smallest element along one axis.

    The first NaN, if there is one, is both.
    """

    op: ArgReduceOp
    axis: int
    keepdim: bool = False
    name: ClassVar[str] = "arg_reduce"
    members: ClassVar[type[enum.Enum]] = ArgReduceOp

    def infer(self, x: TensorType) -> TensorType:
        where = self.op.value
        require_axis(where, self.axis, x.ndim)
        require_kind(where, x.dtype, _NUMBER | _BOOL)
        if x.shape[self.axis] == 0:
            raise ShapeError(f"{where}: axis {self.axis} of {x.shape} is empty")
        if x.shape[self.axis] > 2**31 - 1:
            raise ShapeError(f"{where}: axis {self.axis} has over 2^31 - 1 elements")
        return TensorType(_reduced(x.shape, self.axis, self.keepdim), dtypes.int32)
