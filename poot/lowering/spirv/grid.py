"""Fold a linear count of workgroups into a grid of three axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.core.errors import LimitError


def fold_grid(groups: int, limits: Sequence[int]) -> tuple[int, int, int]:
    """Cover `groups` workgroups by an x*y*z grid within `limits`, the excess small.

    Kernels number workgroups x + y*X + z*X*Y and drop the numbers past the end.
    """
    if groups < 1:
        raise LimitError(
            f"grid: {groups} workgroups; a dispatch has at least one, so skip it"
        )
    most = math.prod(limits)
    # Numbers of workgroups are u32, the excess included.
    if groups > min(most, 1 << 31):
        raise LimitError(
            f"grid: {groups} workgroups; the device takes "
            f"{' x '.join(map(str, limits))}, and workgroup numbers end at {1 << 31}. "
            "Let each workgroup do more"
        )
    z = -(-groups // (limits[0] * limits[1]))
    layer = -(-groups // z)
    y = -(-layer // limits[0])
    x = -(-layer // y)
    return x, y, z
