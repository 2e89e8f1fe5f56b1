"""Running sums over the invocations of a workgroup."""

from __future__ import annotations

from poot.lowering.spirv.builder import KernelBuilder, Shared, Value
from poot.lowering.spirv.types import U32


def exclusive_sum(k: KernelBuilder, value: Value) -> tuple[Value, Value]:
    """The sum of a u32 over the invocations before this one, and over all.

    Every invocation of the workgroup must get here.
    """
    if k.info.subgroup_shuffle:
        return _by_shuffles(k, value)
    return _by_shared(k, value)


def _by_shuffles(k: KernelBuilder, value: Value) -> tuple[Value, Value]:
    """Inside subgroups by shuffles, across them through shared memory."""
    lane, subgroup = k.subgroup_lane(), k.subgroup_index()
    inclusive, step = value, 1
    while step < k.subgroup_size:
        below = k.ge(lane, step)
        other = k.subgroup_shuffle(inclusive, k.select(below, k.sub(lane, step), lane))
        inclusive = k.add(inclusive, k.select(below, other, 0))
        step *= 2
    sums = k.shared(U32, k.subgroup_count)
    with k.when(k.eq(lane, k.subgroup_size - 1)):
        sums.store(subgroup, inclusive)
    k.barrier()
    before, total = k.sub(inclusive, value), k.u32(0)
    for number in range(k.subgroup_count):
        part = sums.load(number)
        before = k.add(before, k.select(k.lt(number, subgroup), part, 0))
        total = k.add(total, part)
    k.barrier()
    return before, total


def _by_shared(k: KernelBuilder, value: Value) -> tuple[Value, Value]:
    """Through shared memory alone, in a logarithm of steps."""
    local, sums = k.local_index(), k.shared(U32, k.workgroup_count)
    inclusive, step = value, 1
    _put(k, sums, inclusive)
    while step < k.workgroup_count:
        below = k.ge(local, step)
        other = sums.load(k.select(below, k.sub(local, step), local))
        inclusive = k.add(inclusive, k.select(below, other, 0))
        k.barrier()
        _put(k, sums, inclusive)
        step *= 2
    total = sums.load(k.workgroup_count - 1)
    k.barrier()
    return k.sub(inclusive, value), total


def _put(k: KernelBuilder, sums: Shared, value: Value) -> None:
    sums.store(k.local_index(), value)
    k.barrier()
