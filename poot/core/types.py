"""What a value is: its tensor type, its storage and its identity."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from poot.core.dtypes import DType, Scalar
from poot.core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if any(size < 0 for size in self.shape):
            raise ShapeError(f"a shape has no negative sizes; given {self.shape}")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


class Storage(enum.Enum):
    """Where a value lives (the specification's storage classes)."""

    DEVICE = "device"
    CONST = "const"
    SLOT = "slot"
    STATE = "state"
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True)
class Slot:
    """A per-step input: its kind, and the range of the words that it may hold.

    `low` and `high` are inclusive bounds which the bind checks; None: no bound.
    """

    kind: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Anonymous:
    """A value nobody named."""


@dataclass(frozen=True, slots=True)
class Named:
    """A value with a name for people: an argument's path, say."""

    name: str


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant known by its payload, so that different bytes never share a cache."""

    ref: str


@dataclass(frozen=True, slots=True)
class SlotKey:
    """The identity of a slot: what the host calls it when it writes."""

    name: str


Identity = Anonymous | Named | Weight | SlotKey
ANONYMOUS = Anonymous()


@dataclass(frozen=True, slots=True)
class ValueMeta:
    """Type, storage and identity of one value; no data."""

    type: TensorType
    storage: Storage = Storage.DEVICE
    identity: Identity = field(default=ANONYMOUS)
    slot: Slot | None = None


def scalar_type(dtype: DType) -> TensorType:
    return TensorType((), dtype)


def literal_type(literal: Scalar) -> TensorType:
    return TensorType((), literal.dtype)
