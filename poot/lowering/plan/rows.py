"""Which row programs one workgroup a row can run well, and which need stages."""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo

# A workgroup walks rows up to this length in few trips even where rows are few.
LONG_ROW = 1 << 17
# On a GPU a second launch takes less time than so many trips.
_LONG_ROW_OF_GPU = 3 << 15
# No lane of a single workgroup walks rows beyond this within the loop limit.
LONGEST_ROW = 1 << 22


def needs_stages(rows: int, length: int, info: DeviceInfo) -> bool:
    """Whether rows are too long, and too few to fill the device, for one launch.

    Such a reduction goes in stages, and a FusedRow of such rows holds one reduction,
    what is computed before it from full rows, and what follows from its results.
    """
    if length < (LONG_ROW if info.is_cpu else _LONG_ROW_OF_GPU):
        return False
    longest = LONGEST_ROW
    if info.max_loop_trips is not None:
        # Teams on such devices are small, and rows are walked several times.
        longest = min(longest, 4 * (info.max_loop_trips + 1))
    return rows < 2 * info.compute_units or length > longest
