"""State is read before it is written, so that it is overwritten where it stands."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.shape import Reshape
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of
from poot.lowering.plan.layout import VIEWS
from poot.lowering.plan.state import updated_operand

READ_FIRST = Rewrite(
    "read_first",
    "equations that do not need each other may stand in any order: what reads a state "
    "comes before what overwrites it",
)


def _read_first(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    uses, definitions = graph.uses(), graph.definitions()
    # For each writer, by number, the equations that read what it overwrites.
    readers: dict[int, list[int]] = {}
    for pair in graph.state:
        for writer, value in _writes(graph, definitions, pair.input, pair.value):
            found = [user for user in _readers(graph, uses, value) if user != writer]
            readers.setdefault(writer, []).extend(found)
    if all(r < writer for writer, found in readers.items() for r in found):
        return graph
    order = _ordered(graph, definitions, readers)
    places = {index: place for place, index in enumerate(order)}
    edit = graph.edit()
    edit.reorder(order)
    for writer, found in readers.items():
        late = [r for r in found if r > writer]
        for reader in late:
            if places[reader] > places[writer]:
                log.decline(
                    READ_FIRST,
                    place_of(graph, writer),
                    Reason.READS_BOTH,
                    f"read by {place_of(graph, reader)}",
                )
        if late and all(places[r] < places[writer] for r in found):
            log.fire(READ_FIRST, place_of(graph, writer))
    return edit.commit()


def _writes(
    graph: Graph, definitions: Mapping[ValueId, int], state: ValueId, value: ValueId
) -> Iterator[tuple[int, ValueId]]:
    """The equations that turn a state into its next value, and what each writes over.

    One alone writes over the state, but updates of updates form a chain.
    """
    made = _base(graph, definitions, value)
    while made in definitions:
        writer = definitions[made]
        before = updated_operand(graph.eqns[writer], made)
        before = None if before is None else _base(graph, definitions, before)
        if before is None or before not in definitions:
            yield writer, state
            return
        yield writer, before
        made = before


def _base(graph: Graph, definitions: Mapping[ValueId, int], value: ValueId) -> ValueId:
    """The value whose bytes, in order, are those of `value`: reshapes undone."""
    while value in definitions and isinstance(
        (eqn := graph.eqns[definitions[value]]).op, Reshape
    ):
        (operand,) = eqn.inputs
        if isinstance(operand, Scalar):
            break
        value = operand
    return value


def _readers(
    graph: Graph, uses: Mapping[ValueId, Sequence[int]], value: ValueId
) -> Iterator[int]:
    """The equations that read a value, views of it looked through."""
    aliases = [value]
    for alias in aliases:
        for user in uses.get(alias, ()):
            yield user
            if isinstance(graph.eqns[user].op, VIEWS):
                aliases.extend(graph.eqns[user].outs)


def _ordered(
    graph: Graph,
    definitions: Mapping[ValueId, int],
    readers: Mapping[int, Sequence[int]],
) -> list[int]:
    """The equations with readers first, the old order kept where it can be.

    Where a reader needs its writer, the first equation that only waits to be read past
    comes next nevertheless.
    """
    waits: list[int] = []
    blocked = [0] * len(graph.eqns)
    followers: list[list[tuple[int, bool]]] = [[] for _ in graph.eqns]
    for index, eqn in enumerate(graph.eqns):
        makers = {
            definitions[operand]
            for operand in eqn.inputs
            if not isinstance(operand, Scalar) and operand in definitions
        }
        waits.append(len(makers))
        for maker in makers:
            followers[maker].append((index, True))
    for writer, found in readers.items():
        for reader in set(found):
            blocked[writer] += 1
            followers[reader].append((writer, False))
    ready = [i for i, count in enumerate(waits) if not count and not blocked[i]]
    held = [i for i, count in enumerate(waits) if not count and blocked[i]]
    order: list[int] = []
    done = [False] * len(graph.eqns)
    while ready or held:
        index = heapq.heappop(ready or held)
        if done[index]:
            continue
        done[index] = True
        order.append(index)
        for follower, needs in followers[index]:
            if needs:
                waits[follower] -= 1
            else:
                blocked[follower] -= 1
            if not waits[follower] and not done[follower]:
                heapq.heappush(held if blocked[follower] else ready, follower)
    return order


state_order = Pass("state_order", (READ_FIRST,), _read_first)
