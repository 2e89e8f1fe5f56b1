"""Left operands that are made where they are read: by a row program of the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.dtypes import Scalar
from poot.core.graph import Graph
from poot.core.types import TensorType
from poot.lowering.kernels.contraction import Prologue
from poot.lowering.kernels.describe import Described, Dims, Held, describe_values
from poot.lowering.kernels.row_cut import Cut
from poot.lowering.kernels.row_launch import row_lanes
from poot.lowering.kernels.row_program import Reduction, RowProgram
from poot.lowering.plan.layout import View


@dataclass(frozen=True, slots=True)
class MadeRows:
    """A left operand [*rows, K] that each workgroup makes, and what it is made of."""

    type: TensorType
    prologue: Prologue
    described: Described

    @classmethod
    def of(cls, body: Graph, operands: Sequence[View | Scalar]) -> MadeRows:
        """The only result of a row body."""
        (type,) = body.result_types
        cut = Cut.of(body, [type.dtype])
        views = [view for view in operands if isinstance(view, View)]
        lanes = row_lanes(views, len(cut.graph.eqns), cut.length)
        dims = Dims(lanes, False)
        held = (Held(type) for type in cut.given)
        described, refs = describe_values(cut.graph, [*operands, *held], dims)
        rows = math.prod(cut.axes)
        program = RowProgram(
            described.region,
            tuple(
                Reduction(op, dtype, refs[value], phase)
                for op, dtype, value, phase in cut.reductions
            ),
            (),
            cut.prepared(refs),
            dims.of(cut.axes),
            rows,
            cut.length,
            cut.length % lanes == 0,
        )
        value = refs[cut.results[0]]
        return cls(type, Prologue(program, value, lanes, rows, cut.length), described)
