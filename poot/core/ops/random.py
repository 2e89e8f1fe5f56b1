"""The primitive that random bits are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.errors import DTypeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.types import TensorType


@register
@dataclass(frozen=True, slots=True)
class Threefry2x32(Op):
    """Two words (u32) from a key of two and a counter of two, by 20 rounds of Threefry.

    Operands: key words 0 and 1, counter words 0 and 1, with NumPy's broadcasting. Both
    results are as random as the function gives them; the same operands give the same
    words everywhere.
    """

    name: ClassVar[str] = "threefry2x32"
    multiple_results: ClassVar[bool] = True

    def infer(
        self, k1: TensorType, k2: TensorType, x1: TensorType, x2: TensorType
    ) -> tuple[TensorType, TensorType]:
        words = (k1, k2, x1, x2)
        if any(word.dtype is not dtypes.uint32 for word in words):
            given = ", ".join(word.dtype.name for word in words)
            raise DTypeError(f"threefry2x32: given {given}, takes u32; cast the words")
        shape = broadcast_shapes("threefry2x32", *(word.shape for word in words))
        made = TensorType(shape, dtypes.uint32)
        return made, made
