"""Which keys rows of attention see, as found from the masks of their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.kernels.attention_bounds import Bounds, find_bounds

T, S = 5, 12
LEAST = float(np.finfo(np.float32).min)
NONE = -np.inf


def bounds_of(score: Callable[..., Any], *extras: Any) -> tuple[Bounds | None, Any]:
    """The bounds of a score, and the first and the end of each row."""
    given = (np.ones((2, T, S), np.float32), *extras)
    graph = poot.jit(score).trace(*given).graph
    found = find_bounds(graph)
    if found is None:
        return None, None
    results = evaluate_all(found.graph, *given).results
    score_of, first, end = results
    np.testing.assert_array_equal(score_of, evaluate_all(graph, *given).results[0])
    assert first.shape == end.shape == (2, T, 1)
    _check(score_of, first, end, found.masked)
    return found, (first[0, :, 0].tolist(), end[0, :, 0].tolist())


def _check(scores: Any, first: Any, end: Any, masked: float) -> None:
    """All that is outside of the bounds is masked, or below."""
    keys = np.arange(S)
    outside = (keys < first) | (keys >= end)
    assert (scores[outside] <= masked).all()


def query() -> Any:
    return jnp.arange(T)[:, None]


def key() -> Any:
    return jnp.arange(S)


ROWS = list(range(T))
FOUND: dict[str, tuple[Callable[..., Any], float, list[int], list[int]]] = {
    "causal": (
        lambda s: jnp.where(key() <= query(), s, NONE),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "causal from the other side": (
        lambda s: jnp.where(query() >= key(), s * 0.5, LEAST),
        LEAST,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "what lies ahead": (
        lambda s: jnp.where(key() > query(), LEAST, s),
        LEAST,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "not what lies ahead": (
        lambda s: jnp.where(~(key() > query()), s, -1e9),
        float(np.float32(-1e9)),
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "strictly before": (
        lambda s: jnp.where(key() < query(), s, NONE),
        NONE,
        [0] * T,
        ROWS,
    ),
    "from the query on": (
        lambda s: jnp.where(key() >= query(), s, NONE),
        NONE,
        ROWS,
        [S] * T,
    ),
    "after the query": (
        lambda s: jnp.where(key() > query(), s, NONE),
        NONE,
        [t + 1 for t in ROWS],
        [S] * T,
    ),
    "its own": (
        lambda s: jnp.where(key() == query(), s, NONE),
        NONE,
        ROWS,
        [t + 1 for t in ROWS],
    ),
    "window": (
        lambda s: jnp.where((key() - query() <= 1) & (key() - query() > -3), s, NONE),
        NONE,
        [max(t - 2, 0) for t in ROWS],
        [t + 2 for t in ROWS],
    ),
    "window by two choices": (
        lambda s: jnp.where(
            key() <= query(), jnp.where(query() - key() < 2, s, NONE), NONE
        ),
        NONE,
        [max(t - 1, 0) for t in ROWS],
        [t + 1 for t in ROWS],
    ),
    "window by either": (
        lambda s: jnp.where((key() > query()) | (key() < query() - 1), NONE, s),
        NONE,
        [max(t - 1, 0) for t in ROWS],
        [t + 1 for t in ROWS],
    ),
    "triangle": (
        lambda s: jnp.where(jnp.tril(jnp.ones((T, S), bool)), s, NONE),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "added triangle": (
        lambda s: s + jnp.triu(jnp.full((T, S), NONE), 1),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "added smallest numbers": (
        lambda s: s + jnp.where(key() > query(), LEAST, 0.0),
        LEAST / 2,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "places of the whole shape": (
        lambda s: jnp.where(
            lax.broadcasted_iota(jnp.int32, s.shape, 2)
            <= lax.broadcasted_iota(jnp.int32, s.shape, 1),
            s,
            NONE,
        ),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "rounded to infinity": (
        lambda s: jnp.where(key() <= query(), s, LEAST).astype(jnp.bfloat16),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "rounded on the way": (
        lambda s: (
            jnp.where(key() <= query(), s, -1e9).astype(jnp.bfloat16).astype(s.dtype)
        ),
        float(jnp.bfloat16(-1e9)),
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "rows that see nothing": (
        lambda s: (
            jnp.where(key() <= query(), s, NONE)
            + jnp.where(jnp.arange(T) < 3, 0.0, LEAST)[:, None]
        ),
        LEAST / 2,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "some keys": (
        lambda s: jnp.where((key() <= 6) & (key() > 2), s, NONE),
        NONE,
        [3] * T,
        [7] * T,
    ),
    "moved masks": (
        lambda s: jnp.where((key() <= query())[None], s, NONE),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "position": (
        lambda s: jnp.where(key() <= jnp.sum(jnp.arange(4)), s, NONE),
        NONE,
        [0] * T,
        [7] * T,
    ),
    "narrow": (
        lambda s: jnp.where(
            key() <= query(), s.astype(jnp.bfloat16), jnp.finfo(jnp.bfloat16).min
        ).astype(jnp.float32),
        float(jnp.finfo(jnp.bfloat16).min),
        [0] * T,
        [t + 1 for t in ROWS],
    ),
    "other axes": (
        lambda s: jnp.swapaxes(
            jnp.where(
                jnp.arange(S)[:, None, None] <= jnp.arange(T),
                jnp.transpose(s, (2, 0, 1)),
                NONE,
            ),
            0,
            1,
        ).transpose((0, 2, 1)),
        NONE,
        [0] * T,
        [t + 1 for t in ROWS],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    score, masked, first, end = FOUND[name]
    found, bounds = bounds_of(score)
    assert found is not None
    assert found.masked == masked
    assert bounds == (first, end)


def test_positions_of_the_running_kernel() -> None:
    """Bounds within the keys, whatever the position is."""

    def score(s, start):
        return jnp.where(key() <= query() + start, s, NONE)

    for start, ends in ((-3, [0, 0, 0, 1, 2]), (2, [3, 4, 5, 6, 7]), (99, [S] * T)):
        _, bounds = bounds_of(score, np.int32(start))
        assert bounds is not None
        assert np.clip(bounds[1], 0, S).tolist() == ends
    for position in (-(2**31), 2**31 - 1):
        _, bounds = bounds_of(
            lambda s, at: jnp.where(key() <= at, s, NONE), np.int32(position)
        )
        assert bounds is not None
        assert np.clip(bounds[1], 0, S).tolist() == [S if position > 0 else 0] * T


NOT_FOUND: dict[str, Callable[..., Any]] = {
    "no mask": lambda s: s * 2,
    "finite bias": lambda s: s + jnp.where(key() <= query(), 0.0, -1e9),
    "masked by infinity": lambda s: jnp.where(key() <= query(), s, jnp.inf),
    "masked by no number": lambda s: jnp.where(key() <= query(), s, jnp.nan),
    "bias that is not 0": lambda s: s + jnp.where(key() <= query(), 1.0, NONE),
    "something after": lambda s: jnp.where(key() <= query(), s, NONE) * 2,
    "keys twice": lambda s: jnp.where(key() + key() <= query(), s, NONE),
    "keys on both sides": lambda s: jnp.where(key() <= key() + query() - 1, s, NONE),
    "floats": lambda s: jnp.where(
        jnp.arange(S) <= jnp.arange(T)[:, None] * 0.5, s, NONE
    ),
    "not equal": lambda s: jnp.where(key() != query(), s, NONE),
    "either": lambda s: jnp.where((key() <= query()) | (key() == 3), s, NONE),
    "negated both": lambda s: jnp.where((key() > query()) & (key() > 3), NONE, s),
    "masked by another score": lambda s: jnp.where(key() <= query(), s, s - 1e9),
    "of another tensor": lambda s: jnp.where(
        jnp.arange(S) <= jnp.arange(T)[:, None] * jnp.arange(S), s, NONE
    ),
    "multiples": lambda s: jnp.where(key() * 2 <= query(), s, NONE),
}


@pytest.mark.parametrize("name", NOT_FOUND)
def test_not_found(name: str) -> None:
    assert bounds_of(NOT_FOUND[name])[0] is None


def test_masks_of_several_constants() -> None:
    """All count, and the largest constant is what no masked score exceeds."""

    def score(s):
        inner = jnp.where(query() - key() < 2, s, -1e9)
        return jnp.where(key() <= query(), inner, NONE)

    found, bounds = bounds_of(score)
    assert found is not None
    assert found.masked == float(np.float32(-1e9))
    assert bounds == ([max(t - 1, 0) for t in ROWS], [t + 1 for t in ROWS])
