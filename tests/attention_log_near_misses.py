"""Shares that are spelled by a logarithm, but are no softmax's.

NEAR_MISSES from here has these too.
"""

from __future__ import annotations

from typing import Any

import poot.numpy as jnp
from poot import nn
from poot.lowering.passes.driver import Reason
from tests.attention_near_misses import NEAR_MISSES, near_miss, softmax_below, whole
from tests.attention_spellings import B, T, products

__all__ = ["NEAR_MISSES"]


def log_total(scores: Any) -> Any:
    """The logarithm of the sum of exponentials, and the largest score, a row."""
    largest = scores.max(-1, keepdims=True)
    return jnp.log(jnp.exp(scores - largest).sum(-1, keepdims=True)), largest


def logsumexp(scores: Any) -> Any:
    log, largest = log_total(scores)
    return log + largest


@near_miss(Reason.OTHER_BASE, "%7 = Unary[EXP2](%6); takes exponentials")
def powers_of_two(q, k, v):
    scores = products(q, k)
    powers = jnp.exp2(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v


@near_miss(Reason.NO_PEAK, "the exponent %4 = MatMul(%0, %3) is no difference")
def logarithm_of_large_powers(q, k, v):
    scores = products(q, k)
    return jnp.exp(scores - jnp.log(jnp.exp(scores).sum(-1, keepdims=True))) @ v


@near_miss(
    Reason.OTHER_TOTAL,
    "%9 = Unary[LOG](%8) is taken off %4; takes %9, the logarithm of the sum, off %6, "
    "or that plus %5 off %4",
)
def without_the_largest(q, k, v):
    scores = products(q, k)
    return jnp.exp(scores - log_total(scores)[0]) @ v


@near_miss(Reason.OTHER_TOTAL, "Binary[ADD](%10, %6) is taken off %5; takes %10, the")
def logsumexp_of_other_scores(q, k, v):
    scores = products(q, k)
    return jnp.exp(jnp.tanh(scores) - logsumexp(scores)) @ v


@near_miss(Reason.OTHER_TOTAL, "is taken off %4; takes %9, the logarithm of the sum")
def logarithm_below_another_largest(q, k, v):
    scores = products(q, k)
    log, _ = log_total(scores)
    return jnp.exp(scores - (log + jnp.tanh(scores).max(-1, keepdims=True))) @ v


@near_miss(Reason.OTHER_TOTAL, "Binary[ADD](%9, %10) is taken off %4; takes %9")
def logarithm_and_no_largest(q, k, v):
    scores = products(q, k)
    return jnp.exp(scores - (log_total(scores)[0] + scores.min(-1, keepdims=True))) @ v


@near_miss(Reason.OTHER_TOTAL, "is taken off %4; takes %9, the logarithm of the sum")
def logarithm_of_the_mean(q, k, v):
    scores = products(q, k)
    return jnp.exp(scores - (logsumexp(scores) - 2)) @ v


@near_miss(
    Reason.OTHER_TOTAL,
    "Select(%13, %11, -inf:f32) is no difference, from which %9 = Unary[LOG](%8) is",
)
def logarithms_masked(q, k, v):
    scores = products(q, k)
    log, largest = log_total(scores)
    place = jnp.arange(T)
    logs = scores - largest - log
    return jnp.exp(jnp.where(place[:, None] >= place, logs, -jnp.inf)) @ v


@near_miss(
    Reason.OTHER_TOTAL, "%8 is the sum along axis 2, the largest was along axis 3"
)
def logarithm_of_another_axis(q, k, v):
    scores = products(q, k)
    largest = scores.max(-1, keepdims=True)
    below = scores - largest
    return jnp.exp(below - jnp.log(jnp.exp(below).sum(-2, keepdims=True))) @ v


@near_miss(Reason.SHARES_USED, "%10, the logarithm of their sum, is an output")
def logsumexp_returned(q, k, v):
    scores = products(q, k)
    total = logsumexp(scores)
    return jnp.exp(scores - total) @ v, total


@near_miss(Reason.SHARES_USED, "the logarithm of their sum, is read by Unary[TANH] for")
def logarithm_read(q, k, v):
    scores = products(q, k)
    log, largest = log_total(scores)
    return jnp.exp(scores - (log + largest)) @ v, jnp.tanh(log)


@near_miss(Reason.SHARES_USED, "%7, the exponentials, is read by Reduce[MIN] for")
def powers_below_the_logarithm_read(q, k, v):
    scores = products(q, k)
    below = scores - scores.max(-1, keepdims=True)
    powers = jnp.exp(below)
    logs = below - jnp.log(powers.sum(-1, keepdims=True))
    return jnp.exp(logs) @ v, powers.min(0)


@near_miss(Reason.SHARES_USED, "%6, the exponent, is read by Reduce[MIN] for")
def exponents_below_the_logarithm_read(q, k, v):
    scores = products(q, k)
    below = scores - scores.max(-1, keepdims=True)
    logs = below - jnp.log(jnp.exp(below).sum(-1, keepdims=True))
    return jnp.exp(logs) @ v, below.min(0)


@near_miss(Reason.SHARES_USED, "%10, the exponent, is an output")
def logarithms_returned(q, k, v):
    logs = nn.log_softmax(products(q, k))
    return jnp.exp(logs) @ v, logs


@near_miss(Reason.SHARES_USED, "%11, the shares, is an output")
def shares_by_logarithms_returned(q, k, v):
    shares = jnp.exp(nn.log_softmax(products(q, k)))
    return shares @ v, shares


@near_miss(Reason.OTHER_AXES, " f32[9,9] is %")
def logarithms_of_all_rows(q, k, v):
    scores = products(q[0, 0], k[0, 0])
    log, largest = log_total(scores)
    return jnp.exp(scores - (log + largest[:, 0])) @ v[0, 0]


@near_miss(Reason.OTHER_AXES, " f32[9,9,9] with keys along axis 2")
def largest_of_other_rows_and_a_logarithm(q, k, v):
    q, k, v = (x[0, 0][:, None] * q[0, 0] for x in (q, k, v))
    scores = products(q, k)
    log, largest = log_total(scores)
    return jnp.exp(scores - (log + jnp.swapaxes(largest, 0, 1))) @ v


@near_miss(Reason.OTHER_AXES, " f32[9,9,9] with keys along axis 2")
def logarithm_of_other_rows_and_the_largest(q, k, v):
    q, k, v = (x[0, 0][:, None] * q[0, 0] for x in (q, k, v))
    scores = products(q, k)
    log, largest = log_total(scores)
    return jnp.exp(scores - (jnp.swapaxes(log, 0, 1) + largest)) @ v


@near_miss(Reason.NO_PEAK, "Select(%6, %5, 1.0:f32) is taken off %4 f32[2,4,9,9]")
def one_where_the_largest_is_infinite(q, k, v):
    scores = products(q, k)
    largest = scores.max(-1, keepdims=True)
    return softmax_below(scores, jnp.where(jnp.isfinite(largest), largest, 1)) @ v


@near_miss(Reason.NO_PEAK, "Select(%6, %5, 0.0:f32) is taken off %4 f32[2,4,9,9]")
def zero_where_the_largest_is_a_number(q, k, v):
    scores = products(q, k)
    largest = scores.max(-1, keepdims=True)
    return softmax_below(scores, jnp.where(jnp.isnan(largest), largest, 0)) @ v


@near_miss(Reason.NO_PEAK, "Select(%7, %6, 0.0:f32) is taken off %4 f32[2,4,9,9]")
def zero_where_something_else_is_infinite(q, k, v):
    scores = products(q, k)
    least, largest = (f(-1, keepdims=True) for f in (scores.min, scores.max))
    return softmax_below(scores, jnp.where(jnp.isfinite(least), largest, 0)) @ v


@near_miss(Reason.NO_PEAK, "Select(%6, %7, 0.0:f32) is taken off %5", (T, 1))
def zero_where_told(q, k, v, told):
    scores = products(q, k)
    largest = jnp.where(told > 0, scores.max(-1, keepdims=True), 0)
    return softmax_below(scores, largest) @ v


@near_miss(Reason.OTHER_TOTAL, "Cast(%9) is taken off %6; takes %9, the logarithm of")
def the_logarithm_cut_to_a_whole_number(q, k, v):
    scores = products(q, k)
    log, largest = log_total(scores)
    return jnp.exp((scores - largest) - whole(log)) @ v


@near_miss(Reason.OTHER_TOTAL, "%12 = Binary[ADD](%9, %11) is taken off %4; takes")
def another_largest_than_within(q, k, v):
    scores = products(q, k)
    log, largest = log_total(scores)
    return jnp.exp(scores - (log + whole(largest))) @ v


@near_miss(
    Reason.OTHER_AXES,
    "products %10 f32[9,9], scores %10 f32[9,9] with keys along axis 1, means",
)
def logarithms_repeated_for_a_batch(q, k, v):
    scores = q[0, 0] @ k[0, 0].T
    log, largest = log_total(scores)
    log = jnp.broadcast_to(log, (B, T, 1))
    return jnp.exp((scores - largest) - log) @ v[:, 0]


@near_miss(Reason.OTHER_DTYPE, "%13 is the logarithm cast to bf16; takes what holds")
def a_narrow_logsumexp(q, k, v):
    scores = products(q, k)
    total = nn.logsumexp(scores, -1, keepdims=True).astype(jnp.bfloat16)
    return jnp.exp(scores - total.astype(jnp.float32)) @ v
