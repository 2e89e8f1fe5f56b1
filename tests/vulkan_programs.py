"""A device under the validation layer, and small programs to run on it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from poot.core.dtypes import float32
from poot.core.errors import NoDeviceError
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Access,
    BufferRange,
    Dispatch,
    Kernel,
    Program,
    ResultSpec,
    SlotSpec,
    Space,
    WitnessSpec,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.grid import fold_grid
from poot.lowering.spirv.types import F32, U32
from poot.vulkan.device import Device
from poot.vulkan.instance import Instance
from poot.vulkan.memory_types import DEVICE_LOCAL, MemoryLayout, MemoryType
from poot.vulkan.physical import PhysicalDevice, physical_devices
from poot.vulkan.probe_rounding import Rounding

LANES = 64
PROBED_ROUNDING = {field.name for field in fields(Rounding)}
# For devices that need not know what a kernel run on them would tell, and start bare.
UNPROBED = {
    field.name: field.default
    for field in fields(DeviceInfo)
    if field.name == "keeps_subnormals32" or field.name in PROBED_ROUNDING
}


@functools.cache
def checked_instance() -> Instance:
    try:
        return Instance(validate=True)
    except NoDeviceError:
        return Instance()


@functools.cache
def the_physical() -> PhysicalDevice:
    found = physical_devices(checked_instance())
    return min(found, key=lambda physical: not physical.info.is_cpu)


@functools.cache
def _the_device() -> Device:
    return Device(the_physical())


@pytest.fixture(autouse=True)
def clean_validation() -> Iterator[None]:
    """No message of the validation layer, whichever device the test used."""
    messages = checked_instance().messages
    messages.clear()
    yield
    assert messages == []


@pytest.fixture
def physical() -> PhysicalDevice:
    return the_physical()


@pytest.fixture
def device() -> Device:
    """A device that the tests of all files share; leave it as it was."""
    return _the_device()


@pytest.fixture
def own_device() -> Iterator[Device]:
    """A device of the test's own, to break."""
    made = Device(the_physical(), mask=UNPROBED)
    yield made
    made.close()


@pytest.fixture
def split_device() -> Iterator[Device]:
    """A device whose arrays the host cannot see, as on a discrete GPU."""
    physical = the_physical()
    arrays = physical.memory.arrays
    hidden = MemoryType(arrays.number, DEVICE_LOCAL, arrays.heap, arrays.heap_bytes)
    memory = MemoryLayout(hidden, physical.memory.tables, physical.memory.readback)
    made = Device(
        replace(physical, memory=memory),
        mask={**UNPROBED, "unified_memory": False},
    )
    yield made
    made.close()


def whole(space: Space, index: int, type: TensorType) -> BufferRange:
    return BufferRange(space, index, 0, type.size_bytes)


def floats(count: int) -> TensorType:
    return TensorType((count,), float32)


def launch(
    info: DeviceInfo,
    kernel: Kernel,
    operands: tuple[BufferRange, ...],
    count: int,
    metadata: tuple[int, ...] = (),
) -> Dispatch:
    """A dispatch of one invocation an element, its ranges by the operands' access."""
    pairs = list(zip(kernel.operands, operands, strict=True))
    return Dispatch(
        kernel=kernel,
        operands=operands,
        grid=fold_grid(-(-count // kernel.workgroup[0]), info.max_workgroup_count),
        metadata=metadata,
        reads=tuple(span for operand, span in pairs if operand.access.reads),
        writes=tuple(span for operand, span in pairs if operand.access.writes),
        label=kernel.name,
    )


def element(k: KernelBuilder) -> Any:
    return k.workgroup_index() * LANES + k.local_index()


@functools.cache
def add_kernel(info: DeviceInfo, indirect: tuple[bool, bool, bool]) -> Kernel:
    """c = a + b, the number of elements in the metadata."""
    k = KernelBuilder("add", info, (LANES, 1, 1))
    a = k.operand("a", Access.READ, indirect=indirect[0])
    b = k.operand("b", Access.READ, indirect=indirect[1])
    c = k.operand("c", Access.WRITE, indirect=indirect[2])
    count, index = k.metadata(0), element(k)
    with k.when(index < count):
        total = k.load(a, F32, index, count) + k.load(b, F32, index, count)
        k.store(c, F32, index, total, count)
    return k.finish()


@functools.cache
def increment_kernel(info: DeviceInfo, *, indirect: bool, trips: int = 0) -> Kernel:
    """x += 1 in place; `trips` makes it slow, without changing what it does."""
    k = KernelBuilder("increment", info, (LANES, 1, 1))
    x = k.operand("x", Access.UPDATE, indirect=indirect)
    count, index = k.metadata(0), element(k)
    with k.when(index < count):
        value = k.variable(F32, k.load(x, F32, index, count))
        if trips:
            with k.loop(trips, unroll=False):
                value.store(value.load() * k.f32(-1.0))
        value.store(value.load() + k.f32(1.0))
        k.store(x, F32, index, value.load(), count)
    return k.finish()


def add_program(info: DeviceInfo, count: int) -> Program:
    """result = a + b."""
    spans = (
        whole(Space.ARGUMENT, 0, floats(count)),
        whole(Space.ARGUMENT, 1, floats(count)),
        whole(Space.RESULT, 0, floats(count)),
    )
    kernel = add_kernel(info, (True, True, True))
    return Program(
        body=(launch(info, kernel, spans, count, (count,)),),
        inputs=(floats(count), floats(count)),
        results=(ResultSpec(floats(count)),),
    )


def slow_trips(info: DeviceInfo) -> int:
    """Loop iterations that take about a millisecond or more; an even number."""
    return 20_000 if info.is_cpu else 2_000_000


def count_up_program(
    info: DeviceInfo, count: int, steps: int, *, slow: bool = False
) -> Program:
    """A donated input, incremented `steps` times in place."""
    trips = slow_trips(info) if slow else 0
    state = whole(Space.STATE, 0, floats(count))
    kernel = increment_kernel(info, indirect=True, trips=trips)
    return Program(
        body=(launch(info, kernel, (state,), count, (count,)),) * steps,
        inputs=(floats(count),),
        results=(ResultSpec(floats(count), input_index=0),),
        donated=frozenset({0}),
    )


def chain_program(info: DeviceInfo, count: int, links: int) -> Program:
    """result = 2**links * a, through the two halves of an arena."""
    size = floats(count).size_bytes
    halves = [BufferRange(Space.ARENA, 0, k * size, size) for k in range(2)]
    source, body = whole(Space.ARGUMENT, 0, floats(count)), []
    for number in range(links):
        last = number == links - 1
        target = whole(Space.RESULT, 0, floats(count)) if last else halves[number % 2]
        first = number == 0
        kernel = add_kernel(info, (first, first, last))
        spans = (source, source, target)
        body.append(launch(info, kernel, spans, count, (count,)))
        source = target
    return Program(
        body=tuple(body),
        inputs=(floats(count),),
        results=(ResultSpec(floats(count)),),
        arena_bytes=2 * size,
    )


def checked_program(info: DeviceInfo) -> Program:
    """result = slot + a for one element; the witness is that `a` is not 13."""
    k = KernelBuilder("checked", info, (1, 1, 1))
    a = k.operand("a", Access.READ, indirect=True)
    slot = k.operand("slot", Access.READ)
    result = k.operand("result", Access.WRITE, indirect=True)
    witness = k.operand("witness", Access.WRITE)
    value = k.load(a, F32, 0, 1)
    k.store(result, F32, 0, value + k.load(slot, F32, 0, 1), 1)
    bad = k.select(k.eq(value, k.f32(13.0)), k.u32(1), k.u32(0))
    k.store(witness, U32, 0, bad, 1)
    spans = (
        whole(Space.ARGUMENT, 0, floats(1)),
        BufferRange(Space.SLOT, 0, 0, 4),
        whole(Space.RESULT, 0, floats(1)),
        BufferRange(Space.WITNESS, 0, 16, 4),
    )
    return Program(
        body=(launch(info, k.finish(), spans, 1),),
        inputs=(floats(1), floats(1)),
        results=(ResultSpec(floats(1)),),
        slots=(SlotSpec(1, TensorType((), float32), 0),),
        witnesses=(WitnessSpec(16, "a was 13", "demo.py:7"),),
    )


def fetch(device: Device, buffer: Any, dtype: Any = np.float32) -> Any:
    out = np.empty(buffer.size_bytes // np.dtype(dtype).itemsize, dtype)
    device.download(buffer, out)
    return out
