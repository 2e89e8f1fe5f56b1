"""What logs say beside a reason: the values concerned, shapes, numbers and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_epilogue import EPILOGUE, contraction_epilogue
from poot.lowering.passes.cse import MERGE_TWINS, cse
from poot.lowering.passes.dce import DROP_UNUSED, dce
from poot.lowering.passes.driver import Log, Pass, Reason, Refusal, Rewrite
from poot.lowering.passes.fuse_pointwise import (
    ABSORB_PRODUCER,
    SHARE_PRODUCER,
    fuse_pointwise,
)
from poot.lowering.passes.fuse_rows import (
    EXTEND_ROWS,
    PRECEDE_ROWS,
    REPEAT_IN_ROWS,
    START_ROWS,
    fuse_rows,
)
from poot.lowering.passes.gated import GATED, gated
from poot.lowering.passes.horizontal import HORIZONTAL, horizontal
from poot.lowering.passes.siblings import JOIN_SIBLINGS
from poot.lowering.passes.units import MOST_EQUATIONS, MOST_OPERANDS, Units
from tests.pass_harness import graph_of


def inputs(first: int, count: int, type: str) -> str:
    return "\n".join(f"device %{first + n}: {type}" for n in range(count))


def sums(first: int, count: int, of: int, type: str) -> str:
    """Value `of` plus each of the inputs behind it, one after the other."""
    return "\n".join(
        f"%{first + n}: {type} = binary[op=add](%{first + n - 1 if n else of}, "
        f"%{of + 1 + n})"
        for n in range(count)
    )


def chain(first: int, count: int, type: str, op: str = "neg") -> str:
    return "\n".join(
        f"%{first + n}: {type} = unary[op={op}](%{first + n - 1})" for n in range(count)
    )


FAR = "\n".join(
    f"%{4 + n}: f32[2,2] = matmul[out=none](%{3 + n if n else 1}, %1)"
    for n in range(70)
)
Case = tuple[str, Pass, Rewrite, Reason, str]
CASES: dict[str, Case] = {
    "a kernel that needs its own result": (
        """
        device %0: f32[4,4]
        %1: f32[4,4] = unary[op=exp](%0)
        %2: f32[4,4] = matmul[out=none](%1, %1)
        %3: f32[4,4] = binary[op=add](%1, %2)
        result %3
        """,
        fuse_pointwise,
        SHARE_PRODUCER,
        Reason.ORDER,
        "it needs %2 = MatMul(%1, %1) at <graph text>:5 (matmul), and feeds "
        "%2 = MatMul(%1, %1) at <graph text>:5 (matmul)",
    ),
    "another shape": (
        """
        device %0: f32[64,1]
        device %1: f32[64,2048]
        %2: f32[64,1] = unary[op=exp](%0)
        %3: f32[64,2048] = binary[op=add](%2, %1)
        result %2
        result %3
        """,
        fuse_pointwise,
        SHARE_PRODUCER,
        Reason.OTHER_SHAPE,
        "%2 f32[64,1] beside %3 f32[64,2048]",
    ),
    "computed for each row": (
        """
        device %0: f32[1,1024]
        device %1: f32[1024,1024]
        %2: f32[1,1024] = unary[op=exp](%0)
        %3: f32[1024,1024] = binary[op=add](%2, %1)
        result %3
        """,
        fuse_pointwise,
        ABSORB_PRODUCER,
        Reason.RECOMPUTE,
        "1048576 elements in 1 ways instead of 1024, each at a cost of 13, with its "
        "readers 13 an element of %3 f32[1024,1024]; takes 4 ways, and 8 an element or "
        "65536 in all",
    ),
    "read in two places": (
        """
        device %0: f32[64,64]
        %1: f32[64,64] = unary[op=lgamma](%0)
        %2: f32[64,64] = reverse[axes=(0)](%1)
        %3: f32[64,64] = binary[op=add](%2, %0)
        result %3
        result %1
        """,
        fuse_pointwise,
        SHARE_PRODUCER,
        Reason.RECOMPUTE,
        "8192 elements in 2 ways instead of 4096, each at a cost of 110, with its "
        "readers 110 an element of %3 f32[64,64]; takes 4 ways, and 8 an element or "
        "65536 in all",
    ),
    "a long wait": (
        f"""
        device %0: f32[512,512]
        device %1: f32[2,2]
        %2: f32[512,512] = unary[op=exp](%0)
        %3: f32[512,512] = matmul[out=none](%2, %2)
        {FAR}
        %74: f32[512,512] = unary[op=log](%0)
        result %3
        result %73
        result %74
        """,
        fuse_pointwise,
        JOIN_SIBLINGS,
        Reason.LIFETIME,
        "with %2 f32[512,512]: %74 f32[512,512] would be made 72 equations earlier, "
        "takes 64",
    ),
    "many operands": (
        f"""
        {inputs(0, MOST_OPERANDS + 1, "f32[8]")}
        {sums(MOST_OPERANDS + 1, MOST_OPERANDS, 0, "f32[8]")}
        result %{2 * MOST_OPERANDS}
        """,
        fuse_pointwise,
        ABSORB_PRODUCER,
        Reason.OPERAND_LIMIT,
        "29 operands, takes 28",
    ),
    "many equations": (
        f"""
        device %0: f32[8]
        {chain(1, MOST_EQUATIONS + 1, "f32[8]")}
        result %{MOST_EQUATIONS + 1}
        """,
        fuse_pointwise,
        ABSORB_PRODUCER,
        Reason.SIZE_LIMIT,
        "257 equations that cost 257, takes 256 that cost 1024",
    ),
    "columns": (
        """
        device %0: f32[3,4]
        %1: f32[4] = reduce[op=sum, axis=0, keepdim=false](%0)
        result %1
        """,
        fuse_rows,
        START_ROWS,
        Reason.NOT_LAST_AXIS,
        "axis 0 of %0 f32[3,4]",
    ),
    "a product of the rows": (
        """
        device %0: f32[4,4]
        %1: f32[4,1] = reduce[op=sum, axis=1, keepdim=true](%0)
        %2: f32[4,1] = matmul[out=none](%0, %1)
        result %2
        """,
        fuse_rows,
        EXTEND_ROWS,
        Reason.BOUNDARY,
        "%2 f32[4,1] beside 4 rows of 4",
    ),
    "rows that mix": (
        """
        device %0: f32[4,4]
        %1: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
        %2: f32[4,4] = binary[op=sub](%0, %1)
        result %2
        """,
        fuse_rows,
        EXTEND_ROWS,
        Reason.OTHER_ROWS,
        "%1 f32[4], %2 f32[4,4] beside 4 rows of 4",
    ),
    "long rows": (
        """
        device %0: f32[1,4194304]
        %1: f32[1,4194304] = unary[op=exp](%0)
        %2: f32[1,1] = reduce[op=sum, axis=1, keepdim=true](%1)
        %3: f32[1,4194304] = binary[op=div](%1, %2)
        result %3
        """,
        fuse_rows,
        PRECEDE_ROWS,
        Reason.LONG_ROW,
        "%1 f32[1,4194304] beside 1 rows of 4194304",
    ),
    "a column that all rows read, and others": (
        """
        device %0: f32[16]
        device %1: f32[4,16]
        %2: f32[16] = unary[op=neg](%0)
        %3: f32[4,16] = binary[op=add](%1, %2)
        %4: f32[4] = reduce[op=sum, axis=1, keepdim=false](%3)
        result %4
        result %2
        """,
        fuse_rows,
        REPEAT_IN_ROWS,
        Reason.OTHER_SHAPE,
        "%2 f32[16] beside 4 rows of 16, %2 is an output",
    ),
    "an output before the epilogue": (
        """
        device %0: f32[3,4]
        device %1: f32[4,8]
        %2: f32[3,8] = matmul[out=none](%0, %1)
        result %2
        """,
        contraction_epilogue,
        EPILOGUE,
        Reason.KEPT,
        "%2 f32[3,8]",
    ),
    "a wider copy": (
        """
        device %0: bf16[3,4]
        device %1: bf16[4,8]
        %2: bf16[3,8] = matmul[out=none](%0, %1)
        %3: f32[3,8] = cast[to=f32](%2)
        %4: f32[3] = reduce[op=max, axis=1, keepdim=false](%3)
        result %4
        """,
        contraction_epilogue,
        EPILOGUE,
        Reason.WIDENS,
        "%2 bf16[3,8], %3 f32[3,8]",
    ),
    "many equations of an epilogue": (
        f"""
        device %0: f32[3,4]
        device %1: f32[4,8]
        %2: f32[3,8] = matmul[out=none](%0, %1)
        {chain(3, 8, "f32[3,8]", "erf")}
        result %10
        """,
        contraction_epilogue,
        EPILOGUE,
        Reason.SIZE_LIMIT,
        "%9 f32[3,8]; 8 equations that cost 560, takes 48 and 512",
    ),
    "columns of heads broken up": (
        """
        device %0: f32[3,4]
        device %1: f32[4,16]
        device %2: f32[3,1,4]
        device %3: f32[4]
        %4: f32[3,16] = matmul[out=none](%0, %1)
        %5: f32[3,2,8] = reshape[shape=(3, 2, 8)](%4)
        %6: f32[3,2,8] = rope[rotary=8, form=half](%5, %2, %2)
        %7: f32[3,4,4] = reshape[shape=(3, 4, 4)](%6)
        %8: f32[3,4,4] = binary[op=mul](%7, %3)
        result %8
        """,
        contraction_epilogue,
        EPILOGUE,
        Reason.CHANGED_SHAPE,
        "%7 f32[3,4,4], %8 f32[3,4,4]; heads of 8 columns",
    ),
    "rows that become columns": (
        """
        device %0: f32[3,4]
        device %1: f32[4,8]
        %2: f32[3,8] = matmul[out=none](%0, %1)
        %3: f32[2,3,8] = broadcast[shape=(2, 3, 8)](%2)
        %4: f32[2,3,8] = unary[op=neg](%3)
        result %4
        """,
        contraction_epilogue,
        EPILOGUE,
        Reason.BOUNDARY,
        "%2 f32[3,8], %3 f32[2,3,8]",
    ),
    "gates of other sizes": (
        """
        device %0: f32[3,4]
        device %1: f32[4,8]
        device %2: f32[4,1]
        %3: f32[3,8] = matmul[out=none](%0, %1)
        %4: f32[3,1] = matmul[out=none](%0, %2)
        %5: f32[3,8] = binary[op=mul](%3, %4)
        result %5
        """,
        gated,
        GATED,
        Reason.OTHER_TYPE,
        "%1 f32[4,8], %3 f32[3,8], %2 f32[4,1], %4 f32[3,1]",
    ),
    "an operand contracted along other axes": (
        """
        device %0: f32[4,4]
        device %1: f32[4,8]
        %2: f32[4,8] = matmul[out=none](%0, %1)
        %3: f32[4,8] = dot_general[lhs_contracting=(0), rhs_contracting=(0), \
lhs_batch=(), rhs_batch=(), out=none, precision=default](%0, %1)
        result %2
        result %3
        """,
        horizontal,
        HORIZONTAL,
        Reason.OTHER_LHS,
        "%2 f32[4,8] of %0 f32[4,4], %1 f32[4,8]",
    ),
    "contractions that need each other": (
        """
        device %0: f32[4,4]
        device %1: f32[4,4]
        %2: f32[4,4] = matmul[out=none](%0, %1)
        %3: f32[4,4] = matmul[out=none](%0, %2)
        result %3
        """,
        horizontal,
        HORIZONTAL,
        Reason.ORDER,
        "it needs %2 f32[4,4], which it would join",
    ),
    "what is made of one of them": (
        """
        device %0: f32[4,4]
        device %1: f32[4,4]
        %2: f32[4,4] = matmul[out=none](%0, %1)
        %3: f32[4,4] = unary[op=neg](%2)
        %4: f32[4,4] = matmul[out=none](%0, %3)
        result %4
        """,
        horizontal,
        HORIZONTAL,
        Reason.ORDER,
        "%2 f32[4,4]: %3 f32[4,4] is made no sooner than %3 = Unary[NEG](%2) at "
        "<graph text>:6 (unary), which reads a result",
    ),
    "operands in another order": (
        """
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=mul](%0, %1)
        %3: f32[4] = binary[op=mul](%1, %0)
        result %2
        result %3
        """,
        cse,
        MERGE_TWINS,
        Reason.OPERAND_ORDER,
        "%2 is of %0 f32[4], %1 f32[4]",
    ),
    "an output": (
        """
        device %0: f32[4]
        %1: f32[4] = unary[op=neg](%0)
        result %1
        """,
        dce,
        DROP_UNUSED,
        Reason.IS_OUTPUT,
        "%1 f32[4]",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_values_concerned(name: str):
    text, made_by, rewrite, reason, detail = CASES[name]
    log = Log()
    made_by.run(graph_of(text), DeviceInfo(), log)
    found = {(entry.reason, entry.detail) for entry in log.declined(rewrite)}
    assert (reason, detail) in found


def test_what_stands_between():
    """What is needed, which may be a view of what is made, and what is fed."""
    units = Units(
        graph_of("""
        device %0: f32[4]
        %1: f32[4] = unary[op=exp](%0)
        %2: f32[4] = unary[op=neg](%1)
        result %2
        """)
    )
    exp = "%1 = Unary[EXP](%0) at <graph text>:4 (unary)"
    neg = "%2 = Unary[NEG](%1) at <graph text>:5 (unary)"
    for ready, due, detail in (
        (0, 1, f"it needs {exp}, and feeds {neg}"),
        (-1, 0, f"it needs nothing, and feeds {exp}"),
        (1, 2, f"it needs {neg}, and feeds nothing"),
        (2, 1, f"it needs a view of its own results, and feeds {neg}"),
    ):
        assert units.order(ready, due) == Refusal(Reason.ORDER, detail)


def block(x: Any, w: Any, v: Any) -> Any:
    q, k = (poot.numpy.split(x @ w, 2, -1))[:2]
    shares = nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 8)
    return nn.gelu(nn.standardize(shares @ x) @ v) @ v


def trained(x: Any, w: Any, v: Any) -> Any:
    def loss(w, v):
        return jnp.mean(nn.log_softmax(block(x, w, v)) ** 2)

    return poot.value_and_grad(loss, argnums=(0, 1))(w, v)


@pytest.mark.parametrize("function", [block, trained])
def test_every_decline_names_a_value_or_a_number(function: Callable[..., Any]):
    x, w, v = (np.ones(shape, np.float32) for shape in ((9, 16), (16, 32), (16, 16)))
    graph = poot.jit(function).trace(x, w, v).graph
    records = lower(graph, DeviceInfo()).report.records
    declined = [e for r in records for e in r.log.entries if e.reason is not None]
    assert len(declined) > 5
    assert [e for e in declined if not re.search(r"\d", e.detail)] == []
