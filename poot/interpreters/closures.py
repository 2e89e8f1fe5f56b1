"""`closure_convert`: what a function takes from around it as arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from poot.core.errors import ArgumentError
from poot.interpreters.array import Array
from poot.interpreters.flat import (
    FlatFunction,
    name_of,
    require_callable,
    values_of,
)
from poot.interpreters.jvp.interpreter import is_differentiable
from poot.interpreters.nested import stage_nested
from poot.interpreters.pytree import by_sorted_keys, flatten, unflatten
from poot.interpreters.replay import replay


def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` with the traced floats that it takes from around it as more arguments.

    Returns the function of (*args, *those values), and the list of them.
    """
    require_callable("closure_convert", fun)
    leaves, tree = flatten(example_args)
    values = values_of(f"closure_convert of `{name_of(fun)}`", leaves, tree)
    flat = FlatFunction(fun, tree, "closure_convert")
    nested = stage_nested(flat, [x.aval for x in values], name_of(fun))
    hoisted = [type(x) is not Array and is_differentiable(x) for x in nested.captured]
    taken = [
        x for x, is_hoisted in zip(nested.captured, hoisted, strict=True) if is_hoisted
    ]

    @functools.wraps(fun)
    def converted(*args: Any) -> Any:
        own = args[: len(example_args)]
        more = iter(args[len(example_args) :])
        given, given_tree = flatten(own)
        if by_sorted_keys(given_tree) != by_sorted_keys(tree):
            raise ArgumentError(
                f"closure_convert: given the tree {given_tree}, takes {tree}"
            )
        captured = [
            next(more) if is_hoisted else x
            for x, is_hoisted in zip(nested.captured, hoisted, strict=True)
        ]
        lifted = values_of(
            "closure_convert", [*captured, *given], flatten([*captured, *given])[1]
        )
        return unflatten(flat.result_tree, replay(nested.graph, lifted))

    return converted, taken
