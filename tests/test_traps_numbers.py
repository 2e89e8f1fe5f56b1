"""Traps of floats; data/traps.txt has the list."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.lowering.spirv.opcodes import Decoration, Op
from tests import trap_executors
from tests.numerics import Array, assert_close, assert_same_bits, rng_of, ulps
from tests.spirv_words import operands
from tests.trap_executors import (
    INF,
    NAN,
    array,
    check,
    each_float,
    f32,
    i32,
    need,
)

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")


# --- extrema ----------------------------------------------------------------


@each_float
def test_min_max_nan_and_signed_zero(dtype: DType) -> None:
    need(dtype)
    a, b = array([NAN, 1, -0.0, 0.0], dtype), array([1, NAN, 0.0, -0.0], dtype)
    high, low = array([NAN, NAN, 0.0, 0.0], dtype), array([NAN, NAN, -0.0, -0.0], dtype)
    check(lambda a, b: (jnp.maximum(a, b), lax.max(b, a)), a, b, right=(high, high))
    check(lambda a, b: (jnp.minimum(a, b), lax.min(b, a)), a, b, right=(low, low))
    rows = array([[1, NAN], [NAN, -INF], [-0.0, 0.0], [0.0, -0.0]], dtype)
    high, low = array([NAN, NAN, 0.0, 0.0], dtype), array([NAN, NAN, -0.0, -0.0], dtype)
    check(
        lambda x: (jnp.max(x, 1), jnp.min(x, 1), jnp.max(x.T, 0)),
        rows,
        right=(high, low, high),
    )


@each_float
def test_nan_and_signed_zero_in_kin_of_extrema(dtype: DType) -> None:
    need(dtype)
    x = array([NAN, -0.0, 0.0, -1, 2], dtype)
    clipped = array([NAN, 0.0, 0.0, 0.0, 1], dtype)
    check(lambda x: (jnp.clip(x, 0.0, 1.0), x), x, right=(clipped, x))
    a, b = array([NAN, 1, NAN], dtype), array([1, NAN, NAN], dtype)
    one = array([1, 1, NAN], dtype)
    check(lambda a, b: (jnp.fmax(a, b), jnp.fmin(a, b)), a, b, right=(one, one))
    rows = array([[1, NAN, 2, NAN], [-0.0, 0.0, -0.0, 0.0]], dtype)
    places = np.array([1, 0], np.int64 if dtype is dtypes.float64 else np.int32)
    check(
        lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.nanmax(x, 1)),
        rows,
        right=(places, places, array([2, 0.0], dtype)),
    )


# --- functions at large arguments -------------------------------------------


def gelu(x: Any) -> Any:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1 + jnp.tanh(inner))


@each_float
def test_tanh_gelu_sigmoid_at_large_arguments(dtype: DType) -> None:
    need(dtype)
    x = array([1000, -1000, 100, 44.5, -89, INF, -INF, NAN], dtype)
    wanted = array([1, -1, 1, 1, -1, 1, -1, NAN], dtype)
    check(jnp.tanh, x, right=wanted)
    # Inside a kernel that a contraction feeds; products with 1 change nothing here.
    one = array([[1]], dtype)
    check(lambda x, one: jnp.tanh(x @ one), x[:, None], one, right=wanted[:, None])
    most = float(jnp.finfo(dtype.numpy).max)
    x = array([-13.24, -100, -most, 20.625, most], dtype)
    check(gelu, x, right=array([-0.0, -0.0, -0.0, x[3], x[4]], dtype))
    x = array([1000, -1000, INF, -INF, NAN], dtype)
    wanted = array([1, 0, 1, 0, NAN], dtype)
    check(lambda x: (lax.logistic(x), 1 / (1 + jnp.exp(-x))), x, right=(wanted, wanted))
    softplus = array([1000, 0, INF, 0, NAN], dtype)
    check(lambda x: jnp.logaddexp(x, 0.0), x, right=softplus)


# --- powers -----------------------------------------------------------------


@each_float
def test_pow_with_negative_base(dtype: DType) -> None:
    need(dtype)
    base = array([-1, -2, -2, 0, 0, -8, 2, 1, NAN, -0.0], dtype)
    exponent = array([2, 3, -2, 0, -1, 1 / 3, 0.5, NAN, 0, -1], dtype)
    right = array([1, -8, 0.25, 1, INF, NAN, 2**0.5, 1, 1, -INF], dtype)
    check(jnp.power, base, exponent, right=right, ulps=1)
    x = array([-1, -2, 0.0, -0.0, -INF], dtype)
    check(
        lambda x: (x**2, x**3, x**-2, x**0, lax.integer_pow(x, -1), x**2.0, x**0.0),
        x,
        right=(
            array([1, 4, 0, 0, INF], dtype),
            array([-1, -8, 0.0, -0.0, -INF], dtype),
            array([1, 0.25, INF, INF, 0], dtype),
            array([1] * 5, dtype),
            array([-1, -0.5, INF, -INF, -0.0], dtype),
            array([1, 4, 0, 0, INF], dtype),
            array([1] * 5, dtype),
        ),
    )


@each_float
def test_x_0_and_x_n_at_0(dtype: DType) -> None:
    need(dtype)
    zero = array([0.0, -0.0], dtype)
    right = tuple(array(v, dtype) for v in ([1, 1], zero, [0.0, 0.0], zero))
    check(lambda x: tuple(x**k for k in range(4)), zero, right=right)
    if dtype is not dtypes.float64:
        for k, wanted in enumerate(right):
            power = np.array(k, np.int32)
            check(lambda x, k: x**k, zero, power, right=wanted, fused=False)
    exponents = i32(0, 1, 64)
    check(lambda k: jnp.power(np.int32(0), k), exponents, right=i32(1, 0, 0))


@each_float
def test_where_sqrt_at_0(dtype: DType) -> None:
    """The branch that is not taken computes NaN or infinity, and leaves no trace."""
    need(dtype)
    x = array([0.0, -0.0, -4, 4, 1, NAN], dtype)
    right = array([0.0, -0.0, -4, 2, 1, NAN], dtype)
    check(
        lambda x: (
            jnp.where(x < 1, x, jnp.sqrt(x)),
            jnp.where(x < 1, x, jnp.sqrt(jnp.where(x < 1, 1, x))),
            jnp.where(x > 0, 0, x * INF),
        ),
        x,
        right=(right, right, array([NAN, NAN, -INF, 0, 0, NAN], dtype)),
    )


# --- zeros, subnormals, NaNs ------------------------------------------------


@each_float
def test_signed_zero_and_illegal_folding(dtype: DType) -> None:
    """A jitted `x + 0.` in JAX is -0 at -0, as it folds the literal away."""
    need(dtype)
    x = array([-0.0, 0.0], dtype)
    plus, flipped = np.zeros_like(x), -x
    laws = [
        (lambda x: x + 0.0, plus),
        (lambda x: 0.0 + x, plus),
        (lambda x: x + (-0.0), x),
        (lambda x: x - 0.0, x),
        (lambda x: x - (-0.0), plus),
        (lambda x: 0 - x, plus),
        (lambda x: -0.0 - x, flipped),
        (lambda x: -x, flipped),
        (lambda x: jnp.negative(-x), x),
        (lambda x: x * 1, x),
        (lambda x: x * -1, flipped),
        (lambda x: x / 1, x),
        (lambda x: x * 0, plus * x),
        (lambda x: x + x, x),
        (lambda x: x - x, plus),
        (lambda x: abs(x), plus),
        (jnp.sqrt, x),
        (jnp.round, x),
        (lambda x: jnp.where(x == 0, x, 1.0), x),
    ]
    right = tuple(wanted for _, wanted in laws)
    check(lambda x: tuple(law(x) for law, _ in laws), x, right=right)
    for law, wanted in laws[:2]:
        # Alone, with nothing beside it that could keep it from being folded.
        check(law, x, right=wanted, fused=False)
    zeros = array([[0.0, 0.0], [-0.0, -0.0]], dtype)
    wanted = array([[0.0, 0.0], [-0.0, 0.0]], dtype)
    check(jnp.add, x, zeros, right=wanted)


@each_float
def test_illegal_folding_of_nans_and_infinities(dtype: DType) -> None:
    need(dtype)
    x = array([INF, NAN, -1, 1, 0.0], dtype)
    laws = [
        (lambda x: 0 * x, [NAN, NAN, -0.0, 0.0, 0.0]),
        (lambda x: x - x, [NAN, NAN, 0.0, 0.0, 0.0]),
        (lambda x: x / x, [NAN, NAN, 1, 1, NAN]),
        (lambda x: 0 / x, [0.0, NAN, -0.0, 0.0, NAN]),
        (lambda x: x * 0 + 1, [NAN, NAN, 1, 1, 1]),
        (lambda x: x**0, [1, 1, 1, 1, 1]),
        (lambda x: jnp.where(x > 2, 0, x * INF), [0, NAN, -INF, INF, NAN]),
        (lambda x: (x + 1) - 1, [INF, NAN, -1, 1, 0.0]),
    ]
    right = tuple(array(wanted, dtype) for _, wanted in laws)
    check(lambda x: tuple(law(x) for law, _ in laws), x, right=right)


@each_float
def test_signed_zeros_in_sums_and_products(dtype: DType) -> None:
    """A sum begins at +0, whatever its length; so does a contraction."""
    need(dtype)
    for length in (1, 2, 9):
        x = array(np.full((3, length), -0.0), dtype)
        plus, minus = np.zeros(3, dtype.numpy), x[:, 0]
        sign = minus if length % 2 else plus
        check(
            lambda x: (jnp.sum(x, 1), jnp.sum(x.T, 0), jnp.prod(x, 1), jnp.max(x, 1)),
            x,
            right=(plus, plus, sign, minus),
        )
        ones = np.ones((length, 1), dtype.numpy)
        check(jnp.matmul, x, ones, right=plus[:, None])


SMALLEST = {"f16": 1, "bf16": 1, "f32": 0x000116C2, "f64": 1}


@each_float
def test_subnormals(dtype: DType) -> None:
    """Moves keep their bits on every device."""
    need(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    tiny = np.full((2, 3), SMALLEST[dtype.name], bits).view(dtype.numpy)
    tiny[1] = -tiny[1]
    moves: list[tuple[Any, Array]] = [
        (lambda x: jnp.reshape(x, (3, 2)), tiny.reshape(3, 2)),
        (lambda x: x.T, tiny.T),
        (lambda x: jnp.tile(x, (2, 1)), np.tile(tiny, (2, 1))),
        (lambda x: jnp.roll(jnp.flip(x, 0), 1, 1), tiny[::-1]),
        (lambda x: jnp.where(jnp.isnan(x), 0.0, x), tiny),
        (lambda x: jnp.pad(x, 1, "edge"), np.pad(tiny, 1, "edge")),
        (lambda x: jnp.take(x, jnp.array([0, 2]), 1), tiny[:, :2]),
        (lambda x: jnp.concatenate([x, -x]), np.concatenate([tiny, -tiny])),
        (lambda x: lax.dynamic_slice(x, (1, 1), (1, 2)), tiny[1:, 1:]),
        (lambda x: abs(x), abs(tiny)),
    ]

    def moved(x: Any) -> Any:
        return tuple(move(x) for move, _ in moves)

    right = tuple(np.ascontiguousarray(wanted) for _, wanted in moves)
    check(moved, tiny, right=right, fused=False)

    def around(x: Any) -> Any:
        there = lax.bitcast_convert_type(x, bits)
        return there, lax.bitcast_convert_type(there, dtype.numpy)

    check(around, tiny, right=(tiny.view(bits), tiny), fused=False)


def test_arithmetic_on_subnormals_is_as_the_device_says() -> None:
    """Kept or flushed, but in one way by every kernel."""
    info = poot.devices()[0].info
    kept = info.keeps_subnormals32
    assert f"f32 subnormals {'kept' if kept else 'flushed'}" in repr(poot.devices()[0])
    tiny, below = f32(1e-40, -1e-40), f32(-87.4, -100)

    def arithmetic(x: Any, y: Any) -> Any:
        return x * 2, x + x, jnp.exp(y), x > 0

    ways = trap_executors.everywhere(arithmetic, tiny, below, fused=False)
    del ways["oracle"]  # which keeps them unless told otherwise
    for way, found in ways.items():
        for one, other in zip(found, ways["eager"], strict=True):
            assert_same_bits(one, other, way)
    graph = poot.make_graph(arithmetic)(tiny, below)
    oracle = poot.evaluate(graph, tiny, below, flush=not kept)
    for one, wanted in zip(ways["eager"], oracle, strict=True):
        assert_close(one, wanted, 1)
    double, total, power, positive = ways["eager"]
    right = [2 * tiny, 2 * tiny, np.exp(below.astype(np.float64)).astype(np.float32)]
    for one, wanted in zip((double, total, power), right, strict=True):
        assert_close(one, wanted if kept else wanted * np.float32(0), 1)
    assert not kept or positive.tolist() == [True, False]


def test_subnormals_of_f16_are_kept_by_arithmetic() -> None:
    """It runs in f32, where they are normal."""
    x = array([6e-8, -6e-8, 2.0**-14], dtypes.float16)
    double = array([2.0**-23, -(2.0**-23), 2.0**-13], dtypes.float16)
    half = array([0.0, -0.0, 2.0**-15], dtypes.float16)
    check(lambda x: (x * 2, x + x, x / 2), x, right=(double, double, half))


def test_nan_inf_literals_and_isnan_in_fused_code() -> None:
    traces = []

    @poot.jit
    def pick(x: Any) -> Any:
        traces.append(x)
        return jnp.where(x > 0, x, NAN)

    for _ in range(2):
        assert_same_bits(pick(f32(1, -1)), f32(1, NAN))
    assert len(traces) == pick.cache_size == 1

    def given(number: float) -> Any:
        return lambda x: jnp.where(x > 0, x, number)

    for number in (NAN, -INF):
        check(given(number), f32(1, -1), right=f32(1, number))
    adds = poot.jit(lambda x, number: x + number)
    for number in (NAN, INF, 0.0, -0.0):
        # Given at the call, it is no literal.
        assert_same_bits(adds(f32(-0.0), number), f32(-0.0) + np.float32(number))
    assert adds.cache_size == 1
    nan, again, plus, minus = (
        poot.make_graph(given(number))(f32(1))
        for number in (NAN, float("nan"), 0.0, -0.0)
    )
    assert nan == again and hash(nan) == hash(again)
    assert plus != minus
    assert Scalar.of(NAN, dtypes.float32) == Scalar.of(NAN, dtypes.float32)


@each_float
def test_isnan_and_its_kin(dtype: DType) -> None:
    need(dtype)
    x = array([NAN, INF, 0, -NAN, -INF], dtype)
    laws = [
        (jnp.isnan, [True, False, False, True, False]),
        (lambda x: x != x, [True, False, False, True, False]),
        (lambda x: x == x, [False, True, True, False, True]),
        (jnp.isinf, [False, True, False, False, True]),
        (jnp.isfinite, [False, False, True, False, False]),
        (lambda x: jnp.logical_not(x >= 1), [True, False, True, True, True]),
        (lambda x: x < 1, [False, False, True, False, True]),
        (lambda x: jnp.isnan(x - x), [True, True, False, True, True]),
        (lambda x: (x > NAN) | (x <= NAN), [False] * 5),
    ]
    right = tuple(np.array(wanted) for _, wanted in laws)
    check(lambda x: tuple(law(x) for law, _ in laws), x, right=right)


# --- accuracy ---------------------------------------------------------------


def test_accuracy_edges_sin_exp_round_atan2() -> None:
    x = f32(39800, 1e5, 1e7, 3.4e38)
    sines = f32(0.7428572, 0.0357488, 0.4205478, -0.2440849)
    assert ulps(np.sin(x.astype(np.float64)).astype(np.float32), sines).max() < 16
    wide = x.astype(np.float64)
    check(
        lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x)),
        x,
        right=tuple(f(wide).astype(np.float32) for f in (np.sin, np.cos, np.tan)),
        ulps=2,
    )
    x = f32(88.7, 88.73, 89, -104)
    edge = np.exp(np.float64(x[0]))
    check(jnp.exp, x, right=f32(edge, INF, INF, 0), ulps=2)
    check(jnp.exp, array([11], dtypes.float16), right=array([59872], dtypes.float16))


@each_float
def test_ties_and_quadrants(dtype: DType) -> None:
    need(dtype)
    x = array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0], dtype)
    even = array([0, 2, 2, -0.0, -2, -0.0], dtype)
    check(lambda x: (jnp.round(x), jnp.rint(x)), x, right=(even, even))
    y, x = array([0.0, -0.0, 0.0, -0.0], dtype), array([1, 1, -1, -1], dtype)
    check(jnp.arctan2, y, x, right=array([0.0, -0.0, np.pi, -np.pi], dtype), ulps=1)


def test_accuracy_edges_of_f64() -> None:
    need(dtypes.float64)
    x = np.array([1e22, 39800, 1e300])
    check(lambda x: (jnp.sin(x), jnp.cos(x)), x, right=(np.sin(x), np.cos(x)), ulps=2)
    x = np.array([709.78, 709.79, -745.2, -750, 1])
    check(jnp.exp, x, right=np.array([np.exp(709.78), INF, 0, 0, np.e]), ulps=2)


@each_float
def test_fma_contraction(dtype: DType) -> None:
    """Each equation rounds: in JAX 23532 of these 100 000 change under jit."""
    need(dtype)
    half = {"f16": 6, "bf16": 4, "f32": 13, "f64": 27}[dtype.name]
    x = array([1 + 2.0**-half], dtype)
    rounded = array([2.0 ** (1 - half)], dtype)
    check(lambda x: x * x - 1, x, right=rounded, ulps=0)
    rng = rng_of(f"fma{dtype}")
    a, b, c = (rng.standard_normal(100_000).astype(dtype.numpy) for _ in range(3))

    def chain(a: Any, b: Any, c: Any) -> Any:
        return a * b + c, c - a * b, a * a - b * b, (a * 1.5 + b) * c - 0.1 * a

    found = trap_executors.everywhere(chain, a, b, c)
    for way, results in found.items():
        for number, (one, other) in enumerate(
            zip(results, found["eager"], strict=True)
        ):
            assert_same_bits(one, other, f"{way}, result {number}")


def test_every_sum_and_product_is_marked_against_contraction() -> None:
    """lavapipe contracts nothing, so that values alone would not show it there."""
    x = poot.ShapeDtypeStruct((64,), np.float32)
    compiled = poot.jit(lambda a, b, c: (a * b + c, c - a * b)).lower(x, x, x).compile()
    for kernel in compiled.program.kernels.values():
        marked = {
            target
            for target, *rest in operands(kernel, Op.Decorate)
            if rest == [Decoration.NoContraction]
        }
        made = [operands(kernel, op) for op in (Op.FAdd, Op.FSub, Op.FMul)]
        results = {words[1] for words in itertools.chain(*made)}
        assert len(results) >= 3 and results <= marked


def test_the_driver_s_exp_log_tanh_atan_pow() -> None:
    """Sweeps of all functions and dtypes are in test_math_accuracy and _device."""
    rng = rng_of("driver")
    count = 1 << 14
    near_one = 1 + rng.uniform(-1e-3, 1e-3, count)
    near_zero = rng.uniform(-1, 1, count) * 10.0 ** rng.uniform(-6, 0, count)
    wide = rng.uniform(-87, 88, count)
    base, exponent = rng.uniform(0.05, 20, count), rng.uniform(-20, 20, count)
    given = tuple(
        v.astype(np.float32) for v in (wide, near_one, near_zero, base, exponent)
    )

    def functions(m: Any, wide: Any, one: Any, zero: Any, base: Any, power: Any) -> Any:
        return (
            m.exp(wide),
            m.log(one),
            m.tanh(zero),
            m.arctan(wide),
            m.arctan(zero),
            m.power(base, power),
        )

    exact = functions(np, *(v.astype(np.float64) for v in given))
    right = tuple(v.astype(np.float32) for v in exact)
    check(lambda *xs: functions(jnp, *xs), *given, right=right, ulps=4)
