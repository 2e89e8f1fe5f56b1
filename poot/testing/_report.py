"""What a cross-check found: outputs, how far they are apart, and a table of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, CrossCheckError
from poot.core.graph import Graph
from poot.core.types import TensorType
from poot.testing._distance import absolute, relative, ulps

Array = np.ndarray[Any, Any]
_MEASURES = {"ulp": ulps, "absolute": absolute, "relative": relative}


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest difference of one kind: where it is, and the two elements there."""

    value: float
    index: tuple[int, ...]
    one: Any
    other: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output by two executors, `one` against `other`. None: it has no elements.

    The relative difference is by the size of `other`; `ulp` counts the floats between,
    of integers it is their difference.
    """

    one: str
    other: str
    ulp: Largest | None
    absolute: Largest | None
    relative: Largest | None

    @classmethod
    def of(cls, one: str, other: str, a: Array, b: Array) -> Comparison:
        found = {name: _largest(measure, a, b) for name, measure in _MEASURES.items()}
        return cls(one, other, **found)

    def __str__(self) -> str:
        return f"{self.one} - {self.other}"


def _largest(measure: Any, a: Array, b: Array) -> Largest | None:
    if not a.size:
        return None
    apart = measure(a, b)
    index = tuple(map(int, np.unravel_index(np.argmax(apart), a.shape)))
    return Largest(float(apart[index]), index, a[index], b[index])


@dataclass(frozen=True, slots=True)
class Output:
    """One output of the graph: its values by executor, and each pair compared.

    `notes` says where JAX means something else on the way to it; JAX's values are then
    no measure of the others.
    """

    name: str
    type: TensorType
    values: dict[str, Array]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    def counts(self, comparison: Comparison) -> bool:
        """Whether a difference of the pair is a fault."""
        return not (self.notes and "jax" in (comparison.one, comparison.other))


@dataclass(frozen=True, slots=True, repr=False)
class CrossCheck:
    """One traced graph on the device, by the oracle and in JAX. Prints as a table."""

    graph: Graph
    # What the device executor ran on.
    device: str
    outputs: tuple[Output, ...]
    # Why JAX is not among the executors, if it is not.
    without_jax: str | None

    def raise_if(
        self,
        *,
        ulp: float | None = None,
        absolute: float | None = None,
        relative: float | None = None,
    ) -> CrossCheck:
        """Raise CrossCheckError where a pair is further apart than one of the limits.

        Pairs with JAX do not count where JAX means something else (see the notes).
        Returns the report itself if all is well.
        """
        limits = {"ulp": ulp, "absolute": absolute, "relative": relative}
        given = {name: most for name, most in limits.items() if most is not None}
        if not given:
            raise ArgumentError("raise_if: give ulp, absolute or relative, or several")
        for output in self.outputs:
            for comparison in filter(output.counts, output.comparisons):
                for name, most in given.items():
                    largest: Largest | None = getattr(comparison, name)
                    if largest is not None and not largest.value <= most:
                        raise CrossCheckError(
                            _fault(output, comparison, name, largest, most)
                        )
        return self

    def __repr__(self) -> str:
        lines = [f"crosscheck of {len(self.outputs)} outputs, device: {self.device}"]
        if self.without_jax is not None:
            lines.append(f"without JAX: {self.without_jax}")
        rows: list[tuple[str, ...]] = [_HEADER]
        for output in self.outputs:
            rows += [_row(output, comparison) for comparison in output.comparisons]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = zip(row, widths, strict=True)
            lines.append("  ".join(f"{c:<{w}}" for c, w in cells).rstrip())
        for output in self.outputs:
            lines += [f"* {output.name}: {note}" for note in output.notes]
        return "\n".join(lines)


_HEADER = ("output", "type", "pair", "ulp", "absolute", "relative", "at")


def _row(output: Output, comparison: Comparison) -> tuple[str, ...]:
    mark = "" if output.counts(comparison) else " *"
    measures = [getattr(comparison, name) for name in _MEASURES]
    numbers = ["-" if m is None else f"{m.value:.3g}" for m in measures]
    # Of differences that are small but not 0 in ulps.
    where = next((m for m in measures if m is not None and m.value), None)
    place = "" if where is None else str(list(where.index))
    return (output.name, str(output.type), f"{comparison}{mark}", *numbers, place)


def _fault(
    output: Output, comparison: Comparison, name: str, largest: Largest, most: float
) -> str:
    return (
        f"crosscheck: {output.name} ({output.type}) is {largest.value:.6g} {name} "
        f"apart at {list(largest.index)}, {most:g} allowed: {comparison.one} has "
        f"{largest.one!r}, {comparison.other} has {largest.other!r}"
    )
