"""Wrappers of sub-graphs mean what these do."""

from __future__ import annotations

from poot.core.op import Op
from poot.core.ops.wrappers import (
    CheckpointName,
    CustomJvp,
    CustomVjp,
    CustomVmap,
    OptimizationBarrier,
    Remat,
    Wrapper,
)
from poot.core.oracle.evaluate import run
from poot.core.oracle.table import Arithmetic, Array, impl


@impl.define(CustomJvp, CustomVjp, CustomVmap, Remat, CheckpointName)
def _wrapped(
    op: Wrapper, arithmetic: Arithmetic, *operands: Array
) -> tuple[Array, ...]:
    values = run(op.body, operands, op.body.results, arithmetic)
    return tuple(values[result] for result in op.body.results)


@impl.define(OptimizationBarrier)
def _barrier(op: Op, arithmetic: Arithmetic, *operands: Array) -> tuple[Array, ...]:
    return operands
