"""A layered layout of a directed graph: what is needed stands above its readers.

Boxes are put in layers, long edges are led through points in the layers between, each
layer is ordered by the mean place of its neighbours (Sugiyama, Tagawa and Toda 1981),
and moved within that order towards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_GAP_X, _GAP_Y = 24.0, 36.0
# A point where an edge passes a layer.
_POINT_WIDTH = 6.0
MARGIN = 16.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The upper left corner of each box, the points of each edge, the whole size."""

    corners: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def arrange(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]
) -> Arrangement:
    """Lay out boxes of some sizes; edges go from box to box, without cycles."""
    if not sizes:
        return Arrangement([], [], 2 * MARGIN, 2 * MARGIN)
    layer_of = _layers(len(sizes), edges)
    widths = [width for width, _ in sizes]
    heights = [height for _, height in sizes]
    chains = []
    for source, target in edges:
        chain = [source]
        for layer in range(layer_of[source] + 1, layer_of[target]):
            chain.append(len(widths))
            layer_of.append(layer)
            widths.append(_POINT_WIDTH)
            heights.append(0.0)
        chains.append([*chain, target])
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for chain in chains:
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    layers: list[list[int]] = [[] for _ in range(max(layer_of) + 1)]
    for box, layer in enumerate(layer_of):
        layers[layer].append(box)
    _order(layers, above, below)
    centers = _centers(layers, widths, above, below)
    return _placed(layers, layer_of, centers, widths, heights, chains, len(sizes))


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: below all that it needs; sources just above their use."""
    below: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in edges:
        below[source].append(target)
        waits[target] += 1
    layer = [0] * count
    sources = [box for box in range(count) if not waits[box]]
    ready = list(sources)
    for box in ready:
        for target in below[box]:
            layer[target] = max(layer[target], layer[box] + 1)
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    for box in sources:
        if below[box]:
            layer[box] = min(layer[target] for target in below[box]) - 1
    return layer


def _order(
    layers: list[list[int]], above: list[list[int]], below: list[list[int]]
) -> None:
    """Order each layer by the mean place of neighbours, downwards and upwards."""
    place = [0.0] * len(above)

    def settle(layer: list[int]) -> None:
        for number, box in enumerate(layer):
            place[box] = number / max(1, len(layer) - 1)

    for layer in layers:
        settle(layer)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for layer in layers if downwards else reversed(layers):
            wanted = {
                box: sum(place[n] for n in neighbours[box]) / len(neighbours[box])
                if neighbours[box]
                else place[box]
                for box in layer
            }
            layer.sort(key=wanted.__getitem__)
            settle(layer)


def _centers(
    layers: list[list[int]],
    widths: Sequence[float],
    above: list[list[int]],
    below: list[list[int]],
) -> list[float]:
    """The middle of each box, in the order of its layer, near its neighbours."""
    centers = [0.0] * len(widths)
    for layer in layers:
        _move(layer, widths, centers, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for layer in layers if downwards else reversed(layers):
            wanted = [
                sum(centers[n] for n in neighbours[box]) / len(neighbours[box])
                if neighbours[box]
                else centers[box]
                for box in layer
            ]
            _move(layer, widths, centers, wanted)
    return centers


def _move(
    layer: list[int],
    widths: Sequence[float],
    centers: list[float],
    wanted: Sequence[float],
) -> None:
    """Put boxes where they want to be, in least squares, without any overlap.

    Less the room that those before take, places must not decrease: neighbours that
    would are pooled at their mean.
    """
    rooms, room = [], 0.0
    for box in layer:
        room += widths[box] / 2
        rooms.append(room)
        room += widths[box] / 2 + _GAP_X
    pools: list[tuple[float, int]] = []
    for wish, taken in zip(wanted, rooms, strict=True):
        pools.append((wish - taken, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools.pop(-2), pools.pop()
            pools.append(((a * m + b * n) / (m + n), m + n))
    found = [mean for mean, count in pools for _ in range(count)]
    for box, mean, taken in zip(layer, found, rooms, strict=True):
        centers[box] = mean + taken


def _placed(
    layers: list[list[int]],
    layer_of: list[int],
    centers: list[float],
    widths: Sequence[float],
    heights: Sequence[float],
    chains: Sequence[Sequence[int]],
    count: int,
) -> Arrangement:
    left = min(c - w / 2 for c, w in zip(centers, widths, strict=True)) - MARGIN
    tops: list[float] = []
    bottoms: list[float] = []
    top = MARGIN
    for layer in layers:
        tops.append(top)
        bottoms.append(top + max(heights[box] for box in layer))
        top = bottoms[-1] + _GAP_Y
    corners = [
        (centers[box] - widths[box] / 2 - left, tops[layer_of[box]])
        for box in range(count)
    ]
    routes = []
    for chain in chains:
        first = chain[0]
        points = [(centers[first] - left, tops[layer_of[first]] + heights[first])]
        # Sideways in the gaps between layers only, where no box is.
        for box in chain[:-1]:
            x, level = centers[box] - left, layer_of[box]
            if box != first:
                points.append((x, tops[level]))
            points.append((x, bottoms[level]))
        last = chain[-1]
        points.append((centers[last] - left, tops[layer_of[last]]))
        routes.append(points)
    right = max(c + w / 2 for c, w in zip(centers, widths, strict=True)) - left
    return Arrangement(corners, routes, right + MARGIN, top - _GAP_Y + MARGIN)
