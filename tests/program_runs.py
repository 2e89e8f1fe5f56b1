"""Runs programs eagerly, jitted with every value shown, and jitted as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import poot
from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Unary,
    UnaryOp,
)
from poot.core.types import Storage, TensorType
from poot.interpreters.backend import use_backend
from poot.lowering.compile import lower, plan
from tests.backends import device_backend
from tests.error_bounds import accumulates, assert_within_bounds
from tests.graph_runs import run_all
from tests.kernel_harness import device
from tests.numerics import (
    Array,
    assert_same_bits,
    is_nan,
    random_bits,
    random_in,
    special_values,
)

Values = dict[ValueId, Array]
# What shows which NaN it was, which no two executors need to agree on.
_SHOWS_NAN = (
    BitcastConvert(dtypes.uint32).key,
    Unary[UnaryOp.SIGNBIT],
    Binary[BinaryOp.COPYSIGN],
)


def program_arguments(graph: Graph, seed: int) -> list[Array]:
    """Arguments of which a third are special values and a third any bits."""
    rng = np.random.default_rng(seed)
    return [_argument(rng, graph.type(value)) for value in graph.arguments]


def _argument(rng: np.random.Generator, type: TensorType) -> Array:
    kind = rng.integers(0, 3, type.shape)
    if type.dtype.itemsize == 1 and not (type.dtype.is_integer or type.dtype.is_bool):
        return random_bits(rng, type)
    plain = random_in(rng, type, -20.0, 20.0)
    special = rng.choice(special_values(type.dtype), type.shape)
    chosen = np.where(kind == 0, plain, np.where(kind == 1, special, 0))
    bits = random_bits(rng, type)
    return np.where(kind == 2, bits, chosen.astype(type.dtype.numpy))


def showing_all(graph: Graph) -> Graph:
    """The same equations, each value that they make being a result."""
    builder = Builder()
    names: dict[ValueId, ValueId] = {}
    for value in graph.inputs:
        names[value] = builder.input(graph.type(value))

    def renamed(operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else names[operand]

    for index, eqn in enumerate(graph.eqns):
        operands = tuple(map(renamed, eqn.inputs))
        outs = builder.emit(eqn.op, operands, graph.source(index))
        names.update(zip(eqn.outs, outs, strict=True))
        for out in outs:
            builder.result(out)
    return builder.finish()


def run_eagerly(graph: Graph, args: Sequence[Array]) -> Values:
    """Every value, op by op as users' code without jit runs."""
    use_backend(device_backend())
    values: dict[ValueId, Any] = {
        value: poot.Array.from_numpy(arg)
        for value, arg in zip(graph.arguments, args, strict=True)
    }
    for eqn in graph.eqns:
        operands = [o if isinstance(o, Scalar) else values[o] for o in eqn.inputs]
        made = eqn.op.bind(*operands)
        outs = made if eqn.op.multiple_results else (made,)
        values.update(zip(eqn.outs, outs, strict=True))
    return {value: np.asarray(array) for value, array in values.items()}


def run_jitted(graph: Graph, args: Sequence[Array]) -> Values:
    """Every value of the lowered graph that shows them all."""
    shown = showing_all(graph)
    lowered = lower(shown, device().info).graph
    found = run_all(lowered, plan(lowered, device().info), args)
    made = [out for eqn in graph.eqns for out in eqn.outs]
    return dict(zip((*graph.arguments, *made), (*args, *found), strict=True))


def run_as_it_is(graph: Graph, args: Sequence[Array]) -> list[tuple[ValueId, Array]]:
    """The outputs of the lowered graph, with the values that they are."""
    info = device().info
    lowered = lower(graph, info).graph
    found = run_all(lowered, plan(lowered, info), args, calls=2)
    ends = [*graph.results, *graph.exports.values()]
    ends += [pair.value for pair in graph.state]
    return list(zip(ends, found, strict=True))


def assert_equations_are_right(graph: Graph, values: Values, how: str) -> None:
    """Each equation gives what the oracle says of the operands that it had."""
    flush = not device().info.keeps_subnormals32
    for index, eqn in enumerate(graph.eqns):
        operands = [o.array if isinstance(o, Scalar) else values[o] for o in eqn.inputs]
        results = [values[out] for out in eqn.outs]
        where = f"{how}, equation {index} ({eqn.op}) of\n{graph}"
        assert_within_bounds(eqn, operands, results, flush, where)


def may_differ(graph: Graph, values: Values) -> set[ValueId]:
    """The values that two right executors may have different bits of.

    The order of some additions or products decides these, or which NaN something is.
    """
    found: set[ValueId] = set()
    for eqn in graph.eqns:
        read = [o for o in eqn.inputs if not isinstance(o, Scalar)]
        operands = [o.array if isinstance(o, Scalar) else values[o] for o in eqn.inputs]
        shows_nan = eqn.op.key in _SHOWS_NAN and any(map(_has_nan, operands))
        if found.intersection(read) or shows_nan or accumulates(eqn, operands):
            found.update(eqn.outs)
    return found


def _has_nan(x: Array) -> bool:
    return bool(is_nan(x).any())


def assert_program(graph: Graph, seed: int) -> None:
    """Eager and jitted, each equation is right; and the two are the same bits.

    All but what depends on the order of additions is the same, values that kernels keep
    to themselves and those they store.
    """
    assert all(graph.values[v].storage is not Storage.CONST for v in graph.inputs)
    args = program_arguments(graph, seed)
    eager = run_eagerly(graph, args)
    assert_equations_are_right(graph, eager, f"seed {seed}, eager")
    jitted = run_jitted(graph, args)
    assert_equations_are_right(graph, jitted, f"seed {seed}, jitted")
    free = may_differ(graph, eager)
    for value, array in jitted.items():
        if value not in free:
            where = f"seed {seed}, %{value} jitted and eager in\n{graph}"
            assert_same_bits(array, eager[value], where)
    for value, array in run_as_it_is(graph, args):
        if value not in free:
            where = f"seed {seed}, output %{value} and eager in\n{graph}"
            assert_same_bits(array, eager[value], where)
