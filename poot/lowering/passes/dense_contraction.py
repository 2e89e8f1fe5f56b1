"""Contractions and gathers read weights as they are stored: no copy is made to read.

A transposed or widened copy of a weight is as large as the weight, or larger, and takes
longer to write and read again than the contraction itself where there are few rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import (
    STORED,
    DenseContraction,
    DenseRowGather,
    GroupedDenseContraction,
)
from poot.core.ops.elementwise import Cast
from poot.core.ops.indexing import Gather
from poot.core.ops.matmul import DotGeneral, MatMul, free_axes
from poot.core.ops.shape import Reshape, Transpose
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import (
    Log,
    Pass,
    Reason,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.plan.layout import VIEWS

READ_STORED = Rewrite(
    "read_stored",
    "f16 and bf16 elements are f32 numbers, and sums are f32 anyway; axes of products "
    "may come in any order",
)
READ_BLOCKS = Rewrite(
    "read_blocks", "the blocks of a weight [G * N, K] are the matrices of [G, N, K]"
)
GATHER_STORED = Rewrite(
    "gather_stored", "widening the rows taken is taking widened rows"
)


@dataclass(slots=True)
class _Side:
    """An operand: what it is made of by views and casts, innermost first."""

    value: Operand
    # Views that remain to be applied to the value.
    views: list[Op] = field(default_factory=list)
    contracting: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    # The operand as it is, if the views are those of the graph itself.
    existing: list[Operand] = field(default_factory=list)
    is_widened: bool = False
    is_turned: bool = False
    # Why it is not read deeper: a reason and the value.
    stop: tuple[Reason, ValueId] | None = None


class _Reader:
    """Finds what the operands of one graph's contractions are made of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()

    def maker(self, value: Operand) -> Eqn | None:
        if isinstance(value, Scalar) or value not in self.makers:
            return None
        return self.graph.eqns[self.makers[value]]

    def widens(self, eqn: Eqn) -> bool:
        given = self.graph.type(eqn.inputs[0]).dtype
        return given in STORED[1:] and self.graph.type(eqn.out).dtype is STORED[0]

    def side(
        self, operand: Operand, contracting: tuple[int, ...], batch: tuple[int, ...]
    ) -> _Side:
        chain, stop = self._chain(operand)
        casts = any(isinstance(eqn.op, Cast) for eqn in chain)
        views = [eqn for eqn in chain if not isinstance(eqn.op, Cast)][::-1]
        side = _Side(
            chain[-1].inputs[0] if chain else operand,
            [eqn.op for eqn in views],
            contracting,
            batch,
            [] if casts else [eqn.out for eqn in views],
            casts,
            stop=stop,
        )
        ndim = self.graph.type(operand).ndim
        while side.views and isinstance(side.views[-1], Transpose):
            if not _turn(side, side.views[-1].perm, ndim):
                out = views[len(side.views) - 1].out
                side.stop = side.stop or (Reason.AXIS_ORDER, out)
                break
        return side

    def _chain(
        self, operand: Operand
    ) -> tuple[list[Eqn], tuple[Reason, ValueId] | None]:
        """The views and widening casts that make an operand, outermost first."""
        chain: list[Eqn] = []
        eqn = self.maker(operand)
        while eqn is not None and isinstance(eqn.op, (Cast, *VIEWS)):
            if isinstance(eqn.inputs[0], Scalar):
                break
            if isinstance(eqn.op, Cast) and not self.widens(eqn):
                return chain, (Reason.NARROWS, eqn.out)
            chain.append(eqn)
            eqn = self.maker(eqn.inputs[0])
        return chain, None


def _turn(side: _Side, perm: tuple[int, ...], ndim: int) -> bool:
    """Take in the transpose before a contraction, if free axes stay in their order."""
    free = [perm[axis] for axis in free_axes(ndim, side.contracting, side.batch)]
    if free != sorted(free):
        return False
    side.views.pop()
    if side.existing:
        side.existing.pop()
    side.contracting = tuple(perm[axis] for axis in side.contracting)
    side.batch = tuple(perm[axis] for axis in side.batch)
    side.is_turned = True
    return True


class _Rewriter:
    """One walk over a graph, with its edit."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.reader = _Reader(graph)
        self.edit: GraphEdit | None = None

    def draft(self) -> GraphEdit:
        if self.edit is None:
            self.edit = self.graph.edit()
        return self.edit

    def run(self) -> Graph:
        for index, eqn in enumerate(self.graph.eqns):
            if isinstance(eqn.op, MatMul | DotGeneral):
                self._contraction(index, eqn)
            elif isinstance(eqn.op, Gather):
                self._gather(index, eqn)
        return self.graph if self.edit is None else self.edit.commit()

    def _made(self, value: ValueId) -> str:
        """A view or a cast, and what it is of."""
        eqn = self.graph.eqns[self.reader.makers[value]]
        given = named(self.graph, *eqn.inputs)
        return f"{eqn.op} makes {named(self.graph, value)} of {given}"

    def _contraction(self, index: int, eqn: Eqn) -> None:
        types = [self.graph.type(operand) for operand in eqn.inputs]
        if any(type.dtype not in STORED or not type.size for type in types):
            return
        dot = _as_dot(eqn.op, types[0])
        left = self.reader.side(eqn.inputs[0], dot.lhs_contracting, dot.lhs_batch)
        right = self.reader.side(eqn.inputs[1], dot.rhs_contracting, dot.rhs_batch)
        sides = (left, right)
        for side in sides:
            if side.stop is not None:
                reason, value = side.stop
                place = place_of(self.graph, index)
                self.log.decline(READ_STORED, place, reason, self._made(value))
        grouped = self._blocks_of(left, right)
        changed = any(side.is_widened or side.is_turned for side in sides)
        if not changed and not grouped:
            return
        out = self.graph.type(eqn.out).dtype
        operands = tuple(self._operand(side, index) for side in sides)
        op: Op = GroupedDenseContraction(out)
        if not grouped:
            axes = (left.contracting, right.contracting, left.batch, right.batch)
            op = DenseContraction(*axes, out)
        self._replace(index, op, operands)
        if changed:
            self.log.fire(READ_STORED, place_of(self.graph, index))
        if grouped:
            self.log.fire(READ_BLOCKS, place_of(self.graph, index))

    def _blocks_of(self, left: _Side, right: _Side) -> bool:
        """Take in the reshape of a weight [G * N, K] to its blocks, if there is one."""
        axes = (left.contracting, right.contracting, left.batch, right.batch)
        if axes != ((2,), (2,), (0,), (0,)) or not right.views:
            return False
        (*inner, last) = right.views
        given = self.graph.type(right.value)
        if inner or not isinstance(last, Reshape) or given.ndim != 2:
            return False
        if len(last.shape) != 3 or last.shape[2] != given.shape[1]:
            return False
        right.views, right.existing = [], []
        return True

    def _operand(self, side: _Side, index: int) -> Operand:
        """The operand as the contraction is to read it."""
        if side.existing:
            return side.existing[-1]
        value = side.value
        for op in side.views:
            (value,) = self.draft().emit(op, (value,), index, self.graph.source(index))
        return value

    def _replace(self, index: int, op: Op, operands: tuple[Operand, ...]) -> None:
        edit = self.draft()
        (new,) = edit.emit(op, operands, index, self.graph.source(index))
        edit.replace(self.graph.eqns[index].out, new)
        edit.remove(index)

    def _gather(self, index: int, eqn: Eqn) -> None:
        """Rows of a widened table are rows of the table, widened."""
        assert isinstance(eqn.op, Gather)
        cast = self.reader.maker(eqn.inputs[0])
        if cast is None or not isinstance(cast.op, Cast):
            return
        place, detail = place_of(self.graph, index), self._made(cast.out)
        if isinstance(cast.inputs[0], Scalar) or not self.reader.widens(cast):
            self.log.decline(GATHER_STORED, place, Reason.NARROWS, detail)
            return
        if eqn.op.axis:
            self.log.decline(GATHER_STORED, place, Reason.NOT_FIRST_AXIS, detail)
            return
        operands = (cast.inputs[0], eqn.inputs[1])
        self._replace(index, DenseRowGather(eqn.op.mode), operands)
        self.log.fire(GATHER_STORED, place)


def _as_dot(op: Op, left: TensorType) -> DotGeneral:
    if isinstance(op, DotGeneral):
        return op
    assert isinstance(op, MatMul)
    batch = tuple(range(left.ndim - 2))
    return DotGeneral((left.ndim - 1,), (left.ndim - 2,), batch, batch, op.out)


def _dense_contraction(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Rewriter(graph, log).run()


dense_contraction = Pass(
    "dense_contraction", (READ_STORED, READ_BLOCKS, GATHER_STORED), _dense_contraction
)
