"""MatMul, DotGeneral and IndexedMatMul: which axes play which role."""

from __future__ import annotations

from poot.core.equation import Eqn
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.lowering.kernels.contraction_plan import Axis, Roles, contract, roles_of
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rules import lower


def _views(ctx: PlanContext, eqn: Eqn) -> list[View]:
    """The operands, of which none is a literal: all have axes, or are copied."""
    views = []
    for operand in eqn.inputs:
        view = ctx.view(operand)
        views.append(view if isinstance(view, View) else ctx.dense(operand))
    return views


@lower.define(MatMul)
def _lower_matmul(ctx: PlanContext, eqn: Eqn) -> None:
    left, right = _views(ctx, eqn)
    out, batch = ctx.output(eqn.out), len(left.shape) - 2
    turned = right.layout.transpose((*range(batch), batch + 1, batch))
    roles = roles_of(left.layout, turned, out.layout, batch, 1, 1)
    contract(ctx, left, right, out, roles)


@lower.define(DotGeneral)
def _lower_dot_general(ctx: PlanContext, eqn: Eqn) -> None:
    op = eqn.op
    assert isinstance(op, DotGeneral)
    left, right = _views(ctx, eqn)
    out = ctx.output(eqn.out)
    rows, columns = op.lhs_free(len(left.shape)), op.rhs_free(len(right.shape))
    roles = roles_of(
        left.layout.transpose((*op.lhs_batch, *rows, *op.lhs_contracting)),
        right.layout.transpose((*op.rhs_batch, *columns, *op.rhs_contracting)),
        out.layout,
        len(op.lhs_batch),
        len(rows),
        len(columns),
    )
    contract(ctx, left, right, out, roles)


@lower.define(IndexedMatMul)
def _lower_indexed_matmul(ctx: PlanContext, eqn: Eqn) -> None:
    x, w, idx = _views(ctx, eqn)
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
