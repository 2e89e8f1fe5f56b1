"""What looks like attention and is none, with the reason and the values named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import poot
import poot.numpy as jnp
from poot import nn
from poot.lowering.passes.driver import Reason
from tests.attention_spellings import HEADS, SCALE, B, H, T, products, softmax


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A function of q, k, v and maybe a square a head, and why it is declined."""

    function: Callable[..., Any]
    reason: Reason
    detail: str
    extras: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        return self.function.__name__

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (HEADS,) * 3 + self.extras


NEAR_MISSES: list[NearMiss] = []


def near_miss(reason: Reason, detail: str, *extras: tuple[int, ...]) -> Callable:
    def record(function: Callable) -> Callable:
        NEAR_MISSES.append(NearMiss(function, reason, detail, extras))
        return function

    return record


def powers_of(scores: Any) -> Any:
    return jnp.exp(scores - scores.max(-1, keepdims=True))


def softmax_below(scores: Any, largest: Any) -> Any:
    powers = jnp.exp(scores - largest)
    return powers / powers.sum(-1, keepdims=True)


# --- the softmax --------------------------------------------------------------


@near_miss(Reason.NO_PEAK, "the exponent %4 = MatMul(%0, %3) is no difference")
def nothing_taken_off(q, k, v):
    powers = jnp.exp(products(q, k))
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(
    Reason.NO_PEAK,
    "%6 = Binary[DIV](%5, 9.0:f32) is taken off %4 f32[2,4,9,9], and",
)
def the_mean_taken_off(q, k, v):
    scores = products(q, k)
    powers = jnp.exp(scores - scores.mean(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(Reason.NO_PEAK, "%6 is the largest of %4 f32[2,4,9,9], and taken off %5")
def another_largest(q, k, v):
    scores = products(q, k) * SCALE
    powers = jnp.exp(scores - products(q, k).max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(Reason.SHARES_USED, "%6, the exponent, is read by Reduce[SUM] for %11 too")
def exponents_read(q, k, v):
    scores = products(q, k)
    below = scores - scores.max(-1, keepdims=True)
    powers = jnp.exp(below)
    return (powers / powers.sum(-1, keepdims=True)) @ v, below.sum(-1)


@near_miss(Reason.OTHER_TOTAL, "nothing sums %7, read by Binary[DIV] for %10")
def another_sum(q, k, v):
    scores = products(q, k)
    return (powers_of(scores) / jnp.abs(scores).sum(-1, keepdims=True)) @ v


@near_miss(
    Reason.OTHER_TOTAL, "%8 is the sum along axis 2, the largest was along axis 3"
)
def sum_of_another_axis(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / powers.sum(-2, keepdims=True)) @ v


@near_miss(
    Reason.OTHER_TOTAL,
    "%10 divides by %9 = Binary[ADD](%8, 9.999999974752427e-07:f32), which is not "
    "the sum %8",
)
def small_number_added(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / (powers.sum(-1, keepdims=True) + 1e-6)) @ v


@near_miss(Reason.OTHER_TOTAL, "makes %11 of %8, which the sum %9 does not divide")
def small_number_added_late(q, k, v):
    powers = powers_of(products(q, k))
    return (powers @ v) / (powers.sum(-1, keepdims=True) + 1e-6)


@near_miss(Reason.OTHER_TOTAL, "%8, which the sum %9 is to divide, is read by 2 others")
def means_read_before_they_are(q, k, v):
    powers = powers_of(products(q, k))
    sums = powers @ v
    return sums / powers.sum(-1, keepdims=True), -sums


def whole(x: Any) -> Any:
    return x.astype(jnp.int32).astype(jnp.float32)


@near_miss(Reason.OTHER_TOTAL, "%11 divides by %10 = Cast(%9), which is not the sum %8")
def the_sum_cut_to_a_whole_number(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / whole(powers.sum(-1, keepdims=True))) @ v


@near_miss(Reason.NO_PEAK, "%6 = Cast(%5) is taken off %4 f32[2,4,9,9], and is no")
def the_largest_cut_to_a_whole_number(q, k, v):
    scores = products(q, k)
    return softmax_below(scores, whole(scores.max(-1, keepdims=True))) @ v


@near_miss(
    Reason.NO_PEAK,
    "Select(%12, %11, %13) is taken off %10 f32[9,9], and is no largest of it",
)
def zeros_that_repeat_the_largest(q, k, v):
    scores = q[0, 0] @ k[0, 0].T
    largest = scores.max(-1)
    largest = jnp.where(jnp.isfinite(largest), largest, jnp.zeros((T, 1))).T
    return softmax_below(scores, largest) @ v[0, 0]


# --- the shares ---------------------------------------------------------------


@near_miss(Reason.SHARES_USED, "%9, the shares, is an output")
def shares_returned(q, k, v):
    shares = softmax(products(q, k))
    return shares @ v, shares


@near_miss(Reason.SHARES_USED, "%9, the shares, is read by Reduce[SUM] for %11 too")
def shares_averaged(q, k, v):
    shares = softmax(products(q, k))
    return shares @ v, shares.mean(1)


@near_miss(Reason.SHARES_USED, "%7, the exponentials, is read by Reduce[SUM] for %11")
def powers_averaged(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / powers.sum(-1, keepdims=True)) @ v, powers.sum(0)


@near_miss(Reason.SHARES_USED, "%7, the exponentials, is read by Reduce[MAX] for %11")
def powers_read_when_divided_late(q, k, v):
    powers = powers_of(products(q, k))
    return (powers @ v) / powers.sum(-1, keepdims=True), powers.max(0)


@near_miss(Reason.SHARES_USED, "%11, the exponentials, is read by Binary[MUL]")
def differentiated(q, k, v):
    def loss(q):
        return jnp.sum(softmax(products(q, k) * SCALE) @ v)

    return poot.grad(loss)(q)


@near_miss(
    Reason.SHARES_CHANGED,
    "Binary[MUL] makes %11 f32[2,4,9,9] of the shares %10 f32[2,4,9,9]",
    (B, H, T, T),
)
def shares_dropped(q, k, v, kept):
    return (softmax(products(q, k)) * kept) @ v


@near_miss(
    Reason.SHARES_CHANGED,
    "Slice makes %12 f32[2,4,9,9] of the shares %11 f32[2,4,9,10]",
    (B, H, T, 1),
)
def a_sink_beside_the_keys(q, k, v, sink):
    return softmax(jnp.concatenate([products(q, k), sink], -1))[..., :-1] @ v


@near_miss(
    Reason.SHARES_CHANGED,
    "Select makes %14 f32[2,4,9,9] of the shares %13 f32[2,4,9,9], 0.0:f32 where %7 "
    "does not hold; the kernel has NaN, not that, in rows where it never does",
)
def rows_of_no_key_are_zero(q, k, v):
    place = jnp.arange(T)
    return nn.softmax(products(q, k), where=place[:, None] > place) @ v


@near_miss(
    Reason.SHARES_CHANGED,
    "Select makes %12 f32[2,4,9,9] of the shares %11 f32[2,4,9,9], 0.0:f32 where %4 "
    "does not hold",
    (B, H, T, T),
)
def shares_chosen(q, k, v, kept):
    return jnp.where(kept > 0, softmax(products(q, k)), 0) @ v


@near_miss(
    Reason.SHARES_CHANGED,
    "Binary[MUL] makes %12 f32[2,4,9,9,8] of the shares %10 f32[2,4,9,9,1]",
)
def products_that_are_summed(q, k, v):
    shares = softmax(products(q, k))
    return (shares[..., None] * v[:, :, None]).sum(-2)


# --- sinks --------------------------------------------------------------------


@near_miss(Reason.OTHER_TOTAL, "%10 divides by %9 = Binary[ADD](1.0:f32, %8), which")
def one_more_than_the_sum(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / (1 + powers.sum(-1, keepdims=True))) @ v


@near_miss(
    Reason.NO_PEAK,
    "%6 = Binary[MAX](%5, 0.0:f32) is taken off %4 f32[2,4,9,9], and is no largest",
)
def one_more_below_a_peak(q, k, v):
    scores = products(q, k)
    largest = jnp.maximum(scores.max(-1, keepdims=True), 0)
    powers = jnp.exp(scores - largest)
    return (powers @ v) / (jnp.exp(-largest) + powers.sum(-1, keepdims=True))


@near_miss(Reason.NO_PEAK, "%7 = Binary[MAX](%6, %3) is taken off %5", (H, 1, 1))
def a_sink_in_the_sum(q, k, v, sink):
    scores = products(q, k)
    largest = jnp.maximum(scores.max(-1, keepdims=True), sink)
    powers = jnp.exp(scores - largest)
    total = jnp.exp(sink - largest) + powers.sum(-1, keepdims=True)
    return (powers / total) @ v


# --- the scores ---------------------------------------------------------------


@near_miss(Reason.NO_PRODUCTS, "the scores are %7")
def no_products(q, k, v):
    return softmax(q.sum(-1)[..., None] + k.sum(-1)[..., None, :]) @ v


@near_miss(
    Reason.NO_PRODUCTS,
    "the scores are %5 f32[2,4,9,9]; %5 f32[2,4,9,9] is made by Cumulative[SUM]",
)
def scores_summed_up(q, k, v):
    return softmax(jnp.cumsum(products(q, k), -1)) @ v


@near_miss(Reason.SCORES_USED, "%5 is an output")
def scores_returned(q, k, v):
    scores = products(q, k) * SCALE
    return softmax(scores) @ v, scores


@near_miss(Reason.SCORES_USED, "%4 is read by Unary[TANH] for %12 too")
def products_read(q, k, v):
    raw = products(q, k)
    return softmax(raw * SCALE) @ v, jnp.tanh(raw).sum(-1)


@near_miss(
    Reason.BOUNDARY, "%5 = Slice(%4) is between %4 f32[2,4,9,9] and the scores %7"
)
def scores_rolled(q, k, v):
    return softmax(jnp.roll(products(q, k), 1, -1)) @ v


@near_miss(Reason.OPERAND_LIMIT, "24 extras; takes 20", (B, H, T, T))
def many_biases(q, k, v, bias):
    scores = products(q, k)
    for number in range(24):
        scores = scores + jnp.cumsum(bias * float(number), -1)
    return softmax(scores) @ v


@near_miss(Reason.SIZE_LIMIT, "more than 192 equations make %")
def many_equations(q, k, v):
    scores = products(q, k)
    for number in range(100):
        scores = jnp.tanh(scores) + 1.0 / (2 + number)
    return softmax(scores) @ v


@near_miss(Reason.SIZE_LIMIT, "120 equations make the scores; takes 96")
def rather_many_equations(q, k, v):
    scores = products(q, k)
    for number in range(60):
        scores = jnp.tanh(scores) + 1.0 / (2 + number)
    return softmax(scores) @ v


# --- axes and dtypes ----------------------------------------------------------

_AXES = "products %4 f32[2,4,9,9], scores %4 f32[2,4,9,9] with keys along axis "


@near_miss(Reason.OTHER_AXES, f"{_AXES}2, means %10 f32[2,4,9,8]")
def softmax_over_queries(q, k, v):
    return softmax(products(q, k), axis=-2) @ v


@near_miss(Reason.OTHER_AXES, f"{_AXES}3, means %")
def the_largest_reshaped_as_repeats(q, k, v):
    scores = products(q, k)
    largest = jnp.broadcast_to(scores.max(-1, keepdims=True), scores.shape)
    largest = jnp.transpose(largest.reshape(T, T, B, H), (2, 3, 0, 1))
    powers = jnp.exp(scores - largest)
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(Reason.OTHER_AXES, f"{_AXES}3, means %11 f32[2,4,9,8]")
def queries_contracted(q, k, v):
    return jnp.swapaxes(softmax(products(q, k)), -1, -2) @ v


@near_miss(Reason.OTHER_AXES, "scores %6 f32[2,4,9,9] with keys along axis 3")
def scores_turned_and_added(q, k, v):
    scores = products(q, k)
    return softmax(scores + jnp.swapaxes(scores, -1, -2)) @ v


@near_miss(Reason.OTHER_AXES, "products %3 f32[2,9,9]")
def heads_contracted(q, k, v):
    shares = softmax(jnp.einsum("bhtd,bhsd->bts", q, k))
    return jnp.einsum("bts,bhsd->bhtd", shares, v)


@near_miss(Reason.OTHER_AXES, "means %13 f32[2,4,9,8,8]")
def values_of_two_axes(q, k, v):
    shares = softmax(products(q, k))
    return jnp.einsum("bhts,bhsde->bhtde", shares, products(v[..., None], v[..., None]))


@near_miss(Reason.OTHER_AXES, "scores %5 f32[2,4,9,1]")
def one_key(q, k, v):
    return softmax(products(q, k[:, :, :1])) @ v[:, :, :1]


@near_miss(Reason.OTHER_AXES, "with keys along axis 3")
def total_of_other_rows(q, k, v):
    powers = powers_of(products(q, k))
    return (powers / powers.sum(-1)[..., None, :]) @ v


@near_miss(Reason.OTHER_AXES, "with keys along axis 3")
def largest_of_other_rows(q, k, v):
    scores = products(q, k)
    powers = jnp.exp(scores - scores.max(-1)[..., None, :])
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(Reason.OTHER_AXES, "with keys along axis 3")
def late_total_of_other_rows(q, k, v):
    powers = powers_of(products(q, k))
    return (powers @ v[..., :1]) / powers.sum(-1)[..., None, :]


@near_miss(Reason.OTHER_DTYPE, "%4 i32[2,4,9,8]; takes f16, bf16 and f32")
def integers(q, k, v):
    q, k = (jnp.round(x).astype(jnp.int32) for x in (q, k))
    return softmax(products(q, k).astype(jnp.float32)) @ v


@near_miss(Reason.OTHER_DTYPE, "a cast to %11 rounds once more")
def shares_cast_twice(q, k, v):
    shares = softmax(products(q, k))
    return shares.astype(jnp.float16).astype(jnp.float32) @ v


@near_miss(Reason.OTHER_DTYPE, "a cast to %11 rounds once more")
def means_cast_before_they_are_divided(q, k, v):
    powers = powers_of(products(q, k))
    sums = powers.astype(jnp.bfloat16) @ v.astype(jnp.bfloat16)
    return sums.astype(jnp.float32) / powers.sum(-1, keepdims=True)


@near_miss(
    Reason.OTHER_AXES,
    "products %6 f32[2,4,9,9], scores %6 f32[2,4,9,9] with keys along axis 3, means",
)
def heads_of_no_elements(q, k, v):
    return softmax(products(q[..., :0], k[..., :0])) @ v


@near_miss(Reason.OTHER_DTYPE, "%9 is the sum cast to bf16; takes what holds all")
def narrow_sums_of_wide_means(q, k, v):
    powers = powers_of(products(q, k))
    total = powers.sum(-1, keepdims=True).astype(jnp.bfloat16)
    return (powers @ v) / total.astype(jnp.float32)
