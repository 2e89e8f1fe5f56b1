"""How far poot's functions are from the true values, over their whole domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from tests.math_sweep import BINARY, UNARY, Function, is_slow, quick, sweep
from tests.numpy_builder import Quality

# A device that keeps subnormals and divides well, and two that flush them and divide as
# badly as Vulkan allows; the last rounds a product and its sum at once.
DEVICES = [
    pytest.param(True, Quality.RECIPROCAL, False, id="keeps"),
    pytest.param(False, Quality.ROUGH, False, id="flushes"),
    pytest.param(False, Quality.ROUGH, True, id="fuses"),
    pytest.param(True, Quality.ROUGH, True, id="keeps-fuses"),
]
pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="no wider float than f64 to compare with"
)


def check(
    function: Function,
    dtype: DType,
    count: int,
    keeps: bool,
    quality: Quality,
    fuses: bool = False,
) -> None:
    errors, got, xs = sweep(function, dtype, count, keeps, quality, fuses)
    bound = function.ulps64 if dtype is dtypes.float64 else function.ulps32
    worst = np.argsort(-errors)[:5]
    shown = [(*(x[i] for x in xs), got[i], float(errors[i])) for i in worst]
    assert errors.max() <= bound, f"{function} {dtype}: operands, result, ulps: {shown}"


@pytest.mark.parametrize(("keeps", "quality", "fuses"), DEVICES)
@pytest.mark.parametrize("function", UNARY + BINARY, ids=str)
def test_single_precision(
    function: Function, keeps: bool, quality: Quality, fuses: bool
) -> None:
    count = 1 << 12 if is_slow(function) else 1 << 16
    check(function, dtypes.float32, count, keeps, quality, fuses)


@pytest.mark.parametrize("quality", [Quality.RECIPROCAL, Quality.ROUGH], ids=str)
@pytest.mark.parametrize("function", UNARY + BINARY, ids=str)
def test_double_precision(function: Function, quality: Quality) -> None:
    count = 1 << 10 if is_slow(function) else 1 << 14
    check(function, dtypes.float64, count, True, quality)


@pytest.mark.slow
@pytest.mark.parametrize("function", UNARY + BINARY, ids=str)
def test_single_precision_densely(function: Function) -> None:
    count = 1 << 18 if is_slow(function) else 1 << 20
    check(quick(function), dtypes.float32, count, True, Quality.ROUGH)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("op", [UnaryOp.LGAMMA, UnaryOp.DIGAMMA], ids=str)
def test_gamma_functions_next_to_their_poles(
    op: UnaryOp, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And to their zeros, which are there on the left."""
    (function,) = (f for f in UNARY if f.op is op)
    rng = np.random.default_rng(6)
    count = 1 << 12
    pole = -np.rint(10.0 ** rng.uniform(-0.5, 3, count))
    distance = 10.0 ** rng.uniform(-10, 0, count) * rng.choice([-1, 1], count)
    given = (pole + distance).astype(dtype.numpy)
    monkeypatch.setattr("tests.math_sweep.points", lambda *_: given)
    for fuses in (False, True) if dtype is dtypes.float32 else (False,):
        check(function, dtype, 0, True, Quality.ROUGH, fuses)


@pytest.mark.parametrize("exponent", [-126, 127])
@pytest.mark.parametrize(("keeps", "quality", "fuses"), DEVICES)
def test_quotients_at_the_ends_of_the_range(
    keeps: bool,
    quality: Quality,
    fuses: bool,
    exponent: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of fractions a few units apart: next to the smallest normal number and 2**127."""
    (divide,) = (f for f in BINARY if f.op is BinaryOp.DIV)
    rng = np.random.default_rng(7)
    count = 1 << 14
    unit = np.float32(2.0**-23)
    b = rng.uniform(1, 2, count).astype(np.float32)
    b[::2] = 2 - rng.integers(1, 16, count // 2) * unit
    a = b + rng.integers(-4, 5, count).astype(np.float32) * unit
    # Powers of two with which a and b are normal.
    low, high = max(-125, -125 - exponent), min(126, 126 - exponent)
    power = rng.integers(low, high + 1, count)
    signs = rng.choice([-1, 1], count).astype(np.float32)
    given = np.ldexp(a * signs, power + exponent), np.ldexp(b, power)
    monkeypatch.setattr("tests.math_sweep.pairs", lambda *_: given)
    check(divide, dtypes.float32, 0, keeps, quality, fuses)


def _powers_near_overflow(dtype: DType) -> tuple[Any, Any]:
    """Bases and exponents whose powers cover the whole range of the dtype."""
    rng = np.random.default_rng(5)
    span = np.finfo(dtype.numpy).maxexp
    count = 1 << 15
    near_one = 1 + rng.uniform(-1, 1, count) * 10.0 ** rng.uniform(-6, 0, count)
    base = np.concatenate([near_one, 10.0 ** rng.uniform(-30, 30, count)])
    with np.errstate(divide="ignore"):
        exponent = rng.uniform(-1.15 * span, 1.05 * span, len(base)) / np.log2(base)
    whole = rng.random(len(base)) < 0.2
    exponent = np.where(whole, np.rint(exponent), exponent)
    return np.where(whole, -base, base), exponent


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_powers_of_every_size(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = (f for f in BINARY if f.op is BinaryOp.POW)
    given = tuple(x.astype(dtype.numpy) for x in _powers_near_overflow(dtype))
    monkeypatch.setattr("tests.math_sweep.pairs", lambda *_: given)
    check(function, dtype, 0, True, Quality.ROUGH)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("op", [UnaryOp.SIN, UnaryOp.COS, UnaryOp.TAN], ids=str)
def test_angles_next_to_multiples_of_half_pi(
    op: UnaryOp, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (function,) = (f for f in UNARY if f.op is op)
    multiples = np.arange(1, 1 << 16, 3, dtype=np.longdouble) ** 2
    half_pi = np.longdouble("1.57079632679489661923")
    given = (multiples * half_pi).astype(dtype.numpy)
    # The double that is closest to a multiple of pi/2.
    hardest = 6381956970095103.0 * 2.0**797 if dtype is dtypes.float64 else 16367173e10
    given = np.append(given, dtype.numpy.type(hardest))
    monkeypatch.setattr("tests.math_sweep.points", lambda *_: given)
    check(function, dtype, 0, True, Quality.ROUGH)
