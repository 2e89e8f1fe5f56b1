"""Arithmetic of the builder: typed, folded on integers, exact on floats."""

from __future__ import annotations

from typing import overload

from poot.core.errors import SpirvError
from poot.lowering.spirv.logic import Logic
from poot.lowering.spirv.opcodes import Decoration, Glsl, Op
from poot.lowering.spirv.types import (
    I32,
    U32,
    Type,
    unsigned,
    with_scalar,
)
from poot.lowering.spirv.value import Operand, Value

_WORDS = 1 << 32


class Arithmetic(Logic):
    """Instructions that calculate. Python numbers take the other operand's type.

    Integers wrap, and operations on constants are folded. Floats are rounded as
    written: never folded, never contracted.
    """

    def _whole(self, ty: Type, number: int) -> Value:
        """The integer constant `number`, wrapped to its type."""
        scalar = ty.scalar
        return self.bits(scalar, number & ((1 << scalar.bits) - 1))

    def _float(self, op: int, a: Value, b: Value) -> Value:
        """Two float operands, rounded once: drivers may not contract it."""
        fresh = self._module.next_id
        value = self._pure(op, a.ty, a.id, b.id)
        if value.id >= fresh:
            self._module.decorations += (
                3 << 16 | Op.Decorate,
                value.id,
                Decoration.NoContraction,
            )
        return value

    # --- sums and products --------------------------------------------------

    @overload
    def add(self, a: int, b: int) -> int: ...
    @overload
    def add(self, a: Value, b: Operand) -> Value: ...
    @overload
    def add(self, a: Operand, b: Value) -> Value: ...
    def add(self, a: Operand, b: Operand) -> Operand:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        a, b = self._pair("add", a, b)
        if a.ty.scalar.is_float:
            return self._float(Op.FAdd, a, b)
        self._need_numbers("add", a.ty)
        if a.const is not None:
            if b.const is not None:
                return self._whole(a.ty, a.const + b.const)
            a, b = b, a
        if b.const == 0:
            return a
        fresh = self._module.next_id
        value = self._pure(Op.IAdd, a.ty, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        if x is None or y is None:
            return value
        return self._below(value, fresh, x + y - 1)

    @overload
    def sub(self, a: int, b: int) -> int: ...
    @overload
    def sub(self, a: Value, b: Operand) -> Value: ...
    @overload
    def sub(self, a: Operand, b: Value) -> Value: ...
    def sub(self, a: Operand, b: Operand) -> Operand:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        a, b = self._pair("sub", a, b)
        if a.ty.scalar.is_float:
            return self._float(Op.FSub, a, b)
        self._need_numbers("sub", a.ty)
        if b.const == 0:
            return a
        if a.const is not None and b.const is not None:
            return self._whole(a.ty, a.const - b.const)
        fresh = self._module.next_id
        value = self._pure(Op.ISub, a.ty, a.id, b.id)
        y = self._limits.get(b.id)
        if a.const is None or y is None or y - 1 > a.const:
            return value
        return self._below(value, fresh, a.const + 1)  # it does not wrap

    @overload
    def mul(self, a: int, b: int) -> int: ...
    @overload
    def mul(self, a: Value, b: Operand) -> Value: ...
    @overload
    def mul(self, a: Operand, b: Value) -> Value: ...
    def mul(self, a: Operand, b: Operand) -> Operand:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        a, b = self._pair("mul", a, b)
        if a.ty.scalar.is_float:
            return self._float(Op.FMul, a, b)
        self._need_numbers("mul", a.ty)
        if a.const is not None:
            if b.const is not None:
                return self._whole(a.ty, a.const * b.const)
            a, b = b, a
        if b.const == 1:
            return a
        if b.const == 0:
            return b
        fresh = self._module.next_id
        value = self._pure(Op.IMul, a.ty, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        if x is None or y is None:
            return value
        return self._below(value, fresh, (x - 1) * (y - 1) + 1)

    def fdiv(self, a: Operand, b: Operand) -> Value:
        """The quotient of floats. Vulkan allows 2.5 ulp."""
        a, b = self._pair("fdiv", a, b)
        if not a.ty.scalar.is_float:
            raise self._refuse("fdiv", a.ty, "floats; use // or k.div")
        return self._float(Op.FDiv, a, b)

    @overload
    def div(self, a: int, b: int) -> int: ...
    @overload
    def div(self, a: Value, b: Operand) -> Value: ...
    @overload
    def div(self, a: Operand, b: Value) -> Value: ...
    def div(self, a: Operand, b: Operand) -> Operand:
        """Floats: `fdiv`. Integers truncate; x/0 = 0 and MIN/-1 = MIN."""
        if isinstance(a, int) and isinstance(b, int):
            return self._fold_quotient(a, b)[0]
        a, b = self._pair("div", a, b)
        if a.ty.scalar.is_float:
            return self._float(Op.FDiv, a, b)
        self._need_numbers("div", a.ty)
        if b.const is not None and b.const not in (0, -1):
            return self._quotient(a, b)
        zero = self._zero(a.ty)
        quotient = self._quotient(a, self._safe_divisor(a, b))
        return self.select(self.eq(b, zero), zero, quotient)

    @overload
    def rem(self, a: int, b: int) -> int: ...
    @overload
    def rem(self, a: Value, b: Operand) -> Value: ...
    @overload
    def rem(self, a: Operand, b: Value) -> Value: ...
    def rem(self, a: Operand, b: Operand) -> Operand:
        """Of integers, with the dividend's sign; x rem 0 = 0 and MIN rem -1 = 0."""
        if isinstance(a, int) and isinstance(b, int):
            return self._fold_quotient(a, b)[1]
        a, b = self._integers("rem", a, b)
        if b.const is not None and b.const not in (0, -1):
            return self._remainder(a, b)
        zero = self._zero(a.ty)
        remainder = self._remainder(a, self._safe_divisor(a, b))
        return self.select(self.eq(b, zero), zero, remainder)

    @overload
    def index_div(self, a: int, b: int) -> int: ...
    @overload
    def index_div(self, a: Value, b: Operand) -> Value: ...
    @overload
    def index_div(self, a: Operand, b: Value) -> Value: ...
    def index_div(self, a: Operand, b: Operand) -> Operand:
        """Unsigned; the divisor must not be 0."""
        if isinstance(a, int) and isinstance(b, int):
            return self._fold_quotient(a, b)[0]
        return self._quotient(*self._indices("//", a, b))

    @overload
    def index_rem(self, a: int, b: int) -> int: ...
    @overload
    def index_rem(self, a: Value, b: Operand) -> Value: ...
    @overload
    def index_rem(self, a: Operand, b: Value) -> Value: ...
    def index_rem(self, a: Operand, b: Operand) -> Operand:
        """Unsigned; the divisor must not be 0."""
        if isinstance(a, int) and isinstance(b, int):
            return self._fold_quotient(a, b)[1]
        return self._remainder(*self._indices("%", a, b))

    @overload
    def ceil_div(self, a: int, b: int) -> int: ...
    @overload
    def ceil_div(self, a: Value, b: Operand) -> Value: ...
    @overload
    def ceil_div(self, a: Operand, b: Value) -> Value: ...
    def ceil_div(self, a: Operand, b: Operand) -> Operand:
        """Unsigned, rounded up, without overflow; neither operand may be 0."""
        if isinstance(a, int) and isinstance(b, int):
            return -(-a // b)
        a, b = self._indices("ceil_div", a, b)
        return self.add(self._quotient(self.sub(a, 1), b), 1)

    def _fold_quotient(self, a: int, b: int) -> tuple[int, int]:
        if a < 0 or b <= 0:
            raise SpirvError(
                f"{self.name}: size {a} divided by {b}; sizes are not negative and "
                "divisors at least 1"
            )
        return divmod(a, b)

    def _indices(self, name: str, a: Operand, b: Operand) -> tuple[Value, Value]:
        a, b = self._integers(name, a, b)
        if a.ty.scalar.is_signed:
            raise self._refuse(name, a.ty, "unsigned integers; use k.div or k.rem")
        if b.const == 0:
            raise SpirvError(f"{self.name}: {name} by 0")
        return a, b

    def _safe_divisor(self, a: Value, b: Value) -> Value:
        """`b`, or 1 where dividing `a` by it is undefined."""
        undefined = self.eq(b, self._zero(b.ty))
        if a.ty.scalar.is_signed:
            least = self.const(a.ty, -(1 << a.ty.scalar.bits - 1))
            overflow = self.logical_and(self.eq(a, least), self.eq(b, -1))
            undefined = self.logical_or(undefined, overflow)
        return self.select(undefined, self.const(b.ty, 1), b)

    def _quotient(self, a: Value, b: Value) -> Value:
        """Truncated; the division must be defined."""
        if b.const == 1:
            return a
        divisor = b.const
        if divisor is not None and a.const is not None:
            sign = -1 if (a.const < 0) != (divisor < 0) else 1
            return self._whole(a.ty, sign * (abs(a.const) // abs(divisor)))
        x = self._limits.get(a.id)
        if divisor is not None and x is not None and x <= divisor:
            return self._zero(a.ty)
        fresh = self._module.next_id
        op = Op.SDiv if a.ty.scalar.is_signed else Op.UDiv
        value = self._pure(op, a.ty, a.id, b.id)
        if x is None:
            return value
        return self._below(value, fresh, (x - 1) // (divisor or 1) + 1)

    def _remainder(self, a: Value, b: Value) -> Value:
        """With the dividend's sign; the division must be defined."""
        if a.ty.scalar.is_signed:
            # OpSRem is undefined for negative operands on some devices.
            return self.sub(a, self.mul(self._quotient(a, b), b))
        divisor = b.const
        if divisor == 1:
            return self._zero(a.ty)
        if divisor is not None and a.const is not None:
            return self._whole(a.ty, a.const % divisor)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        if divisor is not None and x is not None and x <= divisor:
            return a
        fresh = self._module.next_id
        value = self._pure(Op.UMod, a.ty, a.id, b.id)
        if a.ty is U32 and value.id >= fresh:
            self._assume(((value.id, b.id, None),))
            bounds = [bound for bound in (x, y and y - 1) if bound]
            self._below(value, fresh, min(bounds) if bounds else None)
        return value

    # --- smallest, largest, sign --------------------------------------------

    @overload
    def min(self, a: int, b: int) -> int: ...
    @overload
    def min(self, a: Value, b: Operand) -> Value: ...
    @overload
    def min(self, a: Operand, b: Value) -> Value: ...
    def min(self, a: Operand, b: Operand) -> Operand:
        """Of integers: GLSL's FMin leaves NaN and signed zeros open."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        a, b = self._integers("min", a, b)
        if a.const is not None and b.const is not None:
            return a if a.const <= b.const else b
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        if x is not None and b.const is not None and x <= b.const + 1:
            return a
        if y is not None and a.const is not None and y <= a.const + 1:
            return b
        fresh = self._module.next_id
        op = Glsl.SMin if a.ty.scalar.is_signed else Glsl.UMin
        value = self._glsl(op, a.ty, a.id, b.id)
        bounds = [bound for bound in (x, y) if bound]
        return self._below(value, fresh, min(bounds) if bounds else None)

    @overload
    def max(self, a: int, b: int) -> int: ...
    @overload
    def max(self, a: Value, b: Operand) -> Value: ...
    @overload
    def max(self, a: Operand, b: Value) -> Value: ...
    def max(self, a: Operand, b: Operand) -> Operand:
        """Of integers: GLSL's FMax leaves NaN and signed zeros open."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        a, b = self._integers("max", a, b)
        if a.const is not None and b.const is not None:
            return a if a.const >= b.const else b
        fresh = self._module.next_id
        op = Glsl.SMax if a.ty.scalar.is_signed else Glsl.UMax
        value = self._glsl(op, a.ty, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        return self._below(value, fresh, max(x, y) if x and y else None)

    def neg(self, a: Value) -> Value:
        self._need_numbers("neg", a.ty)
        if a.const is not None:
            return self._whole(a.ty, -a.const)
        op = Op.FNegate if a.ty.scalar.is_float else Op.SNegate
        return self._pure(op, a.ty, a.id)

    # --- bits ---------------------------------------------------------------

    def and_(self, a: Operand, b: Operand) -> Value:
        a, b = self._integers("and_", a, b)
        if a.const is not None:
            if b.const is not None:
                return self._whole(a.ty, a.const & b.const)
            a, b = b, a
        if b.const == 0:
            return b
        fresh = self._module.next_id
        value = self._pure(Op.BitwiseAnd, a.ty, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        bounds = [bound for bound in (x, y) if bound]
        return self._below(value, fresh, min(bounds) if bounds else None)

    def or_(self, a: Operand, b: Operand) -> Value:
        a, b = self._integers("or_", a, b)
        if a.const is not None and b.const is not None:
            return self._whole(a.ty, a.const | b.const)
        return self._merge(Op.BitwiseOr, a, b)

    def xor(self, a: Operand, b: Operand) -> Value:
        a, b = self._integers("xor", a, b)
        if a.const is not None and b.const is not None:
            return self._whole(a.ty, a.const ^ b.const)
        return self._merge(Op.BitwiseXor, a, b)

    def _merge(self, op: int, a: Value, b: Value) -> Value:
        if b.const == 0:
            return a
        if a.const == 0:
            return b
        fresh = self._module.next_id
        value = self._pure(op, a.ty, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        if x is None or y is None:
            return value
        return self._below(value, fresh, 1 << (max(x, y) - 1).bit_length())

    def not_(self, a: Value) -> Value:
        """Each bit turned; a truth value turned."""
        if a.ty.scalar.is_bool:
            return self.logical_not(a)
        if a.ty.scalar.is_float:
            raise self._refuse("not_", a.ty, "integers and truth values")
        if a.const is not None:
            return self._whole(a.ty, ~a.const)
        return self._pure(Op.Not, a.ty, a.id)

    def shl(self, a: Operand, amount: Operand) -> Value:
        """0 where the amount, read as unsigned, is not below the width."""
        a, amount = self._integers("shl", a, amount)
        if a.const is not None and amount.const is not None:
            shift = self._unsigned_const(amount)
            return self._whole(a.ty, a.const << min(shift, a.ty.scalar.bits))
        return self._shift(Op.ShiftLeftLogical, a, amount)

    def shr(self, a: Operand, amount: Operand) -> Value:
        """Fills with 0; gives 0 where the amount is not below the width."""
        a, amount = self._integers("shr", a, amount)
        if a.const is not None and amount.const is not None:
            bits = self._unsigned_const(a)
            return self._whole(a.ty, bits >> self._unsigned_const(amount))
        return self._shift(Op.ShiftRightLogical, a, amount)

    def sar(self, a: Operand, amount: Operand) -> Value:
        """Fills with the top bit; only copies of it past the width."""
        a, amount = self._integers("sar", a, amount)
        last = a.ty.scalar.bits - 1
        if amount.const is not None:
            shift = min(self._unsigned_const(amount), last)
            return self._whole_shift(Op.ShiftRightArithmetic, a, shift)
        raw = self._as_unsigned(amount)
        return self._pure(Op.ShiftRightArithmetic, a.ty, a.id, self.min(raw, last).id)

    def shift_right(self, a: Operand, amount: Operand) -> Value:
        """`sar` for signed integers, `shr` for unsigned ones."""
        a, amount = self._integers(">>", a, amount)
        return (self.sar if a.ty.scalar.is_signed else self.shr)(a, amount)

    def _shift(self, op: int, a: Value, amount: Value) -> Value:
        width = a.ty.scalar.bits
        if amount.const is not None:
            shift = self._unsigned_const(amount)
            if shift >= width:
                return self._zero(a.ty)
            return self._whole_shift(op, a, shift)
        raw = self._as_unsigned(amount)
        x = self._limits.get(raw.id)
        if x is not None and x <= width:
            return self._pure(op, a.ty, a.id, raw.id)
        shifted = self._pure(op, a.ty, a.id, self.and_(raw, width - 1).id)
        return self.select(self.lt(raw, width), shifted, self._zero(a.ty))

    def _whole_shift(self, op: int, a: Value, shift: int) -> Value:
        """By a constant below the width."""
        if shift == 0:
            return a
        fresh = self._module.next_id
        amount = self.const(with_scalar(a.ty, unsigned(a.ty.scalar.bits)), shift)
        value = self._pure(op, a.ty, a.id, amount.id)
        x = self._limits.get(a.id)
        if op == Op.ShiftRightLogical and a.ty is U32:
            return self._below(value, fresh, ((x or _WORDS) - 1 >> shift) + 1)
        if op == Op.ShiftLeftLogical and x is not None:
            return self._below(value, fresh, (x - 1 << shift) + 1)
        return value

    def _unsigned_const(self, a: Value) -> int:
        return (a.const or 0) & ((1 << a.ty.scalar.bits) - 1)

    def _as_unsigned(self, a: Value) -> Value:
        scalar = a.ty.scalar
        if not scalar.is_signed:
            return a
        return self.bitcast(a, with_scalar(a.ty, unsigned(scalar.bits)))

    def popcount(self, a: Value) -> Value:
        self._need_words("popcount", a.ty)
        return self._pure(Op.BitCount, a.ty, a.id)

    def find_msb(self, a: Value) -> Value:
        """Number of the highest bit set, as i32; -1 if none is."""
        self._need_words("find_msb", a.ty)
        return self._glsl(Glsl.FindUMsb, with_scalar(a.ty, I32), a.id)

    def clz(self, a: Value) -> Value:
        """Count of leading zero bits, in the operand's type."""
        return self.bitcast(self.sub(31, self.find_msb(a)), a.ty)

    def sign_extend(self, a: Value, bits: int) -> Value:
        """The low `bits` bits of a 32-bit integer, read as a signed one."""
        self._need_words("sign_extend", a.ty)
        word = self.bitcast(a, with_scalar(a.ty, I32))
        return self.sar(self.shl(word, 32 - bits), 32 - bits)

    def umul_extended(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        """Low and high words of the product of two u32."""
        return self._two_results("umul_extended", Op.UMulExtended, a, b)

    def add_carry(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        """Sum and carry (0 or 1) of two u32."""
        return self._two_results("add_carry", Op.IAddCarry, a, b)

    def _two_results(
        self, name: str, op: int, a: Operand, b: Operand
    ) -> tuple[Value, Value]:
        a, b = self._integers(name, a, b)
        if a.ty.scalar is not U32:
            raise self._refuse(name, a.ty, "u32")
        word = self._types[a.ty]
        struct = self._module.intern(Op.TypeStruct, word, word)
        both = self._emit_id(op, struct, a.id, b.id)
        low = self._pure(Op.CompositeExtract, a.ty, both, 0)
        return low, self._pure(Op.CompositeExtract, a.ty, both, 1)
