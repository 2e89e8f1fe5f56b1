"""poot.lax: JAX's functions, without promotion of dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    PootError,
    ShapeError,
)
from tests.numerics import assert_close, assert_same_bits, rng_of
from tests.numpy_cases import (
    flushes,
    one_backend,  # noqa: F401 (a fixture)
)

F16, F32 = np.float16, np.float32
I8, I32, U8, U32 = np.int8, np.int32, np.uint8, np.uint32

X = rng_of("lax").uniform(-0.9, 0.9, (2, 3)).astype(F32)
P = np.abs(X) + F32(0.1)
N = np.array([[-7, 0, 3], [12, -1, 5]], I32)
D = np.array([[2, 3, -2], [5, 7, 1]], I32)
MASK = X > 0
T = np.arange(24, dtype=F32).reshape(2, 3, 4)

# JAX's own functions are within some ulps of the exact result themselves.
FLOAT_FUNCTIONS = (
    *("exp", "exp2", "expm1", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "atanh", "erf", "erfc", "logistic", "cbrt"),
    "erf_inv",
)
ROOTS = ("log", "sqrt", "rsqrt", "reciprocal", "acosh")
EXACT_UNARY: dict[str, tuple[Any, ...]] = {
    "neg": (X, N),
    "abs": (X, N),
    "sign": (X, N, U8([0, 3])),
    "square": (X, N),
    "floor": (X * 9,),
    "ceil": (X * 9,),
    "is_finite": (F32([1, np.inf, np.nan]),),
    "bitwise_not": (N, MASK),
    "population_count": (N, U8([255, 1])),
    "clz": (N, U8([0, 1, 255])),
}
BINARY: dict[str, tuple[tuple[Any, Any], ...]] = {
    "add": ((X, P), (N, D), (X, 1), (X[:1], P[:, :1])),
    "sub": ((X, P), (N, D)),
    "mul": ((X, P), (N, 3)),
    "div": ((X, P), (N, D)),
    "rem": ((X, P), (N, D)),
    "max": ((X, P), (N, D), (MASK, ~MASK)),
    "min": ((X, P), (N, D)),
    "nextafter": ((X, P),),
    "bitwise_and": ((N, D), (MASK, True)),
    "bitwise_or": ((N, D), (MASK, ~MASK)),
    "bitwise_xor": ((N, D),),
    "shift_left": ((N, np.abs(D)),),
    "shift_right_arithmetic": ((N, np.abs(D)),),
    "shift_right_logical": ((N, np.abs(D)),),
    "eq": ((N, D), (X, X)),
    "ne": ((X, P), (MASK, ~MASK)),
    "lt": ((X, P), (N, D)),
    "le": ((X, P),),
    "gt": ((X, P),),
    "ge": ((X, P), (N, 3)),
}


def both(call: Callable[..., Any], *operands: Any, ulps: float = 0) -> None:
    """`call(module, *operands)` gives on poot, eager and jitted, what JAX gives."""
    theirs = call(jax.lax, *map(_as_jax, operands))
    ours = call(lax, *operands)
    jitted = poot.jit(functools.partial(call, lax))(*operands)
    right = np.asarray(theirs)
    assert_close(ours, right, ulps, "eager")
    assert_close(jitted, right, ulps, "jitted")
    assert ours.weak_type == (theirs.weak_type and right.dtype != np.bool_)


def _as_jax(x: Any) -> Any:
    # JAX's lax takes no bare Python numbers beside arrays of other dtypes, and lets
    # NumPy cast NumPy's arrays, which saturates on some processors only.
    if isinstance(x, np.ndarray):
        return jax.numpy.asarray(x)
    return jax.numpy.asarray(x, X.dtype) if isinstance(x, float) else x


@pytest.mark.usefixtures("one_backend")
class TestElements:
    @pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
    def test_float_functions(self, name: str) -> None:
        both(lambda m, x: getattr(m, name)(x), X, ulps=8)

    @pytest.mark.parametrize("name", ["lgamma", "digamma"])
    def test_gamma_functions(self, name: str) -> None:
        """JAX's err by some ulps of one, which near their zeros are many."""
        both(lambda m, x: getattr(m, name)(x), X, ulps=32)

    @pytest.mark.parametrize("name", ROOTS)
    def test_functions_of_positive_numbers(self, name: str) -> None:
        both(lambda m, x: getattr(m, name)(x), P + (name == "acosh"), ulps=8)

    @pytest.mark.parametrize("name", EXACT_UNARY)
    def test_exact_functions(self, name: str) -> None:
        for x in EXACT_UNARY[name]:
            both(lambda m, x: getattr(m, name)(x), x)

    @pytest.mark.parametrize("name", BINARY)
    def test_functions_of_two(self, name: str) -> None:
        for x, y in BINARY[name]:
            ulps = 1 if name == "div" else 0
            y_jax = np.asarray(y, x.dtype) if isinstance(y, int) else y
            theirs = np.asarray(getattr(jax.lax, name)(x, y_jax))
            function = getattr(lax, name)
            assert_close(function(x, y), theirs, ulps)
            assert_close(poot.jit(function)(x, y), theirs, ulps)

    def test_powers(self) -> None:
        for n in (-2, -1, 0, 1, 2, 3, 4, 7):
            both(lambda m, x, n=n: m.integer_pow(x, n), X, ulps=4)
        both(lambda m, x: m.integer_pow(x, 5), N)
        both(lambda m, x, y: m.pow(x, y), P, X, ulps=4)
        both(lambda m, x, y: m.pow(x, y), X, N, ulps=8)
        both(lambda m, x, y: m.atan2(x, y), X, P, ulps=4)

    def test_rounding(self) -> None:
        halves = F32([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, -0.2, -0.0, np.inf, 2**23])
        for method in ("AWAY_FROM_ZERO", "TO_NEAREST_EVEN"):

            def rounded(m: Any, x: Any, method: str = method) -> Any:
                return m.round(x, getattr(m.RoundingMethod, method))

            both(rounded, halves)
            both(rounded, halves[:9].astype(F16))
        both(lambda m, x: m.round(x), halves)

    def test_logistic_far_out(self) -> None:
        x = F32([-1000, -88, -20, 0, 20, 1000, np.inf, -np.inf, np.nan])
        with np.errstate(all="ignore"):
            right = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(F32)
        assert_close(lax.logistic(x), right, 4, flush=flushes())
        assert_close(lax.logistic(x.astype(F16)), right.astype(F16), 1)

    def test_choices(self) -> None:
        both(lambda m, c, x, y: m.select(c, x, y), MASK, X, P)
        both(lambda m, x, y: m.select(True, x, y), X, P)
        both(lambda m, c, x, y: m.select_n(c, x, y), MASK, X, P)
        which = np.array([[0, 1, 2], [2, 1, 0]], I32)
        both(lambda m, c, x, y, z: m.select_n(c, x, y, z), which, X, P, X * 3)
        assert_same_bits(lax.select_n(which - 1, X, P), np.where(which < 2, X, P))
        both(lambda m, x: m.clamp(-0.25, x, 0.5), X)
        both(lambda m, low, x, high: m.clamp(low, x, high), X - F32(0.1), P, X + 1)
        both(lambda m, x: m.clamp(I32(-2), x, I32(4)), N)
        assert_same_bits(lax.clamp(0, X, 1), np.clip(X, 0, 1))

    def test_conversions(self) -> None:
        wild = F32([300, -1, -300, 1e10, -1e10, np.nan, np.inf, -np.inf, 255.9, 2**31])
        for dtype in (U8, I8, I32, U32, F16):
            both(lambda m, x, d=dtype: m.convert_element_type(x, d), wild)
            both(lambda m, x, d=dtype: m.convert_element_type(x, d), N)
        # JAX takes the subnormal for zero.
        truth = lax.convert_element_type(F32([np.nan, 0, -0.0, 1e-45]), bool)
        assert truth.tolist() == [True, False, False, True]
        both(lambda m, x: m.bitcast_convert_type(x, I32), X)
        both(lambda m, x: m.bitcast_convert_type(x, U8), X)
        both(
            lambda m, x: m.bitcast_convert_type(x, F32),
            np.arange(8, dtype=U8).reshape(2, 4),
        )
        tiny = np.full(2, 0x000116C2, I32).view(F32)
        assert lax.bitcast_convert_type(tiny, I32).tolist() == [0x000116C2] * 2

    def test_python_numbers_are_weak(self) -> None:
        assert lax.add(X.astype(F16), 0.1).dtype == F16
        assert lax.add(N.astype(I8), 1).dtype == I8
        assert lax.mul(2, jnp.float32(3)).item() == 6 and lax.add(1, 1.5).weak_type
        assert lax.lt(X, 0).dtype == np.bool_
        assert lax.exp(1.0).weak_type and not lax.exp(X).weak_type


@pytest.mark.usefixtures("one_backend")
class TestShapes:
    @pytest.mark.parametrize(
        "call",
        [
            lambda m, x: m.broadcast(x, (2, 1)),
            lambda m, x: m.broadcast_in_dim(x, (2, 5, 3, 4), (0, 2, 3)),
            lambda m, x: m.broadcast_in_dim(x[:, :1], (2, 7, 4), (0, 1, 2)),
            lambda m, x: m.reshape(x, (4, 6)),
            lambda m, x: m.reshape(x, (24,), dimensions=(2, 0, 1)),
            lambda m, x: m.collapse(x, 1),
            lambda m, x: m.collapse(x, 0, 2),
            lambda m, x: m.transpose(x, (1, 2, 0)),
            lambda m, x: m.rev(x, (0, 2)),
            lambda m, x: m.rev(x, ()),
            lambda m, x: m.expand_dims(x, (0, 4)),
            lambda m, x: m.squeeze(m.expand_dims(x, (0, 4)), (0, 4)),
            lambda m, x: m.concatenate([x, x * 2, x], 1),
            lambda m, x: m.pad(x, F32(9), ((1, 0, 0), (0, 2, 1), (-1, 1, 2))),
            lambda m, x: m.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)),
            lambda m, x: m.slice(x, (0, 1, 2), (1, 1, 4)),
            lambda m, x: m.slice_in_dim(x, 1, 3, axis=1),
            lambda m, x: m.slice_in_dim(x, -3, None, 2, axis=2),
            lambda m, x: m.slice_in_dim(x, 3, 3, axis=-1),
            lambda m, x: m.split(x, (1, 0, 3), axis=-1)[2],
            lambda m, x: m.split(x, (1, 0, 3), axis=-1)[1],
            lambda m, x: m.index_in_dim(x, 2, 1),
            lambda m, x: m.index_in_dim(x, -1, 2, keepdims=False),
            lambda m, x: m.dynamic_slice(x, (0, 1, 2), (1, 2, 2)),
            lambda m, x: m.dynamic_slice(x, (-1, 9, -2), (1, 2, 3)),
            lambda m, x: m.dynamic_slice_in_dim(x, 1, 2, axis=1),
            lambda m, x: m.dynamic_slice_in_dim(x, U8(250), 2, axis=-1),
            lambda m, x: m.dynamic_index_in_dim(x, I32(1), 1),
            lambda m, x: m.dynamic_index_in_dim(x, 7, -1, keepdims=False),
            lambda m, x: m.full_like(x, 3),
            lambda m, x: m.full_like(x, 2.5, I32, (2,)),
        ],
    )
    def test_values(self, call: Callable[..., Any]) -> None:
        both(call, T)

    @pytest.mark.parametrize(
        "call",
        [
            lambda m: m.iota(I32, 5),
            lambda m: m.iota(F16, 0),
            lambda m: m.broadcasted_iota(U8, (2, 3), 1),
            lambda m: m.full((2, 3), 1.5),
            lambda m: m.full((2,), 7, I8),
            lambda m: m.full((), F16(2)),
            lambda m: m.full((0, 2), True),
        ],
    )
    def test_made(self, call: Callable[..., Any]) -> None:
        both(call)

    def test_other_dtypes(self) -> None:
        for x in (MASK, N.astype(I8), X.astype(F16)):
            both(lambda m, x: m.concatenate([x, x], 0), x)
            both(lambda m, x: m.rev(m.transpose(x, (1, 0)), (0,)), x)
            both(lambda m, x, i: m.dynamic_index_in_dim(x, i, 1), x, I32(-1))

    def test_starts_that_are_data(self) -> None:
        block = poot.jit(lambda x, i, j: lax.dynamic_slice(x, (i, j), (1, 2)))
        for i, j in ((0, 0), (1, 1), (-1, -3), (9, -9), (0, 2)):
            right = jax.lax.dynamic_slice(X, (i, j), (1, 2))
            assert_same_bits(block(X, jnp.int32(i), jnp.int8(j)), np.asarray(right))
        with poot.config.override(check_bounds=True):
            lax.dynamic_slice(X, (1, -2), (1, 2)).block_until_ready()
            with pytest.raises(
                CheckError, match="a block of 2 leaves axis 1 of size 3"
            ):
                lax.dynamic_slice(X, (0, 2), (1, 2)).block_until_ready()


@pytest.mark.usefixtures("one_backend")
class TestReductions:
    @pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
    def test_numbers(self, name: str) -> None:
        for axes in ((0,), (1,), (0, 2), ()):
            both(lambda m, x, a=axes: getattr(m, f"reduce_{name}")(x, a), T, ulps=2)
        both(lambda m, x: getattr(m, f"reduce_{name}")(x, (0, 1)), N.astype(I8))

    @pytest.mark.parametrize("name", ["reduce_and", "reduce_or"])
    def test_bits(self, name: str) -> None:
        for x in (MASK, N, np.abs(N).astype(U8)):
            both(lambda m, x: getattr(m, name)(x, (0,)), x)
            both(lambda m, x: getattr(m, name)(x, (0, 1)), x)

    def test_positions(self) -> None:
        for name in ("argmax", "argmin"):
            both(lambda m, x, n=name: getattr(m, n)(x, 1, I32), X)
            both(lambda m, x, n=name: getattr(m, n)(x, 0, U8), N)

    def test_monoids(self) -> None:
        for name, x, start in (
            ("add", X, F32(2)),
            ("mul", X, F32(2)),
            ("max", X, F32(0.5)),
            ("min", N, I32(-2)),
            ("bitwise_and", N, I32(6)),
            ("bitwise_or", MASK, np.bool_(False)),
        ):

            def reduced(m: Any, x: Any, start: Any = start, name: str = name) -> Any:
                return m.reduce(x, start, getattr(m, name), (1,))

            both(reduced, x, ulps=2)
        empty = lax.reduce(np.zeros((3, 0), F32), 5, lax.max, (1,))
        assert empty.tolist() == [5, 5, 5] and empty.dtype == F32

    def test_products(self) -> None:
        a, b = np.rint(X * 9), np.rint(T[0] / 3)
        both(lambda m, a, b: m.dot(a, b), a, b)
        both(lambda m, a, b: m.dot(a, b), a[0], b)
        both(lambda m, a, b: m.dot(a, b), N[0], N[1])
        batch = np.stack([b, b + 1])
        both(lambda m, a, b: m.batch_matmul(a, b), np.stack([a, -a]), batch)
        wide = lax.dot(np.full((1, 4096), 16, F16), np.full((4096, 1), 16, F16), F32)
        assert wide.item() == 1048576 and wide.dtype == F32


# --- refusals -----------------------------------------------------------------

REFUSED: tuple[tuple[Callable[[], Any], type[PootError], str], ...] = (
    (lambda: lax.add(X, N), DTypeError, r"dtypes f32, i32.*\.astype.*poot\.numpy"),
    (lambda: lax.add(N, 1.5), DTypeError, r"i32, f32 \(weak\)"),
    (lambda: lax.eq(X, X.astype(F16)), DTypeError, "f32, f16"),
    (lambda: lax.exp(N), DTypeError, "exp: given i32, takes float"),
    (lambda: lax.neg(MASK), DTypeError, "neg: given bool"),
    (lambda: lax.add(X, X[0]), ShapeError, "equal numbers of axes"),
    (lambda: lax.add(X, P[:, :2]), ShapeError, "do not broadcast"),
    (lambda: lax.integer_pow(N, -1), DTypeError, "is no integer"),
    (lambda: lax.integer_pow(MASK, 2), DTypeError, "bools have no powers"),
    (lambda: lax.select(MASK, X, N), DTypeError, "takes equal ones"),
    (lambda: lax.select(MASK, X, P[:1]), ShapeError, "broadcasts"),
    (lambda: lax.select(X, X, P), DTypeError, "chooses by bool or i32, given f32"),
    (lambda: lax.select_n(MASK, X, P, X), DTypeError, "two cases, given 3"),
    (lambda: lax.select_n(MASK[0], X, P), ShapeError, "scalar or equal shapes"),
    (lambda: lax.select_n(MASK), ShapeError, "at least one case"),
    (lambda: lax.clamp(X[0], X, 1), ShapeError, "min has shape"),
    (lambda: lax.convert_element_type(X, None), DTypeError, "needs a dtype"),
    (lambda: lax.bitcast_convert_type(MASK, I8), DTypeError, "no bit pattern"),
    (lambda: lax.broadcast_in_dim(X, (3, 2), (1, 0)), ShapeError, "rising order"),
    (lambda: lax.collapse(X, 1, 1), ShapeError, "are none"),
    (lambda: lax.concatenate([X, N], 0), DTypeError, "f32, i32"),
    (lambda: lax.concatenate([], 0), ShapeError, "at least one array"),
    (lambda: lax.pad(X, N[0, 0], ((0, 0, 0),) * 2), DTypeError, "f32, i32"),
    (lambda: lax.pad(X, 0, ((0, 0, 0),)), ShapeError, "1 axes configured"),
    (lambda: lax.slice(X, (0, 0), (2, 4)), ShapeError, "does not fit axis 1"),
    (lambda: lax.slice(X, (0,), (2,)), ShapeError, "one of each an axis"),
    (lambda: lax.slice_in_dim(X, 0, 2, -1), ShapeError, "not positive"),
    (lambda: lax.split(X, (1, 2)), ShapeError, "do not make up axis 0"),
    (lambda: lax.slice_in_dim(X, 2, 1, axis=1), ShapeError, "does not fit axis 1"),
    (lambda: lax.index_in_dim(X, 3, 1), ShapeError, "index 3 is not in axis 1"),
    (lambda: lax.dynamic_slice(X, (0,), (1, 1)), ShapeError, "one of each an axis"),
    (lambda: lax.dynamic_slice(X, (0, 0), (1, 4)), ShapeError, "size 4 is not in"),
    (lambda: lax.dynamic_slice(X, (0.5, 0), (1, 1)), DTypeError, "integer scalars"),
    (lambda: lax.iota(bool, 3), DTypeError, "no bool counts"),
    (lambda: lax.full((2,), X), ShapeError, "fills with a scalar"),
    (lambda: lax.reduce_sum(MASK, (0,)), DTypeError, "sum: given bool"),
    (lambda: lax.reduce_and(X, (0,)), DTypeError, "takes bool and integers"),
    (lambda: lax.reduce_max(X, (2,)), ShapeError, "axis 2 is out of range"),
    (lambda: lax.argmax(X, 0, F32), DTypeError, "no dtype of an index"),
    (lambda: lax.reduce(X, 0, max, (0,)), ArgumentError, r"takes lax\.add"),
    (lambda: lax.reduce(X, X, lax.add, (0,)), ShapeError, "starts from a scalar"),
    (lambda: lax.dot(T, T), ShapeError, "one or two axes"),
    (lambda: lax.dot(X, N), DTypeError, "f32, i32"),
    (lambda: lax.batch_matmul(T, T[0]), ShapeError, "equal axes before"),
)


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    for call, error, words in REFUSED:
        with pytest.raises(error, match=words):
            call()


def test_names_are_those_of_jax() -> None:
    assert [name for name in lax.__all__ if not hasattr(jax.lax, name)] == []
    assert lax.broadcast_shapes((2, 1), (3,)) == (2, 3)
    for name in ("add", "exp", "reduce_sum", "eq", "argmax"):
        function = getattr(lax, name)
        assert function.__name__ == name and function.__doc__
