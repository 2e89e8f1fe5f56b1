"""Batching of control flow: loops over the batch; choices per example are selects."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.elementwise import Clamp, CompareOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.source import at_source
from poot.core.types import TensorType
from poot.interpreters.batch.table import Axis, batch, batch_name, in_front
from poot.interpreters.closing import bind_closed
from poot.interpreters.graphs import Flags, batched_graph, exposed
from poot.interpreters.nested import stage_closed
from poot.interpreters.primitives import (
    compare,
    move_axis,
    number,
    reshape,
    select,
    type_of,
    zeros,
)
from poot.interpreters.replay import replay

Results = tuple[tuple[Any, ...], tuple[Axis, ...]]


def _has_batch(axes: Sequence[Axis]) -> Flags:
    return tuple(axis is not None for axis in axes)


def _axes(given: Sequence[bool], words: int, axis: int = 0) -> list[Axis]:
    return [*(axis if is_given else None for is_given in given), *[None] * words]


@functools.lru_cache(1024)
def _settled(
    body: Graph,
    size: int,
    batched: Flags,
    first: int,
    carries: int,
    name: str | None,
) -> tuple[Graph, Flags, Flags]:
    """The body over a batch: a carry has one if its next value does, and back."""
    others = len(body.results) - carries
    while True:
        moving = batched[first : first + carries]
        graph, given = batched_graph(
            body, size, batched, (*moving, *[False] * others), name
        )
        if given[:carries] == moving:
            return graph, batched, given
        after = batched[first + carries :]
        batched = (*batched[:first], *given[:carries], *after)


@batch.define(Scan)
def _scan(
    op: Scan, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    fixed = op.consts + op.carries
    body, batched, given = _settled(
        op.body, size, _has_batch(axes), op.consts, op.carries, batch_name()
    )
    values = [
        in_front(x, axis, size) if is_batched else x
        for x, axis, is_batched in zip(
            operands[:fixed], axes[:fixed], batched[:fixed], strict=True
        )
    ]
    # The loop runs along axis 0 of an x, the batch of its elements stands after it.
    xs = [
        x if axis is None else move_axis(x, axis, 1)
        for x, axis in zip(operands[fixed:], axes[fixed:], strict=True)
    ]
    over = Scan(body, op.length, op.consts, op.carries, op.reverse)
    found = bind_closed(over, *values, *xs)
    made = [
        *_axes(given[: op.carries], 0),
        *_axes(given[op.carries :], len(op.witnesses), 1),
    ]
    return tuple(found), tuple(made)


@batch.define(Cond)
def _cond(
    op: Cond, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    index, *rest = operands
    batched = _has_batch(axes[1:])
    values = [
        in_front(x, axis, size) if axis is not None else x
        for x, axis in zip(rest, axes[1:], strict=True)
    ]
    if axes[0] is not None:
        return _selected(op, size, in_front(index, axes[0], size), values, batched)
    name = batch_name()
    wanted: Flags = (False,) * len(op.branches[0].results)
    for branch in op.branches:
        wanted = batched_graph(branch, size, batched, wanted, name)[1]
    over = Cond(
        tuple(batched_graph(b, size, batched, wanted, name)[0] for b in op.branches)
    )
    found = bind_closed(over, index, *values)
    return tuple(found), tuple(_axes(wanted, len(op.witnesses)))


def _selected(
    op: Cond, size: int, index: Any, values: Sequence[Any], batched: Flags
) -> Results:
    """All branches run; each example takes the results of its own."""
    last = len(op.branches) - 1
    i32 = dtypes.int32
    place = Clamp().bind(number(0, i32), index, number(last, i32))
    count = len(op.branches[0].results)
    results: list[Any] = []
    words: list[Any] = []
    for which, branch in enumerate(op.branches):
        plain = exposed(branch)
        wanted = (True,) * len(plain.results)
        graph, _ = batched_graph(plain, size, batched, wanted, batch_name())
        found = replay(graph, values)
        own = compare(CompareOp.EQ, place, number(which, i32))
        words += [_worst(own, word) for word in found[count:]]
        results = (
            [_where(own, x, y) for x, y in zip(found, results, strict=False)]
            if results
            else found[:count]
        )
    return (*results, *words), tuple(_axes([True] * count, len(words)))


def _where(chosen: Any, x: Any, y: Any) -> Any:
    """`x` for the examples that are chosen, else `y`; the batch stands in front."""
    shape = type_of(chosen).shape
    spread = reshape(chosen, (*shape, *[1] * (type_of(x).ndim - 1)))
    return select(spread, x, y)


def _worst(own: Any, words: Any) -> Any:
    """The largest word of the examples that count."""
    counted = select(own, words, number(0, dtypes.int32))
    if type_of(counted).size == 0:
        return zeros(TensorType((), dtypes.int32))
    return Reduce(ReduceOp.MAX, 0).bind(counted)


@batch.define(While)
def _while(
    op: While, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    first, consts = op.condition_consts, op.condition_consts + op.body_consts
    carries = len(operands) - consts
    flags, name = _has_batch(axes), batch_name()
    body, batched, given = _settled(
        op.body, size, flags[first:], op.body_consts, carries, name
    )
    moving = batched[op.body_consts :]
    asks = (*flags[:first], *moving)
    condition, asked = batched_graph(op.condition, size, asks, (False,), name)
    if asked[0]:
        return _while_any(op, size, operands, axes)
    is_batched = (*flags[:first], *batched)
    values = [
        in_front(x, axis, size) if has_batch else x
        for x, axis, has_batch in zip(operands, axes, is_batched, strict=True)
    ]
    over = While(condition, body, first, op.body_consts)
    return tuple(bind_closed(over, *values)), tuple(_axes(given, len(op.witnesses)))


def _while_any(
    op: While, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    """The loop runs as long as any example goes on; the others keep their carries."""
    first, consts = op.condition_consts, op.condition_consts + op.body_consts
    carries = len(operands) - consts
    flags = _has_batch(axes)
    fixed = flags[:consts]
    over = _any_loop(op, size, fixed, carries, batch_name())
    values = [
        in_front(x, axis, size) if axis is not None else x
        for x, axis in zip(operands[:consts], axes[:consts], strict=True)
    ]
    values += [
        in_front(x, axis, size)
        for x, axis in zip(operands[consts:], axes[consts:], strict=True)
    ]
    # The body asks the condition again, so that it needs the consts of both.
    found = bind_closed(over, *values[:first], *values[:consts], *values[consts:])
    return tuple(found), tuple(_axes([True] * carries, len(op.witnesses)))


@functools.lru_cache(1024)
def _any_loop(
    op: While, size: int, fixed: Flags, carries: int, name: str | None
) -> While:
    first, consts = op.condition_consts, len(fixed)
    all_carries = (True,) * carries
    asks, _ = batched_graph(
        op.condition, size, (*fixed[:first], *all_carries), (True,), name
    )
    plain = exposed(op.body)
    step, _ = batched_graph(
        plain, size, (*fixed[first:], *all_carries), (True,) * len(plain.results), name
    )
    types = _over_batch(op, size, fixed)

    def condition(*values: Any) -> list[Any]:
        (goes_on,) = replay(asks, values)
        return [_any(goes_on)]

    def body(*values: Any) -> list[Any]:
        before = values[consts:]
        (goes_on,) = replay(exposed(asks), [*values[:first], *before])[:1]
        found = replay(step, values[first:])
        kept = [_where(goes_on, x, y) for x, y in zip(found, before, strict=False)]
        for word, witness in zip(found[carries:], op.body.witnesses, strict=True):
            with at_source(witness.source):
                current().witness(_worst(goes_on, word), witness.message, ())
        return kept

    conditions = [*types[:first], *types[consts:]]
    return While(
        stage_closed(condition, conditions, "a condition"),
        stage_closed(body, types, "a body"),
        first,
        consts,
    )


def _over_batch(op: While, size: int, fixed: Flags) -> list[TensorType]:
    """The types of all operands of a loop whose carries all have a batch."""
    first = op.condition_consts
    types = [
        *op.condition.input_types[:first],
        *op.body.input_types[: op.body_consts],
        *op.body.input_types[op.body_consts :],
    ]
    flags = (*fixed, *[True] * (len(types) - len(fixed)))
    return [
        TensorType((size, *t.shape), t.dtype) if has_batch else t
        for t, has_batch in zip(types, flags, strict=True)
    ]


def _any(flags: Any) -> Any:
    return Reduce(ReduceOp.ANY, 0).bind(flags)
