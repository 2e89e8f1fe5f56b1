"""Schedules of pointwise kernels: how elements are dealt out to invocations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.memory import WORD_BYTES

# Loads of an invocation that are under way at once, where nothing else hides what they
# take: as many as fill so many bytes.
_BYTES_AHEAD = 128
MOST_AHEAD = 8
# Regions of more equations than this take few lanes, to keep kernels short.
_LONG_REGION = 48
_UNIT_BYTES = 16
# So many elements a compute unit are few.
_FEW_ELEMENTS_PER_UNIT = 64
# Chunks of an invocation whose loads wait for others, while workgroups are no fewer.
_CHAINED_CHUNKS, _GROUPS_PER_UNIT = 2, 8
# A GPU's invocation computes several chunks of a region by how many words of SPIR-V one
# takes: work apart from each other hides how long an operation takes, until it is more
# code than stays close at hand. Measured on an H200: see its notes of 2026-12-01.
_CHUNKS_BY_WORDS = ((450, 1), (1500, 2), (2500, 4), (5500, 2))
# What a kernel has of them besides.
_FIXED_WORDS = 520


@dataclass(frozen=True, slots=True)
class PointwiseSchedule:
    """A chunk is `lanes` neighbouring elements.

    An invocation computes `chunks`, all of them before it stores the first.
    """

    lanes: int
    workgroup: int
    chunks: int = 1

    def groups(self, total: int) -> int:
        """How many workgroups cover `total` elements."""
        return -(-total // (self.lanes * self.workgroup * self.chunks))

    def __str__(self) -> str:
        return (
            f"{self.lanes} lanes, {self.workgroup} invocations, {self.chunks} "
            f"chunk{'s' * (self.chunks > 1)} each, 32-bit indices"
        )


def choose_lanes(dtypes: Iterable[DType], equations: int, total: int) -> int:
    """As many elements as 16 bytes hold of the widest dtype, but four at least."""
    if total == 1:
        return 1
    if equations > _LONG_REGION:
        return 4
    widest = max(dtype.itemsize for dtype in dtypes)
    return max(_UNIT_BYTES // widest, 4)


def region_lanes(
    info: DeviceInfo, dtypes: Sequence[DType], equations: int, total: int
) -> int:
    """The elements of a chunk of a region: one, if a GPU has an invocation for each.

    Then there is less code to load and to run, which is all that a few elements take.
    """
    few = not info.is_cpu and total <= _FEW_ELEMENTS_PER_UNIT * info.compute_units
    if few and all(dtype.itemsize >= WORD_BYTES for dtype in dtypes):
        return 1
    return choose_lanes(dtypes, equations, total)


def choose_schedule(
    info: DeviceInfo, lanes: int, total: int, chained: bool = False
) -> PointwiseSchedule:
    """The workgroup and the chunks an invocation.

    With `chained` some loads wait for others, which say where.
    """
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    workgroup = min(256 if total > 1 << 16 else 64, most)
    chunks = 1
    if chained and not info.is_cpu:
        spread = lanes * workgroup * info.compute_units * _GROUPS_PER_UNIT
        while chunks < _CHAINED_CHUNKS and total >= 2 * chunks * spread:
            chunks *= 2
    return PointwiseSchedule(lanes, workgroup, chunks)


def deepened(
    info: DeviceInfo, schedule: PointwiseSchedule, words: int, loads: int, total: int
) -> PointwiseSchedule:
    """With more chunks an invocation, where its kernel of one, of `words`, says so.

    A chunk takes `loads`. Workgroups compute as many elements as before, or more where
    they would be less than a subgroup, and are enough to go round.
    """
    many = schedule.groups(total) >= 2 * _GROUPS_PER_UNIT * info.compute_units
    if info.is_cpu or schedule.chunks > 1 or not many:
        return schedule
    each = words - _FIXED_WORDS
    chunks = next((count for most, count in _CHUNKS_BY_WORDS if each <= most), 1)
    while chunks > 1 and chunks * loads > MOST_AHEAD:
        chunks //= 2
    least = min(info.subgroup_size, schedule.workgroup)
    workgroup = max(schedule.workgroup // chunks, least)
    return replace(schedule, workgroup=workgroup, chunks=chunks)


@dataclass(frozen=True, slots=True)
class ColumnSchedule:
    """An invocation walks `lanes` neighbouring columns, `ahead` elements at a time."""

    lanes: int
    workgroup: int
    ahead: int = 1

    def groups(self, total: int) -> int:
        """How many workgroups cover `total` columns."""
        return -(-total // (self.lanes * self.workgroup))

    def __str__(self) -> str:
        return (
            f"{self.lanes} lanes, {self.ahead} at a time, {self.workgroup} invocations"
        )


def choose_column_schedule(
    info: DeviceInfo, dtype: DType, lanes: int, total: int
) -> ColumnSchedule:
    """The schedule for `total` columns of elements of a dtype."""
    plain = choose_schedule(info, lanes, total)
    ahead = 1
    if not info.is_cpu:
        ahead = min(max(_BYTES_AHEAD // (lanes * dtype.itemsize), 1), MOST_AHEAD)
    return ColumnSchedule(lanes, plain.workgroup, ahead)
