"""How contractions are laid out, split and given to a kernel.

Operands are read where they stand: axes that one stride walks are merged, the others
are taken apart by the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import ValueId
from poot.core.errors import LimitError, LoweringError
from poot.core.graph import Graph
from poot.core.ops.elementwise import Binary, BinaryOp, Cast
from poot.core.ops.shape import Reshape, Slice
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import (
    CHUNK,
    Choice,
    Contraction,
    Landing,
    Side,
    Target,
    Walk,
    Words,
    Work,
    run_length,
    vector_axis,
)
from poot.lowering.kernels.contraction_io import accumulated
from poot.lowering.kernels.contraction_lhs import MadeRows
from poot.lowering.kernels.contraction_roles import Roles, merged, size_of
from poot.lowering.kernels.contraction_schedule import (
    SPLIT_STEP,
    Extent,
    Schedule,
    candidates,
    choose,
    exchange_pays,
)
from poot.lowering.kernels.describe import Described, Held, describe
from poot.lowering.kernels.operands import first_of_each
from poot.lowering.plan.blocks import needs_words
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View, collapse
from poot.lowering.program import Access, BufferRange, united

# Partial sums that one pass adds up.
_MAX_SPLITS = 24


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is made of the heads' results, which are of the type `head`.

    `body` takes as many of these as there are heads, and the extras. What it gives
    beyond the results are numbers, which landings of results name.
    """

    body: Graph
    extras: tuple[View | Scalar, ...]
    head: TensorType

    @property
    def count(self) -> int:
        """How many heads there are."""
        return len(self.body.inputs) - len(self.extras)

    def stored_as(self, dtypes: Sequence[DType]) -> Epilogue:
        """With results in these dtypes."""
        given = [self.body.type(result).dtype for result in self.body.results]
        if given == [*dtypes]:
            return self
        builder = Builder()
        inputs = [builder.input(type) for type in self.body.input_types]
        known = builder.inline(self.body, inputs)
        for result, dtype in zip(self.body.results, dtypes, strict=True):
            value = known[result]
            if builder.type(value).dtype is not dtype:
                (value,) = builder.emit(Cast(dtype), (value,))
            builder.result(value)
        return replace(self, body=builder.finish())


@dataclass(frozen=True, slots=True)
class Part:
    """Contractions of one shape, which one workgroup computes a tile of together.

    The strides of `roles` count from the offsets of the views; those of the target are
    of a dense result of one head. Without an epilogue there is one head, and its result
    is the only one of `outs`. With landings these are the buffers that results go to.
    """

    rights: tuple[View, ...]
    roles: Roles
    outs: tuple[View, ...]
    epilogue: Epilogue | None = None
    landings: tuple[Landing, ...] = ()

    @property
    def head(self) -> TensorType:
        """The type of each head's result."""
        return self.outs[0].type if self.epilogue is None else self.epilogue.head


def contract(
    ctx: PlanContext,
    left: View,
    right: View,
    out: View,
    roles: Roles,
    choice: View | None = None,
) -> None:
    """Emit the launches of one contraction into the dense `out`.

    With a `choice` the place of `right` along the only batch axis is what the indices
    say.
    """
    contract_parts(ctx, left, (Part((right,), roles, (out,)),), choice)


def contract_parts(
    ctx: PlanContext,
    left: View | MadeRows,
    parts: Sequence[Part],
    choice: View | None = None,
) -> None:
    """Emit the launches of contractions that share the operand `left`."""
    if size_of(parts[0].roles.inner) == 0:
        for part in parts:
            _without_sums(ctx, part)
        return
    parts = [replace(p, roles=p.roles.walked(choice is None)) for p in parts]
    (first, *others) = parts
    alone = not others and len(first.rights) == 1 and choice is None
    if alone and isinstance(left, View) and exchange_pays(_extent(parts), ctx.info):
        (right,) = first.rights
        parts = [replace(first, rights=(left,), roles=first.roles.exchanged)]
        left = right
    extent = _extent(parts)
    schedule = _schedule(ctx, left, parts, extent)
    splits = _splits(extent.k, schedule, ctx.info)
    plans = [_PartPlan.of(ctx, part, schedule, splits) for part in parts]
    _launch(ctx, left, plans, schedule, splits, choice)
    for plan in plans:
        plan.combine(ctx)


def _without_sums(ctx: PlanContext, part: Part) -> None:
    """Sums of nothing are zeros."""
    _require_dense(part, "of no products")
    zero = Scalar.of(0, part.head.dtype)
    if part.epilogue is None:
        ctx.copy(zero, part.outs[0])
        return
    zeros = []
    for _ in part.rights:
        zeros.append(ctx.scratch(part.head))
        ctx.copy(zero, zeros[-1])
    ctx.run(part.epilogue.body, (*zeros, *part.epilogue.extras), part.outs)


def _require_dense(part: Part, sums: str) -> None:
    if part.landings:
        raise LoweringError(
            f"sums {sums}, whose results go to parts of other tensors; needs results "
            "that stand by themselves. They take a launch of their own"
        )


def _extent(parts: Sequence[Part]) -> Extent:
    """Of all parts, as if their columns stood side by side."""
    roles = parts[0].roles
    dense = all(
        merged(part.roles.inner, head).strides[-1:] == (1,)
        for part in parts
        for head in range(len(part.rights))
    )
    return Extent(
        size_of(roles.rows),
        sum(size_of(part.roles.columns) for part in parts),
        size_of(roles.inner),
        size_of(roles.batch),
        dense,
        max(len(part.rights) for part in parts),
        _run(parts) if dense else CHUNK,
    )


def _run(parts: Sequence[Part]) -> int:
    """How many elements one load brings along k of every right operand."""
    runs = []
    for part in parts:
        roles = part.roles
        for head, right in enumerate(part.rights):
            batch = [axis.stride(head) for axis in roles.batch]
            outer, inner = merged(roles.columns, head), merged(roles.inner, head)
            offset, size = right.layout.offset, right.dtype.itemsize
            runs.append(run_length(offset, batch, outer, inner, size))
    return min(runs)


def _schedule(
    ctx: PlanContext, left: View | MadeRows, parts: Sequence[Part], extent: Extent
) -> Schedule:
    """The usual schedule, or what tuning has found for these sizes and dtypes."""
    made = isinstance(left, MadeRows)
    usual = choose(extent, ctx.info, made)
    if ctx.generic:
        return usual

    def subject() -> str:
        first = left.type.dtype if isinstance(left, MadeRows) else left.dtype
        views = [view for p in parts for view in (*p.rights, *p.outs)]
        dtypes = " ".join(dtype.name for dtype in (first, *(v.dtype for v in views)))
        bodies = [len(p.epilogue.body.eqns) for p in parts if p.epilogue is not None]
        return f"{extent} {dtypes} {bodies}{' made' if made else ''}"

    return ctx.info.tuned.pick(
        "contraction", subject, usual, lambda: candidates(extent, ctx.info, made)
    )


def _splits(k: int, schedule: Schedule, info: DeviceInfo) -> int:
    """How many parts of k are summed on their own, so that loops stay in bounds."""
    splits = -(-k // schedule.max_span(info))
    if splits > _MAX_SPLITS:
        raise LimitError(
            f"matmul: contracts {k} elements; {info.name} sums at most "
            f"{_MAX_SPLITS * schedule.max_span(info)} in one equation. Split it"
        )
    return splits


@dataclass(frozen=True, slots=True)
class _PartPlan:
    """A part, and where the kernel writes.

    That is `outs` of the part; or sums that are still to be combined; or elements that
    the device cannot store next to others as they are.
    """

    part: Part
    targets: tuple[View, ...]
    described: Described | None
    # Whether the sums of the splits are still to be added, and the epilogue to be run.
    is_partial: bool
    splits: int

    @classmethod
    def of(
        cls, ctx: PlanContext, part: Part, schedule: Schedule, splits: int
    ) -> _PartPlan:
        head, heads = part.head, len(part.rights)
        sums = accumulated(head.dtype)
        # Small elements are stored by whole words only, where the device wants that.
        by_word = part.roles.stores_chunks and schedule.stores_chunks
        if splits > 1:
            _require_dense(part, f"in {splits} splits")
            shape = (heads, splits, *head.shape)
            scratch = ctx.scratch(TensorType(shape, sums))
            return cls(part, (scratch,), None, True, splits)
        if part.epilogue is None:
            (out,) = part.outs
            if needs_words(out.dtype, ctx.info) and not by_word:
                scratch = ctx.scratch(TensorType((1, 1, *head.shape), sums))
                return cls(part, (scratch,), None, True, 1)
            return cls(part, part.outs, None, False, 1)
        if part.landings:
            _require_elements(part, ctx.info)
            described = _described(part.epilogue, part.outs)
            return cls(part, part.outs, described, False, 1)
        targets = tuple(
            ctx.scratch(TensorType(out.shape, accumulated(out.dtype)))
            if needs_words(out.dtype, ctx.info) and not by_word
            else out
            for out in part.outs
        )
        stored = part.epilogue.stored_as([target.dtype for target in targets])
        described = _described(stored, targets)
        return cls(part, targets, described, False, 1)

    def combine(self, ctx: PlanContext) -> None:
        """Add up the splits' sums, round them and run the epilogue."""
        if self.is_partial:
            self._add_up(ctx)
            return
        for target, out in zip(self.targets, self.part.outs, strict=True):
            if target is not out:
                builder = Builder()
                value = builder.input(target.type)
                builder.result(*builder.emit(Cast(out.dtype), (value,)))
                ctx.run(builder.finish(), (target,), (out,))

    def _add_up(self, ctx: PlanContext) -> None:
        builder = Builder()
        (sums,) = self.targets
        operand, head = builder.input(sums.type), self.part.head
        totals = []
        for number in range(len(self.part.rights)):
            pieces = [
                self._piece(builder, operand, number, split)
                for split in range(self.splits)
            ]
            total = pieces[0]
            for piece in pieces[1:]:
                (total,) = builder.emit(Binary(BinaryOp.ADD), (total, piece))
            if sums.dtype is not head.dtype:
                (total,) = builder.emit(Cast(head.dtype), (total,))
            totals.append(total)
        epilogue = self.part.epilogue
        if epilogue is None:
            builder.result(totals[0])
            ctx.run(builder.finish(), (sums,), self.part.outs)
            return
        types = epilogue.body.input_types[len(totals) :]
        extras = [builder.input(type) for type in types]
        known = builder.inline(epilogue.body, [*totals, *extras])
        for result in epilogue.body.results:
            builder.result(known[result])
        ctx.run(builder.finish(), (sums, *epilogue.extras), self.part.outs)

    def _piece(
        self, builder: Builder, operand: ValueId, head: int, split: int
    ) -> ValueId:
        """The sums of one head over one split."""
        (piece,) = builder.emit(Slice(0, head, head + 1), (operand,))
        (piece,) = builder.emit(Slice(1, split, split + 1), (piece,))
        return builder.emit(Reshape(self.part.head.shape), (piece,))[0]

    def operands(
        self, indices: Sequence[View]
    ) -> tuple[tuple[Access, Sequence[View | BufferRange]], ...]:
        """What the kernel gets for this part behind the left operand."""
        read = () if self.described is None else self.described.buffers
        given: tuple[View | BufferRange, ...] = (*self.part.rights, *indices, *read)
        return (Access.READ, given), (Access.WRITE, self.targets)

    @property
    def reads(self) -> tuple[BufferRange, ...]:
        extras = () if self.described is None else self.described.reads
        return (*(right.touched for right in self.part.rights), *extras)


def _require_elements(part: Part, info: DeviceInfo) -> None:
    for out in part.outs:
        if needs_words(out.dtype, info):
            raise LoweringError(
                f"results of {out.dtype} that go to parts of other tensors; "
                f"{info.name} stores whole words only. They take a launch of their own"
            )


def _described(epilogue: Epilogue, targets: Sequence[View]) -> Described:
    heads = [Held(epilogue.head) for _ in range(epilogue.count)]
    return describe(epilogue.body, [*heads, *epilogue.extras], targets, CHUNK)


def _firsts(
    operands: Sequence[tuple[View | BufferRange, Access]],
) -> tuple[int, ...]:
    """For each operand the first that is the same buffer; nothing if all differ."""
    ranges = [
        (operand.range if isinstance(operand, View) else operand, access)
        for operand, access in operands
    ]
    firsts = first_of_each(ranges)
    return () if firsts == tuple(range(len(firsts))) else firsts


def _launch(
    ctx: PlanContext,
    left: View | MadeRows,
    plans: Sequence[_PartPlan],
    schedule: Schedule,
    splits: int,
    choice: View | None,
) -> None:
    # What passes make serves one shape.
    words = Words(ctx.generic and plans[0].part.epilogue is None)
    problems = tuple(
        _Problem(ctx, words, left, plan, choice).describe(schedule, splits)
        for plan in plans
    )
    indices = [] if choice is None else [choice]
    asked = [
        (operand, access)
        for plan in plans
        for access, some in plan.operands(indices)
        for operand in some
    ]
    firsts = _firsts(asked) if plans[0].part.epilogue is not None else ()
    prologue = None if isinstance(left, View) else left.prologue
    work = Work(problems, prologue, firsts)
    groups = flops = 0
    for plan in plans:
        roles = plan.part.roles
        m, n, k = map(size_of, (roles.rows, roles.columns, roles.inner))
        batches = size_of(roles.batch)
        groups += schedule.groups(ctx.info, m, n) * batches * splits
        flops += 2 * m * n * k * batches * len(plan.part.rights)
    operands: list[View | BufferRange] = [left] if isinstance(left, View) else []
    reads = [index.touched for index in indices]
    if isinstance(left, View):
        reads.append(left.touched)
    else:
        operands += left.described.buffers
        reads += left.described.reads
    for plan in plans:
        reads += plan.reads
    operands += [
        operand
        for number, (operand, _) in enumerate(asked)
        if not firsts or firsts[number] == number
    ]
    ctx.emit(
        schedule.kernel(ctx.info, work),
        operands,
        groups,
        metadata=words.words,
        flops=flops,
        reads=united(reads),
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """A part that is described to a kernel."""

    ctx: PlanContext
    words: Words
    left: View | MadeRows
    plan: _PartPlan
    choice: View | None

    def describe(self, schedule: Schedule, splits: int) -> Contraction:
        words, roles, described = self.words, self.plan.part.roles, self.plan.described
        rights = self.plan.part.rights
        m, n, k = map(size_of, (roles.rows, roles.columns, roles.inner))
        sizes, batch = self._batch()
        most = schedule.max_span(self.ctx.info)
        span = k if splits == 1 else -(-k // (splits * SPLIT_STEP)) * SPLIT_STEP
        return Contraction(
            tuple(words.dim(size) for size in sizes),
            words.dim(m),
            words.dim(n),
            words.dim(k),
            self._left(batch[0]),
            tuple(
                self._side(right, head, batch[2 + head])
                for head, right in enumerate(rights)
            ),
            self._stored(batch[1], splits),
            words.dim(span),
            splits,
            most if self.ctx.generic else span,
            self._chosen(),
            None if described is None else described.region,
            self.plan.part.landings,
        )

    def _batch(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """Sizes of the batch axes, merged, and their strides: left, target, rights."""
        axes = self.plan.part.roles.batch
        sizes = tuple(axis.size for axis in axes)
        sides = ("left", "target", *range(len(self.plan.part.rights)))
        strides = [tuple(axis.stride(side) for axis in axes) for side in sides]
        if self.choice is not None:
            return sizes, strides
        sizes, walks = collapse(sizes, *(Layout(sizes, by) for by in strides))
        return sizes, [layout.strides for layout in walks]

    def _left(self, batch: tuple[int, ...]) -> Side:
        if isinstance(self.left, View):
            return self._side(self.left, "left", batch)
        # Nothing of it is read: the workgroup keeps what the prologue has made.
        nowhere = Walk((), ())
        return Side(self.left.type.dtype, False, 0, 0, (), nowhere, nowhere, "")

    def _side(self, view: View, side: str | int, batch: tuple[int, ...]) -> Side:
        words, roles = self.words, self.plan.part.roles
        outer = merged(roles.rows if side == "left" else roles.columns, side)
        inner = merged(roles.inner, side)
        return Side(
            view.dtype,
            self.ctx.indirect(view),
            words.dim(view.bound),
            words.dim(view.layout.offset),
            tuple(words.dim(stride) for stride in batch),
            words.walk(outer),
            words.walk(inner),
            vector_axis(view.layout.offset, batch, outer, inner),
            run_length(view.layout.offset, batch, outer, inner, view.dtype.itemsize),
        )

    def _stored(self, batch: tuple[int, ...], splits: int) -> Target:
        """The target of sums, or where a head's result would stand."""
        target, part, words = self.plan.targets[0], self.plan.part, self.words
        partial, roles = self.plan.is_partial, part.roles
        dtype = target.dtype if partial else part.head.dtype
        results = part.head.size
        return Target(
            dtype,
            self.ctx.indirect(target),
            words.dim(target.bound),
            words.dim(results * splits),
            words.dim(results),
            tuple(words.dim(stride) for stride in batch),
            words.walk(merged(roles.rows, "target")),
            words.walk(merged(roles.columns, "target")),
            roles.stores_chunks,
            roles.keeps_chunks,
        )

    def _chosen(self) -> Choice | None:
        view, words = self.choice, self.words
        if view is None:
            return None
        return Choice(
            view.dtype,
            self.ctx.indirect(view),
            words.dim(view.bound),
            words.dim(view.layout.offset),
            words.dim(view.layout.strides[0]),
            words.dim(self.plan.part.rights[0].shape[0]),
        )
