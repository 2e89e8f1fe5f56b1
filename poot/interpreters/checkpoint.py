"""`checkpoint`, and names for what its policies keep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from poot.core.interpreter import current
from poot.core.op import CustomRule
from poot.core.ops.wrappers import CheckpointName, Remat
from poot.interpreters.custom import bind_wrapper, places_of
from poot.interpreters.eager import EAGER
from poot.interpreters.flat import (
    FlatFunction,
    name_of,
    require_callable,
    values_of,
)
from poot.interpreters.graphs import identity
from poot.interpreters.nested import stage_nested
from poot.interpreters.primitives import type_of
from poot.interpreters.pytree import flatten, map, unflatten


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Any:
    """A function of which reverse mode keeps only the arguments, and runs it again.

    `policy(op, *types)` says of ops whose results are kept too; `checkpoint_policies`
    has some. `prevent_cse` and `concrete` are taken for JAX's sake: what is computed
    again is never merged with the first time.
    """
    if fun is None:
        return functools.partial(
            checkpoint, policy=policy, static_argnums=static_argnums
        )
    require_callable("checkpoint", fun)
    if policy is not None:
        require_callable("checkpoint, policy", policy)
    static = places_of("checkpoint", fun, static_argnums)
    rule = None if policy is None else CustomRule(name_of(policy), (policy,))
    function: Callable[..., Any] = fun

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        moving = [x for n, x in enumerate(args) if n not in static]
        leaves, tree = flatten((tuple(moving), kwargs))
        values = values_of(f"checkpoint of `{name_of(function)}`", leaves, tree)

        def call(moved: Any, named: Any) -> Any:
            given = iter(moved)
            whole = [x if n in static else next(given) for n, x in enumerate(args)]
            return function(*whole, **named)

        call.__name__ = name_of(function)
        flat = FlatFunction(call, tree, "checkpoint")
        if current() is EAGER:
            results = flat(*values)
            return unflatten(flat.result_tree, results)
        nested = stage_nested(flat, [x.aval for x in values], name_of(function))
        results = bind_wrapper(lambda g, n: Remat(g, rule), nested, values)
        return unflatten(flat.result_tree, results)

    return checkpointed


def checkpoint_name(x: Any, name: str) -> Any:
    """The tree itself, its leaves known to policies of `checkpoint` by this name."""

    def named(leaf: Any) -> Any:
        (value,) = values_of("checkpoint_name", [leaf], flatten(leaf)[1])
        if current() is EAGER:
            return value
        (found,) = CheckpointName(identity(type_of(value)), name).bind(value)
        return found.with_weak(value.aval.weak)

    return map(named, x)
