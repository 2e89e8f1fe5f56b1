"""Transposes of products in which each row has a matrix of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import Clamp
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.indexing import Gather, GatherMode, GeneralGather
from poot.core.ops.matmul import DotGeneral, IndexedMatMul
from poot.core.ops.scatter import Scatter, ScatterMode, ScatterOp, ScatterUpdate
from poot.core.ops.sort import Sort
from poot.core.types import TensorType
from poot.interpreters import primitives as p
from poot.interpreters.transpose.table import (
    Cotangent,
    Linear,
    require_one_linear,
    transpose,
)


@transpose.define(IndexedMatMul)
def _indexed_matmul(
    op: IndexedMatMul, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    """Summed up in the dtype of the result at least, and rounded to the operand's."""
    x, w, idx = operands
    (ct,) = cts
    require_one_linear(op, x, w)
    if isinstance(x, Linear):
        matrices = p.transpose(p.cast(w, p.type_of(ct).dtype), (0, 2, 1))
        return p.cast(IndexedMatMul().bind(ct, matrices, idx), x.type.dtype), None, None
    if not (w.type.size and p.type_of(ct).size):
        return None, None, None
    x = p.cast(x, p.type_of(ct).dtype)
    return None, p.cast(_of_matrices(ct, x, idx, w.type), w.type.dtype), None


def _of_matrices(ct: Any, x: Any, idx: Any, w: TensorType) -> Any:
    """Each matrix's sum of the outer products of its rows, which are M in all.

    They are not held at once, M x K x N elements, but summed up by chunks of rows that
    have one matrix, of which there are fewer than twice as many as matrices.
    """
    rows, count = p.type_of(x).shape[0], w.shape[0]
    matrices = _clamped(idx, count)
    chunked = rows > 2 * count
    if chunked:
        source, matrices = _chunks(matrices, rows, count)
        x, ct = _taken(x, source), _taken(ct, source)
    else:
        x, ct = (p.reshape(v, (rows, 1, p.type_of(v).shape[1])) for v in (x, ct))
    wide = p.type_of(ct).dtype.compute
    products = DotGeneral((1,), (1,), (0,), (0,), wide).bind(x, ct)
    dims = ScatterDims((1, 2), (0,), (0,))
    added = Scatter(ScatterOp.ADD, dims, ScatterMode.DROP, indices_are_sorted=chunked)
    indices = p.reshape(matrices, (*p.type_of(matrices).shape, 1))
    return added.bind(p.zeros(TensorType(w.shape, wide)), indices, products)


def _clamped(idx: Any, count: int) -> Any:
    """Indices into `count` matrices, as i32."""
    dtype = p.type_of(idx).dtype
    last = min(count - 1, _highest(dtype))
    inside = Clamp().bind(p.number(0, dtype), idx, p.number(last, dtype))
    return p.cast(inside, dtypes.int32)


def _highest(dtype: DType) -> int:
    return (1 << dtype.bits - dtype.is_signed) - 1


def _chunks(matrices: Any, rows: int, count: int) -> tuple[Any, Any]:
    """Chunks of rows of one matrix: which rows, [chunks, size], and which matrix.

    Places without a row hold `rows`, and so do chunks without any instead of a matrix.
    """
    size = -(-rows // count)
    chunks = (rows + count * (size - 1)) // size
    i32, add = dtypes.int32, CumulativeOp.SUM
    positions = p.iota(i32, (rows,), 0)
    sorted_, order = Sort(0).bind(matrices, positions)
    tally = Scatter(ScatterOp.ADD, ScatterDims((), (0,), (0,)), ScatterMode.DROP)
    sizes = tally.bind(
        p.zeros(TensorType((count,), i32)),
        p.reshape(matrices, (rows, 1)),
        p.full(p.number(1, i32), (rows,)),
    )
    filled = p.div(p.add(sizes, p.number(size - 1, i32)), p.number(size, i32))
    # From the place among the sorted rows to that in the chunks, for each matrix.
    places = p.mul(filled, p.number(size, i32))
    gaps = p.sub(places, sizes)
    shift = p.sub(Cumulative(add, 0).bind(gaps), gaps)
    place = p.add(positions, Gather(0).bind(shift, sorted_))
    none = p.full(p.number(rows, i32), (chunks * size,))
    source = ScatterUpdate().bind(none, order, place)
    of_chunk = ScatterUpdate().bind(
        p.full(p.number(count, i32), (chunks,)),
        sorted_,
        p.div(place, p.number(size, i32)),
    )
    return p.reshape(source, (chunks, size)), of_chunk


def _taken(x: Any, source: Any) -> Any:
    """The rows that `source` numbers, with zeros for what lies outside."""
    shape = p.type_of(source).shape
    dims = GatherDims((2,), (0,), (0,))
    zero = p.number(0, p.type_of(x).dtype)
    gather = GeneralGather(dims, (1, p.type_of(x).shape[1]), GatherMode.FILL, zero)
    return gather.bind(x, p.reshape(source, (*shape, 1)))
