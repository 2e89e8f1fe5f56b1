"""Contractions, which are linear in each of two operands."""

from __future__ import annotations

from poot.core.ops.conv import Conv
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.interpreters.jvp.definitions import define_bilinear

define_bilinear(MatMul, DotGeneral, IndexedMatMul, Conv)
