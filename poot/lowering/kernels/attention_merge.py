"""Puts together what the splits of attention leave."""

from __future__ import annotations

from poot.core import dtypes
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.attention_frame import Places
from poot.lowering.kernels.attention_keys import EXTRA_PARTS
from poot.lowering.kernels.attention_program import AttentionProgram
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.memory import load_element
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Value
from poot.lowering.spirv.types import F32


def merged_elements(program: AttentionProgram) -> int:
    """How many invocations merge: one an element of the result."""
    return program.batches * program.row_count * program.values


@kernel_cache
def attention_merge_kernel(
    info: DeviceInfo, program: AttentionProgram, splits: int, workgroup: int
) -> Kernel:
    """Operands: the parts, f32 [rows of all batches, splits, E + 2], and the result."""
    k = KernelBuilder("attention_merge", info, (workgroup, 1, 1))
    parts = k.operand("parts", Access.READ)
    target = k.operand("y", Access.WRITE, indirect=program.target.indirect)
    places = Places(k, program)
    width = program.values + EXTRA_PARTS
    bound = program.batches * program.row_count * splits * width
    element = k.add(k.mul(k.workgroup_index(), workgroup), k.local_index())
    row = k.index_div(element, program.values)
    feature = k.index_rem(element, program.values)

    def part(split: Size, place: Size) -> Value:
        at = k.add(k.mul(k.add(k.mul(row, splits), split), width), place)
        return load_element(k, parts, dtypes.float32, k.value(at), bound)

    with k.when(k.lt(element, merged_elements(program))):
        peak = k.variable(F32, k.const(F32, float("-inf")))
        with k.loop(splits) as split:
            other = part(split, program.values)
            peak.store(k.select(k.lt(peak.load(), other), other, peak.load()))
        base = places.finite(peak.load())
        total, sum = (k.variable(F32, k.const(F32, 0)) for _ in range(2))
        with k.loop(splits) as split:
            shrink = places.exp(k.sub(part(split, program.values), base))
            mine = k.mul(part(split, feature), shrink)
            sum.store(k.add(sum.load(), mine))
            mine = k.mul(part(split, program.values + 1), shrink)
            total.store(k.add(total.load(), mine))
        places.batch = k.index_div(row, program.row_count)
        stand = program.target
        at = places.row_base(stand, k.index_rem(row, program.row_count))
        index = k.value(k.add(at, k.mul(feature, stand.strides[-1])))
        mean = places.divide(sum.load(), total.load())
        store_element(k, target, stand.dtype, index, mean, stand.bound)
    return k.finish(f"{splits} splits, {workgroup} invocations")
