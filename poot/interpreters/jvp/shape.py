"""What moves elements: the tangents move along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.interpreters.jvp.definitions import (
    One,
    define_constant,
    define_jointly_linear,
    define_linear,
    like,
)
from poot.interpreters.jvp.table import Tangent, instantiated, jvp

define_linear(Broadcast, Reshape, Transpose, Slice, Reverse)
define_jointly_linear(Concat)
define_constant(Iota)


@jvp.define(Pad)
def _pad(op: Pad, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x, value), (dx, filled) = primals, tangents
    filled = like(x, 0) if filled is None else filled
    return (op.bind(x, value),), (op.bind(instantiated(dx, x), filled),)
