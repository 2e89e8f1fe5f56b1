"""The same draws by poot, eager and jitted, and by JAX, on the same key."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import poot
from poot import numpy as pnp
from poot import random

# What is drawn, from the modules `random` and `numpy` of poot or JAX, and a key.
Draw = Callable[[Any, Any, Any], Any]
Draws = Mapping[str, Draw]
Drawn = dict[str, np.ndarray[Any, Any]]


def seed_of(draws: Draws) -> int:
    return zlib.crc32(" ".join(draws).encode()) & 0x7FFFFFFF


def jax_drawn(draws: Draws) -> Drawn:
    """What JAX draws: one program, compiled quickly rather than well."""
    jax = pytest.importorskip("jax")

    def function(key: Any) -> dict[str, Any]:
        return {name: draw(jax.random, jax.numpy, key) for name, draw in draws.items()}

    quick = {"xla_backend_optimization_level": 0}
    with jax.threefry_partitionable(True):
        jitted = jax.jit(function, compiler_options=quick)
        drawn = jitted(jax.random.key(seed_of(draws)))
    return {name: np.asarray(drawn[name]) for name in draws}


def poot_drawn(draws: Draws) -> Drawn:
    """What poot draws, eager on a typed key and jitted on words: the same bits."""
    key, words = random.key(seed_of(draws)), random.PRNGKey(seed_of(draws))
    eager = {name: np.asarray(draw(random, pnp, key)) for name, draw in draws.items()}
    jitted = poot.jit(
        lambda key: {name: draw(random, pnp, key) for name, draw in draws.items()}
    )(words)
    for name in draws:
        assert jitted[name].dtype == eager[name].dtype, name
        np.testing.assert_array_equal(jitted[name], eager[name], name)
    return eager


def both_drawn(draws: Draws) -> tuple[Drawn, Drawn]:
    """JAX's draws and poot's, of one shape and dtype."""
    expected, found = jax_drawn(draws), poot_drawn(draws)
    for name in draws:
        assert found[name].dtype == expected[name].dtype, name
        assert found[name].shape == expected[name].shape, name
    return expected, found


def assert_same_bits(draws: Draws) -> None:
    expected, found = both_drawn(draws)
    for name in draws:
        np.testing.assert_array_equal(found[name], expected[name], name)


def assert_near(draws: Draws, ulps: Mapping[str, float]) -> None:
    """Within so many units in the last place of the number, or of 1 if it is less."""
    expected, found = both_drawn(draws)
    for name, array in expected.items():
        wide = array.astype(np.float64)
        unit = float(pnp.finfo(array.dtype).eps) * np.maximum(np.abs(wide), 1)
        distance = np.max(np.abs(found[name].astype(np.float64) - wide) / unit)
        assert distance <= ulps[name], f"{name}: {distance} ulp from JAX's"


def assert_mostly_equal(
    draws: Draws, relative: float = 0.0, least: float = 0.9999
) -> None:
    """At least 9999 of 10⁴ draws, but for what roundings before their end do."""
    expected, found = both_drawn(draws)
    for name, array in expected.items():
        wide = array.astype(np.float64)
        distance = np.abs(found[name].astype(np.float64) - wide)
        share = np.mean(distance <= relative * np.abs(wide))
        assert share >= least, f"{name}: {share} of the draws are JAX's"


def dispatches(draw: Draw, key: Any = None) -> int:
    """How many launches a jitted draw is."""
    key = random.PRNGKey(0) if key is None else key
    lowered = poot.jit(lambda key: draw(random, pnp, key)).lower(key)
    return len(lowered.compile().program.dispatches)
