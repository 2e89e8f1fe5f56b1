"""What a device can do, as plain data. `vulkan` fills it; planning reads only it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any

from poot.lowering.tuned import Tuned


class DeviceKind(enum.Enum):
    """Vulkan's device types."""

    DISCRETE = "discrete"
    INTEGRATED = "integrated"
    VIRTUAL = "virtual"
    CPU = "cpu"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Limits, features and identity of one Vulkan device (the defaults: lavapipe)."""

    name: str = "made-up"
    kind: DeviceKind = DeviceKind.CPU
    vendor_id: int = 0
    device_id: int = 0
    driver_name: str = ""
    driver_version: str = ""
    api_version: tuple[int, int, int] = (1, 3, 0)
    device_uuid: bytes = bytes(16)
    driver_uuid: bytes = bytes(16)

    # Limits.
    subgroup_size: int = 8
    max_workgroup_invocations: int = 1024
    max_workgroup_size: tuple[int, int, int] = (1024, 1024, 1024)
    max_workgroup_count: tuple[int, int, int] = (65535, 65535, 65535)
    max_shared_bytes: int = 32768
    max_push_bytes: int = 128
    max_allocation_bytes: int = 1 << 31
    heap_bytes: int = 1 << 31
    max_buffer_bytes: int = 1 << 31
    non_coherent_atom_bytes: int = 64
    timestamp_period_ns: float = 1.0
    # Loop iterations one invocation may run in all; None where there is no limit
    # (lavapipe ends an invocation silently after 65535).
    max_loop_trips: int | None = 65535
    # Compute units, to judge how much parallelism fills the device.
    compute_units: int = 2

    # Whether a workgroup that has begun goes on whatever others do, so that later ones
    # may wait for it. Vulkan promises nothing, and only the vendor's word makes it so.
    forward_progress: bool = False

    # Features.
    float16: bool = True
    bfloat16: bool = False
    float64: bool = True
    int8: bool = True
    int16: bool = True
    int64: bool = True
    storage8: bool = True
    storage16: bool = True
    subgroup_arithmetic: bool = True
    subgroup_shuffle: bool = True
    subgroup_ballot: bool = True
    signed_zero_inf_nan_preserve: bool = True
    denorm_preserve32: bool = False
    denorm_flush32: bool = False
    denorm_preserve16: bool = False
    denorm_preserve64: bool = False
    rounding_rte16: bool = False
    vulkan_memory_model: bool = True
    unified_memory: bool = True
    # Whether f32 arithmetic keeps subnormals. Asked of the device by a probe kernel,
    # since drivers may flush or keep them without saying so.
    keeps_subnormals32: bool = False
    # Whether f32 division and square root round correctly, although Vulkan asks for
    # less. Asked of the device by a probe kernel too.
    exact_division32: bool = False
    # Whether GLSL's Fma rounds once, which Vulkan leaves open. Asked likewise.
    fused_multiply_add32: bool = False
    # Whether GLSL's UnpackHalf2x16 gives the numbers of f16, subnormals too; whether
    # its PackHalf2x16, and the conversion to the type bf16, round to nearest even.
    # NaN stays NaN then, but may lose its sign. Asked likewise.
    exact_half_unpacking: bool = False
    exact_half_packing: bool = False
    exact_bfloat_packing: bool = False

    # Schedules that were found to be faster than the usual ones. Kernels do not depend
    # on them but by the schedules that they are given, so equality leaves them out.
    tuned: Tuned = field(default=Tuned(), compare=False)

    @property
    def is_cpu(self) -> bool:
        return self.kind is DeviceKind.CPU

    # CPU drivers round to 16 bits lane by lane, which takes longer than arithmetic on
    # the bits of all lanes at once.

    @property
    def packs_halves(self) -> bool:
        """Whether kernels leave it to the device to round to f16."""
        return self.exact_half_packing and not self.is_cpu

    @property
    def packs_bfloats(self) -> bool:
        """Whether kernels leave it to the device to round to bf16."""
        return self.bfloat16 and self.exact_bfloat_packing and not self.is_cpu

    def masked(self, **changes: Any) -> DeviceInfo:
        """A copy with some features or limits changed, for made-up profiles."""
        return replace(self, **changes)
