"""The rows of control flow: bodies that give the same bits in any order of work."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.loops import CountedLoop, FlagLoop, Switch
from poot.core.types import TensorType
from poot.lowering.opened import opened
from tests.numerics import Array
from tests.op_row import BOOL, Case, OpRow

DTYPES = (
    *BOOL,
    dtypes.int8,
    dtypes.int32,
    dtypes.uint64,
    dtypes.float16,
    dtypes.float32,
)
_COUNTER = TensorType((), dtypes.int32)
# Few whole numbers: a While counts with them.
_FEW: dict[str, Any] = {"domains": ((0.0, 6.0),), "whole": True, "anywhere": False}


def scan_body(element: TensorType) -> Graph:
    """Keeps the maximum and the minimum, which change places; gives a bounded x.

    Of matrices the bounded x is largest so far, which no element tells for itself. The
    check fails in the iteration in which the counter exceeds three.
    """
    y, along = "%7", ""
    if element.ndim == 2:
        y = "%11"
        along = f"%11: {element} = cumulative[op=max, axis=0, reverse=false](%7)"
    return Graph.parse(f"""graph {{
      device %0: {element}
      device %1: {element}
      device %2: {element}
      device %3: i32[]
      device %4: {element}
      %5: {element} = binary[op=max](%1, %4)
      %6: {element} = binary[op=min](%2, %4)
      %7: {element} = binary[op=min](%0, %4)
      %8: i32[] = binary[op=add](%3, 1:i32)
      %9: bool[] = compare[op=gt](%8, 3:i32)
      %10: i32[] = cast[to=i32](%9)
      {along}
      result %6
      result %5
      result %8
      result {y}
      result %3
      witness %10 "more than three"
    }}""")


def _scan(
    op: Scan, const: Array, a: Array, b: Array, count: Array, xs: Array
) -> tuple[Array, ...]:
    ys, counts, word = np.zeros_like(xs), np.zeros(op.length, np.int32), 0
    for i in sorted(range(op.length), reverse=op.reverse):
        ys[i], counts[i] = np.minimum(const, xs[i]), count
        if const.ndim == 2:
            ys[i] = np.maximum.accumulate(ys[i], axis=0)
        a, b = np.minimum(b, xs[i]), np.maximum(a, xs[i])
        count = np.asarray(count + 1, np.int32)
        if count > 3 and not word:
            word = i + 1
    return a, b, count, ys, counts, np.asarray(word, np.int32)


def _scan_cases(dtype: DType) -> list[Case]:
    cases = []
    for shape, length, reverse in (
        ((3, 5), 4, False),
        ((4, 8), 3, True),
        ((7,), 3, True),
        ((), 5, False),
        ((2, 1), 0, False),
        ((0,), 2, False),
    ):
        element, xs = TensorType(shape, dtype), TensorType((length, *shape), dtype)
        op = Scan(scan_body(element), length, 1, 3, reverse)
        cases.append(Case(op, (element, element, element, _COUNTER, xs)))
    return cases


def while_of(element: TensorType) -> While:
    """Counts up to a limit, while the carry and a const take turns in being kept."""
    condition = Graph.parse(f"""graph {{
      device %0: i32[]
      device %1: i32[]
      device %2: {element}
      device %3: {element}
      %4: bool[] = compare[op=lt](%1, %0)
      %5: bool[] = compare[op=gt](%1, 2:i32)
      %6: i32[] = cast[to=i32](%5)
      result %4
      witness %6 "counted beyond two"
    }}""")
    body = Graph.parse(f"""graph {{
      device %0: {element}
      device %1: i32[]
      device %2: {element}
      device %3: {element}
      %4: i32[] = binary[op=add](%1, 1:i32)
      %5: {element} = binary[op=max](%2, %0)
      result %4
      result %3
      result %5
    }}""")
    return While(condition, body, 1, 1)


def _while(
    op: While, limit: Array, const: Array, count: Array, a: Array, b: Array
) -> tuple[Array, ...]:
    iteration = word = 0
    while True:
        if count > 2 and not word:
            word = iteration + 1
        if not count < limit:
            return count, a, b, np.asarray(word, np.int32)
        count, a, b = np.asarray(count + 1, np.int32), b, np.maximum(a, const)
        iteration += 1


def _while_cases(dtype: DType) -> list[Case]:
    cases = []
    for shape in ((4, 3), (), (0, 2)):
        element = TensorType(shape, dtype)
        types = (_COUNTER, element, _COUNTER, element, element)
        cases.append(Case(while_of(element), types))
    return cases


def branches_of(element: TensorType) -> tuple[Graph, ...]:
    """The larger, the smaller with a check that fails, and the second as it is."""
    texts = (
        "%2: {0} = binary[op=max](%0, %1) result %2",
        "%2: {0} = binary[op=min](%0, %1) %3: i32[] = binary[op=add](2:i32, 3:i32) "
        'result %2 witness %3 "the second"',
        "result %1",
    )
    head = f"graph {{ device %0: {element} device %1: {element} "
    return tuple(Graph.parse(head + text.format(element) + " }") for text in texts)


def _cond(op: Cond, index: Array, a: Array, b: Array) -> tuple[Array, ...]:
    chosen = min(int(index), len(op.branches) - 1)
    result = (np.maximum, np.minimum, lambda a, b: b)[chosen](a, b)
    words = [np.asarray(5 * (chosen == 1), np.int32)] if len(op.branches) > 1 else []
    return result, *words


def _cond_cases(dtype: DType) -> list[Case]:
    cases = []
    for shape, count in (((3, 4), 3), ((5,), 2), ((), 1), ((2, 0), 2)):
        element = TensorType(shape, dtype)
        op = Cond(branches_of(element)[:count])
        cases.append(Case(op, (_COUNTER, element, element)))
    return cases


# --- what passes make of them -------------------------------------------------


def _counted_cases(dtype: DType) -> list[Case]:
    cases = []
    for case in _scan_cases(dtype):
        assert isinstance(case.op, Scan)
        graph = opened(case.op, case.types)
        for eqn in graph.eqns:
            if isinstance(eqn.op, CountedLoop):
                types = tuple(graph.type(operand) for operand in eqn.inputs)
                cases.append(Case(eqn.op, types))
    return cases


def _counted(
    op: CountedLoop, a: Array, b: Array, count: Array, word: Array, *fixed: Array
) -> tuple[Array, ...]:
    """States, those that ys are among too, then the ys that are stacked."""
    scan = Scan(op.body, op.trips, 1, 3, op.reverse)
    const, xs = fixed
    *carries, ys, counts, found = _scan(scan, const, a, b, count, xs)
    return (*carries, word if word else found, ys, counts)


def flag_loop(element: TensorType) -> FlagLoop:
    """Counts the flag down, while two states change places and one is raised."""
    body = Graph.parse(f"""graph {{
      state %0: i32[]
      state %1: {element}
      state %2: {element}
      device %3: {element}
      %4: i32[] = binary[op=sub](%0, 1:i32)
      %5: {element} = binary[op=max](%1, %3)
      next %0 = %4
      next %1 = %2
      next %2 = %5
    }}""")
    return FlagLoop(body)


def _flag_cases(dtype: DType) -> list[Case]:
    elements = [TensorType(shape, dtype) for shape in ((4, 3), (), (0, 2))]
    return [Case(flag_loop(e), (_COUNTER, e, e, e)) for e in elements]


def _flag(op: FlagLoop, flag: Array, a: Array, b: Array, c: Array) -> tuple[Array, ...]:
    for _ in range(int(flag)):
        a, b = b, np.maximum(a, c)
    return np.zeros_like(flag), a, b


def _switch_cases(dtype: DType) -> list[Case]:
    """As many branches as there may be indices."""
    cases = []
    for shape in ((3, 4), (), (2, 0)):
        element = TensorType(shape, dtype)
        larger, _, second = branches_of(element)
        op = Switch((larger, second, second, larger, second, larger, larger))
        cases.append(Case(op, (_COUNTER, element, element)))
    return cases


def _switch(op: Switch, index: Array, a: Array, b: Array) -> tuple[Array, ...]:
    return (np.maximum(a, b) if int(index) in (0, 3, 5, 6) else b,)


def _needs_int64(case: Case) -> bool:
    """Its values are 64-bit integers, and some of them have elements."""
    wide = (dtypes.int64, dtypes.uint64)
    return any(type.size and type.dtype in wide for type in case.types)


ROWS = [
    OpRow(
        case(dtypes.int32)[0].op.key,
        DTYPES,
        case,
        rule,
        needs_int64=_needs_int64,
        **_FEW,
    )
    for case, rule in (
        (_scan_cases, _scan),
        (_while_cases, _while),
        (_cond_cases, _cond),
        (_counted_cases, _counted),
        (_flag_cases, _flag),
        (_switch_cases, _switch),
    )
]
