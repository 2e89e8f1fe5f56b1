"""poot.numpy and poot.lax: sorts, quantiles, places among bins, arrays as sets."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    DTypeError,
    ShapeError,
)
from tests.numerics import rng_of
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
)

F16, BF16, F32 = np.float16, ml_dtypes.bfloat16, np.float32
I8, I32, U8 = np.int8, np.int32, np.uint8
T = rng_of("sorting").uniform(-3, 3, (2, 5, 4)).astype(F32)
# Means of positive numbers lose no digits.
P = np.abs(T) + 1
N = rng_of("sorting").integers(-3, 4, (3, 17)).astype(I32)
M = rng_of("others").integers(-4, 3, (23,)).astype(I32)
HOLES = np.where(np.abs(T) > 2.2, np.nan, T).astype(F32)
HOLES[1, 2] = 1, np.nan, np.nan, np.nan
EDGES = np.array([-2.0, -0.5, 0.0, 0.0, 1.5], F32)
WITH_NAN = np.array([-1.0, 2.0, np.nan], F32)


def sort_cases() -> list[Case]:
    stable = {"numpy": "m.argsort(a, {}, stable=True)"}
    cases = []
    for x in (T, N, N.astype(U8), T.astype(F16), T.astype(BF16), HOLES, N > 0):
        for axis in ("-1", "0", "None"):
            cases.append(case(f"m.sort(a, axis={axis})", a=x))
            numpy = stable["numpy"].format(axis)
            cases.append(case(f"m.argsort(a, axis={axis})", a=x, numpy=numpy))
    cases += [
        case(
            "m.sort(a, descending=True)", a=N, numpy="m.sort(a)[..., ::-1]", native=True
        ),
        case(
            "m.argsort(a, descending=True)",
            a=N,
            numpy="m.argsort(-a, stable=True)",
        ),
        case("m.argsort(a, dtype='uint8')", a=T, numpy="m.argsort(a)"),
        case("m.asarray(a).sort(1)", a=T, numpy="m.sort(a, 1)"),
        case("m.asarray(a).argsort()", a=T, numpy="m.argsort(a)"),
        case("m.lexsort((a, b))", a=N, b=N[:, ::-1].copy()),
        case("m.lexsort(a)", a=N),
        case("m.lexsort((a, b, c), 0)", a=N, b=N[:, ::-1].copy(), c=N % 2),
        case("m.lexsort((a, b))", a=T > 0, b=HOLES),
        case("m.lexsort((a, b))", a=F32(1), b=F32(2)),
    ]
    return cases


def parted(kth: int) -> str:
    """NumPy's expression for what JAX's partition gives of unsorted rows."""
    rows = f"m.sort(a, 1)[:, :{kth + 1}], m.sort(a, 1)[:, {kth + 1}:][:, ::-1]"
    return f"m.concatenate(({rows}), 1)"


def partition_cases() -> list[Case]:
    order = "m.argsort(a, 1, stable=True)"
    rest = f"m.sort({order}[:, 6:], 1)"
    return [
        case("m.partition(a, 5, axis=1)", a=N, numpy=parted(5)),
        case("m.partition(a, -17)", a=N.astype(U8), numpy=parted(0), native=True),
        case("m.partition(a, 2, axis=1)", a=T[0].T.copy(), numpy=parted(2)),
        case(
            "m.argpartition(a, 5, axis=1)",
            a=N,
            numpy=f"m.concatenate(({order}[:, :6], {rest}), 1)",
        ),
    ]


def quantile_cases() -> list[Case]:
    shares = np.array([0, 0.1, 0.5, 0.77, 1], F32)
    cases = []
    for axis in ("None", "0", "-1", "(0, 2)", "(2, 1)"):
        for name in ("median", "nanmedian"):
            text = f"m.{name}(a, axis={axis})"
            cases.append(case(text, 1, a=HOLES if name == "nanmedian" else T))
        cases.append(case(f"m.quantile(a, q, axis={axis})", 4, a=P, q=shares))
    for method in ("linear", "lower", "higher", "midpoint", "inverted_cdf"):
        text = f"m.quantile(a, q, 1, method='{method}', keepdims=True)"
        cases.append(case(text, 4, a=P, q=shares))
    weighted = "method='inverted_cdf', weights=w)"
    whole = np.rint(P)
    cases += [
        case(f"m.quantile(a, q, 1, {weighted}", a=T, q=shares, w=whole),
        case(f"m.quantile(a, 0.5, {weighted}", a=T, w=whole),
        case(f"m.percentile(a, 30.0, (0, 2), {weighted}", a=T, w=whole[:, 0]),
        case(f"m.quantile(a, 0.5, 2, {weighted}", a=HOLES, w=whole),
        case(f"m.nanquantile(a, 0.5, {weighted}", a=HOLES, w=whole),
    ]
    # Half the way between two elements NumPy takes the even one, JAX the lower.
    nearest = "m.quantile(a, q, 0, method='nearest')"
    lower = "m.where(q == 0.5, m.quantile(a, 0.5, 0, method='lower'), {})"
    cases += [
        case(nearest, 0, a=T[0, :4], q=F32(0.3)),
        case(nearest, 0, a=T[0, :4], q=F32(0.5), numpy=lower.format(nearest)),
        case("m.percentile(a, q, 1)", 4, a=T, q=np.array([10, 50], F32)),
        case("m.percentile(a, 30)", 4, a=N),
        case("m.nanpercentile(a, q, 2)", 4, a=HOLES[:, :2], q=np.array([25], F32)),
        case("m.nanquantile(a, 0.5, 1)", 4, a=HOLES),
        case("m.median(a)", 1, a=HOLES),
        case("m.median(a, 1)", 1, a=N),
        case("m.median(a, 0)", 1, a=T.astype(F16)),
        case("m.median(a, 0)", 1, a=T.astype(BF16)),
        case("m.quantile(a, 0.5)", 0, a=np.array([1, np.inf, -np.inf], F32), values=1),
        case("m.quantile(a, 1.0)", 0, a=np.array([1, np.inf], F32), values=np.inf),
        case("m.nanmedian(a)", 0, a=np.array([np.nan] * 2, F32), values=np.nan),
    ]
    return cases


def search_cases() -> list[Case]:
    values = np.array([[-3.0, -2.0, -0.0], [0.3, 9.0, np.nan]], F32)
    cases = []
    for side in ("left", "right"):
        text = f"m.searchsorted(a, v, side='{side}')"
        cases += [
            case(text, a=EDGES, v=values),
            case(text, a=WITH_NAN, v=values),
            case(text, a=np.arange(16, dtype=I32), v=np.arange(-2, 19, dtype=I32)),
            case(text, a=EDGES[:0], v=values),
            case(text, a=EDGES, v=F32(0)),
        ]
    order = np.array([1, 2, 0], I32)
    cases += [
        case("m.searchsorted(a, v, sorter=s)", a=EDGES[[4, 0, 1]], v=values, s=order),
        case(
            "m.asarray(a).searchsorted(v)",
            a=EDGES,
            v=values,
            numpy="m.searchsorted(a, v)",
        ),
        case("m.digitize(x, b)", x=values, b=EDGES),
        case("m.digitize(x, b, right=True)", x=values, b=EDGES),
        case("m.digitize(x, b)", x=T, b=EDGES[::-1].copy()),
        case("m.digitize(x, b, True)", x=T, b=EDGES[::-1].copy()),
        case("m.digitize(x, b)", x=T, b=EDGES[:0]),
    ]
    return cases


@each_row([*sort_cases(), *partition_cases(), *search_cases()])
def test_orders_and_places(row: Case) -> None:
    check(row)


@each_row(quantile_cases())
def test_quantiles(row: Case) -> None:
    check(row)


# --- sets -------------------------------------------------------------------

SLICES = np.array([[2, 1], [1, 3], [2, 1], [1, 2], [1, 3]], I32)


def same(mine: Any, right: Any, where: str) -> None:
    mine = mine if isinstance(mine, tuple) else (mine,)
    right = right if isinstance(right, tuple) else (right,)
    for one, other in zip(mine, right, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other, where)


SET_CALLS = (
    "m.unique(a)",
    "m.unique(a, return_index=True, return_inverse=True, return_counts=True)",
    "m.unique(a, equal_nan=False, return_counts=True)",
    "m.union1d(a, b)",
    "m.intersect1d(a, b)",
    "m.intersect1d(a, b, return_indices=True)",
    "m.setdiff1d(a, b)",
    "m.setxor1d(a, b)",
)


@pytest.mark.usefixtures("one_backend")
@pytest.mark.parametrize("text", SET_CALLS)
def test_sets(text: str) -> None:
    nans = np.array([np.nan, 1.0, -0.0, np.nan, 0.0, 2.0], F32)
    for a, b in (
        (N, M),
        (M, N[0, :4]),
        (nans, nans[1:]),
        (N[:, :0], M),
        (M, M[:0]),
        (M[:0], M[:0]),
    ):
        right = eval(text, {"m": np, "a": a, "b": b})
        same(eval(text, {"m": jnp, "a": a, "b": b}), right, text)


@pytest.mark.usefixtures("one_backend")
def test_unique_slices() -> None:
    for axis in (0, 1):
        text = f"m.unique(a, True, True, True, axis={axis})"
        right = eval(text, {"m": np, "a": SLICES})
        same(eval(text, {"m": jnp, "a": SLICES}), right, text)


@pytest.mark.usefixtures("one_backend")
@pytest.mark.parametrize(("size", "fill_value"), [(3, -7), (30, None)])
def test_sets_of_a_size(size: int, fill_value: int | None) -> None:
    """Traced, against JAX."""
    jax = pytest.importorskip("jax")
    options = f"size={size}, fill_value={fill_value})"
    for text in (
        "m.unique(a, True, True, True, " + options,
        "m.union1d(a, b, " + options,
        "m.intersect1d(a, b, " + options,
        "m.intersect1d(a, b, return_indices=True, " + options,
        "m.setdiff1d(a, b, " + options,
        "m.setxor1d(a, b, " + options,
        "m.unique_all(a, " + options,
        "m.unique_values(a, " + options,
        "m.unique_counts(a, " + options,
        "m.unique_inverse(a, " + options,
    ):

        def call(module: Any, a: Any, b: Any, text: str = text) -> Any:
            return eval(text, {"m": module, "a": a, "b": b})

        right = jax.tree.leaves(call(jax.numpy, M, N))
        mine = poot.jit(lambda a, b, call=call: tuple_of(call(jnp, a, b)))(M, N)
        same(mine, tuple(map(np.asarray, right)), text)


@pytest.mark.usefixtures("one_backend")
def test_sets_of_no_element() -> None:
    for fill_value in (None, 3):
        for function in (jnp.union1d, jnp.intersect1d, jnp.setdiff1d, jnp.setxor1d):
            result = function(M, N, size=0, fill_value=fill_value)
            assert result.shape == (0,) and result.dtype == I32
            filled = function(M[:0], M[:0], size=2, fill_value=fill_value or 1)
            np.testing.assert_array_equal(filled, [fill_value or 1] * 2)
        assert jnp.unique(M, size=0, fill_value=fill_value).shape == (0,)


def tuple_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


@pytest.mark.usefixtures("one_backend")
def test_unique_results_have_names() -> None:
    found = jnp.unique_all(M)
    np.testing.assert_array_equal(found.values, np.unique(M))
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    assert jnp.unique_counts(M)._fields == ("values", "counts")
    assert jnp.unique_inverse(M)._fields == ("values", "inverse_indices")


# --- lax --------------------------------------------------------------------


@pytest.mark.usefixtures("one_backend")
def test_lax_sorts() -> None:
    order = np.argsort(N, 1, stable=True)
    same(lax.sort(N), np.sort(N, 1), "sort")
    places = np.broadcast_to(np.arange(17, dtype=I32), N.shape).copy()
    same(lax.sort_key_val(N, places), (np.sort(N, 1), order), "sort_key_val")
    same(lax.sort((N, T[0, :3, :1] + N), 0)[0], np.sort(N, 0), "two operands")
    by_two = lax.sort([N % 2, N, places], dimension=1, num_keys=2)
    wanted = np.lexsort((N, N % 2), 1)
    same(by_two[2], wanted, "two keys")
    weak = lax.sort(jnp.full((3,), 1.0) * 2)
    assert weak.dtype == np.float32


@pytest.mark.usefixtures("one_backend")
def test_lax_top_k() -> None:
    for x, axis in ((T, -1), (N, 0), (HOLES, 1)):
        values, indices = lax.top_k(x, 2, axis=axis)
        falling = np.flip(np.argsort(np.flip(x, axis), axis, stable=True), axis)
        right = np.take(x.shape[axis] - 1 - falling, range(2), axis)
        same(indices, right, f"{axis}")
        same(values, np.take_along_axis(x, right, axis), f"{axis}")
        assert indices.dtype == np.int32 and values.dtype == x.dtype


# --- refusals ---------------------------------------------------------------


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    calls: tuple[tuple[Any, type[Exception], str], ...] = (
        (lambda: jnp.sort(T, kind="quicksort"), ArgumentError, "kind='quicksort'"),
        (lambda: jnp.argsort(T, order="x"), ArgumentError, "no fields"),
        (lambda: jnp.sort(T, 3), ShapeError, "axis 3 is out of range"),
        (lambda: jnp.argsort(T, dtype=F32), DTypeError, "no dtype of an index"),
        (lambda: jnp.lexsort(()), ArgumentError, "given no key"),
        (lambda: jnp.lexsort((N, T)), ShapeError, "takes one shape"),
        (lambda: jnp.partition(N, 17), ShapeError, "kth: axis 17"),
        (lambda: jnp.quantile(T, 0.5, method="x"), ArgumentError, "method is 'x'"),
        (lambda: jnp.quantile(T, [[0.5]]), ShapeError, "q has one axis at most"),
        (lambda: jnp.median(T, overwrite_input=True), ArgumentError, "never change"),
        (
            lambda: jnp.quantile(T, 0.5, weights=T),
            ArgumentError,
            "method 'linear' takes no weights",
        ),
        (
            lambda: jnp.quantile(T, 0.5, 1, method="inverted_cdf", weights=T[0, 0]),
            ShapeError,
            r"weights have shape \(4,\), takes \(2, 5, 4\) or \(5,\)",
        ),
        (lambda: jnp.searchsorted(T, 1), ShapeError, "searches one axis"),
        (lambda: jnp.searchsorted(EDGES, 1, "mid"), ArgumentError, "side is 'mid'"),
        (
            lambda: jnp.searchsorted(EDGES, 1, method="x"),
            ArgumentError,
            "method is 'x', takes 'scan'",
        ),
        (lambda: jnp.digitize(1, T), ShapeError, "bins have one axis"),
        (lambda: jnp.unique(M[:0], size=3), ArgumentError, "needs fill_value"),
        (lambda: poot.jit(jnp.unique)(M), ConcretizationError, "give size="),
        (lambda: lax.sort(()), ArgumentError, "given no operand"),
        (lambda: lax.sort((N, T)), ShapeError, "operands of one shape"),
        (lambda: lax.top_k(N, 18), ShapeError, "the 18 largest"),
    )
    for call, error, words in calls:
        with pytest.raises(error, match=words):
            call()
