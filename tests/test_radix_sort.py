"""The order of keys: rows of every length, every number of bits, made-up devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.errors import LimitError
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels.block_sort import largest_block
from poot.lowering.kernels.radix_kernels import choose_radix_schedule
from poot.lowering.kernels.radix_sort import plan_order, plan_order_by_words
from poot.lowering.plan.buffers import lifetimes, place, relocate
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.program import BufferRange, Copy, Program, ResultSpec, Space
from poot.vulkan.executable import Executable
from tests.kernel_harness import device

Array = np.ndarray[Any, Any]

# What a device may lack: votes, shuffles, most of its shared memory.
PROFILES: tuple[dict[str, Any], ...] = (
    {},
    {"subgroup_ballot": False},
    {"subgroup_shuffle": False},
    {"subgroup_ballot": False, "subgroup_shuffle": False},
    {"max_shared_bytes": 16384},
    {"kind": DeviceKind.OTHER},
    {"kind": DeviceKind.OTHER, "subgroup_ballot": False},
    {"max_workgroup_invocations": 128},
)


def program_of(info: DeviceInfo, words: list[tuple[Array, int]]) -> Program:
    """The program that orders constants and gives the permutation."""
    type = TensorType(words[0][0].shape, dtypes.uint32)
    builder = Builder()
    builder.result(builder.input(type))
    ctx = PlanContext(builder.finish(), info)
    views = [
        View(
            BufferRange(Space.CONST, number, 0, type.size_bytes),
            Layout.dense(type.shape),
            dtypes.uint32,
        )
        for number in range(len(words))
    ]
    if len(words) == 1:
        order = plan_order(ctx, views[0], words[0][1])
    else:
        bits = [bits for _, bits in words]
        order = plan_order_by_words(ctx, list(zip(views, bits, strict=True)))
    assert order.type == type and order.is_dense
    ctx.nodes.append(
        Copy(order.range, BufferRange(Space.RESULT, 0, 0, type.size_bytes))
    )
    offsets, size = place(lifetimes(ctx.nodes, ctx.arena))
    return Program(
        body=relocate(ctx.nodes, offsets),
        inputs=(),
        results=(ResultSpec(type),),
        consts=(type,) * len(words),
        arena_bytes=size,
    )


def order_of(*words: tuple[Array, int], **profile: Any) -> Array:
    """The permutation that the device finds."""
    where = device()
    program = program_of(where.info.masked(**profile), list(words))
    raw = [np.frombuffer(word.tobytes(), np.uint8) for word, _ in words]
    executable = Executable(where, program, [where.upload(each) for each in raw])
    (result,), _ = executable.call([], [])
    order = np.empty(words[0][0].shape, np.uint32)
    where.download(result, order.reshape(-1).view(np.uint8))
    executable.close()
    return order


def random_keys(shape: tuple[int, int], bits: int) -> Array:
    rng = np.random.default_rng(shape[0] * 31 + shape[1] + bits)
    return rng.integers(0, 1 << bits, shape, dtype=np.uint64).astype(np.uint32)


def assert_orders(shape: tuple[int, int], bits: int, **profile: Any) -> None:
    keys = random_keys(shape, bits)
    wanted = np.argsort(keys, axis=1, kind="stable")
    np.testing.assert_array_equal(order_of((keys, bits), **profile), wanted)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 64, 255, 256, 257, 1025, 2047, 2048])
def test_short_rows(length: int) -> None:
    for rows in (1, 3):
        for bits in (2, 32):
            assert_orders((rows, length), bits)


def test_many_short_rows() -> None:
    assert_orders((70_000, 5), 3)
    assert_orders((300, 100), 32)


@pytest.mark.parametrize(
    ("length", "bits"), [(2049, 1), (4096, 8), (9001, 9), (70_000, 17), (70_000, 32)]
)
def test_long_rows(length: int, bits: int) -> None:
    assert_orders((1, length), bits)


def test_many_long_rows() -> None:
    """More workgroups than one axis of a grid has."""
    assert_orders((260, 2100), 8)


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_profiles(profile: dict[str, Any]) -> None:
    for shape in ((3, 5), (2, 2048), (2, 5000)):
        assert_orders(shape, 12, **profile)


@pytest.mark.parametrize("bits", [(1, 32), (8, 5, 2), (3, 4, 1, 2, 32)])
@pytest.mark.parametrize("shape", [(4, 300), (2, 3000)])
def test_several_words(bits: tuple[int, ...], shape: tuple[int, int]) -> None:
    words = [random_keys(shape, min(each, 4)) for each in bits]
    wanted = np.lexsort(words[::-1], axis=1)
    found = order_of(*zip(words, bits, strict=True))
    np.testing.assert_array_equal(found, wanted)


def test_rows_that_are_equal_in_order_or_in_reverse() -> None:
    rising = np.arange(10_000, dtype=np.uint32)
    rows = np.stack([np.full_like(rising, 7), rising, rising[::-1]])
    wanted = np.argsort(rows, axis=1, kind="stable")
    np.testing.assert_array_equal(order_of((rows, 32)), wanted)


@pytest.mark.slow
def test_a_very_long_row() -> None:
    assert_orders((1, (1 << 24) + 3), 8)


@pytest.mark.parametrize("subgroup", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.DISCRETE])
@pytest.mark.parametrize("shared", [16384, 32768, 49152])
def test_schedules_fit_every_device(
    subgroup: int, kind: DeviceKind, shared: int
) -> None:
    info = DeviceInfo().masked(
        subgroup_size=subgroup, kind=kind, max_shared_bytes=shared
    )
    for votes in (True, False):
        schedule = choose_radix_schedule(info.masked(subgroup_ballot=votes))
        assert schedule.shared_bytes <= shared
        assert schedule.tile & (schedule.tile - 1) == 0
        words = [(np.zeros((2, 5000), np.uint32), 20)]
        program = program_of(info.masked(subgroup_ballot=votes), words)
        assert len(program.dispatches) == 9
    assert largest_block(info) * 16 <= shared


def test_one_launch_for_short_rows_and_three_a_digit_for_long_ones() -> None:
    info = DeviceInfo()
    for shape, bits, launches in (
        ((1, 1), 32, 1),
        ((1, 2048), 32, 1),
        ((1, 2049), 8, 3),
        ((1, 2049), 9, 6),
        ((5, 1 << 20), 32, 12),
    ):
        keys = np.broadcast_to(np.uint32(0), shape)
        assert len(program_of(info, [(keys, bits)]).dispatches) == launches


def test_too_many_elements() -> None:
    info = DeviceInfo().masked(max_allocation_bytes=1 << 40, max_buffer_bytes=1 << 40)
    keys = np.broadcast_to(np.uint32(0), (1, 1 << 31))
    with pytest.raises(LimitError, match="1 rows of 2147483648 elements; the most is"):
        program_of(info, [(keys, 8)])


def test_too_many_tiles() -> None:
    """With little shared memory tiles are small."""
    info = DeviceInfo().masked(
        max_allocation_bytes=1 << 40,
        max_buffer_bytes=1 << 40,
        max_shared_bytes=8192,
        max_workgroup_invocations=64,
        subgroup_size=16,
    )
    keys = np.broadcast_to(np.uint32(0), (1, (1 << 31) - 1))
    with pytest.raises(LimitError, match="rows of 2147483647 elements; in tiles of 64"):
        program_of(info, [(keys, 8)])
