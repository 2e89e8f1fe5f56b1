"""Rotary embedding as model code spells it, and with the signs put elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot.numpy as jnp
from poot.core.ops.rope import Rope, RopeForm

HALF, INTERLEAVED = RopeForm.HALF, RopeForm.INTERLEAVED
BF16 = np.dtype(ml_dtypes.bfloat16)


def array(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# Tokens, heads and elements of a head; cos and sin by token.
Q = array((2, 5, 3, 16), 0)
FULL = array((5, 1, 16), 1), array((5, 1, 16), 2)
PAIRS = array((5, 1, 8), 3), array((5, 1, 8), 4)
FEW = array((5, 1, 4), 5), array((5, 1, 4), 6)


def rotate_half(x: Any) -> Any:
    half = x.shape[-1] // 2
    return jnp.concatenate((-x[..., half:], x[..., :half]), axis=-1)


def rotate_every_two(x: Any) -> Any:
    return jnp.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)


def turned_whole(x: Any, cos: Any, sin: Any) -> Any:
    return (x * cos) + (rotate_half(x) * sin)


def doubled_angles(x: Any, angles: Any) -> Any:
    twice = jnp.concatenate((angles, angles), axis=-1)
    return turned_whole(x, jnp.cos(twice), jnp.sin(twice))


def doubled_tables(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = (jnp.concatenate((t, t), -1) for t in (cos, sin))
    return rotate_half(x) * sin + cos * x


def split_halves(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cos - second * sin, first * sin + second * cos], axis=-1
    )


def every_second(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape)


def repeated_tables(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = (jnp.repeat(t, 2, axis=-1) for t in (cos, sin))
    return x * cos + rotate_every_two(x) * sin


def pairs_in_one_cache(x: Any, cache: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    a, b, cos, sin = pairs[..., 0], pairs[..., 1], cache[..., 0], cache[..., 1]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def pairs_at_once(x: Any, cos: Any, sin: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    crossed = jnp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
    return (pairs * cos[..., None] + crossed * sin[..., None]).reshape(x.shape)


def partial(x: Any, cos: Any, sin: Any) -> Any:
    count = cos.shape[-1]
    head, rest = x[..., :count], x[..., count:]
    return jnp.concatenate((turned_whole(head, cos, sin), rest), axis=-1)


def partial_in_halves(x: Any, cos: Any, sin: Any) -> Any:
    half = cos.shape[-1]
    a, b, rest = jnp.split(x, (half, 2 * half), axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def in_f32(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.astype(jnp.float32), cos, sin).astype(x.dtype)


def halves_in_f32(x: Any, cos: Any, sin: Any) -> Any:
    a, b = (half.astype(jnp.float32) for half in jnp.split(x, 2, axis=-1))
    first, second = a * cos - b * sin, b * cos + a * sin
    return jnp.concatenate([first.astype(x.dtype), second.astype(x.dtype)], -1)


def partial_in_f32(x: Any, cos: Any, sin: Any) -> Any:
    count = cos.shape[-1]
    turned = turned_whole(x[..., :count].astype(jnp.float32), cos, sin)
    return jnp.concatenate((turned.astype(x.dtype), x[..., count:]), axis=-1)


def heads_first(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.transpose(0, 2, 1, 3), cos[:, 0], sin[:, 0])


def negative_sines(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, axis=-1)
    minus = -sin
    turned = first * cos + second * minus, second * cos + first * sin
    return jnp.concatenate(turned, -1)


def one_of_many(x: Any, cos: Any, sin: Any) -> Any:
    """Queries in front of keys, along one axis."""
    return turned_whole(x[..., :16], cos, sin)


def sliced_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x[:, :, 1:3], cos, sin)


def joined_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(jnp.concatenate([x, x * 2], axis=2), cos, sin)


def reversed_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x[:, :, ::-1], cos, sin)


def regrouped_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.reshape(2, 15, 1, 16), cos[0], sin[0])


@dataclass(frozen=True)
class Spelling:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    op: Rope


def spelled(function: Callable[..., Any], *args: Any, op: Rope) -> Any:
    return pytest.param(Spelling(function, args, op), id=function.__name__)


QB = Q.astype(BF16)
SPELLINGS = [
    spelled(turned_whole, Q, *FULL, op=Rope(16, HALF)),
    spelled(doubled_angles, Q, PAIRS[0], op=Rope(16, HALF)),
    spelled(doubled_tables, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(split_halves, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(every_second, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(repeated_tables, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(pairs_in_one_cache, Q, np.stack(PAIRS, -1), op=Rope(16, INTERLEAVED)),
    spelled(pairs_at_once, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(partial, Q, *PAIRS, op=Rope(8, HALF)),
    spelled(partial_in_halves, Q, *FEW, op=Rope(8, HALF)),
    spelled(in_f32, QB, *FULL, op=Rope(16, HALF)),
    spelled(halves_in_f32, QB, *PAIRS, op=Rope(16, HALF)),
    spelled(partial_in_f32, QB, *PAIRS, op=Rope(8, HALF)),
    spelled(heads_first, Q, *FULL, op=Rope(16, HALF)),
    spelled(negative_sines, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(sliced_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(reversed_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(regrouped_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(one_of_many, array((2, 5, 3, 40), 7), *FULL, op=Rope(16, HALF)),
]


def turned_back(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((x[..., half:], -x[..., :half]), axis=-1)
    return x * cos + crossed * sin


def halves_turned_back(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos + b * sin, b * cos - a * sin], -1)


def rolled(x: Any, cos: Any, sin: Any) -> Any:
    """The signs are in the sines, which are given so."""
    return x * cos + jnp.roll(x, x.shape[-1] // 2, -1) * sin


def rolled_and_subtracted(x: Any, cos: Any, sin: Any) -> Any:
    return x * cos - jnp.roll(x, x.shape[-1] // 2, -1) * sin


def subtracted_from_the_rolled(x: Any, cos: Any, sin: Any) -> Any:
    return jnp.roll(x, x.shape[-1] // 2, -1) * sin - x * cos


def signed_sines(x: Any, cos: Any, one: Any, other: Any) -> Any:
    return rolled(x, cos, jnp.concatenate([-one, other], -1))


def rolled_with_doubled_tables(x: Any, cos: Any, sin: Any) -> Any:
    return rolled(x, *(jnp.concatenate((t, t), -1) for t in (cos, sin)))


def neighbours_exchanged(x: Any, cos: Any, sin: Any) -> Any:
    crossed = jnp.stack((x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)
    return x * cos + crossed * sin


def neighbours_exchanged_in_f32(x: Any, cos: Any, sin: Any) -> Any:
    turned = neighbours_exchanged(x.astype(jnp.float32), cos, sin)
    return turned.astype(x.dtype)


TURNED_SIGNS = [
    spelled(turned_back, Q, *FULL, op=Rope(16, HALF)),
    spelled(halves_turned_back, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(rolled, Q, *FULL, op=Rope(16, HALF)),
    spelled(rolled_and_subtracted, Q, *FULL, op=Rope(16, HALF)),
    spelled(subtracted_from_the_rolled, Q, *FULL, op=Rope(16, HALF)),
    spelled(signed_sines, Q, FULL[0], *PAIRS, op=Rope(16, HALF)),
    spelled(rolled_with_doubled_tables, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(neighbours_exchanged, Q, *FULL, op=Rope(16, INTERLEAVED)),
    spelled(neighbours_exchanged_in_f32, QB, *FULL, op=Rope(16, INTERLEAVED)),
]
