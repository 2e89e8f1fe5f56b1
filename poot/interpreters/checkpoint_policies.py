"""What `checkpoint` keeps beside the arguments: policies under JAX's names.

A policy is asked of each operation whether its results are kept: `policy(op, *types)`
with the types of the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poot.core.op import Op
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.wrappers import CheckpointName
from poot.core.types import TensorType

Policy = Callable[..., bool]


def everything_saveable(op: Op, *types: TensorType) -> bool:
    """Keep all results: nothing is computed twice."""
    return True


def nothing_saveable(op: Op, *types: TensorType) -> bool:
    """Keep the arguments only, as without a policy."""
    return False


def dots_saveable(op: Op, *types: TensorType) -> bool:
    """Keep the results of products of matrices."""
    return isinstance(op, MatMul | DotGeneral | IndexedMatMul)


def dots_with_no_batch_dims_saveable(op: Op, *types: TensorType) -> bool:
    """Keep the results of products that have no batch axes, those with weights say."""
    if isinstance(op, DotGeneral):
        return not op.lhs_batch
    return isinstance(op, MatMul) and min(type.ndim for type in types) <= 2


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def save_only_these_names(*names: str) -> Policy:
    """Keep what `checkpoint_name` gave one of these names."""

    def save_only_these_names(op: Op, *types: TensorType) -> bool:
        return isinstance(op, CheckpointName) and op.label in names

    return save_only_these_names


def save_any_names_but_these(*names: str) -> Policy:
    """Keep what `checkpoint_name` gave any name but these."""

    def save_any_names_but_these(op: Op, *types: TensorType) -> bool:
        return isinstance(op, CheckpointName) and op.label not in names

    return save_any_names_but_these


def save_anything_except_these_names(*names: str) -> Policy:
    """Keep all but what `checkpoint_name` gave one of these names."""

    def save_anything_except_these_names(op: Op, *types: TensorType) -> bool:
        return not (isinstance(op, CheckpointName) and op.label in names)

    return save_anything_except_these_names


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Keep what either of two policies keeps."""

    def save_from_both_policies(op: Any, *types: TensorType) -> bool:
        return first(op, *types) or second(op, *types)

    return save_from_both_policies
