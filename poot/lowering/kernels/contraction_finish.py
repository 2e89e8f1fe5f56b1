"""What contraction kernels make of the sums: worked on by the epilogue, and stored.

The epilogue is evaluated where the result of a head would be stored, on neighbouring
columns at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.dtypes import DType
from poot.lowering.kernels.coordinates import (
    Coordinate,
    Coordinates,
    Lanes,
    Linear,
    Strided,
)
from poot.lowering.kernels.elements import store_element, store_run
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import Region
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value


class Finish:
    """The epilogue of one contraction in a kernel under construction."""

    def __init__(self, k: KernelBuilder, region: Region) -> None:
        self._k = k
        self._region = region
        self._sources = source_operands(k, region)
        self._targets = target_operands(k, region.targets)

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
        index = Index((Block(evaluator.sizes(region.shape), at),))
        packs = [evaluator.value(target.value, index) for target in region.targets]
        total = evaluator.size(region.total)
        assert isinstance(total, int)
        # Only now, since a result may overwrite an operand.
        for target, pointer, pack in zip(
            region.targets, self._targets, packs, strict=True
        ):
            self._write(
                pointer, target.dtype, coordinates, at, pack, inside, whole, total
            )

    def _write(
        self,
        pointer: Pointer,
        dtype: DType,
        coordinates: Coordinates,
        at: Coordinate,
        pack: Pack,
        inside: Sequence[Value | None],
        whole: bool,
        total: int,
    ) -> None:
        k, lanes = self._k, len(inside)
        values = [lane_of(pack, lane) for lane in range(lanes)]
        places = [coordinates.value(coordinates.place(at, n)) for n in range(lanes)]
        if whole:
            store_run(k, pointer, dtype, places[0], values, total)
            return
        for place, value, valid in zip(places, values, inside, strict=True):
            if valid is None:
                store_element(k, pointer, dtype, place, value, total)
                continue
            with k.when(valid):
                store_element(k, pointer, dtype, place, value, total)


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
