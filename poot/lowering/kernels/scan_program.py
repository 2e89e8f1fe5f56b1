"""Scans of rows as data: what a kernel does with the rows, and its schedule.

A row is walked in tiles, and a long one in parts, each by a team of its own. A tile is
`rounds` chunks of every invocation: those of a subgroup lie side by side, round after
round, so that each round loads neighbouring words. A reversed scan numbers the chunks
of a row from its end and turns each around.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.core.ops.cumulative import CumulativeOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.region import Dim, Ref, Region

# Chunks of an invocation in a tile, and invocations of a team, at most.
_MOST_ROUNDS = 4
_MOST_TEAM = 256
# A workgroup walks rows up to this length even where rows are few.
_LONG_ROW, _LONG_ROW_ON_CPU = 1 << 15, 1 << 17
# So many parts a compute unit keep a device busy.
_PARTS_PER_UNIT = 16
# A scan in one pass: rounds of a tile, its team from some length of the row on, looks
# at what is not there yet. Large tiles wait for fewer others; short rows need many.
_LOOK_BACK_ROUNDS = 8
_LOOK_BACK_TEAMS = ((1 << 22, 1024), (1 << 19, 512), (0, 256))
_LOOKS = 1 << 20


class Goal(enum.Enum):
    """What a scan writes."""

    ELEMENTS = "elements"  # each element combined with all before it
    TOTALS = "totals"  # the carriers of each part
    PREFIXES = "prefixes"  # of carriers, those of all before each


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """Where results go: the elements, or one of the carriers."""

    dtype: DType
    alignment: int
    indirect: bool


@dataclass(frozen=True, slots=True)
class ScanProgram:
    """All that shapes the code of a scan of rows but its schedule."""

    region: Region
    # The elements, or their carriers where the goal is PREFIXES.
    values: tuple[Ref, ...]
    op: CumulativeOp
    dtype: DType
    goal: Goal
    reverse: bool
    targets: tuple[ScanTarget, ...]
    # The axes of the rows, their product, and the elements of a row.
    axes: tuple[Dim, ...]
    rows: Dim
    length: Dim
    # Whether rows are whole chunks.
    whole_chunks: bool
    # Where rows are walked in parts: the tiles of a part, and the parts of a row.
    part: Dim = 0
    parts: Dim = 1
    # Whether each part begins with carriers that buffers hold at row * parts + part.
    carried: bool = False


@dataclass(frozen=True, slots=True)
class ScanSchedule:
    """Teams of `workgroup` invocations; `looped` unless a walk is a single tile."""

    lanes: int
    team: int
    workgroup: int
    rounds: int
    looped: bool

    @property
    def chunks(self) -> int:
        """Of a tile."""
        return self.team * self.rounds

    @property
    def tile(self) -> int:
        """The elements of a tile."""
        return self.lanes * self.chunks

    def groups(self, tasks: int) -> int:
        """Workgroups for so many rows or parts."""
        return -(-tasks * self.team // self.workgroup)

    def __str__(self) -> str:
        looped = ", looped" if self.looped else ""
        return (
            f"{self.lanes} lanes, {self.rounds} rounds, team {self.team} of "
            f"{self.workgroup} invocations{looped}"
        )


def choose_scan_schedule(
    info: DeviceInfo, lanes: int, length: int, part: int = 0
) -> ScanSchedule:
    """The schedule for rows of `length` elements, or for parts of so many tiles."""
    most = _MOST_TEAM
    if info.is_cpu or not info.subgroup_shuffle:
        most = max(info.subgroup_size, 8)
    most = min(most, _power_of_two_below(info.max_workgroup_invocations))
    chunks = -(-length // lanes)
    team = min(_power_of_two_above(chunks), most)
    rounds = min(_power_of_two_above(-(-chunks // team)), _MOST_ROUNDS)
    workgroup = max(team, min(most, 128))
    looped = part > 1 or (part == 0 and length > lanes * team * rounds)
    return ScanSchedule(lanes, team, workgroup, rounds, looped)


def part_tiles(info: DeviceInfo, schedule: ScanSchedule, rows: int, length: int) -> int:
    """The tiles of a part of a row; 0 where teams walk whole rows."""
    tiles = -(-length // schedule.tile)
    long = _LONG_ROW_ON_CPU if info.is_cpu else _LONG_ROW
    few = rows < 2 * info.compute_units
    most = longest_walk(info)
    if tiles <= most and not (few and length >= long):
        return 0
    wanted = max(_PARTS_PER_UNIT * info.compute_units // rows, 1)
    return min(max(-(-tiles // wanted), 1), most)


def choose_look_back(
    info: DeviceInfo, lanes: int, rows: int, length: int
) -> tuple[ScanSchedule, int] | None:
    """The schedule of a scan in one pass, and how often to look; None: do not."""
    able = info.forward_progress and info.subgroup_shuffle and info.subgroup_ballot
    few = rows < 2 * info.compute_units
    most = _power_of_two_below(info.max_workgroup_invocations)
    wanted = next(team for least, team in _LOOK_BACK_TEAMS if length >= least)
    team = max(min(wanted, most), info.subgroup_size)
    schedule = ScanSchedule(lanes, team, team, _LOOK_BACK_ROUNDS, False)
    tiles = -(-length // schedule.tile)
    if not (able and few and length >= _LONG_ROW and tiles <= longest_walk(info)):
        return None
    return schedule, most_looks(info)


def most_looks(info: DeviceInfo) -> int:
    """How often to look for what is not there yet."""
    if info.max_loop_trips is None:
        return _LOOKS
    return min(_LOOKS, info.max_loop_trips // 16)


def longest_walk(info: DeviceInfo) -> int:
    """Tiles that a team may walk one after the other."""
    return (info.max_loop_trips or 1 << 24) // 2


def _power_of_two_above(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
