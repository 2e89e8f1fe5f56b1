"""Random differentiable programs in f64, bodies of loops and batches included."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import poot
import poot.nn
import poot.numpy as jnp
from poot import lax
from tests.transform_programs import POOT, SHAPE
from tests.transform_programs import STEPS as COMMON_STEPS

Function = Callable[..., Any]

_ROWS = np.array([[1, 0, 2, 1]])
_WEIGHTS = np.array([0.7, -0.4, 0.9])
_KERNEL = np.array([[[0.5, -1, 0.25]]])


def _common(name: str) -> Function:
    step = COMMON_STEPS[name]
    return lambda x, y: step(POOT, x, y)


def _convolved(x: Any, y: Any) -> Any:
    rows = lax.conv_general_dilated(x[:, None], y[:1, None, :3], (1,), "SAME")
    return (
        rows[:, 0] + lax.conv_general_dilated(y[:, None], _KERNEL, (1,), "SAME")[:, 0]
    )


def _windowed(x: Any, y: Any) -> Any:
    highest = lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "SAME")
    return highest * lax.reduce_window(y, 0.0, lax.add, (2, 2), (1, 1), "SAME")


def _attended(x: Any, y: Any) -> Any:
    q, k = x.reshape(3, 2, 2), y.reshape(3, 2, 2)
    mixed = poot.nn.dot_product_attention(q, k, jnp.sin(k), is_causal=True)
    return mixed.reshape(SHAPE)


def _joined(x: Any, y: Any) -> Any:
    """A product and a sum of what came before, by an associative pair."""

    def join(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(join, (jnp.tanh(x), y))[1]


# Of (x, y), both of SHAPE; the result too. They keep numbers small.
STEPS: dict[str, Function] = {
    **{name: _common(name) for name in COMMON_STEPS},
    "tan": lambda x, y: jnp.tan(0.7 * jnp.tanh(x)),
    "arcsin": lambda x, y: jnp.arcsin(0.8 * jnp.sin(x)) + jnp.arccos(0.5 * jnp.sin(y)),
    "arctanh": lambda x, y: jnp.arctanh(0.8 * jnp.sin(x)),
    "arcsinh": lambda x, y: jnp.arcsinh(x) * jnp.arccosh(1.5 + y * y),
    "sinh": lambda x, y: jnp.sinh(jnp.tanh(x)) + jnp.cosh(jnp.tanh(y)),
    "erf": lambda x, y: lax.erf(x) - lax.erfc(y),
    "erf_inv": lambda x, y: lax.erf_inv(0.8 * jnp.tanh(x)),
    "lgamma": lambda x, y: lax.lgamma(1.2 + x * x) / 4,
    "rsqrt": lambda x, y: lax.rsqrt(1 + x * x) + jnp.cbrt(2 + jnp.sin(y)),
    "exp2": lambda x, y: jnp.exp2(jnp.tanh(x)) + jnp.expm1(jnp.tanh(y)),
    "sigmoid": lambda x, y: poot.nn.sigmoid(x) * poot.nn.softplus(y),
    "gelu": lambda x, y: poot.nn.gelu(x) - poot.nn.log_softmax(y, 0) / 2,
    "integer_pow": lambda x, y: jnp.tanh(x) ** 3 + (1.5 + jnp.sin(y)) ** -2,
    "hypot": lambda x, y: jnp.hypot(x, 1 + y) + jnp.logaddexp(x, y),
    "remainder": lambda x, y: jnp.remainder(x, 1.3) * y,
    "select": lambda x, y: lax.select_n(x > 0.1, jnp.sin(y), x * y),
    "min": lambda x, y: y - jnp.min(x, (0, 1)) * x,
    "std": lambda x, y: x / (0.5 + jnp.std(y, 0)),
    "norm": lambda x, y: y / jnp.linalg.norm(x, axis=0),
    "logsumexp": lambda x, y: y - poot.nn.logsumexp(x, 1, keepdims=True),
    "cummax": lambda x, y: lax.cummax(x, 1) * y + lax.cumlogsumexp(y, 0),
    "top_k": lambda x, y: lax.top_k(x, 4)[0] * y,
    "median": lambda x, y: x * jnp.median(y, 1, keepdims=True),
    "batched dot": lambda x, y: lax.dot_general(
        x.reshape(3, 2, 2), y.reshape(3, 2, 2), (((2,), (1,)), ((0,), (0,)))
    ).reshape(SHAPE),
    "outer": lambda x, y: jnp.outer(jnp.sum(x, 1), jnp.sum(y, 0)) / 6,
    "gather": lambda x, y: jnp.take_along_axis(x, _ROWS, 0) * y[::-1],
    "repeated rows": lambda x, y: x[np.array([1, 1, 0])] * y[np.array([2, 0, 0])],
    "at mul": lambda x, y: x.at[np.array([0, 2])].mul(
        jnp.cos(y[:2]), unique_indices=True
    ),
    "at max": lambda x, y: x.at[1:].max(y[:2]),
    "swapaxes": lambda x, y: jnp.tile(x.T[:, :1], 3).T * y,
    "update": lambda x, y: lax.dynamic_update_slice(
        x, jnp.sin(y[:2, :2]), (jnp.argmax(x[:, 0]), 1)
    ),
    "triangle": lambda x, y: jnp.tril(x) @ y.T @ jnp.triu(y) / 3,
    "flat": lambda x, y: jnp.diff(jnp.ravel(x), append=0.0).reshape(SHAPE) * y,
    "convolution": _convolved,
    "windows": _windowed,
    "attention": _attended,
    "associative_scan": _joined,
}


def _carried(body: Function, x: Any, y: Any) -> Any:
    def step(carry: Any, weight: Any) -> Any:
        carry = 0.5 * body(carry, y * weight) + 0.2 * x
        return carry, jnp.sum(carry)

    last, sums = lax.scan(step, x, _WEIGHTS[:2])
    return last + jnp.mean(sums)


def _seen(body: Function, x: Any, y: Any) -> Any:
    """A scan over values, whose results are all kept."""
    _, seen = lax.scan(
        lambda c, v: (0.5 * c + v, jnp.tanh(body(c, v))), x, jnp.stack([y, x * y])
    )
    return seen[0] - 0.5 * seen[1]


def _batched(body: Function, x: Any, y: Any) -> Any:
    """All pairs of two batches, along axes that are not the first."""
    xs, ys = jnp.stack([x, jnp.sin(x)], 1), jnp.stack([y, 0.5 * y], -1)
    rows = poot.vmap(body, in_axes=(None, -1), out_axes=1)
    pairs = poot.vmap(rows, in_axes=(1, None), out_axes=-1)
    return jnp.einsum("ijkl,jl", pairs(xs, ys), np.array([[0.3, -0.2], [0.4, 0.1]]))


def _ruled(body: Function, x: Any, y: Any) -> Any:
    """With a rule of the user's, itself differentiated for the second order."""
    scaled = poot.custom_vjp(lambda x, y: jnp.sin(body(x, y)))

    def forward(x: Any, y: Any) -> Any:
        return jnp.sin(body(x, y)), (x, y)

    def backward(kept: Any, ct: Any) -> Any:
        value, pull = poot.vjp(body, *kept)
        return pull(ct * jnp.cos(value))

    scaled.defvjp(forward, backward)
    return scaled(x, y)


def _pushed(body: Function, x: Any, y: Any) -> Any:
    """With a forward rule of the user's."""
    scaled = poot.custom_jvp(lambda x, y: jnp.sin(body(x, y)))

    @scaled.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        value, moved = poot.jvp(body, primals, tangents)
        return scaled(*primals), jnp.cos(value) * moved

    return scaled(x, y)


# Of a function of (x, y) and of x and y.
AROUND: dict[str, Function] = {
    "carry": _carried,
    "ys": _seen,
    "loop": lambda body, x, y: lax.fori_loop(
        0, 3, lambda i, v: 0.5 * body(v, y * (i + 1)) + x, x
    ),
    "choice": lambda body, x, y: lax.cond(
        jnp.sum(x * y) > 0.3, body, lambda x, y: body(y, jnp.sin(x)), x, y
    ),
    "switch": lambda body, x, y: lax.switch(
        jnp.argmax(x[:, 0]), [body, lambda x, y: x * y, lambda x, y: body(y, x)], x, y
    ),
    "vmap": _batched,
    "vmap of rows": lambda body, x, y: poot.vmap(
        lambda r: body(x * r, y)[0], in_axes=0
    )(y[:, :1] + jnp.sin(x)),
    "jit": lambda body, x, y: poot.jit(body)(x, y),
    "checkpoint": lambda body, x, y: poot.checkpoint(body)(x, y),
    "checkpoint dots": lambda body, x, y: poot.checkpoint(
        body, policy=poot.checkpoint_policies.dots_saveable
    )(x, y),
    "map": lambda body, x, y: jnp.sum(
        lax.map(lambda v: body(v, y), jnp.stack([x, 0.5 * x])), 0
    ),
    "slope": lambda body, x, y: jnp.tanh(
        poot.grad(lambda x: jnp.sum(jnp.sin(body(x, y))))(x)
    ),
    "push": lambda body, x, y: poot.jvp(lambda x: body(x, y), (x,), (y,))[1] / 4,
    "custom_vjp": _ruled,
    "custom_jvp": _pushed,
}


# Has no derivative forward, and these take derivatives of their bodies that way.
REVERSE_ONLY = "custom_vjp"
_FORWARD = ("push", "custom_jvp", REVERSE_ONLY)


@dataclass(frozen=True)
class Step:
    """A step by its name, the numbers of its operands, and its body if it has one."""

    name: str
    x: int
    y: int
    body: tuple[Step, ...] = ()

    def __call__(self, x: Any, y: Any) -> Any:
        if self.body:
            return AROUND[self.name](function_of(self.body), x, y)
        return STEPS[self.name](x, y)

    @property
    def is_reverse_only(self) -> bool:
        own = self.name == REVERSE_ONLY
        return own or any(step.is_reverse_only for step in self.body)


def function_of(steps: Sequence[Step]) -> Function:
    """The function of two arrays that takes the steps and adds what they give."""

    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for step in steps:
            values.append(step(values[step.x], values[step.y]))
        return sum(values[3:], values[2]) / len(steps)

    return function


def random_steps(
    choose: random.Random, depth: int = 2, around: Sequence[str] = tuple(AROUND)
) -> tuple[Step, ...]:
    """One to four steps; a third have bodies, down to `depth` in one another."""
    found = []
    for number in range(choose.randint(1, 4 if depth == 2 else 2)):
        x, y = (choose.randint(0, number + 1) for _ in "xy")
        if depth and choose.random() < 1 / 3:
            name = choose.choice(around)
            within = [one for one in around if one != REVERSE_ONLY]
            body = random_steps(
                choose, depth - 1, within if name in _FORWARD else around
            )
            found.append(Step(name, x, y, body))
        else:
            found.append(Step(choose.choice(tuple(STEPS)), x, y))
    return tuple(found)
