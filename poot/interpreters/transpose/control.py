"""Transposes of control flow: loops run backwards, branches stay branches."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from poot.core.errors import NotLinearError
from poot.core.graph import Graph
from poot.core.ops.control import Cond, Scan, While
from poot.core.types import TensorType
from poot.interpreters.closing import bind_closed
from poot.interpreters.graphs import Flags, chosen, transposed_graph
from poot.interpreters.nested import stage_closed
from poot.interpreters.primitives import add, type_of, zeros
from poot.interpreters.transpose.backward import backward
from poot.interpreters.transpose.table import Cotangent, Linear, transpose


def _linear(operands: Sequence[Any]) -> Flags:
    return tuple(isinstance(operand, Linear) for operand in operands)


def _placed(linear: Flags, found: Sequence[Cotangent]) -> tuple[Cotangent, ...]:
    """Cotangents of the linear operands, None for the others."""
    rest = iter(found)
    return tuple(next(rest) if is_linear else None for is_linear in linear)


@transpose.define(Scan)
def _scan(
    op: Scan, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    fixed = op.consts + op.carries
    linear = _linear(operands)
    consts, xs = linear[: op.consts], linear[fixed:]
    results = len(op.body.results)
    moved_ys = tuple(ct is not None for ct in cotangents[op.carries : results])
    body = _transposed_body(op, consts, xs, moved_ys)
    types = op.body.input_types
    const_types = chosen(types[: op.consts], consts)
    carry_types = types[op.consts : fixed]
    carried = [
        zeros(type) if ct is None else ct
        for ct, type in zip(cotangents[: op.carries], carry_types, strict=True)
    ]
    values = [x for x, is_linear in zip(operands, linear, strict=True) if not is_linear]
    known_consts = op.consts - sum(consts)
    known_xs = values[len(values) - (len(xs) - sum(xs)) :]
    backwards = Scan(
        body,
        op.length,
        known_consts,
        op.carries + sum(consts),
        not op.reverse,
    )
    found = bind_closed(
        backwards,
        *values[:known_consts],
        *carried,
        *map(zeros, const_types),
        *[ct for ct in cotangents[op.carries : results] if ct is not None],
        *known_xs,
    )
    of_consts = found[op.carries : op.carries + sum(consts)]
    of_xs = found[op.carries + sum(consts) :]
    of_carries = [
        ct if is_linear else None
        for ct, is_linear in zip(found, linear[op.consts : fixed], strict=False)
    ]
    return (
        *_placed(consts, of_consts),
        *of_carries[: op.carries],
        *_placed(xs, of_xs),
    )


def _transposed_body(op: Scan, consts: Flags, xs: Flags, ys: Flags) -> Graph:
    return _cached_body(op.body, op.consts, op.carries, consts, xs, ys)


@functools.lru_cache(1024)
def _cached_body(
    body: Graph, all_consts: int, carries: int, consts: Flags, xs: Flags, ys: Flags
) -> Graph:
    """One step back.

    Inputs: known consts, cotangents of the carries, sums of those of linear consts,
    cotangents of ys, known xs. Results: the next ones of the former two, then the
    cotangents of linear xs.
    """
    types = body.input_types
    fixed = all_consts + carries
    known_consts = [t for t, is_l in zip(types, consts, strict=False) if not is_l]
    linear_consts = chosen(types[:all_consts], consts)
    known_xs = [t for t, is_l in zip(types[fixed:], xs, strict=True) if not is_l]
    y_types = chosen(body.result_types[carries:], ys)
    parts = (known_consts, types[all_consts:fixed], linear_consts, y_types, known_xs)

    def step(*flat: Any) -> list[Any]:
        values = iter(flat)
        own, of_carries, sums, of_ys, own_xs = (
            [next(values) for _ in part] for part in parts
        )
        given, given_xs, moved = iter(own), iter(own_xs), iter(of_ys)
        inputs = [
            *(
                Linear(t) if is_l else next(given)
                for t, is_l in zip(types, consts, strict=False)
            ),
            *map(Linear, types[all_consts:fixed]),
            *(
                Linear(t) if is_l else next(given_xs)
                for t, is_l in zip(types[fixed:], xs, strict=True)
            ),
        ]
        cts = [*of_carries, *(next(moved) if is_moved else None for is_moved in ys)]
        found = backward(body, inputs, cts)
        added = [
            total if ct is None else add(total, ct)
            for total, ct in zip(sums, chosen(found[:all_consts], consts), strict=True)
        ]
        return [
            *_filled(found[all_consts:fixed], types[all_consts:fixed]),
            *added,
            *_filled(chosen(found[fixed:], xs), chosen(types[fixed:], xs)),
        ]

    flat_types = [type for part in parts for type in part]
    return stage_closed(step, flat_types, "a loop backwards")


def _filled(found: Sequence[Cotangent], types: Sequence[TensorType]) -> list[Any]:
    pairs = zip(found, types, strict=True)
    return [zeros(type) if ct is None else ct for ct, type in pairs]


@transpose.define(Cond)
def _cond(
    op: Cond, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    index, *rest = operands
    linear = _linear(rest)
    results = len(op.branches[0].results)
    moved = tuple(ct is not None for ct in cotangents[:results])
    wanted: Flags = (False,) * len(linear)
    for branch in op.branches:
        wanted = transposed_graph(branch, linear, moved, wanted)[1]
    turned = Cond(
        tuple(transposed_graph(b, linear, moved, wanted)[0] for b in op.branches)
    )
    known = [x for x, is_linear in zip(rest, linear, strict=True) if not is_linear]
    given = [ct for ct in cotangents[:results] if ct is not None]
    found = bind_closed(turned, index, *known, *given)
    return None, *_placed(wanted, found[: sum(wanted)])


@transpose.define(While)
def _while(
    op: While, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    given = ", ".join(
        str(x.type if isinstance(x, Linear) else type_of(x)) for x in operands
    )
    raise NotLinearError(
        f"a while loop over ({given}) cannot run backwards, since nobody knows how "
        "often it will run; use lax.scan, or lax.fori_loop with Python numbers as its "
        "bounds"
    )
