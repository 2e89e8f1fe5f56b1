"""Donation by a call under transformations, whose ops run one by one.

No program holds the donated memory there. The call takes it from the array at its
start; it goes at its end, or with the derivative that needs it.
Tangents are not donated with their values: rules hand them on as they are, so that
others may have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.interpreters.array import Array
from poot.interpreters.batch.interpreter import BatchTracer
from poot.interpreters.donation import Fit, Groups, fit, given_twice
from poot.interpreters.jvp.interpreter import JvpTracer
from poot.interpreters.partial import PartialInterpreter
from poot.interpreters.replay import replay
from poot.interpreters.transform import TransformTracer


@dataclass(frozen=True, slots=True)
class DonatingCall:
    """A call of the function `name`: its leaves, what they are called, the donated."""

    name: str
    leaves: Sequence[Any]
    paths: Sequence[str]
    donated: Groups


def replay_donating(
    graph: Graph,
    captured: Sequence[Any],
    values: Sequence[Any],
    call: DonatingCall,
    warn: Callable[[list[str]], None],
) -> list[Any]:
    """`graph` on what it captured and the leaves as `values`; donated arrays go.

    `warn` is told of those that no result can use, which stay. DonationError where an
    array is given twice, DeletedArrayError where it has gone already. If the call
    fails, the arrays are as they were.
    """
    groups = list(_groups(graph, len(captured), call))
    taken = _Taken(call, [number for group in groups for number in group])
    try:
        given = list(map(taken.instead, (*captured, *values)))
        known = set(map(id, _residuals()))
        results = replay(graph, given)
        computed = [x for x in _residuals() if id(x) not in known]
        fitted = taken.fit(groups, given, results, computed)
        if fitted.unused:
            warn(list(map(taken.described, fitted.unused)))
    except BaseException:
        taken.give_back()
        raise
    taken.give_back(fitted.donated)
    return results


class _Taken:
    """The donated arrays of a call, and what has their memory while it runs."""

    def __init__(self, call: DonatingCall, numbers: Sequence[int]) -> None:
        self._call = call
        self._arrays: dict[int, Array] = {}
        self._owners: dict[int, Array] = {}
        _require_single_use(call, numbers)
        try:
            for number in numbers:
                self._take(number)
        except BaseException:
            self.give_back()
            raise

    def _take(self, number: int) -> None:
        call = self._call
        array, path = array_below(call.leaves[number]), call.paths[number]
        assert array is not None
        buffer = array.claim(f"was donated to `{call.name}` as {path}")
        if buffer is None:
            raise array.deleted_error(f"argument {path} of `{call.name}`")
        self._arrays[number] = array
        self._owners[id(array)] = Array(buffer, array.aval)

    def give_back(self, kept: Collection[int] = ()) -> None:
        """Have the arrays their memory again, but for those of the leaves `kept`."""
        for number, array in self._arrays.items():
            if number not in kept:
                buffer = self._owners[id(array)].live_buffer()
                # Of what the call has made, a derivative may read it still.
                buffer.shared = True
                array.restore(buffer)

    def instead(self, x: Any) -> Any:
        """The same value over what has the memory now."""
        if isinstance(x, TransformTracer):
            return x.over(self.instead)
        return self._owners.get(id(x), x)

    def described(self, number: int) -> str:
        """What a leaf is, for messages."""
        type = self._arrays[number].aval.type
        return f"the argument `{self._call.paths[number]}` ({type})"

    def fit(
        self,
        groups: Groups,
        given: Sequence[Any],
        results: Sequence[Any],
        computed: Sequence[Any],
    ) -> Fit:
        """What the leaves fit of the results and of what derivatives need."""
        old = {id(array_below(x)) for x in given}
        below = list(map(array_below, (*results, *computed)))
        free = {id(x): x.aval.type for x in below if x is not None and id(x) not in old}
        shown = {id(array_below(x)) for x in results}
        passed_on = {
            number
            for number, array in self._arrays.items()
            if id(self._owners[id(array)]) in shown
        }
        types = {number: array.aval.type for number, array in self._arrays.items()}
        return fit(groups, types, list(free.values()), passed_on)


def array_below(x: Any) -> Array | None:
    """The array that a value is, or is computed with as; None where there is none."""
    while isinstance(x, BatchTracer | JvpTracer):
        x = x.held if isinstance(x, BatchTracer) else x.primal
    return x if type(x) is Array else None


def _all_below(x: Any) -> list[Array]:
    """The arrays that a value consists of, derivatives among them."""
    found: list[Array] = []

    def visit(part: Any) -> Any:
        if type(part) is Array:
            found.append(part)
        return part.over(visit) if isinstance(part, TransformTracer) else part

    visit(x)
    return found


def _groups(graph: Graph, first: int, call: DonatingCall) -> Iterator[tuple[int, ...]]:
    """The donated leaves that are read, as JAX drops the others, and have memory."""
    read = set(graph.uses()).union(graph.results)
    for group in call.donated:
        is_read = any(graph.arguments[first + number] in read for number in group)
        if is_read and all(array_below(call.leaves[n]) is not None for n in group):
            yield group


def _require_single_use(call: DonatingCall, numbers: Sequence[int]) -> None:
    # By identity.
    uses_of: dict[int, list[str]] = defaultdict(list)
    for use, leaf in zip(call.paths, call.leaves, strict=True):
        for array in _all_below(leaf):
            uses_of[id(array)].append(use)
    for number in numbers:
        uses = uses_of[id(array_below(call.leaves[number]))]
        if len(uses) > 1:
            path = call.paths[number]
            others = [use for use in uses if use != path]
            other = others[0] if others else f"the tangent of {path}"
            raise given_twice(call.name, path, other)


def _residuals() -> Iterator[Any]:
    """What the derivatives that are taken around here need of what was computed."""
    interpreter: Any = current()
    while interpreter is not None:
        if isinstance(interpreter, PartialInterpreter):
            yield from interpreter.staging.captured
        interpreter = getattr(interpreter, "parent", None)
