"""Ops, types, graphs, rule tables and the cell of the current interpreter."""

# Graph text may name any op, so all of them are registered with the package.
from poot.core.ops import composite, elementwise, indexing, matmul, reduce, shape

__all__ = ["composite", "elementwise", "indexing", "matmul", "reduce", "shape"]
