"""Elementwise primitives: each result element depends on one element an operand."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.types import TensorType


class UnaryOp(enum.Enum):
    """Functions of one element."""

    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    CBRT = "cbrt"
    RECIP = "recip"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    ERF_INV = "erf_inv"
    LGAMMA = "lgamma"
    DIGAMMA = "digamma"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"
    NOT = "not"
    CLZ = "clz"
    POPCOUNT = "popcount"
    ISNAN = "isnan"
    ISINF = "isinf"
    ISFINITE = "isfinite"
    SIGNBIT = "signbit"


class BinaryOp(enum.Enum):
    """Functions of two elements of one dtype."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    REM = "rem"
    MAX = "max"
    MIN = "min"
    POW = "pow"
    ATAN2 = "atan2"
    HYPOT = "hypot"
    NEXTAFTER = "nextafter"
    COPYSIGN = "copysign"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    SHR_LOGICAL = "shr_logical"
    GCD = "gcd"
    GE = "ge"
    GE_U = "ge_u"


class CompareOp(enum.Enum):
    """Comparisons, with bool results."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


_FLOAT = frozenset({Kind.FLOAT})
_INTEGER = frozenset({Kind.INT, Kind.UINT})
_SIGNED = frozenset({Kind.INT, Kind.FLOAT})
_NUMBER = _FLOAT | _INTEGER
_BITS = _INTEGER | {Kind.BOOL}
_ANY = _NUMBER | _BITS

_U, _B = UnaryOp, BinaryOp
# What each member takes; members that are not listed take floats only.
UNARY_KINDS: dict[UnaryOp, frozenset[Kind]] = {
    _U.NEG: _NUMBER,
    _U.ABS: _NUMBER,
    _U.SIGN: _NUMBER,
    _U.NOT: _BITS,
    _U.CLZ: _INTEGER,
    _U.POPCOUNT: _INTEGER,
}
BINARY_KINDS: dict[BinaryOp, frozenset[Kind]] = {
    _B.ADD: _NUMBER,
    _B.SUB: _NUMBER,
    _B.MUL: _NUMBER,
    _B.DIV: _NUMBER,
    _B.REM: _NUMBER,
    _B.MAX: _ANY,
    _B.MIN: _ANY,
    _B.POW: _NUMBER,
    _B.AND: _BITS,
    _B.OR: _BITS,
    _B.XOR: _BITS,
    _B.SHL: _INTEGER,
    _B.SHR: _INTEGER,
    _B.SHR_LOGICAL: _INTEGER,
    _B.GCD: _INTEGER,
    _B.GE: _NUMBER,
    _B.GE_U: frozenset({Kind.INT}),
}
PREDICATES = frozenset({_U.ISNAN, _U.ISINF, _U.ISFINITE, _U.SIGNBIT})


def broadcast_shapes(where: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting of shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[axis]:
                continue
            if result[axis] != 1:
                given = " and ".join(str(s) for s in shapes)
                raise ShapeError(
                    f"{where}: shapes {given} do not broadcast; sizes of one axis "
                    "must be equal or 1"
                )
            result[axis] = size
    return tuple(result)


def require_kind(where: str, dtype: DType, kinds: frozenset[Kind]) -> None:
    """Raise DTypeError unless the dtype is of one of `kinds`."""
    if dtype.kind not in kinds:
        takes = ", ".join(sorted(kind.value for kind in kinds))
        raise DTypeError(f"{where}: given {dtype}, takes {takes}; cast the operand")


def require_same_dtype(where: str, *types: TensorType) -> DType:
    """The one dtype of all operands; DTypeError where they differ."""
    if len({t.dtype for t in types}) != 1:
        given = " and ".join(t.dtype.name for t in types)
        raise DTypeError(f"{where}: dtypes must be equal, given {given}; cast one")
    return types[0].dtype


@register
@dataclass(frozen=True, slots=True)
class Unary(Op):
    """Apply a function to each element."""

    op: UnaryOp
    name: ClassVar[str] = "unary"
    members: ClassVar[type[enum.Enum]] = UnaryOp

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self.op.value, x.dtype, UNARY_KINDS.get(self.op, _FLOAT))
        return TensorType(x.shape, dtypes.bool_ if self.op in PREDICATES else x.dtype)


@register
@dataclass(frozen=True, slots=True)
class Binary(Op):
    """Apply a function to pairs of elements, with NumPy's broadcasting."""

    op: BinaryOp
    name: ClassVar[str] = "binary"
    members: ClassVar[type[enum.Enum]] = BinaryOp

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        where = self.op.value
        dtype = require_same_dtype(where, a, b)
        require_kind(where, dtype, BINARY_KINDS.get(self.op, _FLOAT))
        return TensorType(broadcast_shapes(where, a.shape, b.shape), dtype)


@register
@dataclass(frozen=True, slots=True)
class Compare(Op):
    """Compare pairs of elements; the result is bool."""

    op: CompareOp
    name: ClassVar[str] = "compare"
    members: ClassVar[type[enum.Enum]] = CompareOp

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        where = self.op.value
        require_kind(where, require_same_dtype(where, a, b), _ANY)
        return TensorType(broadcast_shapes(where, a.shape, b.shape), dtypes.bool_)


@register
@dataclass(frozen=True, slots=True)
class Select(Op):
    """`if_true` where the condition holds (is not zero), else `if_false`, bit for bit.

    Operands: condition (bool or i32), if_true, if_false.
    """

    name: ClassVar[str] = "select"

    def infer(
        self, condition: TensorType, if_true: TensorType, if_false: TensorType
    ) -> TensorType:
        if condition.dtype not in (dtypes.bool_, dtypes.int32):
            raise DTypeError(
                f"select: the condition is {condition.dtype}, takes bool or i32"
            )
        dtype = require_same_dtype("select", if_true, if_false)
        shapes = (condition.shape, if_true.shape, if_false.shape)
        return TensorType(broadcast_shapes("select", *shapes), dtype)


@register
@dataclass(frozen=True, slots=True)
class Cast(Op):
    """Convert elements.

    Floats round to nearest even; float to integer saturates and NaN gives 0; integer
    to integer wraps; to bool: not equal to zero.
    """

    to: DType
    name: ClassVar[str] = "cast"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.shape, self.to)


@register
@dataclass(frozen=True, slots=True)
class BitcastConvert(Op):
    """Read the same bits as another dtype.

    Of one size: the shape stays. To a narrower dtype a last axis is added (first the
    low bits); to a wider one the last axis, of size wide/narrow, is consumed.
    """

    to: DType
    name: ClassVar[str] = "bitcast_convert"

    def infer(self, x: TensorType) -> TensorType:
        given, wanted = x.dtype.itemsize, self.to.itemsize
        if dtypes.bool_ in (x.dtype, self.to) and x.dtype is not self.to:
            raise DTypeError("bitcast_convert: bool has no bit pattern of its own")
        if given == wanted:
            return TensorType(x.shape, self.to)
        if given > wanted:
            return TensorType((*x.shape, given // wanted), self.to)
        if not x.shape or x.shape[-1] != wanted // given:
            raise ShapeError(
                f"bitcast_convert: {x} to {self.to} needs a last axis of size "
                f"{wanted // given}"
            )
        return TensorType(x.shape[:-1], self.to)


@register
@dataclass(frozen=True, slots=True)
class Clamp(Op):
    """`min(max(x, low), high)`; operands low, x, high; NaN in any gives NaN."""

    name: ClassVar[str] = "clamp"

    def infer(self, low: TensorType, x: TensorType, high: TensorType) -> TensorType:
        require_kind("clamp", require_same_dtype("clamp", low, x, high), _NUMBER)
        shape = broadcast_shapes("clamp", low.shape, x.shape, high.shape)
        return TensorType(shape, x.dtype)
