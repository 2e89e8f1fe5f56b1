"""poot.numpy: einsum and its paths, products with options, convolve, linalg."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.matmul import DotGeneral, Precision
from tests.numerics import rng_of
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
)

F16, BF16, F32, I8, I32 = np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.int32
R = rng_of("einsum")


def whole(*shape: int) -> Any:
    """Whole numbers, so that no order of sums matters."""
    return R.integers(-3, 4, shape).astype(F32)


A, B, C, S = whole(2, 3, 4), whole(4, 5), whole(5, 6), whole(3, 3)
MASK = A > 0


def einsums() -> list[Case]:
    rows = (
        ("ijk,kl->ijl", A, B),
        ("ijk,kl,lm->im", A, B, C),
        ("ijk, kl", A, B),
        ("...k,kl", A, B),
        ("...k,kl->l...", A, B),
        ("i...,i...->...", A, A),
        ("ii->i", S),
        ("ii", S),
        ("iii->i", whole(3, 3, 3)),
        ("ii...->...i", whole(2, 2, 3)),
        ("ijk->", A),
        ("ijk->kj", A),
        ("ba", B),
        ("ij,ij->ij", B, B),
        ("ij,ij", B, B),
        ("i,j->ij", B[0], B[1]),
        ("ij,kl->ik", B, C),
        ("iij,jk->ik", whole(3, 3, 4), B),
        ("bij,bjk,bkl->bil", whole(2, 3, 4), whole(2, 4, 3), whole(2, 3, 2)),
        ("...ij,...jk->...ik", whole(2, 1, 3, 4), whole(5, 4, 2)),
        ("ab,b->ba", whole(3, 4), whole(1)),
        ("ba,b", whole(1, 3), whole(4)),
        (",ij->j", whole(), B),
        ("ij,jk,kl,lm,mn->in", S, S, S, S, S),
        ("ij,jk->ik", whole(2, 0), whole(0, 3)),
        ("ijk,kl->ijl", A.astype(I8), B.astype(I8)),
        ("ijk,kl->ijl", A.astype(F16), B.astype(BF16)),
        ("ijk,lk->il", MASK, MASK[0]),
    )
    cases = []
    for text, *operands in rows:
        names = "abcde"[: len(operands)]
        given = dict(zip(names, operands, strict=True))
        call = f"m.einsum({text!r}, {', '.join(names)})"
        cases.append(case(call, sums=True, **given))
    return [
        *cases,
        case("m.einsum(a, [0, 1, 2], b, [2, 3], [3, 0, 1])", a=A, b=B),
        case("m.einsum(a, [..., 2], b, [2, 7])", a=A, b=B),
    ]


def products() -> list[Case]:
    last = (1, 2)
    return [
        case("m.tensordot(a, b, 1)", a=A, b=B),
        case("m.tensordot(a, b, 0)", a=A, b=B),
        case("m.tensordot(a, b, ((2, 0), (0, 1)))", a=A, b=whole(4, 2)),
        case("m.inner(a, b)", a=A, b=whole(5, 4)),
        case("m.vdot(a, b)", a=A, b=A),
        case("m.dot(a, b)", a=A, b=whole(2, 4, 3)),
        case("m.dot(a, 2)", a=A),
        case("m.matmul(a, b)", a=A, b=B),
        case("m.matmul(a, b)", a=A, b=whole(1, 4, 3)),
        case("m.matmul(a, b)", a=whole(2, 1, 3, 4), b=A.transpose(0, 2, 1).copy()),
        case("m.vecdot(a, b, axis=1)", a=A, b=A),
        case("m.convolve(a, b)", a=B[0], b=C[0]),
        *(
            case(f"m.{name}(a, b, {mode!r})", a=x, b=y)
            for name in ("convolve", "correlate")
            for mode in ("full", "same", "valid")
            for x, y in itertools.permutations((whole(7), whole(4)), 2)
        ),
        case("m.convolve(a, b)", a=B[0].astype(I32), b=C[0].astype(I32)),
        *(
            case(f"m.linalg.norm(a, {ord}, 1)", 4, a=A, sums=True)
            for ord in ("None", "1", "2", "3", "0", "np.inf", "-np.inf")
        ),
        *(
            case(f"m.linalg.norm(a, {ord}, {axes}, {keep})", 4, a=A, sums=True)
            for ord in ("None", "'fro'", "1", "-1", "np.inf", "-np.inf")
            for axes, keep in ((last, False), ((2, 0), True))
        ),
        case("m.linalg.norm(a)", 4, a=A, sums=True),
        case("m.linalg.norm(a)", 4, a=A.astype(F16), sums=True),
        case("m.linalg.norm(a)", 4, a=B.astype(I32), sums=True),
        case("m.linalg.vector_norm(a, axis=(0, 2), keepdims=True)", 4, a=A, sums=True),
        case("m.linalg.matrix_norm(a, ord=1)", 4, a=A, sums=True),
        *(case(f"m.linalg.matrix_power(a, {n})", a=S) for n in (0, 1, 2, 5)),
        case("m.linalg.matrix_power(a, 3)", a=S.astype(I8)),
        case("m.linalg.multi_dot([a, b, c])", a=A[0], b=B, c=C),
        case("m.linalg.multi_dot([a, b, c])", a=B[:, 0], b=B, c=C[:, 0]),
        case("m.linalg.trace(a, offset=1)", a=A),
        case("m.linalg.diagonal(a, offset=-1)", a=A),
        case("m.linalg.matrix_transpose(a)", a=A),
        case("m.linalg.outer(a, b)", a=B[0], b=C[0]),
        case("m.linalg.cross(a, b)", a=S, b=whole(3, 3)),
        case("m.linalg.tensordot(a, b, axes=1)", a=A, b=B),
        case("m.linalg.matmul(a, b)", a=A, b=B),
        case("m.linalg.vecdot(a, b)", a=A, b=A),
    ]


@each_row(einsums() + products())
def test_values(row: Case) -> None:
    check(row)


# --- paths ------------------------------------------------------------------

CHAIN = (whole(8, 2), whole(2, 9), whole(9, 1))
TEXT = "ij,jk,kl->il"


@pytest.mark.parametrize(
    "optimize",
    [True, False, "auto", "optimal", "greedy", [(1, 2), (0, 1)], [(0, 1, 2)]],
)
def test_every_path_gives_the_same(optimize: Any) -> None:
    found = jnp.einsum(TEXT, *CHAIN, optimize=optimize)
    np.testing.assert_array_equal(np.asarray(found), CHAIN[0] @ CHAIN[1] @ CHAIN[2])


def dots(text: str, *operands: Any, **options: Any) -> list[Any]:
    graph = poot.make_graph(lambda *xs: jnp.einsum(text, *xs, **options))(*operands)
    return [eqn for eqn in graph.eqns if isinstance(eqn.op, DotGeneral)]


def test_the_cheap_order_is_taken() -> None:
    path, text = jnp.einsum_path(TEXT, *CHAIN)
    assert path == [(1, 2), (0, 1)] and "Complete contraction" in text
    assert path == jax.numpy.einsum_path(TEXT, *CHAIN)[0]
    graph = poot.make_graph(lambda *xs: jnp.einsum(TEXT, *xs))(*CHAIN)
    shapes = [graph.type(eqn.out).shape for eqn in dots(TEXT, *CHAIN)]
    assert len(shapes) == 2 and (2, 1) in [graph.type(e.out).shape for e in graph.eqns]


def test_sums_are_contractions() -> None:
    assert len(dots("bij,bjk->bik", A, whole(2, 4, 3))) == 1
    (eqn,) = dots("ij,ij->", B, B, precision="highest")
    assert eqn.op.lhs_contracting == (0, 1)
    assert eqn.op.precision is Precision.HIGHEST


def test_shared_matrices_are_not_repeated() -> None:
    graph = poot.make_graph(jnp.matmul)(A, B)
    assert [eqn.op.name for eqn in graph.eqns] == ["dot_general"]


# --- dtypes -----------------------------------------------------------------


def test_preferred_element_types() -> None:
    a, b = np.full((2, 4096), 16, F16), np.full((4096, 3), 16, F16)
    for found in (
        jnp.einsum("ij,jk->ik", a, b, preferred_element_type=F32),
        jnp.matmul(a, b, preferred_element_type=F32),
        jnp.tensordot(a, b, 1, preferred_element_type=F32),
    ):
        assert found.dtype == F32 and (np.asarray(found) == 1048576).all()
    small = A[0].astype(I8)
    for wanted in (np.int32, np.uint32, np.int16, np.uint8):
        found = jnp.matmul(small, small.T, preferred_element_type=wanted)
        right = jax.numpy.matmul(small, small.T, preferred_element_type=wanted)
        assert found.dtype == wanted
        np.testing.assert_array_equal(np.asarray(found), np.asarray(right))
    rounded = jnp.matmul(A, B, preferred_element_type=BF16)
    np.testing.assert_array_equal(np.asarray(rounded), (A @ B).astype(BF16))
    assert jnp.dot(2, A, preferred_element_type=F16).dtype == F16


def test_python_numbers_stay_weak() -> None:
    assert jnp.einsum(",", 2.0, 3.0).weak_type
    assert not jnp.einsum(",i", 2.0, B[0]).weak_type
    assert jnp.einsum(",i", 2.0, B[0].astype(F16)).dtype == F16


# --- refusals ---------------------------------------------------------------

REFUSED: tuple[tuple[Any, Any, str], ...] = (
    (lambda: jnp.einsum("ij,jk", B), ArgumentError, "of 2 operands, given 1"),
    (lambda: jnp.einsum("ij", A), ShapeError, "2 labels for an operand of 3 axes"),
    (lambda: jnp.einsum("i1", B), ArgumentError, "'1' in 'i1' is no label"),
    (lambda: jnp.einsum("ij,kj", B, C), ShapeError, "'j' have sizes 5 and 6"),
    (lambda: jnp.einsum("ij->ijk", B), ArgumentError, "must be labels of operands"),
    (lambda: jnp.einsum("ij->ii", B), ArgumentError, "each once"),
    (lambda: jnp.einsum("...j->j", B), ArgumentError, r"the result needs it"),
    (lambda: jnp.einsum(TEXT, *CHAIN, optimize="best"), ArgumentError, "'best'"),
    (lambda: jnp.einsum(TEXT, *CHAIN, optimize=[(0, 3)]), ArgumentError, "from 3"),
    (lambda: jnp.einsum(TEXT, *CHAIN, optimize=[(0, 1)]), ArgumentError, "leaves 2"),
    (lambda: jnp.einsum("i->i", B[0], precision=3), ArgumentError, "precision is 3"),
    (
        lambda: jnp.matmul(A, B, preferred_element_type=I32),
        DTypeError,
        "f32 operands do not accumulate to i32",
    ),
    (lambda: jnp.convolve(A, B), ShapeError, "takes vectors"),
    (lambda: jnp.convolve(B[0], B[0], "half"), ArgumentError, "mode is 'half'"),
    (lambda: jnp.linalg.norm(A, 2, (0, 1)), ArgumentError, "singular values"),
    (lambda: jnp.linalg.norm(A, 2), ShapeError, "name one axis or two"),
    (lambda: jnp.linalg.norm(A, "fro", 1), ArgumentError, "takes a number"),
    (lambda: jnp.linalg.matrix_power(B, 2), ShapeError, "no square matrices"),
    (lambda: jnp.linalg.matrix_power(S, -1), ArgumentError, "an inverse"),
    (lambda: jnp.linalg.multi_dot([S]), ArgumentError, "1 arrays"),
    (lambda: jnp.linalg.cross(B, B), ShapeError, "3 elements"),
    (lambda: jnp.linalg.outer(B, B), ShapeError, "takes vectors"),
)


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    for call, error, words in REFUSED:
        with pytest.raises(error, match=words):
            call()
