"""All rules of all transformations: importing this module fills their tables."""

from __future__ import annotations

from poot.interpreters import (  # noqa: F401 (they fill the tables)
    collective_rules,
    custom_rules,
    host_rules,
    partial_control,
)
from poot.interpreters.batch.rules import batch
from poot.interpreters.jvp.rules import jvp
from poot.interpreters.partial import partial
from poot.interpreters.transpose.rules import transpose

__all__ = ["batch", "jvp", "partial", "transpose"]
