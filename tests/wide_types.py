"""No kernel may ask for 64-bit types where its graph has no 64-bit dtype."""

from __future__ import annotations

from collections.abc import Iterator

from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.core.ops.composite import Fused, FusedRow
from poot.lowering.program import Program
from tests.spirv_words import capabilities

WIDE = {"Float64", "Int64"}


def dtypes_of(graph: Graph) -> Iterator[DType]:
    """The dtypes of all values of a graph, of those within composites too."""
    for eqn in graph.eqns:
        if isinstance(eqn.op, Fused | FusedRow):
            yield from dtypes_of(eqn.op.body)
        yield from (graph.type(value).dtype for value in (*eqn.inputs, *eqn.outs))
    yield from (graph.type(value).dtype for value in graph.inputs)


def check_wide_types(graph: Graph, program: Program) -> None:
    """AssertionError where a kernel requests Float64 or Int64 for nothing.

    Not for addresses either, which are no integers in poot's kernels.
    """
    if any(dtype.itemsize == 8 for dtype in dtypes_of(graph)):
        return
    for kernel in program.kernels.values():
        asked = capabilities(kernel) & WIDE
        assert not asked, f"kernel {kernel.name} requests {asked} for\n{graph}"
