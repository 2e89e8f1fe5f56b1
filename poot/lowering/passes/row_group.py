"""A row group: a unit around reductions over one set of rows, while it grows."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from poot.core.equation import Eqn, Operand, ValueId
from poot.core.ops.indexing import GeneralGather
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.shape import Iota
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cost import CHEAP, NEGLIGIBLE, cost
from poot.lowering.passes.driver import Reason, Refusal, named, place_of
from poot.lowering.passes.row_forms import Domain, Fit, Fitter, Form
from poot.lowering.passes.units import (
    MOST_OPERANDS,
    MOST_RESULTS,
    MOST_ROW_WORK,
    Unit,
    Units,
    place_between,
    size_refusal,
)
from poot.lowering.plan.rows import needs_stages
from poot.lowering.plan.state import ELEMENTWISE


@dataclass(slots=True)
class _Readers:
    """The units that read a value, by position, less those that are inside by now."""

    sorted: list[tuple[int, int]]
    first: int = 0

    def first_outside(self, inside: Iterable[int], candidate: int) -> int | None:
        while self.first < len(self.sorted) and self.sorted[self.first][1] in inside:
            self.first += 1
        for position, index in self.sorted[self.first :]:
            if index not in inside and index != candidate:
                return position
        return None


@dataclass(slots=True, eq=False)
class RowGroup(Unit):
    """A unit over the rows of one domain."""

    domain: Domain = field(default_factory=lambda: Domain((), 1))
    forms: dict[Operand, Form] = field(default_factory=dict)
    fits: dict[int, Fit] = field(default_factory=dict)
    # The shapes in which the members take each outer operand.
    taken: dict[ValueId, dict[tuple[int, ...], None]] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    # Whether the rows are reduced in stages, and only one reduction fits.
    is_staged: bool = False


class Growth:
    """One group that takes in equations as long as all units can be put in order."""

    def __init__(
        self, units: Units, index: int, domain: Domain, info: DeviceInfo
    ) -> None:
        self.units = units
        self.graph = units.graph
        self._fitter = Fitter(units.graph, domain)
        staged = needs_stages(domain.row_count, domain.length, info)
        self.group = RowGroup(
            [], index, [], is_open=True, domain=domain, is_staged=staged
        )
        self._readers: dict[ValueId, _Readers] = {}
        self._debts: dict[ValueId, float] = {}

    def try_join(self, index: int) -> Refusal | None:
        """Take the equation in where it fits and can be; else the reason."""
        group = self.group
        eqn = self.graph.eqns[index]
        fit = self._fitter.fit(eqn, group.forms)
        if not isinstance(fit, Fit):
            return fit
        made = group.domain.shape(fit.form)
        for out in eqn.outs:
            for shape in group.taken.get(out, ()):
                if shape != made:
                    return self._taken_as(out, shape)
        return self._refusal(index, fit) or self._join(index, fit)

    def _taken_as(self, out: ValueId, shape: tuple[int, ...]) -> Refusal:
        detail = f"{named(self.graph, out)} is taken as {shape} {self._beside}"
        return Refusal(Reason.OPERAND_SHAPE, detail)

    @property
    def _beside(self) -> str:
        return f"beside {self.group.domain}"

    def try_repeat(self, index: int) -> Refusal | None:
        """Take in what makes a smaller operand, to compute it in each row anew."""
        group = self.group
        eqn = self.graph.eqns[index]
        out = eqn.outs[0]
        type = self.graph.type(out)
        full = group.domain.shape(Form.FULL)
        if not self._is_repeatable(eqn):
            return Refusal(
                Reason.BOUNDARY, f"{named(self.graph, *eqn.outs)} {self._beside}"
            )
        if [*group.taken[out]] != [type.shape] or len(type.shape) > len(full):
            return self._taken_as(out, next(iter(group.taken[out])))
        own = [operand for operand in eqn.inputs if operand in group.forms]
        if own:
            detail = f"{named(self.graph, out)} of {named(self.graph, *own)}"
            return Refusal(Reason.OTHER_ROWS, f"{detail} {self._beside}")
        form = Form.ROW if type.shape[-1:] in ((), (1,)) else Form.FULL
        outer = [(v, self.graph.type(v).shape) for v in self.units.values(eqn.inputs)]
        again = group.domain.size if form is Form.FULL else group.domain.row_count
        added = cost(eqn.op) * again
        debt = self._debts.get(out, 0) + added / group.domain.size
        if debt > CHEAP and added > NEGLIGIBLE:
            detail = (
                f"{named(self.graph, out)} for {again} elements at a cost of "
                f"{cost(eqn.op)} each, {debt:.3g} an element {self._beside}; takes "
                f"{CHEAP} an element or {NEGLIGIBLE} in all"
            )
            return Refusal(Reason.RECOMPUTE, detail)
        other = self._other_reader(index)
        if other is not None:
            detail = f"{named(self.graph, out)} {self._beside}, {other}"
            return Refusal(Reason.OTHER_SHAPE, detail)
        fit = Fit(form, tuple(outer))
        why = self._refusal(index, fit) or self._join(index, fit)
        if why is None:
            for operand, _ in outer:
                self._debts[operand] = max(self._debts.get(operand, 0), debt)
        return why

    def _is_repeatable(self, eqn: Eqn) -> bool:
        if isinstance(eqn.op, Iota):
            shape = eqn.op.shape
            counts_rows = eqn.op.axis != len(shape) - 1
            return not counts_rows and shape[-1] == self.group.domain.length
        return isinstance(eqn.op, ELEMENTWISE) and not eqn.op.multiple_results

    def _other_reader(self, index: int) -> str | None:
        """Who outside needs a result of the equation, if anyone does."""
        for out in self.graph.eqns[index].outs:
            if out in self.units.kept:
                return f"%{out} is an output"
            for user in self.units.users[out]:
                if user not in self.group.inside:
                    return f"%{out} is read by {place_of(self.graph, user)}"
        return None

    # --- whether it may be --------------------------------------------------

    def _refusal(self, index: int, fit: Fit) -> Refusal | None:
        group = self.group
        eqn = self.graph.eqns[index]
        work = group.work + cost(eqn.op)
        too_large = size_refusal(len(group.members) + 1, work, MOST_ROW_WORK)
        if too_large is not None:
            return too_large
        added = sum(
            shape not in group.taken.get(value, ()) for value, shape in set(fit.outer)
        )
        gone = sum(len(group.taken.get(out, ())) for out in eqn.outs)
        operands = sum(map(len, group.taken.values())) + added - gone
        if operands > MOST_OPERANDS:
            detail = f"{operands} operands, takes {MOST_OPERANDS}"
            return Refusal(Reason.OPERAND_LIMIT, detail)
        if group.is_staged and not self._fits_stages(index, fit):
            detail = f"{named(self.graph, *eqn.outs)} {self._beside}"
            return Refusal(Reason.LONG_ROW, detail)
        return None

    def _fits_stages(self, index: int, fit: Fit) -> bool:
        """Stages: full values before the only reduction, row values after it."""
        eqn = self.graph.eqns[index]
        if isinstance(eqn.op, Reduce | ArgReduce):
            # The first member is one.
            return not self.group.members
        if fit.form is Form.ROW:
            # Of a row that was reduced in parts no element can be asked for again.
            return not isinstance(eqn.op, GeneralGather)
        depends = any(operand in self.group.forms for operand in eqn.inputs)
        return not depends and self._other_reader(index) is None

    def _join(self, index: int, fit: Fit) -> Refusal | None:
        """Take the equation in, unless what stands between forbids it."""
        group, units = self.group, self.units
        eqn = self.graph.eqns[index]
        operands = dict(group.operands)
        for out in eqn.outs:
            operands.pop(out, None)
        added = (v for v in units.values(eqn.inputs) if v not in group.forms)
        operands.update(dict.fromkeys(added))
        results = [v for v in (*group.results, *eqn.outs) if self._escapes(v, index)]
        if len(results) > MOST_RESULTS:
            detail = f"{len(results)} results, takes {MOST_RESULTS}"
            return Refusal(Reason.RESULT_LIMIT, detail)
        places = [*group.places]
        bisect.insort(places, index)
        ready = units.ready(operands, group, units.writer[index])
        due = self._due(results, index)
        place = place_between(places, ready, due)
        if place is None:
            return units.order(ready, due)
        group.members.append(index)
        group.work += cost(eqn.op)
        group.inside.add(index)
        group.places, group.position = places, place
        group.operands, group.results = operands, dict.fromkeys(results)
        group.fits[index] = fit
        for out in eqn.outs:
            group.taken.pop(out, None)
        for operand, shape in fit.outer:
            group.taken.setdefault(operand, {})[shape] = None
        group.forms.update(dict.fromkeys(eqn.outs, fit.form))
        units.writer[index] = group
        units.holders[index] = [group]
        return None

    def _escapes(self, value: ValueId, candidate: int) -> bool:
        return value in self.units.kept or self._reader(value, candidate) is not None

    def _reader(self, value: ValueId, candidate: int) -> int | None:
        """The position of the first reader outside, the candidate aside."""
        readers = self._readers.get(value)
        if readers is None:
            readers = _Readers(self.units.readers(value))
            self._readers[value] = readers
        return readers.first_outside(self.group.inside, candidate)

    def _due(self, results: Iterable[ValueId], candidate: int) -> int:
        found = (self._reader(value, candidate) for value in results)
        return min(
            (position for position in found if position is not None),
            default=len(self.graph.eqns),
        )
