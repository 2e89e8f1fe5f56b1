"""Slots: words that the host writes at each call, and the ranges declared for them."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError, DTypeError, RangeError, ShapeError
from poot.core.ops.elementwise import BinaryOp, CompareOp
from poot.core.types import Slot, TensorType
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.checks import check
from poot.interpreters.eager import SCALAR_SLOT
from poot.interpreters.primitives import binary, compare, number
from poot.interpreters.tracer import Tracer

_WORD = np.iinfo(np.int32)


@dataclass(frozen=True)
class Kind:
    """What a slot carries: i32 words from `low` to `high`, both included.

    An owner of another role declares a subclass with a `label`, by which graphs and
    errors name it, and the `most_axes` that an argument may have (None: any number).
    """

    low: int
    high: int

    label: ClassVar[str] = "word"
    most_axes: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            given = getattr(self, name)
            try:
                bound = operator.index(given)
            except TypeError:
                raise ArgumentError(
                    f"{self._written}: {name} is a {type(given).__name__}, takes an int"
                ) from None
            object.__setattr__(self, name, bound)
        if not _WORD.min <= self.low <= self.high <= _WORD.max:
            raise RangeError(
                f"{self._written}: takes low <= high, both from {_WORD.min} to "
                f"{_WORD.max}, since slots hold i32 words"
            )

    @property
    def slot(self) -> Slot:
        """What graphs know of it."""
        return Slot(self.label, self.low, self.high)

    @property
    def _written(self) -> str:
        return f"poot.slots.{type(self).__name__}({self.low}, {self.high})"

    def __str__(self) -> str:
        return f"{self.label} {self.low}..{self.high}"

    def require_shape(self, shape: tuple[int, ...]) -> None:
        """ShapeError for a shape that an argument of this kind cannot have."""
        if self.most_axes is not None and len(shape) > self.most_axes:
            raise ShapeError(
                f"slot {self} is given shape {shape}; takes at most {self.most_axes} "
                "axes"
            )


class Token(Kind):
    """Ids of tokens: one, or a vector of one a sequence."""

    label = "token"
    most_axes = 1


class Pos(Kind):
    """Positions in a sequence: one, or a vector of one a sequence."""

    label = "pos"
    most_axes = 1


class SlotMap(Kind):
    """Which rows of a pool are read: paged reads of a cache."""

    label = "slot map"


class WriteMap(Kind):
    """Which rows of a pool are written.

    A range from -1 lets -1 stand for none. The write has to say so, since a negative
    index counts from the end otherwise, as in NumPy:
    `pool.at[rows].set(new, mode="drop", wrap_negative_indices=False)`.
    """

    label = "write map"


@dataclass(frozen=True, slots=True, eq=False)
class SlotKind:
    """Numbers that the host writes at each call. One instance a type and Kind."""

    aval: Aval
    # None for a scalar that nobody declared, which may hold any number.
    declared: Kind | None = None

    @property
    def slot(self) -> Slot:
        return SCALAR_SLOT if self.declared is None else self.declared.slot

    def __str__(self) -> str:
        declared = "" if self.declared is None else f" {self.declared}"
        return f"slot{declared} {self.aval}"


@dataclass(frozen=True, slots=True, eq=False)
class GuardedKind:
    """An array on the device, given for a declared slot. One instance an Aval and Kind.

    The host does not see its numbers, so that a check in the graph looks at them.
    """

    aval: Aval
    declared: Kind

    def __str__(self) -> str:
        return f"{self.aval} within {self.declared}"


@functools.cache
def scalar_kind(dtype: dtypes.DType, weak: bool) -> SlotKind:
    """What a scalar is to a trace that nobody declared."""
    return SlotKind(aval_of(TensorType((), dtype), weak))


@functools.cache
def _words_kind(shape: tuple[int, ...], declared: Kind) -> SlotKind:
    return SlotKind(aval_of(TensorType(shape, dtypes.int32)), declared)


@functools.cache
def _guarded_kind(aval: Aval, declared: Kind) -> GuardedKind:
    return GuardedKind(aval, declared)


def declared_kind(
    kind: Aval | SlotKind, declared: Kind, *, on_device: bool
) -> SlotKind | GuardedKind:
    """What a leaf of a declared slot is to a trace, from what it is undeclared."""
    aval = kind.aval if isinstance(kind, SlotKind) else kind
    type = aval.type
    if not type.dtype.is_integer:
        raise DTypeError(f"slot {declared} is given {type}; takes integers")
    declared.require_shape(type.shape)
    if on_device:
        return _guarded_kind(aval, declared)
    return _words_kind(type.shape, declared)


def slot_words(leaf: Any, kind: SlotKind, function: str, path: str) -> Any:
    """The numbers to write into a slot; RangeError for one that may not be there."""
    declared = kind.declared
    if declared is None:
        return _fitting(leaf, kind)
    if isinstance(leaf, int):
        if declared.low <= leaf <= declared.high:
            return leaf
        raise _out_of_range(leaf, "", declared, function, path)
    words = np.asarray(leaf)
    outside = (words < declared.low) | (words > declared.high)
    if outside.any():
        place = tuple(map(int, np.argwhere(outside)[0]))
        written = f"[{', '.join(map(str, place))}]" if place else ""
        value = int(words[place])
        raise _out_of_range(value, written, declared, function, path)
    return words.astype(np.int32)


def _out_of_range(
    value: int, place: str, declared: Kind, function: str, path: str
) -> RangeError:
    return RangeError(
        f"`{function}`: slot {path}{place} ({declared.label}) is {value}, outside of "
        f"its declared range {declared.low}..{declared.high}; give a number within "
        f"it, or declare a wider range in jit(slots=...). Nothing has run"
    )


def _fitting(leaf: Any, kind: SlotKind) -> Any:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        dtype = kind.aval.type.dtype
        bound = 1 << (dtype.bits - 1)
        if not -bound <= leaf < bound:
            raise RangeError(
                f"the Python int {leaf} does not fit {dtype}, the dtype of ints; pass "
                "an array of a wider dtype or use poot.config.enable_x64"
            )
    return leaf


def guard(value: Any, kind: GuardedKind, function: str, path: str) -> None:
    """Check the range of a value that stands for a declared slot, as `check` does."""
    declared, dtype = kind.declared, kind.aval.type.dtype
    if _is_within(value, declared):
        return
    info = np.iinfo(dtype.numpy)
    if declared.high < info.min or declared.low > info.max:
        raise RangeError(
            f"`{function}`: slot {path} ({declared}) is given {kind.aval}, which holds "
            f"no number of its range; use an array of i32"
        )
    low, high = max(declared.low, info.min), min(declared.high, info.max)
    above = compare(CompareOp.GE, value, number(low, dtype))
    below = compare(CompareOp.LE, value, number(high, dtype))
    check(
        binary(BinaryOp.AND, above, below),
        f"`{function}`: slot {path} ({declared.label}) is outside of its declared "
        f"range {declared.low}..{declared.high}",
    )


def _is_within(value: Any, declared: Kind) -> bool:
    """Whether it is a slot of the function around, whose range has been checked."""
    if not isinstance(value, Tracer) or isinstance(value.operand, Scalar):
        return False
    slot = value.staging.builder.slot(value.operand)
    if slot is None or slot.low is None or slot.high is None:
        return False
    return declared.low <= slot.low and slot.high <= declared.high
