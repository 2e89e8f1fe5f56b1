"""Value: what an instruction gives. Operators build further instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poot.core.errors import SpirvError

if TYPE_CHECKING:
    from poot.lowering.spirv.arithmetic import Arithmetic
    from poot.lowering.spirv.types import Type


class Value:
    """The result of an instruction: an id of a type, in the builder that made it.

    `const` is its number where it is a constant integer or truth value. Values never
    change. `//` and `%` are for sizes and indices: unsigned, and the divisor must not
    be zero; `k.div` and `k.rem` are defined for every operand.
    """

    __slots__ = ("const", "id", "k", "ty")

    def __init__(
        self, k: Arithmetic, number: int, ty: Type, const: int | None = None
    ) -> None:
        self.k = k
        self.id = number
        self.ty = ty
        self.const = const

    @property
    def limit(self) -> int | None:
        """Exclusive upper bound of a u32 that the builder knows of at this point."""
        return self.k.limit(self)

    def __repr__(self) -> str:
        const = "" if self.const is None else f" = {self.const}"
        return f"<Value %{self.id}: {self.ty}{const}>"

    def __bool__(self) -> bool:
        raise SpirvError(
            f"{self!r} is known only when the kernel runs; use k.when or k.select"
        )

    def __add__(self, other: Operand) -> Value:
        return self.k.add(self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.k.add(other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.k.sub(self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.k.sub(other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.k.mul(self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.k.mul(other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.k.fdiv(self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.k.fdiv(other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self.k.index_div(self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self.k.index_div(other, self)

    def __mod__(self, other: Operand) -> Value:
        return self.k.index_rem(self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self.k.index_rem(other, self)

    def __and__(self, other: Operand) -> Value:
        return self.k.and_(self, other)

    def __rand__(self, other: Operand) -> Value:
        return self.k.and_(other, self)

    def __or__(self, other: Operand) -> Value:
        return self.k.or_(self, other)

    def __ror__(self, other: Operand) -> Value:
        return self.k.or_(other, self)

    def __xor__(self, other: Operand) -> Value:
        return self.k.xor(self, other)

    def __rxor__(self, other: Operand) -> Value:
        return self.k.xor(other, self)

    def __lshift__(self, other: Operand) -> Value:
        return self.k.shl(self, other)

    def __rlshift__(self, other: Operand) -> Value:
        return self.k.shl(other, self)

    def __rshift__(self, other: Operand) -> Value:
        return self.k.shift_right(self, other)

    def __rrshift__(self, other: Operand) -> Value:
        return self.k.shift_right(other, self)

    def __neg__(self) -> Value:
        return self.k.neg(self)

    def __invert__(self) -> Value:
        return self.k.not_(self)

    def __lt__(self, other: Operand) -> Value:
        return self.k.lt(self, other)

    def __le__(self, other: Operand) -> Value:
        return self.k.le(self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.k.gt(self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.k.ge(self, other)


# A size that is known while a kernel is written, or only when it runs.
Size = int | Value
# Python numbers take the type of the operand beside them.
Operand = int | float | Value
# Truth values that are known while a kernel is written, or only when it runs.
Condition = bool | Value
