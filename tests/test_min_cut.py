"""The cheapest cut, against all cuts of small graphs."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from poot.lowering.passes.min_cut import NodeCut

NODES = 7


def separates(
    cut: set[int], edges: list[tuple[int, int]], starts: set[int], ends: set[int]
) -> bool:
    waiting, seen = [n for n in starts if n not in cut], set()
    while waiting:
        node = waiting.pop()
        if node in ends:
            return False
        seen.add(node)
        waiting += [b for a, b in edges if a == node and b not in cut | seen]
    return True


def cheapest(
    prices: list[int], edges: list[tuple[int, int]], starts: set[int], ends: set[int]
) -> set[int]:
    cut = NodeCut(dict(enumerate(prices)))
    for edge in edges:
        cut.connect(*edge)
    for node in starts:
        cut.begin(node)
    for node in ends:
        cut.end(node)
    return cut.cheapest()


@given(
    st.lists(st.integers(1, 9), min_size=NODES, max_size=NODES),
    st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1))),
    st.sets(st.integers(0, NODES - 1), max_size=3),
    st.sets(st.integers(0, NODES - 1), max_size=3),
)
def test_no_cut_is_cheaper(
    prices: list[int], pairs: list[tuple[int, int]], starts: set[int], ends: set[int]
) -> None:
    edges = [(a, b) for a, b in pairs if a < b]
    found = cheapest(prices, edges, starts, ends)
    assert separates(found, edges, starts, ends)
    every = range(NODES)
    least = min(
        sum(prices[n] for n in cut)
        for cut in chain.from_iterable(combinations(every, k) for k in range(NODES + 1))
        if separates(set(cut), edges, starts, ends)
    )
    assert sum(prices[n] for n in found) == least


def test_of_equal_cuts_the_last_is_taken() -> None:
    assert cheapest([3, 3, 3], [(0, 1), (1, 2)], {0}, {2}) == {2}


def test_a_node_that_costs_nothing_is_cut() -> None:
    assert cheapest([5, 0, 5], [(0, 1), (1, 2)], {0}, {2}) == {1}
