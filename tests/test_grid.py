"""fold_grid: any count of workgroups within the limits of three axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.core.errors import LimitError
from poot.lowering.spirv.grid import fold_grid

LAVAPIPE = (65535, 65535, 65535)
NVIDIA = ((1 << 31) - 1, 65535, 65535)


@pytest.mark.parametrize(
    ("groups", "limits", "grid"),
    [
        (1, LAVAPIPE, (1, 1, 1)),
        (65535, LAVAPIPE, (65535, 1, 1)),
        (65536, LAVAPIPE, (32768, 2, 1)),
        (65536, NVIDIA, (65536, 1, 1)),
        (1000, (10, 10, 10), (10, 10, 10)),
        (101, (10, 10, 10), (9, 6, 2)),
    ],
)
def test_grid(
    groups: int, limits: tuple[int, int, int], grid: tuple[int, int, int]
) -> None:
    assert fold_grid(groups, limits) == grid


@given(st.integers(1, 1 << 31), st.sampled_from([LAVAPIPE, NVIDIA, (300, 9000, 9000)]))
def test_grid_covers_with_little_excess(
    groups: int, limits: tuple[int, int, int]
) -> None:
    grid = fold_grid(groups, limits)
    assert all(1 <= size <= limit for size, limit in zip(grid, limits, strict=True))
    covered = math.prod(grid)
    assert groups <= covered < groups + grid[2] * (grid[1] + 1)
    assert covered < 1 << 32


def test_past_the_square_of_an_axis() -> None:
    x, y, z = fold_grid(1_000_001, (1000, 1000, 1000))
    assert z == 2
    assert 1_000_001 <= x * y * z < 1_000_001 + z * (y + 1)


@pytest.mark.parametrize("groups", [0, -1, 1001, (1 << 31) + 1])
def test_refused(groups: int) -> None:
    limits = LAVAPIPE if groups > 1 << 31 else (10, 10, 10)
    with pytest.raises(LimitError, match=str(groups)):
        fold_grid(groups, limits)
