"""Special values and the cases where obvious implementations go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from poot.lowering.kernels.math import form, loops, lower_binary, lower_unary
from tests.numerics import ulps
from tests.numpy_builder import NumpyBuilder, Quality, numpy_iterate

INF, NAN, PI = np.inf, np.nan, np.pi
LN2, EULER = np.log(2.0), np.euler_gamma
_U, _B = UnaryOp, BinaryOp

# The function, its operands, its values: one list an operand.
UNARY: list[tuple[UnaryOp, list[float], list[float]]] = [
    (
        _U.TANH,
        [1000, -1000, 100, 44.5, -89, INF, -INF, NAN],
        [1, -1, 1, 1, -1, 1, -1, NAN],
    ),
    (_U.TANH, [0.0, -0.0, 1e-30, -1e-30], [0.0, -0.0, 1e-30, -1e-30]),
    (
        _U.EXP,
        [0.0, -0.0, 88.73, 89, -104, INF, -INF, NAN],
        [1, 1, INF, INF, 0, INF, 0, NAN],
    ),
    (_U.EXP, [88.5, -87.5], [float(np.exp(88.5)), float(np.exp(-87.5))]),
    (
        _U.EXP2,
        [0, 1, -1, 127, 128, -149, -151, 10],
        [1, 2, 0.5, 2.0**127, INF, 2.0**-149, 0, 1024],
    ),
    (
        _U.EXPM1,
        [0.0, -0.0, INF, -INF, -100, 1e-30, NAN],
        [0.0, -0.0, INF, -1, -1, 1e-30, NAN],
    ),
    (_U.LOG, [0.0, -0.0, 1, -1, INF, -INF, NAN], [-INF, -INF, 0.0, NAN, INF, NAN, NAN]),
    (_U.LOG2, [1, 2, 0.5, 2.0**-149, 2.0**127, 8], [0.0, 1, -1, -149, 127, 3]),
    (_U.LOG10, [1, 10, 100, 1000, 1e10], [0.0, 1, 2, 3, 10]),
    (
        _U.LOG1P,
        [0.0, -0.0, -1, -2, INF, 1e-30, NAN],
        [0.0, -0.0, -INF, NAN, INF, 1e-30, NAN],
    ),
    (
        _U.SQRT,
        [0.0, -0.0, 4, 2.0**-148, -1, INF, NAN],
        [0.0, -0.0, 2, 2.0**-74, NAN, INF, NAN],
    ),
    (_U.RSQRT, [0.0, -0.0, 4, INF, -1, NAN], [INF, -INF, 0.5, 0.0, NAN, NAN]),
    (
        _U.CBRT,
        [0.0, -0.0, 8, -27, INF, -INF, 2.0**-149, NAN],
        [0.0, -0.0, 2, -3, INF, -INF, 2.0 ** (-149 / 3), NAN],
    ),
    (_U.RECIP, [0.0, -0.0, INF, -INF, 4, NAN], [INF, -INF, 0.0, -0.0, 0.25, NAN]),
    (_U.SIN, [39800, 1e5, 1e7, 3.4e38], [0.7428572, 0.0357488, 0.4205478, -0.2440849]),
    (_U.SIN, [0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, NAN, NAN, NAN]),
    (_U.COS, [0.0, -0.0, INF, NAN], [1, 1, NAN, NAN]),
    (_U.TAN, [0.0, -0.0, INF, NAN], [0.0, -0.0, NAN, NAN]),
    (_U.ASIN, [0.0, -0.0, 1, -1, 1.1, NAN], [0.0, -0.0, PI / 2, -PI / 2, NAN, NAN]),
    (_U.ACOS, [0.0, 1, -1, -1.1, NAN], [PI / 2, 0.0, PI, NAN, NAN]),
    (
        _U.ATAN,
        [0.0, -0.0, 1, INF, -INF, NAN],
        [0.0, -0.0, PI / 4, PI / 2, -PI / 2, NAN],
    ),
    (_U.SINH, [0.0, -0.0, 100, -100, NAN], [0.0, -0.0, INF, -INF, NAN]),
    (_U.COSH, [0.0, -0.0, 100, -INF, NAN], [1, 1, INF, INF, NAN]),
    (_U.ASINH, [0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN]),
    (_U.ACOSH, [1, 0.5, -1, INF, NAN], [0.0, NAN, NAN, INF, NAN]),
    (_U.ATANH, [0.0, -0.0, 1, -1, 2, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    (_U.ERF, [0.0, -0.0, 10, -10, INF, -INF, NAN], [0.0, -0.0, 1, -1, 1, -1, NAN]),
    (_U.ERFC, [0.0, -0.0, 20, -20, INF, -INF, NAN], [1, 1, 0.0, 2, 0.0, 2, NAN]),
    (
        _U.ERF_INV,
        [0.0, -0.0, 1, -1, 1 + 2.0**-23, -2, INF, NAN],
        [0.0, -0.0, INF, -INF, NAN, NAN, NAN, NAN],
    ),
    (
        _U.LGAMMA,
        [0.0, -0.0, -1, -7, -(2.0**23), -1e30, INF, -INF, NAN],
        [INF] * 8 + [NAN],
    ),
    (_U.LGAMMA, [1, 2, 3, 2.0**121, 3e38], [0.0, 0.0, LN2, 2.203084e38, INF]),
    (
        _U.DIGAMMA,
        [0.0, -0.0, -1, -7, -1e30, INF, -INF, NAN],
        [NAN] * 5 + [INF, NAN, NAN],
    ),
    (_U.DIGAMMA, [1, 2, 1e30], [-EULER, 1 - EULER, 69.077553]),
    (_U.ROUND, [0.5, 1.5, 2.5, -0.5, -1.5, -0.0], [0.0, 2, 2, -0.0, -2, -0.0]),
    (_U.FLOOR, [-0.5, -0.0, 0.5, INF], [-1, -0.0, 0.0, INF]),
    (_U.CEIL, [-0.5, -0.0, 0.5, -INF], [-0.0, -0.0, 1, -INF]),
    (_U.SIGN, [0.0, -0.0, 5, -5, INF, NAN], [0.0, -0.0, 1, -1, 1, NAN]),
    (_U.NEG, [0.0, -0.0, 1e-40, NAN], [-0.0, 0.0, -1e-40, NAN]),
]
BINARY: list[tuple[BinaryOp, list[float], list[float], list[float]]] = [
    (
        _B.POW,
        [-1, -2, -2, 0, 0, -8, 2],
        [2, 3, -2, 0, -1, 1 / 3, 0.5],
        [1, -8, 0.25, 1, INF, NAN, 2**0.5],
    ),
    (
        _B.POW,
        [1, 1, NAN, NAN, -1, -1],
        [NAN, INF, 0, -0.0, INF, -INF],
        [1, 1, 1, 1, 1, 1],
    ),
    (
        _B.POW,
        [0.0, -0.0, -0.0, -0.0, 0.0],
        [-3, -3, -2, 3, INF],
        [INF, -INF, INF, -0.0, 0.0],
    ),
    (
        _B.POW,
        [INF, -INF, -INF, -INF, INF],
        [2, 3, 2, -3, -1],
        [INF, -INF, INF, -0.0, 0.0],
    ),
    (
        _B.POW,
        [0.5, 2, 2, 0.5, -2],
        [INF, INF, -INF, -INF, INF],
        [0.0, INF, 0.0, INF, INF],
    ),
    (_B.POW, [10, 10, 3, 1.0000001], [-46, 39, 5, 1e9], [0.0, INF, 243, INF]),
    (_B.ATAN2, [0.0, -0.0, 0.0, -0.0], [1, 1, -1, -1], [0.0, -0.0, PI, -PI]),
    (_B.ATAN2, [0.0, -0.0, 0.0, -0.0], [0.0, 0.0, -0.0, -0.0], [0.0, -0.0, PI, -PI]),
    (
        _B.ATAN2,
        [INF, INF, -INF, 1, NAN],
        [INF, -INF, 1, -INF, 1],
        [PI / 4, 3 * PI / 4, -PI / 2, PI, NAN],
    ),
    (
        _B.HYPOT,
        [3, 3e38, INF, NAN, 1e-40, NAN, 0.0],
        [4, 1e38, NAN, 1, 0, INF, -0.0],
        [5, 3.1622777e38, INF, NAN, 1e-40, INF, 0.0],
    ),
    (
        _B.REM,
        [-7.5, 7.5, -0.0, 5, 5, INF, 1, 3e38],
        [2, -2, 1, INF, 0, 1, NAN, 3e-39],
        [
            -1.5,
            1.5,
            -0.0,
            5,
            NAN,
            NAN,
            NAN,
            np.fmod(np.float32(3e38), np.float32(3e-39)),
        ],
    ),
    (
        _B.MAX,
        [NAN, 1, -0.0, 0.0, 1e-40, -1e-40],
        [1, NAN, 0.0, -0.0, 0.0, 0.0],
        [NAN, NAN, 0.0, 0.0, 1e-40, 0.0],
    ),
    (
        _B.MIN,
        [NAN, 1, -0.0, 0.0, 1e-40, -1],
        [1, NAN, 0.0, -0.0, 0.0, -2],
        [NAN, NAN, -0.0, -0.0, 0.0, -2],
    ),
    (
        _B.DIV,
        [1, -1, 0.0, INF, 1, 3e38, 1e-38],
        [0.0, 0.0, 0.0, INF, INF, 1e-3, 4],
        [INF, -INF, NAN, NAN, 0.0, INF, 2.5e-39],
    ),
    (
        _B.NEXTAFTER,
        [0.0, 0.0, 1, -0.0, INF],
        [1, -1, 2, 0.0, 0],
        [2.0**-149, -(2.0**-149), 1 + 2.0**-23, 0.0, 3.4028235e38],
    ),
    (_B.COPYSIGN, [1, -1, NAN, 0.0], [-0.0, 1, -1, -1], [-1, 1, NAN, -0.0]),
]


@pytest.fixture(autouse=True)
def _loops_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "iterate", numpy_iterate)


def check(name: str, got: Any, wanted: list[float]) -> None:
    with np.errstate(over="ignore"):
        expected = np.array(wanted).astype(np.float32)
    distance = ulps(np.asarray(got), expected)
    assert distance.max() <= 1, f"{name}: {got}, expected {expected}"


@pytest.mark.parametrize("quality", [Quality.EXACT, Quality.RECIPROCAL], ids=str)
@pytest.mark.parametrize(("op", "x", "wanted"), UNARY, ids=str)
def test_unary(
    op: UnaryOp, x: list[float], wanted: list[float], quality: Quality
) -> None:
    k = NumpyBuilder(quality=quality)
    dtype = dtypes.float32
    value = k.wrap(np.array(x, np.float32), form(dtype))
    check(op.name, lower_unary(k, op, value, dtype).id, wanted)


@pytest.mark.parametrize(("op", "a", "b", "wanted"), BINARY, ids=str)
def test_binary(
    op: BinaryOp, a: list[float], b: list[float], wanted: list[float]
) -> None:
    k = NumpyBuilder()
    dtype = dtypes.float32
    one, other = (k.wrap(np.array(x, np.float32), form(dtype)) for x in (a, b))
    check(op.name, lower_binary(k, op, one, other, dtype).id, wanted)


INTEGERS: list[tuple[BinaryOp, DType, list[int], list[int], list[int]]] = [
    (
        _B.DIV,
        dtypes.int32,
        [-7, 0, 7, -(2**31), 7],
        [0, 0, 0, -1, -2],
        [0, 0, 0, -(2**31), -3],
    ),
    (
        _B.REM,
        dtypes.int32,
        [-7, -1, 7, -6, -(2**31), 5],
        [3, 2, -3, 3, -1, 0],
        [-1, -1, 1, 0, 0, 0],
    ),
    (_B.DIV, dtypes.uint32, [5, 2**32 - 1], [0, 2], [0, 2**31 - 1]),
    (_B.DIV, dtypes.int8, [-128], [-1], [-128]),
    (_B.SHL, dtypes.int32, [1] * 5, [0, 31, 32, 33, -1], [1, -(2**31), 0, 0, 0]),
    (_B.SHR, dtypes.int32, [-8] * 4, [1, 31, 32, 40], [-4, -1, -1, -1]),
    (_B.SHR_LOGICAL, dtypes.uint32, [2**31] * 4, [1, 31, 32, 40], [2**30, 1, 0, 0]),
    (_B.SHL, dtypes.uint8, [255] * 3, [1, 7, 8], [254, 128, 0]),
    (_B.SHR_LOGICAL, dtypes.int8, [-1, -1], [1, 8], [127, 0]),
    (
        _B.POW,
        dtypes.int32,
        [0, 0, 0, 3, 2, -1, -1, 1, 2, -3],
        [0, 1, 64, 4, 32, -3, -2, -5, -1, 3],
        [1, 0, 0, 81, 0, -1, 1, 1, 0, -27],
    ),
    (
        _B.GCD,
        dtypes.int32,
        [12, -12, 0, 0, -(2**31)],
        [18, 18, 5, 0, 0],
        [6, 6, 5, 0, -(2**31)],
    ),
    (_B.GCD, dtypes.int64, [7540113804746346429], [4660046610375530309], [1]),
    (_B.GE_U, dtypes.int32, [-1, 1, 0], [1, -1, 0], [1, 0, 1]),
]


@pytest.mark.parametrize(("op", "dtype", "a", "b", "wanted"), INTEGERS, ids=str)
def test_integers(
    op: BinaryOp, dtype: DType, a: list[int], b: list[int], wanted: list[int]
) -> None:
    k = NumpyBuilder()
    one, other = (k.wrap(np.array(x, dtype.numpy), form(dtype)) for x in (a, b))
    assert lower_binary(k, op, one, other, dtype).id.tolist() == wanted


@pytest.mark.parametrize(
    ("op", "dtype", "x", "wanted"),
    [
        (_U.CLZ, dtypes.int32, [0, 1, -1, 255], [32, 31, 0, 24]),
        (_U.CLZ, dtypes.uint8, [0, 1, 255], [8, 7, 0]),
        (_U.CLZ, dtypes.int64, [0, 1, 2**40, -1], [64, 63, 23, 0]),
        (_U.POPCOUNT, dtypes.int8, [-1, 0, 5], [8, 0, 2]),
        (_U.POPCOUNT, dtypes.uint64, [2**64 - 1, 2**40 + 1], [64, 2]),
        (_U.ABS, dtypes.int8, [-128, -5, 5], [-128, 5, 5]),
        (_U.SIGN, dtypes.int32, [-9, 0, 9], [-1, 0, 1]),
        (_U.NOT, dtypes.uint8, [0, 255], [255, 0]),
        (_U.NEG, dtypes.uint8, [1, 0], [255, 0]),
    ],
    ids=str,
)
def test_integer_bits(
    op: UnaryOp, dtype: DType, x: list[int], wanted: list[int]
) -> None:
    k = NumpyBuilder()
    value = k.wrap(np.array(x, dtype.numpy), form(dtype))
    assert lower_unary(k, op, value, dtype).id.tolist() == wanted


def test_next_after_steps_in_the_own_dtype() -> None:
    k = NumpyBuilder()
    for dtype, step in ((dtypes.float16, 2.0**-10), (dtypes.bfloat16, 2.0**-7)):
        one, two = k.wrap([1.0], form(dtype)), k.wrap([2.0], form(dtype))
        stepped = lower_binary(k, BinaryOp.NEXTAFTER, one, two, dtype)
        assert stepped.id.tolist() == [1 + step]


def test_16_bit_results_round_once() -> None:
    """exp(11) fits f16; its square root of the largest subnormal is normal."""
    k = NumpyBuilder()
    dtype = dtypes.float16
    assert lower_unary(k, UnaryOp.EXP, k.wrap([11.0], form(dtype)), dtype).id == 59872.0
    tiny = k.wrap([6e-8], form(dtype))
    doubled = lower_binary(k, BinaryOp.ADD, tiny, tiny, dtype)
    assert doubled.id == np.float16(6e-8) * np.float16(2)
