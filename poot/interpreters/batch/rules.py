"""The table of rules of batching with all its rules."""

from poot.interpreters.batch import (  # noqa: F401 (they fill the table)
    contractions,
    control,
    conv,
    elementwise,
    indexing,
    reductions,
    scatter,
    shape,
    sort,
)
from poot.interpreters.batch.table import batch

__all__ = ["batch"]
