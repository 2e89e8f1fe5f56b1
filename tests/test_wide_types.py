"""What is checked of every program of the suite is noticed, and holds of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.op import Op
from poot.core.ops.elementwise import Cast, Unary, UnaryOp
from poot.lowering.program import BufferRange, Copy, Kernel, Program, ResultSpec, Space
from poot.lowering.spirv.builder import KernelBuilder
from poot.vulkan.copies import lower_copies
from poot.vulkan.device import Device
from tests import vulkan_programs
from tests.kernel_harness import one_op, plan_graph
from tests.spirv_words import capabilities
from tests.vulkan_programs import floats
from tests.wide_types import WIDE, check_wide_types, dtypes_of

NEG = Unary(UnaryOp.NEG)


def test_a_wide_type_for_nothing_is_noticed() -> None:
    narrow = one_op(NEG, np.ones(4, np.float32))
    wide = one_op(NEG, np.ones(4, np.float64))
    program = plan_graph(wide)
    assert {kernel.name for kernel in program.kernels.values()}
    check_wide_types(wide, program)
    with pytest.raises(AssertionError, match="Float64"):
        check_wide_types(narrow, program)


@pytest.mark.parametrize(
    ("op", "dtype", "capability"),
    [(NEG, dtypes.float64, "Float64"), (Cast(dtypes.int64), dtypes.int8, "Int64")],
)
def test_wide_dtypes_ask_for_wide_types(op: Op, dtype: DType, capability: str) -> None:
    graph = one_op(op, np.ones(4, dtype.numpy))
    assert any(dtype.itemsize == 8 for dtype in dtypes_of(graph))
    (kernel,) = plan_graph(graph).kernels.values()
    assert capability in capabilities(kernel)


def test_kernels_without_a_graph_ask_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies, and the probes that a device runs when it is opened."""
    kernels: list[Kernel] = []
    finish = KernelBuilder.finish

    def seen(self: KernelBuilder, *arguments: Any, **options: Any) -> Kernel:
        kernels.append(finish(self, *arguments, **options))
        return kernels[-1]

    monkeypatch.setattr(KernelBuilder, "finish", seen)
    device = Device(vulkan_programs.the_physical())
    probes = len(kernels)
    spans = [BufferRange(s, 0, 0, 48) for s in (Space.ARGUMENT, Space.RESULT)]
    for offset in (0, 4, 2, 1):
        source, target = (replace(span, offset=offset) for span in spans)
        program = Program((Copy(source, target),), (floats(40),), ())
        program = replace(program, results=(ResultSpec(floats(40)),))
        # A made-up name, so that no kernel comes out of a cache.
        lower_copies(program, device.info.masked(name=f"copies by {offset}"))
    device.close()
    assert probes >= 2 and len(kernels) == probes + 4
    assert not any(capabilities(kernel) & WIDE for kernel in kernels)
