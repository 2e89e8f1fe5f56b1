"""The table of transposes with all its rules."""

from poot.interpreters.transpose import (  # noqa: F401 (they fill the table)
    contractions,
    control,
    convolution,
    elementwise,
    indexed_matmul,
    indexing,
    reductions,
    shape,
    updates,
)
from poot.interpreters.transpose.table import Linear, transpose, transpose_rule

__all__ = ["Linear", "transpose", "transpose_rule"]
