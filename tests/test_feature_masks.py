"""Devices with features masked out: right values, or the refusal that the row tells.

Each mask runs every row: on all dtypes that it concerns, and on one that it does not.
The features are not enabled on the logical device either, so that the validation layers
catch a kernel that uses one of them all the same.
"""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import poot
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import CapabilityError
from poot.core.ops.attention import Attention
from poot.core.ops.composite import FusedRow
from poot.core.ops.conv import Conv
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.shape import Reshape
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.compile import lower, plan
from poot.vulkan.device import Device
from poot.vulkan.probe_rounding import Rounding
from tests.backends import device_backend, forbid_oracle
from tests.kernel_harness import device
from tests.op_row import OpRow
from tests.op_table import ROWS, graph_of
from tests.table_runs import (
    Applied,
    applications,
    as_tuple,
    assert_within,
    expected_results,
    few,
)

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

MASKS: dict[str, dict[str, bool]] = {
    "no f16": {
        "float16": False,
        "bfloat16": False,
        "exact_half_unpacking": False,
        "exact_half_packing": False,
    },
    "no small storage": {"storage8": False, "storage16": False},
    "no int64": {"int64": False},
    "no subgroup arithmetic": {"subgroup_arithmetic": False},
}
ACROSS_ELEMENTS = (
    *(Reduce, ArgReduce, FusedRow, Attention),
    *(MatMul, DotGeneral, IndexedMatMul, Conv),
)


def concerns(mask: str, row: OpRow, dtype: DType) -> bool:
    """Whether the kernels of a row are other ones under the mask."""
    if mask == "no subgroup arithmetic":
        return row.key.op in ACROSS_ELEMENTS
    sizes = {"no f16": (2,), "no small storage": (1, 2), "no int64": (8,)}[mask]
    return dtype.itemsize in sizes


def masks_rows_and_dtypes() -> list[Any]:
    params = []
    for mask in MASKS:
        for row in ROWS:
            other = dtypes.float32 if dtypes.float32 in row.dtypes else row.dtypes[0]
            params += [
                pytest.param(mask, row, dtype, id=f"{mask}-{row}-{dtype}")
                for dtype in row.dtypes
                if dtype is other or concerns(mask, row, dtype)
            ]
    return params


@functools.cache
def masked_device(mask: str) -> Device:
    """The device that tests run on, opened anew without the features."""
    whole = device()
    probed = {
        name: getattr(whole.info, name)
        for name in ("keeps_subnormals32", *(f.name for f in fields(Rounding)))
    }
    return Device(whole.physical, mask={**probed, **MASKS[mask]})


def refused(row: OpRow, mask: str, applied: Applied) -> bool:
    return mask == "no int64" and row.needs_int64(applied[0])


@pytest.mark.parametrize(("mask", "row", "dtype"), masks_rows_and_dtypes())
def test_rows(
    mask: str, row: OpRow, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = few(applications(row, dtype))
    for one in applied:
        if refused(row, mask, one):
            assert_refused(one, mask)
    taken = [one for one in applied if not refused(row, mask, one)]
    expected = expected_results(taken)
    forbid_oracle(monkeypatch)
    backend = VulkanBackend(masked_device(mask))
    run = run_composites if row.key.op.composite else run_jitted
    found = run(backend, taken)
    for (case, _), results, right in zip(taken, found, expected, strict=True):
        assert_within(row, case, results, right)


def run_jitted(backend: VulkanBackend, taken: list[Applied]) -> list[Any]:
    """The results of all applications, as one function of a user's."""

    def all_cases(operands: list[list[Any]]) -> list[Any]:
        pairs = zip(taken, operands, strict=True)
        return [as_tuple(case, case.op.bind(*xs)) for (case, _), xs in pairs]

    use_backend(backend)
    try:
        with poot.config.override(enable_x64=True):
            operands = [[poot.device_put(x) for x in xs] for _, xs in taken]
            found = poot.jit(all_cases)(operands)
        return [[np.asarray(result) for result in results] for results in found]
    finally:
        use_backend(device_backend())


def run_composites(backend: VulkanBackend, taken: list[Applied]) -> list[Any]:
    """The results of applications of what only passes make."""
    found = []
    for case, operands in taken:
        graph = graph_of(case)
        executable = backend.load(graph, generic=False)
        results, _ = executable.call([backend.upload(x) for x in operands])
        pairs = zip(results, graph.result_types, strict=True)
        found.append([backend.download(result, type) for result, type in pairs])
    return found


def assert_refused(applied: Applied, mask: str) -> None:
    """Planning says which feature the application needs, if it is more than a shape."""
    (feature,) = MASKS[mask]
    info = masked_device(mask).info
    graph = lower(graph_of(applied[0]), info).graph
    if all(isinstance(eqn.op, Reshape) for eqn in graph.eqns):
        plan(graph, info)
        return
    with pytest.raises(CapabilityError, match=rf"equation \d+ .*\b{feature}\b"):
        plan(graph, info)


@pytest.mark.parametrize("mask", MASKS)
def test_masked_features_are_off(mask: str) -> None:
    info = masked_device(mask).info
    assert {name: getattr(info, name) for name in MASKS[mask]} == MASKS[mask]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float16])
def test_small_elements_pass_through_without_small_storage(
    dtype: Any, count: int
) -> None:
    """Copies of odd sizes, which no equation makes."""
    use_backend(VulkanBackend(masked_device("no small storage")))
    x = np.arange(2 * count).astype(dtype)
    try:

        @poot.jit
        def f(x: Any, s: Any) -> Any:
            return x[:count], x[count:], x, s, (x[1:], x[1:])

        for _ in range(2):
            low, high, same, scalar, (one, other) = f(poot.device_put(x), dtype(1))
            np.testing.assert_array_equal(low, x[:count])
            np.testing.assert_array_equal(high, x[count:])
            np.testing.assert_array_equal(same, x)
            np.testing.assert_array_equal(one, x[1:])
            np.testing.assert_array_equal(other, x[1:])
            assert scalar.dtype == x.dtype and scalar.item() == 1
    finally:
        use_backend(device_backend())
