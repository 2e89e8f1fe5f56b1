"""Primitives that write at positions which are data."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import Kind
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind, require_same_dtype
from poot.core.ops.index_dims import ScatterDims
from poot.core.types import TensorType


class ScatterOp(enum.Enum):
    """What becomes of an element that updates meet."""

    SET = "set"  # the last of them
    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"


class ScatterMode(enum.Enum):
    """What a scatter does with a window that does not lie wholly inside."""

    CLIP = "clip"  # moves it inside
    DROP = "drop"  # writes nothing
    PROMISE = "promise"  # the caller promises there is none; dropped all the same


_NUMBER = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT})
_KINDS: dict[ScatterOp, frozenset[Kind]] = {
    ScatterOp.SET: frozenset(Kind),
    ScatterOp.ADD: _NUMBER,
    ScatterOp.MUL: _NUMBER,
    ScatterOp.MIN: _NUMBER | {Kind.BOOL},
    ScatterOp.MAX: _NUMBER | {Kind.BOOL},
}


@register
@dataclass(frozen=True, slots=True)
class Scatter(Op):
    """The operand with windows of updates combined into it, one at each index vector.

    Operands: the operand, the indices, the updates; `dims` says what their axes are.
    Negative indices do not wrap. Updates of one element come in the row-major order of
    the updates: SET takes the last; the others give the same bits at every run, with
    f32 sums and products of narrower floats rounded once at the end. Elements that no
    update meets keep every bit. Promises that do not hold leave open which update wins.
    """

    op: ScatterOp
    dims: ScatterDims
    mode: ScatterMode = ScatterMode.DROP
    indices_are_sorted: bool = False
    unique_indices: bool = False
    name: ClassVar[str] = "scatter"
    members: ClassVar[type[enum.Enum]] = ScatterOp

    def infer(
        self, operand: TensorType, indices: TensorType, updates: TensorType
    ) -> TensorType:
        where, dims = f"scatter[{self.op.value}]", self.dims
        require_same_dtype(where, operand, updates)
        require_kind(where, operand.dtype, _KINDS[self.op])
        dims.gather.check(where, operand, indices)
        rank = len(dims.update_window_dims) + indices.ndim - 1
        batch = tuple(
            size
            for axis, size in enumerate(updates.shape)
            if axis not in dims.update_window_dims
        )
        if updates.ndim != rank or batch != indices.shape[:-1]:
            raise ShapeError(
                f"{where}: updates {updates} for indices {indices}; takes axes "
                f"{indices.shape[:-1]} around the window axes {dims.update_window_dims}"
            )
        window = dims.window(operand.ndim, updates.shape)
        for axis in dims.gather.window_dims(operand.ndim):
            if window[axis] > operand.shape[axis]:
                raise ShapeError(
                    f"{where}: a window has size {window[axis]} along axis {axis} of "
                    f"{operand}; takes {operand.shape[axis]} at most"
                )
        return operand


@register
@dataclass(frozen=True, slots=True)
class DynamicUpdateSlice(Op):
    """The operand with a block overwritten by `update`, from scalar starts one an axis.

    Starts are clamped so that the block lies inside the operand.
    """

    name: ClassVar[str] = "dynamic_update_slice"

    def infer(
        self, operand: TensorType, update: TensorType, *starts: TensorType
    ) -> TensorType:
        require_same_dtype(self.name, operand, update)
        if not len(starts) == update.ndim == operand.ndim:
            raise ShapeError(
                f"{self.name}: an update of {update.ndim} axes and {len(starts)} "
                f"starts for {operand.ndim} axes; takes one of each an axis"
            )
        for start in starts:
            if start.shape or not start.dtype.is_integer:
                raise DTypeError(f"{self.name}: start {start}, takes integer scalars")
        for size, limit in zip(update.shape, operand.shape, strict=True):
            if size > limit:
                raise ShapeError(f"{self.name}: size {size} is not in 0..{limit}")
        return operand


@register
@dataclass(frozen=True, slots=True)
class ScatterUpdate(Op):
    """`base` with row t of `src` written to row slots[t].

    Slots outside 0..rows-1, such as -1, write nothing. Of rows for one slot the last
    stays. The work follows the number of slots where `base` is overwritten in place.
    """

    name: ClassVar[str] = "scatter_update"

    def infer(self, base: TensorType, src: TensorType, slots: TensorType) -> TensorType:
        require_same_dtype(self.name, base, src)
        if not slots.dtype.is_integer:
            raise DTypeError(f"{self.name}: the slots are {slots}, takes integers")
        if (
            slots.ndim != 1
            or not base.shape
            or src.shape != (*slots.shape, *base.shape[1:])
        ):
            raise ShapeError(
                f"{self.name}: rows {src} at slots {slots} of {base}; takes a row of "
                "the base a slot"
            )
        return base
