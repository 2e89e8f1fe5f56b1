"""The two steps of lowering: passes over a graph, then the plan of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from poot.core.errors import CompositeRefused, LoweringError
from poot.core.graph import Graph
from poot.core.ops.host import HostCall, Record, holds
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels import (
    attention,
    conv,
    cumulative,
    matmul,
    pointwise,
    reduce,
    row,
    scatter,
    sort,
    update_slice,
    window,
)
from poot.lowering.passes.attention import find_attention
from poot.lowering.passes.canonicalize import canonicalize
from poot.lowering.passes.contraction_epilogue import contraction_epilogue
from poot.lowering.passes.contraction_prologue import contraction_prologue
from poot.lowering.passes.cse import cse
from poot.lowering.passes.dce import dce
from poot.lowering.passes.dense_contraction import dense_contraction
from poot.lowering.passes.driver import Pass, PassRecord, run_passes
from poot.lowering.passes.fold import fold
from poot.lowering.passes.fuse_pointwise import fuse_pointwise
from poot.lowering.passes.fuse_rows import fuse_rows
from poot.lowering.passes.gated import gated
from poot.lowering.passes.horizontal import horizontal
from poot.lowering.passes.join_small import join_small
from poot.lowering.passes.one_per_row import one_per_row
from poot.lowering.passes.open_control import open_control
from poot.lowering.passes.rematerialize import rematerialize
from poot.lowering.passes.report import Report, describe_passes
from poot.lowering.passes.results_last import results_last
from poot.lowering.passes.rope import rope
from poot.lowering.passes.slot_ranges import slot_ranges
from poot.lowering.passes.split_columns import split_columns
from poot.lowering.passes.state_order import state_order
from poot.lowering.passes.tables import make_tables, setup_graph
from poot.lowering.passes.undo import undo
from poot.lowering.passes.unwrap import drop_barriers, unwrap
from poot.lowering.plan import control
from poot.lowering.plan.planner import Placement, make_placement, make_program
from poot.lowering.program import Program
from poot.lowering.records import Ring, with_ring

# Fusing leaves changes of shape that nobody reads, and equations where they stood.
FUSING: tuple[Pass, ...] = (
    fuse_rows,
    fuse_pointwise,
    dce,
    state_order,
    join_small,
)
# In the order in which they run.
PASSES: tuple[Pass, ...] = (
    unwrap,
    slot_ranges,
    # What opening adds, copies among it, is as it has to be.
    fold,
    canonicalize,
    open_control,
    one_per_row,
    cse,
    drop_barriers,
    dce,
    # Before tables are made of what it looks into.
    rope,
    make_tables,
    find_attention,
    # What attention was made of stays, and nobody reads it.
    dce,
    rematerialize,
    dense_contraction,
    split_columns,
    gated,
    contraction_epilogue,
    horizontal,
    results_last,
    fuse_rows,
    # Not again once a device has refused it.
    contraction_prologue,
    *FUSING[1:],
)

# Importing these has filled the table of lower rules.
RULE_MODULES = (
    attention,
    control,
    conv,
    cumulative,
    matmul,
    pointwise,
    reduce,
    row,
    scatter,
    sort,
    update_slice,
    window,
)


_CUT = (
    "it holds a pure_callback, which no device can call: what stands between two such "
    "calls is a program of its own, and loops around them run iteration by iteration"
)


@dataclass(frozen=True)
class Lowered:
    """A graph for a device; the passes run when what they make is first asked for."""

    source: Graph
    info: DeviceInfo

    @property
    def graph(self) -> Graph:
        """The graph after the passes."""
        return self._made[0]

    @property
    def report(self) -> Report:
        """What the passes did."""
        return self._made[1]

    @property
    def ring(self) -> Ring | None:
        """Where the records of the graph go, if it has any."""
        return self._made[2] if holds(self.source, Record) else None

    @cached_property
    def _made(self) -> tuple[Graph, Report, Ring | None]:
        return _lower(self.source, self.info)


def lower(graph: Graph, info: DeviceInfo) -> Lowered:
    """Run all passes over a graph for a device, here and now."""
    lowered = Lowered(graph, info)
    assert lowered.graph is not None
    return lowered


def _lower(graph: Graph, info: DeviceInfo) -> tuple[Graph, Report, Ring | None]:
    if holds(graph, HostCall):
        graph, records = run_passes((unwrap,), graph, info)
        return graph, Report(info.name, records, (_CUT,)), None
    ring = None
    if holds(graph, Record):
        graph, _ = run_passes((unwrap,), graph, info)
        graph, ring = with_ring(graph)
    lowered, records = run_passes(PASSES, graph, info)
    notes = () if ring is None else (str(ring),)
    return lowered, Report(info.name, records, notes), ring


def plan(graph: Graph, info: DeviceInfo, *, generic: bool = False) -> Program:
    """The program of a graph on a device, or a LoweringError that says what it lacks.

    With `generic` kernels take sizes from metadata, so that one serves all shapes. A
    composite that the device cannot run is undone, and the program's notes say so.
    """
    make = partial(make_program, info=info, generic=generic)
    program, undone = _planned(make, graph, info)
    setup = setup_graph(graph)
    return replace(
        program,
        notes=tuple(describe_passes(undone)),
        setup=None if setup is None else plan(lower(setup, info).graph, info),
    )


def placement(graph: Graph, info: DeviceInfo) -> Placement:
    """Where what `plan` makes of a graph stands: of the graph in it, composites undone.

    For people to look at; planned anew.
    """
    return _planned(partial(make_placement, info=info), graph, info)[0]


_Made = TypeVar("_Made")


def _planned(
    make: Callable[[Graph], _Made], graph: Graph, info: DeviceInfo
) -> tuple[_Made, list[PassRecord]]:
    """What is made of a graph, and how composites had to be undone for it."""
    undone: list[PassRecord] = []
    reasons: list[str] = []
    while True:
        try:
            return make(graph), undone
        except CompositeRefused as refused:
            graph, records = undo(graph, refused, info)
            undone += records
            reasons.append(str(refused))
            graph, _ = run_passes(FUSING, graph, info)
        except LoweringError as error:
            for reason in reasons:
                error.add_note(f"its parts are planned apart since {reason}")
            raise
