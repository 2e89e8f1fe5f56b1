"""Row bodies cut at their reductions, which one walk along the row computes each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Cast
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.types import TensorType
from poot.lowering.kernels.region import Ref


def row_domain(body: Graph) -> tuple[tuple[int, ...], int]:
    """The axes of the rows, and their length."""
    for eqn in body.eqns:
        if isinstance(eqn.op, Reduce | ArgReduce):
            shape = body.type(eqn.inputs[0]).shape
            return shape[:-1], shape[-1]
    shape = max((type.shape for type in body.result_types), key=len)
    return shape[:-1], shape[-1]


@dataclass(slots=True)
class Cut:
    """A row body in which each reduction's result is an input that is given.

    `graph` has the operands of the reductions as results, then those of the body.
    """

    graph: Graph
    reductions: list[tuple[Op, DType, ValueId, int]]
    given: list[TensorType]
    # The phase after which each value can be computed.
    phases: dict[ValueId, int]
    axes: tuple[int, ...]
    length: int
    results: tuple[ValueId, ...] = field(default=())

    @classmethod
    def of(cls, body: Graph, result_dtypes: Sequence[DType] | None) -> Cut:
        """With results as `result_dtypes`; None: only the reductions' operands."""
        builder = Builder()
        names: dict[ValueId, ValueId] = {}
        phases: dict[ValueId, int] = {}
        for value in body.inputs:
            names[value] = builder.input(body.type(value))
            phases[names[value]] = 0
        reductions: list[tuple[Op, DType, ValueId, int]] = []
        given: list[TensorType] = []

        def renamed(operand: Operand) -> Operand:
            return operand if isinstance(operand, Scalar) else names[operand]

        for eqn in body.eqns:
            operands = tuple(renamed(operand) for operand in eqn.inputs)
            read = [o for o in operands if not isinstance(o, Scalar)]
            phase = max((phases[o] for o in read), default=0)
            if isinstance(eqn.op, Reduce | ArgReduce):
                type, dtype = body.type(eqn.out), body.type(eqn.inputs[0]).dtype
                reductions.append((eqn.op, dtype, read[0], phase))
                given.append(type)
                names[eqn.out] = builder.input(type)
                phase += 1
            else:
                made = builder.emit(eqn.op, operands)
                names.update(zip(eqn.outs, made, strict=True))
            phases.update((names[out], phase) for out in eqn.outs)
        results = []
        for value, wanted in zip(body.results, result_dtypes or (), strict=False):
            result = names[value]
            if builder.type(result).dtype is not wanted:
                (cast,) = builder.emit(Cast(wanted), (result,))
                phases[cast], result = phases[result], cast
            results.append(result)
        for _, _, value, _ in reductions:
            builder.result(value)
        for result in results:
            builder.result(result)
        axes, length = row_domain(body)
        graph = builder.finish()
        return cls(graph, reductions, given, phases, axes, length, tuple(results))

    def prepared(self, refs: dict[ValueId, Ref]) -> tuple[tuple[Ref, int], ...]:
        """The values with one element a row that are computed between walks."""
        found = []
        held = set(self.graph.inputs[len(self.graph.inputs) - len(self.given) :])
        rank = len(self.axes) + 1
        for value, ref in refs.items():
            shape, phase = self.graph.type(value).shape, self.phases[value]
            column = len(shape) == rank and shape[-1] == 1 and self.length != 1
            reduced = len(shape) == rank - 1 and phase > 0
            if (
                (column or reduced)
                and value not in held
                and not isinstance(ref, Scalar)
            ):
                found.append((ref, phase))
        return tuple(found)
