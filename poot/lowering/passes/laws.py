"""What the laws of canonicalize see of a graph in the making, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.op import Op
from poot.core.ops.shape import Broadcast
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Reason, Rewrite


@dataclass(frozen=True, slots=True)
class Becomes:
    """What is to stand for a result: an op on operands, or the one operand itself."""

    rewrite: Rewrite
    operands: tuple[Operand, ...]
    op: Op | None = None


@dataclass(frozen=True, slots=True)
class Declines:
    """Why a rewrite does not apply where it looks as if it might."""

    rewrite: Rewrite
    reason: Reason
    detail: str


Answer = Becomes | Declines | None


@dataclass(slots=True)
class Draft:
    """A graph that is being rewritten from its first equation to its last."""

    edit: GraphEdit
    info: DeviceInfo
    # What stands for each value that is replaced.
    known: dict[ValueId, ValueId] = field(default_factory=dict)
    # The equations as they are now, by result.
    makers: dict[ValueId, Eqn] = field(default_factory=dict)

    def current(self, operand: Operand) -> Operand:
        """The operand, or what stands for it."""
        if isinstance(operand, Scalar):
            return operand
        return self.known.get(operand, operand)

    def maker(self, operand: Operand) -> Eqn | None:
        """The equation that computes an operand."""
        return None if isinstance(operand, Scalar) else self.makers.get(operand)

    def literal(self, operand: Operand) -> Scalar | None:
        """The literal that an operand is, or repeats."""
        if isinstance(operand, Scalar):
            return operand
        eqn = self.makers.get(operand)
        if eqn is None or not isinstance(eqn.op, Broadcast):
            return None
        return eqn.inputs[0] if isinstance(eqn.inputs[0], Scalar) else None


@dataclass(frozen=True, slots=True)
class Site:
    """One equation, with its operands as they are after the changes so far."""

    draft: Draft
    op: Op
    inputs: tuple[Operand, ...]
    type: TensorType

    def given(self, number: int = 0) -> TensorType:
        """The type of an operand."""
        return self.draft.edit.type(self.inputs[number])

    def maker(self, number: int = 0) -> Eqn | None:
        """The equation that computes an operand."""
        return self.draft.maker(self.inputs[number])

    def literal(self, number: int = 0) -> Scalar | None:
        """The literal that an operand is, or repeats."""
        return self.draft.literal(self.inputs[number])

    def repeated(self, rewrite: Rewrite, operand: Operand) -> Becomes:
        """An operand in the place of the result, repeated to its shape."""
        given = self.draft.edit.type(operand)
        if given.shape == self.type.shape and not isinstance(operand, Scalar):
            return Becomes(rewrite, (operand,))
        return Becomes(rewrite, (operand,), Broadcast(self.type.shape))

    @property
    def flushes(self) -> bool:
        """Whether arithmetic on the device takes some results for zeros."""
        # Narrower exponents than that of f32 leave room below.
        shares_range = self.type.dtype in (dtypes.float32, dtypes.bfloat16)
        return shares_range and not self.draft.info.keeps_subnormals32


Law = Callable[[Site], Answer]
