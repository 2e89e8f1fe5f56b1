"""`check`: conditions of the user's that numbers have to meet as they are computed."""

from __future__ import annotations

from typing import Any

from poot.core import dtypes
from poot.core.errors import DTypeError
from poot.core.interpreter import current
from poot.core.ops.elementwise import Cast, Unary, UnaryOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Reshape
from poot.interpreters.promotion import as_value


def check(pred: Any, message: str) -> None:
    """Raise CheckError with `message` and the line of this call unless `pred` holds.

    `pred` is a bool or an array of bools that must all hold. Outside of jitted
    functions the check waits for it. In one it costs no wait: the error comes at the
    first use that waits for any result of the call. In a loop it names the iteration
    that failed first. DTypeError for other dtypes.
    """
    value = as_value(pred, "check")
    if value.aval.type.dtype is not dtypes.bool_:
        raise DTypeError(
            f"check: the condition is {value.aval.type}, takes bools; compare it"
        )
    flat = Reshape((value.size,)).bind(value)
    holds = Reduce(ReduceOp.ALL, 0).bind(flat)
    failed = Cast(dtypes.int32).bind(Unary(UnaryOp.NOT).bind(holds))
    current().witness(failed, message, ())
