"""Which equations fit a row program, and in which form their values stand in it."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import GeneralGather
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.shape import Broadcast, Iota, Reshape
from poot.lowering.passes.driver import Reason, Refusal, named
from poot.lowering.plan.state import ELEMENTWISE


class Form(enum.Enum):
    """How a value of a row program stands in its region."""

    FULL = "full"  # an element for each of [*rows, n]
    ROW = "row"  # an element for each of [*rows, 1]


Forms = Mapping[Operand, Form]


@dataclass(frozen=True, slots=True)
class Domain:
    """The rows of a row program, and their length."""

    rows: tuple[int, ...]
    length: int

    def __str__(self) -> str:
        return f"{self.row_count} rows of {self.length}"

    @property
    def row_count(self) -> int:
        return math.prod(self.rows)

    @property
    def size(self) -> int:
        return self.row_count * self.length

    def shape(self, form: Form) -> tuple[int, ...]:
        return (*self.rows, self.length if form is Form.FULL else 1)

    def split(self, shape: tuple[int, ...]) -> int | None:
        """How many axes of a full shape count the rows; None if it has other rows."""
        if shape == (*self.rows, self.length):
            return len(self.rows)
        if math.prod(shape) != self.size:
            return None
        count = 1
        for axes in range(len(shape) + 1):
            if count == self.row_count:
                return axes
            if axes < len(shape):
                count *= shape[axes]
        return None


@dataclass(frozen=True, slots=True)
class Fit:
    """An equation in a row program: its form, and the shapes of outer operands."""

    form: Form
    # The shape in which the region takes each operand that is not its own.
    outer: tuple[tuple[ValueId, tuple[int, ...]], ...] = ()


def domain_of(graph: Graph, eqn: Eqn) -> Domain | Refusal:
    """The rows that a reduction is over."""
    assert isinstance(eqn.op, Reduce | ArgReduce)
    shape = graph.type(eqn.inputs[0]).shape
    if math.prod(shape[eqn.op.axis + 1 :]) != 1:
        detail = f"axis {eqn.op.axis} of {named(graph, eqn.inputs[0])}"
        return Refusal(Reason.NOT_LAST_AXIS, detail)
    return Domain(shape[: eqn.op.axis], shape[eqn.op.axis])


def row_gather(rank: int, axis: int, op: GeneralGather) -> GeneralGather:
    """A gather that takes one element of each row along an axis of `rank` axes.

    Its index vectors have one component, and the axes of the rows.
    """
    rows = tuple(a for a in range(rank) if a != axis)
    dims = GatherDims((), (axis,), (axis,), rows, tuple(range(len(rows))))
    return replace(op, dims=dims, slice_sizes=(1,) * rank)


class Fitter:
    """Judges the equations of one graph by the rows of one domain."""

    def __init__(self, graph: Graph, domain: Domain) -> None:
        self.graph = graph
        self.domain = domain

    def fit(self, eqn: Eqn, forms: Forms) -> Fit | Refusal:
        """How `eqn` stands beside values of known forms, or why it cannot."""
        if isinstance(eqn.op, Reduce | ArgReduce):
            return self._fit_reduce(eqn, forms)
        if isinstance(eqn.op, Iota):
            return self._fit_iota(eqn.op, eqn.out)
        if isinstance(eqn.op, Reshape):
            return self._fit_reshape(eqn, forms)
        if isinstance(eqn.op, GeneralGather):
            return self._fit_gather(eqn.op, eqn, forms)
        if isinstance(eqn.op, (*ELEMENTWISE, Broadcast)):
            return self._fit_elementwise(eqn, forms)
        return self._not(Reason.BOUNDARY, *eqn.outs)

    def _not(self, reason: Reason, *operands: Operand) -> Refusal:
        """That something of these operands is no part of the rows."""
        detail = f"{named(self.graph, *operands)} beside {self.domain}"
        return Refusal(reason, detail)

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.graph.type(operand).shape

    def _fit_reduce(self, eqn: Eqn, forms: Forms) -> Fit | Refusal:
        operand = eqn.inputs[0]
        domain = domain_of(self.graph, eqn)
        if isinstance(domain, Refusal):
            return domain
        if (domain.row_count, domain.length) != (
            self.domain.row_count,
            self.domain.length,
        ):
            return self._not(Reason.OTHER_ROWS, operand)
        if isinstance(operand, Scalar):
            return self._not(Reason.BOUNDARY, operand)
        if operand not in forms:
            return Fit(Form.ROW, ((operand, self.domain.shape(Form.FULL)),))
        # It has as many elements as the domain: it is full, or rows have but one.
        return Fit(Form.ROW)

    def _fit_iota(self, op: Iota, out: ValueId) -> Fit | Refusal:
        shape = op.shape
        if shape == self.domain.shape(Form.FULL):
            return Fit(Form.FULL)
        counts_rows = op.axis != len(shape) - 1 or shape[-1] != self.domain.length
        if counts_rows or math.prod(shape) != self.domain.size:
            return self._not(Reason.OTHER_ROWS, out)
        return Fit(Form.FULL)

    def _fit_reshape(self, eqn: Eqn, forms: Forms) -> Fit | Refusal:
        """A change of axes that keeps rows apart is no change of the region's value."""
        operand = eqn.inputs[0]
        if isinstance(operand, Scalar):
            return self._not(Reason.BOUNDARY, operand)
        form = forms.get(operand)
        if form is None:
            is_row = self.graph.type(operand).size != self.domain.size
            form = Form.ROW if is_row else Form.FULL
            if is_row and self.graph.type(operand).size != self.domain.row_count:
                return self._not(Reason.OTHER_ROWS, operand)
            outer: tuple[tuple[ValueId, tuple[int, ...]], ...] = (
                (operand, self.domain.shape(form)),
            )
        else:
            outer = ()
        if form is Form.FULL and self.domain.split(self._shape(eqn.out)) is None:
            return self._not(Reason.OTHER_ROWS, eqn.out)
        return Fit(form, outer)

    def _fit_gather(self, op: GeneralGather, eqn: Eqn, forms: Forms) -> Fit | Refusal:
        """One element of each row, which is evaluated there wherever it is made."""
        source, place = eqn.inputs
        shape = self._shape(source)
        rank, rows = len(shape), shape[:-1]
        if op != row_gather(rank, rank - 1, op) or self._shape(place) != (*rows, 1):
            return self._not(Reason.BOUNDARY, source, place)
        if (math.prod(rows), shape[-1]) != (self.domain.row_count, self.domain.length):
            return self._not(Reason.OTHER_ROWS, source)
        outer = []
        for operand, form in ((source, Form.FULL), (place, Form.ROW)):
            assert not isinstance(operand, Scalar)
            if operand not in forms:
                outer.append((operand, self.domain.shape(form)))
        return Fit(Form.ROW, tuple(outer))

    def _fit_elementwise(self, eqn: Eqn, forms: Forms) -> Fit | Refusal:
        shape = self._shape(eqn.outs[0])
        split = self.domain.split(shape)
        # Of rows of one element both forms are the same.
        is_row = split is None or self.domain.length == 1
        if is_row and math.prod(shape) != self.domain.row_count:
            return self._not(Reason.OTHER_ROWS, eqn.outs[0])
        form = Form.ROW if is_row else Form.FULL
        rows = len(shape) if is_row or split is None else split
        outer = []
        for operand in eqn.inputs:
            if isinstance(operand, Scalar):
                continue
            if operand in forms:
                if not self._is_aligned(forms[operand], operand, shape, rows):
                    return self._not(Reason.OTHER_ROWS, operand, eqn.outs[0])
                continue
            taken = self._outer_shape(self._shape(operand), shape, rows, form)
            if taken is None:
                return self._not(Reason.OPERAND_SHAPE, operand, eqn.outs[0])
            outer.append((operand, taken))
        return Fit(form, tuple(outer))

    def _is_aligned(
        self, form: Form, operand: ValueId, shape: tuple[int, ...], rows: int
    ) -> bool:
        """Whether broadcasting to `shape` keeps the elements in their rows."""
        own = self._shape(operand)
        padded = (1,) * (len(shape) - len(own)) + own
        if form is Form.FULL:
            return padded == shape
        return padded[:rows] == shape[:rows] and math.prod(padded[rows:]) == 1

    def _outer_shape(
        self, own: tuple[int, ...], shape: tuple[int, ...], rows: int, form: Form
    ) -> tuple[int, ...] | None:
        """The shape in which an outer operand broadcasts to the region's; None: none.

        `shape` is that of the equation's result, with `rows` axes that count rows.
        """
        padded = (1,) * (len(shape) - len(own)) + own
        if padded == shape:
            return self.domain.shape(form)
        if padded[:rows] == shape[:rows] and math.prod(padded[rows:]) == 1:
            return self.domain.shape(Form.ROW)
        if math.prod(own) == 1:
            return ()
        if shape == self.domain.shape(form):
            return own
        if form is Form.FULL:
            in_row = math.prod(padded[:rows]) == 1 and padded[rows:] == shape[rows:]
            return (self.domain.length,) if in_row else None
        return (*own, 1) if shape == self.domain.rows else None
