"""Functions of trees as functions of their leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError
from poot.interpreters.promotion import as_value, is_operand
from poot.interpreters.pytree import (
    TreeDef,
    by_sorted_keys,
    flatten,
    leaf_paths,
    unflatten,
)

# The dtype of tangents of integers and bools: they have none, so no bytes.
float0 = np.dtype([("float0", np.void, 0)])


def name_of(function: Any) -> str:
    """What messages call a function."""
    found: str = getattr(function, "__name__", type(function).__name__)
    return found


def require_callable(where: str, function: Any) -> None:
    if not callable(function):
        given = type(function).__name__
        raise ArgumentError(f"{where} takes a function, given a {given}")


def values_of(where: str, leaves: Sequence[Any], tree: TreeDef) -> list[Any]:
    """Leaves as values of the current interpreter; ArgumentError for foreign ones."""
    for leaf, accessor in zip(leaves, leaf_paths(tree), strict=True):
        if not is_operand(leaf):
            path = accessor.codify("") or "it"
            raise ArgumentError(
                f"{where}: {path} is a {type(leaf).__name__}; takes arrays and "
                "numbers, and containers of them"
            )
    return [as_value(leaf, where) for leaf in leaves]


class FlatFunction:
    """A function of positional trees as one of leaves; knows its result's tree."""

    def __init__(
        self,
        function: Callable[..., Any],
        tree: TreeDef,
        where: str,
        has_aux: bool = False,
    ) -> None:
        self._function = function
        self._tree = by_sorted_keys(tree)
        self._where = f"{where} of `{name_of(function)}`"
        self._has_aux = has_aux
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        returned = self._function(*unflatten(self._tree, leaves))
        if self._has_aux:
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise ArgumentError(
                    f"{self._where}: has_aux=True takes a function that returns a pair "
                    f"(output, aux), given {type(returned).__name__}"
                )
            returned, self.aux = returned
        found, tree = flatten(returned)
        values = values_of(f"{self._where}, result", found, tree)
        self.result_tree = by_sorted_keys(tree)
        return values
