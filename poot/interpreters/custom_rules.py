"""What every interpreter does with wrappers: custom derivatives, remat, barriers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.errors import ArgumentError, ForwardModeError
from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.interpreter import current, interpreting
from poot.core.op import CustomRule
from poot.core.ops.wrappers import (
    CheckpointName,
    CustomJvp,
    CustomTangent,
    CustomVjp,
    CustomVmap,
    OptimizationBarrier,
    Remat,
    Wrapper,
)
from poot.interpreters.aval import aval_of
from poot.interpreters.batch.interpreter import (
    BatchInterpreter,
    BatchTracer,
    held_at,
)
from poot.interpreters.batch.table import Axis, batch, batch_name, in_front
from poot.interpreters.closing import bind_closed, opened
from poot.interpreters.eager import transient
from poot.interpreters.graphs import (
    Flags,
    batched_graph,
    chosen,
    identity,
    jvp_graph,
    merged,
    reordered,
    split_graph,
)
from poot.interpreters.jvp.table import Tangent, instantiated, jvp
from poot.interpreters.linearize import jvp_flat
from poot.interpreters.partial import PartialInterpreter, partial
from poot.interpreters.primitives import reduce_sum, type_of, zeros
from poot.interpreters.replay import replay
from poot.interpreters.transpose.backward import backward
from poot.interpreters.transpose.table import Cotangent, Linear, transpose

Results = tuple[tuple[Any, ...], tuple[Tangent, ...]]

# --- op by op ---------------------------------------------------------------


@transient.define(CustomJvp, CustomVjp, CustomVmap, Remat, CheckpointName)
def _body(op: Wrapper, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(replay(op.body, list(map(current().lift, operands))))


@transient.define(OptimizationBarrier)
def _operands(op: OptimizationBarrier, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(current().lift, operands))


@transient.define(CustomTangent)
def _no_tangent(op: CustomTangent, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    raise ForwardModeError(
        f"`{op.rule.name}` has a custom_vjp rule, which gives reverse mode only; jvp, "
        "linearize and jacfwd of it need a custom_jvp rule"
    )


# --- jvp --------------------------------------------------------------------


def _moved(tangents: Sequence[Tangent]) -> Flags:
    return tuple(tangent is not None for tangent in tangents)


def _require_fixed(op: CustomJvp | CustomVjp, tangents: Sequence[Tangent]) -> None:
    if any(_moved(tangents[: op.captured])):
        raise ForwardModeError(
            f"`{op.rule.name}` has a custom derivative and uses a value from around it "
            "that is differentiated too; pass that value as an argument"
        )


@jvp.define(CustomJvp)
def _custom_jvp(
    op: CustomJvp, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> Results:
    _require_fixed(op, tangents)
    (rule,) = op.rule.functions
    values = [current().lift(x) for x in primals]
    outs, moved = rule(
        values[: op.captured], values[op.captured :], tangents[op.captured :]
    )
    # The body's own checks come after its results; the rule has its own.
    words = [zeros(t) for t in op.body.result_types[len(outs) :]]
    return (*outs, *words), (*moved, *[None] * len(words))


@jvp.define(CustomVjp)
def _custom_vjp(
    op: CustomVjp, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> Results:
    _require_fixed(op, tangents)
    forward = op.rule.functions[0]
    values = [current().lift(x) for x in primals]
    own = values[op.captured :]
    outs, residuals, bound = forward(values[: op.captured], own)
    rule = CustomRule(op.rule.name, (bound,))
    given = [
        instantiated(t, x)
        for t, x in zip(tangents[op.captured :], own, strict=True)
        if x.aval.type.dtype.is_differentiable
    ]
    floats = [out for out in outs if out.aval.type.dtype.is_differentiable]
    tangent_op = CustomTangent(rule, len(floats), len(residuals))
    found = iter(tangent_op.bind(*floats, *residuals, *given))
    moved = [
        next(found) if out.aval.type.dtype.is_differentiable else None for out in outs
    ]
    words = [zeros(t) for t in op.body.result_types[len(outs) :]]
    return (*outs, *words), (*moved, *[None] * len(words))


@jvp.define(CustomTangent)
def _second(op: CustomTangent, primals: Any, tangents: Any) -> Results:
    """A tangent of a tangent: the residuals may move, which only transposes know."""
    return _no_tangent(op, primals)


@jvp.define(CustomVmap)
def _through(
    op: CustomVmap, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> Results:
    """The derivative of the body; that is batched as any other function."""
    values = [current().lift(x) for x in primals]
    outs, moved, _ = jvp_flat(
        lambda *xs: replay(op.body, xs), values, tangents, op.rule.name
    )
    return tuple(outs), tuple(moved)


@jvp.define(Remat)
def _remat(op: Remat, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Results:
    moved = _moved(tangents)
    wanted = (False,) * len(op.body.results)
    body, given = jvp_graph(op.body, moved, wanted)
    operands = [*primals, *chosen(tangents, moved)]
    found = iter(bind_closed(replace(op, body=body), *operands))
    outs = tuple(next(found) for _ in given)
    return outs, tuple(next(found) if is_given else None for is_given in given)


@jvp.define(CheckpointName)
def _named(
    op: CheckpointName, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> Results:
    return tuple(op.bind(*primals)), tuple(tangents)


@jvp.define(OptimizationBarrier)
def _barrier(
    op: OptimizationBarrier, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> Results:
    moved = _moved(tangents)
    found = iter(op.bind(*primals, *chosen(tangents, moved)))
    outs = tuple(next(found) for _ in primals)
    return outs, tuple(next(found) if is_moved else None for is_moved in moved)


# --- partial evaluation -----------------------------------------------------


@partial.define(CustomJvp, CustomVjp, CustomVmap, CheckpointName)
def _opened(
    interpreter: PartialInterpreter, op: Wrapper, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Unknown is what it is linear in, so that no derivative will be asked of it."""
    with interpreting(interpreter):
        return tuple(replay(op.body, [interpreter.lift(x) for x in operands]))


@partial.define(Remat)
def _rematerialized(
    interpreter: PartialInterpreter, op: Remat, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Known results now; the rest by a wrapper that computes again what is not kept."""
    body = op.body
    flags = tuple(map(interpreter.is_unknown, operands))
    saved = _saved(op.policy, body, flags)
    # What a loop or a branch in the body gives may be known in part.
    asked = extract(body, body.inputs, [*body.results, *saved])
    split = split_graph(
        asked, flags, (False,) * len(asked.results), (True,) * len(flags)
    )
    made = len(split.known.results) - split.computed
    first = reordered(split.known, range(len(split.known.inputs)), range(made))
    given = [x for x in operands if not interpreter.is_unknown(x)]
    found = interpreter.parent.process(replace(op, body=first), tuple(given))
    unknown = split.given[: len(body.results)]
    again = extract(body, [*body.inputs, *saved], chosen(body.results, unknown))
    rest = (*operands, *found[made - len(saved) :])
    staged = interpreter.staging.process(replace(op, body=again), rest)
    return tuple(merged(unknown, staged, found))


def _saved(
    policy: CustomRule | None, body: Graph, is_unknown: Sequence[bool]
) -> list[ValueId]:
    """The known values of the body that the policy wants kept."""
    unknown = set(chosen(body.inputs, is_unknown))
    saved: list[ValueId] = []
    for eqn in body.eqns:
        if any(not isinstance(x, Scalar) and x in unknown for x in eqn.inputs):
            unknown.update(eqn.outs)
        elif _keeps(policy, body, eqn.op, eqn.inputs):
            saved += eqn.outs
    return saved


@partial.define(OptimizationBarrier)
def _barriers_apart(
    interpreter: PartialInterpreter, op: OptimizationBarrier, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """One of what is known and one of the rest: known values stay known."""
    unknown = tuple(map(interpreter.is_unknown, operands))
    known = tuple(x for x, u in zip(operands, unknown, strict=True) if not u)
    first = interpreter.parent.process(op, known) if known else ()
    rest = interpreter.staging.process(op, tuple(chosen(operands, unknown)))
    return tuple(merged(unknown, rest, first))


def _keeps(
    policy: CustomRule | None, body: Graph, op: Any, inputs: Sequence[Any]
) -> bool:
    if policy is None:
        return False
    (keeps,) = policy.functions
    return bool(keeps(op, *(body.type(x) for x in inputs)))


# --- transposition ----------------------------------------------------------


@transpose.define(CustomTangent)
def _pulled(
    op: CustomTangent, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    (pull,) = op.rule.functions
    first = op.results + op.residuals
    given = [
        zeros(_type(x)) if ct is None else ct
        for ct, x in zip(cotangents, operands, strict=False)
    ]
    # Literals are values to the user's rule, as they were in the forward one.
    saved = [current().lift(x) for x in operands[op.results : first]]
    found = pull(saved, given)
    linear = [
        ct if isinstance(x, Linear) else None
        for ct, x in zip(found, operands[first:], strict=True)
    ]
    return (*[None] * first, *linear)


def _type(x: Any) -> Any:
    return x.type if isinstance(x, Linear) else x.aval.type


@transpose.define(CustomJvp, CustomVjp, CustomVmap, CheckpointName)
def _linear_body(
    op: Wrapper, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    return tuple(backward(op.body, operands, cotangents))


@transpose.define(Remat)
def _recomputed(
    op: Remat, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    """What the body needs of known values is computed here, behind a barrier."""
    known = [x for x in operands if not isinstance(x, Linear)]
    behind = iter(OptimizationBarrier().bind(*known) if known else ())
    inputs = [x if isinstance(x, Linear) else next(behind) for x in operands]
    return tuple(pulled_back(op.body, inputs, cotangents))


@transpose.define(OptimizationBarrier)
def _barrier_back(
    op: OptimizationBarrier, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    return tuple(
        ct if isinstance(x, Linear) else None
        for ct, x in zip(cotangents, operands, strict=True)
    )


def pulled_back(
    graph: Graph, inputs: Sequence[Any], cotangents: Sequence[Cotangent]
) -> list[Cotangent]:
    """As `backward`, for graphs whose loops and branches are linear in part only."""
    inner = PartialInterpreter(current(), "a transposed function")
    values = [
        inner.unknown(aval_of(x.type)) if isinstance(x, Linear) else x for x in inputs
    ]
    with interpreting(inner):
        outs = replay(graph, values)
    moving = [
        (out, ct)
        for out, ct in zip(outs, cotangents, strict=True)
        if ct is not None and inner.is_unknown(out)
    ]
    rest = inner.finish([out for out, _ in moving])
    given = [*rest.residuals, *(x for x in inputs if isinstance(x, Linear))]
    found = backward(rest.graph, given, [ct for _, ct in moving])
    linear = iter(found[len(rest.residuals) :])
    return [next(linear) if isinstance(x, Linear) else None for x in inputs]


# --- batching ---------------------------------------------------------------


def _over_batch(
    op: CustomJvp | CustomVjp, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[list[Any], tuple[Flags, Flags], Graph, Flags]:
    """Operands with the batch in front, which have one, and the body over it.

    What is captured comes first, also in the flags.
    """
    batched = tuple(axis is not None for axis in axes)
    values = [
        x if axis is None else in_front(x, axis, size)
        for x, axis in zip(operands, axes, strict=True)
    ]
    floats = (True,) * len(op.body.results)
    over, given = batched_graph(op.body, size, batched, floats, batch_name())
    body, taken = opened(over)
    count = len(taken) + op.captured
    flags = (*[False] * len(taken), *batched)
    return [*taken, *values], (flags[:count], flags[count:]), body, given


def _lifted(
    function: Callable[..., Any], size: int, flags: Sequence[Flags]
) -> Callable[..., Any]:
    """A rule over lists of values as one over lists with the batch in front.

    `flags` says of each list which values have a batch; results all get one.
    """

    name = batch_name()

    def lifted(*lists: Sequence[Any]) -> tuple[list[Any], ...]:
        below = current()
        inner = BatchInterpreter(below, "a custom rule", size, name)
        given = [
            [
                x if x is None else BatchTracer(inner, below.lift(x), 0 if b else None)
                for x, b in zip(values, own, strict=True)
            ]
            for values, own in zip(lists, flags, strict=True)
        ]
        with inner.running():
            made = function(*given)
            lists_out = [
                [x if x is None else inner.lift(x) for x in values] for values in made
            ]
        return tuple(
            [x if x is None else held_at(x, 0) for x in values] for values in lists_out
        )

    return lifted


@batch.define(CustomJvp)
def _batched_jvp(
    op: CustomJvp, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    values, (captured, own), body, given = _over_batch(op, size, operands, axes)
    (rule,) = op.rule.functions
    lifted = _lifted(rule, size, (captured, own, own))
    over = CustomJvp(body, CustomRule(op.rule.name, (lifted,)), len(captured))
    return tuple(over.bind(*values)), tuple(0 if g else None for g in given)


@batch.define(CustomVjp)
def _batched_vjp(
    op: CustomVjp, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    values, (captured, own), body, given = _over_batch(op, size, operands, axes)
    (forward,) = op.rule.functions

    def over_forward(around: Sequence[Any], primals: Sequence[Any]) -> Any:
        kept: list[Any] = []

        def outs_and_residuals(*lists: Sequence[Any]) -> Any:
            outs, residuals, pull = forward(*lists)
            kept.append(pull)
            return outs, residuals

        lifted = _lifted(outs_and_residuals, size, (captured, own))
        outs, residuals = lifted(around, primals)
        flags = (
            (True,) * len(residuals),
            (True,) * len([x for x in outs if x.aval.type.dtype.is_differentiable]),
        )
        over_pull = _lifted(lambda r, c: (kept[-1](r, c),), size, flags)
        floats = [
            has_batch
            for x, has_batch in zip(primals, own, strict=True)
            if x.aval.type.dtype.is_differentiable
        ]

        def pull(saved: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            (found,) = over_pull(saved, cotangents)
            # What all examples share has the sum of their cotangents.
            return [
                ct if ct is None or has_batch else reduce_sum(ct, [0])
                for ct, has_batch in zip(found, floats, strict=True)
            ]

        return outs, residuals, pull

    over = CustomVjp(body, CustomRule(op.rule.name, (over_forward,)), len(captured))
    return tuple(over.bind(*values)), tuple(0 if g else None for g in given)


@batch.define(CustomVmap)
def _batched_custom(
    op: CustomVmap, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    batched = tuple(axis is not None for axis in axes)
    if any(batched[: op.captured]):
        raise ArgumentError(
            f"`{op.rule.name}` has a custom_vmap rule and uses a batched value from "
            "around it; pass that value as an argument"
        )
    values = [
        current().lift(x) if axis is None else in_front(x, axis, size)
        for x, axis in zip(operands, axes, strict=True)
    ]
    (rule,) = op.rule.functions
    outs, given = rule(size, batched[op.captured :], values[op.captured :])
    words = [zeros(t) for t in op.body.result_types[len(outs) :]]
    made = [*(0 if is_given else None for is_given in given), *[None] * len(words)]
    return (*outs, *words), tuple(made)


@batch.define(Remat)
def _batched_remat(
    op: Remat, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    batched = tuple(axis is not None for axis in axes)
    values = [
        x if axis is None else in_front(x, axis, size)
        for x, axis in zip(operands, axes, strict=True)
    ]
    body, given = batched_graph(
        op.body, size, batched, (False,) * len(op.body.results), batch_name()
    )
    found = bind_closed(replace(op, body=body), *values)
    return tuple(found), tuple(0 if g else None for g in given)


@batch.define(CheckpointName)
def _batched_name(
    op: CheckpointName, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    (x,) = operands
    return tuple(replace(op, body=identity(type_of(x))).bind(x)), tuple(axes)


@batch.define(OptimizationBarrier)
def _batched_barrier(
    op: OptimizationBarrier, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    return tuple(op.bind(*operands)), tuple(axes)


@batch.define(CustomTangent)
def _batched_tangent(
    op: CustomTangent, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    values = [in_front(x, axis, size) for x, axis in zip(operands, axes, strict=True)]
    (pull,) = op.rule.functions
    flags = (True,) * op.residuals, (True,) * op.results
    lifted = _lifted(lambda r, c: (pull(r, c),), size, flags)
    rule = CustomRule(op.rule.name, (lambda r, c: lifted(r, c)[0],))
    found = replace(op, rule=rule).bind(*values)
    return tuple(found), (0,) * op.results
