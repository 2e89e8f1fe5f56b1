"""Runs a graph in JAX, equation by equation beside the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.conv import Conv
from poot.core.ops.cumulative import Cumulative
from poot.core.ops.elementwise import Binary, Cast, Clamp, Compare, Unary
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import Reduce
from poot.core.ops.scatter import Scatter
from poot.core.ops.window import ReduceWindow
from poot.testing import (  # noqa: F401 (they fill the table)
    _jax_contraction,
    _jax_control,
    _jax_elementwise,
    _jax_indexing,
    _jax_scatter,
    _jax_tensor,
    _jax_wrappers,
)
from poot.testing._jax_table import Array, deviates, jax

# JAX on the CPU takes subnormals of f32 for zeros in what calculates.
_CALCULATES = (
    *(Unary, Binary, Compare, Cast, Clamp),
    *(Reduce, Cumulative, ReduceWindow, MatMul),
    *(DotGeneral, IndexedMatMul, Conv, Scatter),
    *(Scan, While, Cond),
)
_SHARES_F32_EXPONENT = (dtypes.float32.numpy, dtypes.bfloat16.numpy)
_SMALLEST_NORMAL_F32 = 2.0**-126
FLUSHES = "meets subnormal numbers, which JAX on the CPU takes for zeros"


class JaxRun:
    """JAX's values of a graph, each made from JAX's values of its operands.

    Equations run one by one on the CPU, so that XLA contracts and folds nothing across
    them, in full precision and with 64-bit dtypes. `notes` says of each value why JAX
    may mean something else there, or in what it depends on.
    """

    def __init__(self, module: Any, graph: Graph, inputs: Sequence[Array]) -> None:
        self._jax = module
        self._graph = graph
        self._last_use = {v: uses[-1] for v, uses in graph.uses().items()}
        for output in graph.outputs:
            self._last_use[output.value] = len(graph.eqns)
        self.notes: dict[ValueId, dict[str, None]] = {}
        self._values: dict[ValueId, Any] = {}
        with self._settings():
            for value, array in zip(graph.inputs, inputs, strict=True):
                self._values[value] = module.numpy.asarray(array)

    def _settings(self) -> ExitStack:
        module, stack = self._jax, ExitStack()
        stack.enter_context(module.enable_x64(True))
        stack.enter_context(module.default_matmul_precision("highest"))
        cpu = module.local_devices(backend="cpu")[0]
        stack.enter_context(module.default_device(cpu))
        return stack

    def step(
        self, index: int, eqn: Eqn, operands: Sequence[Array], results: Sequence[Array]
    ) -> None:
        """Run one equation; `operands` and `results` are what the oracle has of it."""
        with self._settings():
            made = jax[eqn.op.key](eqn.op, self._jax, *map(self._read, eqn.inputs))
        outs = made if eqn.op.multiple_results else (made,)
        for out, value in zip(eqn.outs, outs, strict=True):
            self._values[out] = value
        self._note(index, eqn, operands, results)
        for operand in (*eqn.inputs, *eqn.outs):
            if isinstance(operand, Scalar):
                continue
            if self._last_use.get(operand, -1) <= index:
                self._values.pop(operand, None)

    def _read(self, operand: Operand) -> Any:
        if isinstance(operand, Scalar):
            return self._jax.numpy.asarray(operand.array)
        return self._values[operand]

    def _note(
        self, index: int, eqn: Eqn, operands: Sequence[Array], results: Sequence[Array]
    ) -> None:
        notes: dict[str, None] = {}
        for operand in eqn.inputs:
            if not isinstance(operand, Scalar):
                notes |= self.notes.get(operand, {})
        reason = None
        if eqn.op.key in deviates:
            reason = deviates[eqn.op.key](eqn.op, *operands)
        if reason is None and isinstance(eqn.op, _CALCULATES):
            reason = FLUSHES if any(map(_is_tiny, (*operands, *results))) else None
        if reason is not None:
            notes[f"{eqn.op} at {self._graph.source(index)} {reason}"] = None
        self.notes.update(dict.fromkeys(eqn.outs, notes) if notes else {})

    def result(self, value: ValueId) -> Array:
        """What JAX has for one of the graph's outputs."""
        return np.asarray(self._values[value])


def _is_tiny(x: Array) -> bool:
    """Whether some element is a subnormal number of f32's range of exponents."""
    if x.dtype not in _SHARES_F32_EXPONENT:
        return False
    size = np.abs(x.astype(np.float32))
    return bool(((size > 0) & (size < np.float32(_SMALLEST_NORMAL_F32))).any())
