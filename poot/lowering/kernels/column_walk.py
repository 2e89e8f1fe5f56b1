"""The walk along a part of an axis, with several loads under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.schedule import ColumnSchedule
from poot.lowering.spirv.builder import KernelBuilder, Size, Value

# Elements that an invocation walks at most.
LONGEST_PART = 1 << 14

T = TypeVar("T")


def part_end(k: KernelBuilder, length: Size, part: Size, first: Value) -> Size:
    """How many elements there are from `first` on, where a part begins."""
    if isinstance(length, int) and isinstance(part, int) and length % part == 0:
        return part
    return k.min(k.sub(length, first), part)


def walk_column(
    evaluator: Evaluator,
    schedule: ColumnSchedule,
    end: Size,
    load: Callable[[Value], T],
    visit: Callable[[T], None],
) -> None:
    """Load what stands at 0 … end - 1, `ahead` at a time, and visit it in this order.

    What `load` gives is used by `visit` alone.
    """
    k, ahead = evaluator.k, schedule.ahead
    rest: Size = 0
    if ahead > 1:
        rounds = k.index_div(end, ahead)
        rest = k.mul(rounds, ahead)
        with k.loop(rounds, max_trips=LONGEST_PART // ahead) as turn, evaluator.scope():
            first = k.mul(turn, ahead)
            for loaded in [load(k.add(first, number)) for number in range(ahead)]:
                visit(loaded)
        if isinstance(end, int) and end % ahead == 0:
            return
    most = LONGEST_PART if ahead == 1 else ahead
    with k.loop(end, rest, max_trips=most) as at, evaluator.scope():
        visit(load(at))
