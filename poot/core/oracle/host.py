"""What goes to the host: its functions are called with the arrays as they are."""

from __future__ import annotations

import numpy as np

from poot.core.ops.host import HostCall, Record
from poot.core.oracle.table import Arithmetic, Array, impl


@impl.define(Record)
def _record(op: Record, arithmetic: Arithmetic, *operands: Array) -> Array:
    for function in op.site.functions:
        function(op, operands)
    return np.zeros((), np.int32)


@impl.define(HostCall)
def _host_call(
    op: HostCall, arithmetic: Arithmetic, *operands: Array
) -> tuple[Array, ...]:
    (function,) = op.site.functions
    found: tuple[Array, ...] = function(op, operands)
    return found
