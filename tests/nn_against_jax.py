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

# Called with poot.nn or jax.nn, and operands.
Function = Callable[..., Any]

each_float = pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"]
)


def jax_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's jit without the optimizations that take most of its time."""
    options = {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
    }
    return jax.jit(function, compiler_options=options)


def normal(name: str, *shape: int, dtype: Any = np.float32, scale: float = 1) -> Array:
    """Normal numbers that depend on the name only."""
    return (rng_of(name).normal(size=shape) * scale).astype(dtype)


def against_jax(
    function: Function,
    *operands: Array,
    ulps: float,
    floor: float = 1.0,
    eager: bool = False,
    signed_zeros: bool = True,
) -> None:
    """poot's results are JAX's within ulps (of `floor` below it).

    They are jitted, and if `eager` also computed op by op.
    """
    wanted = jax.tree.leaves(jax_jit(lambda *xs: function(jax.nn, *xs))(*operands))
    runs = {"jitted": poot.jit(lambda *xs: function(poot.nn, *xs))(*operands)}
    if eager:
        runs["eager"] = function(poot.nn, *operands)
    for mode, results in runs.items():
        found = poot.tree.leaves(results)
        assert [x.weak_type for x in found] == [x.weak_type for x in wanted], mode
        for number, pair in enumerate(zip(found, wanted, strict=True)):
            one, right = map(np.asarray, pair)
            if not signed_zeros:
                one, right = one + one.dtype.type(0), right + right.dtype.type(0)
            assert_close(one, right, ulps, f"result {number}, {mode}", floor=floor)


def dispatches(function: Function, *operands: Array) -> int:
    """How many kernels the jitted function launches."""
    program = poot.jit(function).lower(*operands).compile().program
    return len(program.dispatches)
