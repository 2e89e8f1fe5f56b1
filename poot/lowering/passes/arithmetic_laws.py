"""Laws of elementwise ops, IEEE's for floats."""

from __future__ import annotations

import math

from poot.core import dtypes
from poot.core.dtypes import DType, Kind, Scalar
from poot.core.equation import Operand
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
    UnaryOp,
)
from poot.lowering.passes.driver import Reason, Rewrite
from poot.lowering.passes.laws import Answer, Becomes, Declines, Law, Site
from poot.lowering.passes.origins import holds_all_of

_KEPT = "floats where the device keeps subnormals, and integers"
NEUTRAL = Rewrite(
    "drop_neutral",
    f"x 1 = x / 1 = x, x + (-0.0) = x - 0.0 = x ({_KEPT}); of integers and bools "
    "x + 0, x | 0, x ^ 0, x & ~0 and shifts by 0 are x",
)
ABSORBING = Rewrite(
    "absorb_constant",
    "x 0 = x & 0 = 0, x | ~0 = ~0, x - x = x ^ x = 0; integers, bools",
)
ITSELF = Rewrite("drop_itself", "max, min, and, or of x and x are x; all dtypes")
TWICE = Rewrite(
    "undo_twice",
    "-(-x) = x and ~~x = x, abs(-x) = abs(x) of floats, abs(abs(x)) = abs(x): bits "
    "are changed and changed back",
)
RECIPROCAL = Rewrite(
    "multiply_reciprocal",
    "x / 2**n = x 2**-n, as both round the same number; floats, 2**-n normal",
)
CHOICE = Rewrite(
    "settle_select",
    "a known condition, or equal branches, settle a choice; a negated condition "
    "exchanges its branches; all dtypes",
)
CAST = Rewrite(
    "shorten_casts",
    "a cast to its own dtype, or to a wider dtype that holds every number, loses "
    "nothing; floats, integers, bools",
)

INLINE = Rewrite(
    "inline_literal", "an elementwise op repeats a literal as it is; all dtypes"
)

_B = BinaryOp
# Members of which one operand may be a number that changes nothing, on either side.
_EITHER_SIDE = frozenset({_B.ADD, _B.MUL, _B.AND, _B.OR, _B.XOR})
_ONE = frozenset({_B.MUL, _B.DIV})
_SHIFTS = frozenset({_B.SHL, _B.SHR, _B.SHR_LOGICAL})
_ZERO = frozenset({_B.ADD, _B.SUB, _B.OR, _B.XOR}) | _SHIFTS
_SAME = frozenset({_B.MAX, _B.MIN, _B.AND, _B.OR})


def _bits(dtype: DType, number: int) -> Scalar:
    return Scalar.of(number, dtype)


def _all_ones(dtype: DType) -> Scalar:
    return Scalar.of(True, dtype) if dtype.is_bool else Scalar.of(-1, dtype)


# --- numbers that change nothing --------------------------------------------


def _neutral(op: BinaryOp, dtype: DType) -> Scalar | None:
    """The number that, on the right, changes nothing."""
    if op in _ONE:
        return _bits(dtype, 1)
    if dtype.is_float:
        zero = -0.0 if op is _B.ADD else 0.0
        return Scalar.of(zero, dtype) if op in (_B.ADD, _B.SUB) else None
    if op is _B.AND:
        return _all_ones(dtype)
    return Scalar(dtype, 0) if op in _ZERO else None


def neutral(site: Site) -> Answer:
    """x * 1, x + (-0.0) …; near them: x + 0.0."""
    assert isinstance(site.op, Binary)
    member = site.op.op
    for number in (1, 0) if member in _EITHER_SIDE else (1,):
        literal = site.literal(number)
        if literal is None:
            continue
        dtype = literal.dtype
        if literal == _neutral(member, dtype):
            if site.flushes:
                detail = f"{member.value} of {dtype} and {literal}"
                return Declines(NEUTRAL, Reason.FLUSHED, detail)
            return site.repeated(NEUTRAL, site.inputs[1 - number])
        other_zero = dtype.is_float and member in (_B.ADD, _B.SUB) and not literal.value
        if other_zero:
            detail = f"{member.value} of {literal} makes 0.0 of -0.0"
            return Declines(NEUTRAL, Reason.SIGNED_ZERO, detail)
    return None


def absorbing(site: Site) -> Answer:
    """x * 0, x - x …, which floats do not have."""
    assert isinstance(site.op, Binary)
    member, dtype = site.op.op, site.given().dtype
    a, b = site.inputs
    if a == b and not isinstance(a, Scalar):
        if member in (_B.SUB, _B.DIV) and dtype.is_float:
            detail = f"{member.value} of x and x is NaN where x is not finite"
            return Declines(ABSORBING, Reason.NOT_FINITE, detail)
        if member in (_B.SUB, _B.XOR):
            return site.repeated(ABSORBING, Scalar(dtype, 0))
    for number in (1, 0):
        literal = site.literal(number)
        if literal is None:
            continue
        if member is _B.MUL and dtype.is_float and not literal.value:
            detail = f"mul of {literal} is NaN where x is not finite, and has a sign"
            return Declines(ABSORBING, Reason.NOT_FINITE, detail)
        zero = literal == Scalar(dtype, 0) and member in (_B.MUL, _B.AND)
        ones = member is _B.OR and literal == _all_ones(dtype)
        if zero or ones:
            return site.repeated(ABSORBING, literal)
    return None


def itself(site: Site) -> Answer:
    assert isinstance(site.op, Binary)
    a, b = site.inputs
    if a == b and site.op.op in _SAME:
        return site.repeated(ITSELF, a)
    return None


# --- inverses ---------------------------------------------------------------

_BACK = (UnaryOp.NEG, UnaryOp.NOT)


def twice(site: Site) -> Answer:
    assert isinstance(site.op, Unary)
    maker = site.maker()
    if maker is None or not isinstance(maker.op, Unary):
        return None
    outer, inner = site.op.op, maker.op.op
    if outer is inner and outer in _BACK:
        return site.repeated(TWICE, maker.inputs[0])
    # The most negative integer is its own negative, and unsigned ones have no sign.
    loses_sign = inner is UnaryOp.NEG and site.type.dtype.is_float
    if outer is UnaryOp.ABS and (loses_sign or inner is UnaryOp.ABS):
        return Becomes(TWICE, maker.inputs[:1], site.op)
    return None


_SMALLEST_NORMAL = {
    dtypes.float16: 2.0**-24,  # calculated in f32, where this is normal
    dtypes.bfloat16: 2.0**-126,
    dtypes.float32: 2.0**-126,
    dtypes.float64: 2.0**-1022,
}


def reciprocal(site: Site) -> Answer:
    """x / 2**n; other reciprocals are rounded."""
    assert isinstance(site.op, Binary)
    literal, dtype = site.literal(1), site.given().dtype
    if site.op.op is not _B.DIV or literal is None or not dtype.is_float:
        return None
    value = float(literal.value)
    if value in (0, 1) or not math.isfinite(value):
        return None
    fraction, _ = math.frexp(abs(value))
    inverse = Scalar.of(1 / value, dtype) if fraction == 0.5 else None
    if inverse is None:
        return Declines(RECIPROCAL, Reason.ROUNDED, f"1 / {literal}")
    least = _SMALLEST_NORMAL[dtype]
    if abs(value) < least or not least <= abs(float(inverse.value)) < math.inf:
        return Declines(RECIPROCAL, Reason.SUBNORMAL, f"1 / {literal}")
    return Becomes(RECIPROCAL, (site.inputs[0], inverse), Binary(_B.MUL))


# --- choices ----------------------------------------------------------------


def choice(site: Site) -> Answer:
    _, if_true, if_false = site.inputs
    known = site.literal(0)
    if known is not None:
        return site.repeated(CHOICE, if_true if known.value else if_false)
    if if_true == if_false:
        return site.repeated(CHOICE, if_true)
    maker = site.maker()
    if maker is None or maker.op != Unary(UnaryOp.NOT):
        return None
    if not site.given().dtype.is_bool:
        # ~1 is not zero either.
        return Declines(CHOICE, Reason.NOT_BOOL, f"not of {site.given()}")
    return Becomes(CHOICE, (maker.inputs[0], if_false, if_true), Select())


# --- casts ------------------------------------------------------------------

# Bits of whole numbers that a float holds.
_WHOLE_BITS = {
    dtypes.float16: 11,
    dtypes.bfloat16: 8,
    dtypes.float32: 24,
    dtypes.float64: 53,
}


def loses_nothing(narrow: DType, wide: DType) -> bool:
    """Whether each element of a dtype is one of another, which gives it back."""
    if Kind.STORAGE in (narrow.kind, wide.kind):
        return False
    if narrow.is_bool:
        return not wide.is_bool
    if narrow.is_float:
        return holds_all_of(wide, narrow)
    magnitude = narrow.bits - narrow.is_signed
    if wide.is_float:
        return magnitude <= _WHOLE_BITS[wide]
    if not wide.is_integer or (narrow.is_signed and not wide.is_signed):
        return False
    return wide.bits - wide.is_signed >= magnitude


def cast(site: Site) -> Answer:
    assert isinstance(site.op, Cast)
    if site.given().dtype is site.op.to:
        return Becomes(CAST, site.inputs)
    maker = site.maker()
    if maker is None or not isinstance(maker.op, Cast):
        return None
    (first,) = maker.inputs
    given, middle, made = site.draft.edit.type(first).dtype, maker.op.to, site.op.to
    if not loses_nothing(given, middle):
        detail = f"{given} to {middle} to {made}"
        return Declines(CAST, Reason.ROUNDED, detail)
    if given is made:
        return site.repeated(CAST, first)
    if given.is_integer and middle.is_float and made.is_integer:
        detail = f"{given} to {middle} to {made} saturates, {given} to {made} wraps"
        return Declines(CAST, Reason.ROUNDED, detail)
    return Becomes(CAST, (first,), site.op)


# --- literals ---------------------------------------------------------------


def inlined(site: Site) -> Answer:
    """Literals in the place of operands that repeat them to no effect."""
    literals = [site.literal(number) for number in range(len(site.inputs))]
    operands: tuple[Operand, ...] = site.inputs
    for number, literal in enumerate(literals):
        if literal is None or isinstance(operands[number], Scalar):
            continue
        tried = (*operands[:number], literal, *operands[number + 1 :])
        types = [site.draft.edit.type(operand) for operand in tried]
        if site.op.infer_all(*types) == (site.type,):
            operands = tried
    if operands == site.inputs:
        return None
    return Becomes(INLINE, operands, site.op)


LAWS: dict[type[Op], tuple[Law, ...]] = {
    Binary: (neutral, absorbing, itself, reciprocal, inlined),
    Unary: (twice,),
    Compare: (inlined,),
    Clamp: (inlined,),
    Select: (choice, inlined),
    Cast: (cast,),
}
REWRITES = (NEUTRAL, ABSORBING, ITSELF, TWICE, RECIPROCAL, CHOICE, CAST, INLINE)
