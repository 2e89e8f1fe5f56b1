"""Wrappers in JAX mean their bodies; records tell nobody; host calls call the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.ops.host import HostCall, Record
from poot.core.ops.wrappers import (
    CustomJvp,
    CustomVjp,
    OptimizationBarrier,
    Remat,
    Wrapper,
)
from poot.testing._jax_control import run_graph
from poot.testing._jax_table import jax


@jax.define(CustomJvp, CustomVjp, Remat)
def _wrapped(op: Wrapper, j: Any, *operands: Any) -> tuple[Any, ...]:
    results, _ = run_graph(j, op.body, operands)
    return tuple(results)


@jax.define(OptimizationBarrier)
def _barrier(op: OptimizationBarrier, j: Any, *operands: Any) -> tuple[Any, ...]:
    return operands


@jax.define(Record)
def _record(op: Record, j: Any, *operands: Any) -> Any:
    return j.numpy.int32(0)


@jax.define(HostCall)
def _host_call(op: HostCall, j: Any, *operands: Any) -> tuple[Any, ...]:
    (function,) = op.site.functions
    types = [j.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in op.infer()]

    def on_host(*arrays: Any) -> list[Any]:
        found: list[Any] = function(op, list(map(np.asarray, arrays)))
        return found

    return tuple(j.pure_callback(on_host, types, *operands))
