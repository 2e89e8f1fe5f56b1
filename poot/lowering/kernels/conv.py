"""Conv: a contraction of the weights with windows of the input.

The windows are read where they stand in the input, or in a padded copy of it: moving
along the window and moving the window are both strides. No patches are stored.
"""

from __future__ import annotations

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn
from poot.core.ops.conv import Conv
from poot.core.ops.shape import Pad
from poot.core.types import TensorType
from poot.lowering.kernels.contraction_plan import contract
from poot.lowering.kernels.contraction_roles import Axis, Roles
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower


@lower.define(Conv)
def _lower_conv(ctx: PlanContext, eqn: Eqn) -> None:
    op = eqn.op
    assert isinstance(op, Conv)
    x, w = (ctx.view(operand) for operand in eqn.inputs)
    assert isinstance(x, View) and isinstance(w, View)
    out = ctx.output(eqn.out)
    if x.size == 0 or w.size == 0:
        ctx.copy(Scalar.of(0, out.dtype), out)
        return
    x = _padded(ctx, op, x)
    windows = _windows(op, x.layout, w.shape[2:], out.shape[2:])
    roles = _roles(op, windows, w.layout, out.layout)
    contract(ctx, w, x.with_layout(windows), out, roles)


def _windows(
    op: Conv, x: Layout, window: tuple[int, ...], places: tuple[int, ...]
) -> Layout:
    """[N, C, *places, *window] as a view of the padded [N, C, *spatial]."""
    steps = x.strides[2:]
    moved = (s * by for s, by in zip(steps, op.strides, strict=True))
    within = (s * by for s, by in zip(steps, op.rhs_dilation, strict=True))
    shape = (*x.shape[:2], *places, *window)
    return Layout(shape, (*x.strides[:2], *moved, *within), x.offset)


def _roles(op: Conv, windows: Layout, w: Layout, out: Layout) -> Roles:
    """Rows are output features, columns the places of all images; groups are batches.

    A group is a part of the input features or, with batch groups, of the images.
    """
    rank, groups = len(op.strides), op.feature_group_count * op.batch_group_count
    made, taken = w.shape[0] // groups, w.shape[1]
    images = out.shape[0]
    by_image, by_feature = windows.strides[:2]
    by_group = by_image * images if op.batch_group_count > 1 else by_feature * taken
    by_row, by_made = w.strides[0], out.strides[1]
    places = zip(
        out.shape, (by_image, 0, *windows.strides[2:]), out.strides, strict=False
    )
    columns = [Axis(size, right=r, target=t) for size, r, t in places]
    window = map(Axis, w.shape[2:], w.strides[2:], windows.strides[2 + rank :])
    return Roles(
        (Axis(groups, by_row * made, by_group, by_made * made),),
        (Axis(made, left=by_row, target=by_made),),
        (columns[0], *columns[2:]),
        (Axis(taken, w.strides[1], by_feature), *window),
    )


def _padded(ctx: PlanContext, op: Conv, x: View) -> View:
    """The input with its zeros; a view of it where there are none to put in."""
    if all(hole == 1 for hole in op.lhs_dilation) and all(
        side <= 0 for pair in op.padding for side in pair
    ):
        layout = x.layout
        for axis, (low, high) in enumerate(op.padding, 2):
            layout = layout.slice(axis, -low, layout.shape[axis] + high, 1)
        return x.with_layout(layout)
    config = [(0, 0, 0), (0, 0, 0)]
    for (low, high), hole in zip(op.padding, op.lhs_dilation, strict=True):
        config.append((low, high, hole - 1))
    # In the order in which the input stands in memory.
    strides = x.layout.strides
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    source = x.with_layout(x.layout.transpose(order))
    builder = Builder()
    operand = builder.input(source.type)
    pad = Pad(tuple(config[axis] for axis in order))
    (wide,) = builder.emit(pad, (operand, Scalar.of(0, x.dtype)))
    builder.result(wide)
    target = ctx.scratch(TensorType(builder.type(wide).shape, x.dtype))
    ctx.run(builder.finish(), [source], [target])
    back = [order.index(axis) for axis in range(len(order))]
    return target.with_layout(target.layout.transpose(back))
