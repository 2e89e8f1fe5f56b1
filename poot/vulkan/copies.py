"""Copies between buffers whose place changes from call to call, done by a kernel.

A recorded vkCmdCopyBuffer names its buffers; those of arguments and results are known
at the call only, so that a kernel copies through the address table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from poot.core.errors import CapabilityError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    TABLE_SPACES,
    Access,
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    Loop,
    Node,
    Program,
    Space,
    While,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.grid import fold_grid
from poot.lowering.spirv.types import U32, vector

_LANES = 64
_PADDING = 16


def lower_copies(program: Program, info: DeviceInfo) -> tuple[Node, ...]:
    """The body of a program, with dispatches for copies that need one.

    Those are copies of buffers whose place changes, and copies that may not happen.
    """

    def lower(nodes: Sequence[Node], switched: bool) -> tuple[Node, ...]:
        return tuple(made for node in nodes for made in lower_node(node, switched))

    def lower_node(node: Node, switched: bool) -> Iterator[Node]:
        if isinstance(node, Copy):
            moving = {node.source.space, node.target.space} & TABLE_SPACES
            if not (moving or switched):
                yield node
            elif node.source.size:
                yield _copy_dispatch(program, node, info)
        elif isinstance(node, Loop):
            yield replace(node, body=lower(node.body, switched))
        elif isinstance(node, While):
            predicate, body = lower(node.predicate, True), lower(node.body, True)
            yield replace(node, predicate=predicate, body=body)
        elif isinstance(node, Branch):
            bodies = tuple(lower(body, True) for body in node.bodies)
            yield replace(node, bodies=bodies)
        else:
            yield node

    return lower(program.body, False)


def _copy_dispatch(program: Program, node: Copy, info: DeviceInfo) -> Dispatch:
    size = node.source.size
    if _reaches_end(program, node.target):
        # Buffers are padded, so that the last lane may write past the end.
        size = (size + _PADDING - 1) & -_PADDING
    unit = _unit(node.source.offset | node.target.offset | size)
    kernel = _copy_kernel(
        info,
        unit,
        node.source.space in TABLE_SPACES,
        node.target.space in TABLE_SPACES,
    )
    count = size // unit
    return Dispatch(
        kernel=kernel,
        operands=(node.source, node.target),
        grid=fold_grid(-(-count // _LANES), info.max_workgroup_count),
        metadata=(count,),
        reads=node.reads,
        writes=node.writes,
        label=node.label,
    )


def _unit(bits: int) -> int:
    """The largest lane of 16, 4, 2 or 1 bytes that fits offsets and size."""
    return next(unit for unit in (16, 4, 2, 1) if bits % unit == 0)


def _reaches_end(program: Program, target: BufferRange) -> bool:
    if target.space is Space.RESULT:
        whole = program.results[target.index].type.size_bytes
    elif target.space is Space.STATE:
        whole = program.inputs[target.index].size_bytes
    else:
        return False
    return target.offset + target.size == whole


@functools.lru_cache(maxsize=64)
def _copy_kernel(
    info: DeviceInfo, unit: int, from_table: bool, to_table: bool
) -> Kernel:
    k = KernelBuilder(f"copy_{unit}_byte_lanes", info, (_LANES, 1, 1))
    source = k.operand("source", Access.READ, indirect=from_table)
    target = k.operand("target", Access.WRITE, indirect=to_table)
    count = k.metadata(0)
    index = k.add(k.mul(k.workgroup_index(), _LANES), k.local_index())
    with k.when(k.lt(index, count)):
        if unit < 4:
            if not k.has_small(8 * unit):
                raise CapabilityError(
                    f"a copy of {unit}-byte elements needs {8 * unit}-bit storage, "
                    f"which {info.name} lacks"
                )
            value = k.load_small(source, 8 * unit, index, count)
            k.store_small(target, 8 * unit, index, value, count)
        else:
            lane = U32 if unit == 4 else vector(U32, 4)
            k.store(target, lane, index, k.load(source, lane, index, count), count)
    return k.finish(schedule=f"one lane of {unit} bytes an invocation")
