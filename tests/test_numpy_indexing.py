"""poot.numpy: where elements are, elements put in, taken out, chosen and counted."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    IndexingError,
    ShapeError,
)
from tests.numerics import rng_of
from tests.numpy_cases import (
    Case,
    case,
    check,
    one_backend,  # noqa: F401 (a fixture)
)

pytestmark = pytest.mark.usefixtures("one_backend")

F32, I32, U8 = np.float32, np.int32, np.uint8
T = rng_of("places").integers(-2, 3, (3, 4)).astype(F32)
N = rng_of("numbers").integers(0, 5, (17,)).astype(I32)
W = rng_of("weights").integers(0, 9, (17,)).astype(F32)
K = np.array([[0, 2], [1, 3], [2, 2]], I32)


def sized_cases() -> list[Case]:
    """Those whose shapes do not hang on elements; NumPy's are cut or filled up."""
    places = np.argwhere(T)
    flat = np.flatnonzero(T)
    filled = np.concatenate([flat, np.full(20, -1)])[:20]
    return [
        case("m.nonzero(a, size=5)[1]", a=T, values=places[:5, 1]),
        case("m.flatnonzero(a, size=20, fill_value=-1)", a=T, values=filled),
        case("m.argwhere(a, size=4)", a=T, values=places[:4]),
        case("m.argwhere(a, size=2)", a=F32(1), values=np.zeros((2, 0))),
        case("m.nonzero(a, size=3, fill_value=7)[0]", a=T[:0], values=[7, 7, 7]),
        case(
            "m.nonzero(a, size=14, fill_value=(8, 9))[1]",
            a=T,
            values=np.concatenate([places[:, 1], np.full(14, 9)])[:14],
        ),
        case(
            "m.compress(a, b, 1, size=3, fill_value=-5)",
            a=np.array([True, False, True]),
            b=T,
            values=np.concatenate([T[:, [0, 2]], np.full((3, 1), -5)], 1),
        ),
        case("m.extract(a, b, size=2)", a=T > 0, b=T, values=T[T > 0][:2]),
        case("m.bincount(a, length=4)", a=N, values=np.bincount(N, minlength=5)[:4]),
        case("m.bincount(a, b, length=7)", a=N, b=W, numpy="m.bincount(a, b, 7)"),
    ]


def update_cases() -> list[Case]:
    fresh = "(lambda x: (m.{}, x)[1])(a.copy())"

    def changed(call: str, text: str, **operands: Any) -> Case:
        return case(text, numpy=fresh.format(call), **operands)

    return [
        changed(
            "put_along_axis(x, b, 9, 1)",
            "m.put_along_axis(a, b, 9, 1, inplace=False)",
            a=T,
            b=K,
        ),
        changed(
            "put_along_axis(x, b, c, 0)",
            "m.put_along_axis(a, b, c, 0, inplace=False)",
            a=T,
            b=K[:1, [0, 1, 0, 1]],
            c=T[:1] * 5,
        ),
        changed(
            "put(x, b, c)", "m.put(a, b, c, inplace=False)", a=T, b=K, c=F32([7, 8])
        ),
        changed(
            "put(x, b, 3, mode='wrap')",
            "m.put(a, b, 3, mode='wrap', inplace=False)",
            a=T,
            b=K * 9 - 20,
        ),
        changed(
            "place(x, x > 0, c)",
            "m.place(a, m.asarray(a) > 0, c, inplace=False)",
            a=T,
            c=F32([7, 8]),
        ),
        changed("fill_diagonal(x, 6)", "m.fill_diagonal(a, 6, inplace=False)", a=T),
        changed(
            "fill_diagonal(x, c)",
            "m.fill_diagonal(a, c, inplace=False)",
            a=T,
            c=F32([5, 6]),
        ),
    ]


def other_cases() -> list[Case]:
    return [
        case("m.delete(a, 1, 0)", a=T),
        case("m.delete(a, -1, 1)", a=T),
        case("m.delete(a, np.array([0, 2, -1]))", a=N),
        case("m.delete(a, slice(None, None, 2), 1)", a=T),
        case("m.delete(a, np.array([True, False, True]), 0)", a=T),
        case("m.delete(a, np.zeros(0, int), 0)", a=T),
        case("m.insert(a, 1, 9)", a=N),
        case("m.insert(a, np.array([1, 1, 4]), np.array([7, 8, 9]))", a=N),
        case("m.insert(a, np.array([3, 0]), np.array([7, 8]))", a=N),
        case("m.insert(a, -1, np.arange(3), 1)", a=T),
        case("m.insert(a, np.array([2]), np.array([[1], [2], [3]]), 1)", a=T),
        case("m.insert(a, 2, np.array([[1, 2, 3]]), 1)", a=T),
        case("m.insert(a, slice(0, 2), 5, 0)", a=T),
        case("m.choose(a % 3, [b, -b, 7], mode='clip')", a=K, b=K),
        case("m.choose(a, [b, -b, 7], mode='wrap')", a=K - 3, b=K),
        case("m.choose(a, [b, -b, 7], mode='clip')", a=K - 1, b=K[0]),
        case("m.piecewise(a, [a < 0, a > 1], [lambda v: -v, 5.0])", a=T),
        case("m.piecewise(a, [a < 0, a > 1], [1.0, 2.0, lambda v: v * 3])", a=T),
        case(
            "m.histogram(a, m.asarray([0, 1, 3, 4]))[0]",
            a=N,
            numpy="m.histogram(a, np.array([0, 1, 3, 4]))[0]",
            dtype=F32,
        ),
        case("m.histogram(a, 4, (0, 4))[0]", a=W, dtype=F32),
        case("m.histogram(a, 4, (0, 4), weights=b)[0]", a=N, b=W),
        case("m.histogram_bin_edges(a, 4)", 2, a=W),
        case("m.histogram(a, 4, density=True)[0]", 4, a=W, sums=True),
    ]


@pytest.mark.parametrize(
    "case", [*sized_cases(), *update_cases(), *other_cases()], ids=str
)
def test_functions(case: Case) -> None:
    check(case)


def test_shapes_that_hang_on_elements() -> None:
    """Eagerly as in NumPy, in JAX's dtypes; traced they are refused."""
    mask = np.array([True, False, True, True])
    for text in (
        "m.nonzero(a)",
        "m.flatnonzero(a)",
        "m.argwhere(a)",
        "m.compress(b, a, 1)",
        "m.compress(b, a)",
        "m.extract(a > 0, a)",
        "m.bincount(c)",
        "m.bincount(c, minlength=9)",
        "m.mask_indices(3, m.triu, 1)",
        "m.choose(c % 2, [c, c + 1])",
    ):
        scope = {"a": T, "b": mask, "c": N}
        wanted = eval(text, {"m": np, **scope})
        types = eval(text, {"m": jax.numpy, **scope})
        found = eval(text, {"m": jnp, **scope})
        for one, right, type in zip(
            *((x if isinstance(x, tuple) else (x,)) for x in (found, wanted, types)),
            strict=True,
        ):
            assert one.dtype == type.dtype, text
            np.testing.assert_array_equal(one, right, text)
    for call in (
        jnp.nonzero,
        jnp.bincount,
        lambda x: jnp.choose(x, [x, x]),
        lambda x: jnp.compress(x > 0, x),
    ):
        with pytest.raises(ConcretizationError):
            poot.jit(call)(N)


def test_a_traced_position_is_taken_out() -> None:
    for position in (0, 3, -1, 16, 99):
        clipped = min(position, N.size - 1)
        found = poot.jit(lambda x, i: jnp.delete(x, i))(N, np.int32(position))
        np.testing.assert_array_equal(found, np.delete(N, clipped))
    found = poot.jit(lambda x, i: jnp.delete(x, i, 1, assume_unique_indices=True))(
        T, np.array([2, 0])
    )
    np.testing.assert_array_equal(found, np.delete(T, [2, 0], 1))


def test_errors_say_what_is_taken() -> None:
    for call in (
        lambda: jnp.put(T, 0, 1),
        lambda: jnp.place(T, T > 0, 1),
        lambda: jnp.fill_diagonal(T, 1),
        lambda: jnp.put_along_axis(T, K, 1, 1),
    ):
        with pytest.raises(ArgumentError, match="inplace=False"):
            call()
    with pytest.raises(IndexingError, match="not in axis 0"):
        jnp.delete(N, 40)
    with pytest.raises(IndexingError, match="not in axis 0"):
        jnp.insert(N, 40, 1)
    with pytest.raises(IndexingError, match=r"not in 0\.\.1"):
        jnp.choose(N, [N, N])
    with pytest.raises(ShapeError, match="takes 2 axes"):
        jnp.fill_diagonal(N, 1, inplace=False)
    with pytest.raises(ShapeError, match="takes one axis"):
        jnp.compress(T > 0, T)
    with pytest.raises(ArgumentError, match="3 functions for 1"):
        jnp.piecewise(T, [T > 0], [1, 2, 3])
