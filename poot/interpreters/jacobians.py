"""Whole Jacobians: `jacfwd`, `jacrev`, `hessian`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from poot.core import dtypes
from poot.core.errors import DTypeError
from poot.core.ops.elementwise import CompareOp
from poot.interpreters.derivatives import (
    jvp,
    numbers_of,
    places_of,
    require_floats,
    vjp,
)
from poot.interpreters.flat import name_of, require_callable, values_of
from poot.interpreters.primitives import cast, compare, iota, reshape, type_of
from poot.interpreters.pytree import flatten, map, unflatten
from poot.interpreters.vmap import vmap


def _basis(where: str, tree: Any) -> tuple[Any, list[Any]]:
    """Unit vectors of a tree of floats, stacked along a new leading axis of each leaf.

    With the leaves as values.
    """
    leaves, treedef = flatten(tree)
    values = values_of(where, leaves, treedef)
    _require_float_results(where, values)
    sizes = [type_of(value).size for value in values]
    total = sum(sizes)
    made, start = [], 0
    for value, size in zip(values, sizes, strict=True):
        type = type_of(value)
        rows = iota(dtypes.int32, (total, size), 0)
        columns = iota(dtypes.int32, (total, size), 1)
        hits = compare(CompareOp.EQ, rows - start, columns)
        made.append(reshape(cast(hits, type.dtype), (total, *type.shape)))
        start += size
    return unflatten(treedef, made), values


def _require_float_results(where: str, values: Sequence[Any]) -> None:
    for value in values:
        if not type_of(value).dtype.is_float:
            raise DTypeError(
                f"{where}: the function returned {type_of(value)}, which has no "
                "derivative; cast it to a float"
            )


def _cut(stacked: Any, values: Sequence[Any], axis: int) -> list[Any]:
    """Parts of an axis that runs over the elements of all values, in their shapes."""
    found, start = [], 0
    shape = type_of(stacked).shape
    for value in values:
        type = type_of(value)
        size = math.prod(type.shape)
        index = (slice(None),) * axis + (slice(start, start + size),)
        part = stacked[index]
        found.append(reshape(part, (*shape[:axis], *type.shape, *shape[axis + 1 :])))
        start += size
    return found


def jacfwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, column by column (forward mode).

    For each leaf of the result a tree like the argument, whose leaves have the shape of
    the result's leaf, then that of the argument's.
    """
    require_callable("jacfwd", fun)
    _refuse_complex("jacfwd", holomorphic)

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen, of_chosen = _chosen(fun, argnums, args, kwargs)
        where = f"jacfwd of `{name_of(fun)}`"
        basis, values = _basis(where, chosen)
        treedef = flatten(chosen)[1]

        def push(tangents: Any) -> Any:
            made = jvp(of_chosen, (chosen,), (tangents,), has_aux)
            _require_float_results(where, flatten(made[0])[0])
            return made

        push.__name__ = name_of(fun)
        out_axes = (None, -1, None) if has_aux else (None, -1)
        found = vmap(push, out_axes=out_axes)(basis)

        def leaf(column: Any) -> Any:
            parts = _cut(column, values, type_of(column).ndim - 1)
            return unflatten(treedef, parts)

        jacobian = map(leaf, found[1])
        return (jacobian, found[2]) if has_aux else jacobian

    return jacobian_of


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, row by row (reverse mode).

    Its form is that of `jacfwd`.
    """
    require_callable("jacrev", fun)
    _refuse_complex("jacrev", holomorphic)
    if allow_int:
        raise DTypeError("jacrev: integers have no derivative; allow_int is for grad")

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen, of_chosen = _chosen(fun, argnums, args, kwargs)
        made = vjp(of_chosen, chosen, has_aux=has_aux)
        result, pull = made[0], made[1]
        where = f"jacrev of `{name_of(fun)}`"
        basis, values = _basis(where, result)
        treedef = flatten(result)[1]
        rows = vmap(lambda cotangent: pull(cotangent)[0])(basis)
        leaves, tree = flatten(rows)
        cut = [_cut(row, values, 0) for row in leaves]
        # From a tree of arguments in lists by result to results of trees of arguments.
        by_result = [unflatten(tree, parts) for parts in zip(*cut, strict=True)]
        jacobian = unflatten(treedef, by_result)
        return (jacobian, made[2]) if has_aux else jacobian

    return jacobian_of


def hessian(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that gives the second derivatives of `fun`: jacfwd of jacrev."""
    inner = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(inner, argnums, has_aux, holomorphic)


def _refuse_complex(where: str, holomorphic: bool) -> None:
    if holomorphic:
        raise DTypeError(f"{where}: complex numbers are not supported")


def _chosen(
    fun: Callable[..., Any], argnums: int | Sequence[int], args: Any, kwargs: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """The arguments to differentiate (one, or a tuple), and the function of them."""
    single = isinstance(argnums, int)
    where = f"jacobian of `{name_of(fun)}`"
    places = places_of(where, numbers_of(where, argnums), len(args))
    require_floats(where, args, places)
    chosen = args[places[0]] if single else tuple(args[place] for place in places)

    def of_chosen(given: Any) -> Any:
        own = list(args)
        for place, value in zip(places, (given,) if single else given, strict=True):
            own[place] = value
        return fun(*own, **kwargs)

    of_chosen.__name__ = name_of(fun)
    return chosen, of_chosen
