"""Row programs as data: what a row kernel computes, and its schedule.

A body over rows of n elements is taken in phases. Phase p reduces what depends on p
reductions before it; after the last phase the results are written. In each phase the
team of a row walks the row once; values that belong to a row are computed in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.core.op import Op
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.region import Dim, Ref, Region

# Chunks of a row that an invocation keeps in registers from phase to phase.
_RESIDENT_CHUNKS = 8
# Chunks an invocation should have before a row gets more invocations, where there are
# rows for all of a GPU: so many a compute unit. Else nothing hides that code is long.
_CHUNKS_EACH = 8
_ROWS_PER_UNIT = 2


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of the body: of which value, in which phase."""

    op: Op
    dtype: DType
    value: Ref
    phase: int


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A result: all elements of the rows (`full`), or one a row."""

    value: Ref
    dtype: DType
    alignment: int
    indirect: bool
    full: bool


@dataclass(frozen=True, slots=True)
class RowProgram:
    """All that shapes the code of a row kernel but its schedule."""

    region: Region
    reductions: tuple[Reduction, ...]
    targets: tuple[RowTarget, ...]
    # Values with one element a row that are computed before a phase: value, phase.
    prepared: tuple[tuple[Ref, int], ...]
    # The axes of the rows, their product, and the elements of a row.
    axes: tuple[Dim, ...]
    rows: Dim
    length: Dim
    # Whether rows are whole chunks.
    whole_chunks: bool
    # Where rows are reduced in parts: the elements of a part, and the parts of a row.
    # The targets are then the carriers of the only reduction, at row * parts + part.
    part: Dim = 0
    parts: Dim = 1

    @property
    def phases(self) -> int:
        return 1 + max((r.phase for r in self.reductions), default=-1)


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """A team of invocations walks a row in chunks of `lanes` elements.

    With `resident` chunks an invocation holds all of its part of the row in registers;
    with 0 it walks in a loop and loads again in every phase.
    """

    lanes: int
    team: int
    workgroup: int
    resident: int = 0

    def groups(self, rows: int) -> int:
        """Workgroups for so many rows."""
        return -(-rows * self.team // self.workgroup)

    def trips(self, length: int) -> int:
        """Rounds of a walk along a row."""
        return -(-length // (self.lanes * self.team))

    def __str__(self) -> str:
        kept = f"{self.resident} chunks in registers" if self.resident else "looped"
        return (
            f"{self.lanes} lanes, team {self.team} of {self.workgroup} invocations, "
            f"{kept}"
        )


def choose_row_schedule(
    info: DeviceInfo,
    lanes: int,
    length: int,
    equations: int,
    generic: bool,
    rows: int,
) -> RowSchedule:
    """The schedule for so many rows of `length` elements."""
    most = _power_of_two(info.max_workgroup_invocations)
    width = min(info.subgroup_size, most)
    chunks = -(-length // lanes)
    if info.is_cpu:
        return RowSchedule(lanes, width, width, 0)
    team = width
    limit = min(most, 1024)
    few = rows < _ROWS_PER_UNIT * info.compute_units and not generic
    while team < limit and chunks > team * (1 if few else _CHUNKS_EACH):
        team *= 2
    workgroup = max(team, min(128, limit))
    each = -(-chunks // team)
    resident = each if each * equations <= 64 * _RESIDENT_CHUNKS else 0
    if generic or each > _RESIDENT_CHUNKS:
        resident = 0
    return RowSchedule(lanes, team, workgroup, resident)


def row_candidates(
    info: DeviceInfo, lanes: int, length: int, equations: int
) -> list[RowSchedule]:
    """The schedules that are worth being timed: teams, and whether rows are kept."""
    most = min(_power_of_two(info.max_workgroup_invocations), 1024)
    width = min(info.subgroup_size, most)
    chunks = -(-length // lanes)
    found = []
    team = width
    while team <= most and (team == width or team < 2 * chunks):
        for workgroup in sorted({team, max(team, min(128, most))}):
            each = -(-chunks // team)
            found.append(RowSchedule(lanes, team, workgroup))
            if each <= _RESIDENT_CHUNKS and each * equations <= 64 * _RESIDENT_CHUNKS:
                found.append(RowSchedule(lanes, team, workgroup, each))
        team *= 2
    return found


def _power_of_two(limit: int) -> int:
    """The largest power of two up to `limit`."""
    return 1 << (limit.bit_length() - 1)
