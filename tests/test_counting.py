"""Which values are known to count places."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.passes.counting import Count, counts_in
from tests.pass_harness import graph_of

I3 = "%0: i32[3] = iota[dtype=i32, shape=(3), axis=0](); "
COUNTING = [
    ("%0: i32[2,3] = iota[dtype=i32, shape=(2, 3), axis=1]()", Count(1, 3)),
    ("%0: i32[2,3] = iota[dtype=i32, shape=(2, 3), axis=0]()", Count(3, 2)),
    ("%0: i32[1,3] = iota[dtype=i32, shape=(1, 3), axis=0]()", Count(1, 1)),
    ("%0: f32[3] = iota[dtype=f32, shape=(3), axis=0]()", None),
    ("%0: i8[128] = iota[dtype=i8, shape=(128), axis=0]()", Count(1, 128)),
    ("%0: i8[129] = iota[dtype=i8, shape=(129), axis=0]()", None),
    ("%0: i32[0] = iota[dtype=i32, shape=(0), axis=0]()", None),
    ("%0: i32[] = binary[op=add](1:i32, 2:i32)", None),
    ("%0: i32[3] = broadcast[shape=(3)](0:i32)", None),
    (I3 + "%1: u8[3] = cast[to=u8](%0)", Count(1, 3)),
    (I3 + "%1: f32[3] = cast[to=f32](%0)", None),
    (I3 + "%1: i32[3] = unary[op=neg](%0)", None),
    (I3 + "%1: i32[3,1] = reshape[shape=(3, 1)](%0)", Count(1, 3)),
    ("device %0: i32[3]; %1: i32[3,1] = reshape[shape=(3, 1)](%0)", None),
    ("device %0: i32[3]; %1: u8[3] = cast[to=u8](%0)", None),
    # Repeated along an axis ahead of what counts, or behind it.
    (I3 + "%1: i32[2,3] = broadcast[shape=(2, 3)](%0)", Count(1, 3)),
    (
        I3 + "%1: i32[3,1] = reshape[shape=(3, 1)](%0); "
        "%2: i32[3,5] = broadcast[shape=(3, 5)](%1)",
        Count(5, 3),
    ),
    (
        "%0: i32[1,3,1,2] = iota[dtype=i32, shape=(1, 3, 1, 2), axis=1](); "
        "%1: i32[2,3,4,2] = broadcast[shape=(2, 3, 4, 2)](%0)",
        Count(8, 3),
    ),
    (
        "%0: i32[6] = iota[dtype=i32, shape=(6), axis=0](); "
        "%1: i32[2,1,3] = reshape[shape=(2, 1, 3)](%0); "
        "%2: i32[2,2,3] = broadcast[shape=(2, 2, 3)](%1)",
        None,
    ),
]


@pytest.mark.parametrize(("text", "wanted"), COUNTING)
def test_what_counts(text: str, wanted: Count | None):
    graph = graph_of(text.replace("; ", "\n"))
    (value,) = graph.eqns[-1].outs
    assert counts_in(graph).get(value) == wanted
    if wanted is not None:
        args = [np.zeros(t.shape, t.dtype.numpy) for t in graph.input_types]
        shown = graph_of(text.replace("; ", "\n") + f"\nresult %{value}")
        (found,) = evaluate_all(shown, *args).results
        places = np.arange(found.size) // wanted.step % wanted.size
        assert np.array_equal(found.ravel(), places)


WRAPPED = """
  %0: i32[3] = iota[dtype=i32, shape=(3), axis=0]()
  %1: bool[3] = compare[op={op}]({x}, {bound})
  %2: i32[3] = binary[op=add](%0, 3:i32)
  %3: i32[3] = select(%1, %2, {other})
"""


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, Count(1, 3)),
        ({"bound": "-1:i32"}, Count(1, 3)),
        ({"bound": "1:i32"}, None),
        ({"bound": "%0"}, None),
        ({"x": "-1:i32", "bound": "%0"}, None),
        ({"op": "gt"}, None),
        ({"other": "%2"}, None),
        ({"other": "5:i32"}, None),
    ],
    ids=str,
)
def test_places_are_not_below_zero(changed: dict[str, str], wanted: Count | None):
    parts = {"op": "lt", "x": "%0", "bound": "0:i32", "other": "%0", **changed}
    graph = graph_of(WRAPPED.format(**parts))
    assert counts_in(graph).get(graph.eqns[-1].out) == wanted


@pytest.mark.parametrize(
    ("bounded", "wanted"),
    [
        ("max](0:i32, %0)", Count(1, 3)),
        ("max](%0, 0:i32)", Count(1, 3)),
        ("max](1:i32, %0)", None),
        ("min](2:i32, %0)", Count(1, 3)),
        ("min](1:i32, %0)", None),
        ("max](%1, %0)", None),
        ("max](0:i32, %1)", None),
        ("add](0:i32, %0)", None),
    ],
)
def test_places_within_bounds(bounded: str, wanted: Count | None):
    graph = graph_of(f"""
        %0: i32[3] = iota[dtype=i32, shape=(3), axis=0]()
        %1: i32[3] = broadcast[shape=(3)](0:i32)
        %2: i32[3] = binary[op={bounded}
    """)
    assert counts_in(graph).get(graph.eqns[-1].out) == wanted
