"""Functions that have one right answer: casts, integers, and what looks at bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import MissingRule
from poot.core.op import PrimitiveKey
from poot.core.ops.elementwise import (
    BINARY_KINDS,
    UNARY_KINDS,
    Binary,
    BinaryOp,
    Cast,
    Unary,
    UnaryOp,
)
from poot.core.oracle.evaluate import evaluate
from poot.core.types import TensorType
from poot.lowering.kernels.math import (
    cast,
    form,
    loops,
    lower_binary,
    lower_unary,
    pack16,
    pack_pair,
    round_to,
    unpack16,
    unpack_pair,
)
from poot.lowering.kernels.math.tables import (
    bool_binary,
    bool_unary,
    float_binary,
    float_unary,
    integer_binary,
    integer_unary,
)
from poot.lowering.spirv.types import F32, U32
from poot.lowering.spirv.value import Value
from poot.vulkan.probe_rounding import hard_quotients, hard_squares
from tests.kernel_harness import one_op
from tests.numerics import (
    Array,
    assert_same_bits,
    flushed,
    random_bits,
    rng_of,
    special_values,
)
from tests.numpy_builder import NumpyBuilder, Quality, numpy_iterate

INTEGERS = [dtype for dtype in dtypes.ALL if dtype.is_integer]
FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float]
HALVES = [dtypes.float16, dtypes.bfloat16]
ALL = [dtypes.bool_, *INTEGERS, *FLOATS]


@pytest.fixture(autouse=True)
def _loops_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "iterate", numpy_iterate)


def to_compute_form(k: NumpyBuilder, x: Array) -> Value:
    dtype = dtypes.as_dtype(x.dtype)
    wide = x.astype(np.float32) if dtype in HALVES else x
    return k.wrap(wide, form(dtype))


def from_compute_form(value: Value, dtype: DType) -> Array:
    """The array; every element must be a number of the dtype."""
    with np.errstate(all="ignore"):
        narrow = np.asarray(value.id).astype(dtype.numpy)
        back = narrow.astype(value.id.dtype)
        same = (back == value.id) | ((back != back) & (value.id != value.id))
    assert same.all(), f"not rounded to {dtype}: {value.id[~same][:5]}"
    return narrow


def sample(name: str, dtype: DType, count: int = 1 << 12) -> Array:
    """Special values, any bits, and small numbers."""
    rng = rng_of(name)
    bits = random_bits(rng, TensorType((count,), dtype))
    if dtype.is_bool:
        return bits
    low = -130.0 if not dtype.is_unsigned else 0.0
    small = rng.uniform(low, 130.0, count).astype(dtype.numpy)
    return np.concatenate([special_values(dtype), bits, small])


# --- integers and bits against the oracle -----------------------------------


def exact_unary() -> list[tuple[UnaryOp, DType]]:
    of_bits = [op for op in UnaryOp if op.value in ("neg", "abs", "sign", "not")]
    of_bits += [UnaryOp.CLZ, UnaryOp.POPCOUNT, UnaryOp.ISNAN, UnaryOp.ISINF]
    of_bits += [UnaryOp.ISFINITE, UnaryOp.SIGNBIT, UnaryOp.FLOOR, UnaryOp.CEIL]
    of_bits += [UnaryOp.TRUNC, UnaryOp.ROUND, UnaryOp.SQRT, UnaryOp.RECIP]
    floats = {dtypes.Kind.FLOAT}
    return [
        (op, dtype)
        for op in of_bits
        for dtype in ALL
        if dtype.kind in UNARY_KINDS.get(op, floats)
    ]


@pytest.mark.parametrize(("op", "dtype"), exact_unary(), ids=str)
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps", "flushes"])
def test_unary(op: UnaryOp, dtype: DType, keeps: bool) -> None:
    x = sample(f"{op}{dtype}", dtype)
    k = NumpyBuilder(keeps_subnormals=keeps, quality=Quality.ROUGH)
    result = lower_unary(k, op, to_compute_form(k, x), dtype)
    graph = one_op(Unary(op), x)
    (expected,) = evaluate(graph, x, flush=not keeps)
    got = from_compute_form(result, dtypes.as_dtype(expected.dtype))
    assert_same_bits(got, expected, f"{op} {dtype}")


_INEXACT = (BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.HYPOT)


def exact_binary() -> list[tuple[BinaryOp, DType]]:
    floats = {dtypes.Kind.FLOAT}
    return [
        (op, dtype)
        for op in BinaryOp
        for dtype in ALL
        if dtype.kind in BINARY_KINDS.get(op, floats)
        and not (dtype.is_float and op in _INEXACT)
    ]


@pytest.mark.parametrize(("op", "dtype"), exact_binary(), ids=str)
def test_binary(op: BinaryOp, dtype: DType) -> None:
    special = special_values(dtype)
    one, other = (x.ravel() for x in np.meshgrid(special, special))
    a = np.concatenate([one, sample(f"{op}{dtype}", dtype, 1 << 11)])
    b = np.concatenate([other, sample(f"{dtype}{op}", dtype, 1 << 11)[::-1]])
    k = NumpyBuilder(quality=Quality.ROUGH)
    values = to_compute_form(k, a), to_compute_form(k, b)
    result = lower_binary(k, op, *values, dtype)
    with np.errstate(all="ignore"):
        (expected,) = evaluate(one_op(Binary(op), a, b), a, b)
    assert_same_bits(from_compute_form(result, dtype), expected, f"{op} {dtype}")


# --- division ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("quality", Quality, ids=str)
def test_quotients_next_to_ties(dtype: DType, quality: Quality) -> None:
    """Dividends next to the products of a divisor with a midpoint of two floats."""
    rng = np.random.default_rng(3)
    bits, count = np.finfo(dtype.numpy).nmant, 1 << 15
    divisor = rng.uniform(1, 2, count).astype(dtype.numpy)
    nearby = (rng.uniform(1, 2, count)).astype(dtype.numpy)
    midpoint = nearby.astype(np.longdouble) + np.longdouble(2.0) ** (-bits - 1)
    dividend = (divisor.astype(np.longdouble) * midpoint).astype(dtype.numpy)
    # Also so small that the quotients are subnormal, and ties may be true ones.
    shift = rng.choice([0, np.finfo(dtype.numpy).minexp - 3], count)
    dividend = np.ldexp(dividend, shift // 2).astype(dtype.numpy)
    divisor = np.ldexp(divisor, shift // 2 - shift).astype(dtype.numpy)
    k = NumpyBuilder(quality=quality)
    values = k.wrap(dividend, form(dtype)), k.wrap(divisor, form(dtype))
    result = lower_binary(k, BinaryOp.DIV, *values, dtype)
    with np.errstate(all="ignore"):
        assert_same_bits(np.asarray(result.id), dividend / divisor)


@pytest.mark.parametrize("quality", Quality, ids=str)
def test_fused_quotients(quality: Quality) -> None:
    """The hardest dividends there are, all of 1, and the largest divisors."""
    dividend, divisor = hard_quotients(1 << 16)
    rng = np.random.default_rng(4)
    nearby = np.float32(2) - np.ldexp(rng.integers(1, 64, 1 << 12), -23)
    above = np.ldexp(rng.integers(1 << 23, 1 << 24, 1 << 12), -23)
    a = np.concatenate([dividend, np.ones(1 << 16), above]).astype(np.float32)
    divisors = rng.integers(1 << 23, 1 << 24, 1 << 16).astype(np.float32)
    b = np.concatenate([divisor, divisors, nearby]).astype(np.float32)
    k = NumpyBuilder(keeps_subnormals=False, quality=quality, fuses=True)
    values = k.wrap(a, form(dtypes.float32)), k.wrap(b, form(dtypes.float32))
    result = lower_binary(k, BinaryOp.DIV, *values, dtypes.float32)
    with np.errstate(all="ignore"):
        expected = flushed(flushed(a) / flushed(b), edge=True)
    assert_same_bits(flushed(np.asarray(result.id), edge=True), expected)


@pytest.mark.parametrize("quality", Quality, ids=str)
def test_fused_roots(quality: Quality) -> None:
    """The hardest radicands, and all significands next to powers of two."""
    last = np.arange(1 << 12, dtype=np.float32) * 2.0**-23
    near = np.concatenate([1 + last, 2 - last, 2 + 2 * last, 4 - 2 * last])
    x = np.concatenate([hard_squares(1 << 16), near.astype(np.float32)])
    k = NumpyBuilder(keeps_subnormals=False, quality=quality, fuses=True)
    value = k.wrap(x, form(dtypes.float32))
    result = lower_unary(k, UnaryOp.SQRT, value, dtypes.float32)
    with np.errstate(all="ignore"):
        assert_same_bits(np.asarray(result.id), np.sqrt(x))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_subnormal_quotients(dtype: DType) -> None:
    """Every small significand over powers of two: ties that must go to even."""
    tiny = np.finfo(dtype.numpy).tiny
    significands = 1 + np.arange(1 << 10) / 1024
    dividend = (significands[:, None] * np.full(40, float(tiny))).astype(dtype.numpy)
    divisor = np.ldexp(np.ones(40), np.arange(40)).astype(dtype.numpy)
    divisor = np.broadcast_to(divisor, dividend.shape)
    k = NumpyBuilder(quality=Quality.ROUGH)
    values = k.wrap(dividend, form(dtype)), k.wrap(divisor, form(dtype))
    result = lower_binary(k, BinaryOp.DIV, *values, dtype)
    assert_same_bits(np.asarray(result.id), dividend / divisor)


# --- casts ------------------------------------------------------------------


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps", "flushes"])
def test_cast(source: DType, target: DType, keeps: bool) -> None:
    x = np.concatenate([sample(f"{source}{target}", source), _near_ties(source)])
    k = NumpyBuilder(keeps_subnormals=keeps)
    result = cast(k, to_compute_form(k, x), source, target)
    with np.errstate(all="ignore"):
        (expected,) = evaluate(one_op(Cast(target), x), x)
    assert_same_bits(from_compute_form(result, target), expected, f"to {target}")


def _near_ties(dtype: DType) -> Array:
    """Numbers around the midpoints of narrower floats, of every size."""
    if dtype.is_bool or dtype.bits < 32:
        return np.zeros(0, dtype.numpy)
    near = []
    for exponent, kept in itertools.product(range(-150, 130, 3), (8, 11, 24)):
        middle = 2.0**exponent * (1 + 2.0**-kept)
        near += [middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)]
    if dtype.is_integer:
        top = float(np.iinfo(dtype.numpy).max) / 2
        whole = [
            int(value) + more for value in near if 1 < value < top for more in (0, 1)
        ]
        return np.array(whole, dtype.numpy)
    with np.errstate(all="ignore"):
        return np.array(near).astype(dtype.numpy)


def test_cast_saturates() -> None:
    """The values that were decided on for every backend."""
    x = [300, -1, -300, 1e10, -1e10, np.nan, np.inf, -np.inf, 255.9, 2.0**31]
    low, high = -(2**31), 2**31 - 1
    expected = {
        dtypes.uint8: [255, 0, 0, 255, 0, 0, 255, 0, 255, 255],
        dtypes.int32: [300, -1, -300, high, low, 0, high, low, 255, high],
    }
    k = NumpyBuilder()
    for target, wanted in expected.items():
        value = k.wrap(np.array(x, np.float32), F32)
        assert cast(k, value, dtypes.float32, target).id.tolist() == wanted
    truths = cast(
        k, k.wrap([np.nan, 0, -0.0, 1e-45], F32), dtypes.float32, dtypes.bool_
    )
    assert truths.id.tolist() == [True, False, False, True]
    wrapped = cast(k, k.wrap([300], form(dtypes.int32)), dtypes.int32, dtypes.uint8)
    assert wrapped.id.tolist() == [44]


BUILDERS = {
    "keeps": {"keeps_subnormals": True},
    "flushes": {"keeps_subnormals": False},
    "converts": {"converts": True},
}


def assert_same_signs(actual: Array, expected: Array) -> None:
    """Bit for bit but for the payloads of NaNs, whose signs count."""
    assert_same_bits(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("builder", BUILDERS)
def test_every_16_bit_float_survives(dtype: DType, builder: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint32)
    expected = bits.astype(np.uint16).view(dtype.numpy)
    k = NumpyBuilder(**BUILDERS[builder])
    number = unpack16(k, k.wrap(bits, U32), dtype)
    assert_same_signs(np.asarray(number.id), expected.astype(np.float32))
    packed = pack16(k, number, dtype).id.astype(np.uint16).view(dtype.numpy)
    assert_same_signs(packed, expected)
    rounded = from_compute_form(round_to(k, number, dtype), dtype)
    assert_same_signs(rounded, expected)
    words = bits[::2] | bits[1::2] << 16
    pair = unpack_pair(k, k.wrap(words, U32), dtype)
    for half, first in zip(pair, (0, 1), strict=True):
        assert_same_signs(half.id, expected[first::2].astype(np.float32))
    again = np.ascontiguousarray(pack_pair(k, *pair, dtype).id).view(dtype.numpy)
    assert_same_signs(again, expected)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("converts", [True, False], ids=["converts", "calculates"])
def test_rounding_to_16_bits(dtype: DType, converts: bool) -> None:
    """All halfway cases of the format, their neighbours, and any other bits."""
    step = 1 << 13 if dtype is dtypes.float16 else 1 << 16
    every = np.arange(0, 1 << 32, step, dtype=np.uint64)
    around = [every + step // 2, every + step // 2 - 1, every + step // 2 + 1]
    any_bits = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, np.uint64)
    bits = np.concatenate([*around, every + 1, any_bits]).astype(np.uint32)
    x = bits.view(np.float32)
    k = NumpyBuilder(converts=converts)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype.numpy)
    packed = pack16(k, k.wrap(x, F32), dtype).id.astype(np.uint16)
    assert_same_signs(packed.view(dtype.numpy), expected)
    rounded = from_compute_form(round_to(k, k.wrap(x, F32), dtype), dtype)
    assert_same_signs(rounded, expected)
    halves = [k.wrap(part, F32) for part in x.reshape(-1, 2).T]
    words = np.ascontiguousarray(pack_pair(k, *halves, dtype).id)
    assert_same_signs(words.view(dtype.numpy), expected)


# --- tables -----------------------------------------------------------------


def test_every_member_has_a_function_for_each_dtype_it_takes() -> None:
    by_kind = {
        dtypes.Kind.FLOAT: (float_unary, float_binary),
        dtypes.Kind.INT: (integer_unary, integer_binary),
        dtypes.Kind.UINT: (integer_unary, integer_binary),
        dtypes.Kind.BOOL: (bool_unary, bool_binary),
    }
    floats = frozenset({dtypes.Kind.FLOAT})
    missing: list[PrimitiveKey] = []
    for op in UnaryOp:
        for kind in UNARY_KINDS.get(op, floats):
            missing += [Unary[op]] * (Unary[op] not in by_kind[kind][0])
    for op in BinaryOp:
        for kind in BINARY_KINDS.get(op, floats):
            missing += [Binary[op]] * (Binary[op] not in by_kind[kind][1])
    assert not missing


def test_a_missing_function_is_named() -> None:
    k = NumpyBuilder()
    one = k.wrap(True, form(dtypes.bool_))
    with pytest.raises(MissingRule, match=r"Unary\[EXP\].*math\.bool_unary"):
        lower_unary(k, UnaryOp.EXP, one, dtypes.bool_)
