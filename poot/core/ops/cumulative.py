"""The primitive that combines each element of an axis with all before it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import Kind
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind
from poot.core.ops.shape import require_axis
from poot.core.types import TensorType


class CumulativeOp(enum.Enum):
    """What combines the elements."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    LOGSUMEXP = "logsumexp"


_NUMBER = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT})
_KINDS = {
    CumulativeOp.SUM: _NUMBER,
    CumulativeOp.PROD: _NUMBER,
    CumulativeOp.MAX: _NUMBER | {Kind.BOOL},
    CumulativeOp.MIN: _NUMBER | {Kind.BOOL},
    CumulativeOp.LOGSUMEXP: frozenset({Kind.FLOAT}),
}


@register
@dataclass(frozen=True, slots=True)
class Cumulative(Op):
    """Each element combined with those before it along an axis; if `reverse`, after.

    Element i is what a Reduce of the elements up to i gives: floats are accumulated in
    f32 (f64 if f64) and each is rounded once; integers wrap. From the first NaN on a
    max, min or logsumexp is NaN. The order of additions depends on the shape, the dtype
    and the device only.
    """

    op: CumulativeOp
    axis: int
    reverse: bool = False
    name: ClassVar[str] = "cumulative"
    members: ClassVar[type[enum.Enum]] = CumulativeOp

    def infer(self, x: TensorType) -> TensorType:
        where = f"cumulative {self.op.value}"
        require_axis(where, self.axis, x.ndim)
        require_kind(where, x.dtype, _KINDS[self.op])
        return x
