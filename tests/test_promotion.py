"""Promotion of dtypes: JAX's lattice with weak types, and 64 bits off by default."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import poot
from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import DTypeError, RangeError
from poot.interpreters.promotion import (
    WeakDType,
    converted,
    dtype_of,
    inexact,
    join,
    promote,
    promote_inexact,
    scalar,
)

NUMBERS: list[Any] = [True, 1, 1.0]
DTYPES = [d for d in dtypes.ALL if d.kind is not dtypes.Kind.STORAGE]


def given_as(x: Any) -> WeakDType:
    return WeakDType(x) if isinstance(x, DType) else dtype_of(x)


@pytest.mark.parametrize("x64", [False, True])
def test_every_pair_meets_where_it_does_in_jax(x64: bool) -> None:
    jax = pytest.importorskip("jax")

    def of_jax(x: Any) -> Any:
        return jax.ShapeDtypeStruct((), x.numpy) if isinstance(x, DType) else x

    with jax.enable_x64(x64), poot.config.override(enable_x64=x64):
        for x, y in itertools.product([*DTYPES, *NUMBERS], repeat=2):
            wide = [d for d in (x, y) if isinstance(d, DType) and d.itemsize == 8]
            if wide and not x64:
                continue
            structs = [of_jax(v) for v in (x, y)]
            traced = [v for v in structs if isinstance(v, jax.ShapeDtypeStruct)]

            def add(*values: Any, structs: Any = structs) -> Any:
                remaining = iter(values)
                a, b = (
                    next(remaining) if isinstance(v, jax.ShapeDtypeStruct) else v
                    for v in structs
                )
                return jax.numpy.add(a, b)

            expected = jax.eval_shape(add, *traced)
            found = join([given_as(x), given_as(y)])
            assert found.dtype.numpy == expected.dtype, (x, y)
            assert found.weak == expected.weak_type, (x, y)


def test_joining_is_commutative_and_idempotent() -> None:
    all_given = [WeakDType(d) for d in DTYPES] + [dtype_of(x) for x in NUMBERS]
    for x, y in itertools.product(all_given, repeat=2):
        assert join([x, y]) == join([y, x])
    for x in all_given:
        assert join([x, x, x]) == x


def test_explicit_64_bits_stay_without_the_setting() -> None:
    wide, narrow = WeakDType(dtypes.int64), WeakDType(dtypes.int32)
    assert join([wide, narrow]).dtype is dtypes.int64
    assert join([wide, dtype_of(1)]).dtype is dtypes.int64
    assert join([WeakDType(dtypes.float64), dtype_of(1.5)]).dtype is dtypes.float64
    assert join([WeakDType(dtypes.uint32), narrow]).dtype is dtypes.int32


def test_storage_dtypes_have_no_common_dtype_with_floats() -> None:
    f8 = WeakDType(dtypes.float8_e4m3fn)
    assert join([f8, dtype_of(1.0)]).dtype is dtypes.float8_e4m3fn
    with pytest.raises(DTypeError, match="f32 and f8e4m3fn have no common dtype"):
        join([f8, WeakDType(dtypes.float32)])
    with pytest.raises(DTypeError, match="for storage only"):
        inexact(dtypes.float8_e4m3fn)


def test_numbers_become_scalars_of_the_common_dtype() -> None:
    x = poot.device_put(np.ones(2, np.float16))
    promoted = promote("add", x, 0.1)
    assert promoted.operands[0] is x
    assert promoted.operands[1] == Scalar.of(0.1, dtypes.float16)
    assert promoted.dtype is dtypes.float16 and not promoted.weak
    both = promote("add", 1, 2.0)
    assert both.operands == tuple(Scalar.of(v, dtypes.float32) for v in (1, 2))
    assert both.weak
    sine = promote_inexact("sin", poot.device_put(np.ones(2, np.int8)))
    assert sine.dtype is dtypes.float32 and sine.operands[0].dtype == np.float32
    assert converted(np.float32(2), dtypes.float16) == Scalar.of(2, dtypes.float16)


def test_python_ints_wrap_or_are_refused() -> None:
    assert scalar(300, dtypes.uint8).value == 44
    assert scalar(-1, dtypes.uint8).value == 255
    assert scalar(2**32 - 1, dtypes.uint32).value == 2**32 - 1
    assert scalar(2**100, dtypes.float32).value == 2.0**100
    for value, dtype in ((2**40, dtypes.int32), (2**40, dtypes.uint8)):
        with pytest.raises(RangeError, match="fits neither"):
            scalar(value, dtype)
    with pytest.raises(RangeError, match="too large for f32"):
        scalar(10**400, dtypes.float32)
    with poot.config.override(enable_x64=True):
        assert scalar(2**40, dtypes.int32).value == 0


def test_what_is_no_operand() -> None:
    for bad, name in (([1], "list"), ("a", "str"), (None, "NoneType"), (1j, "complex")):
        with pytest.raises(DTypeError, match=f"add takes .*, given {name}"):
            promote("add", 1.0, bad)
