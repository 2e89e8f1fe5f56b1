"""The cheapest set of nodes that cuts a source from a sink."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class _Flow:
    """A flow network of numbered vertices, by Dinic's algorithm (1970)."""

    def __init__(self, vertices: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(vertices)]
        # Edge e goes to `heads[e]`; e ^ 1 is the same edge backwards.
        self.heads: list[int] = []
        self.room: list[float] = []

    def connect(self, tail: int, head: int, capacity: float) -> None:
        for vertex, other, room in ((tail, head, capacity), (head, tail, 0.0)):
            self.edges[vertex].append(len(self.heads))
            self.heads.append(other)
            self.room.append(room)

    def saturate(self, source: int, sink: int) -> None:
        """Push as much as can be."""
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return
            tried = [0] * len(self.edges)
            # More than one path for the same levels only saves time.
            while self._push(source, sink, levels, tried):
                pass

    def _levels(self, source: int) -> list[int]:
        """How many edges with room lead from the source to each vertex, or -1."""
        levels = [-1] * len(self.edges)
        levels[source] = 0
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            for edge in self.edges[vertex]:
                head = self.heads[edge]
                if self.room[edge] > 0 and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    waiting.append(head)
        return levels

    def _push(
        self, source: int, sink: int, levels: Sequence[int], tried: list[int]
    ) -> bool:
        """Push along one shortest path; False if there is none left."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edges = self.edges[vertex]
            while tried[vertex] < len(edges):
                edge = edges[tried[vertex]]
                head = self.heads[edge]
                if self.room[edge] > 0 and levels[head] == levels[vertex] + 1:
                    break
                tried[vertex] += 1
            if tried[vertex] < len(edges):
                path.append(edges[tried[vertex]])
                vertex = self.heads[path[-1]]
            elif path:
                # A dead end: back, and on with the next edge.
                vertex = self.heads[path.pop() ^ 1]
                tried[vertex] += 1
            else:
                return False
        pushed = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= pushed
            self.room[edge ^ 1] += pushed
        return True

    def reaching(self, sink: int) -> list[bool]:
        """Which vertices still reach the sink."""
        found = [False] * len(self.edges)
        found[sink] = True
        waiting = deque([sink])
        while waiting:
            vertex = waiting.popleft()
            for edge in self.edges[vertex]:
                tail = self.heads[edge]
                if self.room[edge ^ 1] > 0 and not found[tail]:
                    found[tail] = True
                    waiting.append(tail)
        return found


class NodeCut(Generic[N]):
    """A directed graph whose nodes have prices, and what it costs to cut it."""

    def __init__(self, prices: Mapping[N, float]) -> None:
        self._numbers = {node: number for number, node in enumerate(prices)}
        self._source, self._sink = 2 * len(prices), 2 * len(prices) + 1
        self._flow = _Flow(2 * len(prices) + 2)
        for node, price in prices.items():
            self._flow.connect(*self._ends(node), price)

    def _ends(self, node: N) -> tuple[int, int]:
        return 2 * self._numbers[node], 2 * self._numbers[node] + 1

    def connect(self, node: N, other: N) -> None:
        self._flow.connect(self._ends(node)[1], self._ends(other)[0], math.inf)

    def begin(self, node: N) -> None:
        """The source leads to the node."""
        self._flow.connect(self._source, self._ends(node)[0], math.inf)

    def end(self, node: N) -> None:
        """The node leads to the sink."""
        self._flow.connect(self._ends(node)[1], self._sink, math.inf)

    def cheapest(self) -> set[N]:
        """The nodes of the cheapest cut; of several, those nearest to the sink."""
        self._flow.saturate(self._source, self._sink)
        reaching = self._flow.reaching(self._sink)
        return {
            node
            for node in self._numbers
            if reaching[self._ends(node)[1]] and not reaching[self._ends(node)[0]]
        }
