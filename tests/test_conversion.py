"""Conversions round once, wherever they happen, against exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot import numpy as pnp
from poot.core import dtypes
from poot.core.conversion import convert
from poot.core.dtypes import DType, Scalar
from poot.core.ops.elementwise import Cast
from tests import op_references as ref
from tests.kernel_harness import one_op, run_graph
from tests.numerics import Array, assert_same_bits, rng_of

SMALL = (
    dtypes.float32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float8_e4m3fn,
    dtypes.float8_e5m2,
)
PRECISION = {"f32": 24, "f16": 11, "bf16": 8, "f8e4m3fn": 4, "f8e5m2": 3}
WIDE = (dtypes.float64, dtypes.int64, dtypes.uint64, dtypes.int32, dtypes.uint32)


def near_ties(source: DType, target: DType) -> Array:
    """Numbers at and next to the midpoints of the target, as near as the source has."""
    rng = rng_of(f"{source}{target}")
    precision = PRECISION[target.name]
    top = source.bits if source.is_integer else 40
    halves = [
        (2 * int(rng.integers(1 << precision - 1, 1 << precision)) + 1, int(shift))
        for shift in rng.integers(0 if source.is_integer else -40, top, 300)
    ]
    numbers: list[Any] = []
    for odd, shift in halves:
        if source.is_integer:
            middle = odd << shift
            numbers += [middle - 1, middle, middle + 1]
        else:
            exact = float(odd) * 2.0**shift
            numbers += [exact, *(exact * (1 + way * 2.0**-52) for way in (-2, 1))]
    if source.is_integer:
        numbers = [n for n in numbers if n <= np.iinfo(source.numpy).max]
    return np.array(numbers, source.numpy)


PAIRS = [
    pytest.param(source, target, id=f"{source}-{target}")
    for source in WIDE
    for target in SMALL
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_conversions_round_once(source: DType, target: DType) -> None:
    x = near_ties(source, target)
    assert x.size > 50
    exact = ref.convert(x, target)
    with np.errstate(all="ignore"):
        assert_same_bits(convert(x, target.numpy), exact, "host")
    literals = [Scalar.of(number, target).bits for number in x.tolist()]
    bits = np.array(literals, f"u{target.itemsize}").view(target.numpy)
    assert_same_bits(bits, exact, "literals")
    graph = one_op(Cast(target), x)
    assert_same_bits(poot.evaluate(graph, x)[0], exact, "oracle")
    assert_same_bits(run_graph(graph, [x])[0], exact, "device")


@pytest.mark.parametrize("target", SMALL, ids=str)
def test_an_explicit_dtype_rounds_input_once(target: DType) -> None:
    x = near_ties(dtypes.float64, target)
    exact = ref.convert(x, target)
    assert_same_bits(pnp.asarray(x, target.numpy), exact)
    assert_same_bits(pnp.array(x.tolist(), target.numpy), exact)
    assert_same_bits(pnp.asarray(x[0], target.numpy), exact[0])


def test_an_explicit_dtype_sees_all_64_bits_of_input() -> None:
    large = np.array([2**40, -(2**62)])
    result = np.asarray(pnp.asarray(large, np.float32))
    np.testing.assert_array_equal(result, large.astype(np.float32))
    below = np.array([2.9999999999, 1e10, np.nan])
    assert pnp.asarray(below, np.int32).tolist() == [2, 2**31 - 1, 0]
    assert pnp.array(below.tolist(), np.int32).tolist() == [2, 2**31 - 1, 0]
    assert pnp.asarray(float(below[0]), np.int32).item() == 2


def test_literals_of_large_ints_round_once() -> None:
    # By way of f64 it would be a tie, which rounds down.
    odd = 2**60 + 2**36 + 1
    assert Scalar.of(odd, dtypes.float32).value == 2**60 + 2**37
    assert Scalar.of(-odd, dtypes.float32).value == -(2**60) - 2**37
    assert Scalar.of(2**60 + 2**36, dtypes.float32).value == 2**60
    assert Scalar.of(odd, dtypes.float64).value == float(odd)
    zeros = pnp.zeros(1, np.float32)
    assert (zeros + odd).item() == 2**60 + 2**37
    assert poot.jit(lambda x: x + odd)(zeros).item() == 2**60 + 2**37


def test_what_is_no_number_is_refused() -> None:
    for given in (np.array(["a"]), np.array([1j]), np.str_("a"), np.complex64(1)):
        with pytest.raises(poot.errors.DTypeError):
            pnp.asarray(given, np.float32)
