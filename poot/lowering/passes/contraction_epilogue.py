"""What is computed of a contraction's result joins it, before the result is stored.

That may be rope of the heads that its columns are, and the write of a block into a
cache: q, k and v go from their products to where attention reads them.
"""

from __future__ import annotations

from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_growth import (
    Growth,
    Uses,
    absorb_sources,
    emit_sites,
)
from poot.lowering.passes.driver import Log, Pass, Rewrite, place_of

_LAW = "an element is the same wherever it is computed, as each equation rounds alone"
EPILOGUE = Rewrite(
    "epilogue",
    f"{_LAW}; the contraction rounds its sums to its dtype before they are read",
)
EPILOGUE_SOURCE = Rewrite(
    "epilogue_source", f"{_LAW}; what only the epilogue reads is computed in it"
)


def _contraction_epilogue(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    uses = Uses(graph, info)
    sites = []
    for index in range(len(graph.eqns)):
        if not uses.is_contraction(index):
            continue
        growth = Growth(uses, [index])
        site = growth.grow()
        if growth.stop is not None:
            stop = growth.stop
            log.decline(EPILOGUE, place_of(graph, stop.index), stop.reason, stop.detail)
        if site is not None:
            log.fire(EPILOGUE, place_of(graph, index))
            for source in absorb_sources(uses, site):
                log.fire(EPILOGUE_SOURCE, place_of(graph, source))
            uses.taken.update(site.members)
            sites.append(site)
    return emit_sites(graph, sites)


contraction_epilogue = Pass(
    "contraction_epilogue", (EPILOGUE, EPILOGUE_SOURCE), _contraction_epilogue
)
