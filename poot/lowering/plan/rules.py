"""The table of lower rules: how each op becomes launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from poot.core.equation import Eqn
from poot.core.op import RuleTable

if TYPE_CHECKING:
    from poot.lowering.plan.context import PlanContext

# Emits the launches that write the results of the equation to `ctx.output`.
LowerRule = Callable[["PlanContext", Eqn], None]

lower: RuleTable[LowerRule] = RuleTable("lower")
