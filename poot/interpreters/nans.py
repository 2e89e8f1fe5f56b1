"""`config.debug_nans`: which operation gave a NaN first, and at which line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import NanError
from poot.core.op import Op
from poot.core.ops.control import Cond, Scan, While
from poot.core.source import user_source
from poot.interpreters.array import Array
from poot.interpreters.replay import replay


def has_nan(array: Array) -> bool:
    """Whether an array has a NaN; waits for it."""
    is_float = array.aval.type.dtype.is_float
    return is_float and bool(np.isnan(np.asarray(array)).any())


def require_numbers(op: Op, operands: Sequence[Any], results: Sequence[Array]) -> None:
    """NanError if a result of an op that was run at once has a NaN.

    A loop or choice is run again step by step, so that the error names what is in it.
    """
    if not any(map(has_nan, results)):
        return
    if isinstance(op, Scan | While | Cond):
        _STEPS[type(op)](op, list(operands))
    types = ", ".join(str(result.aval.type) for result in results)
    raise NanError(f"NaN: `{op.plain_name}` gave it ({types}) at {user_source()}")


def _iteration(number: int, graph: Any, values: Sequence[Any]) -> list[Any]:
    """Run one iteration, whose number an error tells."""
    try:
        return replay(graph, values)
    except NanError as error:
        error.add_note(f"in iteration {number} of the loop at {user_source()}")
        raise


def _scan(op: Scan, operands: list[Any]) -> None:
    fixed = op.consts + op.carries
    consts, carries = operands[: op.consts], operands[op.consts : fixed]
    order = range(op.length)
    for number in reversed(order) if op.reverse else order:
        elements = [xs[number] for xs in operands[fixed:]]
        found = _iteration(number, op.body, [*consts, *carries, *elements])
        carries = found[: op.carries]


def _while(op: While, operands: list[Any]) -> None:
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    carries, number = operands[fixed:], 0
    while replay(op.condition, [*operands[:first], *carries])[0]:
        carries = _iteration(number, op.body, [*operands[first:fixed], *carries])
        number += 1


def _cond(op: Cond, operands: list[Any]) -> None:
    index, *values = operands
    number = min(max(int(index), 0), len(op.branches) - 1)
    replay(op.branches[number], values)


_STEPS: dict[type[Op], Callable[[Any, list[Any]], None]] = {
    Scan: _scan,
    While: _while,
    Cond: _cond,
}
