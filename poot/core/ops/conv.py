"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import DType
from poot.core.errors import ShapeError
from poot.core.op import Op, register
from poot.core.ops.matmul import contracted_dtype
from poot.core.types import TensorType


def dilated(size: int, dilation: int) -> int:
    """The size of an axis with dilation - 1 holes between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


@register
@dataclass(frozen=True, slots=True)
class Conv(Op):
    """Sums of products of a window that slides over `x`, with `w`, as XLA has them.

    x: [N, C, *spatial], w: [O, C / feature groups, *window]; the result is
    [N / batch groups, O, *positions]. Per spatial axis `x` gets lhs_dilation - 1 zeros
    between neighbours and `padding` (low, high) zeros around (negative ones crop), the
    window rhs_dilation - 1 holes between its elements. It moves by `strides` and is
    not turned around. With G feature groups output feature o sees the input features of
    group o // (O / G); with G batch groups the g-th part of the batch makes the
    features of group g. Accumulation and `out` are as in `MatMul`.
    """

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_group_count: int = 1
    batch_group_count: int = 1
    out: DType | None = None
    name: ClassVar[str] = "conv"

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        dtype = contracted_dtype("conv", self.out, x, w)
        self._check_parameters(x, w)
        batch, features = x.shape[:2]
        made, taken = w.shape[:2]
        groups, parts = self.feature_group_count, self.batch_group_count
        if taken * groups != features or made % (groups * parts) or batch % parts:
            raise ShapeError(
                f"conv: input {x.shape}, weights {w.shape}, {groups} feature groups, "
                f"{parts} batch groups; takes [N, C, …] and [O, C / feature groups, …] "
                "with N and O divisible by the groups"
            )
        positions = (self.positions(x, w, axis) for axis in range(len(self.strides)))
        return TensorType((batch // parts, made, *positions), dtype)

    def _check_parameters(self, x: TensorType, w: TensorType) -> None:
        rank = len(self.strides)
        per_axis = (self.padding, self.lhs_dilation, self.rhs_dilation)
        if any(len(given) != rank for given in per_axis):
            raise ShapeError(
                f"conv: {rank} strides, {len(self.padding)} paddings, "
                f"{len(self.lhs_dilation)} and {len(self.rhs_dilation)} dilations; "
                "takes one of each a spatial axis"
            )
        if x.ndim != rank + 2 or w.ndim != rank + 2:
            raise ShapeError(
                f"conv: input {x.shape} and weights {w.shape} for {rank} spatial axes; "
                f"both take {rank + 2} axes"
            )
        for what, numbers in (
            ("strides", self.strides),
            ("lhs_dilation", self.lhs_dilation),
            ("rhs_dilation", self.rhs_dilation),
            ("group counts", (self.feature_group_count, self.batch_group_count)),
        ):
            if any(number < 1 for number in numbers):
                raise ShapeError(f"conv: {what} {numbers}; all take 1 or more")
        if self.feature_group_count > 1 and self.batch_group_count > 1:
            raise ShapeError(
                f"conv: {self.feature_group_count} feature groups and "
                f"{self.batch_group_count} batch groups; one of the two must be 1"
            )
        self._check_padding(x)

    def _check_padding(self, x: TensorType) -> None:
        for axis in range(len(self.strides)):
            if self.padded(x, axis) < 0:
                raise ShapeError(
                    f"conv: padding {self.padding[axis]} makes spatial axis {axis} of "
                    f"size {x.shape[2 + axis]} negative"
                )

    def padded(self, x: TensorType, axis: int) -> int:
        """The size of a spatial axis of `x` after dilation and padding."""
        size = dilated(x.shape[2 + axis], self.lhs_dilation[axis])
        return size + sum(self.padding[axis])

    def positions(self, x: TensorType, w: TensorType, axis: int) -> int:
        """How many places along a spatial axis the window takes."""
        window = dilated(w.shape[2 + axis], self.rhs_dilation[axis])
        room = self.padded(x, axis) - window
        return room // self.strides[axis] + 1 if room >= 0 else 0
