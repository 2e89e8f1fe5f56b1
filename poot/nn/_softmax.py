"""Exponentials relative to their sum along axes, under the names of jax.nn.

The largest element is taken off before, so that nothing overflows. Along no element the
sum is 0 and its logarithm -inf.
"""

from __future__ import annotations

import math
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, promote_inexact
from poot.interpreters.shaping import canonical_axes


def _peak(x: Value, axes: tuple[int, ...]) -> Value:
    """The largest elements along axes, -inf of none, as constants: they cancel."""
    is_empty = math.prod(x.shape[axis] for axis in axes) == 0
    initial = -math.inf if is_empty else None
    peak: Value = lax.stop_gradient(jnp.max(x, axes, keepdims=True, initial=initial))
    return peak


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Value:
    """exp(x) over its sum along an axis, several, or all (None).

    `where` says which elements count; the others give 0. Rows with an inf, or with
    nothing but -inf, give NaN.
    """
    x = as_value(x, "nn.softmax")
    axes = canonical_axes(axis, x.ndim, "nn.softmax")
    powers = jnp.exp(_below_peak(x, axes, where))
    shares = powers / jnp.sum(powers, axes, keepdims=True)
    # What does not count is exp(-inf), but for rows of nothing else.
    return shares if where is None else jnp.where(where, shares, 0)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Value:
    """The logarithm of softmax; of elements that do not count: -inf."""
    x = as_value(x, "nn.log_softmax")
    axes = canonical_axes(axis, x.ndim, "nn.log_softmax")
    below = _below_peak(x, axes, where)
    logs = below - jnp.log(jnp.sum(jnp.exp(below), axes, keepdims=True))
    return logs if where is None else jnp.where(where, logs, -math.inf)


def _below_peak(x: Value, axes: tuple[int, ...], where: Any) -> Value:
    """The distance to the largest element that counts; -inf for those that do not."""
    counted = x if where is None else jnp.where(where, x, -math.inf)
    return counted - _peak(counted, axes)


def logsumexp(
    a: Any,
    axis: Any = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(b exp(a))) along an axis, several, or all (None).

    With `return_sign` the logarithm of the sum's size, and its sign; without, negative
    sums give NaN. `where` says which elements count. `b` broadcasts against `a`.
    """
    given = [as_value(x, "nn.logsumexp") for x in (a, b) if x is not None]
    exponents, *weights = promote_inexact("nn.logsumexp", *given).operands
    if weights:
        exponents = jnp.where(weights[0] != 0, exponents, -math.inf)
    if where is not None:
        exponents = jnp.where(where, exponents, -math.inf)
    axes = canonical_axes(axis, exponents.ndim, "nn.logsumexp")
    peak = _peak(exponents, axes)
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    powers = jnp.exp(exponents - peak)
    total = jnp.sum(powers * weights[0] if weights else powers, axes, keepdims=True)
    log = jnp.log(jnp.abs(total) if weights else total) + peak
    if weights and not return_sign:
        log = jnp.where(total < 0, math.nan, log)
    log, total = (x if keepdims else jnp.squeeze(x, axes) for x in (log, total))
    return (log, jnp.sign(total)) if return_sign else log


def logmeanexp(
    x: Any, axis: Any = None, where: Any = None, keepdims: bool = False
) -> Value:
    """log(mean(exp(x))) along an axis, several, or all (None), of what counts."""
    x = as_value(x, "nn.logmeanexp")
    total: Value = logsumexp(x, axis, keepdims=keepdims, where=where)
    if where is None:
        axes = canonical_axes(axis, x.ndim, "nn.logmeanexp")
        count = math.prod(x.shape[axis] for axis in axes)
        return total - (math.log(count) if count else -math.inf)
    counted = jnp.broadcast_to(as_value(where), x.shape)
    return total - jnp.log(jnp.sum(counted, axis, total.dtype, keepdims=keepdims))
