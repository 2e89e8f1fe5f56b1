"""Algebra that holds in every bit, and near it what does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.dtypes import as_dtype
from poot.core.graph import Graph
from poot.core.oracle import evaluate
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.arithmetic_laws import (
    ABSORBING,
    CAST,
    CHOICE,
    INLINE,
    ITSELF,
    NEUTRAL,
    RECIPROCAL,
    TWICE,
)
from poot.lowering.passes.canonicalize import canonicalize
from poot.lowering.passes.driver import Log, Reason, Rewrite, run_passes
from poot.lowering.passes.shape_laws import (
    AS_RESHAPE,
    DROP_MOVE,
    FEWER_PARTS,
    MERGE_MOVES,
    MOVE_LITERAL,
    PART_OF_CONCAT,
)
from tests.kernel_harness import Array, device, run_graph
from tests.pass_harness import assert_same_meaning, graph_of

KEEPS = DeviceInfo().masked(keeps_subnormals32=True)
FLUSHES = DeviceInfo()


def given(text: str) -> Graph:
    """A graph of some equations, whose last result is given; inputs are declared."""
    inputs, *lines = [line.strip() for line in text.strip().split(";")]
    last = re.findall(r"%\d+", lines[-1])[0]
    declared = [f"device {each.strip()}" for each in inputs.split(" and ") if each]
    return graph_of("\n".join([*declared, *lines, f"result {last}"]))


def run(graph: Graph, info: DeviceInfo = KEEPS) -> tuple[Graph, Log]:
    after, (record,) = run_passes((canonicalize,), graph, info)
    return after, record.log


def specials(graph: Graph) -> list[Array]:
    """Arguments of all kinds: zeros, subnormals, NaN, the least integer."""
    rng = np.random.default_rng(0)
    args = []
    for value in graph.arguments:
        type = graph.type(value)
        bits = rng.integers(0, 256, (*type.shape, type.dtype.itemsize), np.uint8)
        if type.dtype.is_bool:
            bits &= 1
        drawn = bits.view(type.dtype.numpy).reshape(type.shape)
        if type.dtype.is_float:
            few = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-40, -1e-40, 3e38]
            picked = rng.choice(np.float32(few), type.shape)
            drawn = np.where(rng.random(type.shape) < 0.7, picked, drawn)
        elif type.dtype.is_signed:
            least = np.iinfo(type.dtype.numpy).min
            drawn = np.where(rng.random(type.shape) < 0.2, least, drawn)
        with np.errstate(all="ignore"):
            args.append(drawn.astype(type.dtype.numpy))
    return args


def equal(one: Array, other: Array) -> bool:
    """Equal in every bit, but for those of NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if as_dtype(one.dtype).is_float and np.any(np.isnan(one.astype(np.float64))):
        nan = np.isnan(one.astype(np.float64))
        if not np.array_equal(nan, np.isnan(other.astype(np.float64))):
            return False
        one, other = np.where(nan, 0, one), np.where(nan, 0, other)
    return one.tobytes() == other.tobytes()


def check(graph: Graph, after: Graph, flush: bool = False) -> None:
    """Both graphs mean the same, on whole numbers and on all kinds of them."""
    assert_same_meaning(graph, after)
    args = specials(graph)
    wanted = evaluate(graph, *args, flush=flush)
    for got, right in zip(evaluate(after, *args, flush=flush), wanted, strict=True):
        assert equal(got, right)


X = "%0: f32[2,64]"
I = "%0: i32[2,64]"  # noqa: E741
B = "%0: bool[64]"

# What the equations become: the ops that are left and, if it matters, a text in them.
FIRES = [
    (f"{X}; %1: f32[2,64] = binary[op=mul](%0, 1.0:f32)", NEUTRAL, []),
    (f"{X}; %1: f32[2,64] = binary[op=mul](1.0:f32, %0)", NEUTRAL, []),
    (f"{X}; %1: f32[2,64] = binary[op=div](%0, 1.0:f32)", NEUTRAL, []),
    (f"{X}; %1: f32[2,64] = binary[op=add](%0, -0.0:f32)", NEUTRAL, []),
    (f"{X}; %1: f32[2,64] = binary[op=add](-0.0:f32, %0)", NEUTRAL, []),
    (f"{X}; %1: f32[2,64] = binary[op=sub](%0, 0.0:f32)", NEUTRAL, []),
    (
        "%0: f32[64]; %1: f32[2,64] = broadcast[shape=(2, 64)](1.0:f32); "
        "%2: f32[2,64] = binary[op=mul](%0, %1)",
        NEUTRAL,
        ["Broadcast", "Broadcast"],
    ),
    ("%0: bf16[64]; %1: bf16[64] = binary[op=mul](%0, 1.0:bf16)", NEUTRAL, []),
    ("%0: f64[64]; %1: f64[64] = binary[op=div](%0, 1.0:f64)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=add](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=add](0:i32, %0)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=sub](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=mul](%0, 1:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=div](%0, 1:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=shl](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=shr](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=shr_logical](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=or](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=xor](%0, 0:i32)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=and](%0, -1:i32)", NEUTRAL, []),
    (f"{B}; %1: bool[64] = binary[op=and](%0, 1:bool)", NEUTRAL, []),
    (f"{B}; %1: bool[64] = binary[op=or](0:bool, %0)", NEUTRAL, []),
    (f"{I}; %1: i32[2,64] = binary[op=mul](%0, 0:i32)", ABSORBING, ["Broadcast"]),
    (f"{I}; %1: i32[2,64] = binary[op=and](0:i32, %0)", ABSORBING, ["Broadcast"]),
    (f"{I}; %1: i32[2,64] = binary[op=or](%0, -1:i32)", ABSORBING, ["Broadcast"]),
    (f"{I}; %1: i32[2,64] = binary[op=sub](%0, %0)", ABSORBING, ["Broadcast"]),
    (f"{I}; %1: i32[2,64] = binary[op=xor](%0, %0)", ABSORBING, ["Broadcast"]),
    (f"{B}; %1: bool[64] = binary[op=or](%0, 1:bool)", ABSORBING, ["Broadcast"]),
    ("%0: i32[]; %1: i32[] = binary[op=mul](%0, 0:i32)", ABSORBING, ["Broadcast"]),
    (f"{X}; %1: f32[2,64] = binary[op=max](%0, %0)", ITSELF, []),
    (f"{X}; %1: f32[2,64] = binary[op=min](%0, %0)", ITSELF, []),
    (f"{I}; %1: i32[2,64] = binary[op=and](%0, %0)", ITSELF, []),
    (f"{B}; %1: bool[64] = binary[op=or](%0, %0)", ITSELF, []),
    (
        f"{X}; %1: f32[2,64] = unary[op=neg](%0); %2: f32[2,64] = unary[op=neg](%1)",
        TWICE,
        ["Unary[NEG]"],
    ),
    (
        f"{I}; %1: i32[2,64] = unary[op=neg](%0); %2: i32[2,64] = unary[op=neg](%1)",
        TWICE,
        ["Unary[NEG]"],
    ),
    (
        f"{B}; %1: bool[64] = unary[op=not](%0); %2: bool[64] = unary[op=not](%1)",
        TWICE,
        ["Unary[NOT]"],
    ),
    (
        f"{X}; %1: f32[2,64] = unary[op=neg](%0); %2: f32[2,64] = unary[op=abs](%1)",
        TWICE,
        ["Unary[NEG]", "Unary[ABS]"],
    ),
    (
        f"{I}; %1: i32[2,64] = unary[op=abs](%0); %2: i32[2,64] = unary[op=abs](%1)",
        TWICE,
        ["Unary[ABS]", "Unary[ABS]"],
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, 8.0:f32)",
        RECIPROCAL,
        ["Binary[MUL]"],
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, -0.25:f32)",
        RECIPROCAL,
        ["Binary[MUL]"],
    ),
    (
        "%0: f16[64]; %1: f16[64] = binary[op=div](%0, 16384.0:f16)",
        RECIPROCAL,
        ["Binary[MUL]"],
    ),
    (
        f"{B} and %1: f32[64] and %2: f32[64]; %3: f32[64] = select(1:bool, %1, %2)",
        CHOICE,
        [],
    ),
    (
        f"{B} and %1: f32[64] and %2: f32[64]; %3: f32[64] = select(0:bool, %1, %2)",
        CHOICE,
        [],
    ),
    (
        f"{B} and %1: f32[64] and %2: f32[64]; %3: f32[64] = select(-7:i32, %1, %2)",
        CHOICE,
        [],
    ),
    (f"{B} and %1: f32[64]; %2: f32[64] = select(%0, %1, %1)", CHOICE, []),
    (f"{B} and %1: f32[]; %2: f32[64] = select(%0, %1, %1)", CHOICE, ["Broadcast"]),
    (
        f"{B}; %1: f32[64] = select(%0, nan:f32, nan:f32)",
        CHOICE,
        ["Broadcast"],
    ),
    (
        f"{B} and %1: f32[64]; %2: bool[64] = unary[op=not](%0); "
        "%3: f32[64] = select(%2, %1, 0.0:f32)",
        CHOICE,
        ["Unary[NOT]", "Select"],
    ),
    (f"{X}; %1: f32[2,64] = cast[to=f32](%0)", CAST, []),
    (
        "%0: bf16[64]; %1: f32[64] = cast[to=f32](%0); "
        "%2: bf16[64] = cast[to=bf16](%1)",
        CAST,
        ["Cast"],
    ),
    (
        "%0: i8[64]; %1: f16[64] = cast[to=f16](%0); %2: i8[64] = cast[to=i8](%1)",
        CAST,
        ["Cast"],
    ),
    (
        "%0: bool[64]; %1: f32[64] = cast[to=f32](%0); %2: i32[64] = cast[to=i32](%1)",
        CAST,
        ["Cast", "Cast"],
    ),
    (
        "%0: bf16[64]; %1: f32[64] = cast[to=f32](%0); %2: f16[64] = cast[to=f16](%1)",
        CAST,
        ["Cast", "Cast"],
    ),
    (
        "%0: u8[64]; %1: i16[64] = cast[to=i16](%0); %2: i8[64] = cast[to=i8](%1)",
        CAST,
        ["Cast", "Cast"],
    ),
    (
        "%0: i8[64]; %1: i32[64] = cast[to=i32](%0); %2: u16[64] = cast[to=u16](%1)",
        CAST,
        ["Cast", "Cast"],
    ),
    (
        "%0: f32[2,64]; %1: f32[2,64] = broadcast[shape=(2, 64)](5.0:f32); "
        "%2: f32[2,64] = binary[op=mul](%0, %1)",
        INLINE,
        ["Broadcast", "Binary[MUL]"],
    ),
    (
        "%0: f32[64]; %1: f32[1] = broadcast[shape=(1)](5.0:f32); "
        "%2: bool[64] = compare[op=lt](%1, %0)",
        INLINE,
        ["Broadcast", "Compare[LT]"],
    ),
    (
        "%0: bool[64]; %1: f32[1] = broadcast[shape=(1)](5.0:f32); "
        "%2: f32[64] = select(%0, %1, 1.0:f32)",
        INLINE,
        ["Broadcast", "Select"],
    ),
    (
        "%0: f32[64]; %1: f32[64] = broadcast[shape=(64)](5.0:f32); "
        "%2: f32[64] = clamp(-1.0:f32, %0, %1)",
        INLINE,
        ["Broadcast", "Clamp"],
    ),
    # Moves.
    (f"{X}; %1: f32[2,64] = transpose[perm=(0, 1)](%0)", DROP_MOVE, []),
    (f"{X}; %1: f32[2,64] = reshape[shape=(2, 64)](%0)", DROP_MOVE, []),
    (f"{X}; %1: f32[2,64] = broadcast[shape=(2, 64)](%0)", DROP_MOVE, []),
    (f"{X}; %1: f32[2,64] = reverse[axes=()](%0)", DROP_MOVE, []),
    (
        "%0: f32[1,3]; %1: f32[1,3] = reverse[axes=(0)](%0)",
        DROP_MOVE,
        [],
    ),
    (
        f"{X}; %1: f32[2,64] = slice[axis=1, start=0, end=64, stride=1](%0)",
        DROP_MOVE,
        [],
    ),
    (
        f"{X}; %1: f32[2,64] = pad[config=((0, 0, 0), (0, 0, 0))](%0, 1.0:f32)",
        DROP_MOVE,
        [],
    ),
    (
        "%0: f32[2,3,5]; %1: f32[5,2,3] = transpose[perm=(2, 0, 1)](%0); "
        "%2: f32[3,5,2] = transpose[perm=(2, 0, 1)](%1)",
        MERGE_MOVES,
        ["Transpose", "Transpose"],
    ),
    (
        "%0: f32[2,3,5]; %1: f32[5,2,3] = transpose[perm=(2, 0, 1)](%0); "
        "%2: f32[2,3,5] = transpose[perm=(1, 2, 0)](%1)",
        DROP_MOVE,
        ["Transpose"],
    ),
    (
        "%0: f32[6]; %1: f32[2,3] = reshape[shape=(2, 3)](%0); "
        "%2: f32[3,2] = reshape[shape=(3, 2)](%1)",
        MERGE_MOVES,
        ["Reshape", "Reshape"],
    ),
    (
        "%0: f32[3]; %1: f32[2,3] = broadcast[shape=(2, 3)](%0); "
        "%2: f32[4,2,3] = broadcast[shape=(4, 2, 3)](%1)",
        MERGE_MOVES,
        ["Broadcast", "Broadcast"],
    ),
    (
        "%0: f32[2,3,5]; %1: f32[2,3,5] = reverse[axes=(0, 2)](%0); "
        "%2: f32[2,3,5] = reverse[axes=(1, 2)](%1)",
        MERGE_MOVES,
        ["Reverse", "Reverse"],
    ),
    (
        "%0: f32[2,3]; %1: f32[2,3] = reverse[axes=(1)](%0); "
        "%2: f32[2,3] = reverse[axes=(1)](%1)",
        DROP_MOVE,
        ["Reverse"],
    ),
    (
        "%0: f32[40]; %1: f32[12] = slice[axis=0, start=3, end=38, stride=3](%0); "
        "%2: f32[4] = slice[axis=0, start=1, end=12, stride=3](%1)",
        MERGE_MOVES,
        ["Slice", "Slice"],
    ),
    (
        "%0: f32[40]; %1: f32[2] = slice[axis=0, start=30, end=40, stride=7](%0); "
        "%2: f32[1] = slice[axis=0, start=1, end=2, stride=1](%1)",
        MERGE_MOVES,
        ["Slice", "Slice"],
    ),
    (
        "%0: f32[1,3,1,2]; %1: f32[3,1,2,1] = transpose[perm=(1, 0, 3, 2)](%0)",
        AS_RESHAPE,
        ["Reshape"],
    ),
    (
        "; %0: f32[2,3] = broadcast[shape=(2, 3)](5.0:f32); "
        "%1: f32[3,2] = transpose[perm=(1, 0)](%0)",
        MOVE_LITERAL,
        ["Broadcast", "Broadcast"],
    ),
    (
        "; %0: f32[6] = broadcast[shape=(6)](5.0:f32); "
        "%1: f32[2] = slice[axis=0, start=1, end=3, stride=1](%0)",
        MOVE_LITERAL,
        ["Broadcast", "Broadcast"],
    ),
    (
        "%0: f32[2,3] and %1: f32[2,5]; %2: f32[2,8] = concat[axis=1](%0, %1); "
        "%3: f32[2,2] = slice[axis=1, start=3, end=7, stride=3](%2)",
        PART_OF_CONCAT,
        ["Concat", "Slice"],
    ),
    (
        "%0: f32[2,3] and %1: f32[2,5]; %2: f32[2,8] = concat[axis=1](%0, %1); "
        "%3: f32[2,5] = slice[axis=1, start=3, end=8, stride=1](%2)",
        PART_OF_CONCAT,
        ["Concat"],
    ),
    (f"{X}; %1: f32[2,64] = concat[axis=0](%0)", FEWER_PARTS, []),
    (
        "%0: f32[2,0] and %1: f32[2,3] and %2: f32[2,1]; "
        "%3: f32[2,4] = concat[axis=1](%0, %1, %2)",
        FEWER_PARTS,
        ["Concat"],
    ),
]


@pytest.mark.parametrize(("text", "rewrite", "left"), FIRES)
def test_a_law_that_holds(text: str, rewrite: Rewrite, left: list[str]):
    graph = given(text)
    after, log = run(graph)
    assert [str(eqn.op) for eqn in after.eqns] == left
    assert log.fired(rewrite) and not [e for e in log.entries if e.reason]
    check(graph, after)
    assert Graph.parse(str(after)) == after
    again, _ = run(after)
    assert again is after


NEAR_MISSES = [
    (
        f"{X}; %1: f32[2,64] = binary[op=add](%0, 0.0:f32)",
        (NEUTRAL, Reason.SIGNED_ZERO, "add of 0.0:f32 makes 0.0 of -0.0"),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=sub](%0, -0.0:f32)",
        (NEUTRAL, Reason.SIGNED_ZERO, "sub of -0.0:f32 makes 0.0 of -0.0"),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=mul](%0, 0.0:f32)",
        (
            ABSORBING,
            Reason.NOT_FINITE,
            "mul of 0.0:f32 is NaN where x is not finite, and has a sign",
        ),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=sub](%0, %0)",
        (
            ABSORBING,
            Reason.NOT_FINITE,
            "sub of x and x is NaN where x is not finite",
        ),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, %0)",
        (
            ABSORBING,
            Reason.NOT_FINITE,
            "div of x and x is NaN where x is not finite",
        ),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, 3.0:f32)",
        (RECIPROCAL, Reason.ROUNDED, "1 / 3.0:f32"),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, 1.7014118346046923e+38:f32)",
        (RECIPROCAL, Reason.SUBNORMAL, "1 / 1.7014118346046923e+38:f32"),
    ),
    (
        f"{X}; %1: f32[2,64] = binary[op=div](%0, 0x400000:f32)",
        (RECIPROCAL, Reason.SUBNORMAL, "1 / 5.877471754111438e-39:f32"),
    ),
    (
        "%0: i32[64] and %1: f32[64]; %2: i32[64] = unary[op=not](%0); "
        "%3: f32[64] = select(%2, %1, 0.0:f32)",
        (CHOICE, Reason.NOT_BOOL, "not of i32[64]"),
    ),
    (
        f"{X}; %1: bf16[2,64] = cast[to=bf16](%0); %2: f32[2,64] = cast[to=f32](%1)",
        (CAST, Reason.ROUNDED, "f32 to bf16 to f32"),
    ),
    (
        "%0: i16[64]; %1: bf16[64] = cast[to=bf16](%0); %2: i16[64] = cast[to=i16](%1)",
        (CAST, Reason.ROUNDED, "i16 to bf16 to i16"),
    ),
    (
        "%0: i8[64]; %1: u32[64] = cast[to=u32](%0); %2: i64[64] = cast[to=i64](%1)",
        (CAST, Reason.ROUNDED, "i8 to u32 to i64"),
    ),
    (
        "%0: u8[64]; %1: i8[64] = cast[to=i8](%0); %2: i32[64] = cast[to=i32](%1)",
        (CAST, Reason.ROUNDED, "u8 to i8 to i32"),
    ),
    (
        "%0: i8[64]; %1: f32[64] = cast[to=f32](%0); %2: u8[64] = cast[to=u8](%1)",
        (CAST, Reason.ROUNDED, "i8 to f32 to u8 saturates, i8 to u8 wraps"),
    ),
    (
        "%0: f8e8m0[64]; %1: f16[64] = cast[to=f16](%0); "
        "%2: f8e8m0[64] = cast[to=f8e8m0](%1)",
        (CAST, Reason.ROUNDED, "f8e8m0 to f16 to f8e8m0"),
    ),
    (
        "%0: f16[64]; %1: bf16[64] = cast[to=bf16](%0); %2: f16[64] = cast[to=f16](%1)",
        (CAST, Reason.ROUNDED, "f16 to bf16 to f16"),
    ),
    (
        "%0: f32[2,3] and %1: f32[2,5]; %2: f32[2,8] = concat[axis=1](%0, %1); "
        "%3: f32[2,2] = slice[axis=1, start=2, end=6, stride=3](%2)",
        (PART_OF_CONCAT, Reason.ACROSS_PARTS, "elements 2 to 6 of axis 1"),
    ),
]


@pytest.mark.parametrize(("text", "why"), NEAR_MISSES)
def test_a_near_miss(text: str, why: tuple[Rewrite, Reason, str]):
    graph = given(text)
    after, log = run(graph)
    assert after is graph
    (entry,) = log.entries
    assert (entry.rewrite, entry.reason, entry.detail) == why


UNLIKE = [
    f"{X}; %1: f32[2,64] = binary[op=sub](0.0:f32, %0)",
    f"{X}; %1: f32[2,64] = binary[op=div](1.0:f32, %0)",
    f"{X}; %1: f32[2,64] = binary[op=pow](%0, 1.0:f32)",
    f"{X}; %1: bool[2,64] = compare[op=eq](%0, %0)",
    f"{X} and %1: f32[2,64]; %2: f32[2,64] = binary[op=add](%0, %1); "
    "%3: f32[2,64] = binary[op=sub](%2, %1)",
    f"{I}; %1: i32[2,64] = binary[op=sub](0:i32, %0)",
    f"{I}; %1: i32[2,64] = binary[op=shl](0:i32, %0)",
    f"{I}; %1: i32[2,64] = binary[op=div](%0, %0)",
    f"{I}; %1: i32[2,64] = binary[op=max](%0, 0:i32)",
    f"{I}; %1: i32[2,64] = binary[op=div](%0, 8:i32)",
    "%0: f32[2,3] and %1: f32[2,5]; %2: f32[2,8] = concat[axis=1](%0, %1); "
    "%3: f32[2,0] = slice[axis=1, start=1, end=1, stride=2](%2)",
    f"{I}; %1: i32[2,64] = unary[op=neg](%0); %2: i32[2,64] = unary[op=abs](%1)",
    f"{X}; %1: f32[2,64] = unary[op=abs](%0); %2: f32[2,64] = unary[op=neg](%1)",
    f"{X}; %1: f32[2,64] = binary[op=div](%0, 0.0:f32)",
    f"{X}; %1: f32[2,64] = binary[op=div](%0, inf:f32)",
    "%0: f32[2,3]; %1: f32[3,2] = transpose[perm=(1, 0)](%0)",
    "%0: f32[3,3]; %1: f32[3,3] = transpose[perm=(1, 0)](%0)",
    "%0: f32[3,3]; %1: f32[3,3] = reverse[axes=(1)](%0)",
    "%0: f32[3]; %1: f32[3] = pad[config=((1, -1, 0))](%0, 0.0:f32)",
    "%0: f32[6]; %1: f32[3] = slice[axis=0, start=0, end=6, stride=2](%0)",
    "%0: f32[4,6]; %1: f32[4,3] = slice[axis=1, start=0, end=3, stride=1](%0); "
    "%2: f32[2,3] = slice[axis=0, start=0, end=2, stride=1](%1)",
    "%0: f32[2,3] and %1: f32[2,3]; %2: f32[4,3] = concat[axis=0](%0, %1); "
    "%3: f32[4,1] = slice[axis=1, start=0, end=1, stride=1](%2)",
    "%0: f32[64]; %1: f32[2,64] = broadcast[shape=(2, 64)](5.0:f32); "
    "%2: f32[2,64] = binary[op=mul](%0, %1)",
    "%0: f32[2,0] and %1: f32[2,0]; %2: f32[2,0] = concat[axis=1](%0, %1)",
]


@pytest.mark.parametrize("text", UNLIKE)
def test_what_looks_like_no_law(text: str):
    graph = given(text)
    after, log = run(graph)
    assert after is graph and not log.entries


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    "op", ["mul](%0, 1.0", "div](%0, 1.0", "add](%0, -0.0", "sub](%0, 0.0"]
)
def test_a_device_that_flushes_calculates(dtype: str, op: str):
    """There x 1 is zero for a subnormal x, which x is not."""
    graph = given(f"%0: {dtype}[64]; %1: {dtype}[64] = binary[op={op}:{dtype})")
    after, log = run(graph, FLUSHES)
    assert after is graph
    (entry,) = log.entries
    assert (entry.rewrite, entry.reason) == (NEUTRAL, Reason.FLUSHED)
    kept, _ = run(graph, KEEPS)
    assert not kept.eqns
    args = specials(graph)
    (flushed,), (moved,) = (evaluate(g, *args, flush=True) for g in (graph, kept))
    assert not equal(flushed, moved)


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_dtypes_that_no_device_flushes(dtype: str):
    graph = given(f"%0: {dtype}[64]; %1: {dtype}[64] = binary[op=mul](%0, 1.0:{dtype})")
    after, _ = run(graph, FLUSHES)
    assert not after.eqns
    check(graph, after, flush=True)


def test_other_laws_hold_where_subnormals_are_flushed():
    for text, rewrite, _ in FIRES:
        graph = given(text)
        after, log = run(graph, FLUSHES)
        if rewrite is not NEUTRAL:
            assert log.fired(rewrite)
        check(graph, after, flush=True)


def test_one_change_leads_to_the_next():
    graph = given(
        f"{X}; %1: f32[64,2] = transpose[perm=(1, 0)](%0); "
        "%2: f32[64,2] = binary[op=mul](%1, 1.0:f32); "
        "%3: f32[2,64] = transpose[perm=(1, 0)](%2); "
        "%4: f32[2,64] = unary[op=neg](%3); %5: f32[2,64] = unary[op=neg](%4); "
        "%6: f32[2,64] = unary[op=exp](%5)"
    )
    after, log = run(graph)
    assert after.eqns[-1].inputs == (0,)
    assert [len(log.fired(r)) for r in (NEUTRAL, TWICE, MERGE_MOVES)] == [1, 1, 1]


def test_long_chains_take_linear_time():
    """Each equation is looked at once, whatever the chain became."""
    text = ["%0: f32[5,5,5]"]
    for number in range(1, 4001):
        text.append(f"%{number}: f32[5,5,5] = transpose[perm=(1, 2, 0)](%{number - 1})")
    after, log = run(given("; ".join(text)))
    # Each third is the first again, and the next one alone has nothing to merge with.
    assert len(log.fired(MERGE_MOVES)) == 2666 and len(log.fired(DROP_MOVE)) == 1333
    assert after.eqns[int(after.results[0]) - 1].inputs == (0,)


def test_outputs_may_become_inputs_and_states():
    graph = graph_of("""
        state %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=mul](%0, 1.0:f32)
        %3: f32[4] = binary[op=sub](%1, 0.0:f32)
        next %0 = %2
        result %3
        export %2 "shown"
    """)
    after, _ = run(graph)
    assert not after.eqns and after.exports == {"shown": 0} and after.results == (1,)
    assert_same_meaning(graph, after)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.0,
        lambda x: x - 0.0,
        lambda x: x * 1.0,
        lambda x: x / 4.0,
        lambda x: (x * 0.0) + (x - x),
        lambda x: jnp.where(x == x, jnp.negative(-x), x / x),
        lambda x: x.T.T.reshape(-1)[2:][::3],
        lambda x: jnp.concatenate([x, x[:0]], 0)[:1] * jnp.ones((1, 64)),
    ],
)
def test_functions_on_the_device(function: Any):
    x = specials(given(f"{X}; %1: f32[2,64] = unary[op=neg](%0)"))[0]
    graph = poot.jit(function).trace(x).graph
    after, _ = run(graph, device().info)
    (wanted,), (got,) = run_graph(graph, [x]), run_graph(after, [x])
    assert equal(got, wanted)
