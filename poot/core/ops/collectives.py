"""What the examples of a named batch tell each other. Batching replaces all of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.op import Op, register
from poot.core.ops.shape import require_axis
from poot.core.types import TensorType, scalar_type


class CollectiveOp(enum.Enum):
    """What combines the values of all examples."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class Collective(Op):
    """An op over the batch that is called `axis_name`, of `size` examples."""

    axis_name: str
    size: int
    transient: ClassVar[bool] = True


@register
@dataclass(frozen=True, slots=True)
class AllReduce(Collective):
    """The values of all examples combined: the same for each."""

    reduce: CollectiveOp
    name: ClassVar[str] = "all_reduce"

    def infer(self, x: TensorType) -> TensorType:
        return x


@register
@dataclass(frozen=True, slots=True)
class AllGather(Collective):
    """The values of all examples along a new axis: the same for each."""

    axis: int
    name: ClassVar[str] = "all_gather"

    def infer(self, x: TensorType) -> TensorType:
        require_axis("all_gather", self.axis, x.ndim + 1)
        shape = (*x.shape[: self.axis], self.size, *x.shape[self.axis :])
        return TensorType(shape, x.dtype)


@register
@dataclass(frozen=True, slots=True)
class PPermute(Collective):
    """The value of another example: `perm` has pairs (from, to); else zeros."""

    perm: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "ppermute"

    def infer(self, x: TensorType) -> TensorType:
        return x


@register
@dataclass(frozen=True, slots=True)
class AxisIndex(Collective):
    """The number of the example, an i32."""

    name: ClassVar[str] = "axis_index"

    def infer(self) -> TensorType:
        return scalar_type(dtypes.int32)
