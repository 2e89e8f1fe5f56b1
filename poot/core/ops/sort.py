"""Primitives that bring the elements of one axis into order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.dtypes import Kind
from poot.core.errors import OperandCountError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind
from poot.core.ops.shape import require_axis
from poot.core.types import TensorType

_ORDERED = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT, Kind.BOOL})
_LONGEST_AXIS = 2**31 - 1


def _require_length(where: str, x: TensorType, axis: int) -> None:
    if x.shape[axis] > _LONGEST_AXIS:
        raise ShapeError(f"{where}: axis {axis} of {x} has over 2^31 - 1 elements")


@register
@dataclass(frozen=True, slots=True)
class Sort(Op):
    """Bring all operands into the order of the first `num_keys` along one axis.

    The first key decides, then the next. Equal elements stay in the order they have,
    with `descending` too. -0 equals +0; all NaN are equal and above every number.
    Subnormals keep their order on every device.
    """

    axis: int
    num_keys: int = 1
    descending: bool = False
    name: ClassVar[str] = "sort"
    multiple_results: ClassVar[bool] = True

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        if not 1 <= self.num_keys <= len(operands):
            raise OperandCountError(
                f"sort: {self.num_keys} of {len(operands)} operands are keys; takes "
                "at least 1, and as many operands"
            )
        for x in operands:
            if x.shape != operands[0].shape:
                given = " and ".join(map(str, operands))
                raise ShapeError(f"sort: takes operands of one shape, given {given}")
        require_axis("sort", self.axis, operands[0].ndim)
        _require_length("sort", operands[0], self.axis)
        for key in operands[: self.num_keys]:
            require_kind("sort", key.dtype, _ORDERED)
        return operands


def _chosen(where: str, k: int, x: TensorType) -> tuple[int, ...]:
    """The shape of the k largest elements along the last axis."""
    if not x.shape or not 0 <= k <= x.shape[-1]:
        raise ShapeError(
            f"{where}: the {k} largest of {x}; takes a last axis of {k} or more"
        )
    require_kind(where, x.dtype, _ORDERED)
    _require_length(where, x, x.ndim - 1)
    return (*x.shape[:-1], k)


@register
@dataclass(frozen=True, slots=True)
class TopK(Op):
    """The k largest elements along the last axis, and their indices (i32).

    The largest comes first; of equal ones the one with the lowest index. +0 is above
    -0, and NaN above every number.
    """

    k: int
    name: ClassVar[str] = "top_k"
    multiple_results: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        shape = _chosen("top_k", self.k, x)
        return TensorType(shape, x.dtype), TensorType(shape, dtypes.int32)


@register
@dataclass(frozen=True, slots=True)
class ArgTopK(Op):
    """The indices (i32) of the k largest elements along the last axis, as `TopK`."""

    k: int
    name: ClassVar[str] = "arg_top_k"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(_chosen("arg_top_k", self.k, x), dtypes.int32)
