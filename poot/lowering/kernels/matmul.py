"""Contractions and composites of them: which axes play which role."""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.equation import Eqn, Operand
from poot.core.op import Op
from poot.core.ops.contractions import (
    ContractionEpilogue,
    DenseContraction,
    GroupedDenseContraction,
)
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.types import TensorType
from poot.lowering.kernels.contraction_lhs import MadeRows
from poot.lowering.kernels.contraction_parts import Group
from poot.lowering.kernels.contraction_plan import contract, contract_parts
from poot.lowering.kernels.contraction_roles import Axis, Roles, roles_of
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower


def _view(ctx: PlanContext, operand: Operand) -> View:
    """An operand that has axes, or is copied: a literal has none."""
    view = ctx.view(operand)
    return view if isinstance(view, View) else ctx.dense(operand)


def _roles(op: Op, left: Layout, rights: Sequence[View], made: TensorType) -> Roles:
    """The axes of heads of one op, which all make a dense result of one type."""
    target = Layout.dense(made.shape)
    if isinstance(op, MatMul):
        batch = len(left.shape) - 2
        order = (*range(batch), batch + 1, batch)
        turned = [right.layout.transpose(order) for right in rights]
        return roles_of(left, turned, target, batch, 1, 1)
    if isinstance(op, GroupedDenseContraction):
        blocks = [_blocks(left, right) for right in rights]
        return _roles(op.dense.dot, left, blocks, made)
    if isinstance(op, DenseContraction):
        return _roles(op.dot, left, rights, made)
    assert isinstance(op, DotGeneral)
    rows, columns = op.lhs_free(len(left.shape)), op.rhs_free(len(rights[0].shape))
    order = (*op.rhs_batch, *columns, *op.rhs_contracting)
    return roles_of(
        left.transpose((*op.lhs_batch, *rows, *op.lhs_contracting)),
        [right.layout.transpose(order) for right in rights],
        target,
        len(op.lhs_batch),
        len(rows),
        len(columns),
    )


def _blocks(left: Layout, right: View) -> View:
    """A weight [G * N, K] as [G, N, K], for a left operand [G, M, K]."""
    groups = left.shape[0]
    rows, inner = right.shape
    by_row, by_inner = right.layout.strides
    block = rows // groups
    strides = (by_row * block, by_row, by_inner)
    layout = Layout((groups, block, inner), strides, right.layout.offset)
    return right.with_layout(layout)


@lower.define(MatMul, DotGeneral, DenseContraction, GroupedDenseContraction)
def _lower_contraction(ctx: PlanContext, eqn: Eqn) -> None:
    left, right = (_view(ctx, operand) for operand in eqn.inputs)
    out = ctx.output(eqn.out)
    contract(ctx, left, right, out, _roles(eqn.op, left.layout, [right], out.type))


@lower.define(IndexedMatMul)
def _lower_indexed_matmul(ctx: PlanContext, eqn: Eqn) -> None:
    x, w, idx = (_view(ctx, operand) for operand in eqn.inputs)
    out = ctx.output(eqn.out)
    (rows, k), n = x.shape, w.shape[2]
    by_row, by_k = x.layout.strides
    by_matrix, by_inner, by_column = w.layout.strides
    roles = Roles(
        (Axis(rows, by_row, by_matrix, out.layout.strides[0]),),
        (),
        (Axis(n, right=by_column, target=1),),
        (Axis(k, by_k, by_inner),),
    )
    contract(ctx, x, w, out, roles, idx)


@lower.define(ContractionEpilogue)
def _lower_epilogue(ctx: PlanContext, eqn: Eqn) -> None:
    op = eqn.op
    assert isinstance(op, ContractionEpilogue)
    sources, weights, _ = op.parts(eqn.inputs)
    left: View | MadeRows
    if op.prologue is None:
        left = _view(ctx, sources[0])
        layout = left.layout
    else:
        left = MadeRows.of(op.prologue, tuple(map(ctx.view, sources)))
        layout = Layout.dense(left.type.shape)
    rights = [_view(ctx, operand) for operand in weights]
    parts = []
    for heads, results in op.head_groups():
        if ctx.type(eqn.outs[results[0]]).size:
            group = Group(ctx, eqn, heads, results)
            mine = [rights[number] for number in heads]
            roles = _roles(op.heads[heads[0]], layout, mine, group.head)
            parts += group.parts(rights, roles)
    contract_parts(ctx, left, parts)
