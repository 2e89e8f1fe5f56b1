"""Fusion of pointwise chains: what becomes one kernel, and what does not."""

from __future__ import annotations

import time

import pytest

from poot.core.builder import Builder
from poot.core.dtypes import Scalar, float32
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.composite import Fused, FusedRow
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.shape import Slice
from poot.core.types import TensorType
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Reason
from poot.lowering.passes.fuse_pointwise import (
    ABSORB_PRODUCER,
    REPEAT_CHEAP,
    SHARE_PRODUCER,
    fuse_pointwise,
)
from poot.lowering.passes.siblings import JOIN_SIBLINGS
from poot.lowering.passes.units import MOST_EQUATIONS, MOST_OPERANDS, MOST_RESULTS
from tests.pass_harness import (
    apply,
    assert_same_meaning,
    assert_text,
    declined,
    fired,
    graph_of,
)
from tests.random_graphs import random_graph

VECTOR = TensorType((4,), float32)


def regions(graph: Graph) -> list[Graph]:
    """The bodies of the composites of a graph."""
    return [e.op.body for e in graph.eqns if isinstance(e.op, Fused | FusedRow)]


def test_a_chain_becomes_one_kernel():
    graph = graph_of("""
        device %0: f32[2,3]
        device %1: f32[3]
        %2: f32[2,3] = binary[op=mul](%0, %1)
        %3: f32[2,3] = unary[op=abs](%2)
        %4: f32[2,3] = binary[op=add](%3, %0)
        result %4
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert_text(
        after,
        """
        device %0: f32[2,3]
        device %1: f32[3]
        %2: f32[2,3] = fused[body=graph {
          device %0: f32[2,3]
          device %1: f32[3]
          %2: f32[2,3] = binary[op=mul](%0, %1)
          %3: f32[2,3] = unary[op=abs](%2)
          %4: f32[2,3] = binary[op=add](%3, %0)
          result %4
        }](%0, %1)
        result %2
        """,
    )
    assert fired(log, ABSORB_PRODUCER) == ["%3", "%2"]


def test_shape_ops_join_the_chain():
    graph = graph_of("""
        device %0: f32[2,3]
        device %1: f32[4]
        %2: f32[2,3] = unary[op=neg](%0)
        %3: f32[3,2] = transpose[perm=(1, 0)](%2)
        %4: f32[6] = reshape[shape=(6)](%3)
        %5: f32[10] = concat[axis=0](%4, %1)
        %6: f32[10] = reverse[axes=(0)](%5)
        result %6
    """)
    after, _ = apply(graph, fuse_pointwise)
    assert [len(body.eqns) for body in regions(after)] == [5]
    assert len(after.eqns) == 1


def test_an_expensive_row_is_not_computed_for_each_row_that_repeats_it():
    graph = graph_of("""
        device %0: f32[1024]
        device %1: f32[1024,1024]
        %2: f32[1024] = unary[op=exp](%0)
        %3: f32[1024] = binary[op=add](%2, 1.0:f32)
        %4: f32[1024,1024] = binary[op=mul](%3, %1)
        result %4
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert_text(
        after,
        """
        device %0: f32[1024]
        device %1: f32[1024,1024]
        %2: f32[1024] = unary[op=exp](%0)
        %3: f32[1024,1024] = fused[body=graph {
          device %0: f32[1024]
          device %1: f32[1024,1024]
          %2: f32[1024] = binary[op=add](%0, 1.0:f32)
          %3: f32[1024,1024] = binary[op=mul](%2, %1)
          result %3
        }](%2, %1)
        result %3
        """,
    )
    assert declined(log, ABSORB_PRODUCER) == {"%2": Reason.RECOMPUTE}


def test_reading_in_two_ways_computes_no_more_than_it_must():
    graph = graph_of("""
        device %0: f32[65536]
        %1: f32[65536] = unary[op=exp](%0)
        %2: f32[65536] = reverse[axes=(0)](%1)
        %3: f32[65536] = binary[op=add](%1, %2)
        result %3
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert declined(log, ABSORB_PRODUCER) == {"%1": Reason.RECOMPUTE}
    assert [len(body.eqns) for body in regions(after)] == [2]


def test_a_value_that_others_read_is_stored_by_the_kernel():
    graph = graph_of("""
        device %0: f32[2,4]
        device %1: f32[4,2]
        %2: f32[2,4] = unary[op=exp](%0)
        %3: f32[2,2] = matmul[out=none](%2, %1)
        %4: f32[2,4] = unary[op=neg](%2)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert_text(
        after,
        """
        device %0: f32[2,4]
        device %1: f32[4,2]
        %2: f32[2,4], %3: f32[2,4] = fused[body=graph {
          device %0: f32[2,4]
          %1: f32[2,4] = unary[op=exp](%0)
          %2: f32[2,4] = unary[op=neg](%1)
          result %1
          result %2
        }](%0)
        %4: f32[2,2] = matmul[out=none](%2, %1)
        result %4
        result %3
        """,
    )
    assert fired(log, SHARE_PRODUCER) == ["%2"]


def test_no_kernel_needs_its_own_results():
    # The sum reads the product, which reads the exponential: one kernel cannot both
    # store the exponential and add.
    graph = graph_of("""
        device %0: f32[4,4]
        %1: f32[4,4] = unary[op=exp](%0)
        %2: f32[4,4] = matmul[out=none](%1, %1)
        %3: f32[4,4] = binary[op=add](%1, %2)
        result %3
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert after is graph
    assert declined(log, SHARE_PRODUCER) == {"%1": Reason.ORDER}


def test_a_view_between_does_not_hide_that_order():
    graph = graph_of("""
        device %0: f32[4,4]
        %1: f32[4,4] = unary[op=exp](%0)
        %2: f32[4,4] = transpose[perm=(1, 0)](%1)
        %3: f32[4,4] = matmul[out=none](%2, %2)
        %4: f32[4,4] = binary[op=add](%1, %3)
        result %4
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert after is graph
    assert declined(log, SHARE_PRODUCER) == {"%1": Reason.ORDER}


def test_a_shared_value_has_the_shape_of_the_results():
    graph = graph_of("""
        device %0: f32[64,1]
        device %1: f32[64,2048]
        %2: f32[64,1] = unary[op=exp](%0)
        %3: f32[64,2048] = binary[op=add](%2, %1)
        result %2
        result %3
    """)
    _, (log,) = apply(graph, fuse_pointwise)
    assert declined(log, SHARE_PRODUCER) == {"%2": Reason.OTHER_SHAPE}


def test_counting_and_repeating_is_done_where_it_is_read():
    graph = graph_of("""
        device %0: f32[64,64]
        device %1: f32[64,64]
        device %2: f32[64,32]
        %3: f32[64,64] = iota[dtype=f32, shape=(64, 64), axis=1]()
        %4: bool[64,64] = compare[op=lt](%3, 9.0:f32)
        %5: f32[64,64] = select(%4, %0, 0.0:f32)
        %6: f32[64,32] = matmul[out=none](%5, %2)
        %7: f32[64,64] = matmul[out=none](%1, %1)
        %8: f32[64,64] = select(%4, %7, 0.0:f32)
        result %6
        result %8
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert [len(body.eqns) for body in regions(after)] == [3, 3]
    assert fired(log, REPEAT_CHEAP).count("%4") == 2
    assert len(after.eqns) == 4


def test_cheap_values_are_stored_where_their_operands_do_not_fit():
    builder = Builder()
    scalars = [builder.input(TensorType((), float32)) for _ in range(2)]
    (cheap,) = builder.emit(Binary(BinaryOp.ADD), tuple(scalars))
    for others in (MOST_OPERANDS - 1, 3):
        total = cheap
        for _ in range(others):
            value = builder.input(VECTOR)
            (total,) = builder.emit(Binary(BinaryOp.MUL), (total, value))
        builder.result(total)
    after, (log,) = apply(builder.finish(), fuse_pointwise)
    assert declined(log, REPEAT_CHEAP) == {"%2": Reason.OPERAND_LIMIT}
    assert fired(log, REPEAT_CHEAP) == ["%2"]
    assert [len(eqn.inputs) for eqn in after.eqns] == [2, MOST_OPERANDS, 5]


def test_views_for_a_contraction_stay_views():
    graph = graph_of("""
        device %0: f32[2,6]
        device %1: f32[2,3,2]
        %2: f32[2,6] = unary[op=exp](%0)
        %3: f32[2,2,3] = reshape[shape=(2, 2, 3)](%2)
        %4: f32[2,3,2] = transpose[perm=(0, 2, 1)](%3)
        %5: f32[2,2,3] = transpose[perm=(0, 2, 1)](%1)
        %6: f32[2,3,3] = matmul[out=none](%4, %5)
        result %6
    """)
    after, _ = apply(graph, fuse_pointwise)
    assert after is graph


def test_views_of_stored_values_stay_outside_a_kernel():
    graph = graph_of("""
        device %0: f32[4,6]
        %1: f32[4,2,3] = reshape[shape=(4, 2, 3)](%0)
        %2: f32[2,4,3] = transpose[perm=(1, 0, 2)](%1)
        %3: f32[2,4,3] = unary[op=exp](%2)
        %4: f32[2,4,3] = unary[op=neg](%3)
        result %4
    """)
    after, _ = apply(graph, fuse_pointwise)
    assert [e.op.name for e in after.eqns] == ["reshape", "transpose", "fused"]


@pytest.mark.parametrize(
    ("readers", "ops"),
    [
        ("unary[op=exp](%2)", ["fused"]),
        ("reverse[axes=(0)](%2)", ["broadcast", "fused"]),
    ],
)
def test_repeats_that_a_kernel_only_computes_with_are_made_in_it(
    readers: str, ops: list[str]
):
    graph = graph_of(f"""
        device %0: f32[8]
        device %1: f32[4,8]
        %2: f32[4,8] = broadcast[shape=(4, 8)](%0)
        %3: f32[4,8] = {readers}
        %4: f32[4,8] = binary[op=add](%3, %1)
        result %4
    """)
    after, _ = apply(graph, fuse_pointwise)
    assert [e.op.name for e in after.eqns] == ops


def test_what_nobody_reads_is_no_trouble():
    """It is dropped later."""
    graph = graph_of("""
        device %0: f32[8]
        %1: f32[8] = unary[op=exp](%0)
        %2: f32[8] = unary[op=neg](%0)
        result %2
    """)
    after, _ = apply(graph, fuse_pointwise)
    (body,) = regions(after)
    assert len(body.results) == 2


def test_many_slices_of_one_tensor_are_one_operand():
    builder = Builder()
    table = builder.input(TensorType((70, 4), float32))
    rows = [builder.emit(Slice(0, row, row + 1), (table,))[0] for row in range(70)]
    builder.result(sum_of(builder, rows))
    after, _ = apply(builder.finish(), fuse_pointwise)
    (body,) = regions(after)
    assert len(body.inputs) == MOST_OPERANDS
    assert sum(isinstance(e.op, Slice) for e in body.eqns) == 70 - MOST_OPERANDS + 1


def sum_of(builder: Builder, values: list[ValueId]) -> ValueId:
    total = values[0]
    for value in values[1:]:
        (total,) = builder.emit(Binary(BinaryOp.ADD), (total, value))
    return total


def sum_of_inputs(count: int) -> Graph:
    builder = Builder()
    builder.result(sum_of(builder, [builder.input(VECTOR) for _ in range(count)]))
    return builder.finish()


@pytest.mark.parametrize("count, kernels", [(28, 1), (29, 2), (40, 2), (70, 3)])
def test_operands_of_a_kernel_are_limited(count, kernels):
    graph = sum_of_inputs(count)
    after, (log,) = apply(graph, fuse_pointwise)
    assert len(after.eqns) == kernels
    assert all(len(eqn.inputs) <= MOST_OPERANDS for eqn in after.eqns)
    limited = [Reason.OPERAND_LIMIT] * (kernels - 1)
    assert list(declined(log, ABSORB_PRODUCER).values()) == limited


def test_results_of_a_kernel_are_limited():
    builder = Builder()
    value = builder.input(VECTOR)
    for number in range(33):
        literal = Scalar.of(number, float32)
        builder.result(*builder.emit(Binary(BinaryOp.ADD), (value, literal)))
    after, (log,) = apply(builder.finish(), fuse_pointwise)
    assert [len(eqn.outs) for eqn in after.eqns] == [MOST_RESULTS, 33 - MOST_RESULTS]
    assert Reason.RESULT_LIMIT in declined(log, JOIN_SIBLINGS).values()


def test_results_that_others_read_are_limited():
    builder = Builder()
    value = builder.input(TensorType((64,), float32))
    for _ in range(MOST_RESULTS + 1):
        (value,) = builder.emit(Unary(UnaryOp.NEG), (value,))
        builder.result(value)
    after, (log,) = apply(builder.finish(), fuse_pointwise)
    assert [len(eqn.outs) for eqn in after.eqns] == [1, MOST_RESULTS]
    assert declined(log, SHARE_PRODUCER) == {"%1": Reason.RESULT_LIMIT}


REVERSED = """
    device %0: f32[64,64]
    %1: f32[64,64] = unary[op=lgamma](%0)
    %2: f32[64,64] = reverse[axes=(0)](%1)
    %3: f32[64,64] = binary[op=add](%2, %0)
    result %3
"""


def test_a_value_that_is_read_elsewhere_in_its_place_is_computed_once():
    after, (log,) = apply(graph_of(REVERSED), fuse_pointwise)
    assert len(after.eqns) == 1 and fired(log, ABSORB_PRODUCER) == ["%2", "%1"]
    after, (log,) = apply(graph_of(f"{REVERSED} result %1"), fuse_pointwise)
    assert len(after.eqns) == 2
    assert declined(log, SHARE_PRODUCER) == {"%1": Reason.RECOMPUTE}


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("%5: u32[] = reduce[op=sum, axis=0, keepdim=false](%3)", 1),
        ("%5: u32[] = reduce[op=sum, axis=0, keepdim=false](%4)", 1),
        ("%5: u32[] = reduce[op=sum, axis=0, keepdim=false](%3) \n result %4", 2),
        ("%5: u32[4] = unary[op=not](%3)", 1),
        ("%5: u32[4] = unary[op=not](%3) \n result %4", 2),
    ],
)
def test_words_that_nobody_reads_are_not_stored(text: str, results: int):
    graph = graph_of(f"""
        device %0: u32[]
        device %1: u32[4]
        %2: u32[4] = unary[op=neg](%1)
        %3: u32[4], %4: u32[4] = threefry2x32(%0, %0, %2, %2)
        {text}
        result %5
    """)
    after, _ = apply(graph, fuse_pointwise)
    (body,) = regions(after)
    assert len(body.results) == results


def test_equations_of_a_kernel_are_limited():
    after, (log,) = apply(chain_of(300), fuse_pointwise)
    assert [len(body.eqns) for body in regions(after)] == [44, MOST_EQUATIONS]
    assert list(declined(log, ABSORB_PRODUCER).values()) == [Reason.SIZE_LIMIT]


def test_work_of_a_kernel_is_limited():
    # Drivers take minutes for the code of hundreds of sines.
    after, (log,) = apply(chain_of(40, UnaryOp.SIN), fuse_pointwise)
    assert [len(body.eqns) for body in regions(after)] == [7, 11, 11, 11]
    assert set(declined(log, ABSORB_PRODUCER).values()) == {Reason.SIZE_LIMIT}


def test_a_scalar_is_computed_once_for_several_elements():
    graph = graph_of("""
        device %0: f32[]
        device %1: f32[512,512]
        %2: f32[] = unary[op=exp](%0)
        %3: f32[512,512] = binary[op=mul](%2, %1)
        result %3
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert fired(log, ABSORB_PRODUCER) == ["%2"]
    assert len(after.eqns) == 1


def test_siblings_that_read_the_same_run_as_one():
    graph = graph_of("""
        device %0: f32[512,512]
        %1: f32[512,512] = unary[op=exp](%0)
        %2: f32[512,512] = unary[op=log](%0)
        result %1
        result %2
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert [len(body.results) for body in regions(after)] == [2]
    assert fired(log, JOIN_SIBLINGS) == ["%2"]


def test_siblings_with_a_chain_between_stay_apart():
    graph = graph_of("""
        device %0: f32[512,512]
        %1: f32[512,512] = unary[op=exp](%0)
        %2: f32[512,512] = matmul[out=none](%1, %1)
        %3: f32[512,512] = binary[op=add](%2, %0)
        result %3
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert after is graph
    assert declined(log, JOIN_SIBLINGS) == {"%3": Reason.ORDER}


@pytest.mark.parametrize(("side", "joined"), [(512, False), (4, True)])
def test_a_large_result_does_not_wait_for_long(side: int, joined: bool):
    """What reads the first is far in front of the second."""
    far = [
        f"%{4 + n}: f32[2,2] = matmul[out=none](%{3 + n if n else 1}, %1)"
        for n in range(70)
    ]
    lines = "\n".join(far)
    graph = graph_of(f"""
        device %0: f32[{side},{side}]
        device %1: f32[2,2]
        %2: f32[{side},{side}] = unary[op=exp](%0)
        %3: f32[{side},{side}] = matmul[out=none](%2, %2)
        {lines}
        %74: f32[{side},{side}] = unary[op=log](%0)
        result %3
        result %73
        result %74
    """)
    log = Log()
    fuse_pointwise.run(graph, DeviceInfo(), log)
    assert fired(log, JOIN_SIBLINGS) == (["%74"] if joined else [])
    reasons = {} if joined else {"%74": Reason.LIFETIME}
    assert declined(log, JOIN_SIBLINGS) == reasons


def test_siblings_of_much_work_stay_apart():
    graph = graph_of("""
        device %0: f32[4]
        %1: f32[4] = unary[op=lgamma](%0)
        %2: f32[4] = unary[op=lgamma](%1)
        %3: f32[4] = unary[op=lgamma](%2)
        %4: f32[4] = unary[op=lgamma](%3)
        %5: f32[4] = unary[op=lgamma](%4)
        %6: f32[4] = unary[op=digamma](%0)
        %7: f32[4] = unary[op=digamma](%6)
        %8: f32[4] = unary[op=digamma](%7)
        %9: f32[4] = unary[op=digamma](%8)
        %10: f32[4] = unary[op=digamma](%9)
        result %5
        result %10
    """)
    _, (log,) = apply(graph, fuse_pointwise)
    assert list(declined(log, JOIN_SIBLINGS).values()) == [Reason.SIZE_LIMIT]


def chain_of(count: int, kind: UnaryOp = UnaryOp.NEG) -> Graph:
    builder = Builder()
    value = builder.input(VECTOR)
    for _ in range(count):
        (value,) = builder.emit(Unary(kind), (value,))
    builder.result(value)
    return builder.finish()


def tree_of(count: int) -> Graph:
    builder = Builder()
    level = [builder.input(VECTOR) for _ in range(count)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [builder.emit(Binary(BinaryOp.ADD), pair)[0] for pair in pairs] + odd
    builder.result(level[0])
    return builder.finish()


def readers_of_one(count: int) -> Graph:
    """One value that all others read, which all are summed."""
    builder = Builder()
    hub = builder.emit(Unary(UnaryOp.EXP), (builder.input(VECTOR),))[0]
    total = hub
    for number in range(count):
        literal = Scalar.of(number, float32)
        (value,) = builder.emit(Binary(BinaryOp.MUL), (hub, literal))
        (total,) = builder.emit(Binary(BinaryOp.ADD), (total, value))
    builder.result(total)
    return builder.finish()


@pytest.mark.parametrize("make", [chain_of, tree_of, readers_of_one])
def test_big_graphs_take_linear_time(make):
    def seconds(graph: Graph) -> float:
        start = time.process_time()
        lower(graph, DeviceInfo())
        return time.process_time() - start

    small, big = make(500), make(4000)
    seconds(small)
    assert seconds(big) < 30 * max(seconds(small), 0.01)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    after = lower(graph, DeviceInfo()).graph
    assert_same_meaning(graph, after, seed)


@pytest.mark.parametrize("seed", range(1000, 1010))
def test_large_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed, 120)
    assert_same_meaning(graph, lower(graph, DeviceInfo()).graph, seed)


# A view that is an output, which one kernel stores, and which another, whose result the
# first kernel reads, can see through to the operand.
VIEW_STORED_BY_A_READER = """graph {
  device %0: f32[320]
  device %1: f32[1]
  %2: f32[300] = slice[axis=0, start=0, end=300, stride=1](%0)
  %3: f32[300,1] = reshape[shape=(300, 1)](%2)
  %4: f32[300,1] = unary[op=neg](%3)
  %5: f32[300,1] = broadcast[shape=(300, 1)](%1)
  %6: f32[300] = reshape[shape=(300)](%5)
  result %2
  result %4
  result %5
  result %6
}"""


def test_a_view_that_a_later_kernel_stores_is_not_read():
    graph = Graph.parse(VIEW_STORED_BY_A_READER)
    after = lower(graph, DeviceInfo()).graph
    assert [type(eqn.op) for eqn in after.eqns].count(Fused) == 2
    assert_same_meaning(graph, after)


def test_readers_of_one_value_become_one_kernel_with_it():
    """So that what is read in a smaller shape is in the kernel too."""
    graph = graph_of("""
        device %0: f32[8]
        device %1: f32[1,1,1]
        %2: f32[8] = unary[op=exp](%0)
        %3: f32[1,1,8] = binary[op=mul](%1, %2)
        %4: f32[1,1,8] = unary[op=cos](%3)
        %5: f32[1,1,8] = unary[op=sin](%3)
        result %4
        result %5
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert [len(body.eqns) for body in regions(after)] == [4] and len(after.eqns) == 1
    assert fired(log, JOIN_SIBLINGS) == ["%5"]


def test_readers_of_one_value_that_need_each_other():
    graph = graph_of("""
        device %0: f32[8]
        device %1: f32[1,1,1]
        %2: f32[8] = unary[op=exp](%0)
        %3: f32[1,1,8] = binary[op=mul](%1, %2)
        %4: f32[1,1,8] = unary[op=cos](%3)
        %5: f32[1,1,1] = reduce[op=sum, axis=2, keepdim=true](%4)
        %6: f32[1,1,8] = binary[op=add](%3, %5)
        result %6
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert [type(eqn.op) for eqn in after.eqns].count(Fused) == 2
    assert declined(log, JOIN_SIBLINGS) == {"%6": Reason.ORDER}


def test_ways_of_groups_that_are_joined_count_once_each():
    """Both read %2 turned over: one computes it as often as the other."""
    graph = graph_of("""
        device %0: f32[400,400]
        %1: f32[400,400] = unary[op=sin](%0)
        %2: f32[400,400] = transpose[perm=(1, 0)](%1)
        %3: f32[400,400] = binary[op=add](%1, %2)
        %4: f32[400,400] = unary[op=neg](%3)
        %5: f32[400,400] = unary[op=abs](%3)
        result %4
        result %5
    """)
    after, (log,) = apply(graph, fuse_pointwise)
    assert [type(eqn.op).__name__ for eqn in after.eqns] == [
        "Unary",
        "Transpose",
        "Fused",
    ]
    assert declined(log, ABSORB_PRODUCER)["%1"] is Reason.RECOMPUTE


def test_a_view_has_no_place_in_the_order():
    """%1 is stored behind the view of it, in front of what reads that."""
    graph = graph_of("""
        device %0: f32[64,64]
        %1: f32[64,64] = unary[op=exp](%0)
        %2: f32[64,64] = transpose[perm=(1, 0)](%1)
        %3: f32[64,64] = matmul[out=none](%0, %0)
        %4: f32[64,64] = binary[op=add](%1, %3)
        %5: f32[64,64] = matmul[out=none](%2, %0)
        result %4
        result %5
    """)
    _, (log,) = apply(graph, fuse_pointwise)
    assert fired(log, SHARE_PRODUCER) == ["%1"]


@pytest.mark.parametrize(("source", "times"), [("device", 2), ("state", 0)])
def test_a_block_is_read_where_it_stands_if_it_stays(source: str, times: int):
    graph = graph_of(f"""
        {source} %0: f32[64,64]
        device %1: i32[]
        %2: f32[8,64] = dynamic_slice[sizes=(8, 64)](%0, %1, 0:i32)
        %3: f32[8,64] = unary[op=exp](%2)
        %4: f32[8,64] = matmul[out=none](%3, %0)
        %5: f32[8,64] = binary[op=add](%4, %2)
        {"next %0 = %0" if times == 0 else ""}
        result %5
    """)
    _, (log,) = apply(graph, fuse_pointwise)
    assert fired(log, REPEAT_CHEAP) == ["%2"] * times


def test_a_rope_reads_elements_in_two_places_and_its_tables_in_one():
    graph = graph_of("""
        device %0: f32[64,64]
        %1: f32[64,64] = unary[op=lgamma](%0)
        %2: f32[64,64] = unary[op=digamma](%0)
        %3: f32[64,64] = rope[rotary=64, form=half](%1, %2, %0)
        result %3
    """)
    log = Log()
    fuse_pointwise.run(graph, DeviceInfo(), log)
    assert fired(log, ABSORB_PRODUCER) == ["%2"]
    assert declined(log, ABSORB_PRODUCER) == {"%1": Reason.RECOMPUTE}
