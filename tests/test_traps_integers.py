"""Traps of division, conversions and shifts; data/traps.txt has the list."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.dtypes import DType
from tests import trap_executors
from tests.trap_executors import (
    INF,
    INTEGERS,
    NAN,
    array,
    check,
    each_float,
    each_integer,
    each_signed,
    each_unsigned,
    f32,
    i32,
    need,
)

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")


def ends(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


# --- integer division -------------------------------------------------------


@each_signed
def test_integer_division_by_zero_int_min_1(dtype: DType) -> None:
    """As NumPy, where JAX has div -1, rem n and floor_divide -2."""
    need(dtype)
    low, high = ends(dtype)
    n = array([-7, 0, 7, low, high], dtype)
    zero, minus = np.zeros_like(n), np.full_like(n, -1)

    def divisions(n: Any, d: Any) -> Any:
        both = jnp.divmod(n, d)
        return lax.div(n, d), lax.rem(n, d), n // d, n % d, jnp.fmod(n, d), *both

    check(divisions, n, zero, right=(zero,) * 7)
    negated = array([7, 0, -7, low, -high], dtype)
    right = (negated, zero, negated, zero, zero, negated, zero)
    check(divisions, n, minus, right=right)
    # Divisors that the compiler sees.
    check(lambda n: (n // 0, n % 0), n, right=(zero, zero))
    check(lambda n: (n // -1, n % -1), n, right=(negated, zero))


@each_unsigned
def test_unsigned_division_by_zero(dtype: DType) -> None:
    """0 as in NumPy, where JAX has the largest number for 5 / 0."""
    need(dtype)
    n = array([5, 0, ends(dtype)[1]], dtype)
    zero = np.zeros_like(n)
    check(
        lambda n, d: (lax.div(n, d), lax.rem(n, d), n // d, n % d, n // 0),
        n,
        zero,
        right=(zero,) * 5,
    )


@each_float
def test_float_division_by_zero(dtype: DType) -> None:
    need(dtype)
    n, zero = array([1, -1, 0, NAN], dtype), array([0.0] * 4, dtype)
    wanted = array([INF, -INF, NAN, NAN], dtype)
    check(lambda n, d: (n / d, n // d), n, zero, right=(wanted, wanted))
    nan = array([NAN] * 4, dtype)
    check(lambda n, d: (n / -d, n % d), n, zero, right=(-wanted, nan))
    check(lambda n: (n / 0, 1 / n), n, right=(wanted, array([1, -1, INF, NAN], dtype)))


@each_signed
def test_signed_remainder_on_nvidia_vulkan(dtype: DType) -> None:
    """Vulkan leaves OpSRem and OpSMod undefined for negative operands."""
    need(dtype)
    a, b = array([-7, -1, 7, -6], dtype), array([3, 2, -3, 3], dtype)
    wanted = [[-1, -1, 1, 0], [2, 1, -2, 0], [-3, -1, -3, -2], [-2, 0, -2, -2]]
    rem, mod, floordiv, div = (array(row, dtype) for row in wanted)
    check(
        lambda a, b: (lax.rem(a, b), jnp.mod(a, b), a // b, lax.div(a, b)),
        a,
        b,
        right=(rem, mod, floordiv, div),
    )
    # Divisors that compilers replace by shifts and masks.
    n = np.arange(-9, 10).astype(dtype.numpy)
    for divisor in (3, 4, -4):
        check(
            lambda n, by=divisor: (n % by, n // by, jnp.fmod(n, by)),
            n,
            right=(n % divisor, n // divisor, np.fmod(n, dtype.numpy.type(divisor))),
        )


@each_float
def test_signs_of_float_remainders(dtype: DType) -> None:
    need(dtype)
    a = array([-7.5, 7.5, -0.0, 5, 5, -6], dtype)
    b = array([2, -2, 1, INF, -INF, 3], dtype)
    check(
        lambda a, b: (lax.rem(a, b), jnp.mod(a, b), a // b),
        a,
        b,
        right=(
            array([-1.5, 1.5, -0.0, 5, 5, -0.0], dtype),
            array([0.5, -0.5, 0.0, 5, -INF, 0.0], dtype),
            array([-4, -4, -0.0, 0, -1, -2], dtype),
        ),
    )


def test_remainders_of_far_apart_numbers() -> None:
    a, b = f32(1e20, -1e20, 3e38), f32(3, 3, 2e-38)
    exact = [int(x) % 3 for x in a[:2].tolist()]
    far = np.fmod(a[2], b[2])
    check(
        lambda a, b: (jnp.mod(a, b), lax.rem(a, b)),
        a,
        b,
        right=(f32(*exact, far), f32(2, -2, far)),
    )


def test_remainders_in_index_arithmetic() -> None:
    x = f32(0, 1, 2, 3)
    check(lambda x: (jnp.roll(x, -1), jnp.roll(x, 7)), x, right=(x[[1, 2, 3, 0]],) * 2)
    index = i32(-1, -5, 4, 9, -9)
    wrapped = f32(3, 3, 0, 1, 3)
    check(lambda x, i: jnp.take(x, i, mode="wrap"), x, index, right=wrapped)


# --- powers -----------------------------------------------------------------


@each_integer
def test_integer_powers(dtype: DType) -> None:
    need(dtype)
    base = array([0, 0, 0, 3, 2, 1], dtype)
    exponent = array([0, 1, 64, 4, 127, 100], dtype)
    right = array([1, 0, 0, 81, 0, 1], dtype)
    check(
        lambda b, e: (jnp.power(b, e), b**0, b**1),
        base,
        exponent,
        right=(right, np.ones_like(base), base),
    )
    if dtype.is_signed:
        # Rounded towards zero.
        base, exponent = (
            array([-1, -1, 1, 2, -2], dtype),
            array([-3, -2, -5, -1, 3], dtype),
        )
        check(jnp.power, base, exponent, right=array([-1, 1, 1, 0, -8], dtype))


# --- conversions ------------------------------------------------------------


@each_float
def test_float_int_out_of_range_nan(dtype: DType) -> None:
    """JAX flushes 1e-45 before it asks whether it is zero."""
    need(dtype)
    given = [300.0, -1, -300, 1e10, -1e10, 3e38, -3e38, NAN, INF, -INF, 255.9, -0.9]
    given += [2**31, -(2**31), 2**32, 2.0**63, -(2.0**63), 2.0**64, 127.5, 65535.5]
    x = array(given, dtype)
    for target in INTEGERS:
        low, high = ends(target)
        exact = [0 if math.isnan(v) else v for v in x.astype(np.float64).tolist()]
        clipped = [low if v < low else high if v > high else int(v) for v in exact]
        right = np.array(clipped, target.numpy)
        check(lambda x, to=target: jnp.astype(x, to.numpy), x, right=right, fused=False)
    tiny = np.array([1], f"u{dtype.itemsize}").view(dtype.numpy)
    x = np.concatenate([array([NAN, 0, -0.0], dtype), tiny])
    truth = np.array([True, False, False, True])
    check(lambda x: jnp.astype(x, np.bool_), x, right=truth, fused=False)
    flags = np.array([True, False])
    check(lambda x: jnp.astype(x, dtype.numpy), flags, right=array([1, 0], dtype))


def test_conversions_in_the_words_of_the_list() -> None:
    x = f32(300, -1, -300, 1e10, -1e10, NAN, INF, -INF, 255.9, 2**31)
    low, high = ends(dtypes.int32)
    octets = array([255, 0, 0, 255, 0, 0, 255, 0, 255, 255], dtypes.uint8)
    words = i32(300, -1, -300, high, low, 0, high, low, 255, high)
    check(
        lambda x: (jnp.astype(x, np.uint8), jnp.astype(x, np.int32)),
        x,
        right=(octets, words),
    )
    check(
        lambda: (jnp.full(2, NAN, np.int32), jnp.full(1, 1e10, np.int8)),
        right=(i32(0, 0), array([127], dtypes.int8)),
    )


@each_integer
def test_integers_wrap(dtype: DType) -> None:
    need(dtype, dtypes.int64)
    x = np.array([300, -1, 2**31, -(2**31), 2**40 + 5, 128, 65536], np.int64)
    wanted = x.astype(dtype.numpy)
    assert dtype is not dtypes.uint8 or wanted[0] == 44
    check(lambda x: jnp.astype(x, dtype.numpy), x, right=wanted)


def test_numbers_are_rounded_once() -> None:
    """Through f32 on the way to 16 bits they would be rounded to a tie first."""
    need(dtypes.float64, dtypes.int64)
    near = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11])
    right = np.array([1 + 2.0**-10, 1, 1 + 2.0**-9], np.float16)
    check(lambda x: jnp.astype(x, np.float16), near, right=right)
    near = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8])
    right = array([1 + 2.0**-7, 1], dtypes.bfloat16)
    check(lambda x: jnp.astype(x, jnp.bfloat16), near, right=right)
    for kind in (np.int32, np.int64):
        whole = np.array([257 * 2**16 + 1, 257 * 2**16, 2**24 + 1], kind)
        right = array([258.0 * 2**16, 256.0 * 2**16, 2.0**24], dtypes.bfloat16)
        check(lambda x: jnp.astype(x, jnp.bfloat16), whole, right=right)
    whole = np.array([2**24 + 1, 2**24 + 3, 2**53 + 1, 2**63 - 1])
    right = np.array([2**24, 2**24 + 4, 2.0**53, 2.0**63], np.float32)
    check(lambda x: jnp.astype(x, np.float32), whole, right=right)
    check(
        lambda x: jnp.astype(x, np.float16),
        i32(70000, 2049),
        right=array([INF, 2048], dtypes.float16),
    )


# --- shifts -----------------------------------------------------------------


@each_integer
def test_shifts_by_width(dtype: DType) -> None:
    """`width` and more, and less than none, which SPIR-V leaves undefined."""
    need(dtype)
    width, (low, high) = dtype.bits, ends(dtype)
    by = array([0, 1, width - 1, width, width + 1, -1], dtype)
    top = low if dtype.is_signed else 1 << (width - 1)
    ones = np.ones(6, dtype.numpy)
    left = array([1, 2, top, 0, 0, 0], dtype)
    check(lambda x, by: (x << by, lax.shift_left(x, by)), ones, by, right=(left, left))
    x = np.full(6, -8 if dtype.is_signed else high, dtype.numpy)
    pattern = int(x[0]) % (1 << width)
    down = [pattern >> b if b < width else 0 for b in (0, 1, width - 1, *[width] * 3)]
    logical = np.array(down, np.uint64).astype(dtype.numpy)
    signs = array([-8, -4, -1, -1, -1, -1], dtype)
    check(
        lambda x, by: (x >> by, lax.shift_right_logical(x, by)),
        x,
        by,
        right=(signs if dtype.is_signed else logical, logical),
    )
    # By literals, which drivers fold.
    check(
        lambda x: (x << width, x >> width, x << (width - 1)),
        ones,
        right=(0 * ones, 0 * ones, array([top] * 6, dtype)),
    )
