"""Groups over one shape that do not feed each other, joined to run as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from poot.core.equation import ValueId
from poot.lowering.passes.driver import (
    Log,
    Reason,
    Refusal,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.passes.groups import Group
from poot.lowering.passes.row_group import RowGroup
from poot.lowering.passes.units import (
    MOST_OPERANDS,
    MOST_RESULTS,
    MOST_ROW_WORK,
    MOST_WORK,
    Unit,
    Units,
    place_between,
    size_refusal,
)

JOIN_SIBLINGS = Rewrite(
    "join_siblings",
    "launches that do not need each other's results may run as one",
)
# Larger groups are joined only if they read a tensor of their size in common.
_SMALL = 1 << 16
# Equations that a large result may wait before it is read.
_FAR = 64
# How many groups of a shape stay open to siblings at a time.
_OPEN = 4

G = TypeVar("G", Group, RowGroup)


def join_siblings(units: Units, groups: list[Group], log: Log) -> list[Group]:
    """The groups of pointwise equations after joining; those given are changed."""
    return _join(units, groups, lambda group: group.shape, _merge, log)


def join_row_siblings(units: Units, groups: list[RowGroup], log: Log) -> list[RowGroup]:
    """The groups of row equations after joining; those given are changed."""
    staged = [group for group in groups if group.is_staged]
    others = [group for group in groups if not group.is_staged]
    return staged + _join(units, others, lambda g: g.domain, _merge_rows, log)


def _join(
    units: Units,
    groups: list[G],
    kind: Callable[[G], Hashable],
    merge: Callable[[Units, G, G], None],
    log: Log,
) -> list[G]:
    open_groups: dict[Hashable, deque[G]] = {}
    joined: list[G] = []
    for group in sorted(groups, key=lambda g: g.position):
        siblings = open_groups.setdefault(kind(group), deque(maxlen=_OPEN))
        for sibling in siblings:
            if not _related(units, sibling, group):
                continue
            where = place_of(units.graph, group.members[0])
            place = _place(units, sibling, group)
            if isinstance(place, int):
                log.fire(JOIN_SIBLINGS, where)
                merge(units, sibling, group)
                sibling.position = place
                break
            log.decline(
                JOIN_SIBLINGS, where, place.reason, _with(units, sibling, place)
            )
        else:
            siblings.append(group)
            joined.append(group)
    return joined


def join_pair(units: Units, one: Group, other: Group, log: Log) -> bool:
    """Make one growing group of two over one shape, if that is the same for others."""
    if one.shape != other.shape or not _related(units, one, other):
        return False
    where = place_of(units.graph, other.members[0])
    place = _place(units, one, other)
    if not isinstance(place, int):
        log.decline(JOIN_SIBLINGS, where, place.reason, _with(units, one, place))
        return False
    log.fire(JOIN_SIBLINGS, where)
    one.take_ways(other)
    _merge(units, one, other)
    one.position = place
    return True


def _related(units: Units, one: Unit, other: Unit) -> bool:
    """Whether joining saves something and is not barred at once."""
    fed = one.results.keys() & other.operands.keys()
    if isinstance(one, RowGroup) and isinstance(other, RowGroup):
        if fed:
            return all(_in_same_row(one, other, value) for value in fed)
    elif fed:
        return False
    size = max(
        units.graph.type(out).size
        for index in one.members
        for out in units.graph.eqns[index].outs
    )
    if isinstance(one, RowGroup):
        # One workgroup walks both: sums of as many numbers, such as means of losses.
        is_small = one.domain.row_count == 1 and one.domain.size <= _SMALL
    else:
        is_small = size <= _SMALL
    if is_small:
        return True
    return any(
        units.graph.type(operand).size >= size
        for operand in one.operands.keys() & other.operands.keys()
    )


def _in_same_row(one: RowGroup, other: RowGroup, value: ValueId) -> bool:
    """Whether each row of `other` reads of `value` what the row of `one` makes."""
    return [*other.taken[value]] == [one.domain.shape(one.forms[value])]


def _with(units: Units, one: Unit, refusal: Refusal) -> str:
    return f"with {named(units.graph, *one.results)}: {refusal.detail}"


def _place(units: Units, one: Unit, other: Unit) -> int | Refusal:
    operands = len(one.operands.keys() | other.operands.keys())
    if operands > MOST_OPERANDS:
        detail = f"{operands} operands, takes {MOST_OPERANDS}"
        return Refusal(Reason.OPERAND_LIMIT, detail)
    results = len(one.results) + len(other.results)
    if results > MOST_RESULTS:
        detail = f"{results} results, takes {MOST_RESULTS}"
        return Refusal(Reason.RESULT_LIMIT, detail)
    equations = len(one.members) + len(other.members)
    most_work = MOST_ROW_WORK if isinstance(one, RowGroup) else MOST_WORK
    too_large = size_refusal(equations, one.work + other.work, most_work)
    if too_large is not None:
        return too_large
    ready = units.ready([*one.operands, *other.operands], one, other)
    due = units.due([*one.results, *other.results], one, other)
    place = place_between(sorted([*one.places, *other.places]), ready, due)
    if place is None:
        return units.order(ready, due)
    if not _keeps_long(units, other, place):
        return place
    detail = f"{named(units.graph, *other.results)} would be made "
    detail += f"{other.position - place} equations earlier, takes {_FAR}"
    return Refusal(Reason.LIFETIME, detail)


def _keeps_long(units: Units, moved: Unit, place: int) -> bool:
    """Whether a large result of a unit that is moved forward to `place` waits there."""
    large = any(units.graph.type(value).size > _SMALL for value in moved.results)
    return large and moved.position - place > _FAR


def _merge(units: Units, one: Unit, other: Unit) -> None:
    for index in other.members:
        if units.writer[index] is other:
            units.writer[index] = one
        holders = units.holders[index]
        holders[:] = dict.fromkeys(one if u is other else u for u in holders)
    one.members = list(dict.fromkeys([*one.members, *other.members]))
    one.work += other.work
    one.places = sorted([*one.places, *other.places])
    one.operands.update(other.operands)
    for value in one.results:
        one.operands.pop(value, None)
    one.results.update(other.results)


def _merge_rows(units: Units, one: RowGroup, other: RowGroup) -> None:
    _merge(units, one, other)
    one.forms.update(other.forms)
    one.fits.update(other.fits)
    one.inside.update(other.inside)
