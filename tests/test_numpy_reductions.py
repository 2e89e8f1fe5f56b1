"""poot.numpy: reductions, statistics without NaN, products of matrices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import poot.numpy as jnp
from poot.core.errors import DTypeError, ShapeError
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
T = rng_of("reductions").uniform(-3, 3, (2, 3, 4)).astype(F32)
N = np.rint(T * 3).astype(I32)
MASK = T > 0
EMPTY = np.zeros((3, 0), F32)
HOLES = np.where(np.abs(T) > 2.2, np.nan, T).astype(F32)
HOLES[1, 2] = np.nan

AXES = ("None", "0", "-1", "(0, 2)", "(1, -1)", "()")
NAMES = ("sum", "prod", "max", "min", "mean", "var", "std")
ULPS = {"max": 0, "min": 0, "any": 0, "all": 0, "mean": 4, "var": 6, "std": 4}


def reduced(text: str, ulps: float = 8, **options: object) -> Case:
    return case(text, ulps, sums=True, **options)


def axis_cases() -> list[Case]:
    cases = []
    for name in (*NAMES, "any", "all"):
        for axis in AXES:
            x = MASK if name in ("any", "all") else T
            text = f"m.{name}(a, axis={axis})"
            cases.append(reduced(text, ULPS.get(name, 8), a=x))
        cases.append(reduced(f"m.{name}(a, 1, keepdims=True)", 8, a=N))
        cases.append(reduced(f"m.{name}(a)", 8, a=F32(2)))
    for name in ("argmax", "argmin"):
        for axis in ("None", "0", "-1"):
            cases.append(case(f"m.{name}(a, {axis})", a=T))
        cases.append(case(f"m.{name}(a, 1, keepdims=True)", a=N))
        cases.append(case(f"m.{name}(a)", a=HOLES))
    return cases


def dtype_cases() -> list[Case]:
    cases = [
        reduced(f"m.{name}(a, 0)", 1, a=x)
        for name in NAMES
        for x in (N.astype(I8), np.abs(N).astype(U8), T.astype(F16), T.astype(BF16))
        if name != "prod" or x.dtype != BF16
    ]
    cases += [
        reduced(f"m.{name}(a)", 1, a=x)
        for name in ("sum", "prod", "max", "min", "mean", "any", "all")
        for x in (MASK, N)
    ]
    cases += [
        reduced("m.sum(a, dtype='float16')", 1, a=N),
        reduced("m.sum(a, 0, dtype='int8')", a=N),
        reduced("m.mean(a, dtype='float16')", 1, a=T, numpy="m.mean(a)"),
        reduced("m.mean(a)", 1, a=np.full(70000, 2, F16)),
        reduced("m.sum(a)", 1, a=np.full(60000, 1, F16)),
        reduced("m.var(a, 0, ddof=1)", a=T),
        reduced("m.std(a, ddof=1)", a=N),
        reduced("m.sum(a)", a=2.5),
        reduced("m.mean(a)", a=3),
        reduced("m.amax(a)", a=T),
        reduced("m.amin(a, 1)", a=T),
    ]
    return cases


def option_cases() -> list[Case]:
    cases = [
        reduced(f"m.{name}(a, 1, where=b)", 8, a=T, b=MASK)
        for name in ("sum", "prod", "mean", "var")
    ]
    cases += [
        reduced("m.sum(a, initial=5)", a=T),
        reduced("m.prod(a, 0, initial=2, where=b)", a=N, b=MASK),
        reduced("m.max(a, 0, initial=1, where=b)", 0, a=T, b=MASK),
        reduced("m.min(a, initial=-9)", 0, a=N),
        reduced("m.max(a, axis=1, initial=-2)", 0, a=EMPTY),
        reduced("m.any(a, 0, where=b)", a=T > 1, b=MASK),
        reduced("m.all(a, -1, where=b)", a=T > 1, b=MASK),
    ]
    cases += [
        reduced(f"m.{name}(a, {axis})", a=EMPTY)
        for name in ("sum", "prod", "any", "all", "max")
        for axis in ("1", "0")
        if (name, axis) != ("max", "1")
    ]
    # Of nothing, without NumPy's warning.
    cases += [
        case(f"m.{name}(a, 1)", a=EMPTY, values=np.full(3, np.nan))
        for name in ("mean", "var", "std")
    ]
    return cases


def statistics_cases() -> list[Case]:
    x, counts = np.abs(T), np.array([1, 2, 3], I32)
    cases = [
        reduced("m.count_nonzero(a)", a=N),
        reduced("m.count_nonzero(a, 1, keepdims=True)", a=MASK),
        reduced("m.ptp(a, (0, 2))", a=T),
        reduced("m.ptp(a)", a=N.astype(I8)),
        reduced("m.average(a)", a=N),
        reduced("m.average(a, 2, returned=True)", a=T),
        reduced("m.average(a, 2, weights=b)", 2, a=x, b=x[0, 0]),
        reduced("m.average(a, weights=b, returned=True)", 2, a=np.abs(N), b=x),
        reduced("m.average(a, (0, 1), weights=b)", 2, a=x, b=x[:, :, 0]),
        reduced("m.average(a, 1, b, keepdims=True)", 2, a=x, b=counts),
        reduced("m.average(a, 1, b)", 1, a=x.astype(F16), b=counts),
    ]
    for part in ("sum", "prod", "max", "min", "mean", "var", "std"):
        name = f"nan{part}"
        cases += [
            reduced(f"m.{name}(a)", a=HOLES),
            reduced(f"m.{name}(a, (0, 1))", a=HOLES),
            reduced(f"m.{name}(a, 0, keepdims=True)", a=N),
        ]
    cases += [
        reduced("m.nansum(a, -1)", a=HOLES),
        reduced("m.nansum(a, -1, where=b)", a=HOLES, b=MASK),
        reduced("m.nanmax(a, 2, initial=-9)", 0, a=HOLES),
        reduced("m.nanvar(a, -1, ddof=1)", a=HOLES[0]),
        case("m.nanargmax(a, 0)", a=HOLES[:, :2, :1]),
        case("m.nanargmin(a)", a=HOLES),
        case("m.nanargmax(a, -1, keepdims=True)", a=N),
        # Of NaN alone, without NumPy's warning or error.
        case("m.nanmax(a)", a=HOLES[1, 2], values=np.nan),
        case("m.nanmin(a, 0)", a=HOLES[1, 2], values=np.nan),
        case("m.nanargmin(a)", a=HOLES[1, 2], values=-1),
        case("m.nanmean(a)", a=HOLES[1, 2], values=np.nan),
    ]
    return cases


WHOLE = N.astype(F32)


def product_cases() -> list[Case]:
    a, b = WHOLE, WHOLE[:, :2].swapaxes(1, 2).copy()
    cases = [
        case("m.matmul(a, b)", a=a, b=b),
        case("m.matmul(a, b)", a=a[0], b=a[0, 0]),
        case("m.matmul(a, b)", a=a[0, 0], b=b),
        case("m.matmul(a, b)", a=a[:, None], b=b[0]),
        case("m.matmul(a, b)", a=N, b=N.swapaxes(1, 2).copy()),
        case("m.matmul(a, b)", a=MASK, b=MASK.swapaxes(1, 2).copy()),
        case("m.matmul(a, b)", a=EMPTY, b=np.zeros((0, 4), F32)),
        case("m.matmul(a, b)", a=a[0].astype(F16), b=N[1].T.copy()),
        case("m.dot(a, b)", a=a, b=a[0].T.copy()),
        case("m.dot(a, b)", a=a[0, 0], b=a[1, 1]),
        case("m.dot(a, 2)", a=a[0]),
        case("m.vdot(a, b)", a=a, b=N),
        case("m.inner(a, b)", a=a, b=a[0]),
        case("m.inner(a, b)", a=a[0, 0], b=a[1, 1]),
        case("m.inner(a, 3)", a=a[0]),
        case("m.outer(a, b)", a=a[0], b=N[0, 0]),
        case("m.kron(a, b)", a=a[0], b=N[0, :2]),
        case("m.kron(a, b)", a=a[0, 0], b=N[0, :2]),
        case("m.tensordot(a, b, 1)", a=a, b=a[0].T.copy()),
        case("m.tensordot(a, b)", a=a, b=a[0]),
        case("m.tensordot(a, b, 0)", a=a[0], b=a[0, 0]),
        case("m.tensordot(a, b, ((0, 2), (0, -1)))", a=a, b=N),
        case("m.tensordot(a, b, (1, 0))", a=a, b=a[0]),
        case("m.vecdot(a, b)", a=a, b=a[0, 0]),
        case("m.vecdot(a, b, axis=1)", a=a, b=N),
        case("m.vecdot(a, b, axis=0)", a=a[0].astype(F16), b=a[0].astype(F16)),
        case("m.matvec(a, b)", a=a, b=a[0, 0]),
        case("m.matvec(a, b)", a=a, b=N[:, 0]),
        case("m.vecmat(a, b)", a=a[0, :, 0], b=a),
    ]
    return cases


@each_row([*axis_cases(), *dtype_cases()])
def test_reductions(row: Case) -> None:
    check(row)


@each_row([*option_cases(), *statistics_cases()])
def test_options_and_statistics(row: Case) -> None:
    check(row)


@each_row(product_cases())
def test_products(row: Case) -> None:
    check(row)


@pytest.mark.usefixtures("one_backend")
def test_accumulators_are_wide() -> None:
    ones = np.full((4096,), 16, F16)
    product = jnp.matmul(ones[None], ones[:, None], preferred_element_type=jnp.float32)
    assert product.dtype == np.float32 and product.item() == 1048576
    assert jnp.vdot(ones, ones, preferred_element_type=jnp.float32).item() == 1048576
    assert np.isinf(np.asarray(jnp.sum(np.full(70000, 1, F16))))
    assert jnp.sum(np.full(300, True)).item() == 300
    assert jnp.var(np.array([1e4, 1e4 + 1, 1e4 + 2], F32)).item() == F32(2 / 3)


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    for call, words in (
        (lambda: jnp.max(EMPTY), "no identity"),
        (lambda: jnp.sum(T, 3), "sum: axis 3 is out of range for an array of 3 axes"),
        (lambda: jnp.sum(T, (0, -3)), "twice"),
        (lambda: jnp.max(T, where=MASK), "needs `initial`"),
        (lambda: jnp.nanmax(N, where=MASK), "needs `initial`"),
        (lambda: jnp.average(T, 1, weights=T[0]), r"weights have shape \(3, 4\)"),
        (lambda: jnp.matmul(T, 2), "use multiply for scalars"),
        (lambda: jnp.matmul(T, T), "contracts 4 along its last axis"),
        (lambda: jnp.tensordot(T, T, 1), "the sizes must be equal"),
        (lambda: jnp.tensordot(T, T, 4), "both need as many"),
        (lambda: jnp.tensordot(T, T, ((0,), (0, 1))), "takes as many of both"),
        (lambda: jnp.vecdot(T, 3), "a scalar is no vector"),
        (lambda: jnp.matvec(T[0, 0], T), "needs 2 axes"),
        (lambda: jnp.vecmat(T, T[0, 0]), "needs 2 axes"),
    ):
        with pytest.raises(ShapeError, match=words):
            call()
    with pytest.raises(DTypeError, match="mean: the result is no i32"):
        jnp.mean(T, dtype=jnp.int32)
    with pytest.raises(DTypeError, match="given list"):
        jnp.sum([1, 2])  # type: ignore[arg-type]
