"""Values at which neighbouring systems go wrong, by poot.numpy and poot.lax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ShapeError
from tests.numerics import assert_close, assert_same_bits
from tests.numpy_cases import one_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("one_backend")

F16, F32 = np.float16, np.float32
I8, I32, U8, U32 = np.int8, np.int32, np.uint8, np.uint32
LOW, HIGH = np.iinfo(I32).min, np.iinfo(I32).max
INF, NAN = np.inf, np.nan


def gives(
    call: Callable[..., Any], *operands: Any, right: Any, ulps: float = 0
) -> None:
    """Eager and jitted results are `right`, dtype and sign of zero and all."""
    for function in (call, poot.jit(call)):
        result = function(*operands)
        assert_close(result, np.asarray(right, result.dtype), ulps)


def i32(*numbers: int) -> Any:
    return np.array(numbers, I32)


def f32(*numbers: float) -> Any:
    return np.array(numbers, F32)


def test_nan_and_zeros_in_extrema() -> None:
    gives(
        jnp.maximum, f32(NAN, 1, -0.0, 0), f32(1, NAN, 0, -0.0), right=[NAN, NAN, 0, 0]
    )
    gives(jnp.minimum, f32(NAN, 0, -0.0), f32(1, -0.0, 0), right=[NAN, -0.0, -0.0])
    gives(jnp.max, f32(1, NAN), right=NAN)
    gives(jnp.min, f32(NAN, -INF), right=NAN)


def test_integer_division_by_zero_and_overflow() -> None:
    n, zero = i32(-7, 0, 7, LOW), i32(0, 0, 0, 0)
    for function in (jnp.floor_divide, lax.div, lax.rem, jnp.remainder, jnp.fmod):
        gives(function, n, zero, right=zero)
        gives(function, np.array([5, 0], U32), np.zeros(2, U32), right=[0, 0])
    gives(lax.div, i32(LOW), i32(-1), right=[LOW])
    gives(jnp.floor_divide, i32(LOW), i32(-1), right=[LOW])
    gives(lax.rem, i32(LOW), i32(-1), right=[0])
    gives(jnp.divide, f32(1, -1, 0), f32(0, 0, 0), right=[INF, -INF, NAN])
    gives(jnp.floor_divide, f32(1, -1, 0), f32(0, 0, 0), right=[INF, -INF, NAN])


def test_signs_of_remainders() -> None:
    a, b = i32(-7, -1, 7, -6), i32(3, 2, -3, 3)
    gives(lax.rem, a, b, right=[-1, -1, 1, 0])
    gives(jnp.mod, a, b, right=[2, 1, -2, 0])
    gives(jnp.floor_divide, a, b, right=[-3, -1, -3, -2])
    gives(lax.rem, f32(-7.5), f32(2), right=[-1.5])
    gives(jnp.mod, f32(-7.5, 1e20, 5), f32(2, 3, -INF), right=[0.5, 2, -INF])


def test_powers() -> None:
    base = f32(-1, -2, -2, 0, 0, -8, 2, 1)
    exponent = f32(2, 3, -2, 0, -1, 1 / 3, 0.5, NAN)
    right = [1, -8, 0.25, 1, INF, NAN, 2**0.5, 1]
    gives(jnp.power, base, exponent, right=right, ulps=2)
    gives(jnp.power, i32(0, 0, 0), i32(0, 1, 64), right=[1, 0, 0])
    gives(lambda x: jnp.power(x, 0), f32(0, INF, NAN), right=[1, 1, 1])
    gives(lambda x: lax.integer_pow(x, -1), f32(0, -0.0, INF), right=[INF, -INF, 0])


def test_shifts_by_the_width_and_more() -> None:
    by = i32(0, 31, 32, 33, -1)
    gives(jnp.left_shift, i32(1, 1, 1, 1, 1), by, right=[1, LOW, 0, 0, 0])
    by = i32(1, 31, 32, 40)
    gives(jnp.right_shift, i32(-8, -8, -8, -8), by, right=[-4, -1, -1, -1])
    top = np.full(4, LOW, I32)
    gives(lax.shift_right_logical, top, by, right=[2**30, 1, 0, 0])
    octets, by8 = np.full(3, 255, U8), np.array([1, 7, 8], U8)
    gives(jnp.left_shift, octets, by8, right=[254, 128, 0])


def test_casts_saturate() -> None:
    x = f32(300, -1, -300, 1e10, -1e10, NAN, INF, -INF, 255.9, 2**31)
    right = [255, 0, 0, 255, 0, 0, 255, 0, 255, 255]
    gives(lambda x: jnp.astype(x, U8), x, right=right)
    right = [300, -1, -300, HIGH, LOW, 0, HIGH, LOW, 255, HIGH]
    gives(lambda x: jnp.asarray(x, dtype=I32), x, right=right)
    gives(lambda x: lax.convert_element_type(x, U8), i32(300), right=[44])
    gives(lambda: jnp.full(2, NAN, I32), right=[0, 0])
    gives(lambda: jnp.full(1, 1e10, I8), right=[127])


def test_signed_zeros() -> None:
    x = f32(-0.0, 0.0)
    gives(lambda x: jnp.add(x, 0.0), x, right=[0.0, 0.0])
    gives(lambda x: jnp.add(x, -0.0), x, right=[-0.0, 0.0])
    gives(lambda x: jnp.multiply(x, 1), x, right=[-0.0, 0.0])
    gives(lambda x: jnp.subtract(0, x), x, right=[0.0, 0.0])
    gives(jnp.negative, x, right=[0.0, -0.0])
    gives(lambda x: jnp.multiply(0, x), f32(INF, NAN, -1, 1), right=[NAN, NAN, -0.0, 0])
    gives(lambda x: jnp.divide(x, x), f32(0, INF, 2), right=[NAN, NAN, 1])
    gives(lambda x: jnp.subtract(x, x), f32(INF, NAN, 1), right=[NAN, NAN, 0])
    gives(jnp.round, f32(0.5, 1.5, 2.5, -0.5, -1.5), right=[0, 2, 2, -0.0, -2])
    quadrants = [0, -0.0, np.pi, -np.pi]
    gives(jnp.arctan2, f32(0, -0.0, 0, -0.0), f32(1, 1, -1, -1), right=quadrants)


def test_nan_in_choices() -> None:
    pick = poot.jit(lambda x: jnp.where(x > 0, x, NAN))
    for _ in range(2):
        assert_same_bits(pick(f32(1, -1)), f32(1, NAN))
    assert pick.cache_size == 1
    x = f32(NAN, INF, 0)
    gives(jnp.isnan, x, right=[True, False, False])
    gives(lambda x: x != x, x, right=[True, False, False])
    gives(jnp.isfinite, x, right=[False, False, True])
    gives(lambda x: jnp.logical_not(x >= 1), x, right=[True, False, True])
    gives(lambda x: jnp.where(x > 0, 0, x * INF), f32(1), right=[0])


def test_moves_keep_subnormals() -> None:
    tiny = np.full((2, 3), 0x000116C2, I32).view(F32)
    for call in (
        lambda x: jnp.tile(x, (2, 1)),
        lambda x: jnp.roll(jnp.flip(x, 0), 1, 1),
        lambda x: jnp.where(jnp.isnan(x), 0.0, x),
        lambda x: jnp.pad(x, 1, "edge"),
        lambda x: jnp.take(x, jnp.array([0, 2]), 1),
        lambda x: jnp.concatenate([x, -x]),
    ):
        for function in (call, poot.jit(call)):
            bits = np.asarray(lax.bitcast_convert_type(function(tiny), I32))
            assert set(np.unique(bits & HIGH)) == {0x000116C2}


def test_axes_without_elements() -> None:
    empty = np.zeros((3, 0), F32)
    gives(jnp.matmul, empty, np.zeros((0, 4), F32), right=np.zeros((3, 4)))
    gives(jnp.sum, empty, right=0)
    gives(jnp.prod, empty, right=1)
    gives(jnp.mean, empty, right=NAN)
    gives(jnp.all, empty, right=True)
    gives(
        lambda x: jnp.concatenate([x, jnp.zeros((3, 2))], 1),
        empty,
        right=np.zeros((3, 2)),
    )
    gives(lambda x: jnp.reshape(x, (0, 7)), empty, right=np.zeros((0, 7)))
    for call in (jnp.argmax, jnp.max, lambda x: lax.reduce_min(x, (1,))):
        with pytest.raises(ShapeError, match="empty"):
            call(empty)


def test_python_numbers_do_not_widen() -> None:
    for x, y, wanted in (
        (F32(2), 0.1, F32),
        (F16(2), 0.1, F16),
        (I8(2), 1, I8),
        (I32(2), 1.5, F32),
        (I32(1), I32(2), I32),
        (U32(1), I32(2), I32),
    ):
        assert jnp.add(x, y).dtype == poot.jit(jnp.add)(x, y).dtype == wanted
    gives(lambda x: jnp.add(x, 100), np.array([200], U8), right=[44])
    assert jnp.divide(I32(1), I32(2)).dtype == F32
    assert jnp.multiply(F16(2), jnp.abs(1.0)).dtype == F16
