"""poot.numpy's ufuncs: values, dtypes, weakness, special values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot.numpy as jnp
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from tests.numerics import rng_of
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
    pairs,
    specials,
)

F16, BF16, F32 = np.float16, ml_dtypes.bfloat16, np.float32
HALVES = (F16, BF16)
I8, I32, U8, U32 = np.int8, np.int32, np.uint8, np.uint32


def number(values: Any, dtype: Any = F32) -> Any:
    return np.array(values).astype(dtype)


SOME = number([-2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 3.5])
WHOLE = number([-7, -3, -1, 0, 1, 2, 3, 8], I32)
DIVISORS = number([2, -2, 3, 0, -1, 5, -3, 3], I32)
MASK = np.array([True, False, True, True, False, False, True, False])
ROW, COLUMN = number([[0.5, -1.5, 2.0]]), number([[1.0], [-2.0]])
NOTHING = np.zeros((2, 0, 3), F32)

# Of functions of a float: one point of the domain's middle, and the exact result's
# distance in ulps of f32.
FLOAT_FUNCTIONS = {
    "exp": 4,
    "exp2": 4,
    "expm1": 4,
    "log": 4,
    "log2": 4,
    "log10": 4,
    "log1p": 4,
    "sqrt": 1,
    "cbrt": 4,
    "sin": 4,
    "cos": 4,
    "tan": 4,
    "arcsin": 4,
    "arccos": 4,
    "arctan": 4,
    "sinh": 4,
    "cosh": 4,
    "tanh": 4,
    "arcsinh": 4,
    "arccosh": 4,
    "arctanh": 4,
    "deg2rad": 1,
    "rad2deg": 1,
    "fabs": 0,
    "rint": 0,
    "reciprocal": 1,
}


def float_cases() -> list[Case]:
    cases = []
    for name, ulps in FLOAT_FUNCTIONS.items():
        text = f"m.{name}(a)"
        cases.append(case(text, ulps, a=SOME))
        cases.append(case(text, ulps, a=WHOLE[4:], numpy=f"m.{name}(a.astype(float))"))
    for name in ("exp", "log1p", "deg2rad", "arctan"):
        text, wide = f"m.{name}(a)", f"m.{name}(m.asarray(a, float))"
        cases += [case(text, 1, a=SOME.astype(dtype)) for dtype in HALVES]
        cases += [
            case(text, 4, a=U8(3), numpy=wide),
            case(text, 4, a=True, numpy=wide),
            case(text, 4, a=2, numpy=wide),
            case(text, 4, a=0.75),
            case(text, a=NOTHING),
        ]
    return cases


def whole_cases() -> list[Case]:
    """Functions that keep the dtype of integers."""
    cases = []
    for name in ("floor", "ceil", "trunc", "absolute", "square", "positive", "conj"):
        text = f"m.{name}(a)"
        cases += [case(text, a=x) for x in (SOME, WHOLE, SOME.astype(F16))]
    cases += [case("m.sign(a)", a=x) for x in (WHOLE, U8([0, 9]), BF16(-2.0))]
    # Zeros stay as they are, as in JAX; NumPy loses the sign.
    signs = [-1, -1, -1, -0.0, 0, 1, 1, 1]
    cases += [case("m.sign(a)", a=SOME, values=signs)]
    cases += [case("m.negative(a)", a=x) for x in (SOME, WHOLE, U8([0, 9]))]
    cases += [case("m.square(a)", a=MASK, numpy="a.astype(int)")]
    cases += [case("m.absolute(a)", a=x) for x in (MASK, U8([0, 9]), -3, -2.5)]
    cases += [case("m.imag(a)", a=x) for x in (SOME, WHOLE)]
    cases += [
        case("m.real(a)", a=SOME),
        case("m.fix(a)", a=SOME, dtype=F32, numpy="m.trunc(a)"),
    ]
    cases += [case("m.round(a)", a=SOME), case("m.round(a, 1)", 1, a=SOME * 0.77)]
    return cases


ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
DIVISION = ("floor_divide", "remainder", "fmod")


def arithmetic_cases() -> list[Case]:
    cases = [
        case(f"m.{name}(a, b)", a=a, b=b)
        for name in (*ARITHMETIC, "fmax", "fmin")
        for a, b in ((ROW, COLUMN), (WHOLE, DIVISORS), (WHOLE, 2.5), (NOTHING, ROW))
    ]
    cases += [
        case("m.add(a, b)", a=a, b=b)
        for a, b in (
            (SOME.astype(F16), 0.1),
            (SOME.astype(F16), SOME.astype(BF16)),
            (WHOLE.astype(I8), U8(200)),
            (WHOLE.astype(U8), 100),
            (WHOLE.astype(U32), WHOLE),
            (MASK, MASK),
            (MASK, 1),
            (1, 2.5),
            (SOME.astype(F16), SOME),
            (WHOLE, SOME.astype(BF16)),
        )
    ]
    cases += [case("m.multiply(a, b)", a=MASK, b=~MASK)]
    cases += [
        case(f"m.{name}(a, b)", a=WHOLE, b=DIVISORS) for name in ("fmod", "remainder")
    ]
    # By zero the quotient is 0; JAX has other values.
    cases += [case("m.floor_divide(a, b)", a=WHOLE, b=DIVISORS)]
    cases += [
        case(f"m.{name}(a, b)", a=number([True, True]), b=number([True, False]))
        for name in DIVISION
    ]
    cases += [case("m.divmod(a, b)", a=WHOLE, b=DIVISORS)]
    cases += [case("m.divmod(a, b)", a=SOME, b=number([1, 2, -2, 3, -1, 0.5, -3, 2]))]
    cases += [
        case("m.divide(a, b)", 1, a=a, b=b)
        for a, b in ((ROW, COLUMN), (WHOLE, DIVISORS), (WHOLE.astype(I8), 3))
    ]
    cases += [
        case("m.power(a, b)", 4, a=number([0.5, 2, 3, -2]), b=number([2, 0.5, -1, 3])),
        case(
            "m.power(a, b)", a=number([2, -3, 0, 7], I32), b=number([5, 3, 0, 2], I32)
        ),
        case("m.power(a, 3)", 1, a=SOME),
        case("m.power(a, 3)", a=WHOLE),
        case("m.float_power(a, b)", 4, a=WHOLE[4:], b=3),
        case("m.pow(a, b)", 4, a=number([0.5, 2.0]), b=number([2, 3], I32)),
    ]
    return cases


def float_pair_cases() -> list[Case]:
    cases = []
    for name, ulps in {
        "arctan2": 4,
        "hypot": 2,
        "copysign": 0,
        "heaviside": 0,
        "logaddexp": 4,
        "logaddexp2": 4,
    }.items():
        text = f"m.{name}(a, b)"
        cases.append(case(text, ulps, a=ROW, b=COLUMN))
        cases.append(case(text, ulps, a=number([1, 2], I32), b=ROW[:, :2]))
        cases.append(case(text, 1, a=ROW.astype(F16), b=COLUMN.astype(F16)))
    cases.append(case("m.logaddexp(a, b)", 4, a=1, b=2.5))
    return cases


BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def bit_cases() -> list[Case]:
    cases = [
        case(f"m.{name}(a, b)", a=a, b=b)
        for name in BITS
        for a, b in ((WHOLE, DIVISORS), (MASK, ~MASK), (WHOLE.astype(U8), 15))
    ]
    cases += [case("m.invert(a)", a=x) for x in (WHOLE, MASK, U8([0, 9]), 5)]
    shift = number([0, 1, 2, 3, 4, 5, 6, 7], I32)
    cases += [
        case(f"m.{name}(a, b)", a=x, b=shift.astype(x.dtype))
        for name in ("left_shift", "right_shift")
        for x in (WHOLE, WHOLE.astype(U8), WHOLE.astype(I8))
    ]
    cases += [
        case("m.left_shift(a, b)", a=True, b=True, values=2),
        case("m.right_shift(a, b)", a=U8([200]), b=3),
        case("m.bitwise_count(a)", a=WHOLE),
        case("m.bitwise_count(a)", a=MASK, numpy="m.bitwise_count(a.astype(int))"),
        case("m.bitwise_count(a)", a=7),
        case("m.gcd(a, b)", a=WHOLE, b=4),
        case("m.lcm(a, b)", a=WHOLE.astype(I8), b=DIVISORS.astype(I8)),
    ]
    cases += [
        case(f"m.{name}(a, b)", **pairs(dtype))
        for name in ("gcd", "lcm")
        for dtype in ("i32", "u8")
    ]
    return cases


def logic_cases() -> list[Case]:
    comparisons = (
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    )
    cases = [
        case(f"m.{name}(a, b)", a=a, b=b)
        for name in comparisons
        for a, b in ((SOME, SOME[::-1]), (WHOLE, 1), (MASK, True), (WHOLE, 0.5))
    ]
    cases += [
        case(f"m.{name}(a, b)", a=a, b=b)
        for name in ("logical_and", "logical_or", "logical_xor")
        for a, b in ((SOME, MASK), (WHOLE, 0), (ROW, COLUMN))
    ]
    cases += [case("m.logical_not(a)", a=x) for x in (SOME, WHOLE, MASK, 0.5, NOTHING)]
    special = specials("f32")
    for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit"):
        cases += [case(f"m.{name}(a)", a=x) for x in (special, WHOLE, specials("f16"))]
    cases += [case("m.isreal(a)", a=SOME), case("m.iscomplex(a)", a=WHOLE)]
    cases += [case("m.signbit(a)", a=x) for x in (MASK, U8([200]), -1)][1:]
    return cases


def choice_cases() -> list[Case]:
    close = SOME + number([0, 1e-6, 1e-3, 1e-9, -1e-7, np.nan, np.inf, -1e-5])
    ends = {
        "a": number([np.inf, -np.inf, np.nan, np.inf]),
        "b": number([-np.inf, -np.inf, np.nan, np.inf]),
    }
    finite = number([1, np.nan, np.inf, -np.inf])
    return [
        case("m.where(a, b, c)", a=MASK, b=SOME, c=WHOLE),
        case("m.where(a, b, c)", a=SOME, b=1, c=2.5),
        case("m.where(a, b, c)", a=MASK[:2], b=COLUMN, c=0.0),
        case("m.where(a, b, c)", a=True, b=ROW, c=COLUMN),
        case("m.select([a > 1, a < 0], [a, b], 5)", a=SOME, b=WHOLE),
        case("m.clip(a, -1, 2)", a=SOME),
        case("m.clip(a, None, 2)", a=WHOLE),
        case("m.clip(a, b, 1.5)", a=WHOLE, b=SOME[::-1]),
        case("m.nan_to_num(a)", a=finite, values=[1, 0, 3.4028235e38, -3.4028235e38]),
        case("m.nan_to_num(a)", a=finite.astype(F16), values=[1, 0, 65504, -65504]),
        case("m.nan_to_num(a, nan=7, posinf=8.5, neginf=-9)", a=finite),
        case("m.nan_to_num(a)", a=WHOLE),
        case("m.isclose(a, b)", a=SOME, b=close),
        case("m.isclose(a, b, 1e-2, 1e-3)", a=SOME, b=close),
        case("m.isclose(a, b, equal_nan=True)", **ends),
        case("m.isclose(a, b)", a=WHOLE, b=WHOLE[::-1]),
        case("m.allclose(a, b)", a=SOME, b=SOME * 1.000001),
        case("m.array_equal(a, b)", a=SOME, b=SOME),
        case("m.array_equal(a, b)", a=WHOLE, b=WHOLE[:3]),
        case("m.array_equal(a, a, equal_nan=True)", a=finite),
        case("m.array_equiv(a, b)", a=number([2, 2]), b=2),
        case("m.array_equiv(a, b)", a=SOME, b=SOME[:2], dtype=bool),
    ]


# --- special values ---------------------------------------------------------


def part_cases() -> list[Case]:
    """Floats taken apart and put together, by NumPy on the same dtype."""
    cases = []
    for dtype in ("f32", "f16", "bf16"):
        special = specials(dtype)
        text = "m.frexp(a)"
        wide = "m.frexp(a.astype(np.float32))"
        cases += [
            case(text, a=special, numpy=wide, native=True),
            case("m.modf(a)", a=special),
            case(
                "m.ldexp(a, b)",
                a=special[:, None],
                b=number([-150, -140, -3, 0, 150], I32),
            ),
        ]
    # NumPy gives the distance at -0.0, and all of f16, without the sign.
    distance = "m.copysign(abs(m.spacing(abs(a))), a)"
    # Of equal numbers the second one, whose sign NumPy drops in f16.
    neighbour = "m.where(a == b, b, m.nextafter(a, b))"
    for dtype in ("f32", "f16"):
        special = specials(dtype)
        cases += [
            case("m.spacing(a)", a=special, native=True, numpy=distance),
            case("m.nextafter(a, b)", native=True, numpy=neighbour, **pairs(dtype)),
        ]
    scales = number([-300, -277, -126, -127, -102, -24, 24, 127, 128, 276, 300], I32)
    cases += [
        case("m.frexp(a)", a=WHOLE),
        case("m.modf(a)", a=WHOLE),
        case("m.ldexp(a, b)", a=specials("f32")[:, None], b=scales),
        case("m.ldexp(a, b)", a=number([1.1754945e-38, 3e-39]), b=U32([2**31, 3])),
        case("m.ldexp(a, b)", a=WHOLE, b=I8(-3)),
        case("m.ldexp(a, 3)", a=SOME),
    ]
    return cases


def special_cases() -> list[Case]:
    """All pairs of special values."""
    exact = ("fmod", "remainder", "floor_divide", "heaviside", "copysign")
    cases = [
        case(f"m.{name}(a, b)", native=name == "floor_divide", **pairs("f32"))
        for name in exact
    ]
    # NumPy takes either zero; +0 counts as the larger one here.
    extrema = {
        "fmax": "m.where((a == 0) & (b == 0), a + b, m.fmax(a, b))",
        "fmin": "m.where((a == 0) & (b == 0), -(-a - b), m.fmin(a, b))",
    }
    cases += [
        case(f"m.{name}(a, b)", numpy=numpy, **pairs("f32"))
        for name, numpy in extrema.items()
    ]
    cases += [case("m.remainder(a, b)", **pairs("i32"))]
    cases += [case("m.floor_divide(a, b)", **pairs("i8"))]
    cases += [
        case(f"m.{name}(a, b)", ulps, **pairs("f32"))
        for name, ulps in {"hypot": 2, "arctan2": 4}.items()
    ]
    return cases


CASES = [
    *float_cases(),
    *whole_cases(),
    *arithmetic_cases(),
    *float_pair_cases(),
    *bit_cases(),
    *logic_cases(),
    *choice_cases(),
]


@each_row(CASES)
def test_values(row: Case) -> None:
    check(row)


@each_row([*part_cases(), *special_cases()])
def test_special_values(row: Case) -> None:
    check(row)


# --- composed functions -------------------------------------------------------


def off_by(result: Any, exact: Any, scale: Any) -> float:
    """The largest error in ulps of f32 at the larger of the result and `scale`."""
    size = np.maximum(np.abs(exact), scale).astype(np.float32)
    error = np.abs(np.asarray(result).astype(np.float64) - exact)
    return float(np.max(error / np.spacing(size)))


@pytest.mark.usefixtures("one_backend")
def test_log_of_sums() -> None:
    rng = rng_of("log of sums")
    x = number(rng.uniform(-30, 30, 4000))
    y = number(np.where(rng.random(4000) < 0.5, x, 0) + rng.normal(0, 3, 4000))
    x[:6] = [np.inf, -np.inf, np.inf, -np.inf, np.nan, 3e38]
    y[:6] = [np.inf, -np.inf, -np.inf, 5.0, 1.0, 3e38]
    wide = x.astype(np.float64), y.astype(np.float64)
    for name in ("logaddexp", "logaddexp2"):
        result = np.asarray(getattr(jnp, name)(x, y))
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(*wide)
        np.testing.assert_array_equal(result[:6], exact[:6].astype(np.float32))
        # Near a sum of 1 the logarithm is a difference of numbers of this size.
        assert off_by(result[6:], exact[6:], 1.0) <= 3, name


@pytest.mark.usefixtures("one_backend")
def test_sinc() -> None:
    x = np.concatenate([np.arange(-4, 5), np.linspace(-20, 20, 999), [1e-30, 1e7 + 1]])
    x = number(x)
    wide = x.astype(np.float64)
    part = wide - 2 * np.rint(wide / 2)
    near = np.where(np.abs(part) > 0.5, np.copysign(1, part) - part, part)
    with np.errstate(all="ignore"):
        exact = np.where(wide == 0, 1, np.sin(np.pi * near) / (np.pi * wide))
    result = np.asarray(jnp.sinc(x))
    assert np.array_equal(result[:9] != 0, np.arange(-4, 5) == 0)
    apart = np.abs(result - exact) / np.spacing(np.abs(number(exact)))
    assert np.max(apart) <= 6
    assert np.isnan(np.asarray(jnp.sinc(number([np.inf, np.nan])))).all()
    assert jnp.sinc(F16(0.5)) == F16(2 / np.pi)


@pytest.mark.usefixtures("one_backend")
def test_64_bits_where_asked() -> None:
    x = jnp.array([0.1, -3e-310, 5e300, np.inf, -0.0], dtype=jnp.float64)
    host = np.array([0.1, -3e-310, 5e300, np.inf, -0.0])
    for got, wanted in zip(jnp.frexp(x), np.frexp(host), strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(jnp.ldexp(x, -900), np.ldexp(host, -900))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(jnp.spacing(x)[:4], np.spacing(host)[:4])
    big = jnp.array([2**40, -(2**62)], dtype=jnp.int64)
    assert big.dtype == jnp.int64
    np.testing.assert_array_equal(jnp.gcd(big, 2**33 + 2**32), [2**32, 2**32])


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    x, n = SOME, WHOLE
    with pytest.raises(ArgumentError, match=r"add does not take out=.*never change"):
        jnp.add(x, x, out=x)
    with pytest.raises(ArgumentError, match=r"exp does not take where=, dtype="):
        jnp.exp(x, where=MASK, dtype=F16)
    with pytest.raises(ArgumentError, match=r"where takes a condition and two choices"):
        jnp.where(MASK)
    for call, words in (
        (lambda: jnp.sign(MASK), "sign: given bool, takes float, int"),
        (lambda: jnp.subtract(MASK, MASK), "sub: given bool"),
        (lambda: jnp.gcd(x, 2), "gcd: given f32, takes int"),
        (lambda: jnp.ldexp(x, x), "ldexp: the exponent is f32, takes integers"),
        (lambda: jnp.invert(x), "not: given f32"),
        (lambda: jnp.left_shift(n, 1.5), "shl: given f32"),
        (lambda: jnp.power(n, -2), "power: i32 to the power -2 is no integer"),
        (lambda: jnp.select([n], [n]), "a condition is i32, takes bool"),
        (lambda: jnp.exp([1.0]), "given list; .* poot.numpy.asarray"),
        (lambda: jnp.add(x, 1j), "complex"),
    ):
        with pytest.raises(DTypeError, match=words):
            call()
    with pytest.raises(ShapeError, match=r"\(8,\) and \(1, 3\) do not broadcast"):
        jnp.hypot(x, ROW)
    with pytest.raises(ShapeError, match="1 conditions and 2 choices"):
        jnp.select([MASK], [x, n])
