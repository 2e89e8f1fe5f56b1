"""poot.numpy: dtypes, constants, arrays from data, from one element, from ranges."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import jax.numpy
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import (
    ConcretizationError,
    DeletedArrayError,
    DTypeError,
    RangeError,
    ShapeError,
)
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
)

F16, BF16, F32 = np.float16, ml_dtypes.bfloat16, np.float32
I8, I32, U8 = np.int8, np.int32, np.uint8
A = np.arange(6, dtype=F32).reshape(2, 3) - 2.5
N = np.arange(6, dtype=I32).reshape(2, 3) - 2


def data_cases() -> list[Case]:
    cases = [
        case("m.asarray(a)", a=x)
        for x in (A, N, A.astype(BF16), np.zeros((2, 0)), True, 3, 2.5, I8(4))
    ]
    cases += [
        case(f"m.asarray({text})")
        for text in (
            "[1, 2]",
            "[1, 2.5]",
            "[[True, False]]",
            "[True, 2]",
            "[]",
            "[[], []]",
            "(1.5, (2))",
            "[[1, 2], (3, 4)]",
            "np.arange(3)",
            "np.linspace(0, 1, 3)",
            "[np.int8(1), np.int8(2)]",
        )
    ]
    cases += [
        case("m.asarray([np.float16(1), 2.5])"),
        case("m.array([a, b])", a=A[0], b=N[1]),
        case("m.array([[a, 1], [2.5, 3]])", a=F16(4)),
        case("m.array([a, a], dtype='float16')", 1, a=A),
        case("m.array(a, ndmin=4)", a=N),
        case("m.array(2.7, dtype='int32')"),
        case("m.array([2.7, -3.7], dtype='int32')"),
        case("m.array([1, 2], dtype='float16')"),
        case("m.array(a, dtype='bool')", a=A),
        case("m.asarray(300, dtype='int16')"),
        case("m.copy(a)", a=A),
        case("m.ascontiguousarray(a)", a=F32(3), dtype=F32),
        case("m.astype(a, 'uint8')", a=N + 2),
        case("m.full((2, 3), a)", a=N[0]),
        case("m.full((2, 3), [1, 2, 3])", dtype=I32),
    ]
    return cases


def element_cases() -> list[Case]:
    texts = (
        "m.zeros(3)",
        "m.zeros((2, 0))",
        "m.ones((2, 3), 'int8')",
        "m.ones((), 'bool')",
        "m.empty(0)",
        "m.full((2,), 1.5, 'float16')",
        "m.full((2, 2), True)",
        "m.full(3, 7)",
        "m.full(2, 2.7, 'int32')",
        "m.full(2, -m.inf)",
        "m.eye(3)",
        "m.eye(2, 4, 1, dtype='int32')",
        "m.eye(3, k=-2)",
        "m.eye(0)",
        "m.identity(2, 'bool')",
        "m.tri(3)",
        "m.tri(2, 4, 1, 'int8')",
        "m.tri(3, 2, -1)",
        "m.indices((2, 3))",
        "m.indices((2, 0))",
        "m.indices((3,), dtype='float32')",
        "m.indices((2, 3), sparse=True)",
        "m.arange(5)",
        "m.arange(0)",
        "m.arange(2, 9, 3)",
        "m.arange(5, 0, -2)",
        "m.arange(3, 3)",
        "m.arange(4.5)",
        "m.arange(0, 1, 0.25)",
        "m.arange(1, -1, -0.5)",
        "m.arange(6, dtype='float16')",
        "m.arange(2.0, 8, dtype='int32')",
        "m.arange(np.int8(5))",
        "m.linspace(0, 1, 5)",
        "m.linspace(-3, 8, 4, endpoint=False)",
        "m.linspace(0, 10, 3, dtype='int32')",
        "m.linspace(2, 3, 0)",
        "m.linspace(2, 3, 1)",
        "m.linspace(0, 1, 3, retstep=True)",
    )
    cases = [case(text, 1) for text in texts]
    for name in ("zeros_like", "ones_like", "empty_like"):
        cases.append(
            case(f"m.{name}(a)", a=N, numpy=f"m.full_like(a, {name[0] == 'o'})")
        )
        cases.append(case(f"m.{name}(a, 'float16')[:0]", a=A))
    cases += [
        case("m.full_like(a, 2.7)", a=N),
        case("m.full_like(a, 3, shape=(4,))", a=A),
        case("m.zeros_like(2.5)"),
        case("m.linspace(a, 5, 3)", 1, a=A[0]),
        case("m.linspace(a, b, 4, axis=-1)", 1, a=A, b=N),
        case("m.meshgrid(a, b)", a=A[0], b=N[0, :2]),
        case("m.meshgrid(a, b, indexing='ij')", a=A[0], b=N[0, :2]),
        case("m.meshgrid(a, b, a, sparse=True)", a=A[0], b=N[0, :2]),
        case("m.meshgrid(a)", a=A[0]),
    ]
    return cases


@each_row([*data_cases(), *element_cases()])
def test_values(row: Case) -> None:
    check(row)


@pytest.mark.usefixtures("one_backend")
def test_ranges_are_as_exact_as_their_dtype() -> None:
    index = np.arange(3000)
    tenths = np.asarray(jnp.arange(0, 300, 0.1, dtype=F16))
    np.testing.assert_array_equal(tenths, (index * F32(0.1)).astype(F16))
    ends = np.asarray(jnp.linspace(0.1, 0.7, 77))[[0, -1]]
    np.testing.assert_array_equal(ends, np.float32([0.1, 0.7]))
    assert np.asarray(jnp.linspace(-1e38, 3e38, 5)).max() == F32(3e38)
    counted = np.asarray(jnp.arange(2**24 - 2, 2**24 + 3))
    np.testing.assert_array_equal(counted, np.arange(2**24 - 2, 2**24 + 3))


@pytest.mark.usefixtures("one_backend")
def test_explicit_64_bits_stay() -> None:
    exact = np.array([2**53 + 1, -(2**62) + 1])
    kept = jnp.asarray(exact, dtype=jnp.int64)
    assert kept.dtype == np.int64
    np.testing.assert_array_equal(kept, exact)
    assert jnp.zeros(2, jnp.float64).dtype == np.float64
    assert jnp.asarray(exact).dtype == np.int32
    third = jnp.asarray([1 / 3], dtype="float64")
    assert np.asarray(third)[0] == 1 / 3
    with poot.config.override(enable_x64=True):
        assert jnp.zeros(2).dtype == np.float64 and jnp.arange(2).dtype == np.int64
        assert jnp.asarray([2**40]).dtype == np.int64
        assert jnp.result_type(1, 2.0) == np.float64


@pytest.mark.usefixtures("one_backend")
def test_copies_outlive_their_origin() -> None:
    x = jnp.array(A)
    for same in (jnp.copy(x), jnp.array(x), copy.copy(x)):
        assert same is not x
    kept = jnp.copy(x)
    assert jnp.asarray(x) is x
    x.delete()
    np.testing.assert_array_equal(kept, A)
    with pytest.raises(DeletedArrayError):
        jnp.exp(x)


# --- dtypes -------------------------------------------------------------------

NAMES = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("uint64", "float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_objects(name: str) -> None:
    kind, other = getattr(jnp, name), getattr(jax.numpy, name)
    assert np.dtype(kind) == np.dtype(other) == kind == other.dtype
    assert jnp.dtype(kind) is kind.dtype and hash(kind) == hash(kind.dtype)
    assert kind != jnp.int16 or name == "int16"
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert repr(kind) == f"poot.numpy.{np.dtype(kind).name}"
    for family in ("floating", "integer", "signedinteger", "number", "inexact"):
        wanted = jax.numpy.issubdtype(other, getattr(jax.numpy, family))
        assert jnp.issubdtype(kind, getattr(jnp, family)) == wanted
    assert jnp.issubdtype(kind, kind) and jnp.issubdtype(kind, jnp.generic)


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_scalar_types_make_arrays(one_backend: None) -> None:  # noqa: F811
    x = jnp.float16(2.5)
    assert isinstance(x, poot.Array) and x.dtype == np.float16 and not x.weak_type
    assert jnp.int8([1, 300 % 256]).tolist() == [1, 44]
    assert jnp.uint8(jnp.array([1.7, -3])).tolist() == [1, 0]
    assert isinstance(x, jnp.ndarray)


PROMOTED = (*NAMES[:4], *NAMES[5:8], *NAMES[9:12])


@pytest.mark.parametrize("a", PROMOTED)
def test_promotion_is_that_of_jax(a: str) -> None:
    for b in PROMOTED:
        ours = jnp.promote_types(getattr(jnp, a), getattr(jnp, b))
        theirs = jax.numpy.promote_types(getattr(jax.numpy, a), getattr(jax.numpy, b))
        assert ours == theirs, (a, b)
    for weak in (1, 2.5, int, float):
        ours = jnp.result_type(getattr(jnp, a), weak)
        assert ours == jax.numpy.result_type(getattr(jax.numpy, a), weak), (a, weak)


def test_questions_about_dtypes() -> None:
    assert not jnp.issubdtype(jnp.floating, jnp.float32)
    assert jnp.issubdtype(jnp.floating, jnp.inexact)
    assert jnp.can_cast("int8", jnp.float32) and not jnp.can_cast("float32", "int8")
    assert jnp.finfo(jnp.bfloat16).bits == 16
    assert float(jnp.finfo("float32").eps) == 2.0**-23
    assert jnp.iinfo(jnp.uint8).max == 255
    assert jnp.finfo(np.zeros(2, np.float16)).dtype == np.float16
    with pytest.raises(DTypeError, match="no common dtype"):
        jnp.promote_types(jnp.float8_e5m2, jnp.float8_e4m3fn)
    with pytest.raises(DTypeError, match="not supported"):
        jnp.result_type("complex64")


def test_constants_and_shapes() -> None:
    assert (jnp.pi, jnp.e, jnp.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(jnp.nan) and jnp.newaxis is None
    assert jnp.euler_gamma == np.euler_gamma
    assert set(jnp.__all__) <= set(dir(jnp))
    missing = {name for name in jnp.__all__ if not hasattr(jax.numpy, name)}
    # NumPy has them.
    assert missing <= {"ascontiguousarray", "fix"}


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_every_real_ufunc_of_numpy_is_there(one_backend: None) -> None:  # noqa: F811
    ufuncs = [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)]
    # Of dates and of anything but numbers.
    others = {"isnat"}
    assert [n for n in ufuncs if n not in others and not hasattr(jnp, n)] == []
    assert jnp.shape([[1, 2, 3]]) == (1, 3) and jnp.ndim(4) == 0
    assert jnp.size(A) == 6 and jnp.size(A, 1) == 3 and jnp.size(np.zeros((0, 2))) == 0
    assert jnp.isscalar(2.5) and not jnp.isscalar(A) and jnp.isscalar(jnp.zeros(()))
    assert jnp.isrealobj(A) and not jnp.iscomplexobj(A)
    assert jnp.array_repr(jnp.ones(2)) == "Array([1., 1.], dtype=float32)"
    assert jnp.array_str(jnp.ones(2)) == "[1. 1.]"


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    for call, words in (
        (lambda: jnp.array([[1, 2], [3]]), "ragged"),
        (lambda: jnp.array([jnp.ones(2), 1.0]), r"shapes \[\(\), \(2,\)\]"),
        (lambda: jnp.arange(1, 5, 0), "the step is 0"),
        (lambda: jnp.linspace(0, 1, -1), "num is -1"),
        (lambda: jnp.meshgrid(A), "takes one axis"),
        (lambda: jnp.meshgrid(A[0], indexing="yx"), "takes 'xy' or 'ij'"),
        (lambda: jnp.full((2,), N), r"\(2, 3\) and \(2,\) do not broadcast"),
        (lambda: jnp.zeros(-1), "negative"),
        (lambda: jnp.eye(-1), "is no shape"),
        (lambda: jnp.linspace(0, 1, axis=2), "axis 2 is out of range"),
    ):
        with pytest.raises(ShapeError, match=words):
            call()
    for number in (2**40, [2**40], [[1], [-(2**31) - 1]]):
        with pytest.raises(RangeError, match="enable_x64"):
            jnp.array(number)
    for number in (300, [300], [-1]):
        with pytest.raises(RangeError, match="does not fit u8"):
            jnp.array(number, dtype=U8)
    for wrong in ("text", None, object(), [object()], [1j]):
        with pytest.raises(DTypeError):
            jnp.asarray(wrong)
    with pytest.raises(DTypeError, match="no bool counts"):
        jnp.arange(3, dtype=bool)
    with pytest.raises(ConcretizationError, match="static_argnums"):
        poot.jit(lambda n: jnp.arange(n))(3)


@pytest.mark.usefixtures("one_backend")
def test_staged_from_values_inside_lists() -> None:
    @poot.jit
    def f(x: Any, y: Any) -> Any:
        return jnp.array([[x, 1], [y, x + y]]), jnp.asarray([x, y], dtype=jnp.int8)

    stacked, cast = f(1.5, np.float16(2))
    assert stacked.dtype == np.float16 and not stacked.weak_type
    np.testing.assert_array_equal(stacked, [[1.5, 1], [2, 3.5]])
    np.testing.assert_array_equal(cast, np.array([1, 2], np.int8))
