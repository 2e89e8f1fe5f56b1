"""Every op that a trace may hold has its rules, wrappers and control flow too."""

from __future__ import annotations

import pytest

from poot.core.op import Op, PrimitiveKey, primitive_keys
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.wrappers import (
    CheckpointName,
    CustomJvp,
    CustomTangent,
    CustomVjp,
    CustomVmap,
    OptimizationBarrier,
    Remat,
)
from poot.interpreters import rules  # noqa: F401 (fills the tables)
from poot.interpreters.batch.table import batch
from poot.interpreters.eager import transient
from poot.interpreters.jvp.table import jvp
from poot.interpreters.partial import partial
from poot.interpreters.transpose.table import transpose

CONTROL: list[type[Op]] = [Scan, While, Cond]
WRAPPERS: list[type[Op]] = [
    CustomJvp,
    CustomVjp,
    CustomVmap,
    Remat,
    CheckpointName,
    OptimizationBarrier,
]
# Composites are made by passes, which come after all transformations.
TRACED = [key for key in primitive_keys() if not key.op.composite]


def key_of(op: type[Op]) -> PrimitiveKey:
    return PrimitiveKey(op, None)


@pytest.mark.parametrize("key", TRACED, ids=str)
def test_what_a_trace_holds_is_differentiated_and_batched(key: PrimitiveKey) -> None:
    assert key in jvp and key in batch


@pytest.mark.parametrize("op", [*CONTROL, *WRAPPERS])
def test_what_holds_graphs_has_a_rule_of_each_kind(op: type[Op]) -> None:
    key = key_of(op)
    assert key in jvp and key in batch and key in partial
    # While loops run forward only, and say so where they are transposed.
    assert key in transpose
    assert (key in transient) == (op not in CONTROL)


def test_tangents_of_custom_vjp_are_transposed_and_batched() -> None:
    key = key_of(CustomTangent)
    assert key in jvp and key in batch and key in transpose and key in transient
