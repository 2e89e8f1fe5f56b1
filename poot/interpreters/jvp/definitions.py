"""What the rules of many primitives have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.op import Op, PrimitiveKey
from poot.interpreters.jvp.table import Tangent, instantiated, jvp, results_of
from poot.interpreters.primitives import add, broadcast, number, type_of

Rule = Callable[..., Any]
Key = PrimitiveKey | type[Op]
One = tuple[tuple[Any], tuple[Tangent]]


def like(x: Any, value: float) -> Scalar:
    """A Python number of the dtype of `x`."""
    return number(value, type_of(x).dtype)


def total(terms: Iterable[Tangent], shape: Sequence[int]) -> Tangent:
    """The sum of the tangents, repeated to `shape`; None if all are."""
    found = [term for term in terms if term is not None]
    if not found:
        return None
    first, *rest = found
    for term in rest:
        first = add(first, term)
    return broadcast(first, shape)


def define_constant(*keys: Key) -> None:
    """Results that change in steps, or that are no floats: tangents of zeros."""

    @jvp.define(*keys)
    def rule(op: Op, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Any:
        results = results_of(op, primals)
        return results, (None,) * len(results)


def define_linear(*keys: Key) -> None:
    """Linear in the first operand, which alone has a tangent."""

    @jvp.define(*keys)
    def rule(op: Op, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
        return (op.bind(*primals),), (op.bind(tangents[0], *primals[1:]),)


def define_jointly_linear(*keys: Key) -> None:
    """Linear in all operands together that are floats; the others say where."""

    @jvp.define(*keys)
    def rule(op: Op, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
        result = op.bind(*primals)
        given = [
            instantiated(t, x) if type_of(x).dtype.is_differentiable else x
            for x, t in zip(primals, tangents, strict=True)
        ]
        return (result,), (op.bind(*given),)


def define_bilinear(*keys: Key) -> None:
    """Linear in each of the first two operands."""

    @jvp.define(*keys)
    def rule(op: Op, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
        a, b, *rest = primals
        da, db, *_ = tangents
        result = op.bind(*primals)
        terms = (
            None if da is None else op.bind(da, b, *rest),
            None if db is None else op.bind(a, db, *rest),
        )
        return (result,), (total(terms, type_of(result).shape),)
