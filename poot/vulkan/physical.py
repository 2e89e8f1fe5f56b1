"""Physical devices: what each one is and can do, read once from its driver."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    VK_DRIVER_ID_MESA_LLVMPIPE,
    VK_PHYSICAL_DEVICE_TYPE_CPU,
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU,
    VK_QUEUE_COMPUTE_BIT,
    VK_QUEUE_GRAPHICS_BIT,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VK_SUBGROUP_FEATURE_ARITHMETIC_BIT,
    VK_SUBGROUP_FEATURE_BALLOT_BIT,
    VK_SUBGROUP_FEATURE_SHUFFLE_BIT,
)
from poot.vulkan.instance import Instance, version_tuple
from poot.vulkan.memory_types import (
    UNIFIED,
    MemoryLayout,
    MemoryType,
    choose_layout,
)

_KINDS = {
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: DeviceKind.DISCRETE,
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: DeviceKind.INTEGRATED,
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: DeviceKind.VIRTUAL,
    VK_PHYSICAL_DEVICE_TYPE_CPU: DeviceKind.CPU,
}

# lavapipe ends an invocation without a word after so many loop iterations.
_LLVMPIPE_LOOP_TRIPS = 65535

# The vendor whose devices let every workgroup that has begun go on.
_NVIDIA = 0x10DE

# A guess where no extension tells: enough to fill small devices of the kind.
_USUAL_COMPUTE_UNITS = {DeviceKind.DISCRETE: 32, DeviceKind.INTEGRATED: 8}

_SM_BUILTINS = "VK_NV_shader_sm_builtins"
_AMD_CORES = "VK_AMD_shader_core_properties2"
_BFLOAT16 = "VK_KHR_shader_bfloat16"


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A physical device and what poot needs to open it."""

    instance: Instance
    handle: int
    info: DeviceInfo
    extensions: frozenset[str]
    memory: MemoryLayout
    # The family that poot submits to; None where none computes.
    queue_family: int | None
    # How many bits of a timestamp that family writes; 0: it writes none.
    timestamp_bits: int
    pipeline_cache_uuid: bytes
    # Names of the boolean features that the driver offers.
    features: frozenset[str]
    # Subgroup sizes differ between kernels unless a pipeline asks for one.
    varying_subgroups: bool


def physical_devices(instance: Instance) -> list[PhysicalDevice]:
    """Every physical device in the driver's order."""
    instance.check_process()
    handles = binding.enumerate_all(
        "vkEnumeratePhysicalDevices",
        "VkPhysicalDevice",
        instance.functions.vkEnumeratePhysicalDevices,
        instance.handle,
    )
    return [_describe(instance, handle) for handle in handles]


@dataclass(slots=True)
class _Properties:
    """The driver's property structures of one device, filled in one call."""

    core: Any
    v11: Any
    v12: Any
    v13: Any
    sm: Any = None
    amd: Any = None


def _describe(instance: Instance, handle: int) -> PhysicalDevice:
    extensions = frozenset(
        binding.text(extension.extensionName)
        for extension in binding.enumerate_all(
            "vkEnumerateDeviceExtensionProperties",
            "VkExtensionProperties",
            instance.functions.vkEnumerateDeviceExtensionProperties,
            handle,
            binding.NULL,
        )
    )
    properties = _properties(instance, handle, extensions)
    version = _api_version(properties)
    features = _features(instance, handle, version, extensions)
    kind = _KINDS.get(properties.core.deviceType, DeviceKind.OTHER)
    types = _memory_types(instance, handle)
    unified = kind in (DeviceKind.CPU, DeviceKind.INTEGRATED) and any(
        memory.flags & UNIFIED == UNIFIED for memory in types
    )
    layout = choose_layout(types, unified=unified)
    info = _info(properties, features, kind, layout, unified)
    v13 = properties.v13
    families = _families(instance, handle)
    family = _compute_family(families)
    bits = 0 if family is None else families[family].timestampValidBits
    return PhysicalDevice(
        instance=instance,
        handle=handle,
        info=info,
        extensions=extensions,
        memory=layout,
        queue_family=family,
        timestamp_bits=bits,
        pipeline_cache_uuid=bytes(properties.core.pipelineCacheUUID),
        features=features,
        varying_subgroups=v13.minSubgroupSize != v13.maxSubgroupSize,
    )


def _api_version(properties: _Properties) -> tuple[int, int, int]:
    return version_tuple(properties.core.apiVersion)


def _properties(
    instance: Instance, handle: int, extensions: frozenset[str]
) -> _Properties:
    core = ffi.new("VkPhysicalDeviceProperties *")
    instance.functions.vkGetPhysicalDeviceProperties(handle, core)
    made = _Properties(
        core=core[0],
        v11=binding.struct("VkPhysicalDeviceVulkan11Properties"),
        v12=binding.struct("VkPhysicalDeviceVulkan12Properties"),
        v13=binding.struct("VkPhysicalDeviceVulkan13Properties"),
    )
    version = _api_version(made)
    if version < (1, 2, 0):
        return made
    chain = [made.v11, made.v12]
    if version >= (1, 3, 0):
        chain.append(made.v13)
    if _SM_BUILTINS in extensions:
        made.sm = binding.struct("VkPhysicalDeviceShaderSMBuiltinsPropertiesNV")
        chain.append(made.sm)
    if _AMD_CORES in extensions:
        made.amd = binding.struct("VkPhysicalDeviceShaderCoreProperties2AMD")
        chain.append(made.amd)
    head = _chained("VkPhysicalDeviceProperties2", chain)
    instance.functions.vkGetPhysicalDeviceProperties2(handle, head)
    return made


def _chained(name: str, chain: list[Any]) -> Any:
    """A structure `name` whose pNext leads through `chain`."""
    head = binding.struct(name)
    link = head
    for item in chain:
        link.pNext = item
        link = item
    return head


CORE_FEATURES = ("shaderInt16", "shaderInt64", "shaderFloat64")
FEATURES_11 = ("storageBuffer16BitAccess",)
FEATURES_12 = (
    "bufferDeviceAddress",
    "timelineSemaphore",
    "storageBuffer8BitAccess",
    "shaderFloat16",
    "shaderInt8",
    "shaderSubgroupExtendedTypes",
    "vulkanMemoryModel",
    "vulkanMemoryModelDeviceScope",
)
FEATURES_13 = ("subgroupSizeControl", "computeFullSubgroups", "maintenance4")
FEATURES_BFLOAT16 = ("shaderBFloat16Type",)

# The features of each extension that poot enables where it is offered.
EXTENSION_FEATURES = {_BFLOAT16: FEATURES_BFLOAT16}


def feature_structs(
    version: tuple[int, int, int], extensions: Collection[str]
) -> list[tuple[Any, tuple[str, ...]]]:
    """Empty feature structures of a Vulkan version and of extensions, with the fields
    that poot knows."""
    parts = [
        (binding.struct("VkPhysicalDeviceVulkan11Features"), FEATURES_11),
        (binding.struct("VkPhysicalDeviceVulkan12Features"), FEATURES_12),
    ]
    if version >= (1, 3, 0):
        parts.append((binding.struct("VkPhysicalDeviceVulkan13Features"), FEATURES_13))
    if _BFLOAT16 in extensions:
        struct = binding.struct("VkPhysicalDeviceShaderBfloat16FeaturesKHR")
        parts.append((struct, FEATURES_BFLOAT16))
    return parts


def _features(
    instance: Instance,
    handle: int,
    version: tuple[int, int, int],
    extensions: frozenset[str],
) -> frozenset[str]:
    if version < (1, 2, 0):
        return frozenset()
    parts = feature_structs(version, extensions)
    head = _chained("VkPhysicalDeviceFeatures2", [struct for struct, _ in parts])
    instance.functions.vkGetPhysicalDeviceFeatures2(handle, head)
    parts.append((head.features, CORE_FEATURES))
    return frozenset(
        name for struct, names in parts for name in names if getattr(struct, name)
    )


def _memory_types(instance: Instance, handle: int) -> list[MemoryType]:
    properties = binding.struct("VkPhysicalDeviceMemoryProperties2")
    instance.functions.vkGetPhysicalDeviceMemoryProperties2(handle, properties)
    memory = properties.memoryProperties
    return [
        MemoryType(
            number=number,
            flags=memory.memoryTypes[number].propertyFlags,
            heap=memory.memoryTypes[number].heapIndex,
            heap_bytes=memory.memoryHeaps[memory.memoryTypes[number].heapIndex].size,
        )
        for number in range(memory.memoryTypeCount)
    ]


def _families(instance: Instance, handle: int) -> list[Any]:
    found: list[Any] = binding.enumerate_all(
        "vkGetPhysicalDeviceQueueFamilyProperties",
        "VkQueueFamilyProperties",
        instance.functions.vkGetPhysicalDeviceQueueFamilyProperties,
        handle,
    )
    return found


def _compute_family(families: list[Any]) -> int | None:
    """A family that computes and draws not (fewer engines behind it), else any."""
    computing = [
        (bool(family.queueFlags & VK_QUEUE_GRAPHICS_BIT), number)
        for number, family in enumerate(families)
        if family.queueFlags & VK_QUEUE_COMPUTE_BIT
    ]
    return min(computing)[1] if computing else None


def _info(
    properties: _Properties,
    features: frozenset[str],
    kind: DeviceKind,
    layout: MemoryLayout,
    unified: bool,
) -> DeviceInfo:
    core, v11, v12 = properties.core, properties.v11, properties.v12
    limits = core.limits
    largest = v11.maxMemoryAllocationSize or layout.arrays.heap_bytes
    largest_buffer = properties.v13.maxBufferSize or largest
    in_compute = v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT
    subgroup = v11.subgroupSupportedOperations if in_compute else 0
    llvmpipe = v12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE
    return DeviceInfo(
        name=binding.text(core.deviceName),
        kind=kind,
        vendor_id=core.vendorID,
        device_id=core.deviceID,
        driver_name=binding.text(v12.driverName),
        driver_version=binding.text(v12.driverInfo),
        api_version=version_tuple(core.apiVersion),
        device_uuid=bytes(v11.deviceUUID),
        driver_uuid=bytes(v11.driverUUID),
        subgroup_size=v11.subgroupSize,
        max_workgroup_invocations=limits.maxComputeWorkGroupInvocations,
        max_workgroup_size=_triple(limits.maxComputeWorkGroupSize),
        max_workgroup_count=_triple(limits.maxComputeWorkGroupCount),
        max_shared_bytes=limits.maxComputeSharedMemorySize,
        max_push_bytes=limits.maxPushConstantsSize,
        max_allocation_bytes=min(largest, largest_buffer, layout.arrays.heap_bytes),
        heap_bytes=layout.arrays.heap_bytes,
        max_buffer_bytes=largest_buffer,
        non_coherent_atom_bytes=limits.nonCoherentAtomSize,
        timestamp_period_ns=limits.timestampPeriod,
        max_loop_trips=_LLVMPIPE_LOOP_TRIPS if llvmpipe else None,
        compute_units=_compute_units(properties, kind),
        forward_progress=core.vendorID == _NVIDIA,
        float16="shaderFloat16" in features,
        bfloat16="shaderBFloat16Type" in features,
        float64="shaderFloat64" in features,
        int8="shaderInt8" in features,
        int16="shaderInt16" in features,
        int64="shaderInt64" in features,
        storage8="storageBuffer8BitAccess" in features,
        storage16="storageBuffer16BitAccess" in features,
        subgroup_arithmetic=bool(subgroup & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT),
        subgroup_shuffle=bool(subgroup & VK_SUBGROUP_FEATURE_SHUFFLE_BIT),
        subgroup_ballot=bool(subgroup & VK_SUBGROUP_FEATURE_BALLOT_BIT),
        signed_zero_inf_nan_preserve=bool(v12.shaderSignedZeroInfNanPreserveFloat32),
        denorm_preserve32=bool(v12.shaderDenormPreserveFloat32),
        denorm_flush32=bool(v12.shaderDenormFlushToZeroFloat32),
        denorm_preserve16=bool(v12.shaderDenormPreserveFloat16),
        denorm_preserve64=bool(v12.shaderDenormPreserveFloat64),
        rounding_rte16=bool(v12.shaderRoundingModeRTEFloat16),
        vulkan_memory_model="vulkanMemoryModel" in features,
        unified_memory=unified,
    )


def _triple(values: Any) -> tuple[int, int, int]:
    return values[0], values[1], values[2]


def _compute_units(properties: _Properties, kind: DeviceKind) -> int:
    if kind is DeviceKind.CPU:
        return os.cpu_count() or 1
    if properties.sm is not None:
        return int(properties.sm.shaderSMCount)
    if properties.amd is not None:
        return int(properties.amd.activeComputeUnitCount)
    return _USUAL_COMPUTE_UNITS.get(kind, 8)
