"""poot.numpy: grids, positions, and the functions composed of moves and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    DTypeError,
    IndexingError,
    ShapeError,
)
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
)

F32, I32 = np.float32, np.int32
A = np.linspace(-2, 3, 12, dtype=F32).reshape(3, 4)
N = np.arange(12, dtype=I32).reshape(3, 4) - 4
# Whole numbers, so that differences of products are exact.
W = N.astype(F32)
V = np.array([1, 4, 9, 16], F32)
BEYOND: dict[str, Any] = {"a": np.array([1, 5]), "b": np.array([-3, 9])}


def sequence_cases() -> list[Case]:
    return [
        case("m.logspace(0, 2, 5)", 4),
        case("m.logspace(0, 2, 5, base=2)", 4),
        case("m.logspace(0, 2, 4, endpoint=False)", 4),
        case("m.logspace(0, 3, 4, dtype=np.int32)"),
        case("m.logspace(0, a, 3, axis=1)", 4, a=np.ones(2, F32)),
        case("m.geomspace(1, 1000, 4)", 8),
        case("m.geomspace(-1, -8, 4)", 8),
        case("m.geomspace(1, 8, 3, endpoint=False)", 8),
        case("m.geomspace(a, 8.0, 3, axis=1)", 8, a=np.array([1, 2], F32)),
        case("m.vander(a)", a=N[0]),
        case("m.vander(a, 2, increasing=True)", a=V),
        case("m.vander(a, 0)", a=N[0]),
        case("m.polyval(a, b)", 2, a=V[:3], b=A),
        case("m.polyval(a, 2.0)", a=V),
        case("m.polyval(a, b)", a=N[0], b=N),
    ]


@each_row(sequence_cases())
def test_sequences_and_powers(row: Case) -> None:
    check(row)


def grid_cases() -> list[Case]:
    return [
        *(
            case(f"m.{text}")
            for text in (
                "mgrid[0:3]",
                "mgrid[0:3, 1:2:0.25]",
                "mgrid[0:1:5j]",
                "ogrid[0:3, 0:2]",
                "diag_indices(3)",
                "diag_indices(2, 3)",
                "tril_indices(3)",
                "tril_indices(3, 1, 4)",
                "triu_indices(3, -1)",
                "unravel_index(7, (3, 4))",
                "unravel_index(np.array([[7, 2]]), 12)",
            )
        ),
        *(
            case(f"m.ravel_multi_index((a, b), (3, 4), mode={mode!r})", **BEYOND)
            for mode in ("clip", "wrap")
        ),
        case("m.meshgrid(a, b, copy=True)", a=V, b=N[0]),
        case("m.tril_indices_from(a)", a=A),
        case("m.triu_indices_from(a, 1)", a=A),
        case("m.diag_indices_from(a)", a=A[:, :3]),
        case("m.asarray(a)[m.ix_(m.array([0, 2]), m.array([3, -1, 0]))]", a=N),
        case("m.asarray(a)[m.triu_indices(3, 1)]", a=N),
        case("m.asarray(a)[m.s_[1:, ::2]]", a=N),
    ]


@each_row(grid_cases())
def test_grids_and_positions(row: Case) -> None:
    check(row)


def move_cases() -> list[Case]:
    return [
        case("m.block([[a, b], [c]])", a=A[:2, :2], b=A[:2, :1], c=A[2:, :3]),
        case("m.block([a, 3.0])", a=V),
        case("m.block([[1, 2], [3, 4]])"),
        case("m.block([[a], [a]])", a=A[None]),
        case("m.block(a)", a=A),
        case("m.diagflat(a)", a=N[:2, :2]),
        case("m.diagflat(a, -1)", a=V),
        case("m.resize(a, (2, 8))", a=N),
        case("m.resize(a, (3, 1, 2))", a=N),
        case("m.resize(a, 0)", a=N),
        case("m.resize(a, (2,))", a=np.zeros(0, F32)),
        case("m.ediff1d(a)", a=N),
        case("m.ediff1d(a, to_end=5, to_begin=b)", a=V, b=V[:2]),
        case("m.ediff1d(a)", a=np.zeros(0, F32)),
        case("m.isin(a, b)", a=N, b=np.array([1, -4, 20])),
        case("m.isin(a, b, invert=True)", a=N, b=N[:1]),
        case("m.isin(a, b)", a=N, b=np.zeros(0, I32)),
        case("m.cross(a, b)", a=W[:, :3], b=W[:, 1:] * W[:, 1:]),
        case("m.cross(a, b, axis=0)", a=W, b=W[::-1]),
        case("m.cross(a, b, axisc=0)", a=N[:, :3], b=V[:3]),
        case("m.trapezoid(a)", 2, a=V, sums=True),
        case("m.trapezoid(a, dx=2.0, axis=0)", 2, a=A, sums=True),
        case("m.trapezoid(a, b, axis=0)", 2, a=A, b=V[:3], sums=True),
        case("m.trapezoid(a)", 2, a=N, sums=True),
        case("m.angle(a)", 1, a=np.array([1, -1, 0, -0.0, np.nan, np.inf], F32)),
        case("m.angle(a, deg=True)", 1, a=A),
    ]


@each_row(move_cases())
def test_composed_functions(row: Case) -> None:
    check(row)


def test_cross_products_of_two_elements() -> None:
    two, three = np.array([1, 2], I32), np.array([3, 4, 5], I32)
    assert jnp.cross(two, three[:2]).item() == -2
    assert jnp.cross(two, three).tolist() == [10, -5, -2]
    assert jnp.cross(three, two).tolist() == [-10, 5, 2]


def test_positions_beyond_the_ends() -> None:
    positions = np.array([30, -1, -20])
    rows, columns = jnp.unravel_index(positions, (3, 4))
    assert rows.tolist() == [2, 2, 0] and columns.tolist() == [3, 3, 0]
    index = (np.array([1, 2]), np.array([3, 0]))
    assert jnp.ravel_multi_index(index, (3, 4)).tolist() == [7, 8]
    assert jnp.ravel_multi_index(index, (3, 4), order="F").tolist() == [10, 2]
    with pytest.raises(ConcretizationError):
        poot.jit(lambda i: jnp.ravel_multi_index(i, (3, 4)))(index)


def test_what_is_iterable() -> None:
    assert jnp.iterable(jnp.ones(3)) and jnp.iterable([1])
    assert not jnp.iterable(jnp.array(3)) and not jnp.iterable(2.5)


def test_copies_on_demand() -> None:
    x = jnp.asarray(A)
    assert jnp.asarray(x) is x and jnp.asarray(x, copy=False) is x
    kept = jnp.asarray(x, copy=True)
    x.delete()
    np.testing.assert_array_equal(kept, A)
    with pytest.raises(ArgumentError, match="needs a copy"):
        jnp.asarray(kept, np.float16, copy=False)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda: jnp.ix_(A), ShapeError, r"argument 0 has shape \(3, 4\)"),
        (lambda: jnp.diag_indices_from(A), ShapeError, "axes .* of one size"),
        (lambda: jnp.tril_indices_from(V), ShapeError, "takes a matrix"),
        (lambda: jnp.unravel_index(1.5, (3,)), IndexingError, "takes integers"),
        (lambda: jnp.ravel_multi_index((3,), (3,)), IndexingError, "out of range"),
        (lambda: jnp.ravel_multi_index((3,), (3, 4)), ShapeError, "1 indices for 2"),
        (lambda: jnp.ravel_multi_index((3,), (3,), "no"), ArgumentError, "mode 'no'"),
        (lambda: jnp.block([[1], 2]), ShapeError, "different depths"),
        (lambda: jnp.block([]), ShapeError, "empty"),
        (lambda: jnp.cross(A, A), ShapeError, "vectors of 4 and 4"),
        (lambda: jnp.vander(A), ShapeError, "takes one axis"),
        (lambda: jnp.vander(V, -1), ShapeError, "N is -1"),
        (lambda: jnp.polyval(A, 1.0), ShapeError, "take one axis"),
        (lambda: jnp.resize(A, (-1,)), ShapeError, "is no shape"),
        (lambda: jnp.ediff1d(N, to_end=V), DTypeError, "an end is f32"),
        (lambda: jnp.meshgrid(V, copy=False), ArgumentError, "no views"),
    ],
)
def test_what_is_refused(function: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        function()
