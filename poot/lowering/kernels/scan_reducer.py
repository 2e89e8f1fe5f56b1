"""What combines the elements of a Cumulative: those of Reduce, and logsumexp."""

from __future__ import annotations

from poot.core.dtypes import DType
from poot.core.ops.cumulative import CumulativeOp
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.lowering.kernels.math import form, lower_binary, lower_unary, round_to
from poot.lowering.kernels.reducers import Carriers, Reducer, reducer
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import ScalarType


class LogSumExp(Reducer):
    """log(sum(exp(x))) by the largest element and the sum of exp(x - largest)."""

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return (form(self.dtype), form(self.dtype))

    def start(self, k: KernelBuilder) -> Carriers:
        ty = self.types[0]
        return (k.const(ty, float("-inf")), k.const(ty, 0.0))

    def lift(self, k: KernelBuilder, value: Value, place: Value) -> Carriers:
        return (value, k.const(self.types[0], 1.0))

    def combine(self, k: KernelBuilder, a: Carriers, b: Carriers) -> Carriers:
        compute = self.dtype.compute
        first = k.ge(a[0], b[0])
        low, high = k.select(first, b[0], a[0]), k.select(first, a[0], b[0])
        distance = lower_unary(k, UnaryOp.EXP, k.sub(low, high), compute)
        # Two infinities of one sign are no distance apart.
        scale = k.select(k.eq(low, high), k.const(self.types[0], 1.0), distance)
        most = lower_binary(k, BinaryOp.MAX, a[0], b[0], compute)
        more, less = k.select(first, a[1], b[1]), k.select(first, b[1], a[1])
        return (most, k.add(more, k.mul(less, scale)))

    def finish(self, k: KernelBuilder, carriers: Carriers) -> Value:
        most, total = carriers
        log = lower_unary(k, UnaryOp.LOG, total, self.dtype.compute)
        return round_to(k, k.add(most, log), self.dtype)


def scan_reducer(op: CumulativeOp, dtype: DType) -> Reducer:
    """The reducer of a Cumulative of elements of `dtype`."""
    if op is CumulativeOp.LOGSUMEXP:
        return LogSumExp(dtype)
    return reducer(Reduce(ReduceOp[op.name], 0), dtype)
