"""What depends on no input is computed once, before the first call.

Only what costs more than reading it does: iotas and the arithmetic of indices on them
stay where they are, since a kernel computes them from its index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.op import Op, PrimitiveKey
from poot.core.ops.composite import Table
from poot.core.ops.control import ControlOp
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.host import HostOp
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import Storage
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of

MAKE_TABLE = Rewrite(
    "make_table",
    "what depends on no input is the same in every call: computed once, then read",
)

# Tables take memory as long as the program lives: so much in all.
_MOST_BYTES = 16 << 20
# Each is an operand of the kernels that read it, of which they have so many.
_MOST_TABLES = 16
# Each holds all that computes it: a long chain would stand there again and again.
_MOST_EQUATIONS = 64

_CHEAP: tuple[type[Op], ...] = (
    *(Iota, Broadcast, Reshape, Transpose, Slice, Reverse, Concat, Pad),
    *(Cast, BitcastConvert, Compare, Select, Clamp),
)
_U, _B = UnaryOp, BinaryOp
_CHEAP_MEMBERS: frozenset[PrimitiveKey] = frozenset(
    {
        *(Unary[m] for m in (_U.NEG, _U.ABS, _U.SIGN, _U.FLOOR, _U.CEIL, _U.TRUNC)),
        *(Unary[m] for m in (_U.ROUND, _U.NOT, _U.CLZ, _U.POPCOUNT, _U.ISNAN)),
        *(Unary[m] for m in (_U.ISINF, _U.ISFINITE, _U.SIGNBIT)),
        *(Binary[m] for m in BinaryOp),
    }
    - {Binary[m] for m in (_B.POW, _B.ATAN2, _B.HYPOT, _B.NEXTAFTER, _B.GCD)}
)


@dataclass(slots=True)
class _Tables:
    """What is computed of literals alone, and what of it others need."""

    graph: Graph
    makers: dict[ValueId, int] = field(default_factory=dict)
    # The costly values that others read, through cheap ones maybe.
    wanted: list[ValueId] = field(default_factory=list)

    def find(self) -> None:
        for index, eqn in enumerate(self.graph.eqns):
            if _is_pure(eqn.op) and all(map(self._is_computed, eqn.inputs)):
                self.makers.update(dict.fromkeys(eqn.outs, index))
        read: set[ValueId] = set()
        for index in range(len(self.graph.eqns) - 1, -1, -1):
            eqn = self.graph.eqns[index]
            if eqn.outs[0] not in self.makers:
                read.update(v for v in _values(eqn) if v in self.makers)
            elif not read.isdisjoint(eqn.outs):
                if _is_cheap(eqn.op):
                    read.update(_values(eqn))
                else:
                    self.wanted += [out for out in eqn.outs if out in read]

    def _is_computed(self, operand: ValueId | Scalar) -> bool:
        return isinstance(operand, Scalar) or operand in self.makers

    def body(self, value: ValueId) -> Graph | None:
        """The graph that computes a value, unless it is long."""
        needed: set[int] = set()
        waiting = [value]
        while waiting:
            index = self.makers[waiting.pop()]
            if index in needed:
                continue
            needed.add(index)
            if len(needed) > _MOST_EQUATIONS:
                return None
            waiting += _values(self.graph.eqns[index])
        return extract(self.graph, (), (value,), witnesses=False)


def _values(eqn: Eqn) -> Iterator[ValueId]:
    return (v for v in eqn.inputs if not isinstance(v, Scalar))


def _is_pure(op: Op) -> bool:
    """Whether it gives the same whenever it runs, and is one that a table may hold."""
    return not (op.composite or isinstance(op, ControlOp | HostOp))


def _is_cheap(op: Op) -> bool:
    """Whether computing an element costs about as little as reading it."""
    return isinstance(op, _CHEAP) or op.key in _CHEAP_MEMBERS


def _make_tables(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    tables = _Tables(graph)
    tables.find()
    edit = graph.edit()
    count = taken = 0
    for value in reversed(tables.wanted):
        index = tables.makers[value]
        where, type = place_of(graph, index), graph.type(value)
        if taken + type.size_bytes > _MOST_BYTES:
            detail = (
                f"{type} has {type.size_bytes} B beside {taken} B of others, tables at "
                f"most {_MOST_BYTES}"
            )
            log.decline(MAKE_TABLE, where, Reason.LARGE_TABLE, detail)
            continue
        if count == _MOST_TABLES:
            detail = f"there are {count} tables already"
            log.decline(MAKE_TABLE, where, Reason.OPERAND_LIMIT, detail)
            continue
        body = tables.body(value)
        if body is None:
            detail = f"more than {_MOST_EQUATIONS} equations compute it"
            log.decline(MAKE_TABLE, where, Reason.SIZE_LIMIT, detail)
            continue
        source = graph.source(index)
        (new,) = edit.emit(Table(body), (), index, source, storage=Storage.COMPUTED)
        edit.replace(value, new)
        log.fire(MAKE_TABLE, where)
        count, taken = count + 1, taken + type.size_bytes
    return edit.commit() if log.fired(MAKE_TABLE) else graph


def setup_graph(graph: Graph) -> Graph | None:
    """The graph whose results are the tables of another, in order; None without any."""
    builder = Builder()
    for index, eqn in enumerate(graph.eqns):
        if not isinstance(eqn.op, Table):
            continue
        moved: dict[ValueId, ValueId] = {}
        for step in eqn.op.body.eqns:
            operands = (o if isinstance(o, Scalar) else moved[o] for o in step.inputs)
            outs = builder.emit(step.op, tuple(operands), graph.source(index))
            moved.update(zip(step.outs, outs, strict=True))
        (result,) = eqn.op.body.results
        builder.result(moved[result])
    made = builder.finish()
    return made if made.results else None


# Sub-graphs run as often as their loops do, within one call.
make_tables = Pass("make_tables", (MAKE_TABLE,), _make_tables, nested=False)
