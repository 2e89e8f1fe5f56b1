"""What contraction kernels make of the sums: worked on by the epilogue, and stored.

The epilogue is evaluated where the result of a head would be stored, on neighbouring
columns at once. Where columns meet, as in rope, they are heads apart from each other:
see `plan/column_sections.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.dtypes import DType
from poot.lowering.kernels.contraction import CHUNK, Landing
from poot.lowering.kernels.coordinates import (
    Coordinate,
    Coordinates,
    Lanes,
    Linear,
    Strided,
)
from poot.lowering.kernels.elements import clamped_index, store_element, store_run
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.operands import (
    Operands,
    source_operands,
    target_operands,
)
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import Region
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value


class Finish:
    """The epilogue of one contraction in a kernel under construction."""

    def __init__(
        self,
        k: KernelBuilder,
        region: Region,
        landings: Sequence[Landing],
        operands: Operands,
    ) -> None:
        self._k = k
        self._region = region
        dense: list[Landing | None] = [None] * len(region.targets)
        self._landings = landings or dense
        self._sources = source_operands(operands, region)
        self._targets = target_operands(operands, region.targets)

    def store(
        self,
        coordinates: Coordinates,
        at: Coordinate,
        heads: Sequence[Pack],
        inside: Sequence[Value | None],
        whole: bool,
    ) -> None:
        """Compute and write the results at the places `at` of dense tensors.

        `heads` are the elements of each head there, rounded; of lanes that are not
        `inside` nothing is written. `whole`: all are, side by side and aligned.
        """
        region = self._region
        given = [lambda _, pack=pack: pack for pack in heads]
        evaluator = Evaluator(coordinates, region, self._sources, given)
        packs = [
            evaluator.value(
                target.value, Index((Block(evaluator.shape(target.value), at),))
            )
            for target in region.targets
        ]
        total = evaluator.size(region.total)
        assert isinstance(total, int)
        # Only now, since a result may overwrite an operand.
        for target, pointer, landing, pack in zip(
            region.targets, self._targets, self._landings, packs, strict=True
        ):
            there, bound, runs = at, total, whole
            if landing is not None:
                there, bound = self._landed(evaluator, landing, at), landing.bound
                runs = whole and landing.aligned and _is_run(coordinates, there)
            places = [
                coordinates.value(coordinates.place(there, lane))
                for lane in range(len(inside))
            ]
            self._write(pointer, target.dtype, places, pack, inside, runs, bound)

    def _landed(
        self, evaluator: Evaluator, landing: Landing, at: Coordinate
    ) -> Coordinate:
        """Where in its buffer the result at place `at` of a dense tensor goes."""
        maps = evaluator.coordinates
        index = Index((Block(landing.shape, at),))
        place = evaluator.place(landing.groups, landing.offset, index)
        whole = Index((Block(evaluator.sizes(self._region.shape), at),))
        for start in landing.starts:
            number = self._region.numbers[start.number]
            # Scalars may have axes of size 1, if others were merged.
            alone = evaluator.operand_index(number, whole)
            (value,) = evaluator.value(number, alone)
            value = clamped_index(self._k, value, start.dtype, start.count)
            step = maps.linear(value).times(start.step)
            place = maps.add(place, maps.uniform(step))
        return place

    def _write(
        self,
        pointer: Pointer,
        dtype: DType,
        places: Sequence[Value],
        pack: Pack,
        inside: Sequence[Value | None],
        whole: bool,
        bound: int,
    ) -> None:
        k = self._k
        values = [lane_of(pack, lane) for lane in range(len(places))]
        if whole:
            store_run(k, pointer, dtype, places[0], values, bound)
            return
        for place, value, valid in zip(places, values, inside, strict=True):
            if valid is None:
                store_element(k, pointer, dtype, place, value, bound)
                continue
            with k.when(valid):
                store_element(k, pointer, dtype, place, value, bound)


def _is_run(coordinates: Coordinates, at: Coordinate) -> bool:
    """Whether a chunk stands side by side and aligned."""
    if not isinstance(at, Strided) or at.step != 1:
        return False
    return coordinates.multiple(at.base) % CHUNK == 0


def neighbours(
    coordinates: Coordinates, base: Linear, steps: Sequence[Linear]
) -> Coordinate:
    """The places `base` plus each step, as one stride if one walks them."""
    first = steps[0]
    distances = [step.plus(first.times(-1)) for step in steps]
    if len(steps) == 1:
        return Strided(base.plus(first), 0)
    stride = distances[1]
    if not stride.terms and all(
        not d.terms and d.constant == n * stride.constant
        for n, d in enumerate(distances)
    ):
        return Strided(base.plus(first), stride.constant)
    return Lanes(tuple(base.plus(step) for step in steps))
