"""Loops over a few values, with a bound that is known."""

from __future__ import annotations

from collections.abc import Callable

from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.value import Value

State = tuple[Value, ...]


def iterate(
    k: KernelBuilder,
    state: State,
    go_on: Callable[[State], Value],
    step: Callable[[State], State],
    most: int,
) -> State:
    """Replace `state` by `step(state)` while `go_on(state)`, at most `most` times."""
    variables = [k.variable(value.ty, value) for value in state]
    with k.loop(most):
        current = tuple(variable.load() for variable in variables)
        k.break_if(k.logical_not(go_on(current)))
        for variable, value in zip(variables, step(current), strict=True):
            variable.store(value)
    return tuple(variable.load() for variable in variables)
