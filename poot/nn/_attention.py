"""Attention by scaled products, with jax.nn's arguments and masks.

Sizes by letter: B examples, T queries, S keys, N query heads, K key heads, H elements a
head; K divides N, and N / K neighbouring query heads share one of the keys'.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.interpreters.contraction import dot_general
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to
from poot.nn._softmax import logsumexp, softmax

_WHERE = "nn.dot_product_attention"
# Of the largest float: logits that do not count become its negative, at which sums with
# a bias stay finite.
_MASKED = 0.7
# Axes of the logits.
_QUERIES, _KEYS = 2, 3


class _Sizes(NamedTuple):
    """How much there is of each; `groups` query heads share a key head."""

    batch: int
    queries: int
    keys: int
    key_heads: int
    groups: int
    head: int

    @property
    def heads(self) -> int:
        return self.key_heads * self.groups

    @property
    def logits(self) -> tuple[int, int, int, int]:
        return (self.batch, self.heads, self.queries, self.keys)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale query keyᵀ + bias) value, for each head.

    query: [B, T, N, H]; key, value: [B, S, K, H], or without B; all of one float dtype,
    which the result has too, in the query's shape. bias, of numbers, and mask, of
    bools: they broadcast to [B, N, T, S]. Sequence lengths: i32 [B]. A `scale` of None
    is 1 / sqrt(H). ShapeError or DTypeError for others.

    A key takes part where the mask is true, if causal up to the query's own position,
    within the window at most so many (or left, right) places away, and up to the
    example's length. Queries for which no key takes part give the mean of all values;
    those beyond the example's length give 0. Logits are f32 at least, and so is the
    softmax; its shares are rounded to the operands' dtype.

    With `return_residual` also the logsumexp of the logits, [B, T, N], which has no
    derivative. `implementation` is None or "xla"; both mean these ops.
    """
    if implementation not in (None, "xla"):
        raise ArgumentError(
            f"{_WHERE}: implementation is {implementation!r}, takes None or 'xla'"
        )
    q, k, v = (_with_batch(x) for x in (query, key, value))
    sizes = _sizes(q, k, v)
    lengths = (
        _lengths("query_seq_lengths", query_seq_lengths, sizes),
        _lengths("key_value_seq_lengths", key_value_seq_lengths, sizes),
    )
    counted = _counted(mask, is_causal, lengths, _window(local_window_size), sizes)
    logits = _logits(q, k, _scale(scale, sizes), bias, counted, sizes)
    shares = cast_to(softmax(logits), v.type.dtype)
    result = _averages(shares, v, sizes)
    if lengths[0] is not None:
        is_query = lax.broadcasted_iota(dtypes.int32, result.shape, 1) < lengths[0]
        result = jnp.where(is_query, result, 0)
    result = jnp.reshape(result, as_value(query).shape)
    if not return_residual:
        return result
    residual = jnp.swapaxes(cast_to(logsumexp(logits, -1), k.type.dtype), 1, 2)
    residual = jnp.reshape(residual, result.shape[:-1])
    return result, lax.stop_gradient(residual)


# --- operands ---------------------------------------------------------------


def _with_batch(x: Any) -> Value:
    value = as_value(x, _WHERE)
    if value.ndim == 3:
        value = jnp.expand_dims(value, 0)
    if value.ndim != 4 or not value.type.dtype.is_float:
        raise ShapeError(
            f"{_WHERE}: given {value.type}, takes floats of three or four axes"
        )
    return value


def _sizes(q: Value, k: Value, v: Value) -> _Sizes:
    batch, keys, key_heads, head = k.shape
    found = ", ".join(str(x.type) for x in (q, k, v))
    if not (q.type.dtype is k.type.dtype is v.type.dtype):
        raise DTypeError(
            f"{_WHERE}: query, key and value are {found}, take one dtype; cast with "
            ".astype(…)"
        )
    if v.shape != k.shape or (q.shape[0], q.shape[3]) != (batch, head):
        raise ShapeError(
            f"{_WHERE}: query, key and value are {found}; the last two take one shape, "
            "and the query the same first and last size"
        )
    heads = q.shape[2]
    if key_heads == 0 or heads % key_heads:
        raise ShapeError(
            f"{_WHERE}: {heads} query heads over {key_heads} key heads; the number of "
            "query heads must be a multiple"
        )
    return _Sizes(batch, q.shape[1], keys, key_heads, heads // key_heads, head)


def _scale(scale: float | None, sizes: _Sizes) -> Any:
    if scale is not None:
        return scale
    return 1 / math.sqrt(sizes.head) if sizes.head else 0.0


def _to_logits(name: str, x: Any, sizes: _Sizes) -> Value:
    """A bias or mask with four axes that broadcast to the logits'."""
    value = as_value(x, _WHERE)
    value = jnp.reshape(value, (1,) * (4 - value.ndim) + value.shape)
    pairs = zip(value.shape, sizes.logits, strict=False)
    if value.ndim != 4 or any(own not in (1, size) for own, size in pairs):
        raise ShapeError(
            f"{_WHERE}: {name} has shape {value.shape}, which does not broadcast to "
            f"the logits' {sizes.logits}"
        )
    return value


def _lengths(name: str, x: Any, sizes: _Sizes) -> Value | None:
    """The length of each example, to compare with positions: [B, 1, 1, 1]."""
    if x is None:
        return None
    value = jnp.asarray(x)
    if value.shape != (sizes.batch,) or value.type.dtype is not dtypes.int32:
        raise ShapeError(
            f"{_WHERE}: {name} is {value.type}, takes i32[{sizes.batch}], a length for "
            "each example"
        )
    return jnp.reshape(value, (-1, 1, 1, 1))


def _window(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    left, right = size if isinstance(size, tuple) else (size, size)
    return operator.index(left), operator.index(right)


# --- parts ------------------------------------------------------------------


def _logits(
    q: Value, k: Value, scale: Any, bias: Any, counted: Value | None, sizes: _Sizes
) -> Value:
    """How much each query takes of each key: [B, N, T, S], f32 at least."""
    b, t, _, key_heads, groups, h = sizes
    apart = jnp.reshape(q, (b, t, key_heads, groups, h))
    by_head = jnp.transpose(apart, (0, 2, 3, 1, 4))
    wide = q.type.dtype.compute
    products = dot_general(
        by_head, k, ((4,), (3,)), ((0, 1), (0, 2)), preferred_element_type=wide
    )
    logits = jnp.multiply(jnp.reshape(products, sizes.logits), scale)
    if bias is not None:
        logits = logits + _to_logits("bias", bias, sizes)
    # A scale or bias of a wider dtype widens no further.
    logits = cast_to(logits, wide)
    if counted is None:
        return logits
    return jnp.where(counted, logits, -_MASKED * float(jnp.finfo(logits.dtype).max))


def _averages(shares: Value, v: Value, sizes: _Sizes) -> Value:
    """Values weighted by the shares, [B, N, T, S]: [B, T, N, H]."""
    b, t, s, key_heads, groups, h = sizes
    apart = jnp.reshape(shares, (b, key_heads, groups, t, s))
    averages = dot_general(apart, v, ((4,), (1,)), ((0, 1), (0, 2)))
    by_query = jnp.transpose(averages, (0, 3, 1, 2, 4))
    return jnp.reshape(by_query, (b, t, key_heads * groups, h))


def _counted(
    mask: Any,
    is_causal: bool,
    lengths: tuple[Value | None, Value | None],
    window: tuple[int, int] | None,
    sizes: _Sizes,
) -> Value | None:
    """Which logits count, in a shape that broadcasts to them; None: all."""

    def places(axis: int) -> Value:
        # Of the logits' whole shape, so that the softmax's kernel counts for itself.
        return lax.broadcasted_iota(dtypes.int32, sizes.logits, axis)

    conditions = []
    if mask is not None:
        given = _to_logits("mask", mask, sizes)
        if not given.type.dtype.is_bool:
            raise DTypeError(
                f"{_WHERE}: the mask is {given.type}, takes bools; what is added to "
                "the logits is a bias"
            )
        conditions.append(given)
    if is_causal:
        conditions.append(places(_KEYS) <= places(_QUERIES))
    if window is not None:
        ahead = places(_KEYS) - places(_QUERIES)
        conditions += [ahead >= -window[0], ahead <= window[1]]
    for axis, length in zip((_QUERIES, _KEYS), lengths, strict=True):
        if length is not None:
            conditions.append(places(axis) < length)
    counted: Value | None = None
    for condition in conditions:
        counted = condition if counted is None else counted & condition
    return counted
