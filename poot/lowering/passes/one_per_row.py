"""Gathers and scatters of one element of each row, as what rows are fused with.

Users write x[arange(n), labels], where indices that count tell which element is of
which row, and the gradient of it adds to zeros there.
"""

from __future__ import annotations

import math
from functools import cached_property

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.core.ops.scatter import Scatter, ScatterMode, ScatterOp
from poot.core.ops.shape import Broadcast, Concat, Iota, Reshape
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.counting import (
    Count,
    count_of_axis,
    counts_in,
    holds_places,
)
from poot.lowering.passes.driver import Log, Numerics, Pass, Reason, Rewrite, place_of
from poot.lowering.passes.row_forms import row_gather

GATHER_IN_ROWS = Rewrite(
    "gather_in_rows",
    "a gather at (i, k[i]) for all rows i in order is one that has the rows as batch "
    "axes and k as its indices; for all dtypes",
    Numerics.EXACT,
)
SCATTER_IN_ROWS = Rewrite(
    "scatter_in_rows",
    "c with u[i] set or added at (i, k[i]), for all rows i in order, is at (i, j) "
    "select(j = k[i], u[i] or c + u[i], c), as no updates meet; for all dtypes",
    Numerics.EXACT,
)


class _Walk:
    """One walk over the gathers and scatters of a graph."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.edit = graph.edit()
        self.makers = graph.definitions()
        self.changed = False

    def run(self) -> Graph:
        for index, eqn in enumerate(self.graph.eqns):
            match eqn.op:
                case GeneralGather():
                    self._gather(index, eqn.op)
                case Scatter(op=ScatterOp.SET | ScatterOp.ADD):
                    self._scatter(index, eqn.op)
        return self.edit.commit() if self.changed else self.graph

    @cached_property
    def counts(self) -> dict[Operand, Count]:
        return counts_in(self.graph)

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.graph.type(operand).shape

    def _emit(self, index: int, op: Op, *operands: Operand) -> Operand:
        return self.edit.emit(op, operands, index, self.graph.source(index))[0]

    def _shaped(self, index: int, value: Operand, shape: tuple[int, ...]) -> Operand:
        """A value, or what it is a reshape of, in another shape."""
        eqn = self._maker(value)
        if eqn is not None and isinstance(eqn.op, Reshape):
            (value,) = eqn.inputs
        if self.edit.type(value).shape == shape:
            return value
        return self._emit(index, Reshape(shape), value)

    def _fire(self, rewrite: Rewrite, index: int, new: Operand) -> None:
        self.changed = True
        self.edit.replace(self.graph.eqns[index].out, new)
        self.edit.remove(index)
        self.log.fire(rewrite, place_of(self.graph, index))

    def _decline(
        self, rewrite: Rewrite, index: int, reason: Reason, detail: str
    ) -> None:
        self.log.decline(rewrite, place_of(self.graph, index), reason, detail)

    # --- rewrites -----------------------------------------------------------

    def _gather(self, index: int, op: GeneralGather) -> None:
        eqn = self.graph.eqns[index]
        source, indices = eqn.inputs
        if any(size != 1 for size in op.slice_sizes) or not self._is_sized(index):
            return
        clips = op.mode is not GatherMode.FILL
        found = self._place_in_row(GATHER_IN_ROWS, index, op.dims, clips)
        if found is None:
            return
        axis, place = found
        rows = _without(self._shape(source), axis)
        new = row_gather(len(rows) + 1, axis, op)
        if new == op and self._shape(indices) == (*rows, 1):
            return
        taken = self._emit(index, new, source, self._shaped(index, place, (*rows, 1)))
        shape = self._shape(eqn.out)
        self._fire(GATHER_IN_ROWS, index, self._shaped(index, taken, shape))

    def _scatter(self, index: int, op: Scatter) -> None:
        eqn = self.graph.eqns[index]
        operand, _, updates = eqn.inputs
        shape = self._shape(operand)
        window = op.dims.window(len(shape), self._shape(updates))
        if any(size != 1 for size in window) or not self._is_sized(index):
            return
        clips = op.mode is ScatterMode.CLIP
        found = self._place_in_row(SCATTER_IN_ROWS, index, op.dims.gather, clips)
        if found is None:
            return
        axis, place = found
        fill = self._literal(operand)
        if fill is None:
            detail = f"{self.graph.type(operand)} %{operand}"
            self._decline(SCATTER_IN_ROWS, index, Reason.NOT_FILLED, detail)
            return
        given = dtype = self.graph.type(place).dtype
        if given.itemsize < dtypes.int32.itemsize:
            dtype = dtypes.int32
        if not holds_places(dtype, shape[axis]):
            detail = f"{shape[axis]} elements a row, {dtype} indices"
            self._decline(SCATTER_IN_ROWS, index, Reason.SIZE_LIMIT, detail)
            return
        column = (*shape[:axis], 1, *shape[axis + 1 :])
        at = self._shaped(index, place, column)
        if dtype is not given:
            at = self._emit(index, Cast(dtype), at)
        if clips:
            low, high = (Scalar.of(n, dtype) for n in (0, shape[axis] - 1))
            at = self._emit(index, Clamp(), low, at, high)
        value = self._shaped(index, updates, column)
        if op.op is ScatterOp.ADD:
            # Not the update itself: 0.0 + -0.0 is 0.0.
            value = self._emit(index, Binary(BinaryOp.ADD), fill, value)
        here = self._emit(index, Iota(dtype, shape, axis))
        is_met = self._emit(index, Compare(CompareOp.EQ), here, at)
        new = self._emit(index, Select(), is_met, value, fill)
        self._fire(SCATTER_IN_ROWS, index, new)

    def _is_sized(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        return all(self.graph.type(v).size for v in (*eqn.inputs, *eqn.outs))

    def _literal(self, operand: Operand) -> Scalar | None:
        """The literal that an operand repeats."""
        eqn = self._maker(operand)
        if eqn is None or not isinstance(eqn.op, Broadcast):
            return None
        (fill,) = eqn.inputs
        return fill if isinstance(fill, Scalar) else None

    def _maker(self, operand: Operand) -> Eqn | None:
        maker = None if isinstance(operand, Scalar) else self.makers.get(operand)
        return None if maker is None else self.graph.eqns[maker]

    # --- which element is of which row --------------------------------------

    def _place_in_row(
        self, rewrite: Rewrite, index: int, dims: GatherDims, clips: bool
    ) -> tuple[int, Operand] | None:
        """The axis that rows lie along, and the places in them, if each has one."""
        operand, indices = self.graph.eqns[index].inputs[:2]
        shape, vectors = self._shape(operand), self._shape(indices)[:-1]
        parts = self._parts(indices)
        if parts is None:
            detail = f"{self.graph.type(indices)} %{indices}"
            self._decline(rewrite, index, Reason.WHOLE_VECTORS, detail)
            return None
        led = dict(zip(dims.start_index_map, parts, strict=True))
        counted = self._counted(shape, vectors, dims, led, clips)
        free = [axis for axis in range(len(shape)) if axis not in counted]
        axis = free[0] if free else max(led)
        rows = _without(shape, axis)
        found = [counted.get(a) for a in range(len(shape)) if a != axis]
        wanted = [count_of_axis(rows, number) for number in range(len(rows))]
        if axis not in led or found != wanted or math.prod(vectors) != math.prod(rows):
            detail = f"index vectors {vectors} for {self.graph.type(operand)}"
            if free:
                detail += f", not counted along {', '.join(map(str, free))}"
            self._decline(rewrite, index, Reason.NOT_EACH_ROW, detail)
            return None
        return axis, led[axis]

    def _parts(self, indices: Operand) -> tuple[Operand, ...] | None:
        """The components of index vectors, one for each vector."""
        last = len(self._shape(indices)) - 1
        if self._shape(indices)[last] == 1:
            return (indices,)
        eqn = self._maker(indices)
        if eqn is None or eqn.op != Concat(last):
            return None
        is_apart = all(self._shape(part)[last] == 1 for part in eqn.inputs)
        return eqn.inputs if is_apart else None

    def _counted(
        self,
        shape: tuple[int, ...],
        vectors: tuple[int, ...],
        dims: GatherDims,
        led: dict[int, Operand],
        clips: bool,
    ) -> dict[int, Count]:
        """What the index vectors count along the axes of a tensor, where they do."""
        zero = Count(1, 1)
        found = {axis: zero for axis, size in enumerate(shape) if size == 1}
        for axis, part in led.items():
            if clips and shape[axis] == 1:
                # Whatever the index is, it leads there.
                continue
            found.pop(axis, None)
            if part in self.counts:
                found[axis] = self.counts[part]
        batching = zip(
            dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True
        )
        found.update((axis, count_of_axis(vectors, other)) for axis, other in batching)
        return found


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _one_per_row(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, log).run()


one_per_row = Pass("one_per_row", (GATHER_IN_ROWS, SCATTER_IN_ROWS), _one_per_row)
