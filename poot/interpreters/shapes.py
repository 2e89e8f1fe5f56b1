"""`eval_shape`: the types of what a function returns, without its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poot.core.dtypes import as_dtype
from poot.core.equation import ValueId
from poot.core.interpreter import current, interpreting
from poot.core.types import TensorType
from poot.interpreters.aval import aval_of
from poot.interpreters.flat import FlatFunction, name_of, require_callable
from poot.interpreters.nested import NestedStaging
from poot.interpreters.pytree import flatten, unflatten
from poot.interpreters.signature import ShapeDtypeStruct, abstract


class _ShapeStaging(NestedStaging):
    """Staging whose graph nobody runs, so that constants stay on the host."""

    def _constant_of(self, copied: Any, digest: str) -> ValueId:
        type = TensorType(copied.shape, as_dtype(copied.dtype))
        made = self.input(aval_of(type), "a constant").operand
        assert isinstance(made, int)
        return made


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `fun` returns, with a ShapeDtypeStruct for each array.

    The arguments are trees of arrays, numbers and ShapeDtypeStructs. The function is
    traced; nothing runs on the device. ArgumentError for other leaves.
    """
    require_callable("eval_shape", fun)
    name = name_of(fun)
    leaves, tree = flatten((args, kwargs))
    avals = [abstract(leaf, f"eval_shape of `{name}`") for leaf in leaves]

    def call(positional: Any, named: Any) -> Any:
        return fun(*positional, **named)

    flat = FlatFunction(call, tree, "eval_shape")
    staging = _ShapeStaging(name, current())
    inputs = [staging.input(aval, f"leaf {n}") for n, aval in enumerate(avals)]
    try:
        with interpreting(staging):
            found = [staging.lift(result).aval for result in flat(*inputs)]
    finally:
        staging.is_finished = True
    shown = [
        ShapeDtypeStruct(aval.type.shape, aval.type.dtype.numpy, aval.weak)
        for aval in found
    ]
    return unflatten(flat.result_tree, shown)
