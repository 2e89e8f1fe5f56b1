"""`jvp`, `linearize`, `vjp`, `grad` and their kin, with JAX's names and conventions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.interpreters.flat import (
    FlatFunction,
    float0,
    name_of,
    require_callable,
    values_of,
)
from poot.interpreters.jvp.interpreter import is_differentiable
from poot.interpreters.jvp.table import Tangent, instantiated
from poot.interpreters.linearize import LinearMap, jvp_flat, linearize_flat
from poot.interpreters.nested import stage_nested
from poot.interpreters.primitives import full, number, type_of, zeros
from poot.interpreters.pytree import (
    TreeDef,
    by_sorted_keys,
    flatten,
    leaf_paths,
    map,
    unflatten,
)
from poot.interpreters.signature import abstract
from poot.interpreters.transpose.backward import backward
from poot.interpreters.transpose.table import Linear


def _float0_of(x: Any) -> np.ndarray[Any, Any]:
    return np.zeros(type_of(x).shape, float0)


def _as_tangent(primal: Any, tangent: Tangent) -> Any:
    """What a user sees as the tangent or cotangent of a value."""
    if not is_differentiable(primal):
        return _float0_of(primal)
    return instantiated(tangent, primal).with_weak(primal.aval.weak)


def _tangents(
    where: str, what: str, leaves: Sequence[Any], tree: TreeDef, of: Sequence[Any]
) -> list[Tangent]:
    """The tangents that a user gives for values, each of its value's type."""
    found: list[Tangent] = []
    paths = [accessor.codify(what) for accessor in leaf_paths(tree)]
    for leaf, path, primal in zip(leaves, paths, of, strict=True):
        if not is_differentiable(primal):
            if getattr(leaf, "dtype", None) != float0:
                raise DTypeError(
                    f"{where}: {path} belongs to a value of type {type_of(primal)}, "
                    "which has no derivative; give numpy.zeros(shape, poot.float0)"
                )
            found.append(None)
            continue
        (value,) = values_of(where, [leaf], flatten(leaf)[1])
        given, wanted = type_of(value), type_of(primal)
        if given.dtype is not wanted.dtype and value.aval.weak:
            value = value.astype(wanted.dtype.numpy)
        elif given.dtype is not wanted.dtype:
            raise DTypeError(
                f"{where}: {path} is {given}, its value {wanted}; give the same dtype"
            )
        if given.shape != wanted.shape:
            raise ShapeError(
                f"{where}: {path} is {given}, its value {wanted}; give the same shape"
            )
        found.append(value)
    return found


def _require_same_tree(where: str, given: TreeDef, wanted: TreeDef) -> None:
    if by_sorted_keys(given) != by_sorted_keys(wanted):
        raise ArgumentError(f"{where}: given the tree {given}, takes {wanted}")


def _require_tuple(where: str, what: str, given: Any) -> None:
    if not isinstance(given, tuple | list):
        raise ArgumentError(
            f"{where}: {what} is a {type(given).__name__}; takes a tuple or list with "
            "one entry an argument"
        )


def jvp(
    fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False
) -> Any:
    """`(fun(*primals), its derivative at primals along tangents)`.

    Tangents have the trees, shapes and dtypes of the primals; those of integers are
    arrays of dtype `poot.float0`. With `has_aux`, `fun` returns a pair whose second
    part comes third, untouched.
    """
    require_callable("jvp", fun)
    _require_tuple("jvp", "primals", primals)
    _require_tuple("jvp", "tangents", tangents)
    where = f"jvp of `{name_of(fun)}`"
    leaves, tree = flatten(tuple(primals))
    moved, moved_tree = flatten(tuple(tangents))
    _require_same_tree(f"{where}, tangents", moved_tree, tree)
    values = values_of(where, leaves, tree)
    flat = FlatFunction(fun, tree, "jvp", has_aux)
    given = _tangents(where, "tangents", moved, tree, values)
    outs, found, strip = jvp_flat(flat, values, given, name_of(fun))
    shown = [_as_tangent(out, t) for out, t in zip(outs, found, strict=True)]
    result = unflatten(flat.result_tree, outs), unflatten(flat.result_tree, shown)
    return (*result, map(strip, flat.aux)) if has_aux else result


class _Linearized:
    """A function linearized at a point, with its trees."""

    def __init__(
        self, where: str, fun: Callable[..., Any], primals: tuple[Any, ...], aux: bool
    ) -> None:
        require_callable(where, fun)
        self.where = f"{where} of `{name_of(fun)}`"
        leaves, self.tree = flatten(primals)
        self.values = values_of(self.where, leaves, self.tree)
        flat = FlatFunction(fun, self.tree, where, aux)
        self.linear: LinearMap
        self.outs, self.linear, strip = linearize_flat(flat, self.values, name_of(fun))
        self.result_tree = flat.result_tree
        self.aux = map(strip, flat.aux)

    @property
    def result(self) -> Any:
        return unflatten(self.result_tree, self.outs)

    def push(self, *tangents: Any) -> Any:
        """The derivative along tangents, which have the trees of the arguments."""
        leaves, tree = flatten(tangents)
        _require_same_tree(f"{self.where}, tangents", tree, self.tree)
        given = _tangents(self.where, "tangents", leaves, self.tree, self.values)
        found = self.linear.push([t for t in given if t is not None])
        shown = [_as_tangent(out, t) for out, t in zip(self.outs, found, strict=True)]
        return unflatten(self.result_tree, shown)

    def pull(self, cotangent: Any) -> Any:
        """Cotangents of the arguments, a tuple, for that of the result."""
        leaves, tree = flatten(cotangent)
        _require_same_tree(f"{self.where}, cotangent", tree, self.result_tree)
        given = _tangents(self.where, "cotangent", leaves, tree, self.outs)
        found = self.linear.pull(given)
        shown = [_as_tangent(x, ct) for x, ct in zip(self.values, found, strict=True)]
        return unflatten(by_sorted_keys(self.tree), shown)


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), the linear function tangents -> derivative there)`.

    The linear function works on what `fun` has computed: calling it does not run `fun`
    again.
    """
    made = _Linearized("linearize", fun, primals, has_aux)
    result = made.result, made.push
    return (*result, made.aux) if has_aux else result


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), the function cotangent -> tuple of cotangents of primals)`."""
    made = _Linearized("vjp", fun, primals, has_aux)
    result = made.result, made.pull
    return (*result, made.aux) if has_aux else result


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[[Any], Any]:
    """The transpose of a function that is linear in all its arguments.

    `primals` may be ShapeDtypeStructs: only their types count.
    """
    require_callable("linear_transpose", fun)
    leaves, tree = flatten(primals)
    avals = [abstract(leaf, "linear_transpose") for leaf in leaves]
    flat = FlatFunction(fun, tree, "linear_transpose")
    nested = stage_nested(flat, avals, name_of(fun))
    results = [Linear(aval.type) for aval in nested.result_avals]

    def transposed(cotangent: Any) -> Any:
        where = f"linear_transpose of `{name_of(fun)}`"
        given, given_tree = flatten(cotangent)
        _require_same_tree(f"{where}, cotangent", given_tree, flat.result_tree)
        checked = [
            _of_type(where, ct, result.type)
            for ct, result in zip(given, results, strict=True)
        ]
        inputs = [*nested.captured, *(Linear(aval.type) for aval in avals)]
        found = backward(nested.graph, inputs, checked)[len(nested.captured) :]
        shown = [
            zeros(aval.type) if ct is None else ct
            for ct, aval in zip(found, avals, strict=True)
        ]
        return unflatten(by_sorted_keys(tree), shown)

    return transposed


def _of_type(where: str, x: Any, type: Any) -> Any:
    (value,) = values_of(where, [x], flatten(x)[1])
    if type_of(value) != type:
        raise ShapeError(f"{where}: a cotangent is {type_of(value)}, takes {type}")
    return value


# --- grad -------------------------------------------------------------------


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives `(fun(...), its gradient)`, for a scalar-valued `fun`.

    The gradient has the tree of the argument `argnums`, or is a tuple of such for a
    sequence of them; with `has_aux`, `fun` returns (value, aux), and so does the first
    part here. Integer arguments need `allow_int` and get gradients of dtype float0.
    """
    require_callable("value_and_grad", fun)
    if holomorphic:
        raise DTypeError("value_and_grad: complex numbers are not supported")
    numbers = numbers_of("value_and_grad", argnums)

    @functools.wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        where = f"grad of `{name_of(fun)}`"
        places = places_of(where, numbers, len(args))
        require_floats(where, args, places, allow_int)

        def of_chosen(*chosen: Any) -> Any:
            given = list(args)
            for place, value in zip(places, chosen, strict=True):
                given[place] = value
            return fun(*given, **kwargs)

        of_chosen.__name__ = name_of(fun)
        made = _Linearized(
            "grad", of_chosen, tuple(args[place] for place in places), has_aux
        )
        found = made.pull(_one(where, made))
        gradient = found[0] if isinstance(argnums, int) else found
        value = (made.result, made.aux) if has_aux else made.result
        return value, gradient

    return with_gradient


def _one(where: str, made: _Linearized) -> Any:
    """The cotangent of the value itself."""
    if len(made.outs) != 1 or type_of(made.outs[0]).shape != ():
        shapes = ", ".join(str(type_of(out)) for out in made.outs)
        raise ShapeError(
            f"{where}: a gradient is that of a scalar, the function returned "
            f"({shapes}); take a sum or mean of it, or use jacrev"
        )
    (out,) = made.outs
    if not is_differentiable(out):
        raise DTypeError(
            f"{where}: the function returned {type_of(out)}, which has no derivative; "
            "cast it to a float"
        )
    return unflatten(made.result_tree, [full(number(1, type_of(out).dtype), ())])


def numbers_of(where: str, argnums: int | Sequence[int]) -> tuple[int, ...]:
    """The numbers of arguments as a tuple; ArgumentError for other things."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(isinstance(number, int) for number in numbers):
        raise ArgumentError(
            f"{where}: argnums is {argnums!r}; takes an int or a sequence of them"
        )
    return numbers


def places_of(where: str, numbers: Sequence[int], count: int) -> list[int]:
    """Arguments by number from the front, each once; ArgumentError else."""
    places = [place_of(where, number, count) for number in numbers]
    if len(set(places)) < len(places):
        raise ArgumentError(
            f"{where}: argnums {tuple(numbers)} name an argument twice; takes each once"
        )
    return places


def place_of(where: str, number: int, count: int) -> int:
    """An argument number from the front; ArgumentError where there is no such."""
    if not -count <= number < count:
        raise ArgumentError(
            f"{where}: there is no argument number {number}; given {count} by position "
            "(those given by name are not differentiated)"
        )
    return number % count


def require_floats(
    where: str, args: Sequence[Any], places: Sequence[int], allow_int: bool = False
) -> None:
    for place in places:
        leaves, tree = flatten(args[place])
        for leaf, accessor in zip(leaves, leaf_paths(tree), strict=True):
            type = abstract(leaf, where).type
            if not (allow_int or type.dtype.is_differentiable):
                path = accessor.codify(f"args[{place}]")
                raise DTypeError(
                    f"{where}: {path} is {type}, which has no derivative; pass floats, "
                    "or to grad allow_int=True"
                )


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradient of a scalar-valued `fun`.

    As `value_and_grad`, without the value; with `has_aux` it gives (gradient, aux).
    """
    with_gradient = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fun)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, gradient = with_gradient(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return gradient_of
