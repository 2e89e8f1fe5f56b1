"""Constant folding: literals in, a literal out, as the device would compute it."""

from __future__ import annotations

import pytest

from poot.core.dtypes import Scalar
from poot.core.graph import Graph
from poot.core.ops.shape import Broadcast
from poot.core.oracle import evaluate
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Log, Reason, run_passes
from poot.lowering.passes.fold import FOLD_LITERALS, fold
from tests.kernel_harness import device, run_graph, same_bits
from tests.pass_harness import graph_of

KEEPS = DeviceInfo().masked(keeps_subnormals32=True)
FLUSHES = DeviceInfo()


def given(text: str) -> Graph:
    """A graph of some equations, whose last result is given."""
    lines = [line.strip() for line in text.split(";")]
    return graph_of("\n".join([*lines, f"result {lines[-1].split(':')[0]}"]))


def run(graph: Graph, info: DeviceInfo = KEEPS) -> tuple[Graph, Log]:
    after, (record, _) = run_passes((fold, dce), graph, info)
    return after, record.log


def literal_of(graph: Graph) -> Scalar:
    """What the only equation of a graph repeats."""
    (eqn,) = graph.eqns
    assert isinstance(eqn.op, Broadcast)
    (literal,) = eqn.inputs
    assert isinstance(literal, Scalar)
    return literal


FOLDS = [
    ("%0: f32[] = binary[op=add](1.5:f32, 2.0:f32)", "3.5:f32"),
    ("%0: f32[] = binary[op=mul](0.1:f32, 3.0:f32)", "0.30000001192092896:f32"),
    ("%0: f16[] = binary[op=mul](60000.0:f16, 2.0:f16)", "inf:f16"),
    ("%0: f32[] = binary[op=div](1.0:f32, 24.0:f32)", "0.0416666679084301:f32"),
    ("%0: bf16[] = binary[op=div](1.0:bf16, 3.0:bf16)", "0.333984375:bf16"),
    ("%0: f32[] = unary[op=sqrt](2.0:f32)", "1.4142135381698608:f32"),
    ("%0: f32[] = unary[op=neg](0.0:f32)", "-0.0:f32"),
    ("%0: f32[] = binary[op=max](-0.0:f32, 0.0:f32)", "0.0:f32"),
    ("%0: f32[] = unary[op=round](2.5:f32)", "2.0:f32"),
    ("%0: i32[] = binary[op=add](2147483647:i32, 1:i32)", "-2147483648:i32"),
    ("%0: i32[] = binary[op=div](7:i32, 0:i32)", "0:i32"),
    ("%0: i32[] = binary[op=rem](-7:i32, 3:i32)", "-1:i32"),
    ("%0: u32[] = binary[op=shl](1:u32, 40:u32)", "0:u32"),
    ("%0: i32[] = binary[op=pow](3:i32, 4:i32)", "81:i32"),
    ("%0: bool[] = compare[op=lt](nan:f32, 1.0:f32)", "0:bool"),
    ("%0: bool[] = unary[op=isnan](nan:f32)", "1:bool"),
    ("%0: bool[] = unary[op=not](0:bool)", "1:bool"),
    ("%0: f32[] = select(0:bool, 1.0:f32, 2.0:f32)", "2.0:f32"),
    ("%0: f32[] = clamp(0.0:f32, -3.0:f32, 1.0:f32)", "0.0:f32"),
    ("%0: i8[] = cast[to=i8](300.0:f32)", "127:i8"),
    ("%0: bf16[] = cast[to=bf16](0.1:f32)", "0.10009765625:bf16"),
    ("%0: u32[] = bitcast_convert[to=u32](1.0:f32)", "1065353216:u32"),
    (
        "%0: f32[3,4] = broadcast[shape=(3, 4)](2.0:f32); "
        "%1: f32[3,4] = binary[op=mul](%0, 3.0:f32)",
        "6.0:f32",
    ),
    (
        "%0: f32[4] = broadcast[shape=(4)](2.0:f32); "
        "%1: f32[2,2] = reshape[shape=(2, 2)](%0); "
        "%2: f32[2,2] = transpose[perm=(1, 0)](%1); "
        "%3: f32[1,2] = slice[axis=0, start=1, end=2, stride=1](%2); "
        "%4: f32[1,2] = reverse[axes=(1)](%3); "
        "%5: f32[1,2] = unary[op=neg](%4)",
        "-2.0:f32",
    ),
]


@pytest.mark.parametrize(("text", "literal"), FOLDS)
def test_literals_fold(text: str, literal: str):
    graph = given(text)
    after, log = run(graph)
    assert str(literal_of(after)) == literal and log.fired(FOLD_LITERALS)
    assert Graph.parse(str(after)) == after
    (wanted,), (got,) = evaluate(graph), evaluate(after)
    assert same_bits(got, wanted)


@pytest.mark.parametrize(("text", "literal"), FOLDS)
def test_the_device_computes_the_same(text: str, literal: str):
    graph = given(text)
    after, _ = run(graph, device().info)
    (wanted,), (got,) = run_graph(graph, []), run_graph(after, [])
    assert same_bits(got, wanted)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("%0: f32[] = unary[op=exp](1.0:f32)", "Unary[EXP] of 1.0:f32"),
        ("%0: f16[] = unary[op=rsqrt](2.0:f16)", "Unary[RSQRT] of 2.0:f16"),
        (
            "%0: f32[] = binary[op=rem](1.0:f32, 3.0:f32)",
            "Binary[REM] of 1.0:f32, 3.0:f32",
        ),
        (
            "%0: f64[] = binary[op=pow](2.0:f64, 0.5:f64)",
            "Binary[POW] of 2.0:f64, 0.5:f64",
        ),
    ],
)
def test_what_devices_approximate_stays(text: str, detail: str):
    graph = given(text)
    after, log = run(graph)
    assert after is graph
    (entry,) = log.entries
    assert (entry.rewrite, entry.reason) == (FOLD_LITERALS, Reason.APPROXIMATE)
    assert entry.detail == detail


@pytest.mark.parametrize(
    "text",
    [
        "device %0: f32[4]; %1: f32[4] = binary[op=add](%0, 1.0:f32)",
        "device %0: f32[]; %1: f32[4] = broadcast[shape=(4)](%0); "
        "%2: f32[4] = unary[op=neg](%1)",
        "%0: i32[9] = iota[dtype=i32, shape=(9), axis=0](); "
        "%1: i32[9] = binary[op=mul](%0, 2:i32)",
        "%0: u8[4] = bitcast_convert[to=u8](1:u32)",
        "%0: f32[4] = broadcast[shape=(4)](1.0:f32); "
        "%1: f32[] = reduce[op=sum, axis=0, keepdim=false](%0)",
        "%0: f32[4] = broadcast[shape=(4)](1.0:f32)",
    ],
)
def test_what_stays(text: str):
    """Indices are counted where they are needed; sums have an order of their own."""
    graph = given(text)
    after, log = run(graph)
    assert after is graph and not log.entries


def test_subnormals_as_the_device_has_them():
    graph = given("%0: f32[] = binary[op=mul](1e-30:f32, 1e-10:f32)")
    kept, _ = run(graph, KEEPS)
    flushed, _ = run(graph, FLUSHES)
    assert literal_of(kept) == Scalar.of(1e-40, literal_of(kept).dtype)
    assert literal_of(flushed).bits == 0
    moved, _ = run(given("%0: f32[] = unary[op=neg](1e-40:f32)"), FLUSHES)
    assert literal_of(moved).bits == 0x800116C2


def test_outputs_are_values_still():
    graph = graph_of("""
        device %0: f32[2]
        %1: i32[] = binary[op=add](1:i32, 2:i32)
        %2: f32[2] = broadcast[shape=(2)](1.0:f32)
        %3: f32[2] = binary[op=add](%2, %2)
        result %3
        export %3 "three"
        witness %1 "fails"
    """)
    after, log = run(graph)
    assert len(log.fired(FOLD_LITERALS)) == 2 and len(after.witnesses) == 1
    assert after.exports == {"three": after.results[0]}
