"""The NumPy meaning of every primitive, and of graphs: it defines poot's semantics."""

from poot.core.oracle import (  # noqa: F401 (they fill the table)
    composite,
    control,
    conv,
    cumulative,
    elementwise,
    host,
    indexing,
    matmul,
    random,
    reduce,
    scatter,
    shape,
    sort,
    window,
    wrappers,
)
from poot.core.oracle.evaluate import Evaluation, evaluate, evaluate_all
from poot.core.oracle.table import impl

__all__ = ["Evaluation", "evaluate", "evaluate_all", "impl"]
