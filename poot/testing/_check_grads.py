"""`poot.testing.check_grads`: derivatives against differences of the function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    TypeMismatchError,
)
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate
from poot.interpreters.config import config
from poot.interpreters.derivatives import jvp, vjp
from poot.interpreters.flat import float0, name_of, require_callable, values_of
from poot.interpreters.jit import make_graph
from poot.interpreters.primitives import type_of
from poot.interpreters.pytree import TreeDef, flatten, leaf_paths, unflatten

Array = np.ndarray[Any, Any]

# How far the derivatives of a function may be off by default, relative and absolute,
# and the step of differences where they are taken in the dtype.
_TOLERANCES = {
    dtypes.float16: 2e-2,
    dtypes.bfloat16: 1e-1,
    dtypes.float32: 1e-3,
    dtypes.float64: 1e-6,
}
_STEPS = {
    dtypes.float16: 2.0**-4,
    dtypes.bfloat16: 2.0**-2,
    dtypes.float32: 2.0**-7,
    dtypes.float64: 2.0**-16,
}


def check_grads(
    f: Callable[..., Any],
    args: Any,
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of `f` at `args` with central differences.

    `f` takes the trees of `args`, a tuple, and gives a tree; leaves that are not floats
    are left as they are. For each of `modes`, "fwd" (jvp) and "rev" (vjp), derivatives
    are compared along random directions, then, up to `order`, derivatives of those.

    The differences are those of f's graph with its arguments in f64, run by the oracle,
    so that they tell rounding from faults; where `f` does not take f64, or computes in
    narrower floats even so, it runs in the dtypes of `args`, with a wider step. `eps`
    is the step. `atol` and `rtol` default to what the narrowest dtype of args allows:
    2e-2 for f16, 1e-1 for bf16, 1e-3 for f32, 1e-6 for f64.

    GradientError names the order, the mode, the leaf and both numbers.
    """
    require_callable("check_grads", f)
    given = args if isinstance(args, tuple | list) else (args,)
    unknown = [mode for mode in modes if mode not in ("fwd", "rev")]
    if unknown:
        raise ArgumentError(f'check_grads: modes has {unknown[0]!r}; "fwd" and "rev"')
    if order < 1:
        raise ArgumentError(f"check_grads: the order is {order}, takes 1 or more")
    point = _Point.of(f, tuple(given))
    narrowest = max(point.float_dtypes, key=lambda dtype: _TOLERANCES[dtype])
    default = _TOLERANCES[narrowest]
    limits = _Limits(
        default if atol is None else atol, default if rtol is None else rtol, eps
    )
    _check(f, point, limits, "", order, tuple(modes))


@dataclass(frozen=True, slots=True)
class _Limits:
    atol: float
    rtol: float
    eps: float | None

    def compare(self, where: str, found: Array, right: Array, step: str) -> None:
        """GradientError for the element that is furthest off."""
        found, right = np.asarray(found, np.float64), np.asarray(right, np.float64)
        allowed = self.atol + self.rtol * np.abs(right)
        with np.errstate(invalid="ignore"):
            excess = np.abs(found - right) - allowed
        excess = np.where(np.isnan(excess), np.inf, excess)
        if not excess.size or excess.max() <= 0:
            return
        place = np.unravel_index(np.argmax(excess), excess.shape)
        at = f" at [{', '.join(map(str, place))}]" if place else ""
        raise GradientError(
            f"{where} is {found[place]:.7g}{at}, {step} {right[place]:.7g}; they may "
            f"differ by {self.atol:g} + {self.rtol:g} times the latter"
        )


@dataclass(frozen=True, slots=True)
class _Point:
    """Arguments: their leaves as arrays, and which of them are floats."""

    name: str
    tree: TreeDef
    leaves: tuple[Array, ...]
    paths: tuple[str, ...]
    float_dtypes: frozenset[DType]

    @classmethod
    def of(cls, f: Callable[..., Any], args: tuple[Any, ...]) -> _Point:
        where = f"check_grads of `{name_of(f)}`"
        leaves, tree = flatten(args)
        values = values_of(where, leaves, tree)
        found = frozenset(d for v in values if (d := type_of(v).dtype).is_float)
        if not found:
            raise ArgumentError(f"{where}: args has no floats; give one at least")
        paths = tuple(accessor.codify("args") for accessor in leaf_paths(tree))
        arrays = tuple(map(np.asarray, values))
        return cls(name_of(f), tree, arrays, paths, found)

    @property
    def args(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = unflatten(self.tree, self.leaves)
        return found

    def random(self, rng: np.random.Generator) -> list[Array]:
        return [_random_like(leaf, rng) for leaf in self.leaves]


def _is_float(x: Any) -> bool:
    return x.dtype != float0 and dtypes.as_dtype(x.dtype).is_float


def _random_like(x: Array, rng: np.random.Generator) -> Array:
    """A direction for a value; of float0 for what has none."""
    if not _is_float(x):
        return np.zeros(x.shape, float0)
    return np.asarray(rng.standard_normal(x.shape)).astype(x.dtype)


# --- differences ------------------------------------------------------------


class _Differences:
    """A function run by the oracle at its point and at steps off it."""

    def __init__(self, f: Callable[..., Any], point: _Point, eps: float | None) -> None:
        self.leaves: Sequence[Array] = [_widened(leaf) for leaf in point.leaves]
        dtype = dtypes.float64
        wide = _wide_graph(f, unflatten(point.tree, self.leaves))
        if wide is None:
            self.leaves = point.leaves
            dtype = max(point.float_dtypes, key=lambda dtype: _STEPS[dtype])
        self.graph = make_graph(f)(*point.args) if wide is None else wide
        self.eps = _STEPS[dtype] if eps is None else eps
        self.told = f"by differences of step {self.eps:g} in {dtype}"

    def value(self) -> list[Array]:
        return list(evaluate(self.graph, *self.leaves))

    def along(self, direction: Sequence[Array]) -> list[Array]:
        """The derivative of each result along a direction."""
        ahead, behind = self._at(direction, self.eps), self._at(direction, -self.eps)
        # What narrow dtypes make of the step is what was gone.
        return [
            (a.astype(np.float64) - b.astype(np.float64)) / (2 * self.eps)
            if _is_float(a)
            else np.zeros(a.shape)
            for a, b in zip(ahead, behind, strict=True)
        ]

    def _at(self, direction: Sequence[Array], step: float) -> list[Array]:
        moved = [
            (x.astype(np.float64) + step * d.astype(np.float64)).astype(x.dtype)
            if _is_float(x)
            else x
            for x, d in zip(self.leaves, direction, strict=True)
        ]
        return list(evaluate(self.graph, *moved))


def _widened(x: Array) -> Array:
    return x.astype(np.float64) if _is_float(x) else x


def _wide_graph(f: Callable[..., Any], args: Any) -> Graph | None:
    """The graph for arguments in f64; None if not all of it is in f64."""
    try:
        with config.override(enable_x64=True):
            graph = make_graph(f)(*args)
    except (DTypeError, TypeMismatchError):
        # It uses other values, of narrower dtypes, with which f64 does not go.
        return None
    types = [graph.type(out) for eqn in graph.eqns for out in eqn.outs]
    narrow = [t for t in types if t.dtype.is_float and t.dtype is not dtypes.float64]
    return None if narrow else graph


# --- comparisons ------------------------------------------------------------


def _check(
    f: Callable[..., Any],
    point: _Point,
    limits: _Limits,
    path: str,
    left: int,
    modes: tuple[str, ...],
) -> None:
    """One order of derivatives in each mode, and those of these."""
    rng = np.random.default_rng(left)
    differences = _Differences(f, point, limits.eps)
    for mode in modes:
        check = _check_forward if mode == "fwd" else _check_reverse
        after = f"{path}{mode}"
        derivative = check(f, point, differences, limits, after, rng)
        if left > 1:
            _check(derivative, point, limits, f"{after}, then ", left - 1, modes)


def _check_forward(
    f: Callable[..., Any],
    point: _Point,
    differences: _Differences,
    limits: _Limits,
    path: str,
    rng: np.random.Generator,
) -> Callable[..., Any]:
    direction = point.random(rng)
    tangents = unflatten(point.tree, direction)
    found, moved = jvp(f, point.args, tangents)
    where = f"check_grads of `{point.name}`, {path}"
    _compare_values(where, found, differences, limits)
    leaves, tree = flatten(moved)
    right = differences.along(direction)
    for leaf, wanted, name in zip(leaves, right, leaf_paths(tree), strict=True):
        if getattr(leaf, "dtype", None) != float0:
            what = f"{where}: the tangent of {name.codify('result')}"
            limits.compare(what, np.asarray(leaf), wanted, differences.told)

    def derivative(*args: Any) -> Any:
        return _floats(jvp(f, args, _as_args(tangents, args))[1])

    return derivative


def _check_reverse(
    f: Callable[..., Any],
    point: _Point,
    differences: _Differences,
    limits: _Limits,
    path: str,
    rng: np.random.Generator,
) -> Callable[..., Any]:
    found, pull = vjp(f, *point.args)
    where = f"check_grads of `{point.name}`, {path}"
    _compare_values(where, found, differences, limits)
    results, tree = flatten(found)
    weights = [_random_like(np.asarray(x), rng) for x in results]
    cotangent = unflatten(tree, weights)
    pulled = flatten(pull(cotangent))[0]
    direction = point.random(rng)
    for number, leaf in enumerate(point.leaves):
        if not _is_float(leaf):
            continue
        alone = [
            d if n == number else 0 * d if _is_float(d) else d
            for n, d in enumerate(direction)
        ]
        right = _product(weights, differences.along(alone))
        mine = _product([np.asarray(pulled[number])], [direction[number]])
        what = f"{where}: the cotangent of {point.paths[number]}, along a direction,"
        limits.compare(what, mine, right, differences.told)

    def derivative(*args: Any) -> Any:
        outs, pull = vjp(f, *args)
        return _floats(pull(_as_args(cotangent, outs)))

    return derivative


def _compare_values(
    where: str, found: Any, differences: _Differences, limits: _Limits
) -> None:
    """Rules that users write may give another value than the function."""
    leaves, tree = flatten(found)
    right = differences.value()
    for leaf, wanted, name in zip(leaves, right, leaf_paths(tree), strict=True):
        what = f"{where}: the value {name.codify('result')}"
        limits.compare(what, np.asarray(leaf), wanted, "of the function itself")


def _product(a: Sequence[Array], b: Sequence[Array]) -> Array:
    """The sum of all products of elements of two lists of arrays."""
    terms = [
        np.sum(x.astype(np.float64) * y.astype(np.float64))
        for x, y in zip(a, b, strict=True)
        if x.dtype != float0
    ]
    return np.asarray(functools.reduce(np.add, terms, np.float64(0)))


def _as_args(tangents: Any, of: Any) -> Any:
    """Directions in the dtypes of values, which differences widen."""
    leaves, tree = flatten(tangents)
    wanted = flatten(of)[0]
    return unflatten(
        tree,
        [
            t if t.dtype == float0 else t.astype(type_of(value).dtype.numpy)
            for t, value in zip(
                leaves, values_of("check_grads", wanted, tree), strict=True
            )
        ],
    )


def _floats(tree: Any) -> list[Any]:
    """The leaves that have derivatives of their own."""
    return [x for x in flatten(tree)[0] if getattr(x, "dtype", None) != float0]
