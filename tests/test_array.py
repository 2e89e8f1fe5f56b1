"""poot.Array: what it tells of itself, operators, indexing, conversions, copies."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
from poot.core.errors import (
    CheckError,
    DeletedArrayError,
    DTypeError,
    IndexingError,
    RangeError,
)
from tests.backends import each_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("each_backend")


def array(x: Any, dtype: Any = None) -> poot.Array:
    put: poot.Array = poot.device_put(np.array(x, dtype))
    return put


A = np.array([[1.5, -2.0, 3.25], [4.0, 0.5, -6.0]], np.float32)
B = np.array([[2.0, 2.5, -1.0], [0.5, 4.0, 3.0]], np.float32)
I = np.array([[7, -8, 9], [1, 0, -5]], np.int32)  # noqa: E741
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
J = np.array([[2, 3, -4], [-1, 2, 3]], np.int32)


def test_attributes() -> None:
    x = array(A)
    assert x.shape == (2, 3) and x.ndim == 2 and x.size == 6 and len(x) == 2
    assert x.dtype == np.float32 and x.itemsize == 4 and x.nbytes == 24
    assert not x.weak_type and x.T.shape == (3, 2)
    assert x.device in poot.devices()
    with pytest.raises(TypeError, match="no len"):
        len(array(1.0))


def test_round_trip_of_every_dtype() -> None:
    names = [
        "bool",
        "int8",
        "int16",
        "int32",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "float32",
    ]
    for dtype in (*map(np.dtype, names), np.dtype(ml_dtypes.bfloat16)):
        x = np.arange(7).astype(dtype)
        y = array(x)
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.asarray(y), x)


def test_64_bit_input_becomes_32_bit_unless_enabled() -> None:
    assert array([1.0], np.float64).dtype == np.float32
    assert array([1], np.int64).dtype == np.int32
    with poot.config.override(enable_x64=True):
        assert array([1], np.int64).dtype == np.int64
        assert array([1.5], np.float64).dtype == np.float64
        assert poot.device_put(1).dtype == np.int64


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
    ],
)
def test_binary_operators(name: str) -> None:
    apply = getattr(operator, name)
    for x, y in ((A, B), (I, J)):
        expected = apply(x, y)
        for result in (apply(array(x), array(y)), apply(x, array(y))):
            assert isinstance(result, poot.Array)
            np.testing.assert_allclose(result, expected, rtol=3e-7)
        assert apply(array(x), y).shape == expected.shape
    np.testing.assert_allclose(apply(array(A), 2), apply(A, np.float32(2)), rtol=3e-7)
    np.testing.assert_allclose(apply(2.5, array(A)), apply(np.float32(2.5), A), 3e-7)


def test_integer_and_bool_operators() -> None:
    for name in ["and_", "or_", "xor", "lshift", "rshift"]:
        apply = getattr(operator, name)
        y = np.array([1, 2, 3], np.int32)
        np.testing.assert_array_equal(apply(array(I), array(y)), apply(I, y))
    mask = np.array([True, False])
    np.testing.assert_array_equal(~array(mask), ~mask)
    np.testing.assert_array_equal(~array(I), ~I)
    np.testing.assert_array_equal(array(mask) & True, mask)
    np.testing.assert_array_equal(array(mask) + array(mask), mask)
    assert (array(mask) + array(mask)).dtype == np.bool_


def test_unary_operators_divmod_and_power() -> None:
    np.testing.assert_array_equal(-array(A), -A)
    np.testing.assert_array_equal(+array(A), A)
    np.testing.assert_array_equal(abs(array(A)), abs(A))
    quotient, rest = divmod(array(I), array(J))
    np.testing.assert_array_equal(quotient, I // J)
    np.testing.assert_array_equal(rest, I % J)
    np.testing.assert_array_equal(array(A) ** 2, A * A)
    np.testing.assert_array_equal(array(I) ** 3, I**3)
    np.testing.assert_allclose(2.0 ** array(A), 2.0**A, rtol=1e-6)
    with pytest.raises(DTypeError, match="to the power -1"):
        array(I) ** -1
    halves = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    np.testing.assert_array_equal(round(array(halves), 0), [0, 2, 2, -0.0])
    assert round(array(np.float32(2.5))).dtype == np.int32


def test_floor_division_and_remainder_at_the_edges() -> None:
    n = array([-7, 0, 7, -(2**31)], np.int32)
    np.testing.assert_array_equal(n // 0, [0, 0, 0, 0])
    np.testing.assert_array_equal(n % 0, [0, 0, 0, 0])
    lowest = array([-(2**31)], np.int32)
    np.testing.assert_array_equal(lowest // -1, [-(2**31)])
    np.testing.assert_array_equal(lowest % -1, [0])
    a = np.array([-7, -1, 7, -6], np.int32)
    b = np.array([3, 2, -3, 3], np.int32)
    np.testing.assert_array_equal(array(a) % array(b), [2, 1, -2, 0])
    np.testing.assert_array_equal(array(a) // array(b), [-3, -1, -3, -2])
    f = array([1.0, -1.0, 0.0], np.float32)
    np.testing.assert_array_equal(f // 0.0, [np.inf, -np.inf, np.nan])
    x = np.array([5.0, -5.0, -7.5, 7.5, np.inf, -0.0], np.float32)
    y = np.array([np.inf, np.inf, 2.0, -2.0, 2.0, 3.0], np.float32)
    with np.errstate(invalid="ignore"):
        floored, rest = x // y, x % y
    np.testing.assert_array_equal(array(x) // array(y), floored)
    np.testing.assert_array_equal(array(x) % array(y), rest)


def test_in_place_operators_bind_a_new_array() -> None:
    x = y = array(A)
    x += 1
    assert x is not y
    np.testing.assert_array_equal(y, A)
    np.testing.assert_array_equal(x, A + 1)
    with pytest.raises(TypeError, match="never change"):
        x[0] = 1  # type: ignore[index]


def test_matmul() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = np.arange(20, dtype=np.float32).reshape(4, 5)
    for a, b in ((x, y), (x[0], y), (x[0, 0], y), (x, y[:, 0]), (x[0, 0], y[:, 0])):
        result = array(a) @ array(b)
        assert result.shape == (a @ b).shape
        np.testing.assert_array_equal(result, a @ b)
    np.testing.assert_array_equal(x[0] @ array(y), x[0] @ y)
    np.testing.assert_array_equal(array(x).dot(array(y)), x.dot(y))
    with pytest.raises(ValueError, match=r"contracts 4 .* 5"):
        array(x) @ array(y.T)


def test_foreign_operands_are_left_to_their_type() -> None:
    class Foreign:
        def __radd__(self, other: Any) -> str:
            return "foreign"

    assert array(A) + Foreign() == "foreign"
    with pytest.raises(TypeError, match="unsupported operand"):
        array(A) + "text"
    assert (array(A) == None) is False  # noqa: E711
    with pytest.raises(TypeError, match="unhashable"):
        hash(array(A))


# --- weak scalars -----------------------------------------------------------


def test_python_scalars_do_not_widen() -> None:
    cases: list[tuple[Any, Any]] = [
        (array([1], np.float32) * 0.1, np.float32),
        (array([1], np.float16) + abs(poot.device_put(1.0)), np.float16),
        (array([1], np.int8) + 1, np.int8),
        (array([1], np.int32) + 1.5, np.float32),
        (array([1], np.int32) / array([2], np.int32), np.float32),
        (array([1], ml_dtypes.bfloat16) + array([1], np.float16), np.float32),
        (array([1], np.uint32) + array([1], np.int32), np.int32),
        (array([1], np.bool_) + 1, np.int32),
        (array([1], np.float16) * np.float32(2), np.float32),
    ]
    for value, dtype in cases:
        assert value.dtype == dtype
    np.testing.assert_array_equal(array([200], np.uint8) + 100, [44])


def test_python_ints_out_of_range() -> None:
    x = array([44, 200], np.uint8)
    np.testing.assert_array_equal(x == 300, [False, False])
    np.testing.assert_array_equal(x > -1, [True, True])
    np.testing.assert_array_equal(x < 300, [True, True])
    np.testing.assert_array_equal(array([1], np.uint32) & 0xFFFFFFFF, [1])
    with pytest.raises(RangeError, match="fits neither i32"):
        array([1], np.int32) + 2**40
    np.testing.assert_array_equal(array([1], np.float32) * 2**40, [2.0**40])


# --- indexing ---------------------------------------------------------------

X = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
INDICES: list[Any] = [
    1,
    -1,
    (1, 2),
    (1, 2, 3),
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(-2, 0, -1),
    slice(5, 9),
    (slice(None), slice(3, None, -2), slice(1, 5, 3)),
    (Ellipsis, 2),
    (0, Ellipsis),
    (0, Ellipsis, None),
    (None, slice(None), None, 1),
    Ellipsis,
    (),
    np.array([2, 0, 0]),
    np.array([[0, -1], [1, 1]]),
    (slice(None), np.array([1, 3])),
    (np.array([0, 2]), np.array([1, -1])),
    (np.array([[0], [2]]), slice(None), np.array([1, 2])),
    (0, slice(None), np.array([1, 2])),
    (slice(None), 1, np.array([1, 2])),
    (None, np.array([1, 2]), Ellipsis, None),
    (slice(1, None), None, np.array([1, 2]), np.array([0, 4])),
    np.array([True, False, True]),
    (slice(None), np.array([False, True, True, False])),
    X[..., 0] > 20,
    np.int64(2),
    slice(0, 0),
    (slice(None), np.array([], np.int32)),
]


@pytest.mark.parametrize("number", range(len(INDICES)))
def test_indexing_as_numpy(number: int) -> None:
    index = INDICES[number]
    result = array(X)[index]
    assert result.shape == X[index].shape
    np.testing.assert_array_equal(result, X[index])


def test_indexing_by_arrays_on_the_device() -> None:
    x = array(X)
    np.testing.assert_array_equal(x[array(2)], X[2])
    np.testing.assert_array_equal(x[:, array(-1), 1:3], X[:, -1, 1:3])
    np.testing.assert_array_equal(x[array([2, 0])], X[[2, 0]])
    np.testing.assert_array_equal(x[array(1), array(2), array(3)], X[1, 2, 3])
    np.testing.assert_array_equal(x[array([5, -9], np.int8)], X[[2, 0]])


def test_indices_out_of_range_clamp() -> None:
    p = array([1.0, 2.0, 3.0, 4.0], np.float32)
    np.testing.assert_array_equal(p[np.array([4, 9, -1, -4, -5])], [4, 4, 4, 1, 1])
    assert float(p[9]) == 4 and float(p[-9]) == 1 and float(p[array(9)]) == 4


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0, 0, 0), "4 indices are too many for an array of 3 axes"),
        ((Ellipsis, Ellipsis), "one Ellipsis"),
        (slice(None, None, 0), "step of a slice is not zero"),
        ([0, 1], "a list is no index"),
        (1.0, "float is no index"),
        ("a", "str is no index"),
        (np.array([0.5]), "indices are integers"),
    ],
)
def test_indexing_errors(index: Any, message: str) -> None:
    with pytest.raises(IndexingError, match=message):
        array(X)[index]


def test_indexing_an_empty_axis() -> None:
    empty = array(np.zeros((0, 3), np.float32))
    assert empty[:, 1].shape == (0,) and empty[1:].shape == (0, 3)
    for index in (0, np.array([0]), array(0)):
        with pytest.raises(IndexingError, match="no element to take"):
            empty[index]


# --- methods ----------------------------------------------------------------


def test_shape_methods() -> None:
    x = array(X)
    np.testing.assert_array_equal(x.reshape(4, -1), X.reshape(4, -1))
    np.testing.assert_array_equal(x.reshape((5, 12)), X.reshape(5, 12))
    np.testing.assert_array_equal(x.transpose(2, 0, 1), X.transpose(2, 0, 1))
    np.testing.assert_array_equal(x.transpose(), X.T)
    np.testing.assert_array_equal(x.mT, X.swapaxes(-1, -2))
    np.testing.assert_array_equal(x.swapaxes(0, 2), X.swapaxes(0, 2))
    np.testing.assert_array_equal(x.ravel(), X.ravel())
    np.testing.assert_array_equal(x.flatten(), X.flatten())
    assert x[:, :1].squeeze().shape == (3, 5) == x[:, :1].squeeze(1).shape
    assert array(np.zeros((0, 4))).reshape(2, 0).shape == (2, 0)
    for message, bad in (
        ("60 elements, .* 7", lambda: x.reshape(7)),
        ("do not fill", lambda: x.reshape(-1, 7)),
        ("has size 3, needs 1", lambda: x.squeeze(0)),
        ("axis 3 is out of range", lambda: x.swapaxes(0, 3)),
    ):
        with pytest.raises(ValueError, match=message):
            bad()


def test_astype() -> None:
    values = np.array([300, -1, -300, 1e10, -1e10, np.nan, np.inf, 255.9], np.float32)
    u8 = array(values).astype(np.uint8)
    np.testing.assert_array_equal(u8, [255, 0, 0, 255, 0, 0, 255, 255])
    assert array(I).astype(float).dtype == np.float32
    assert array(A).astype(int).dtype == np.int32
    assert array([0.0, math.nan, 2.0]).astype(bool).tolist() == [False, True, True]
    assert not poot.device_put(1.0).astype(np.float32).weak_type
    with pytest.raises(DTypeError, match="complex64 is not supported"):
        array(A).astype(np.complex64)


def test_reductions() -> None:
    x = array(A)
    for name in ["sum", "prod", "max", "min", "mean", "var", "std"]:
        for axis in (None, 0, 1, -1, (0, 1)):
            expected = getattr(A, name)(axis=axis)
            result = getattr(x, name)(axis=axis)
            assert result.dtype == np.float32 and result.shape == np.shape(expected)
            np.testing.assert_allclose(result, expected, rtol=2e-6)
        kept = getattr(x, name)(axis=1, keepdims=True)
        assert kept.shape == (2, 1)
    assert int(x.argmax()) == A.argmax() and int(x.argmin()) == A.argmin()
    np.testing.assert_array_equal(x.argmax(axis=1), A.argmax(axis=1))
    np.testing.assert_array_equal(x.argmin(0, keepdims=True), [[0, 0, 1]])
    assert bool((x > 3).any()) and not bool((x > 3).all())
    np.testing.assert_array_equal((x > 3).any(axis=0), (A > 3).any(axis=0))


def test_reductions_over_axes_that_are_not_neighbours() -> None:
    x = array(X)
    np.testing.assert_array_equal(x.sum(axis=(0, 2)), X.sum(axis=(0, 2)))
    np.testing.assert_array_equal(
        x.max((2, 0), keepdims=True), X.max((0, 2))[None, :, None]
    )
    assert x.sum(axis=()).shape == X.shape


def test_reductions_with_where_and_initial() -> None:
    x, mask = array(A), A > 0
    assert float(x.sum(where=mask)) == A[mask].sum()
    assert float(x.sum(initial=2.0)) == A.sum() + 2
    assert float(x.max(initial=10.0)) == 10
    assert float(x.max(initial=-9.0, where=~mask)) == -2
    assert float(x.mean(where=mask)) == A[mask].mean()
    np.testing.assert_allclose(x.var(where=mask, ddof=1), A[mask].var(ddof=1), 1e-6)
    empty = array(np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(empty.max(axis=1, initial=3), [3, 3])
    with pytest.raises(ValueError, match="with `where` it needs `initial`"):
        x.max(where=mask)


def test_reductions_of_nothing() -> None:
    empty = array(np.zeros(0, np.float32))
    assert float(empty.sum()) == 0 and float(empty.prod()) == 1
    assert math.isnan(float(empty.mean())) and bool(empty.all())
    with pytest.raises(ValueError, match="no identity"):
        empty.max()
    with pytest.raises(ValueError, match="empty"):
        empty.argmax()
    assert math.isnan(float(array([1.0, 2.0]).var(ddof=2)))


def test_dtypes_of_reductions() -> None:
    trues = array(np.ones(300, bool))
    assert int(trues.sum()) == 300 and trues.sum().dtype == np.int32
    assert array([1], np.int8).sum().dtype == np.int32
    assert array([1], np.uint8).sum().dtype == np.uint32
    assert array([1], np.int8).mean().dtype == np.float32
    assert array([1], np.int8).max().dtype == np.int8
    twos = array(np.full(70000, 2, np.float16))
    assert twos.mean().dtype == np.float16 and float(twos.mean()) == 2
    assert array([1], np.float16).sum(dtype=np.float32).dtype == np.float32


def test_clip_and_round() -> None:
    np.testing.assert_array_equal(array(A).clip(-1, 2), A.clip(-1, 2))
    np.testing.assert_array_equal(array(A).clip(max=0), A.clip(max=0))
    np.testing.assert_allclose(array(A).round(1), A.round(1))
    np.testing.assert_array_equal(array(I).round(), I)
    with pytest.raises(DTypeError, match="does not round to -1"):
        array(I).round(-1)


# --- elements on the host ---------------------------------------------------


def test_conversions_of_scalars() -> None:
    x = array(2.5, np.float32)
    assert float(x) == 2.5 and int(x) == 2 and complex(x) == 2.5 + 0j and bool(x)
    assert x.item() == 2.5 and x.tolist() == 2.5 and f"{x:.2f}" == "2.50"
    assert [10, 11, 12][array(1)] == 11 and list(range(array(3))) == [0, 1, 2]
    assert array(A).item(1, 2) == -6.0 and array(A).tolist() == A.tolist()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(array(A))
    for convert in (float, int, complex):
        with pytest.raises(TypeError, match="only an array without axes"):
            convert(array([1.0]))
    assert bool(array([[2]])) and not bool(array([0.0]))
    with pytest.raises(TypeError, match="only an integer scalar"):
        operator.index(x)


def test_iteration_and_containment() -> None:
    rows = list(array(A))
    assert len(rows) == 2 and isinstance(rows[0], poot.Array)
    np.testing.assert_array_equal(rows[1], A[1])
    first, second = array([1, 2])
    assert int(first) == 1 and int(second) == 2
    assert 3.25 in array(A) and 7 not in array(A)
    with pytest.raises(TypeError, match="without axes"):
        iter(array(1.0))


def test_numpy_takes_arrays() -> None:
    x = array(A)
    np.testing.assert_array_equal(np.asarray(x), A)
    np.testing.assert_array_equal(np.exp(x), np.exp(A))
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="cannot view"):
        np.array(x, copy=False)
    owned = np.array(x)
    owned[0, 0] = 99
    np.testing.assert_array_equal(x, A)


def test_repr_str_format() -> None:
    assert repr(array([1.0, 2.5])) == "Array([1. , 2.5], dtype=float32)"
    assert repr(poot.device_put(1)) == "Array(1, dtype=int32, weak_type=True)"
    assert repr(array(np.zeros((0, 2)))) == "Array([], shape=(0, 2), dtype=float32)"
    assert str(array([1, 2])) == "[1 2]" and f"{array([1, 2])}" == "[1 2]"
    long = repr(array(np.zeros(5000)))
    assert "..." in long and "shape=(5000,)" in long


def test_pickle_and_copies() -> None:
    for x in (array(A), poot.device_put(2.0), array([1], ml_dtypes.bfloat16)):
        for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
            assert y.dtype == x.dtype and y.weak_type == x.weak_type and y is not x
            np.testing.assert_array_equal(y, x)


def test_a_copy_outlives_its_original() -> None:
    x = array(A)
    y = copy.deepcopy(x)
    x.delete()
    np.testing.assert_array_equal(y, A)


def test_deleted_arrays() -> None:
    x = array(A)
    assert not x.is_deleted()
    x.delete()
    x.delete()
    assert x.is_deleted() and x.shape == (2, 3)
    assert repr(x) == "Array(f32[2,3], deleted)"
    for use in (lambda: x + 1, lambda: np.asarray(x), x.block_until_ready, x.sum):
        with pytest.raises(DeletedArrayError, match=r"this array .* was deleted"):
            use()


def test_device_put_get_and_block() -> None:
    tree = {"a": np.arange(3), "b": [1.5, None]}
    put = poot.device_put(tree)
    assert isinstance(put["a"], poot.Array) and put["b"][0].weak_type
    assert poot.block_until_ready(put) is put
    got = poot.device_get(put)
    assert type(got["a"]) is np.ndarray and got["b"][1] is None
    source = np.arange(3)
    x = poot.device_put(source)
    source[:] = 9
    np.testing.assert_array_equal(x, [0, 1, 2])
    with pytest.raises(DTypeError, match="device_put takes arrays and numbers"):
        poot.device_put("text")


def test_strided_and_foreign_byte_order_input() -> None:
    big = np.arange(6, dtype=">i4").reshape(2, 3)
    np.testing.assert_array_equal(array(big.T[::-1]), big.T[::-1])


def test_check_bounds_raises_at_the_first_blocking_use() -> None:
    with poot.config.override(check_bounds=True):
        x = array([1.0, 2.0, 3.0])
        inside = x[np.array([2, -3])]
        bad = x[np.array([0, 3])]
        dependent = bad * 2
        np.testing.assert_array_equal(inside, [3, 1])
        for value in (dependent, bad, bad):
            with pytest.raises(CheckError, match=r"axis 0 with size 3.*test_array"):
                value.block_until_ready()
        np.testing.assert_array_equal(x, [1, 2, 3])
        with pytest.raises(IndexingError, match="given 5"):
            x[5]
    with (
        poot.config.override(check_bounds=True, sync_checks=True),
        pytest.raises(CheckError, match="axis 0 with size 3"),
    ):
        x[np.array([7])]


def test_settings() -> None:
    assert not poot.config.enable_x64
    with poot.config.override(enable_x64=True, sync_checks=True):
        assert poot.config.enable_x64 and "enable_x64=True" in repr(poot.config)
        with poot.config.override(enable_x64=False):
            assert not poot.config.enable_x64 and poot.config.sync_checks
    assert not poot.config.enable_x64
    with pytest.raises(AttributeError, match="no setting 'enable_x46'"):
        poot.config.enable_x46 = True
    with pytest.raises(AttributeError, match="it has enable_x64"):
        poot.config.nothing  # noqa: B018
    with pytest.raises(TypeError, match="takes True or False"):
        poot.config.enable_x64 = 1
    poot.config.enable_x64 = True
    try:
        assert poot.device_put(1.0).dtype == np.float64
    finally:
        poot.config.enable_x64 = False
