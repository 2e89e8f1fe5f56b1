"""Threads: own trace state, a shared jitted function, settings of one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import TraceLeak
from poot.core.interpreter import current
from poot.interpreters.eager import EAGER

X = np.arange(16, dtype=np.float32)
THREADS = 8


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """The results of `work` on 0 … count-1, all begun together."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> Any:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_each_thread_traces_and_runs_its_own_function() -> None:
    def work(number: int) -> bool:
        f = poot.jit(lambda x, s: x * number + s)
        x = poot.device_put(X)
        for step in range(200):
            if not np.array_equal(f(x, float(step)), X * number + step):
                return False
        return True

    assert in_threads(work) == [True] * THREADS


def test_one_function_shared_by_all_threads_is_traced_once() -> None:
    traces = []

    @poot.jit
    def shared(x: Any, s: Any) -> Any:
        traces.append(threading.get_ident())
        return x * s + 1

    def work(number: int) -> bool:
        x = poot.device_put(X + number)
        return all(
            np.array_equal(shared(x, float(step)), (X + number) * step + 1)
            for step in range(200)
        )

    assert in_threads(work) == [True] * THREADS
    assert len(traces) == 1


def test_an_exception_while_tracing_stays_in_its_thread() -> None:
    @poot.jit
    def fails(x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            raise KeyError("user")
        return x + y

    def work(number: int) -> bool:
        if number % 2:
            for _ in range(50):
                with pytest.raises(KeyError):
                    fails(X, X[1:])
            return current() is EAGER
        return all(np.array_equal(fails(X, X), X + X) for _ in range(50))

    assert in_threads(work) == [True] * THREADS


def test_eager_work_in_one_thread_while_another_traces() -> None:
    tracing, done = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        tracing.set()
        assert done.wait(timeout=60)
        return x + 1

    def eager() -> np.ndarray[Any, Any]:
        assert tracing.wait(timeout=60)
        try:
            return np.asarray(poot.device_put(X) * 2)
        finally:
            done.set()

    with ThreadPoolExecutor(2) as pool:
        traced = pool.submit(poot.jit(slow), X)
        np.testing.assert_array_equal(pool.submit(eager).result(60), X * 2)
        np.testing.assert_array_equal(traced.result(60), X + 1)


def test_a_traced_value_is_of_no_use_in_another_thread() -> None:
    def hands_over(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: x + 1).result()

    with pytest.raises(TraceLeak, match="outside of the trace of `hands_over`"):
        poot.jit(hands_over)(X)


def test_an_override_of_settings_holds_in_one_thread() -> None:
    def work(number: int) -> bool:
        with poot.config.override(enable_x64=bool(number % 2)):
            dtypes = {poot.device_put(1.0).dtype for _ in range(20)}
        return dtypes == {np.dtype(np.float64 if number % 2 else np.float32)}

    assert in_threads(work) == [True] * THREADS
    assert not poot.config.enable_x64


def test_arrays_made_in_one_thread_are_read_in_another() -> None:
    f = poot.jit(lambda x: x * 3)
    results = in_threads(lambda number: f(X + number))
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, (X + number) * 3)
