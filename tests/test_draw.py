"""`poot.draw`: valid pictures of graphs of any size, with all that they are made of."""

from __future__ import annotations

import functools
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.core.errors import ArgumentError
from poot.inspection._layers import arrange
from poot.inspection._svg import Box, Line, boxes_svg, clean
from poot.lowering.compile import lower, placement, plan
from poot.lowering.program import Space
from tests.backends import each_backend as each_backend

X = np.ones((4, 8), np.float32)
SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing: Any) -> list[tuple[str, list[str]]]:
    """The kind and the lines of each box."""
    root = ElementTree.fromstring(drawing.svg)
    ElementTree.fromstring(drawing.html)
    return [
        (group.get("class", ""), [text.text or "" for text in group.iter(f"{SVG}text")])
        for group in root.iter(f"{SVG}g")
    ]


def paths(drawing: Any) -> int:
    return len(list(ElementTree.fromstring(drawing.svg).iter(f"{SVG}path")))


def test_boxes_show_arguments_composites_places_and_results() -> None:
    @functools.partial(poot.jit, donate_argnums=0, slots={"pos": slots.Pos(0, 3)})
    def step(cache: Any, row: Any, pos: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, row, (pos, 0))
        return cache, poot.nn.softmax(cache * 2, axis=-1)

    drawing = poot.draw(step)(X, X[:1], 2)
    found = boxes(drawing)
    by_title = {lines[0]: (kind, lines) for kind, lines in found}
    assert by_title["cache"] == ("state", ["cache", "f32[4,8]", "donated"])
    assert by_title["pos"] == ("slot", ["pos", "i32[]", "pos 0..3"])
    assert by_title["row"] == ("argument", ["row", "f32[1,8]"])
    assert by_title["result 0"] == ("state", ["result 0", "f32[4,8]", "next cache"])
    assert by_title["result 1"][0] == "result"
    (row,) = [lines for kind, lines in found if lines[0].startswith("FusedRow(")]
    assert any("reduce[op=max" in line for line in row)
    assert any(" in result1[0:128]" in line for line in row)
    (update,) = [lines for _, lines in found if "%3 f32[4,8] in state0[0:128]" in lines]
    assert any("dynamic_update_slice(" in line for line in update)
    assert update[-1].endswith(" 1x1x1")
    assert ("cache", "f32[4,8]", "state") in drawing.rows
    assert ("result 0", "f32[4,8]", "in place of cache") in drawing.rows
    assert repr(drawing).startswith("<drawing of step;")


def test_each_equation_is_a_box_with_lines_to_what_it_reads() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.sort(x) @ y, y

    drawing = poot.draw(f)(X, X.T)
    graph = poot.jit(f).lower(X, X.T).graph
    assert len(boxes(drawing)) == len(graph.inputs) + len(graph.eqns) + 2
    reads = sum(len(eqn.inputs) for eqn in graph.eqns)
    assert paths(drawing) == reads + 2


def test_what_many_read_is_named_instead_of_joined() -> None:
    def f(x: Any, scale: Any) -> Any:
        for _ in range(5):
            x = jnp.sort(x * scale, axis=-1)
        return x

    found = boxes(poot.draw(f)(X, X))
    assert not [lines for _, lines in found if lines[0] == "scale"]
    assert sum("scale" in lines[0] for _, lines in found) == 5


def test_text_is_escaped(tmp_path: Path) -> None:
    name = "<b>&\"'\x00\x1b</b>"

    def f(tree: Any) -> Any:
        with poot.named_scope("<&>"):
            return tree[name] @ X.T

    f.__name__ = "<f&>"
    drawing = poot.draw(f)({name: X})
    lines = [line for _, lines in boxes(drawing) for line in lines]
    assert any("<b>&" in line for line in lines)
    assert clean("a<\x07\ud800&b") == "a&lt;&amp;b"
    page = ElementTree.fromstring(drawing.html)
    assert any(cell.text and "<b>&" in cell.text for cell in page.iter())
    for suffix in ("svg", "html"):
        drawing.save(tmp_path / f"f.{suffix}")
        ElementTree.parse(tmp_path / f"f.{suffix}")
    with pytest.raises(ArgumentError, match=r"takes \.svg or \.html"):
        drawing.save(tmp_path / "f.png")
    assert drawing.svg in drawing._repr_html_()


def test_loops_branches_and_cut_functions(each_backend: Any) -> None:
    def f(x: Any) -> Any:
        x = lax.fori_loop(0, 9, lambda i, x: jnp.sort(x) @ jnp.eye(8) + i, x)
        x = lax.cond(x[0, 0] > 2, lambda x: jnp.sort(x), lambda x: x * 2, x)
        return lax.while_loop(lambda x: x.sum() < 9, lambda x: jnp.sort(x + 1), x)

    found = boxes(poot.draw(f)(X))
    control = [lines for kind, lines in found if kind.startswith("control")]
    assert len(control) == 3
    assert all(any("region 0: " in line for line in lines) for lines in control)

    def cut(x: Any) -> Any:
        shape = poot.ShapeDtypeStruct((4, 8), np.float32)
        return poot.pure_callback(np.sin, shape, x) + 1

    assert boxes(poot.draw(cut)(X))


def test_functions_of_nothing_and_without_equations() -> None:
    assert boxes(poot.draw(lambda: ())()) == []
    assert len(boxes(poot.draw(lambda x: x)(X))) == 2


def test_five_hundred_equations_are_drawn_quickly() -> None:
    def f(x: Any) -> Any:
        for number in range(250):
            x = jnp.sort(x + number, axis=-1)
        return x

    lowered = poot.jit(f).trace(X).lower()
    began = time.perf_counter()
    drawing = poot.draw(f)(X)
    taken = time.perf_counter() - began
    assert len(boxes(drawing)) == len(lowered.graph.eqns) + 2 >= 500
    assert taken < 20


# --- the layout -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_boxes_do_not_overlap_and_lines_go_down_beside_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 60))
    sizes = [(float(w), float(h)) for w, h in rng.integers(10, 200, (count, 2))]
    edges = [
        (int(rng.integers(0, target)), target)
        for target in range(1, count)
        for _ in range(rng.integers(0, 4))
    ]
    found = arrange(sizes, edges)
    frames = [
        (x, y, x + w, y + h)
        for (x, y), (w, h) in zip(found.corners, sizes, strict=True)
    ]
    for number, (left, top, right, bottom) in enumerate(frames):
        assert left >= 0 and top >= 0
        assert right <= found.width and bottom <= found.height
        for other in frames[:number]:
            apart = right <= other[0] or other[2] <= left
            assert apart or bottom <= other[1] or other[3] <= top
    for (source, target), route in zip(edges, found.routes, strict=True):
        assert route[0][1] == frames[source][3] and route[-1][1] == frames[target][1]
        assert all(a[1] <= b[1] for a, b in pairwise(route))


def test_nothing_to_lay_out() -> None:
    assert arrange([], []).corners == []
    svg = boxes_svg([Box("result", (Line("x" * 500),))], [], [])
    ElementTree.fromstring(svg)
    assert "x" * 100 not in svg and "…" in svg


# --- where values stand -----------------------------------------------------


def test_placements_are_those_of_the_program() -> None:
    def f(x: Any, y: Any) -> Any:
        a = jnp.sort(x @ y)
        b = poot.nn.softmax(a @ a, axis=-1)
        return jnp.sort(b) + a, a.T @ b

    info = poot.interpreters.backend.backend().info
    graph = lower(poot.make_graph(f)(X, X.T), info).graph
    program, found = plan(graph, info), placement(graph, info)
    assert found.graph == graph
    nodes = [node for launched in found.launches for node in launched]
    assert nodes == list(program.body)[: len(nodes)]
    for launched, eqn in zip(found.launches, graph.eqns, strict=True):
        for out in eqn.outs:
            if launched:
                written = [w for node in launched for w in node.writes]
                assert any(found.places[out].overlaps(where) for where in written)
    arena = [w for w in found.places.values() if w.space is Space.ARENA]
    assert arena and max(w.offset + w.size for w in arena) <= program.arena_bytes
