"""Planning under made-up device profiles: valid kernels within limits, or refusals."""

from __future__ import annotations

import pytest

from poot.core import dtypes
from poot.core.errors import CapabilityError, LimitError, LoweringError
from poot.core.graph import Graph
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.program import Dispatch
from tests.op_table import ROWS
from tests.op_table import graph_of as graph_of_case
from tests.pass_harness import graph_of
from tests.random_graphs import random_graph
from tests.row_programs import ROW_PROGRAMS, random_row_program
from tests.spirv_val import fault

WIDE = (dtypes.int64, dtypes.uint64, dtypes.float64)
NO_SUBGROUPS = {
    "subgroup_arithmetic": False,
    "subgroup_shuffle": False,
    "subgroup_ballot": False,
}
NO_SMALL = {
    "storage8": False,
    "storage16": False,
    "int8": False,
    "int16": False,
    "float16": False,
}
PROFILES: dict[str, dict[str, object]] = {
    **{f"subgroup {size}": {"subgroup_size": size} for size in (4, 16, 32, 64, 128)},
    "gpu": {
        "kind": DeviceKind.DISCRETE,
        "subgroup_size": 32,
        "max_loop_trips": None,
        "compute_units": 132,
        "exact_half_unpacking": True,
        "exact_half_packing": True,
        "bfloat16": True,
        "exact_bfloat_packing": True,
    },
    "no f16": {"float16": False},
    "no small types": NO_SMALL,
    "no 64 bits": {"int64": False, "float64": False},
    "no subgroups": NO_SUBGROUPS,
    "no subgroups of 128": {"subgroup_size": 128, **NO_SUBGROUPS},
    "tiny shared memory": {"max_shared_bytes": 1024, **NO_SUBGROUPS},
    "tiny workgroups": {
        "max_workgroup_invocations": 32,
        "max_workgroup_size": (32, 32, 32),
    },
    "workgroups of a subgroup": {
        "max_workgroup_invocations": 8,
        "max_workgroup_size": (8, 1, 1),
    },
    "small grids": {"max_workgroup_count": (7, 5, 300)},
    "few push constants": {"max_push_bytes": 32},
    "few loop trips": {"max_loop_trips": 64},
}


def small_dtypes(dtype: str) -> Graph:
    return graph_of(f"""
        device %0: {dtype}[6,10]
        device %1: {dtype}[10,6]
        %2: {dtype}[6,6] = matmul[out=none](%0, %1)
        %3: {dtype}[6,6] = binary[op=add](%2, %2)
        %4: {dtype}[6,1] = reduce[op=max, axis=1, keepdim=true](%3)
        %5: {dtype}[6,6] = binary[op=sub](%3, %4)
        %6: {dtype}[6] = reduce[op=sum, axis=0, keepdim=false](%5)
        %7: bool[6,6] = compare[op=lt](%5, %3)
        result %5
        result %6
        result %7
    """)


def profile_graphs() -> list[Graph]:
    return [
        *(make() for make in ROW_PROGRAMS),
        *(random_row_program(seed) for seed in range(12)),
        *(random_graph(seed) for seed in range(12)),
        *(small_dtypes(dtype) for dtype in ("f16", "bf16", "i8", "u16", "f64", "i64")),
    ]


@pytest.mark.parametrize("name", PROFILES)
def test_made_up_devices_get_valid_kernels_within_their_limits(name):
    info = DeviceInfo(name=name).masked(**PROFILES[name])
    refused = 0
    for graph in profile_graphs():
        try:
            program = plan(lower(graph, info).graph, info)
        except LoweringError as error:
            assert isinstance(error, CapabilityError | LimitError)
            assert "equation" in str(error) and name in str(error)
            refused += 1
            continue
        for dispatch in program.dispatches:
            assert_within(dispatch, info)
        for kernel in program.kernels.values():
            assert fault(kernel.words) is None
    assert refused == {"no 64 bits": 2, "few loop trips": 3}.get(name, 0)


def assert_within(dispatch: Dispatch, info: DeviceInfo) -> None:
    kernel = dispatch.kernel
    assert all(
        size <= limit
        for size, limit in zip(dispatch.grid, info.max_workgroup_count, strict=True)
    )
    assert all(
        size <= limit
        for size, limit in zip(kernel.workgroup, info.max_workgroup_size, strict=True)
    )
    assert kernel.push_bytes <= info.max_push_bytes
    assert kernel.shared_bytes <= info.max_shared_bytes
    if info.max_loop_trips is not None:
        assert kernel.loop_trips <= info.max_loop_trips


# What takes loops longer than the profile's devices allow, whatever the sizes: the
# kernels of orders serve all sizes.
ORDERED = {
    "Sort",
    "TopK",
    "ArgTopK",
    *(f"Scatter[{m}]" for m in ["ADD", "MIN", "MAX", "MUL"]),
}
REFUSED = {"few loop trips": {"Binary[POW]", "Binary[GCD]"} | ORDERED}


@pytest.mark.parametrize("name", PROFILES)
def test_every_primitive_plans_on_made_up_devices(name: str) -> None:
    info = DeviceInfo(name=name).masked(**PROFILES[name])
    refused = set()
    for row in ROWS:
        narrow = [dtype for dtype in row.dtypes if dtype.itemsize < 8]
        for dtype in {dtype.itemsize: dtype for dtype in narrow}.values():
            case = next(c for c in row.cases(dtype) if not c.touches(*WIDE))
            try:
                program = plan(lower(graph_of_case(case), info).graph, info)
            except LimitError as error:
                assert "loop iterations" in str(error) and name in str(error)
                refused.add(str(row))
                continue
            for dispatch in program.dispatches:
                assert_within(dispatch, info)
                assert fault(dispatch.kernel.words) is None
    assert sorted(refused) == sorted(REFUSED.get(name, set()))
