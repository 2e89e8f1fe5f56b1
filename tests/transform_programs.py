"""Functions that are the same in poot and in JAX, and what is compared of them.

A `Modules` holds the functions of one of the two; a program is written against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy
import numpy as np

import poot
import poot.numpy
from tests.numerics import Array

Function = Callable[..., Any]


@dataclass(frozen=True)
class Modules:
    """The transformations (`top`), `numpy` and `lax` of one system."""

    top: Any
    np: Any
    lax: Any


POOT = Modules(poot, poot.numpy, poot.lax)
JAX = Modules(jax, jax.numpy, jax.lax)

# A function of Modules, and of arrays.
Program = Callable[..., Any]


def results(program: Program, operands: Sequence[Array]) -> list[Array]:
    """By poot: the leaves of a program's result."""
    found = program(POOT, *map(poot.device_put, operands))
    return [np.asarray(leaf) for leaf in poot.tree.leaves(found)]


def jax_results(program: Program, operands: Sequence[Array]) -> list[Array]:
    """By JAX, op by op, which spares it compiling."""
    with jax.disable_jit():
        found = program(JAX, *map(jax.numpy.asarray, operands))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


def agree(
    program: Program, *operands: Array, jitted: bool = False, rtol: float = 2e-4
) -> None:
    """poot's results are JAX's, within `rtol` of the largest element of each.

    With `jitted` poot compiles the whole.
    """
    run = _jitted(program) if jitted else program
    compare(results(run, operands), jax_results(program, operands), rtol)


def _jitted(program: Program) -> Program:
    return lambda m, *xs: m.top.jit(lambda *xs: program(m, *xs))(*xs)


def compare(found: Sequence[Array], wanted: Sequence[Array], rtol: float) -> None:
    assert len(found) == len(wanted)
    for number, (one, right) in enumerate(zip(found, wanted, strict=True)):
        where = f"result {number}"
        assert (one.shape, one.dtype) == (right.shape, right.dtype), where
        finite = np.abs(right[np.isfinite(right)].astype(np.float64))
        scale = max(finite.max(initial=0), 1e-3)
        np.testing.assert_allclose(one, right, rtol, rtol * scale, err_msg=where)


# --- random programs --------------------------------------------------------

SHAPE = (3, 4)
_ROWS = np.array([2, 0, 1])
_COLUMNS = np.array([3, 3, 0, 1])


def _over_rows(m: Modules, x: Any, y: Any) -> Any:
    last, seen = m.lax.scan(
        lambda c, r: (m.np.tanh(c) + 0.5 * r, c * r), y[0], x, reverse=True
    )
    return seen + last


def _branch(m: Modules, x: Any, y: Any) -> Any:
    return m.lax.cond(
        m.np.sum(x) > m.np.sum(y),
        lambda x, y: m.np.sin(x) * y,
        lambda x, y: x - y,
        x,
        y,
    )


def _powers(m: Modules, x: Any, y: Any) -> Any:
    return m.lax.fori_loop(0, 3, lambda i, v: v * 0.5 + m.np.cos(v) * y + i, x)


def _softmax(m: Modules, x: Any, axis: int) -> Any:
    e = m.np.exp(x - m.np.max(x, axis, keepdims=True))
    return e / m.np.sum(e, axis, keepdims=True)


# Of (modules, x, y), both of SHAPE; the result too. They keep numbers small.
STEPS: dict[str, Function] = {
    "sin": lambda m, x, y: m.np.sin(x),
    "tanh": lambda m, x, y: m.np.tanh(x) * 2,
    "exp": lambda m, x, y: m.np.exp(-m.np.abs(x)),
    "sqrt": lambda m, x, y: m.np.sqrt(1 + x * x),
    "log": lambda m, x, y: m.np.log1p(x * x),
    "square": lambda m, x, y: m.np.square(m.np.sin(x)),
    "power": lambda m, x, y: (1.5 + m.np.tanh(x)) ** m.np.tanh(y),
    "add": lambda m, x, y: x + y,
    "mul": lambda m, x, y: x * m.np.tanh(y),
    "div": lambda m, x, y: x / (2 + y * y),
    "maximum": lambda m, x, y: m.np.maximum(x, y),
    "atan2": lambda m, x, y: m.np.arctan2(x, 2 + y * y),
    "where": lambda m, x, y: m.np.where(x > y, x, 0.5 * y),
    "clip": lambda m, x, y: m.np.clip(x, -0.7, 0.9) + y,
    "sum": lambda m, x, y: y - m.np.sum(x, 0) / 3,
    "mean": lambda m, x, y: y * m.np.mean(x, 1, keepdims=True),
    "max": lambda m, x, y: y + m.np.max(x, 1, keepdims=True),
    "prod": lambda m, x, y: y + m.np.prod(m.np.tanh(x), 0),
    "var": lambda m, x, y: x / (1 + m.np.var(x, 1, keepdims=True)),
    "softmax rows": lambda m, x, y: _softmax(m, x, 0) + y,
    "softmax": lambda m, x, y: _softmax(m, x, 1) * y,
    "cumsum": lambda m, x, y: m.np.cumsum(x, 1) / 4,
    "cumprod": lambda m, x, y: m.np.cumprod(m.np.cos(x), 0),
    "sort": lambda m, x, y: m.np.sort(x, 1) - y,
    "argsort": lambda m, x, y: m.np.take_along_axis(y, m.np.argsort(x, 0), 0),
    "matmul": lambda m, x, y: m.np.tanh(x @ y.T) @ x / 2,
    "einsum": lambda m, x, y: m.np.einsum("ij,kj->ik", x, y)[:, :1] / 4 + x,
    "rows": lambda m, x, y: x[_ROWS] + y,
    "columns": lambda m, x, y: x[:, _COLUMNS],
    "reverse": lambda m, x, y: x[::-1, ::-1] * m.np.tanh(y),
    "at add": lambda m, x, y: x.at[:, _COLUMNS].add(y * 0.5),
    "at set": lambda m, x, y: x.at[1:].set(y[:2] * 0.5),
    "reshape": lambda m, x, y: m.np.reshape(x.T, SHAPE) + y,
    "concatenate": lambda m, x, y: m.np.concatenate([x[:, 1:], y[:, :1]], 1),
    "roll": lambda m, x, y: m.np.roll(x, 1, 1) - y,
    "pad": lambda m, x, y: m.np.pad(x, ((1, 0), (0, 2)))[:3, 2:] + y,
    "window": lambda m, x, y: m.lax.dynamic_slice(
        m.np.concatenate([x, y]), (m.np.argmax(y[0]), 0), SHAPE
    ),
    "scan": _over_rows,
    "cond": _branch,
    "fori_loop": _powers,
    "checkpoint": lambda m, x, y: m.top.checkpoint(lambda x: m.np.sin(x * y))(x),
}

# A step and the numbers of its operands among the values so far.
Steps = Sequence[tuple[str, int, int]]


def program_of(steps: Steps) -> Program:
    """The function of two arrays that takes the steps and adds what they give."""

    def program(m: Modules, x: Any, y: Any) -> Any:
        values = [x, y]
        for name, a, b in steps:
            values.append(STEPS[name](m, values[a], values[b]))
        return sum(values[3:], values[2]) / len(steps)

    return program


def first_order(program: Program) -> Program:
    """Value, both derivatives, and batches over the first and last axes."""

    def some_of_it(m: Modules, x: Any, y: Any, dx: Any, dy: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            return program(m, x, y)

        value, pull = m.top.vjp(f, x, y)
        return [
            value,
            m.top.jvp(f, (x, y), (dx, dy)),
            pull(dx),
            m.top.vmap(f, (0, -1))(m.np.stack([x, dx]), m.np.stack([y, dy], -1)),
        ]

    return some_of_it


def everything(program: Program) -> Program:
    """Value, derivatives of each kind and mode, and batches over every axis."""

    def all_of_it(m: Modules, x: Any, y: Any, dx: Any, dy: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            return program(m, x, y)

        value, pull = m.top.vjp(f, x, y)
        loss = m.top.grad(lambda x, y: m.np.sum(f(x, y) * dx), (0, 1))
        batch = m.np.stack([x, dx])
        return [
            value,
            m.top.jvp(f, (x, y), (dx, dy)),
            pull(dx),
            m.top.jacfwd(f)(x, y),
            m.top.jacrev(f, 1)(x, y),
            m.top.jvp(loss, (x, y), (dx, dy)),
            m.top.vmap(f, (0, None))(batch, y),
            m.top.vmap(f, (None, 1), 1)(x, m.np.moveaxis(batch, 0, 1)),
            m.top.vmap(loss, (2, -1), -1)(*[m.np.moveaxis(batch, 0, 2)] * 2),
        ]

    return all_of_it


# --- compositions -----------------------------------------------------------

WEIGHTS = np.array([0.7, -0.4, 0.9], np.float32)


def base(m: Modules, x: Any) -> Any:
    return m.np.sin(x) * m.np.sum(x) + 0.3 * x[::-1] ** 2


def _grad(m: Modules, f: Function) -> Function:
    found: Function = m.top.grad(lambda x: m.np.sum(f(x) * WEIGHTS))
    return found


def _vmap(m: Modules, f: Function) -> Function:
    return lambda x: m.np.sum(
        m.top.vmap(lambda s: f(x * s), out_axes=1)(m.np.asarray(WEIGHTS[:2])), 1
    )


def _scan(m: Modules, f: Function) -> Function:
    def step(carry: Any, w: Any) -> Any:
        return 0.5 * f(carry) + w * carry, m.np.sum(carry)

    def run(x: Any) -> Any:
        last, sums = m.lax.scan(step, x, m.np.asarray(WEIGHTS[:2]))
        return last + sums[0]

    return run


def _cond(m: Modules, f: Function) -> Function:
    return lambda x: m.lax.cond(x[0] > 0.2, f, lambda x: 0.5 * x * x, x)


# Each makes of a function of three numbers, to three, another one.
TRANSFORMATIONS: dict[str, Callable[[Modules, Function], Function]] = {
    "grad": _grad,
    "vmap": _vmap,
    "jit": lambda m, f: m.top.jit(f),
    "scan": _scan,
    "cond": _cond,
    "checkpoint": lambda m, f: m.top.checkpoint(f),
    "jvp": lambda m, f: lambda x: m.top.jvp(f, (x,), (m.np.asarray(WEIGHTS),))[1],
    "jacrev": lambda m, f: lambda x: m.top.jacrev(f)(x) @ WEIGHTS,
}


def composed(names: Sequence[str]) -> Program:
    """`base` under transformations, the outermost first."""

    def program(m: Modules, x: Any) -> Any:
        f: Function = lambda x: base(m, x)  # noqa: E731 (wrapped in turn)
        for name in reversed(names):
            f = TRANSFORMATIONS[name](m, f)
        return f(x)

    return program
