"""Dtypes, scalars and tensor types."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import ALL, DType, Scalar, as_dtype, by_name
from poot.core.errors import DTypeError, ShapeError
from poot.core.types import TensorType


@pytest.mark.parametrize("dtype", ALL, ids=repr)
def test_a_dtype_is_found_by_name_and_by_numpy(dtype):
    assert by_name(dtype.name) is dtype
    assert as_dtype(dtype.numpy) is dtype
    assert as_dtype(dtype.numpy.type) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    assert dtype.bits == 8 * dtype.numpy.itemsize


def test_byte_order_does_not_matter():
    assert as_dtype(np.dtype(">f4")) is dtypes.float32


@pytest.mark.parametrize("given", [np.complex64, "S3", np.dtype("M8[s]"), object])
def test_unsupported_dtypes(given):
    with pytest.raises(DTypeError, match="is not supported; supported: bool"):
        as_dtype(given)


def test_things_that_are_no_dtype():
    with pytest.raises(DTypeError, match="is no dtype"):
        as_dtype("float33")
    with pytest.raises(DTypeError, match="no dtype is called 'f33'; known: bool"):
        by_name("f33")


@pytest.mark.parametrize(
    ("dtype", "compute"),
    [
        (dtypes.float16, dtypes.float32),
        (dtypes.bfloat16, dtypes.float32),
        (dtypes.float64, dtypes.float64),
        (dtypes.int8, dtypes.int8),
    ],
    ids=str,
)
def test_compute_dtype(dtype: DType, compute: DType):
    assert dtype.compute is compute


def test_kinds_are_disjoint():
    for dtype in ALL:
        kinds = [dtype.is_bool, dtype.is_integer, dtype.is_float]
        assert sum(kinds) <= 1
        assert dtype.is_integer == (dtype.is_signed or dtype.is_unsigned)


def test_scalars_compare_by_bits():
    f32 = dtypes.float32
    assert Scalar.of(0.0, f32) != Scalar.of(-0.0, f32)
    assert Scalar.of(float("nan"), f32) == Scalar.of(float("nan"), f32)
    assert Scalar.of(1, f32) != Scalar.of(1, dtypes.int32)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (300, dtypes.int8, 44),
        (-1, dtypes.uint64, 2**64 - 1),
        (2**63, dtypes.int64, -(2**63)),
        (1e6, dtypes.float16, float("inf")),
        (0.1, dtypes.float32, float(np.float32(0.1))),
        (257.0, dtypes.bfloat16, 256.0),
        (np.int64(-5), dtypes.uint8, 251),
        (True, dtypes.float16, 1.0),
        (2, dtypes.bool_, True),
    ],
)
def test_scalar_rounds_and_wraps(value, dtype, expected):
    assert Scalar.of(value, dtype).value == expected


def test_scalar_array():
    array = Scalar.of(1.5, dtypes.bfloat16).array
    assert array.dtype == ml_dtypes.bfloat16
    assert array.shape == ()
    assert array == 1.5


def test_tensor_types():
    type = TensorType((2, 0, 3), dtypes.float16)
    assert type.size == 0
    assert TensorType((2, 3), dtypes.float16).size_bytes == 12
    assert TensorType((), dtypes.bool_).size == 1
    assert str(TensorType((2, 3), dtypes.float16)) == "f16[2,3]"
    with pytest.raises(ShapeError, match="no negative sizes"):
        TensorType((2, -1), dtypes.float32)
