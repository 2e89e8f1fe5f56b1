"""Runs a function of poot.nn and of jax.nn on the same operands and compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.nn
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.nn
from tests.numerics import Array, assert_close, rng_of
from tests.trap_executors import leaves

# Called with poot.nn or jax.nn, and operands.
Function = Callable[..., Any]

each_float = pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"]
)


def normal(name: str, *shape: int, dtype: Any = np.float32, scale: float = 1) -> Array:
    """Normal numbers that depend on the name only."""
    return (rng_of(name).normal(size=shape) * scale).astype(dtype)


def against_jax(
    function: Function, *operands: Array, ulps: float, floor: float = 1.0
) -> None:
    """poot's results, eager and jitted, are JAX's within ulps (of `floor` below it)."""
    with jax.numpy_dtype_promotion("standard"):
        wanted = jax.tree.leaves(function(jax.nn, *operands))
    eager = poot.tree.leaves(function(poot.nn, *operands))
    assert [x.weak_type for x in eager] == [x.weak_type for x in wanted]
    jitted = leaves(poot.jit(lambda *xs: function(poot.nn, *xs))(*operands))
    for number, right in enumerate(map(np.asarray, wanted)):
        for mode, found in (("eager", leaves(eager)), ("jitted", jitted)):
            where = f"result {number}, {mode}"
            assert_close(found[number], right, ulps, where, floor=floor)


def dispatches(function: Function, *operands: Array) -> int:
    """How many kernels the jitted function launches."""
    program = poot.jit(function).lower(*operands).compile().program
    return len(program.dispatches)
