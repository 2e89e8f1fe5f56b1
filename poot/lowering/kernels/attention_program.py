"""Attention as data: what its kernels compute, and by which schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poot.core.dtypes import DType
from poot.core.errors import LimitError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import CHUNK
from poot.lowering.kernels.region import Ref, Region

# Features of queries, and as many sums of weighted values, that an invocation keeps
# whose rows are its own; that one keeps whose keys are, by whether it is a CPU's.
_MOST_HELD = 128
_MOST_SHARED = {True: 512, False: 128}
# The first where a GPU's invocations have but a part of each row.
_MOST_ON_GPU = 64
# Elements of a head: the code of a kernel grows with them.
_MOST_HEAD = 1024
# Up to so many rows share the keys that each invocation has to itself.
_MOST_SHARED_ROWS = 8
# So few rows share them in blocks where a device had little to do else.
_FEW_ROWS = 64
_MANY_KEYS = 1024
# Rows of one invocation, and keys that it takes at once.
_MOST_ROWS = 4
_TILE = 8
# So many invocations of a compute unit hide that loads take long.
_GROUPS_PER_UNIT = 16
# Lanes of a subgroup that there must be to divide features among; sums of weighted
# values of one, and what it loads of keys at once.
_TEAM_PARTS = 8
_TEAM_SUMS = 64
_TEAM_LOADS = 32
_MOST_AHEAD = 2
_MOST_TEAMS = 64
# Up to so many keys are not split: a second launch takes longer.
_UNSPLIT_KEYS = 2048
# A split has at least so many keys.
_SHORTEST_SPLIT = 128
_MOST_SPLITS = 64


@dataclass(frozen=True, slots=True)
class Stand:
    """Where element (batch, rows or key, feature) of a tensor stands in its buffer."""

    dtype: DType
    indirect: bool
    bound: int
    offset: int
    # One an axis.
    strides: tuple[int, ...]
    # Whether chunks of features are contiguous and aligned.
    runs: bool

    def runs_of(self, count: int) -> bool:
        """Whether so many features at a time are."""
        others = (*self.strides[:-1], self.offset)
        return self.runs and not any(step % count for step in others)


@dataclass(frozen=True, slots=True)
class Visible:
    """Which keys a row may see: from `first` to before `end`.

    The scores of all others are at most `masked`.
    """

    first: Ref
    end: Ref
    masked: float


@dataclass(frozen=True, slots=True)
class AttentionProgram:
    """All that shapes the code of an attention kernel but its schedule.

    The products of queries and keys are `Given(0)` of the region.
    """

    region: Region
    score: Ref
    visible: Visible | None
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    keys: int
    features: int
    values: int
    q: Stand
    k: Stand
    v: Stand
    # Element (batch, rows, feature) of the result.
    target: Stand

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def row_count(self) -> int:
        return math.prod(self.rows)

    @property
    def rounds(self) -> int:
        """Walks over keys: those seen, then, if need be, those before and after."""
        if self.visible is None or self.visible.masked == -math.inf:
            return 1
        return 3


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """How rows and keys are dealt out to invocations.

    Kind `rows`: an invocation has rows of its own and takes `tile` keys at a time;
    `parts` of them share a row's features. With `handed` a lane loads one key of a tile
    and hands it to the others. Kind `keys`: an invocation has keys of its own, for
    `rows` rows; `splits` workgroups share the keys of a row, whose parts another launch
    merges. Kind `teams`: `parts` invocations have a key, `width` of its features at a
    time, for `rows` rows, and load `ahead` keys at once; splits are as before.
    """

    kind: str
    workgroup: int
    rows: int
    tile: int = 1
    parts: int = 1
    handed: bool = False
    splits: int = 1
    width: int = CHUNK
    ahead: int = 1

    @property
    def rows_each(self) -> int:
        """The rows of a workgroup."""
        if self.kind in ("keys", "teams"):
            return self.rows
        return self.workgroup // self.parts * self.rows

    def groups(self, program: AttentionProgram) -> int:
        """How many workgroups there are."""
        blocks = -(-program.row_count // self.rows_each)
        return program.batches * blocks * self.splits

    def __str__(self) -> str:
        if self.kind == "teams":
            parts = f", {self.splits} splits" if self.splits > 1 else ""
            return (
                f"{self.workgroup // self.parts} teams of {self.parts}, {self.rows} "
                f"rows, {self.ahead} keys of {self.width} ahead{parts}"
            )
        if self.kind == "keys":
            parts = f", {self.splits} splits" if self.splits > 1 else ""
            return f"keys by {self.workgroup}, {self.rows} rows{parts}"
        shared = f" by {self.parts} parts" if self.parts > 1 else ""
        handed = ", keys handed round" if self.handed else ""
        return f"rows {self.rows_each}{shared}, {self.tile} keys{handed}"


def choose_attention_schedule(
    info: DeviceInfo, program: AttentionProgram
) -> AttentionSchedule:
    """The schedule for a device; LimitError if heads are too large."""
    largest = max(program.features, program.values)
    if largest > _MOST_HEAD:
        raise LimitError(
            f"attention: heads of {largest} elements; the most is {_MOST_HEAD}"
        )
    if program.row_count <= _MOST_SHARED_ROWS:
        return _by_keys(info, program, largest)
    schedule = _by_rows(info, program, largest)
    few = program.row_count <= _FEW_ROWS and program.keys >= _MANY_KEYS
    if few and schedule.groups(program) < _wanted_groups(info):
        return _by_keys(info, program, largest)
    return schedule


def _wanted_groups(info: DeviceInfo) -> int:
    return info.compute_units * (1 if info.is_cpu else _GROUPS_PER_UNIT)


def attention_candidates(
    info: DeviceInfo, usual: AttentionSchedule, program: AttentionProgram
) -> list[AttentionSchedule]:
    """The schedules that are worth being timed: splits of keys, or rows each.

    Those of teams differ from the usual one in one thing each.
    """
    if usual.kind == "keys":
        return [replace(usual, splits=splits) for splits in _some_splits(program)]
    if usual.kind == "teams":
        return _teams_candidates(info, usual, program)
    return [replace(usual, rows=rows) for rows in _halves(usual.rows)]


def _some_splits(program: AttentionProgram) -> list[int]:
    """Powers of two, up to what there are keys for."""
    most = max(min(program.keys // _SHORTEST_SPLIT, _MOST_SPLITS), 1)
    return [1 << power for power in range(most.bit_length())]


def _halves(rows: int) -> list[int]:
    """So many rows, half of them, and so on to one."""
    return [rows >> power for power in range(rows.bit_length())]


def _teams_candidates(
    info: DeviceInfo, usual: AttentionSchedule, program: AttentionProgram
) -> list[AttentionSchedule]:
    found = [
        replace(usual, splits=splits)
        for splits in _some_splits(program)
        if splits == 1 or splits <= 4 * usual.splits <= 16 * splits
    ]
    if usual.workgroup > info.subgroup_size:
        found.append(replace(usual, workgroup=usual.workgroup // 2))
    share = -(-program.keys // usual.splits)
    has_more = usual.workgroup // usual.parts * usual.ahead < share
    if has_more and 2 * usual.workgroup <= _most_in_teams(info, program, usual.rows):
        found.append(replace(usual, workgroup=2 * usual.workgroup))
    largest = max(program.features, program.values)
    loads = -(-largest // (usual.width * usual.parts)) * usual.width
    for ahead in (1, 2, 4):
        if ahead == 1 or ahead * loads <= _TEAM_LOADS:
            found.append(replace(usual, ahead=ahead))
    return found + [replace(usual, rows=rows) for rows in _halves(usual.rows)]


def _by_keys(
    info: DeviceInfo, program: AttentionProgram, largest: int
) -> AttentionSchedule:
    if not info.is_cpu and info.subgroup_shuffle and info.subgroup_size >= _TEAM_PARTS:
        return _by_teams(info, program, largest)
    most_rows = max(_MOST_SHARED[info.is_cpu] // largest, 1)
    rows = min(program.row_count, most_rows)
    blocks = program.batches * -(-program.row_count // rows)
    wanted = -(-_wanted_groups(info) // blocks)
    most = min(program.keys // _SHORTEST_SPLIT, _MOST_SPLITS)
    splits = max(min(wanted, most), 1)
    return AttentionSchedule("keys", info.subgroup_size, rows, splits=splits)


def _by_teams(
    info: DeviceInfo, program: AttentionProgram, largest: int
) -> AttentionSchedule:
    stands = program.q, program.k, program.v
    width = 16 // max(stand.dtype.itemsize for stand in stands)
    if not all(stand.runs_of(width) for stand in stands):
        width = CHUNK
    chunks = -(-largest // width)
    parts = 1
    while 2 * parts <= min(chunks, info.subgroup_size):
        parts *= 2
    rounds = -(-chunks // parts)
    is_split = program.keys > _UNSPLIT_KEYS
    # Rows that share loads save traffic, and make code that takes longer to load.
    most_rows = max(_TEAM_SUMS // (rounds * width), 1) if is_split else 1
    rows = min(program.row_count, most_rows)
    ahead = max(min(_TEAM_LOADS // (rounds * width), _MOST_AHEAD), 1)
    blocks = program.batches * -(-program.row_count // rows)
    splits = 1
    if is_split:
        wanted = max(info.compute_units // blocks, 1)
        splits = min(wanted, program.keys // _SHORTEST_SPLIT, _MOST_SPLITS)
    most = min(_most_in_teams(info, program, rows), _MOST_TEAMS * parts)
    workgroup = info.subgroup_size
    share = -(-program.keys // splits)
    while 2 * workgroup <= most and workgroup // parts * ahead < share:
        workgroup *= 2
    return AttentionSchedule(
        "teams", workgroup, rows, 1, parts, splits=splits, width=width, ahead=ahead
    )


def _most_in_teams(info: DeviceInfo, program: AttentionProgram, rows: int) -> int:
    """Invocations of a workgroup at most."""
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0], 1024)
    # One subgroup keeps this much, in shared memory in the end.
    kept = rows * (program.values + 2) * 4
    return min(most, info.max_shared_bytes // 2 // kept * info.subgroup_size)


def _by_rows(
    info: DeviceInfo, program: AttentionProgram, largest: int
) -> AttentionSchedule:
    width = info.subgroup_size
    handed = info.is_cpu and info.subgroup_shuffle and 4 <= width <= 16
    if handed:
        rows = max(min(_MOST_HELD // largest, _MOST_ROWS), 1)
        while rows > 1 and (rows - 1) * width >= program.row_count:
            rows -= 1
        return AttentionSchedule("rows", width, rows, width, handed=True)
    parts = 1
    if info.subgroup_shuffle and not info.is_cpu:
        sizes = program.features, program.values
        while parts < 8 and not any(size % (2 * parts * CHUNK) for size in sizes):
            parts *= 2
    rows = (
        1 if info.is_cpu else max(min(_MOST_ON_GPU * parts // largest, _MOST_ROWS), 1)
    )
    schedule = AttentionSchedule("rows", width, rows, _TILE, parts)
    while schedule.rows > 1 and schedule.groups(program) < _wanted_groups(info):
        schedule = replace(schedule, rows=schedule.rows // 2)
    return schedule
