"""What goes to the host while a program runs: records, and calls of its functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.dtypes import by_name
from poot.core.graph import Graph
from poot.core.op import CustomRule, Op, register
from poot.core.ops.control import ControlOp
from poot.core.ops.wrappers import Wrapper
from poot.core.types import TensorType, scalar_type


@dataclass(frozen=True, slots=True)
class HostOp(Op):
    """An op whose rule runs on the host; its function takes the op and NumPy arrays.

    `batch` are the leading sizes of all operands that `vmap` added: the function is
    called once an example.
    """

    site: CustomRule
    batch: tuple[int, ...]
    transient: ClassVar[bool] = True


@register
@dataclass(frozen=True, slots=True)
class Record(HostOp):
    """Hand the operands to a function that looks at them, as `debug.print` does.

    Result: an i32 scalar, which is always 0. A record is kept as a check is that never
    fails: its result is a witness. `ordered` records are not batched.
    """

    ordered: bool
    name: ClassVar[str] = "record"

    def infer(self, *operands: TensorType) -> TensorType:
        return scalar_type(dtypes.int32)


@register
@dataclass(frozen=True, slots=True)
class HostCall(HostOp):
    """The results of a pure function of the host's, of these shapes and dtypes.

    `method` says what `vmap` does with it; empty: it refuses.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype_names: tuple[str, ...]
    method: str
    name: ClassVar[str] = "host_call"
    multiple_results: ClassVar[bool] = True

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return tuple(
            TensorType((*self.batch, *shape), by_name(name))
            for shape, name in zip(self.shapes, self.dtype_names, strict=True)
        )


def regions(op: Op) -> tuple[Graph, ...]:
    """The graphs that an op runs: regions of control flow, the body of a wrapper."""
    if isinstance(op, Wrapper):
        return (op.body,)
    return op.regions if isinstance(op, ControlOp) else ()


def holds(graph: Graph, kind: type[HostOp]) -> bool:
    """Whether some equation, at any depth, is of a kind."""
    return any(
        isinstance(eqn.op, kind)
        or any(holds(region, kind) for region in regions(eqn.op))
        for eqn in graph.eqns
    )
