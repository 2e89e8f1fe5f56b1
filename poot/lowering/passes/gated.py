"""Two contractions of one operand whose results meet are one: act(x @ v) * (x @ w)."""

from __future__ import annotations

from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_growth import (
    Growth,
    Site,
    Uses,
    absorb_sources,
    emit_sites,
)
from poot.lowering.passes.driver import (
    Log,
    Pass,
    Reason,
    Rewrite,
    named,
    place_of,
)

GATED = Rewrite(
    "gated",
    "an element of each sum is rounded alone, then what is computed of both; the "
    "operand that they share is read once",
)


def _gated(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    uses = Uses(graph, info)
    last: dict[ValueId, int] = {}
    sites: list[Site] = []
    for index, eqn in enumerate(graph.eqns):
        if not uses.is_contraction(index):
            continue
        (lhs, _) = eqn.inputs
        assert isinstance(lhs, int)
        other = last.get(lhs)
        last[lhs] = index
        site = None if other is None else _pair(uses, other, index, log)
        if site is not None:
            uses.taken.update((*site.heads, *site.members))
            sites.append(site)
    return emit_sites(graph, sites)


def _pair(uses: Uses, first: int, second: int, log: Log) -> Site | None:
    """Both contractions as heads of one epilogue, if their results meet."""
    graph = uses.graph
    one, two = graph.eqns[first], graph.eqns[second]
    place = place_of(graph, second)
    if one.op != two.op or graph.type(one.inputs[1]) != graph.type(two.inputs[1]):
        values = (one.inputs[1], one.out, two.inputs[1], two.out)
        log.decline(GATED, place, Reason.OTHER_TYPE, named(graph, *values))
        return None
    growth = Growth(uses, [first, second])
    site = growth.grow()
    if site is None:
        assert growth.stop is not None
        log.decline(GATED, place, growth.stop.reason, growth.stop.detail)
        return None
    log.fire(GATED, place)
    absorb_sources(uses, site)
    return site


gated = Pass("gated", (GATED,), _gated)
