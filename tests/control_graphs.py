"""Graphs that nest control flow, and reach each way in which bodies are planned."""

from __future__ import annotations

from poot.core.graph import Graph
from tests.pass_harness import graph_of

# A row of x is taken from the row of the outer x, whose own row the outer loop takes.
NESTED_SCANS = """
    device %0: f32[3,5,4]
    device %1: f32[4]
    %2: f32[4], %3: f32[3,5,4], %4: f32[3,4] = scan[body=graph {
      device %0: f32[4]
      device %1: f32[5,4]
      %2: f32[4], %3: f32[5,4] = scan[body=graph {
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        %3: f32[4] = binary[op=mul](%0, %1)
        result %2
        result %3
      }, length=5, consts=0, carries=1, reverse=false](%0, %1)
      %4: f32[4] = binary[op=min](%2, 50.0:f32)
      result %4
      result %3
      result %4
    }, length=3, consts=0, carries=1, reverse=true](%1, %0)
    result %2
    result %3
    result %4
"""

# Odd rows, which no address fits; the choice hangs on the carry.
SCAN_IN_COND_IN_SCAN = """
    device %0: i32[4]
    device %1: f32[4,3]
    device %2: f32[3]
    %3: f32[3], %4: i32[], %5: f32[4,3], %6: i32[] = scan[body=graph {
      device %0: f32[3]
      device %1: i32[]
      device %2: i32[]
      device %3: f32[3]
      %4: f32[3], %5: i32[] = cond[branches=(graph {
        device %0: f32[3]
        device %1: f32[3]
        %2: f32[3] = binary[op=add](%0, %1)
        result %2
      }, graph {
        device %0: f32[3]
        device %1: f32[3]
        %2: i32[2] = iota[dtype=i32, shape=(2), axis=0]()
        %3: f32[3], %4: i32[2], %5: i32[] = scan[body=graph {
          device %0: f32[3]
          device %1: f32[3]
          device %2: i32[]
          %3: f32[3] = binary[op=sub](%1, %0)
          %4: i32[] = binary[op=mul](%2, 3:i32)
          result %3
          result %4
          witness %2 "inner"
        }, length=2, consts=1, carries=1, reverse=false](%1, %0, %2)
        result %3
        witness %5 "branch"
      }, graph {
        device %0: f32[3]
        device %1: f32[3]
        result %1
      })](%2, %0, %3)
      %6: i32[] = binary[op=add](%1, %2)
      result %4
      result %6
      result %4
      witness %5 "choice"
    }, length=4, consts=0, carries=2, reverse=false](%2, 7:i32, %0, %1)
    result %3
    result %4
    result %5
    result %6
"""

# As many iterations as x says.
WHILE_IN_SCAN = """
    device %0: i32[5]
    device %1: f32[2,8]
    %2: f32[2,8], %3: i32[5], %4: f32[5,2,8] = scan[body=graph {
      device %0: f32[2,8]
      device %1: i32[]
      %2: i32[], %3: f32[2,8], %4: i32[] = while[condition=graph {
        device %0: i32[]
        device %1: i32[]
        device %2: f32[2,8]
        %3: bool[] = compare[op=lt](%1, %0)
        result %3
      }, body=graph {
        device %0: i32[]
        device %1: f32[2,8]
        %2: i32[] = binary[op=add](%0, 1:i32)
        %3: f32[2,8] = binary[op=add](%1, 1.0:f32)
        %4: bool[] = compare[op=gt](%0, 0:i32)
        %5: i32[] = cast[to=i32](%4)
        result %2
        result %3
        witness %5 "above"
      }, condition_consts=1, body_consts=0](%1, -1:i32, %0)
      result %3
      result %4
      result %0
    }, length=5, consts=0, carries=1, reverse=false](%1, %0)
    result %2
    result %3
    result %4
"""

# Carries that change places as they are, turned round, and by way of a product.
SWAPS = """
    device %0: f32[4,4]
    device %1: f32[4,4]
    device %2: bool[3]
    %3: f32[4,4], %4: f32[4,4], %5: bool[3], %6: bool[3], %7: f32[4,4] =
    scan[body=graph {
      device %0: f32[4,4]
      device %1: f32[4,4]
      device %2: bool[3]
      device %3: bool[3]
      device %4: f32[4,4]
      %5: f32[4,4] = transpose[perm=(1, 0)](%1)
      %6: f32[4,4] = matmul[out=none](%4, %0)
      %7: f32[4,4] = clamp(-9.0:f32, %6, 9.0:f32)
      %8: bool[3] = unary[op=not](%2)
      result %5
      result %0
      result %3
      result %8
      result %7
    }, length=3, consts=0, carries=5, reverse=false](%0, %1, %2, %2, %0)
    result %3
    result %4
    result %5
    result %6
    result %7
"""

# A recurrent cell of products, where the carry is what is stacked too. Its xs stand in
# a longer tensor.
RECURRENT = """
    device %0: f32[7,2,8]
    device %1: f32[8,16]
    device %2: f32[16,16]
    device %3: f32[2,16]
    %6: f32[6,2,8] = slice[axis=0, start=1, end=7, stride=1](%0)
    %4: f32[2,16], %5: f32[6,2,16] = scan[body=graph {
      device %0: f32[8,16]
      device %1: f32[16,16]
      device %2: f32[2,16]
      device %3: f32[2,8]
      %4: f32[2,16] = matmul[out=none](%3, %0)
      %5: f32[2,16] = matmul[out=none](%2, %1)
      %6: f32[2,16] = binary[op=add](%4, %5)
      %7: f32[2,16] = clamp(-2.0:f32, %6, 2.0:f32)
      result %7
      result %7
    }, length=6, consts=2, carries=1, reverse=false](%1, %2, %3, %6)
    result %4
    result %5
"""

# xs and consts that are views, small ones, and none at all; ys that nobody computes.
VIEWS = """
    device %0: f32[4,6]
    device %1: i8[5,6]
    device %2: f32[6,0]
    %3: f32[6,4] = transpose[perm=(1, 0)](%0)
    %4: i8[5,4] = slice[axis=1, start=1, end=5, stride=1](%1)
    %5: i8[4,5] = transpose[perm=(1, 0)](%4)
    %6: f32[1,4] = slice[axis=0, start=1, end=2, stride=1](%3)
    %7: f32[4] = reshape[shape=(4)](%6)
    %8: f32[0] = broadcast[shape=(0)](1.0:f32)
    %9: f32[4], %10: f32[0], %11: i8[6,4], %12: f32[6,4], %13: f32[6],
    %14: f32[6,4,0] = scan[body=graph {
      device %0: f32[4]
      device %1: i8[4,5]
      device %2: f32[4]
      device %3: f32[0]
      device %4: f32[4]
      device %5: f32[0]
      %6: f32[4] = binary[op=add](%2, %4)
      %7: i8[4] = reduce[op=max, axis=1, keepdim=false](%1)
      %8: f32[] = reduce[op=sum, axis=0, keepdim=false](%6)
      %9: f32[4,0] = broadcast[shape=(4, 0)](1.0:f32)
      result %6
      result %3
      result %7
      result %0
      result %8
      result %9
    }, length=6, consts=2, carries=2, reverse=true](%7, %5, %7, %8, %3, %2)
    result %9
    result %10
    result %11
    result %12
    result %13
    result %14
"""

# Donated state that loops update, what a loop begins as and gives in the same buffer.
STATE = """
    state %0: f32[4,4]
    state %1: f32[4]
    device %2: f32[3,4]
    device %3: f32[4]
    %4: f32[4] = binary[op=mul](%3, 2.0:f32)
    %5: f32[4,4], %6: f32[4], %7: f32[4], %8: f32[3,4] = scan[body=graph {
      device %0: f32[4,4]
      device %1: f32[4]
      device %2: f32[4]
      device %3: f32[4]
      %4: i32[] = cast[to=i32](1.0:f32)
      %5: f32[1,4] = reshape[shape=(1, 4)](%3)
      %6: f32[4,4] = dynamic_update_slice(%0, %5, %4, 0:i32)
      %7: f32[4] = binary[op=add](%1, %3)
      %8: f32[4] = binary[op=max](%2, %7)
      result %6
      result %7
      result %8
      result %2
    }, length=3, consts=0, carries=3, reverse=false](%0, %1, %4, %2)
    result %5
    result %7
    result %8
    next %0 = %5
    next %1 = %6
"""

# Nothing runs: what was given comes back.
NO_ITERATIONS = """
    device %0: f32[2]
    device %1: f32[0,2]
    %2: f32[2], %3: f32[], %4: f32[0,2], %5: i32[] = scan[body=graph {
      device %0: f32[2]
      device %1: f32[]
      device %2: f32[2]
      %3: f32[2] = binary[op=add](%0, %2)
      %4: i32[] = cast[to=i32](%1)
      result %3
      result %1
      result %3
      witness %4 "never"
    }, length=0, consts=0, carries=2, reverse=false](%0, 5.0:f32, %1)
    result %2
    result %3
    result %4
    result %5
"""

# One iteration; an order and a prefix sum within a body, whose results are stacked.
SORTS = """
    device %0: f32[1,9]
    device %1: i32[3,8]
    %4: f32[9] = broadcast[shape=(9)](0.5:f32)
    %8: i32[8] = iota[dtype=i32, shape=(8), axis=0]()
    %2: f32[9], %3: f32[1,9] = scan[body=graph {
      device %0: f32[9]
      device %1: f32[9]
      %2: f32[9] = sort[axis=0, num_keys=1, descending=false](%1)
      %3: f32[9] = binary[op=add](%0, %2)
      result %3
      result %2
    }, length=1, consts=0, carries=1, reverse=false](%4, %0)
    %5: i32[8], %6: i32[3,8], %7: i32[3,8] = scan[body=graph {
      device %0: i32[8]
      device %1: i32[8]
      %2: i32[8] = cumulative[op=sum, axis=0, reverse=false](%1)
      %3: i32[8] = reverse[axes=(0)](%0)
      result %2
      result %2
      result %3
    }, length=3, consts=0, carries=1, reverse=false](%8, %1)
    result %2
    result %3
    result %5
    result %6
    result %7
"""

# One kernel: scalars that every invocation computes, donated ones among them, vectors,
# what is repeated, and elements by a number that changes.
WHOLE = """
    state %0: f32[]
    state %1: f32[3,8]
    device %2: f32[8]
    device %3: f32[5]
    device %4: f32[5,3,8]
    device %5: i32[]
    %12: bool[3,8] = broadcast[shape=(3, 8)](1:bool)
    %6: f32[], %7: f32[3,8], %8: bool[3,8], %9: i32[], %10: f32[5], %11: f32[5,3,8] =
    scan[body=graph {
      device %0: f32[8]
      device %1: f32[5]
      device %2: f32[]
      device %3: f32[3,8]
      device %4: bool[3,8]
      device %5: i32[]
      device %6: f32[]
      device %7: f32[3,8]
      %8: i32[] = binary[op=add](%5, 1:i32)
      %9: f32[1] = dynamic_slice[sizes=(1)](%1, %8)
      %10: f32[] = reshape[shape=()](%9)
      %11: f32[] = binary[op=add](%2, %6)
      %12: f32[8] = binary[op=mul](%0, 2.0:f32)
      %13: f32[3,8] = binary[op=add](%3, %12)
      %14: f32[3,8] = binary[op=add](%13, %7)
      %15: f32[3,8] = binary[op=sub](%14, %11)
      %16: bool[3,8] = compare[op=gt](%15, %3)
      %17: bool[3,8] = binary[op=xor](%16, %4)
      %18: f32[3,8] = select(%17, %15, %10)
      result %11
      result %18
      result %17
      result %8
      result %10
      result %15
    }, length=5, consts=2, carries=4, reverse=true](%2, %3, %0, %1, %12, %5, %3, %4)
    result %6
    result %8
    result %9
    result %10
    result %11
    next %0 = %6
    next %1 = %7
"""

# More iterations than one launch runs; a scalar goes from launch to launch.
LONG = """
    device %0: i32[]
    device %1: i32[10]
    device %2: i32[4100]
    %3: i32[], %4: i32[10], %5: i32[4100] = scan[body=graph {
      device %0: i32[]
      device %1: i32[10]
      device %2: i32[]
      %3: i32[] = binary[op=add](%0, %2)
      %4: i32[10] = binary[op=xor](%1, %3)
      result %3
      result %4
      result %3
    }, length=4100, consts=0, carries=2, reverse=false](%0, %1, %2)
    result %3
    result %4
    result %5
"""

# A body with a loop of its own.
INNER_LOOPS = """
    device %0: i32[40]
    device %1: i32[1100,40]
    %2: i32[40], %3: i32[1100,40] = scan[body=graph {
      device %0: i32[40]
      device %1: i32[40]
      %2: i32[40] = binary[op=gcd](%0, %1)
      %3: i32[40] = binary[op=add](%2, 30:i32)
      result %3
      result %2
    }, length=1100, consts=0, carries=1, reverse=false](%0, %1)
    result %2
    result %3
"""

# The edges: literals, nothing, one value everywhere, donated state of all kinds.
EDGES = {
    # The carry cannot begin where the state stands, which is read once more.
    "state begun elsewhere": """
    state %0: f32[3,4]
    device %1: f32[2,3,4]
    %2: f32[3,4] = unary[op=abs](%0)
    %3: f32[3,4] = reverse[axes=(0)](%0)
    %4: f32[3,4] = scan[body=graph {
      device %0: f32[3,4]
      device %1: f32[3,4]
      %2: f32[3,4] = cumulative[op=sum, axis=0, reverse=false](%0)
      %3: f32[3,4] = binary[op=max](%2, %1)
      result %3
    }, length=2, consts=0, carries=1, reverse=false](%2, %1)
    result %3
    next %0 = %4
    """,
    "literal index": """
    device %0: f32[4]
    %1: f32[4], %2: i32[] = cond[branches=(graph {
      device %0: f32[4]
      %1: i32[] = broadcast[shape=()](3:i32)
      result %0
      witness %1 "a"
    }, graph {
      device %0: f32[4]
      %1: f32[4] = unary[op=neg](%0)
      result %1
    })](7:i32, %0)
    result %1
    result %2
    """,
    "no operands": """
    device %0: i32[]
    %1: f32[2] = cond[branches=(graph {
      %0: f32[2] = broadcast[shape=(2)](1.0:f32)
      result %0
    }, graph {
      %0: f32[2] = broadcast[shape=(2)](2.0:f32)
      result %0
    })](%0)
    result %1
    """,
    "no carries": """
    device %0: f32[]
    %1: f32[6,4], %2: bool[6], %3: i8[6,3] = scan[body=graph {
      device %0: f32[]
      %1: f32[4] = broadcast[shape=(4)](%0)
      %2: bool[] = compare[op=gt](%0, 0.0:f32)
      %3: i8[3] = broadcast[shape=(3)](5:i8)
      result %1
      result %2
      result %3
    }, length=6, consts=1, carries=0, reverse=false](%0)
    result %1
    result %2
    result %3
    """,
    "literal carries and consts": """
    device %0: i32[5]
    %1: i32[], %2: f32[], %3: bool[], %4: i32[5] = scan[body=graph {
      device %0: i32[]
      device %1: i32[]
      device %2: f32[]
      device %3: bool[]
      device %4: i32[]
      %5: i32[] = binary[op=add](%1, %4)
      %6: i32[] = binary[op=add](%5, %0)
      %7: bool[] = unary[op=not](%3)
      result %6
      result %2
      result %7
      result %6
    }, length=5, consts=1, carries=3, reverse=false](2:i32, 1:i32, 0.5:f32, 0:bool, %0)
    result %1
    result %2
    result %3
    result %4
    """,
    "state through while": """
    state %0: f32[8,8]
    state %1: i32[]
    %2: i32[], %3: f32[8,8] = while[condition=graph {
      device %0: i32[]
      device %1: f32[8,8]
      %2: bool[] = compare[op=lt](%0, 4:i32)
      result %2
    }, body=graph {
      device %0: i32[]
      device %1: f32[8,8]
      %2: i32[] = binary[op=add](%0, 1:i32)
      %3: f32[8,8] = matmul[out=none](%1, %1)
      %4: f32[8,8] = clamp(-2.0:f32, %3, 2.0:f32)
      result %2
      result %4
    }, condition_consts=0, body_consts=0](%1, %0)
    result %3
    next %0 = %3
    next %1 = %2
    """,
    "same operand everywhere": """
    device %0: f32[4]
    %1: f32[4], %2: f32[4], %3: f32[3,4] = scan[body=graph {
      device %0: f32[4]
      device %1: f32[4]
      device %2: f32[4]
      %3: f32[4] = cumulative[op=sum, axis=0, reverse=false](%1)
      %4: f32[4] = binary[op=add](%3, %0)
      result %2
      result %4
      result %0
    }, length=3, consts=1, carries=2, reverse=false](%0, %0, %0)
    %4: f32[4], %5: f32[4], %6: f32[3,4] = scan[body=graph {
      device %0: f32[4]
      device %1: f32[4]
      device %2: f32[4]
      %3: f32[4] = binary[op=add](%1, %0)
      result %3
      result %3
      result %3
    }, length=3, consts=1, carries=2, reverse=false](%1, %1, %1)
    result %4
    result %5
    result %6
    result %1
    result %1
    result %3
    """,
    "donated scalars": """
    state %0: f32[]
    state %1: f32[300]
    device %2: f32[]
    %3: f32[], %4: f32[300] = scan[body=graph {
      device %0: f32[]
      device %1: f32[]
      device %2: f32[300]
      %3: f32[] = binary[op=add](%0, %1)
      %4: f32[300] = binary[op=add](%2, %1)
      result %3
      result %4
    }, length=9, consts=1, carries=2, reverse=false](%2, %0, %1)
    next %0 = %3
    next %1 = %4
    """,
    "outputs": """
    device %0: i32[6]
    %1: i32[], %2: i32[] = scan[body=graph {
      device %0: i32[]
      device %1: i32[]
      %2: i32[] = binary[op=add](%0, %1)
      %3: bool[] = compare[op=gt](%2, 1000:i32)
      %4: i32[] = cast[to=i32](%3)
      result %2
      witness %4 "big"
    }, length=6, consts=0, carries=1, reverse=false](0:i32, %0)
    result %1
    witness %2 "big in the loop"
    export %1 "sum"
    """,
}

TEXTS = {
    "nested scans": NESTED_SCANS,
    "scan in cond in scan": SCAN_IN_COND_IN_SCAN,
    "while in scan": WHILE_IN_SCAN,
    "swaps": SWAPS,
    "recurrent": RECURRENT,
    "views": VIEWS,
    "state": STATE,
    "no iterations": NO_ITERATIONS,
    "sorts": SORTS,
    "whole": WHOLE,
    "long": LONG,
    "inner loops": INNER_LOOPS,
    **EDGES,
}


def control_graph(name: str) -> Graph:
    return graph_of(TEXTS[name])


def scan_of(
    body: str,
    xs: str = "f32[4]",
    outs: str = "f32[], f32[4], i32[]",
    head: str = "length=4, consts=0, carries=1, reverse=false",
    operands: str = "0.0:f32, %0",
) -> str:
    """A graph with a scan over its only argument."""
    types = outs.split(", ") if outs else []
    results = ", ".join(f"%{n}: {type}" for n, type in enumerate(types, 1))
    shown = "\n".join(f"result %{n}" for n, _ in enumerate(types, 1))
    return f"""
        device %0: {xs}
        {results} = scan[body={body}, {head}]({operands})
        {shown}
    """
