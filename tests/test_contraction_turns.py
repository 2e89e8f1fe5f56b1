"""Rope and cache writes become part of the contraction whose result they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import models
import poot
import poot.numpy as jnp
from poot import lax, nn
from poot.core.builder import Builder
from poot.core.dtypes import float32
from poot.core.graph import Graph
from poot.core.ops.contractions import ContractionEpilogue
from poot.core.ops.elementwise import Binary, BinaryOp
from poot.core.ops.rope import Rope, RopeForm
from poot.core.ops.shape import Reshape
from poot.core.oracle.evaluate import evaluate
from poot.core.types import TensorType
from poot.lowering.compile import FUSING, lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_epilogue import EPILOGUE, contraction_epilogue
from poot.lowering.passes.driver import Reason, run_passes
from poot.lowering.passes.gated import GATED, gated
from poot.lowering.passes.horizontal import HORIZONTAL, horizontal
from poot.lowering.passes.rope import rope
from poot.lowering.plan.column_sections import in_sections
from poot.lowering.program import Copy, Program
from tests.epilogue_programs import random_placement
from tests.kernel_harness import assert_exact, device, run_program, same_bits
from tests.numerics import rng_of
from tests.pass_harness import apply, assert_text, declined, fired, graph_of
from tests.spirv_val import fault
from tests.test_profiles import PROFILES

BF16 = np.dtype(ml_dtypes.bfloat16)


def composites(graph: Graph) -> list[ContractionEpilogue]:
    return [e.op for e in graph.eqns if isinstance(e.op, ContractionEpilogue)]


# --- fires ------------------------------------------------------------------

ROPE = "rope[rotary=8, form=half]"


def test_rope_and_an_update_join_the_contraction():
    graph = graph_of(f"""
        device %0: f32[3,4]
        device %1: f32[4,16]
        device %2: f32[3,1,4]
        device %3: f32[3,1,4]
        device %4: f32[9,2,8]
        device %5: i32[]
        %6: f32[3,16] = matmul[out=none](%0, %1)
        %7: f32[3,2,8] = reshape[shape=(3, 2, 8)](%6)
        %8: f32[3,2,8] = {ROPE}(%7, %2, %3)
        %9: f32[9,2,8] = dynamic_update_slice(%4, %8, %5, 0:i32, 0:i32)
        result %9
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert fired(log, EPILOGUE) == ["%6"] and not log.declined(EPILOGUE)
    assert_text(
        after,
        f"""
        device %0: f32[3,4]
        device %1: f32[4,16]
        device %2: f32[3,1,4]
        device %3: f32[3,1,4]
        device %4: f32[9,2,8]
        device %5: i32[]
        %6: f32[9,2,8] = contraction_epilogue[heads=(matmul[out=none]), body=graph {{
            device %0: f32[3,16]
            device %1: f32[3,1,4]
            device %2: f32[3,1,4]
            device %3: f32[9,2,8]
            device %4: i32[]
            %5: f32[3,2,8] = reshape[shape=(3, 2, 8)](%0)
            %6: f32[3,2,8] = {ROPE}(%5, %1, %2)
            %7: f32[9,2,8] = dynamic_update_slice(%3, %6, %4, 0:i32, 0:i32)
            result %7
          }}, prologue=none](%0, %1, %2, %3, %4, %5)
        result %6
        """,
    )


HEADS = """
    device %0: f32[3,4]
    device %1: f32[4,16]
    device %2: f32[3,1,4]
    device %3: f32[9,2,8]
    device %4: i32[]
    %5: f32[3,16] = matmul[out=none](%0, %1)
"""
SPLIT = f"{HEADS}\n%6: f32[3,2,8] = reshape[shape=(3, 2, 8)](%5)"
UPDATE = "dynamic_update_slice(%3, %6, %4, 0:i32, 0:i32)"


def test_what_an_update_writes_over_is_not_computed_in_the_kernel():
    """Though nobody else reads it, and it is cheap; where the block starts is."""
    graph = graph_of(f"""{SPLIT}
        %7: f32[9,2,8] = binary[op=mul](%3, 2.0:f32)
        %8: i32[] = binary[op=add](%4, 1:i32)
        %9: f32[9,2,8] = dynamic_update_slice(%7, %6, %8, 0:i32, 0:i32)
        result %9
    """)
    after, _ = apply(graph, contraction_epilogue)
    assert after.eqns[0].op == Binary(BinaryOp.MUL) and len(after.eqns) == 2
    (op,) = composites(after)
    names = [eqn.op.name for eqn in op.body.eqns]
    assert names == ["reshape", "binary", "dynamic_update_slice"]


def test_elementwise_equations_join_through_another_shape():
    graph = graph_of(f"""{SPLIT}
        device %7: f32[2,1]
        %8: f32[3,2,8] = binary[op=add](%6, %7)
        %9: f32[6,8] = reshape[shape=(6, 8)](%8)
        result %9
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert fired(log, EPILOGUE) == ["%5"]
    # The last reshape is a view of what is stored.
    assert [eqn.op.name for eqn in after.eqns] == ["contraction_epilogue", "reshape"]
    args = [np.ones(t.shape, t.dtype.numpy) for t in graph.input_types]
    assert_exact(after, args)


# --- declines ---------------------------------------------------------------

NEAR_MISSES = {
    "a second rope": (
        f"""{SPLIT}
        %7: f32[3,2,8] = {ROPE}(%6, %2, %2)
        %8: f32[3,2,8] = {ROPE}(%7, %2, %2)
        result %8
        """,
        {"%8": Reason.BOUNDARY},
        1,
    ),
    "angles made of the heads": (
        f"""{SPLIT}
        %7: f32[3,2,8] = {ROPE}(%6, %6, %6)
        result %7
        """,
        {"%7": Reason.BOUNDARY},
        0,
    ),
    "heads that are only angles": (
        f"""{SPLIT}
        device %7: f32[3,2,8]
        %8: f32[3,2,8] = {ROPE}(%7, %6, %6)
        result %8
        """,
        {"%8": Reason.BOUNDARY},
        0,
    ),
    "columns of several rows": (
        f"""{HEADS}
        %6: f32[48] = reshape[shape=(48)](%5)
        %7: f32[48] = unary[op=neg](%6)
        %8: f32[1,48] = reshape[shape=(1, 48)](%7)
        device %9: f32[12]
        %10: f32[1,48] = rope[rotary=24, form=half](%8, %9, %9)
        result %10
        """,
        {"%10": Reason.CHANGED_SHAPE},
        1,
    ),
    "no columns": (
        f"""
        device %0: f32[8,4]
        device %1: f32[4]
        device %2: f32[4]
        %3: f32[8] = dot_general[lhs_contracting=(1), rhs_contracting=(0), """
        f"""lhs_batch=(), rhs_batch=(), out=none, precision=default](%0, %1)
        %4: f32[8] = {ROPE}(%3, %2, %2)
        result %4
        """,
        {"%4": Reason.CHANGED_SHAPE},
        0,
    ),
    "heads broken up behind it": (
        f"""{SPLIT}
        %7: f32[3,2,8] = {ROPE}(%6, %2, %2)
        %8: f32[3,4,4] = reshape[shape=(3, 4, 4)](%7)
        device %9: f32[4]
        %10: f32[3,4,4] = binary[op=mul](%8, %9)
        result %10
        """,
        {"%10": Reason.CHANGED_SHAPE},
        1,
    ),
    "a block of broken heads": (
        f"""{SPLIT}
        %7: f32[3,2,8] = {ROPE}(%6, %2, %2)
        %8: f32[3,4,4] = reshape[shape=(3, 4, 4)](%7)
        device %9: f32[9,4,4]
        %10: f32[9,4,4] = dynamic_update_slice(%9, %8, %4, 0:i32, 0:i32)
        result %10
        """,
        {"%10": Reason.CHANGED_SHAPE},
        1,
    ),
    "no more than the block": (
        f"""{SPLIT}
        device %7: f32[3,2,8]
        %8: f32[3,2,8] = dynamic_update_slice(%7, %6, %4, 0:i32, 0:i32)
        result %8
        """,
        {"%8": Reason.CHANGED_SHAPE},
        0,
    ),
    "what is written over is read": (
        f"""{SPLIT}
        %7: f32[9,2,8] = {UPDATE}
        %8: f32[9,2] = reduce[op=max, axis=2, keepdim=false](%3)
        result %7
        result %8
        """,
        {"%7": Reason.OVERWRITTEN},
        0,
    ),
    "what is written over is a view of what is read": (
        f"""{SPLIT}
        %7: f32[18,8] = reshape[shape=(18, 8)](%3)
        %8: f32[9,2,8] = reshape[shape=(9, 2, 8)](%7)
        %9: f32[9,2,8] = dynamic_update_slice(%8, %6, %4, 0:i32, 0:i32)
        result %9
        result %7
        """,
        {"%9": Reason.OVERWRITTEN},
        0,
    ),
    "the block is read too": (
        f"""{SPLIT}
        %7: f32[9,2,8] = {UPDATE}
        %8: f32[3,2] = reduce[op=max, axis=2, keepdim=false](%6)
        result %7
        result %8
        """,
        {"%8": Reason.BOUNDARY},
        0,
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str):
    """What came before the equation that declined is an epilogue, if it is any."""
    text, reasons, made = NEAR_MISSES[name]
    graph = graph_of(text)
    after, (log,) = apply(graph, contraction_epilogue)
    assert declined(log, EPILOGUE) == reasons
    assert len(composites(after)) == made and (made or after == graph)


def test_what_is_written_over_is_told():
    graph = graph_of(NEAR_MISSES["what is written over is read"][0])
    _, (log,) = apply(graph, contraction_epilogue)
    (entry,) = log.declined(EPILOGUE)
    assert entry.detail == "%3 f32[9,2,8], %7 f32[9,2,8]"


@pytest.mark.parametrize("last", [f"{ROPE}(%6, %2, %2)", UPDATE])
def test_devices_that_store_whole_words_only(last: str):
    text = f"""{SPLIT}
        %7: f32[{9 if "update" in last else 3},2,8] = {last}
        result %7
    """.replace("f32", "f16")
    info = DeviceInfo(storage16=False)
    _, (log,) = apply(graph_of(text), contraction_epilogue, info=info)
    assert declined(log, EPILOGUE) == {"%7": Reason.PART_OF_WORD}


def test_pairs_of_contractions_turn_nothing():
    graph = graph_of(f"""{HEADS}
        %6: f32[3,16] = matmul[out=none](%0, %1)
        %7: f32[3,16] = binary[op=mul](%5, %6)
        %8: f32[3,2,8] = reshape[shape=(3, 2, 8)](%7)
        %9: f32[3,2,8] = {ROPE}(%8, %2, %2)
        result %9
    """)
    after, (log,) = apply(graph, gated)
    assert fired(log, GATED) == ["%6"]
    assert [eqn.op.name for eqn in after.eqns][1:] == ["reshape", "rope"]


def test_what_is_read_through_a_view_may_wait():
    """The second contraction needs angles that are made behind a view of the first."""
    graph = graph_of(f"""
        device %0: f32[3,4]
        device %1: f32[4,8]
        device %2: f32[4,8]
        device %3: f32[3,4]
        %4: f32[3,8] = matmul[out=none](%0, %1)
        %5: f32[3,2,4] = reshape[shape=(3, 2, 4)](%4)
        %6: f32[3,4] = unary[op=cos](%3)
        %7: f32[3,8] = matmul[out=none](%0, %2)
        %8: f32[3,8] = {ROPE}(%7, %6, %6)
        result %5
        result %8
    """)
    after, logs = apply(graph, contraction_epilogue, horizontal)
    assert len(logs[1].fired(HORIZONTAL)) == 1
    assert len(composites(after)) == 1


# --- sections ---------------------------------------------------------------


def turned_body(op: Rope, size: int, wide: bool) -> Graph:
    """rope(reshape(2 x + bias)) * scale + one number a row, as [6, size]."""
    builder = Builder(composites=True)
    pairs = op.rotary if wide else op.rotary // 2
    shapes = (3, 2 * size), (2 * size,), (3, 1, pairs), (3, 1, pairs), (size,), (6, 1)
    x, bias, cos, sin, scale, shift = (
        builder.input(TensorType(shape, float32)) for shape in shapes
    )

    def emit(op: Any, *operands: Any) -> Any:
        return builder.emit(op, operands)[0]

    y = emit(Binary(BinaryOp.ADD), emit(Binary(BinaryOp.ADD), x, x), bias)
    # No heads of their own: another reshape follows.
    y = emit(Reshape((3, 2, 2, size // 2)), y)
    y = emit(op, emit(Reshape((3, 2, size)), y), cos, sin)
    y = emit(Binary(BinaryOp.MUL), emit(Reshape((6, size)), y), scale)
    builder.result(emit(Binary(BinaryOp.ADD), y, shift))
    return builder.finish()


@pytest.mark.parametrize("form", RopeForm)
@pytest.mark.parametrize(("rotary", "wide"), [(8, False), (8, True), (4, True)])
def test_sections_together_are_the_whole(form: RopeForm, rotary: int, wide: bool):
    size = 8
    body = turned_body(Rope(rotary, form), size, wide)
    rng = rng_of(f"{form} {rotary}")
    args = [rng.standard_normal(type.shape, np.float32) for type in body.input_types]
    (wanted,) = evaluate(body, *args)
    got = np.full_like(wanted, np.nan)
    for apart in in_sections(body, 1):
        assert all(not isinstance(eqn.op, Rope) for eqn in apart.body.eqns)
        places = [slice(s.start, s.stop, s.step) for s in apart.sections]
        heads = [args[0].reshape(3, 2, size)[..., place] for place in places]
        parts = evaluate(apart.body, *heads, *args[1:])
        for place, part in zip(places, parts, strict=True):
            assert np.isnan(got[:, place]).all()
            got[:, place] = part
    assert same_bits(got, wanted)


# --- on the device ----------------------------------------------------------


@dataclass(frozen=True)
class Heads:
    """A step of attention: what makes q, and k and v in the caches."""

    heads: int
    kv_heads: int
    size: int
    width: int = 24
    batch: int = 1
    tokens: int = 1
    dtype: Any = np.float32
    weight: Any = None
    cache: Any = None
    checkpoint: bool = True
    rotary: int | None = None
    interleaved: bool = False
    start: int = 3
    bias: bool = False
    flat: bool = False

    def arguments(self) -> tuple[Any, ...]:
        rng = rng_of(str(self))
        weight, cache = self.weight or self.dtype, self.cache or self.dtype

        def made(dtype: Any, *shape: int) -> Any:
            return rng.integers(-2, 3, shape).astype(dtype)

        columns = [n * self.size for n in (self.heads, self.kv_heads, self.kv_heads)]
        shapes = [
            (n, self.width) if self.checkpoint else (self.width, n) for n in columns
        ]
        where = self.batch, 9, self.kv_heads, self.size
        return (
            [rng.standard_normal(where).astype(cache) for _ in range(2)],
            made(self.dtype, self.batch, self.tokens, self.width),
            [made(weight, *shape) for shape in shapes],
            [made(self.dtype, n) for n in columns],
            np.int32(self.start),
        )

    def __call__(self, caches: Any, x: Any, weights: Any, biases: Any, at: Any) -> Any:
        parts = []
        for w, b in zip(weights, biases, strict=True):
            y = x @ (w.T if self.checkpoint else w)
            y = y + b if self.bias else y
            parts.append(y.reshape(self.batch, self.tokens, -1, self.size))
        q, k, v = parts
        where = at + jnp.arange(self.tokens)
        kind = {"dimensions": self.rotary, "interleaved": self.interleaved}
        q, k = (nn.rope(part, where, **kind) for part in (q, k))
        keys, values = (
            lax.dynamic_update_slice(old, new.astype(old.dtype), (0, at, 0, 0))
            for old, new in zip(caches, (k, v), strict=True)
        )
        if self.flat:
            q = q.reshape(self.batch, self.tokens, -1) * 2
        return q, keys, values

    def graph(self) -> Graph:
        return poot.jit(self.__call__, donate_argnums=0).trace(*self.arguments()).graph


STEPS = {
    "odd heads": Heads(3, 1, 6, dtype=BF16, start=-1, bias=True),
    "rows and batches": Heads(4, 2, 16, 40, batch=2, tokens=3, dtype=np.float16),
    "sixteen rows": Heads(2, 2, 8, 64, tokens=4, batch=4, checkpoint=False),
    "interleaved": Heads(4, 2, 8, 128, interleaved=True, dtype=BF16),
    "some columns": Heads(4, 2, 16, 40, rotary=8, checkpoint=False, flat=True),
    "some pairs": Heads(
        2, 1, 10, rotary=4, interleaved=True, start=50, checkpoint=False
    ),
    "other dtypes": Heads(4, 2, 8, weight=BF16, cache=BF16, tokens=2),
}


def planned_apart(graph: Graph, info: DeviceInfo) -> tuple[Graph, Program]:
    apart, _ = run_passes((rope, *FUSING), graph, info)
    return apart, plan(apart, info)


@pytest.mark.parametrize("name", STEPS)
def test_a_launch_gives_the_bits_of_separate_ones(name: str):
    step, info = STEPS[name], device().info
    graph, args = step.graph(), poot.tree.leaves(step.arguments())
    fused = lower(graph, info).graph
    program = plan(fused, info)
    # What makes the angles, and says where the block starts, is another launch.
    assert len(composites(fused)) == 1 and not program.notes
    assert len(program.body) == len(program.dispatches) == 2
    apart = planned_apart(graph, info)
    assert len(apart[1].dispatches) > 2
    results = run_program(fused, program, args)
    for mine, right in zip(results, run_program(*apart, args), strict=True):
        assert same_bits(mine, right), f"{step}\n{fused}"


def test_random_placements_are_exact():
    """Most hold a rope or an update; what does not join is a launch of its own."""
    info, found = device().info, set()
    for seed in range(16):
        graph, rng = random_placement(seed), rng_of(f"placement {seed}")
        args = [
            rng.integers(-2, 3, type.shape).astype(type.dtype.numpy)
            for type in graph.input_types
        ]
        fused = lower(graph, info).graph
        found |= {e.op.name for op in composites(fused) for e in op.body.eqns}
        apart, _ = run_passes(FUSING, graph, info)
        right = run_program(apart, plan(apart, info), args)
        got = run_program(fused, plan(fused, info), args)
        assert all(map(same_bits, got, right)), f"seed {seed}\n{graph}"
    assert found > {"rope", "dynamic_update_slice", "reshape"}


GPU = {"max_loop_trips": None, "compute_units": 132}


@pytest.mark.parametrize("profile", ["few trips", "few push constants", "gpu"])
def test_a_step_on_other_devices(profile: str):
    """Where sums are split, results are put where they go by a launch of their own."""
    changes: dict[str, Any] = {
        "few trips": {"max_loop_trips": 300},
        "few push constants": {"max_push_bytes": 32},
        "gpu": GPU,
    }[profile]
    step, info = Heads(2, 1, 8, 5000, rotary=4), device().info.masked(**changes)
    graph, args = step.graph(), poot.tree.leaves(step.arguments())
    fused = lower(graph, info).graph
    program = plan(fused, info)
    # Where subgroups are larger, so many trips do.
    is_split = profile == "few trips" and info.subgroup_size == 8
    assert any("splits" in note for note in program.notes) == is_split
    apart = planned_apart(graph, info)
    results = run_program(fused, program, args)
    for mine, right in zip(results, run_program(*apart, args), strict=True):
        assert same_bits(mine, right)


def test_sums_of_nothing_are_turned_apart():
    step, info = Heads(2, 1, 8, 0), device().info
    graph, args = step.graph(), poot.tree.leaves(step.arguments())
    program = plan(lower(graph, info).graph, info)
    assert any("sums of no products" in note for note in program.notes)
    results = run_program(graph, program, args)
    rights = run_program(*planned_apart(graph, info), args)
    for mine, right in zip(results, rights, strict=True):
        assert same_bits(mine, right)


# --- planned ----------------------------------------------------------------

LAYER = models.Llama(1, 64, 4, 2, 96, 64, 16, "bfloat16")


def layer_graph(layers: int) -> Graph:
    sizes = replace(LAYER, layers=layers)
    weights, caches, token, start = models.decode_arguments(sizes)

    def cast(tree: Any) -> Any:
        return poot.tree.map(lambda a: a.astype(BF16), tree)

    step = poot.jit(
        lambda *given: models.llama_step(poot, sizes, *given), donate_argnums=1
    )
    return step.trace(cast(weights), cast(caches), token, start).graph


@pytest.mark.parametrize("name", ["gpu", "subgroup 32", "few push constants"])
def test_a_layer_takes_five_launches_on_other_devices(name: str):
    info = DeviceInfo(name=name).masked(**PROFILES[name])
    one, two = (plan(lower(layer_graph(n), info).graph, info) for n in (1, 2))
    assert len(two.dispatches) - len(one.dispatches) == 5
    assert not any(isinstance(node, Copy) for node in two.body)
    for kernel in two.kernels.values():
        assert fault(kernel.words) is None
    # Both sections of a weight read all of it: its bytes count once.
    products = next(d for d in two.dispatches if "Rope" in d.label)
    weights = 2 * LAYER.width * (LAYER.heads + 2 * LAYER.kv_heads) * LAYER.head_size
    assert sum(where.size for where in products.reads) < 1.1 * weights


def test_caches_that_are_read_before_are_not_copied():
    """The old keys are read behind q, which is made where the new ones are written."""
    graph = poot.jit(
        lambda cache, x, w, at: (
            (x @ w) @ cache.T,
            lax.dynamic_update_slice(cache, x @ w, (at, 0)),
        ),
        donate_argnums=0,
    )
    cache, x, w = (rng_of("old").standard_normal(s) for s in ((9, 8), (1, 4), (4, 8)))
    args = [a.astype(np.float32) for a in (cache, x, w)]
    program = graph.lower(*args, np.int32(2)).compile().program
    assert not any(isinstance(node, Copy) for node in program.body)


@pytest.mark.parametrize(("m", "k", "n"), [(9, 8, 2), (33, 70, 5)])
def test_where_a_lone_block_starts_is_computed_in_the_kernel(m: int, k: int, n: int):
    rng = rng_of(f"{m} {n}")
    shapes = (m + 7, n + 1), (m, k), (k, n)
    args = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]

    def step(cache: Any, x: Any, w: Any, row: Any) -> Any:
        return lax.dynamic_update_slice(cache, jnp.maximum(x @ w, 0), (row, 1))

    for row in (0, 3, -8, 99):
        compiled = (
            poot.jit(step, donate_argnums=0).lower(*args, np.int32(row)).compile()
        )
        assert len(compiled.program.body) == 1
        first = min(max(row + (m + 7 if row < 0 else 0), 0), 7)
        right = args[0].copy()
        right[first : first + m, 1:] = np.maximum(args[1] @ args[2], 0)
        assert same_bits(np.asarray(compiled(*args, np.int32(row))), right)
