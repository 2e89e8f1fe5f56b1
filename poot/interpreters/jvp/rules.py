"""The table of forward-mode rules, full: what to import it from."""

from __future__ import annotations

from poot.interpreters.jvp import (  # noqa: F401 (they fill the table)
    binary,
    contractions,
    control,
    cumulative,
    indexing,
    reductions,
    scatter,
    shape,
    sort,
    unary,
    window,
)
from poot.interpreters.jvp.table import jvp

__all__ = ["jvp"]
