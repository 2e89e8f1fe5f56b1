"""Arrays among other libraries: DLPack, and the array API standard's namespace."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import poot
from poot import numpy as pnp
from poot.core.errors import ArgumentError
from poot.interpreters.backend import Backend
from tests.backends import device_backend, each_backend

__all__ = ["each_backend"]

DTYPES = ["bool", "int8", "uint16", "int32", "uint32", "float16", "float32"]


class OldConsumer:
    """Hands on an array as libraries do that speak DLPack before 1.0."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def shares_memory() -> bool:
    backend = device_backend()
    return backend is None or backend.info.is_cpu


# --- DLPack out -------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_numpy_reads_arrays(each_backend: Backend, dtype: str, shape) -> None:
    expected = (np.arange(6) % 2).astype(dtype)[: int(np.prod(shape))].reshape(shape)
    array = poot.device_put(expected)
    viewed = np.from_dlpack(array)
    assert (viewed.shape, viewed.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(viewed, expected)
    assert not viewed.flags.writeable or not shares_memory()


@pytest.mark.skipif(not shares_memory(), reason="the host does not see device memory")
def test_shared_memory_is_not_copied(each_backend: Backend) -> None:
    array = pnp.arange(1000.0) + 1
    one, other = np.from_dlpack(array), np.from_dlpack(array)
    assert np.shares_memory(one, other)
    assert not np.shares_memory(one, np.from_dlpack(array, copy=True))
    assert np.from_dlpack(array, copy=True).flags.writeable


def test_what_was_exported_stays(each_backend: Backend) -> None:
    """Deleting, dropping and donating the array change nothing of the view."""
    arrays = [pnp.arange(64) + k for k in range(3)]
    views = [np.from_dlpack(array) for array in arrays]
    arrays[0].delete()
    doubled = poot.jit(lambda x: x * 2, donate_argnums=0)(arrays[1])
    arrays.clear()
    gc.collect()
    others = [pnp.full((64,), -1) for _ in range(8)]
    poot.block_until_ready(others)
    for k, view in enumerate(views):
        np.testing.assert_array_equal(view, np.arange(64) + k)
    np.testing.assert_array_equal(doubled, 2 * (np.arange(64) + 1))


def test_a_consumer_that_may_write_gets_a_copy(each_backend: Backend) -> None:
    array = pnp.arange(5)
    taken = np.from_dlpack(OldConsumer(array))
    np.testing.assert_array_equal(taken, np.arange(5))
    assert not np.shares_memory(taken, np.from_dlpack(array))


def test_jax_reads_arrays(each_backend: Backend) -> None:
    jax = pytest.importorskip("jax")
    array = pnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jax.numpy.from_dlpack(array), np.asarray(array))


def test_torch_reads_arrays(each_backend: Backend) -> None:
    torch = pytest.importorskip("torch")
    array = pnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(torch.from_dlpack(array).numpy(), np.asarray(array))


def test_results_that_are_not_there_yet_are_waited_for(each_backend: Backend) -> None:
    x = pnp.ones((1 << 16,))
    for _ in range(20):
        x = x * 1.0 + 1.0
    assert np.from_dlpack(x).max() == 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": 1}, "has no streams"),
        ({"dl_device": (2, 0)}, r"to device \(1, 0\), not \(2, 0\)"),
        ({"copy": False}, "cannot be exported without a copy"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BufferError, match=message):
        pnp.arange(3).__dlpack__(**options)


@pytest.mark.parametrize("dtype", [pnp.bfloat16, pnp.float8_e5m2])
def test_dtypes_that_numpy_exports_not(dtype: Any) -> None:
    with pytest.raises(BufferError, match="NumPy's DLPack does not know"):
        pnp.zeros(3, dtype).__dlpack__()


def test_device() -> None:
    array = pnp.arange(3)
    assert array.__dlpack_device__() == (1, 0)
    assert array.to_device(array.device) is array
    with pytest.raises(ArgumentError, match="poot runs on one device"):
        array.to_device("cuda")


# --- DLPack in --------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_numpy(each_backend: Backend, dtype: str) -> None:
    given = np.arange(24).reshape(2, 3, 4).astype(dtype)[:, ::-1, ::2]
    taken = pnp.from_dlpack(given)
    assert isinstance(taken, poot.Array)
    assert taken.dtype == given.dtype
    np.testing.assert_array_equal(taken, given)


def test_from_jax(each_backend: Backend) -> None:
    jax = pytest.importorskip("jax")
    given = jax.numpy.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(pnp.from_dlpack(given), np.asarray(given))


def test_64_bits_follow_the_setting() -> None:
    given = np.arange(3, dtype=np.int64)
    assert pnp.from_dlpack(given).dtype == np.int32
    with poot.config.override(enable_x64=True):
        assert pnp.from_dlpack(given).dtype == np.int64


def test_own_arrays_come_back() -> None:
    array = pnp.arange(3)
    assert pnp.from_dlpack(array) is array
    assert pnp.from_dlpack(array, copy=True) is not array
    traced = poot.jit(lambda x: pnp.from_dlpack(x, copy=False) + 1)(array)
    np.testing.assert_array_equal(traced, [1, 2, 3])


def test_from_dlpack_refuses() -> None:
    with pytest.raises(ArgumentError, match="a list has no __dlpack__"):
        pnp.from_dlpack([1, 2])
    with pytest.raises(ArgumentError, match="elements are copied to the device"):
        pnp.from_dlpack(np.arange(3), copy=False)
    with pytest.raises(ArgumentError, match="from_dlpack: poot runs on one device"):
        pnp.from_dlpack(np.arange(3), device="cpu:0")


# --- the namespace ----------------------------------------------------------

# Of the standard's version 2024.12; fft and linalg are extensions.
# fmt: off
STANDARD = [
    "abs", "acos", "acosh", "add", "all", "any", "arange", "argmax", "argmin",
    "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays", "broadcast_to",
    "can_cast", "ceil", "clip", "concat", "conj", "copysign", "cos", "cosh",
    "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide", "e",
    "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye", "finfo",
    "flip", "float32", "float64", "floor", "floor_divide", "from_dlpack", "full",
    "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int16",
    "int32", "int64", "int8", "isdtype", "isfinite", "isinf", "isnan", "less",
    "less_equal", "linspace", "log", "log10", "log1p", "log2", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum",
    "moveaxis", "multiply", "nan", "negative", "newaxis", "nextafter", "nonzero",
    "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive", "pow", "prod",
    "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll",
    "round", "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square",
    "squeeze", "stack", "std", "subtract", "sum", "take", "take_along_axis", "tan",
    "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32", "uint64",
    "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unstack", "var", "vecdot", "where", "zeros", "zeros_like", "__array_api_version__",
    "__array_namespace_info__",
]
# fmt: on


@pytest.mark.parametrize("name", STANDARD)
def test_the_namespace_has_the_standards_names(name: str) -> None:
    assert hasattr(pnp, name)


def test_arrays_and_traced_values_name_their_namespace() -> None:
    def normalised(x: Any) -> Any:
        xp = x.__array_namespace__(api_version="2023.12")
        assert xp is pnp
        return (x - xp.mean(x)) / xp.std(x, correction=1)

    x = pnp.arange(5.0, device=pnp.zeros(1).device)
    right = (np.arange(5) - 2) / np.std(np.arange(5), ddof=1)
    np.testing.assert_allclose(normalised(x), right, rtol=1e-6)
    np.testing.assert_allclose(poot.jit(normalised)(x), right, rtol=1e-6)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"version 2024\.12, asked for 2099\.12"):
        pnp.arange(3).__array_namespace__(api_version="2099.12")


def test_inspection() -> None:
    info = pnp.__array_namespace_info__()
    assert info.default_device() is info.devices()[0] is pnp.arange(1).device
    assert info.default_dtypes()["real floating"] == np.float32
    assert info.default_dtypes()["indexing"] == np.int32
    assert set(info.dtypes(kind="bool")) == {"bool"}
    assert set(info.dtypes(kind=("bool", "signed integer"))) >= {"bool", "int8"}
    assert "complex64" not in info.dtypes() and "bfloat16" not in info.dtypes()
    assert info.dtypes(kind="complex floating") == {}
    assert set(info.capabilities()) == {
        "boolean indexing",
        "data-dependent shapes",
        "max dimensions",
    }


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        (np.bool_, {"bool"}),
        (np.int8, {"signed integer", "integral", "numeric"}),
        (np.uint32, {"unsigned integer", "integral", "numeric"}),
        (pnp.bfloat16, {"real floating", "numeric"}),
        (np.float64, {"real floating", "numeric"}),
    ],
)
def test_isdtype(dtype: Any, kinds: set[str]) -> None:
    jax = pytest.importorskip("jax")
    every = ("bool", "signed integer", "unsigned integer", "integral")
    for kind in (*every, "real floating", "complex floating", "numeric"):
        assert pnp.isdtype(dtype, kind) == (kind in kinds)
        given = np.dtype(dtype.dtype if dtype is pnp.bfloat16 else dtype)
        assert pnp.isdtype(dtype, kind) == jax.numpy.isdtype(given, kind)
    assert pnp.isdtype(dtype, dtype) and pnp.isdtype(dtype, ("bool", *kinds))
    assert not pnp.isdtype(dtype, np.int16)


@pytest.mark.parametrize(
    "make",
    [
        lambda device: pnp.asarray([1], device=device),
        lambda device: pnp.array([1], device=device),
        lambda device: pnp.arange(3, device=device),
        lambda device: pnp.linspace(0, 1, 3, device=device),
        lambda device: pnp.eye(2, device=device),
        lambda device: pnp.empty(2, device=device),
        lambda device: pnp.zeros(2, device=device),
        lambda device: pnp.ones(2, device=device),
        lambda device: pnp.full(2, 1, device=device),
        lambda device: pnp.empty_like(np.ones(2), device=device),
        lambda device: pnp.zeros_like(np.ones(2), device=device),
        lambda device: pnp.ones_like(np.ones(2), device=device),
        lambda device: pnp.full_like(np.ones(2), 3, device=device),
        lambda device: pnp.astype(pnp.ones(2), int, device=device),
    ],
)
def test_the_device_can_be_named(make: Any) -> None:
    own = pnp.__array_namespace_info__().default_device()
    np.testing.assert_array_equal(make(own), make(None))
    with pytest.raises(ArgumentError, match="poot runs on one device"):
        make("gpu:7")


# --- JAX's parameters -------------------------------------------------------


def test_first_parameters_have_jaxs_name() -> None:
    x = pnp.arange(6.0).reshape(1, 2, 3)
    assert pnp.reshape(a=x, shape=(3, 2)).shape == (3, 2)
    assert pnp.moveaxis(a=x, source=0, destination=2).shape == (2, 3, 1)
    assert pnp.swapaxes(a=x, axis1=0, axis2=1).shape == (2, 1, 3)
    assert pnp.squeeze(a=x).shape == (2, 3)
    assert pnp.expand_dims(a=x, axis=0).shape == (1, 1, 2, 3)
    assert pnp.transpose(a=x).shape == (3, 2, 1)
    assert pnp.ravel(a=x).shape == (6,)


def test_copies() -> None:
    x = pnp.arange(4.0)
    for copied in (
        pnp.reshape(x, (4,), copy=True),
        pnp.astype(x, np.float32, copy=True),
    ):
        assert copied is not x
        np.testing.assert_array_equal(copied, x)
    assert pnp.astype(x, np.float32) is x
    assert pnp.reshape(x, (4,)) is x


def test_orders() -> None:
    columns = np.asfortranarray(np.arange(6).reshape(2, 3))
    for order in (None, "C", "A", "K"):
        np.testing.assert_array_equal(pnp.array(columns, order=order), columns)
    with pytest.raises(ArgumentError, match="order is 'F'"):
        pnp.asarray(columns, order="F")


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_a_mean_that_is_known(name: str) -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4) ** 2
    mean = x.mean(1, keepdims=True)
    function = getattr(pnp, name)
    np.testing.assert_array_equal(function(x, 1, mean=mean), function(x, 1))
    around = np.sqrt(np.mean(x**2, 1)) if "std" in name else np.mean(x**2, 1)
    zeros = np.zeros((3, 1), np.float32)
    np.testing.assert_allclose(function(x, 1, mean=zeros), around, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_narrow_integers_stay_narrow(name: str) -> None:
    x = np.full(3, 100, np.int8)
    function = getattr(pnp, name)
    assert function(x).dtype == np.int32
    narrow = function(x, promote_integers=False)
    assert narrow.dtype == np.int8
    assert int(narrow) == int(getattr(np, name)(x, dtype=np.int8))
