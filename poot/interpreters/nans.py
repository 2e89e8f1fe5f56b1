"""`config.debug_nans`: which operation gave a NaN first, and at which line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.errors import NanError
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.control import Cond, ControlOp
from poot.core.source import user_source
from poot.interpreters.array import Array
from poot.interpreters.replay import replay
from poot.interpreters.stepwise import stepwise


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
    if isinstance(op, Cond):
        stepwise(op, operands, lambda graph, values, _: replay(graph, values))
    elif isinstance(op, ControlOp):
        stepwise(op, operands, _run)
    types = ", ".join(str(result.aval.type) for result in results)
    raise NanError(f"NaN: `{op.plain_name}` gave it ({types}) at {user_source()}")


def _run(graph: Graph, values: Sequence[Any], number: int) -> list[Any]:
    """Run one iteration, whose number an error tells."""
    try:
        return replay(graph, values)
    except NanError as error:
        error.add_note(f"in iteration {number} of the loop at {user_source()}")
        raise
