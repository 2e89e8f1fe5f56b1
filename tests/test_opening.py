"""Which backend is opened: a Vulkan device, or the oracle with one warning."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import numpy as np
import pytest

import poot
from poot.core.errors import CapabilityError, NoDeviceError
from poot.interpreters import backend_vulkan, opening
from poot.interpreters.backend import backend, set_opener, use_backend
from poot.interpreters.backend_oracle import OracleBackend
from tests.backends import device_backend
from tests.child_output import own_lines


@pytest.fixture(autouse=True)
def nothing_opened() -> Iterator[None]:
    poot.clear_caches()
    use_backend(None)
    yield
    poot.clear_caches()
    set_opener(opening.open_backend)
    use_backend(None)


def test_without_a_device_one_warning_tells_that_the_host_calculates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_device() -> NoReturn:
        raise NoDeviceError("no driver offers a device")

    monkeypatch.setattr(backend_vulkan, "open_device", no_device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = poot.device_put(np.arange(3, dtype=np.float32))
        doubled = poot.jit(lambda x: x * 2 + x.sum())(x)
        np.testing.assert_array_equal(doubled + 1, [4, 6, 8])
    (warning,) = caught
    assert warning.category is RuntimeWarning and warning.filename == __file__
    assert "no driver offers a device" in str(warning.message)
    assert "poot doctor" in str(warning.message)
    assert "OracleDevice" in repr(poot.devices()[0])
    assert "f32 subnormals kept" in repr(poot.devices()[0])


def test_a_device_that_cannot_serve_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unusable() -> NoReturn:
        raise CapabilityError("lacks bufferDeviceAddress")

    monkeypatch.setattr(backend_vulkan, "open_device", unusable)
    for _ in range(2):
        with pytest.raises(CapabilityError, match="bufferDeviceAddress"):
            poot.device_put(1.0)


def test_threads_open_one_backend() -> None:
    opened = []
    barrier = threading.Barrier(4)

    def opener() -> OracleBackend:
        opened.append(OracleBackend())
        return opened[-1]

    def first_use(_: int) -> object:
        barrier.wait(timeout=60)
        return backend()

    set_opener(opener)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(first_use, range(4))) == set(opened)
    assert len(opened) == 1


def test_the_first_use_may_be_in_many_threads_or_at_exit() -> None:
    """The first use loads the backend's modules, wherever it comes."""
    in_threads = """
import threading
from concurrent.futures import ThreadPoolExecutor
import poot
barrier = threading.Barrier(4)
def work(number):
    barrier.wait(timeout=60)
    return float(poot.jit(lambda x: x * number + 1)(2.0))
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(work, range(4)))
"""
    at_exit = """
import atexit, poot
@atexit.register
def last():
    x = poot.numpy.ones((3, 5))
    print(*map(float, poot.jit(lambda x: (x.sum(), x.max(axis=0)[0], x[1, 2]))(x)))
"""
    for code, said in ((in_threads, "1.0 3.0 5.0 7.0"), (at_exit, "15.0 1.0 1.0")):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, own_lines(done.stdout)) == (0, [said]), done.stderr


def test_the_oracle_backend_plans_on_demand() -> None:
    use_backend(OracleBackend())
    compiled = poot.jit(lambda x: x + 1).lower(np.zeros(4, np.float32)).compile()
    assert len(compiled.program.dispatches) == 1
    assert list(compiled.spirv()) == [compiled.program.dispatches[0].kernel.name]


def test_what_another_backend_has_compiled_is_not_run() -> None:
    """Its work would be awaited by nobody."""
    double = poot.jit(lambda x: x * 2)
    x = np.arange(3, dtype=np.float32)
    try:
        for backend in (OracleBackend(), OracleBackend(), device_backend()):
            use_backend(backend or OracleBackend())
            assert double.cache_size == 0
            np.testing.assert_array_equal(double(x), 2 * x)
            assert double.cache_size == 1
        use_backend(device_backend() or OracleBackend())
        assert double.cache_size == (device_backend() is not None)
    finally:
        use_backend(None)
