"""`cond` and `switch`, with lax's names and meanings."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.ops.control import Cond
from poot.core.ops.elementwise import Clamp
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.config import settings
from poot.interpreters.control.binding import (
    Body,
    bind,
    known,
    require_same_tree,
    staged,
)
from poot.interpreters.flat import name_of, require_callable, values_of
from poot.interpreters.nested import stage_closed
from poot.interpreters.primitives import type_of
from poot.interpreters.promotion import WeakDType, as_value, cast_to, join
from poot.interpreters.pytree import flatten, leaf_paths, unflatten
from poot.interpreters.replay import replay

# What stands for an operand that is not given: None is one.
_NO_OPERAND: Any = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _NO_OPERAND,
) -> Any:
    """`true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`.

    `pred` is a scalar: a bool, or a number that is not zero. Both functions are traced
    and give trees of one form with equal shapes and dtypes; only one runs. `operand` is
    an older way to give one operand.
    """
    operands = _with_keyword("cond", operands, operand)
    value = as_value(pred, "cond")
    if type_of(value).shape:
        raise TypeMismatchError(
            f"cond: pred is {type_of(value)}, takes a scalar; use poot.numpy.where, or "
            "vmap a cond"
        )
    for function in (true_fun, false_fun):
        require_callable("cond", function)
    taken = known(bool, value) if settings().disable_jit else None
    if taken is not None:
        return (true_fun if taken else false_fun)(*operands)
    index = cast_to(cast_to(value, dtypes.bool_), dtypes.int32)
    return _chosen("cond", index, (false_fun, true_fun), operands)


def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = _NO_OPERAND,
) -> Any:
    """`branches[index](*operands)`, the index clamped to 0..len(branches)-1."""
    operands = _with_keyword("switch", operands, operand)
    branches = tuple(branches)
    if not branches:
        raise ArgumentError("switch: there are no branches; takes one at least")
    for function in branches:
        require_callable("switch", function)
    value = as_value(index, "switch")
    type = type_of(value)
    if type.shape or not type.dtype.is_integer:
        raise TypeMismatchError(f"switch: the index is {type}, takes an integer scalar")
    place = known(operator.index, value) if settings().disable_jit else None
    if place is not None:
        return branches[min(max(place, 0), len(branches) - 1)](*operands)
    if len(branches) == 1:
        return branches[0](*operands)
    return _chosen("switch", _as_index(value, len(branches)), branches, operands)


def _with_keyword(where: str, operands: Any, operand: Any) -> Any:
    if operand is _NO_OPERAND:
        return operands
    if operands:
        raise ArgumentError(
            f"{where}: operands are given by position and as operand; takes one of both"
        )
    return (operand,)


def _as_index(value: Any, count: int) -> Any:
    """The index as an i32 that wider or unsigned ones do not wrap around in."""
    dtype = type_of(value).dtype
    if dtype.itemsize < 4 or dtype is dtypes.int32:
        return cast_to(value, dtypes.int32)
    last = Scalar.of(count - 1, dtype)
    low = Scalar.of(0, dtype)
    return cast_to(Clamp().bind(low, value, last), dtypes.int32)


def _chosen(
    where: str, index: Any, functions: Sequence[Callable[..., Any]], operands: Any
) -> Any:
    leaves, tree = flatten(operands)
    values = values_of(where, leaves, tree)
    avals = [x.aval for x in values]
    bodies = [
        staged(f, tree, avals, f"{where}, branch `{name_of(f)}`") for f in functions
    ]
    result = bodies[0]
    for body, f in zip(bodies, functions, strict=True):
        require_same_tree(
            f"{where}: branch `{name_of(f)}`, result", body.tree, result.tree
        )
    wanted = _result_avals(where, bodies)
    captured, graphs = _shared(bodies, wanted)
    results = bind(Cond(graphs), [index, *captured, *values])
    return unflatten(
        result.tree,
        [x.with_weak(aval.weak) for x, aval in zip(results, wanted, strict=True)],
    )


def _result_avals(where: str, bodies: Sequence[Body]) -> list[Aval]:
    """The types of the results; weak ones of a branch take the dtype of the others."""
    found = []
    accessors = leaf_paths(bodies[0].tree)
    for number, given in enumerate(zip(*(body.avals for body in bodies), strict=True)):
        dtype, weak = join([WeakDType(a.type.dtype, a.weak) for a in given])
        fits = all(a.type.dtype is dtype or a.weak for a in given)
        if len({a.type.shape for a in given}) > 1 or not fits:
            types = " and ".join(str(a.type) for a in given)
            raise TypeMismatchError(
                f"{where}: {accessors[number].codify('result')} of the branches is "
                f"{types}; takes equal shapes and dtypes"
            )
        shape = given[0].type.shape
        found.append(aval_of(type(given[0].type)(shape, dtype), weak))
    return found


def _branch(
    graph: Graph, taken: Sequence[int], own: int, wanted: Sequence[Aval], *flat: Any
) -> list[Any]:
    """A branch of what it takes of all that was captured, and of the operands."""
    outs = replay(graph, [*(flat[place] for place in taken), *flat[own:]])
    return [
        cast_to(out, aval.type.dtype) for out, aval in zip(outs, wanted, strict=True)
    ]


def _shared(
    bodies: Sequence[Body], wanted: Sequence[Aval]
) -> tuple[list[Any], tuple[Graph, ...]]:
    """All that the branches captured, and their graphs over all of it."""
    captured: dict[int, Any] = {
        id(value): value for body in bodies for value in body.captured
    }
    places = {key: number for number, key in enumerate(captured)}
    types = [type_of(value) for value in captured.values()]
    graphs = []
    for body in bodies:
        taken = [places[id(value)] for value in body.captured]
        inputs = [*types, *body.graph.input_types[len(taken) :]]

        branch = functools.partial(_branch, body.graph, taken, len(types), wanted)
        graphs.append(stage_closed(branch, inputs, "a branch"))
    return list(captured.values()), tuple(graphs)
