"""The primitive that combines the elements under a moving window."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import DType, Kind, Scalar
from poot.core.errors import ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind
from poot.core.types import TensorType


class WindowOp(enum.Enum):
    """What combines the elements."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"


_NUMBER = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT})


def window_identity(op: WindowOp, dtype: DType) -> Scalar:
    """What changes nothing: it stands where padding and dilation make room."""
    if op in (WindowOp.SUM, WindowOp.PROD) or dtype.is_bool:
        return Scalar.of(op in (WindowOp.PROD, WindowOp.MIN), dtype)
    lowest = op is WindowOp.MAX
    if dtype.is_float:
        return Scalar.of(float("-inf" if lowest else "inf"), dtype)
    sign = 1 << dtype.bits - 1
    if dtype.is_signed:
        return Scalar(dtype, sign if lowest else sign - 1)
    return Scalar(dtype, 0 if lowest else 2 * sign - 1)


def window_positions(
    size: int,
    window: int,
    stride: int,
    padding: tuple[int, int],
    base_dilation: int,
    window_dilation: int,
) -> int:
    """How many places a window has along an axis of `size` elements."""
    dilated = (size - 1) * base_dilation + 1 if size else 0
    padded = padding[0] + dilated + padding[1]
    if padded < 0:
        raise ShapeError(f"reduce_window: padding {padding} makes size {size} negative")
    reach = (window - 1) * window_dilation + 1
    return (padded - reach) // stride + 1 if padded >= reach else 0


@register
@dataclass(frozen=True, slots=True)
class ReduceWindow(Op):
    """Combine the elements under a window at each of its places.

    All parameters are one an axis. `padding` (low, high) puts identities around the
    axis, or cuts elements off if negative; `base_dilation` d puts d - 1 between
    neighbours; under the window elements are `window_dilation` apart. Floats are
    accumulated in f32 (f64 if f64) and rounded once; integers wrap; a max or min with a
    NaN is NaN.
    """

    op: WindowOp
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    name: ClassVar[str] = "reduce_window"
    members: ClassVar[type[enum.Enum]] = WindowOp

    def infer(self, x: TensorType) -> TensorType:
        where = f"reduce_window {self.op.value}"
        kinds = _NUMBER
        if self.op in (WindowOp.MAX, WindowOp.MIN):
            kinds = kinds | {Kind.BOOL}
        require_kind(where, x.dtype, kinds)
        given: tuple[Sequence[object], ...] = (
            self.window,
            self.strides,
            self.padding,
            self.base_dilation,
            self.window_dilation,
        )
        if any(len(each) != x.ndim for each in given):
            raise ShapeError(
                f"{where}: given {', '.join(str(len(each)) for each in given)} windows,"
                f" strides, paddings, base and window dilations for {x.ndim} axes; "
                "takes one of each an axis"
            )
        numbers = zip(
            self.window,
            self.strides,
            self.base_dilation,
            self.window_dilation,
            strict=True,
        )
        for each in numbers:
            if min(each) < 1:
                raise ShapeError(
                    f"{where}: window, stride, base and window dilation {each} of an "
                    "axis; takes 1 or more"
                )
        axes = zip(x.shape, *given, strict=True)
        shape = tuple(window_positions(*axis) for axis in axes)
        return TensorType(shape, x.dtype)
