"""Composites: each means its decomposition."""

from __future__ import annotations

from poot.core import dtypes
from poot.core.ops.attention import Attention
from poot.core.ops.composite import Composite, Fused, FusedRow, Table
from poot.core.ops.contractions import (
    ContractionEpilogue,
    DenseContraction,
    DenseRowGather,
    GroupedDenseContraction,
)
from poot.core.ops.loops import CountedLoop, FlagLoop, Switch
from poot.core.ops.rope import Rope
from poot.core.oracle.evaluate import run
from poot.core.oracle.table import Arithmetic, Array, impl
from poot.core.types import TensorType


@impl.define(Attention, Fused, FusedRow, Rope, ContractionEpilogue, Table)
@impl.define(DenseContraction, GroupedDenseContraction, DenseRowGather)
@impl.define(CountedLoop, FlagLoop, Switch)
def _decomposed(
    op: Composite | CountedLoop | FlagLoop | Switch, arithmetic: Arithmetic, *xs: Array
) -> Array | tuple[Array, ...]:
    types = [TensorType(x.shape, dtypes.as_dtype(x.dtype)) for x in xs]
    body = op.decompose(*types)
    values = run(body, xs, body.results, arithmetic)
    results = tuple(values[v] for v in body.results)
    return results if op.multiple_results else results[0]
