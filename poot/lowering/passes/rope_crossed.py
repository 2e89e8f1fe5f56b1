"""Sums that turn pairs whose elements are crossed by more than moves and signs.

They are not made a Rope; the log is told what crosses the elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand
from poot.core.graph import Graph
from poot.core.ops.elementwise import Binary, BinaryOp, Select
from poot.core.ops.indexing import Gather, GeneralGather
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.lowering.passes.driver import Reason, Refusal, named
from poot.lowering.passes.origins import MOST_ELEMENTS, Origin, Origins, is_move

_CROSSING = (DotGeneral, Gather, GeneralGather, MatMul)
# What may turn signs, beside negation.
_SIGNING = (Binary(BinaryOp.MUL), Select())


def crossed(
    graph: Graph, origins: Origins, sum: Eqn, products: Sequence[Eqn]
) -> Refusal | None:
    """Why the sum of two products is no Rope, if one takes x and one x crossed."""
    shape = graph.type(sum.out).shape
    if not shape or not 2 <= shape[-1] <= MOST_ELEMENTS:
        return None
    for straight, other in (products, products[::-1]):
        for x in straight.inputs:
            whole = origins.aligned(x, len(shape) - 1, shape)
            for maker in _makers(graph, origins, other, shape):
                if _crosses(graph, origins, maker, whole, shape):
                    given = named(graph, *maker.inputs)
                    return Refusal(
                        Reason.CROSSED,
                        f"{maker.op} makes {named(graph, maker.out)} of {given}; takes "
                        f"slices, concatenations and negations of {named(graph, x)}",
                    )
    return None


def _makers(
    graph: Graph, origins: Origins, product: Eqn, shape: Sequence[int]
) -> Iterator[Eqn]:
    """What makes the values that the factors are moved from."""
    for factor in product.inputs:
        for base in origins.aligned(factor, len(shape) - 1, shape).bases:
            maker = origins.makers.get(base.value)
            # A contraction may put the axis elsewhere, from where a move brings it.
            while maker is not None and is_move(graph, graph.eqns[maker]):
                (source, *_) = graph.eqns[maker].inputs
                maker = (
                    None if isinstance(source, Scalar) else origins.makers.get(source)
                )
            if maker is not None:
                yield graph.eqns[maker]


def _crosses(
    graph: Graph, origins: Origins, maker: Eqn, x: Origin, shape: Sequence[int]
) -> bool:
    """Whether it makes elements of x elements in other places."""
    if isinstance(maker.op, _CROSSING):
        return any(_is_of(graph, origins, operand, x) for operand in maker.inputs)
    if maker.op not in _SIGNING or graph.type(maker.out).shape != shape:
        return False
    for operand in maker.inputs:
        if isinstance(operand, Scalar):
            continue
        own = origins.aligned(operand, len(shape) - 1, shape)
        if own.bases == x.bases and not np.array_equal(own.at, x.at):
            return True
    return False


def _is_of(graph: Graph, origins: Origins, operand: Operand, x: Origin) -> bool:
    """Whether an operand is elements of the values that x is of."""
    if isinstance(operand, Scalar) or not graph.type(operand).shape:
        return False
    own = origins.of(operand, graph.type(operand).ndim - 1)
    return {base.value for base in own.bases} == {base.value for base in x.bases}
