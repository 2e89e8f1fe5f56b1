"""Comparisons, choices, conversions and components: what calculates no sum."""

from __future__ import annotations

from poot.core.errors import SpirvError
from poot.lowering.spirv.emitter import Emitter, Fact
from poot.lowering.spirv.opcodes import Glsl, Op
from poot.lowering.spirv.types import (
    BF16,
    BOOL,
    F32,
    F64,
    I32,
    U32,
    Type,
    VectorType,
    signed,
    unsigned,
    vector,
    with_scalar,
)
from poot.lowering.spirv.value import Condition, Operand, Value

# Opcodes for unsigned, signed and float operands. Floats: false where one is NaN, but
# `ne` is true there.
_COMPARE = {
    "eq": (Op.IEqual, Op.IEqual, Op.FOrdEqual),
    "ne": (Op.INotEqual, Op.INotEqual, Op.FUnordNotEqual),
    "lt": (Op.ULessThan, Op.SLessThan, Op.FOrdLessThan),
    "le": (Op.ULessThanEqual, Op.SLessThanEqual, Op.FOrdLessThanEqual),
}
_FOLD = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


class Logic(Emitter):
    """Instructions that compare, choose, convert and take apart."""

    # --- operands -----------------------------------------------------------

    def _pair(self, name: str, a: Operand, b: Operand) -> tuple[Value, Value]:
        """Two operands of one type."""
        if not isinstance(a, Value):
            if not isinstance(b, Value):
                raise SpirvError(
                    f"{self.name}: {name}({a}, {b}): at least one operand must be a "
                    "Value; make a constant with k.const"
                )
            return self.const(b.ty, a), b
        if not isinstance(b, Value):
            return a, self.const(a.ty, b)
        if a.ty is not b.ty:
            raise SpirvError(
                f"{self.name}: {name} of {a.ty} and {b.ty}: both operands must have "
                "one type; convert or bitcast one of them"
            )
        return a, b

    def _refuse(self, name: str, ty: Type, needed: str) -> SpirvError:
        return SpirvError(f"{self.name}: {name} of {ty}; it takes {needed}")

    def _integers(self, name: str, a: Operand, b: Operand) -> tuple[Value, Value]:
        a, b = self._pair(name, a, b)
        if not a.ty.scalar.is_integer:
            raise self._refuse(name, a.ty, "integers")
        return a, b

    def _need_numbers(self, name: str, ty: Type) -> None:
        if ty.scalar.is_bool:
            raise self._refuse(name, ty, "numbers")

    def _zero(self, ty: Type) -> Value:
        return self.const(ty, 0)

    def _need_words(self, name: str, ty: Type) -> None:
        if not ty.scalar.is_integer or ty.scalar.bits != 32:
            raise self._refuse(name, ty, "32-bit integers")

    # --- comparisons --------------------------------------------------------

    def _compare(self, name: str, a: Operand, b: Operand) -> Value:
        a, b = self._pair(name, a, b)
        scalar = a.ty.scalar
        if scalar.is_bool:
            return self._compare_bools(name, a, b)
        if a.const is not None and b.const is not None:
            return self.bool_(_FOLD[name](a.const, b.const))
        kind = 2 if scalar.is_float else int(scalar.is_signed)
        value = self._pure(_COMPARE[name][kind], with_scalar(a.ty, BOOL), a.id, b.id)
        return value

    def _compare_bools(self, name: str, a: Value, b: Value) -> Value:
        if name not in ("eq", "ne"):
            raise self._refuse(name, a.ty, "numbers")
        if a.const is not None and b.const is not None:
            return self.bool_(_FOLD[name](a.const, b.const))
        op = Op.LogicalEqual if name == "eq" else Op.LogicalNotEqual
        return self._pure(op, a.ty, a.id, b.id)

    def _ordered(self, name: str, a: Operand, b: Operand) -> Value:
        """`lt` or `le`, which tell on u32 how far values reach."""
        a, b = self._pair(name, a, b)
        if a.ty is not U32:
            return self._compare(name, a, b)
        strict = name == "lt"
        if self._provable(a, b, strict):
            return self.bool_(True)
        value = self._compare(name, a, b)
        if value.const is None and value.id not in self._implied:
            self._implied[value.id] = (
                (self._fact(a, b, strict),),
                (self._fact(b, a, not strict),),
            )
        return value

    def _fact(self, a: Value, b: Value, strict: bool) -> Fact:
        """That a < b (strict) or a <= b."""
        limit = self._limits.get(b.id)
        if limit is None:
            return a.id, b.id if strict else 0, None
        # b is at most limit - 1.
        return a.id, b.id if strict else 0, max(limit - strict, 1)

    def eq(self, a: Operand, b: Operand) -> Value:
        return self._compare("eq", a, b)

    def ne(self, a: Operand, b: Operand) -> Value:
        """On floats true where one operand is NaN, as in IEEE 754."""
        return self._compare("ne", a, b)

    def lt(self, a: Operand, b: Operand) -> Value:
        return self._ordered("lt", a, b)

    def le(self, a: Operand, b: Operand) -> Value:
        return self._ordered("le", a, b)

    def gt(self, a: Operand, b: Operand) -> Value:
        return self._ordered("lt", b, a)

    def ge(self, a: Operand, b: Operand) -> Value:
        return self._ordered("le", b, a)

    def is_nan(self, a: Value) -> Value:
        """By the bits, since drivers may fold x != x."""
        if a.ty is F64:
            low, high = self._magnitude64(a)
            full = self.logical_and(self.eq(high, 0x7FF00000), self.ne(low, 0))
            return self.logical_or(self.gt(high, 0x7FF00000), full)
        return self.gt(self._magnitude("is_nan", a), 0x7F800000)

    def _is_not_zero(self, a: Value) -> Value:
        """By the bits, since comparisons may take subnormals for zero."""
        if not a.ty.scalar.is_float:
            return self.ne(a, 0)
        if a.ty is F64:
            low, high = self._magnitude64(a)
            return self.ne(self._pure(Op.BitwiseOr, U32, low.id, high.id), 0)
        return self.ne(self._magnitude("convert", a), 0)

    def _magnitude(self, name: str, a: Value) -> Value:
        """The bits of an f32 without the sign."""
        if a.ty.scalar is not F32:
            raise self._refuse(name, a.ty, "f32, or f64 as a scalar; convert it first")
        word = with_scalar(a.ty, U32)
        mask = self.const(word, 0x7FFFFFFF)
        return self._pure(Op.BitwiseAnd, word, self.bitcast(a, word).id, mask.id)

    def _magnitude64(self, a: Value) -> tuple[Value, Value]:
        """Low and high words of an f64 without the sign."""
        words = self.bitcast(a, vector(U32, 2))
        high = self.extract(words, 1)
        mask = self.u32(0x7FFFFFFF)
        return (
            self.extract(words, 0),
            self._pure(Op.BitwiseAnd, U32, high.id, mask.id),
        )

    # --- truth values -------------------------------------------------------

    def logical_and(self, a: Condition, b: Condition) -> Value:
        a, b = self._truths("logical_and", a, b)
        if a.const is not None:
            return b if a.const else a
        if b.const is not None:
            return a if b.const else b
        value = self._pure(Op.LogicalAnd, a.ty, a.id, b.id)
        self._implied[value.id] = (self._facts(a)[0] + self._facts(b)[0], ())
        return value

    def logical_or(self, a: Condition, b: Condition) -> Value:
        a, b = self._truths("logical_or", a, b)
        if a.const is not None:
            return a if a.const else b
        if b.const is not None:
            return b if b.const else a
        value = self._pure(Op.LogicalOr, a.ty, a.id, b.id)
        self._implied[value.id] = ((), self._facts(a)[1] + self._facts(b)[1])
        return value

    def logical_not(self, a: Condition) -> Value:
        if not isinstance(a, Value):
            return self.bool_(not a)
        if not a.ty.scalar.is_bool:
            raise self._refuse("logical_not", a.ty, "truth values")
        if a.const is not None:
            return self.bool_(not a.const)
        value = self._pure(Op.LogicalNot, a.ty, a.id)
        true, false = self._facts(a)
        self._implied[value.id] = (false, true)
        return value

    def _facts(self, a: Value) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        return self._implied.get(a.id, ((), ()))

    def _truths(self, name: str, a: Condition, b: Condition) -> tuple[Value, Value]:
        if not isinstance(a, Value):
            a = self.bool_(a)
        if not isinstance(b, Value):
            b = self.bool_(b)
        if not a.ty.scalar.is_bool or a.ty is not b.ty:
            raise SpirvError(
                f"{self.name}: {name} of {a.ty} and {b.ty}; it takes truth values"
            )
        return a, b

    def select(self, condition: Condition, a: Operand, b: Operand) -> Value:
        """`a` where the condition holds, else `b`; both are evaluated."""
        a, b = self._choices(a, b)
        if not isinstance(condition, Value):
            return a if condition else b
        if not condition.ty.scalar.is_bool:
            raise self._refuse("select", condition.ty, "a truth value as condition")
        if condition.const is not None:
            return a if condition.const else b
        if a.id == b.id:
            return a
        fresh = self._module.next_id
        value = self._pure(Op.Select, a.ty, condition.id, a.id, b.id)
        x, y = self._limits.get(a.id), self._limits.get(b.id)
        return self._below(value, fresh, max(x, y) if x and y else None)

    def _choices(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        if isinstance(a, Value) and isinstance(b, Value) and a.ty is not b.ty:
            raise SpirvError(f"{self.name}: select between {a.ty} and {b.ty}")
        if isinstance(a, Value):
            return a, self.value(b, a.ty)
        if isinstance(b, Value):
            return self.const(b.ty, a), b
        raise SpirvError(
            f"{self.name}: select between the numbers {a} and {b}; make one of them "
            "a constant with k.const"
        )

    # --- conversions --------------------------------------------------------

    def convert(self, a: Value, ty: Type) -> Value:
        """Between numbers: integers wrap, floats round to nearest even.

        From floats to integers there is only `convert_raw`. A truth value becomes 1 or
        0; a number becomes whether it is not 0.
        """
        source, target = a.ty.scalar, ty.scalar
        if a.ty.count != ty.count:
            raise SpirvError(f"{self.name}: convert of {a.ty} to {ty}")
        if source is target:
            return a
        if target.is_bool:
            return self._is_not_zero(a)
        if source.is_bool:
            return self.select(a, self.const(ty, 1), self.const(ty, 0))
        if source.is_float and target.is_float:
            return self._pure(Op.FConvert, ty, a.id)
        if source.is_float:
            raise SpirvError(
                f"{self.name}: convert of {a.ty} to {ty} is undefined out of range: "
                "clamp, then use convert_raw"
            )
        if target.is_float:
            op = Op.ConvertSToF if source.is_signed else Op.ConvertUToF
            return self._pure(op, ty, a.id)
        return self._convert_integer(a, ty)

    def _convert_integer(self, a: Value, ty: Type) -> Value:
        source, target = a.ty.scalar, ty.scalar
        if a.const is not None:
            return self.bits(target, a.const & ((1 << target.bits) - 1))
        if source.bits == target.bits:
            return self.bitcast(a, ty)
        if source.is_signed and target.bits > source.bits:
            if target.bits == 64:
                return self._extend_to_64(a, ty)
            wide = with_scalar(ty, signed(target.bits))
            return self.bitcast(self._pure(Op.SConvert, wide, a.id), ty)
        plain = with_scalar(ty, unsigned(target.bits))
        fresh = self._module.next_id
        value = self._pure(Op.UConvert, plain, a.id)
        if plain is U32 and source.bits < 32:
            self._below(value, fresh, 1 << source.bits)
        return self.bitcast(value, ty)

    def _extend_to_64(self, a: Value, ty: Type) -> Value:
        """Signed integers as 64 bits, made of their two words.

        Mesa compares what OpSConvert gives with a constant in the narrow type, and gets
        that wrong: on lavapipe (Mesa 22.3) no extended number is below any constant.
        """
        if isinstance(ty, VectorType):
            parts = [
                self._extend_to_64(self.extract(a, i), ty.scalar)
                for i in range(ty.count)
            ]
            return self.construct(ty, *parts)
        low = self.convert(a, I32)
        sign = self._pure(Op.ShiftRightArithmetic, I32, low.id, self.const(I32, 31).id)
        words = self.construct(vector(I32, 2), low, sign)
        return self.bitcast(words, ty)

    def convert_raw(self, a: Value, ty: Type) -> Value:
        """Float to integer, towards 0; undefined for NaN and out of range."""
        if not a.ty.scalar.is_float or not ty.scalar.is_integer:
            raise SpirvError(f"{self.name}: convert_raw of {a.ty} to {ty}")
        op = Op.ConvertFToS if ty.scalar.is_signed else Op.ConvertFToU
        return self._pure(op, ty, a.id)

    def bitcast(self, a: Value, ty: Type) -> Value:
        """The same bits as another type of the same size."""
        if a.ty is ty:
            return a
        bits = a.ty.scalar.bits * a.ty.count
        if a.ty.scalar.is_bool or bits != ty.scalar.bits * ty.count:
            raise SpirvError(f"{self.name}: bitcast of {a.ty} to {ty}")
        if a.const is not None and ty.count == 1:
            return self.bits(ty.scalar, a.const & ((1 << bits) - 1))
        return self._pure(Op.Bitcast, ty, a.id)

    def unpack_half(self, a: Value) -> Value:
        """Two f16 in a u32 as a vector of two f32. Needs no f16 capability."""
        self._need_words("unpack_half", a.ty)
        return self._glsl(Glsl.UnpackHalf2x16, vector(F32, 2), a.id)

    def pack_half(self, a: Value) -> Value:
        """A vector of two f32 as two f16 in a u32; the driver chooses the rounding."""
        if a.ty is not vector(F32, 2):
            raise self._refuse("pack_half", a.ty, "f32x2")
        return self._glsl(Glsl.PackHalf2x16, U32, a.id)

    def pack_bfloat(self, a: Value) -> Value:
        """A vector of two f32 as two bf16 in a u32; the driver chooses the rounding.

        The only use of the type bf16, with which nothing is calculated.
        """
        if a.ty is not vector(F32, 2):
            raise self._refuse("pack_bfloat", a.ty, "f32x2")
        pair = vector(BF16, 2)
        return self._pure(Op.Bitcast, U32, self._pure(Op.FConvert, pair, a.id).id)

    # --- components ---------------------------------------------------------

    def extract(self, a: Value, component: int) -> Value:
        if not 0 <= component < a.ty.count or a.ty.count == 1:
            raise SpirvError(f"{self.name}: component {component} of {a.ty}")
        return self._pure(Op.CompositeExtract, a.ty.scalar, a.id, component)

    def construct(self, ty: VectorType, *parts: Operand) -> Value:
        """A vector of scalars."""
        values = [self.value(part, ty.scalar) for part in parts]
        if len(values) != ty.count or any(v.ty is not ty.scalar for v in values):
            given = ", ".join(str(value.ty) for value in values)
            raise SpirvError(f"{self.name}: construct {ty} of ({given})")
        return self._pure(Op.CompositeConstruct, ty, *[v.id for v in values])

    def splat(self, a: Value, count: int) -> Value:
        """A vector with `a` in every component."""
        if a.ty.count != 1:
            raise self._refuse("splat", a.ty, "a scalar")
        return self.construct(vector(a.ty.scalar, count), *[a] * count)

    # --- functions of floats ------------------------------------------------

    def _float_function(self, name: str, instruction: int, a: Value) -> Value:
        if not a.ty.scalar.is_float:
            raise self._refuse(name, a.ty, "floats")
        return self._glsl(instruction, a.ty, a.id)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once or twice: `DeviceInfo` says which."""
        values = [a, self.value(b, a.ty.scalar), self.value(c, a.ty.scalar)]
        if not a.ty.scalar.is_float or any(v.ty is not a.ty for v in values):
            given = ", ".join(str(value.ty) for value in values)
            raise SpirvError(f"{self.name}: fma of ({given})")
        return self._glsl(Glsl.Fma, a.ty, *[v.id for v in values])

    def fabs(self, a: Value) -> Value:
        return self._float_function("fabs", Glsl.FAbs, a)

    def floor(self, a: Value) -> Value:
        return self._float_function("floor", Glsl.Floor, a)

    def ceil(self, a: Value) -> Value:
        return self._float_function("ceil", Glsl.Ceil, a)

    def trunc(self, a: Value) -> Value:
        return self._float_function("trunc", Glsl.Trunc, a)

    def round_even(self, a: Value) -> Value:
        return self._float_function("round_even", Glsl.RoundEven, a)

    def sqrt(self, a: Value) -> Value:
        """The driver's: Vulkan promises 1 / (2 ulp), not correct rounding."""
        return self._float_function("sqrt", Glsl.Sqrt, a)
