"""Schedules of pointwise kernels: how elements are dealt out to invocations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo

# Regions of more equations than this take few lanes, to keep kernels short.
_LONG_REGION = 48
_UNIT_BYTES = 16


@dataclass(frozen=True, slots=True)
class PointwiseSchedule:
    """A chunk is `lanes` neighbouring elements; an invocation computes `chunks`."""

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


def choose_schedule(info: DeviceInfo, lanes: int, total: int) -> PointwiseSchedule:
    """The workgroup and the chunks an invocation."""
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    return PointwiseSchedule(lanes, min(256 if total > 1 << 16 else 64, most))
