"""What is timed on a GPU: each row by the same code under poot and under JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import models
from cases import chain, softmax
from gpu import Start
from memory_rows import memory_rows
from row import Row, micro, normal, of_arrays, rate, tera

# What is right, in f64 if the arrays are.
NUMPY = SimpleNamespace(numpy=np, lax=SimpleNamespace(rsqrt=lambda x: 1 / np.sqrt(x)))


def _first_rows(
    function: Callable[..., Any], make: Callable[[], list[np.ndarray]]
) -> Callable[[Any], Start]:
    """Calls of a function of rows, of which the first are checked."""
    return of_arrays(function, make, partial(_check, function))


def _check(function: Callable[..., Any], arrays: list[np.ndarray], got: Any) -> None:
    """The first rows, against NumPy's in f64; bf16 within its last bits."""
    part = [
        a[:16].astype(np.float64) if n == 0 else a.astype(np.float64)
        for n, a in enumerate(arrays)
    ]
    found = np.asarray(got[:16]).astype(np.float64)
    narrow = arrays[0].dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(
        found, function(NUMPY, *part), rtol=2e-2 if narrow else 1e-4, atol=1e-5
    )


# --- calls, and what the memory limits --------------------------------------

ELEMENTS = 1 << 28
ROWS, COLUMNS = 65536, 4096


def _chain(library: Any, x: Any) -> Any:
    return chain(library.numpy, x)


def _softmax(library: Any, x: Any) -> Any:
    return softmax(library.numpy, x)


def _row_rows() -> Iterator[Row]:
    size = 8 * ELEMENTS
    yield Row(
        "chain f32 2^28",
        "TB/s",
        _first_rows(_chain, lambda: [normal(ELEMENTS)]),
        tera(size),
    )
    yield Row(
        f"softmax f32 {ROWS}x{COLUMNS}",
        "TB/s",
        _first_rows(
            _softmax,
            lambda: [normal(ROWS, COLUMNS)],
        ),
        tera(size),
    )
    for name, dtype in (("f32", np.float32), ("bf16", ml_dtypes.bfloat16)):

        def make(dtype: Any = dtype) -> list[np.ndarray]:
            return [normal(ROWS, COLUMNS, dtype=dtype), normal(COLUMNS, dtype=dtype)]

        yield Row(
            f"RMSNorm {name} {ROWS}x{COLUMNS}",
            "TB/s",
            _first_rows(models.rms_norm, make),
            tera(2 * ELEMENTS * np.dtype(dtype).itemsize),
        )


def _call_rows() -> Iterator[Row]:
    add = _first_rows(lambda library, x, y: x + y, lambda: [normal(16), normal(16)])
    yield Row("add of 16, waited for", "us", add, micro, calls=300, waits=True)
    yield Row("add of 16, back to back", "us", add, micro, calls=300)


# --- products with one row ---------------------------------------------------

# So many matrices are read in turn that none is found in a cache.
MATRICES = 6


def _vector_rows() -> Iterator[Row]:
    for n, k in ((4096, 4096), (14336, 4096), (28672, 8192)):

        def started(library: Any, n: int = n, k: int = k) -> Start:
            matrices = [normal(n, k, dtype=ml_dtypes.bfloat16) for _ in range(2)]
            x = normal(1, k, dtype=ml_dtypes.bfloat16)
            placed = [library.device_put(matrices[i % 2]) for i in range(MATRICES)]
            given = library.device_put(x)
            jitted = library.jit(lambda x, ws: [x @ w.T for w in ws])
            right = x.astype(np.float32) @ matrices[1].astype(np.float32).T
            found = np.asarray(jitted(given, placed)[1]).astype(np.float32)
            np.testing.assert_allclose(found, right, rtol=2e-2, atol=0.5)
            return lambda: jitted(given, placed)[-1].block_until_ready

        yield Row(
            f"matrix-vector bf16 {n}x{k}", "TB/s", started, tera(2 * n * k * MATRICES)
        )


# --- decoding ----------------------------------------------------------------


def _weights(library: Any, sizes: models.Llama) -> Any:
    """Random weights in memory that the library owns; the host makes one of a shape."""
    made: dict[tuple[int, ...], np.ndarray] = {}

    def make(shape: tuple[int, ...]) -> Any:
        if shape not in made:
            scale = np.float32(0.02 if len(shape) > 1 else 1)
            made[shape] = (normal(*shape) * scale).astype(ml_dtypes.bfloat16)
        return library.device_put(made[shape])

    return models.llama_weights(sizes, make)


# Tokens that a decoder decodes before it is at its start again.
TOKENS = 64


class Decoder:
    """A decoder whose steps feed the next, its caches donated."""

    def __init__(self, library: Any, sizes: models.Llama, start: int) -> None:
        self.weights = _weights(library, sizes)
        self.caches = models.empty_caches(library, sizes)
        self.token = library.device_put(np.array([7], np.int32))
        self.start, self.end = start, start + TOKENS
        self.position = start
        self.step = library.jit(
            lambda *given: models.llama_step(library, sizes, *given), donate_argnums=1
        )

    def __call__(self) -> Callable[[], object]:
        self.token, self.caches = self.step(
            self.weights, self.caches, self.token, self.position
        )
        self.position += 1
        if self.position == self.end:
            self.position = self.start
        return self.token.block_until_ready


@lru_cache(maxsize=1)
def _decoder(library: Any, sizes: models.Llama, start: int) -> Decoder:
    """The one that was used last, or another: making 15 GB of weights takes long."""
    return Decoder(library, sizes, start)


def _decode_rows() -> Iterator[Row]:
    for name, sizes in (("1B", models.LLAMA_1B), ("8B", models.LLAMA_8B)):

        def started(library: Any, sizes: models.Llama = sizes) -> Start:
            return _decoder(library, sizes, 128)

        for how, waits in (("", False), (", each waited for", True)):
            yield Row(
                f"Llama-{name} bf16 decode{how}", "tok/s", started, rate, TOKENS, waits
            )
    long = replace(models.LLAMA_1B, capacity=8192 + TOKENS)
    yield Row(
        "Llama-1B bf16 decode at 8192",
        "tok/s",
        lambda library: _decoder(library, long, 8192),
        rate,
        TOKENS,
    )


def rows() -> dict[str, Row]:
    """Every row by its name, in the order of the table."""
    every = (
        *_call_rows(),
        *_row_rows(),
        *memory_rows(),
        *_vector_rows(),
        *_decode_rows(),
    )
    return {row.name: row for row in every}
