"""Composites: each means its decomposition."""

from __future__ import annotations

from poot.core.ops.composite import Fused, FusedRow
from poot.core.ops.loops import CountedLoop, FlagLoop, Switch
from poot.core.oracle.evaluate import run
from poot.core.oracle.table import Arithmetic, Array, impl


@impl.define(Fused, FusedRow, CountedLoop, FlagLoop, Switch)
def _region(
    op: Fused | FusedRow | CountedLoop | FlagLoop | Switch,
    arithmetic: Arithmetic,
    *xs: Array,
) -> tuple[Array, ...]:
    body = op.decompose()
    values = run(body, xs, body.results, arithmetic)
    return tuple(values[v] for v in body.results)
