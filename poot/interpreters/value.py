"""What arrays and traced values have in common: shape, dtype and weakness."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from poot.core.types import TensorType
from poot.interpreters.aval import Aval


class AbstractValue:
    """A value with a known Aval; the base of `poot.Array` and of tracers."""

    __slots__ = ("aval",)
    aval: Aval

    def with_weak(self, weak: bool) -> Self:
        """The same value with a weak dtype, or with one that is not."""
        raise NotImplementedError

    @property
    def type(self) -> TensorType:
        return self.aval.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.type.dtype.numpy

    @property
    def weak_type(self) -> bool:
        return self.aval.weak

    @property
    def ndim(self) -> int:
        return len(self.aval.type.shape)

    @property
    def size(self) -> int:
        return self.aval.type.size

    @property
    def itemsize(self) -> int:
        return self.aval.type.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.aval.type.size_bytes
