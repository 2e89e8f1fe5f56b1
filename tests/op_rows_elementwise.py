"""The rows of elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import ALL, DType
from poot.core.op import Op
from poot.core.ops.elementwise import (
    PREDICATES,
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.types import TensorType
from tests import mpmath_functions as mp
from tests import op_references as ref
from tests.op_row import (
    BOOL,
    FLOATS,
    INTEGERS,
    MOVED,
    SIGNED,
    Case,
    Domain,
    OpRow,
    on_64_bit_integers,
    on_64_bits,
)

_U, _B, _C = UnaryOp, BinaryOp, CompareOp
Shapes = tuple[tuple[int, ...], ...]

# Of functions that no device has and poot computes by itself.
TRANSCENDENTAL = {"f16": 1, "bf16": 1, "f32": 4, "f64": 4}
EXACT: Mapping[str, float] = {}
ONE_ULP = {"f16": 1, "bf16": 1, "f32": 1, "f64": 1}
REFERENCE = {"f16": 1, "bf16": 1, "f32": 4, "f64": 0}
REFERENCE_BY_MPMATH = {**REFERENCE, "f64": 4}
# Where JAX itself is far off on the CPU.
ROUGH = {"f32": 128}
JAX = {"f16": 2, "bf16": 1, "f32": 8, "f64": 8}

UNARY_SHAPES: tuple[Shapes, ...] = (
    ((1031,),),
    ((),),
    ((0,),),
    ((1,),),
    ((3, 5),),
    ((2, 0, 3),),
    ((2, 3, 17),),
)
BINARY_SHAPES: tuple[Shapes, ...] = (
    ((1031,), (1031,)),
    ((), ()),
    ((5,), ()),
    ((3, 1), (1, 4)),
    ((2, 3), (3,)),
    ((0,), (1,)),
    ((2, 1, 3), (5, 1)),
    ((0, 3), (3,)),
    ((1, 1), (2, 3, 7)),
)
TERNARY_SHAPES: tuple[Shapes, ...] = (
    ((257,), (257,), (257,)),
    ((), (), ()),
    ((), (5, 3), ()),
    ((3,), (2, 1), (2, 3)),
    ((0,), (0,), ()),
)


def applications(op: Op, shapes: Sequence[Shapes]) -> Callable[[DType], list[Case]]:
    """The op on operands of one dtype, of each of the shapes."""

    def cases(dtype: DType) -> list[Case]:
        return [Case(op, tuple(TensorType(s, dtype) for s in each)) for each in shapes]

    return cases


def unary(
    member: UnaryOp,
    reference: ref.Reference,
    *domains: Domain,
    dtypes: tuple[DType, ...] = FLOATS,
    **rest: Any,
) -> OpRow:
    op = Unary(member)
    return OpRow(
        op.key,
        dtypes,
        applications(op, UNARY_SHAPES),
        reference,
        domains or ((-100.0, 100.0),),
        special=1,
        **rest,
    )


def binary(
    member: BinaryOp,
    reference: ref.Reference,
    *domains: Domain,
    dtypes: tuple[DType, ...],
    **rest: Any,
) -> OpRow:
    op = Binary(member)
    return OpRow(
        op.key,
        dtypes,
        applications(op, BINARY_SHAPES),
        reference,
        domains or ((-100.0, 100.0),),
        special=2,
        **rest,
    )


def transcendental(
    member: UnaryOp,
    function: Callable[..., Any],
    *domains: Domain,
    **rest: Any,
) -> OpRow:
    limits = {
        "ulps": TRANSCENDENTAL,
        "reference_ulps": REFERENCE,
        "jax_ulps": JAX,
        "needs_int64": on_64_bits,
        **rest,
    }
    return unary(member, ref.native(function), *domains, **limits)


_UNIT = (-1.0, 1.0)

TRANSCENDENTALS = [
    transcendental(_U.EXP, np.exp, (-87.0, 88.0)),
    transcendental(_U.EXP2, np.exp2, (-125.0, 127.0), jax_ulps=ROUGH),
    transcendental(_U.EXPM1, np.expm1, (-20.0, 88.0)),
    transcendental(_U.LOG, np.log, (0.0, 10.0)),
    transcendental(_U.LOG2, np.log2, (0.0, 10.0)),
    transcendental(_U.LOG10, np.log10, (0.0, 10.0)),
    transcendental(_U.LOG1P, np.log1p, (-1.0, 10.0)),
    transcendental(_U.RSQRT, lambda x: 1 / np.sqrt(x), (0.0, 100.0)),
    transcendental(_U.CBRT, np.cbrt),
    transcendental(_U.SIN, np.sin),
    transcendental(_U.COS, np.cos),
    transcendental(_U.TAN, np.tan),
    transcendental(_U.ASIN, np.arcsin, _UNIT),
    transcendental(_U.ACOS, np.arccos, _UNIT),
    transcendental(_U.ATAN, np.arctan),
    transcendental(_U.SINH, np.sinh, (-88.0, 88.0), jax_ulps=ROUGH),
    transcendental(_U.COSH, np.cosh, (-88.0, 88.0), jax_ulps=ROUGH),
    transcendental(_U.TANH, np.tanh, (-10.0, 10.0)),
    transcendental(_U.ASINH, np.arcsinh),
    transcendental(_U.ACOSH, np.arccosh, (1.0, 100.0)),
    transcendental(_U.ATANH, np.arctanh, _UNIT),
    transcendental(_U.ERF, np.vectorize(math.erf, [np.float64]), (-4.0, 4.0)),
    transcendental(
        _U.ERFC,
        np.vectorize(math.erfc, [np.float64]),
        (-4.0, 9.0),
        jax_ulps=ROUGH,
    ),
    transcendental(_U.ERF_INV, mp.erf_inv, _UNIT, reference_ulps=REFERENCE_BY_MPMATH),
    *(
        transcendental(
            member,
            function,
            (-20.0, 100.0),
            # Between two poles on the left large terms cancel, in NumPy and JAX too.
            floor=1.0,
            reference_ulps=REFERENCE_BY_MPMATH,
            jax_ulps={**JAX, "f32": 32},
        )
        for member, function in (
            (_U.LGAMMA, mp.lgamma),
            (_U.DIGAMMA, mp.digamma),
        )
    ),
]

UNARIES = [
    unary(
        _U.SQRT,
        ref.native(np.sqrt),
        (0.0, 100.0),
        needs_int64=on_64_bits,
    ),
    unary(
        _U.RECIP,
        ref.native(lambda x: 1 / x),
        ulps=EXACT,
        jax_ulps=JAX,
        needs_int64=on_64_bits,
    ),
    unary(_U.FLOOR, ref.native(np.floor)),
    unary(_U.CEIL, ref.native(np.ceil)),
    unary(_U.TRUNC, ref.native(np.trunc)),
    unary(
        _U.ROUND,
        ref.native(np.rint),
    ),
    unary(
        _U.NEG,
        ref.by_kind(
            floats=ref.native(np.negative), integers=ref.on_integers(lambda _, a: -a)
        ),
        dtypes=FLOATS + INTEGERS,
        needs_int64=on_64_bits,
    ),
    unary(
        _U.ABS,
        ref.by_kind(
            floats=ref.native(np.abs), integers=ref.on_integers(lambda _, a: abs(a))
        ),
        dtypes=FLOATS + INTEGERS,
        needs_int64=on_64_bits,
    ),
    unary(
        _U.SIGN,
        ref.by_kind(
            floats=ref.on_floats(ref.sign),
            integers=ref.on_integers(lambda _, a: (a > 0) - (a < 0)),
        ),
        dtypes=FLOATS + INTEGERS,
        needs_int64=on_64_bits,
    ),
    unary(
        _U.NOT,
        ref.by_kind(
            floats=ref.unchanged(np.invert),
            integers=ref.on_integers(lambda _, a: ~a),
            bools=ref.unchanged(np.logical_not),
        ),
        dtypes=INTEGERS + BOOL,
    ),
    unary(_U.CLZ, ref.on_integers(ref.leading_zeros), dtypes=INTEGERS),
    unary(
        _U.POPCOUNT,
        ref.on_integers(ref.ones),
        dtypes=INTEGERS,
    ),
    *(
        unary(member, ref.unchanged(function), needs_int64=on_64_bits)
        for member, function in (
            (_U.ISNAN, np.isnan),
            (_U.ISINF, np.isinf),
            (_U.ISFINITE, np.isfinite),
            (_U.SIGNBIT, np.signbit),
        )
    ),
]
assert {_U.ISNAN, _U.ISINF, _U.ISFINITE, _U.SIGNBIT} == PREDICATES


def _by_zero(op: Op, a: Any, b: Any) -> Any:
    return b == 0


def _has_lowest(op: Op, a: Any, b: Any) -> Any:
    lowest = np.iinfo(a.dtype).min
    return ((a == lowest) | (b == lowest)) & (lowest < 0)


def _integer_exponent_beyond_63(op: Op, a: Any, b: Any) -> Any:
    """JAX refuses negative exponents of integers, and reads six bits of others."""
    return ((b < 0) | (b > 63)) & (a.dtype.kind in "iu")


def arithmetic(
    member: BinaryOp,
    floats: Callable[..., Any],
    integers: Callable[..., int],
    *domains: Domain,
    **rest: Any,
) -> OpRow:
    reference = ref.by_kind(
        floats=ref.native(floats), integers=ref.on_integers(integers)
    )
    return binary(member, reference, *domains, dtypes=FLOATS + INTEGERS, **rest)


def bitwise(member: BinaryOp, function: Callable[[int, int], int]) -> OpRow:
    integers = ref.on_integers(lambda _, a, b: function(a, b))
    reference = ref.by_kind(
        floats=integers,
        integers=integers,
        bools=lambda op, a, b: function(a, b),
    )
    return binary(member, reference, dtypes=INTEGERS + BOOL)


def shift(member: BinaryOp, function: Callable[..., int]) -> OpRow:
    return binary(
        member,
        ref.on_integers(function),
        (-100.0, 100.0),
        (-2.0, 70.0),
        dtypes=INTEGERS,
    )


def extremum(member: BinaryOp, function: Callable[..., Any]) -> OpRow:
    reference = ref.by_kind(
        floats=ref.on_floats(function),
        integers=ref.unchanged(np.maximum if member is _B.MAX else np.minimum),
    )
    return binary(
        member,
        reference,
        dtypes=FLOATS + INTEGERS + BOOL,
        needs_int64=on_64_bits,
    )


BINARIES = [
    arithmetic(_B.ADD, np.add, lambda _, a, b: a + b),
    arithmetic(_B.SUB, np.subtract, lambda _, a, b: a - b),
    arithmetic(_B.MUL, np.multiply, lambda _, a, b: a * b),
    arithmetic(
        _B.DIV,
        np.divide,
        ref.divide,
        jax_differs=_by_zero,
        needs_int64=on_64_bits,
    ),
    arithmetic(
        _B.REM,
        np.fmod,
        ref.remainder,
        jax_differs=_by_zero,
        needs_int64=on_64_bits,
    ),
    arithmetic(
        _B.POW,
        np.power,
        ref.power,
        (0.0, 20.0),
        (-6.0, 6.0),
        ulps=TRANSCENDENTAL,
        reference_ulps=REFERENCE,
        jax_ulps={"f16": 2, "bf16": 1, "f32": 16, "f64": 16},
        jax_differs=_integer_exponent_beyond_63,
        needs_int64=on_64_bits,
    ),
    extremum(_B.MAX, ref.largest),
    extremum(_B.MIN, ref.smallest),
    binary(
        _B.ATAN2,
        ref.native(np.arctan2),
        dtypes=FLOATS,
        needs_int64=on_64_bits,
        ulps=TRANSCENDENTAL,
        reference_ulps=REFERENCE,
        jax_ulps=JAX,
    ),
    binary(
        _B.HYPOT,
        ref.native(np.hypot),
        dtypes=FLOATS,
        needs_int64=on_64_bits,
        ulps=TRANSCENDENTAL,
        reference_ulps=REFERENCE,
        jax_ulps=JAX,
    ),
    binary(
        _B.NEXTAFTER,
        ref.next_after,
        dtypes=FLOATS,
        needs_int64=on_64_bits,
    ),
    binary(
        _B.COPYSIGN,
        ref.unchanged(np.copysign),
        dtypes=FLOATS,
        needs_int64=on_64_bits,
    ),
    bitwise(_B.AND, lambda a, b: a & b),
    bitwise(_B.OR, lambda a, b: a | b),
    bitwise(_B.XOR, lambda a, b: a ^ b),
    shift(_B.SHL, ref.shift_left),
    shift(_B.SHR, ref.shift_right),
    shift(_B.SHR_LOGICAL, ref.shift_right_logical),
    binary(
        _B.GCD,
        ref.on_integers(lambda _, a, b: math.gcd(a, b)),
        dtypes=INTEGERS,
        jax_differs=_has_lowest,
    ),
    binary(
        _B.GE,
        lambda op, a, b: np.asarray(a >= b).astype(a.dtype),
        dtypes=FLOATS + INTEGERS,
    ),
    binary(_B.GE_U, ref.on_integers(ref.greater_equal_unsigned), dtypes=SIGNED),
]

COMPARES = [
    OpRow(
        Compare(member).key,
        FLOATS + INTEGERS + BOOL,
        applications(Compare(member), BINARY_SHAPES),
        ref.unchanged(function),
        special=2,
    )
    for member, function in (
        (_C.EQ, np.equal),
        (_C.NE, np.not_equal),
        (_C.LT, np.less),
        (_C.LE, np.less_equal),
        (_C.GT, np.greater),
        (_C.GE, np.greater_equal),
    )
]


def _select_cases(dtype: DType) -> list[Case]:
    return [
        Case(
            Select(),
            (
                TensorType(condition, kind),
                TensorType(if_true, dtype),
                TensorType(if_false, dtype),
            ),
        )
        for condition, if_true, if_false in TERNARY_SHAPES
        for kind in (dtypes.bool_, dtypes.int32)
    ]


def _cast_cases(dtype: DType) -> list[Case]:
    shapes = ((517,), (), (0, 3), (1, 5))
    targets = [
        to
        for to in ALL
        if to.name != "f8e8m0" or (dtype.is_float and dtype.itemsize <= 4)
    ]
    return [
        Case(Cast(to), (TensorType(shape, dtype),))
        for to in targets
        for shape in (shapes if to is dtypes.float32 else shapes[:1])
    ]


def _cast_needs_int64(case: Case) -> bool:
    """A narrower result of f64 is rounded on the bits."""
    if case.types[0].dtype is dtypes.float64:
        return on_64_bits(case) and case.op.to not in (dtypes.float64, dtypes.bool_)
    return on_64_bit_integers(case)


def _bitcast_cases(dtype: DType) -> list[Case]:
    cases = []
    for to in ALL:
        if to.is_bool != dtype.is_bool:
            continue
        ratio = to.itemsize // dtype.itemsize
        last = (ratio,) if ratio > 1 else ()
        cases += [
            Case(BitcastConvert(to), (TensorType((*shape, *last), dtype),))
            for shape in ((3, 5), (), (0,))
        ]
    return cases


OTHERS = [
    OpRow(
        Select().key,
        MOVED,
        _select_cases,
        lambda op, c, a, b: np.where(c != 0, a, b),
        ((-1.0, 1.0), (-100.0, 100.0)),
    ),
    OpRow(
        Cast(dtypes.float32).key,
        ALL,
        _cast_cases,
        lambda op, x: ref.convert(x, op.to),
        ((-300.0, 300.0),),
        needs_int64=_cast_needs_int64,
    ),
    OpRow(
        BitcastConvert(dtypes.float32).key,
        ALL,
        _bitcast_cases,
        ref.bitcast,
    ),
    OpRow(
        Clamp().key,
        FLOATS + INTEGERS,
        applications(Clamp(), TERNARY_SHAPES),
        ref.by_kind(
            floats=ref.on_floats(ref.clamp),
            integers=ref.unchanged(lambda a, x, b: np.minimum(np.maximum(x, a), b)),
        ),
        ((-100.0, 0.0), (-100.0, 100.0), (-10.0, 100.0)),
        needs_int64=on_64_bits,
    ),
]

ROWS = [*TRANSCENDENTALS, *UNARIES, *BINARIES, *COMPARES, *OTHERS]
