"""The table of JAX's meaning of each primitive, and where JAX means something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core.op import RuleTable

Array = np.ndarray[Any, Any]
# A rule takes the op, the module `jax` and JAX's arrays; it gives an array of JAX's, or
# a tuple of them if the op has several results.
JaxRule = Callable[..., Any]
# Says of an op and NumPy operands why JAX's results are not to be trusted, or None.
DeviationRule = Callable[..., str | None]

jax: RuleTable[JaxRule] = RuleTable("jax")
# Primitives without a rule here mean the same in JAX.
deviates: RuleTable[DeviationRule] = RuleTable("deviates")


def found(module: Any, path: str) -> Callable[..., Any]:
    """The function that a path of names leads to."""
    for name in path.split("."):
        module = getattr(module, name)
    return module  # type: ignore[no-any-return]
