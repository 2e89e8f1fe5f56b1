"""What looks like rotary embedding and is none, with the reason and the values."""

from __future__ import annotations

from typing import Any

import numpy as np

import poot.numpy as jnp
from poot.lowering.passes.driver import Reason
from tests.rope_spellings import FEW, FULL, PAIRS, Q, array, rotate_half, turned_whole


def both_add(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos + b * sin, b * cos + a * sin], -1)


def halves_swapped(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([b * cos + a * sin, a * cos - b * sin], -1)


def not_crossed(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    signed = jnp.concatenate((-x[..., :half], x[..., half:]), axis=-1)
    return x * cos + signed * sin


def read_in_pairs_put_in_halves(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.concatenate([even * cos - odd * sin, odd * cos + even * sin], -1)


def paired_from_both_ends(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((-x[..., ::-1][..., :half], x[..., ::-1][..., half:]), -1)
    return x * cos + crossed * sin


def exchanged_in_a_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * sin + a * cos], -1)


def sines_of_two_tensors(x: Any, cos: Any, one: Any, other: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * one, b * cos + a * other], -1)


def more_cosines(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    c, d = jnp.split(cos, 2, axis=-1)
    return jnp.concatenate([a * c - b * sin, b * d + a * sin], -1)


def crossed_by_a_matrix(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    one, zero = jnp.eye(half), jnp.zeros((half, half))
    rows = jnp.concatenate([zero, one], 1), jnp.concatenate([-one, zero], 1)
    return x * cos + (x @ jnp.concatenate(rows, 0)) * sin


def crossed_by_a_given_matrix(x: Any, cos: Any, sin: Any, matrix: Any) -> Any:
    return jnp.einsum("ed,bthd->bthe", matrix, x) * sin + cos * x


def crossed_as_matrices(x: Any, cos: Any, sin: Any, matrices: Any) -> Any:
    return x * cos + jnp.matmul(matrices, x) * sin


def crossed_by_indices(x: Any, cos: Any, sin: Any) -> Any:
    places = np.roll(np.arange(x.shape[-1]), x.shape[-1] // 2)
    return x * cos + jnp.take(x, places, -1) * sin


def signs_multiplied(x: Any, cos: Any, sin: Any, signs: Any) -> Any:
    return x * cos + (jnp.roll(x, x.shape[-1] // 2, -1) * signs) * sin


def signs_chosen(x: Any, cos: Any, sin: Any) -> Any:
    crossed = jnp.roll(x, x.shape[-1] // 2, -1)
    first = jnp.arange(x.shape[-1]) < x.shape[-1] // 2
    return x * cos + jnp.where(first, -crossed, crossed) * sin


def of_two_tensors(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    return jnp.concatenate([x * cos - y * sin, y * cos + x * sin], -1)


def crossed_with_another(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((-y[..., half:], x[..., :half]), axis=-1)
    return x * cos + crossed * sin


def shows_a_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    first = a * cos - b * sin
    return jnp.concatenate([first, b * cos + a * sin], -1), first


def reads_a_product(x: Any, cos: Any, sin: Any) -> Any:
    straight = x * cos
    return straight + rotate_half(x) * sin, jnp.exp(straight)


def rest_of_another(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    a, b, _ = jnp.split(x, (4, 8), axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, y[..., 8:]], -1)


def rest_in_front(x: Any, cos: Any, sin: Any) -> Any:
    rest, a, b = jnp.split(x, (8, 12), axis=-1)
    return jnp.concatenate([rest, a * cos - b * sin, b * cos + a * sin], -1)


def three_rolled(x: Any, cos: Any, sin: Any) -> Any:
    return x * cos + jnp.roll(x, -1, -1) * sin


def points_moved_along_y(x: Any, cos: Any, sin: Any) -> Any:
    first = x[..., :1] * cos - x[..., 1:] * sin
    return jnp.concatenate([first, x[..., 1:] + cos], -1)


def sums_negated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    halves = [-(b * sin - a * cos), b * cos + a * sin]
    return jnp.concatenate(halves, -1)


def some_pairs_turned_back(x: Any, cos: Any, sin: Any) -> Any:
    parts = -x[..., 8:12], x[..., 12:], x[..., :4], -x[..., 4:8]
    return x * cos + jnp.concatenate(parts, -1) * sin


HALVES = Q[..., :8].copy(), Q[..., 8:].copy()
ONE = PAIRS[0][..., :1].copy()
_TAKES = "; takes slices, concatenations and negations of %0 f32[2,5,3,16]"
NEAR_MISSES = [
    (
        both_add,
        (Q, *PAIRS),
        Reason.SIGN,
        "element 0 of 16 adds its product with sin, its partner does not turn the sign "
        "too, and %2 holds 8 numbers for both",
    ),
    (
        halves_swapped,
        (Q, *PAIRS),
        Reason.SIGN,
        "element 8 of 16 subtracts its product with cos, its partner does not turn the "
        "sign too, and %2 holds 8 numbers for both",
    ),
    (
        some_pairs_turned_back,
        (Q, *FULL),
        Reason.SIGN,
        "element 4 of 16 adds its product with sin, not all pairs do so; takes the "
        "same of all",
    ),
    (
        sums_negated,
        (Q, *PAIRS),
        Reason.SIGNED_ZERO,
        "element 0 of 16 is a sum with its sign turned; takes signs turned of products",
    ),
    (
        three_rolled,
        (Q[..., :3].copy(), *(table[..., :3].copy() for table in FULL)),
        Reason.PARTNER,
        "3 elements are turned; takes pairs",
    ),
    (
        points_moved_along_y,
        (Q[..., :2].copy(), *(table[..., :1].copy() for table in FULL)),
        Reason.PARTNER,
        "1 elements are turned; takes pairs",
    ),
    (
        not_crossed,
        (Q, *FULL),
        Reason.PARTNER,
        "element 0 of 16 is made of elements 0 and 0",
    ),
    (
        read_in_pairs_put_in_halves,
        (Q, *PAIRS),
        Reason.PARTNER,
        "element 0 of 16 is made of elements 0 and 1",
    ),
    (
        paired_from_both_ends,
        (Q, *FULL),
        Reason.PARTNER,
        "element 0 of 16 is paired with element 15, takes 8 or 1",
    ),
    (
        exchanged_in_a_half,
        (Q, *PAIRS),
        Reason.TABLES,
        "cos is elements 0, 1, 2, 3, 4, 5, 6, 7 of %1, %2 for 16 turned elements",
    ),
    (
        turned_whole,
        (Q, ONE, FULL[1]),
        Reason.TABLES,
        "cos is elements 0, 0, 0, 0, 0, 0, 0, 0 of %1 for 16 turned elements",
    ),
    (
        sines_of_two_tensors,
        (Q, *PAIRS, PAIRS[0] + 1),
        Reason.TABLES,
        "sin is elements 0, 1, 2, 3, 4, 5, 6, 7 of %2, %3 for 16 turned elements",
    ),
    (
        more_cosines,
        (Q, FULL[0], PAIRS[0]),
        Reason.TABLES,
        "cos is 16 numbers of %1, sin 8 numbers of %2 for 16 turned elements; takes as "
        "many of both",
    ),
    (
        crossed_by_a_matrix,
        (Q, *FULL),
        Reason.CROSSED,
        "DotGeneral makes %14 f32[2,5,3,16] of %0 f32[2,5,3,16], %13 f32[16,16]"
        + _TAKES,
    ),
    (
        crossed_by_a_given_matrix,
        (Q, *FULL, np.eye(16, dtype=np.float32)),
        Reason.CROSSED,
        "DotGeneral makes %4 f32[16,2,5,3] of %3 f32[16,16], %0 f32[2,5,3,16]" + _TAKES,
    ),
    (
        crossed_as_matrices,
        (
            array((4, 3, 16), 0),
            *(array((4, 3, 16), n) for n in (1, 2)),
            np.ones((4, 3, 3), np.float32),
        ),
        Reason.CROSSED,
        "MatMul makes %5 f32[4,3,16] of %3 f32[4,3,3], %0 f32[4,3,16]; takes slices, "
        "concatenations and negations of %0 f32[4,3,16]",
    ),
    (
        crossed_by_indices,
        (Q, *FULL),
        Reason.CROSSED,
        "Gather makes %8 f32[2,5,3,16] of %0 f32[2,5,3,16], %7 i32[16]" + _TAKES,
    ),
    (
        signs_multiplied,
        (Q, *FULL, np.ones(16, np.float32)),
        Reason.CROSSED,
        "Binary[MUL] makes %8 f32[2,5,3,16] of %7 f32[2,5,3,16], %3 f32[16]" + _TAKES,
    ),
    (
        signs_chosen,
        (Q, *FULL),
        Reason.CROSSED,
        "Select makes %10 f32[2,5,3,16] of %7 bool[16], %9 f32[2,5,3,16], "
        "%5 f32[2,5,3,16]" + _TAKES,
    ),
    (
        of_two_tensors,
        (*HALVES, *PAIRS),
        Reason.OTHER_SOURCE,
        "the products are of %0, %1, %2, %3, none of which is in all of them",
    ),
    (
        crossed_with_another,
        (Q, Q + 1, *FULL),
        Reason.OTHER_SOURCE,
        "a product takes elements of %0, %1, %3, not all of %0",
    ),
    (shows_a_half, (Q, *PAIRS), Reason.SHARED, "%7 is an output"),
    (reads_a_product, (Q, *FULL), Reason.SHARED, "%3 is read by Unary[EXP] to %10"),
    (
        rest_of_another,
        (Q, Q + 1, *FEW),
        Reason.REST,
        "element 8 is element 8 of %1",
    ),
    (rest_in_front, (Q, *FEW), Reason.REST, "element 0 is element 0 of %0"),
]
