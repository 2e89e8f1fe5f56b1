"""Methods of arrays and of traced values, against those of NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import ArgumentError, ShapeError
from tests.backends import each_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("each_backend")

N = np.arange(12, dtype=np.int32).reshape(3, 4)
F = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)

# The array, the method, its arguments.
CALLS: list[tuple[np.ndarray[Any, Any], str, tuple[Any, ...], dict[str, Any]]] = [
    (N, "reshape", (4, -1), {}),
    (N, "reshape", ((2, 6),), {"order": "F"}),
    (N, "reshape", (-1, 2), {"order": "F"}),
    (N, "ravel", ("F",), {}),
    (N, "flatten", (), {"order": "F"}),
    (N, "transpose", (1, 0), {}),
    (N, "swapaxes", (0, -1), {}),
    (N[:, :1], "squeeze", (1,), {}),
    (N, "copy", (), {}),
    (F, "conj", (), {}),
    (F, "conjugate", (), {}),
    (N, "astype", (np.float32,), {}),
    (F, "view", (np.int32,), {}),
    (F, "view", ("u2",), {}),
    (N.astype(np.int8), "view", (np.uint32,), {}),
    (N, "diagonal", (), {}),
    (N, "diagonal", (1,), {}),
    (N, "trace", (-1,), {}),
    (N, "repeat", (2,), {}),
    (N, "repeat", ([2, 0, 1], 0), {}),
    (N, "take", ([3, 0, -1], 1), {}),
    (N, "take", ([[11, 0]],), {}),
    (N, "take", ([5, -7],), {"axis": 1, "mode": "wrap"}),
    (N, "sum", (0, None, None, True), {}),
    (N, "prod", (1,), {"dtype": np.float32}),
    (F, "max", (1, None, True), {}),
    (F, "min", (), {"initial": -5.0}),
    (F > 0, "any", (0,), {"keepdims": True}),
    (F > 0, "all", (1,), {"keepdims": True}),
    (F, "argmax", (1,), {"keepdims": True}),
    (F, "argmin", (), {}),
    (F, "mean", (0, None, None, True), {}),
    (F, "var", (1, None, None, 1), {}),
    (F, "std", (), {"ddof": 2}),
    (F, "round", (1,), {}),
    (F, "clip", (-1, 1), {}),
    (F, "dot", (F.T,), {}),
]


@pytest.mark.parametrize(
    "call", CALLS, ids=[f"{c[1]}{c[2]}{c[3]}" for c in map(list, CALLS)]
)
def test_methods_are_those_of_numpy(call: Any) -> None:
    given, name, arguments, options = call
    expected = getattr(given, name)(*arguments, **options)
    arguments = [
        np.array(a) if name == "take" and type(a) is list else a for a in arguments
    ]

    def method(x: Any) -> Any:
        return getattr(x, name)(*arguments, **options)

    x = poot.device_put(given)
    for result in (method(x), poot.jit(method)(x)):
        assert isinstance(result, poot.Array) and result.shape == expected.shape
        if expected.dtype == np.float32:
            np.testing.assert_allclose(result, expected, rtol=2e-6)
        else:
            np.testing.assert_array_equal(result, expected)
            assert result.itemsize <= expected.itemsize


def test_properties() -> None:
    x = poot.device_put(F)
    for get in (lambda v: (v.T, v.mT, v.real, v.imag), lambda v: (v.real.T,) * 4):
        for result in (get(x), poot.jit(get)(x)):
            np.testing.assert_array_equal(result[0], F.T)
    np.testing.assert_array_equal(poot.jit(lambda v: v.imag)(x), np.zeros_like(F))
    assert x.tobytes() == F.tobytes()
    np.testing.assert_array_equal(x.ptp(axis=0), np.ptp(F, axis=0))


def test_a_copied_array_outlives_a_donated_one() -> None:
    x = poot.device_put(F)
    kept = x.copy()
    poot.jit(lambda v: v + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(kept, F)


# Functions of NumPy that call the method of their argument.
@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sum(x, axis=0),
        lambda x: np.prod(x, keepdims=True),
        lambda x: np.mean(x, axis=1),
        lambda x: np.max(x, axis=0),
        lambda x: np.any(x > 0),
        lambda x: np.argmax(x, axis=1),
        lambda x: np.std(x, axis=1, ddof=1),
        lambda x: np.reshape(x, (4, 3)),
        lambda x: np.transpose(x),
        lambda x: np.repeat(x, 2, axis=0),
        lambda x: np.round(x, 1),
        lambda x: np.squeeze(x),
        lambda x: np.swapaxes(x, 0, 1),
    ],
)
def test_functions_of_numpy_that_call_methods_stay_on_the_device(function: Any) -> None:
    result = function(poot.device_put(F))
    assert isinstance(result, poot.Array)
    np.testing.assert_allclose(result, function(F), rtol=2e-6)


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        (lambda x: x.sum(out=x), ArgumentError, "sum: out must be None"),
        (lambda x: x.take(0, out=x), ArgumentError, "take: out must be None"),
        (lambda x: x.take(0, mode="raise"), ArgumentError, "mode is 'raise'"),
        (lambda x: x.reshape(-1, order="A"), ArgumentError, "order is 'A'"),
        (lambda x: x.var(ddof=1, correction=1), ArgumentError, "one thing"),
        (lambda x: x[:, :3].view(np.int64), ShapeError, "a multiple of 2"),
        (lambda x: x[0, 0].view(np.int8), ShapeError, "as i8 needs a last axis"),
    ],
)
def test_what_methods_do_not_take(method: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        method(poot.device_put(F))
