"""Puts together what the splits of attention leave.

A workgroup has elements of one row. Each invocation loads its element of all splits at
once, while the workgroup finds what each split weighs: one wait for memory in all.
"""

from __future__ import annotations

import functools

from poot.core import dtypes
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_frame import Places
from poot.lowering.kernels.attention_keys import EXTRA_PARTS
from poot.lowering.kernels.attention_program import AttentionProgram
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.memory import load_element
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Shared, Size, Value
from poot.lowering.spirv.types import F32

# Elements of a row that a workgroup has at most.
_MOST_ELEMENTS = 128


def merge_workgroup(info: DeviceInfo, program: AttentionProgram) -> int:
    """The invocations of a workgroup: enough for a row, if that is short."""
    limits = info.max_workgroup_invocations, info.max_workgroup_size[0]
    most = min(_MOST_ELEMENTS, *limits)
    workgroup = info.subgroup_size
    while workgroup < min(program.values, most):
        workgroup *= 2
    return workgroup


def merge_groups(program: AttentionProgram, workgroup: int) -> int:
    """How many workgroups merge all rows."""
    return program.batches * program.row_count * _blocks(program, workgroup)


def _blocks(program: AttentionProgram, workgroup: int) -> int:
    return -(-program.values // workgroup)


@kernel_cache
def attention_merge_kernel(
    info: DeviceInfo, program: AttentionProgram, splits: int, workgroup: int
) -> Kernel:
    """Operands: the parts, f32 [rows of all batches, splits, E + 2], and the result."""
    k = KernelBuilder("attention_merge", info, (workgroup, 1, 1))
    parts = k.operand("parts", Access.READ)
    target = k.operand("y", Access.WRITE, indirect=program.target.indirect)
    places = Places(k, program)
    width, blocks = program.values + EXTRA_PARTS, _blocks(program, workgroup)
    rows = program.batches * program.row_count
    bound = rows * splits * width
    group = k.workgroup_index()
    # Workgroups past the last row merge that once more, and write nothing.
    row = k.min(k.index_div(group, blocks), rows - 1)
    feature = k.add(k.mul(k.index_rem(group, blocks), workgroup), k.local_index())

    def part(split: Size, place: Size) -> Value:
        at = k.add(k.mul(k.add(k.mul(row, splits), split), width), place)
        return load_element(k, parts, dtypes.float32, k.value(at), bound)

    mine = k.min(k.value(feature), program.values - 1)
    found = [part(split, mine) for split in range(splits)]
    peaks, totals = k.shared(F32, splits), k.shared(F32, splits)
    own = k.loop(splits, start=k.local_index(), step=workgroup, max_trips=splits)
    with own as split:
        peaks.store(split, part(split, program.values))
        totals.store(split, part(split, program.values + 1))
    k.barrier()
    weights = _weights(places, peaks, splits, workgroup)
    total = k.variable(F32, k.const(F32, 0))
    with k.loop(splits) as split:
        grown = k.mul(totals.load(split), weights.load(split))
        total.store(k.add(total.load(), grown))
    terms = [k.mul(value, weights.load(n)) for n, value in enumerate(found)]
    sum = functools.reduce(k.add, terms)
    places.batch = k.index_div(row, program.row_count)
    stand = program.target
    at = places.row_base(stand, k.index_rem(row, program.row_count))
    index = k.value(k.add(at, k.mul(feature, stand.strides[-1])))
    inside = k.logical_and(
        k.lt(group, rows * blocks), k.lt(k.value(feature), program.values)
    )
    with k.when(inside):
        mean = places.divide(sum, total.load())
        store_element(k, target, stand.dtype, index, mean, stand.bound)
    return k.finish(f"{splits} splits, {workgroup} invocations")


def _weights(places: Places, peaks: Shared, splits: int, workgroup: int) -> Shared:
    """What sums below the peak of each split are multiplied by."""
    k = places.k
    weights = k.shared(F32, splits)
    peak = k.variable(F32, k.const(F32, float("-inf")))
    with k.loop(splits) as split:
        other, largest = peaks.load(split), peak.load()
        peak.store(places.larger(largest, other))
    base = places.finite(peak.load())
    own = k.loop(splits, start=k.local_index(), step=workgroup, max_trips=splits)
    with own as split:
        weights.store(split, places.exp(k.sub(peaks.load(split), base)))
    k.barrier()
    return weights
