"""Attention as model code spells it, as functions that are to become one equation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import poot
import poot.numpy as jnp
from poot import nn
from poot.core import dtypes

B, T, H, K, D = 2, 9, 4, 2, 8
SCALE = 1 / math.sqrt(D)
HEADS = (B, H, T, D)
TOKENS = (B, T, H, D)
GROUPED = (B, T, K, D)
BF16 = dtypes.bfloat16.numpy


@dataclass(frozen=True, slots=True)
class Spelling:
    """A function, and the shapes of its arguments; an int is an argument itself."""

    function: Callable[..., Any]
    shapes: tuple[Any, ...]
    dtype: Any = np.float32

    def __str__(self) -> str:
        return self.function.__name__

    def arguments(self, seed: int = 0) -> list[Any]:
        random = np.random.default_rng(seed)
        return [
            shape
            if isinstance(shape, int)
            else random.standard_normal(shape).astype(np.float32).astype(self.dtype)
            for shape in self.shapes
        ]


SPELLINGS: list[Spelling] = []


def spelling(*shapes: Any, dtype: Any = np.float32) -> Callable[..., Any]:
    def record(function: Callable[..., Any]) -> Callable[..., Any]:
        SPELLINGS.append(Spelling(function, shapes, dtype))
        return function

    return record


def softmax(x: Any, axis: int = -1) -> Any:
    powers = jnp.exp(x - jnp.max(x, axis=axis, keepdims=True))
    return powers / jnp.sum(powers, axis=axis, keepdims=True)


def products(q: Any, k: Any) -> Any:
    return q @ jnp.swapaxes(k, -1, -2)


# --- shapes and softmaxes -----------------------------------------------------


@spelling(HEADS, HEADS, HEADS)
def plain(q, k, v):
    return softmax(products(q, k) / math.sqrt(D)) @ v


@spelling(TOKENS, TOKENS, TOKENS)
def by_einsum(q, k, v):
    shares = nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) * SCALE)
    return jnp.einsum("bhts,bshd->bthd", shares, v).reshape(B, T, H * D)


@spelling((T, D), (7, D), (7, 5))
def one_head_of_other_values(q, k, v):
    return nn.softmax(jnp.dot(q, k.T) * SCALE) @ v


@spelling((T, 1), (7, 1), (7, 1))
def heads_of_one_element(q, k, v):
    return nn.softmax(jnp.dot(q, k.T)) @ v


@spelling(HEADS, HEADS, HEADS)
def divided_late(q, k, v):
    scores = products(q, k) * SCALE
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return (powers @ v) / powers.sum(-1, keepdims=True)


@spelling(TOKENS, TOKENS, TOKENS)
def divided_after_a_transpose(q, k, v):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * SCALE
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    means = jnp.einsum("bhts,bshd->bthd", powers, v)
    return means / jnp.swapaxes(powers.sum(-1), 1, 2)[..., None]


@spelling((B, 1, H, D), (B, 40, H, D), (B, 40, H, D))
def one_query_divided_after_a_reshape(q, k, v):
    return divided_after_a_transpose(q, k, v)


@spelling(HEADS, HEADS, HEADS)
def times_the_reciprocal(q, k, v):
    scores = products(q * SCALE, k)
    powers = jnp.exp(scores - scores.max(-1)[..., None])
    return (powers * (1.0 / powers.sum(-1)[..., None])) @ v


@spelling(HEADS, HEADS, HEADS)
def scaled_keys(q, k, v):
    return softmax(products(q, k * SCALE)) @ v


@spelling(HEADS, HEADS, HEADS)
def keys_before_queries(q, k, v):
    shares = softmax(k @ jnp.swapaxes(q, -1, -2) * SCALE, axis=-2)
    return jnp.einsum("bhst,bhsd->bhtd", shares, v)


@spelling(HEADS, HEADS, HEADS)
def heads_in_the_batch(q, k, v):
    q, k, v = (x.reshape(B * H, T, D) for x in (q, k, v))
    return (softmax(products(q, k) * SCALE) @ v).reshape(B, H, T, D)


@spelling(HEADS, HEADS, HEADS)
def mapped_over_heads(q, k, v):
    def head(q, k, v):
        return nn.softmax(q @ k.T * SCALE) @ v

    return poot.vmap(poot.vmap(head))(q, k, v)


# --- shares by a logarithm ----------------------------------------------------


def causal(scores: Any) -> Any:
    place = jnp.arange(T)
    return jnp.where(place[:, None] >= place, scores, -jnp.inf)


@spelling(HEADS, HEADS, HEADS)
def exponentials_of_log_softmax(q, k, v):
    return jnp.exp(nn.log_softmax(products(q, k) * SCALE)) @ v


@spelling(TOKENS, GROUPED, GROUPED)
def exponentials_of_log_softmax_by_einsum(q, k, v):
    k, v = (jnp.repeat(x, H // K, axis=2) for x in (k, v))
    logs = nn.log_softmax(causal(jnp.einsum("bthd,bshd->bhts", q, k) * SCALE))
    return jnp.einsum("bhts,bshd->bthd", jnp.exp(logs), v)


@spelling(HEADS, HEADS, HEADS)
def below_the_logsumexp(q, k, v):
    scores = products(q, k) * SCALE
    return jnp.exp(scores - nn.logsumexp(scores, -1, keepdims=True)) @ v


@spelling(HEADS, HEADS, HEADS)
def below_the_logsumexp_of_masked_scores(q, k, v):
    scores = causal(products(q, k) * SCALE)
    return jnp.exp(scores - nn.logsumexp(scores, axis=-1)[..., None]) @ v


@spelling(HEADS, HEADS, HEADS)
def below_the_largest_plus_the_logarithm(q, k, v):
    scores = products(q, k) * SCALE
    largest = scores.max(-1)
    powers = jnp.exp(scores - largest[..., None])
    return jnp.exp(scores - (largest + jnp.log(powers.sum(-1)))[..., None]) @ v


@spelling(HEADS, HEADS, HEADS)
def keys_first_below_the_logsumexp(q, k, v):
    scores = k @ jnp.swapaxes(q, -1, -2) * SCALE
    shares = jnp.exp(scores - nn.logsumexp(scores, axis=-2)[:, :, None])
    return jnp.einsum("bhst,bhsd->bhtd", shares, v)


@spelling(HEADS, HEADS, HEADS, dtype=BF16)
def narrow_shares_by_a_wide_logsumexp(q, k, v):
    scores = (products(q, k) * SCALE).astype(jnp.float32)
    total = nn.logsumexp(scores, -1, keepdims=True)
    return jnp.exp(scores - total).astype(q.dtype) @ v


@spelling(HEADS, HEADS, HEADS)
def finite_largest(q, k, v):
    scores = causal(products(q, k) * SCALE)
    largest = scores.max(-1, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    powers = jnp.exp(scores - largest)
    return (powers @ v) / powers.sum(-1, keepdims=True)


@spelling(HEADS, HEADS, HEADS)
def finite_largest_moved(q, k, v):
    scores = causal(products(q, k) * SCALE)
    largest = scores.max(-1)
    largest = jnp.where(jnp.isfinite(largest), largest, jnp.zeros_like(largest))
    powers = jnp.exp(scores - largest[..., None])
    return (powers / powers.sum(-1, keepdims=True)) @ v


# --- masks and biases ---------------------------------------------------------


@spelling(HEADS, HEADS, HEADS)
def causal_by_tril(q, k, v):
    mask = jnp.tril(jnp.ones((T, T), bool))
    return softmax(jnp.where(mask, products(q, k) * SCALE, -jnp.inf)) @ v


@spelling(HEADS, HEADS, HEADS)
def causal_by_an_added_triangle(q, k, v):
    bias = jnp.triu(jnp.full((T, T), -jnp.inf), 1)
    return softmax(products(q, k) * SCALE + bias) @ v


@spelling(HEADS, HEADS, HEADS)
def causal_by_added_billions(q, k, v):
    place = jnp.arange(T)
    bias = jnp.where(place[:, None] >= place[None, :], 0.0, -1e9)
    return softmax(products(q, k) * SCALE + bias) @ v


@spelling(HEADS, HEADS, HEADS)
def sliding_window(q, k, v):
    ahead = jnp.arange(T)[None, :] - jnp.arange(T)[:, None]
    mask = (ahead <= 0) & (ahead > -4)
    scores = jnp.where(mask, products(q, k) * SCALE, jnp.finfo(jnp.float32).min)
    return nn.softmax(scores) @ v


@spelling(HEADS, HEADS, HEADS, (B, T))
def padding_mask(q, k, v, kept):
    mask = (kept > 0)[:, None, None, :]
    scores = jnp.where(mask, products(q, k) * SCALE, jnp.finfo(jnp.float32).min)
    return nn.softmax(scores) @ v


@spelling(HEADS, HEADS, HEADS, (B, T))
def padding_bias(q, k, v, kept):
    bias = (1.0 - (kept > 0).astype(jnp.float32)) * -1e9
    return nn.softmax(products(q, k) * SCALE + bias[:, None, None, :]) @ v


@spelling(HEADS, HEADS, HEADS)
def soft_cap(q, k, v):
    scores = 20.0 * jnp.tanh(products(q, k) * SCALE / 20.0)
    mask = jnp.arange(T)[:, None] < jnp.arange(T)
    return softmax(jnp.where(mask, -1e30, scores)) @ v


@spelling(HEADS, HEADS, HEADS, (H, T, T))
def learned_bias(q, k, v, bias):
    return softmax(products(q, k) * SCALE + bias) @ v


@spelling(HEADS, HEADS, HEADS, (H,))
def bias_by_distance(q, k, v, slopes):
    ahead = (jnp.arange(T)[None, :] - jnp.arange(T)[:, None]).astype(jnp.float32)
    scores = products(q, k) * SCALE + slopes[:, None, None] * ahead
    return softmax(jnp.where(ahead > 0, -jnp.inf, scores)) @ v


@spelling(HEADS, HEADS, HEADS, (B, T))
def within_documents(q, k, v, marks):
    document = jnp.round(marks).astype(jnp.int32)
    same = document[:, None, :, None] == document[:, None, None, :]
    place = jnp.arange(T)
    mask = jnp.logical_and(same, place[:, None] >= place)
    return softmax(jnp.where(mask, products(q, k) * SCALE, -1e30)) @ v


# --- heads that share keys ----------------------------------------------------


@spelling(TOKENS, GROUPED, GROUPED)
def repeated_heads(q, k, v):
    k, v = (jnp.repeat(x, H // K, axis=2) for x in (k, v))
    shares = nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) * SCALE)
    return jnp.einsum("bhts,bshd->bthd", shares, v)


@spelling(HEADS, (B, K, T, D), (B, K, T, D))
def broadcast_heads(q, k, v):
    def wide(x):
        shape = (B, K, H // K, T, D)
        return jnp.broadcast_to(x[:, :, None], shape).reshape(B, H, T, D)

    mask = jnp.tril(jnp.ones((T, T), bool))
    scores = jnp.where(mask, products(q, wide(k)) * SCALE, -jnp.inf)
    return nn.softmax(scores) @ wide(v)


@spelling(TOKENS, GROUPED, GROUPED)
def grouped_queries(q, k, v):
    q = q.reshape(B, T, K, H // K, D)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k) * SCALE
    place = jnp.arange(T)
    scores = jnp.where(place[:, None] >= place, scores, jnp.finfo(jnp.float32).min)
    means = jnp.einsum("bkgts,bskd->btkgd", nn.softmax(scores), v)
    return means.reshape(B, T, H * D)


@spelling(HEADS, (B, T, D), (B, T, D))
def one_key_head(q, k, v):
    shares = softmax(jnp.einsum("bhtd,bsd->bhts", q, k) * SCALE)
    return jnp.einsum("bhts,bsd->bhtd", shares, v)


@spelling(HEADS, HEADS, HEADS)
def repeats_taken_apart(q, k, v):
    k, v = (jnp.broadcast_to(x[:, :1], HEADS) for x in (k, v))
    scores = products(q, k).reshape(B, 2, 2, T, T)
    return softmax(scores).reshape(B, H, T, T) @ v


@spelling(TOKENS, GROUPED, GROUPED)
def library_call(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


# --- caches and narrow dtypes -------------------------------------------------


@spelling((B, 1, H, D), (B, 40, K, D), (B, 40, K, D), 11)
def decode_step(q, k, v, position):
    k, v = (jnp.repeat(x, H // K, axis=2) for x in (k, v))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * SCALE
    scores = jnp.where(jnp.arange(40) <= position, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhts,bshd->bthd", nn.softmax(scores), v).reshape(B, 1, H * D)


@spelling((H, D), (40, H, D), (40, H, D), 11)
def decode_without_batch(q, k, v, position):
    scores = jnp.einsum("hd,shd->hs", q, k) * SCALE
    scores = jnp.where(jnp.arange(40)[None] > position, -jnp.inf, scores)
    return jnp.einsum("hs,shd->hd", softmax(scores), v)


@spelling((B, H, T, D), (B, H, 40, D), (B, H, 40, D), 17)
def prefill_behind_others(q, k, v, start):
    query = start + jnp.arange(T)[:, None]
    scores = jnp.where(jnp.arange(40) <= query, products(q, k) * SCALE, -1e30)
    return softmax(scores) @ v


@spelling(HEADS, HEADS, HEADS, dtype=BF16)
def wide_softmax(q, k, v):
    scores = (products(q, k) * SCALE).astype(jnp.float32)
    return nn.softmax(scores).astype(q.dtype) @ v


@spelling(HEADS, HEADS, HEADS, dtype=BF16)
def wide_products(q, k, v):
    scores = products(q.astype(jnp.float32), k.astype(jnp.float32)) * SCALE
    return (nn.softmax(scores) @ v.astype(jnp.float32)).astype(q.dtype)


@spelling(HEADS, HEADS, HEADS, dtype=BF16)
def narrow_powers_divided_late(q, k, v):
    scores = (products(q, k) * SCALE).astype(jnp.float32)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    total = powers.sum(-1, keepdims=True).astype(q.dtype)
    return (powers.astype(q.dtype) @ v) / total
