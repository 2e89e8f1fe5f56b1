"""An open device: its queue, memory, transfers and pipelines."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from poot.core.errors import CapabilityError, LimitError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.tuned import Tuned
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.blocks import BlockSource
from poot.vulkan.choice import OVERRIDE, choose
from poot.vulkan.disk_cache import DiskCache, default_folder
from poot.vulkan.executable import Resources
from poot.vulkan.instance import NEEDED_VERSION, Instance
from poot.vulkan.memory import DeviceBuffer, MemoryStatistics, Pool
from poot.vulkan.memory_types import MemoryType
from poot.vulkan.physical import (
    CORE_FEATURES,
    EXTENSION_FEATURES,
    PhysicalDevice,
    feature_structs,
    physical_devices,
)
from poot.vulkan.pipelines import Pipelines
from poot.vulkan.probe import keeps_subnormals32
from poot.vulkan.probe_rounding import Rounding, rounding
from poot.vulkan.profiler import Profiler
from poot.vulkan.queue import Queue
from poot.vulkan.timestamps import Clock
from poot.vulkan.transfer import Bytes, Transfers
from poot.vulkan.tuning_store import TuningStore

# The DeviceInfo field that says whether a feature is wanted; others are, if offered.
_WANTED_BY = {
    "shaderInt16": "int16",
    "shaderInt64": "int64",
    "shaderFloat64": "float64",
    "storageBuffer16BitAccess": "storage16",
    "storageBuffer8BitAccess": "storage8",
    "shaderFloat16": "float16",
    "shaderBFloat16Type": "bfloat16",
    "shaderInt8": "int8",
    "vulkanMemoryModel": "vulkan_memory_model",
    "vulkanMemoryModelDeviceScope": "vulkan_memory_model",
}
# The DeviceInfo fields that a kernel finds out, unless they are masked.
_ROUNDING_FIELDS = {field.name for field in fields(Rounding)}
# Everything rests on these two.
REQUIRED_FEATURES = ("bufferDeviceAddress", "timelineSemaphore")
_SMALL_BLOCK_BYTES = 1 << 20


class Device:
    """A logical device; `close` it, or let the end of the process do so.

    `mask` changes fields of the DeviceInfo: features masked out are not enabled, so
    that the validation layer catches their use. `heap_bytes` caps the memory of arrays.
    `cache_folder` is where the driver's pipeline cache is kept, and beside it programs
    and what tuning found; None: nowhere.
    """

    def __init__(
        self,
        physical: PhysicalDevice,
        *,
        mask: Mapping[str, Any] | None = None,
        heap_bytes: int | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        _check_usable(physical)
        mask = dict(mask or {})
        self.cache_folder = cache_folder
        self.physical = physical
        self.info: DeviceInfo = replace(physical.info, **mask)
        self.clock = Clock(physical.timestamp_bits, self.info.timestamp_period_ns)
        # Those that get to know what calls take; more than one where blocks nest.
        self.profilers: tuple[Profiler, ...] = ()
        self._retired: deque[Resources] = deque()
        self._adopted: set[Resources] = set()
        self._collecting = threading.Lock()
        self._pools: dict[MemoryType, Pool] = {}
        with ExitStack() as parts:
            self._open(parts, heap_bytes, cache_folder)
            if "keeps_subnormals32" not in mask:
                keeps = keeps_subnormals32(self)
                self.info = self.info.masked(keeps_subnormals32=keeps)
            if not mask.keys() >= _ROUNDING_FIELDS:
                self.info = self.info.masked(**(asdict(rounding(self)) | mask))
            self._parts = parts.pop_all()
        self._tuning = TuningStore(cache_folder, _identity(physical))
        self.info = self.info.masked(tuned=Tuned(self._tuning.load()))
        _open_devices.add(self)

    def _open(
        self, parts: ExitStack, heap_bytes: int | None, cache_folder: Path | None
    ) -> None:
        """Make all that a device has, with what undoes it on `parts`."""
        physical, layout = self.physical, self.physical.memory
        instance = physical.instance.functions
        self.handle: int = _make_device(physical, self.info)
        self.functions = binding.device_table(instance, self.handle)
        parts.callback(self.functions.vkDestroyDevice, self.handle, binding.NULL)
        assert physical.queue_family is not None
        self.queue = Queue(
            self.functions,
            self.handle,
            physical.queue_family,
            # A CPU driver needs the core that polling would take.
            polls=not self.info.is_cpu,
        )
        parts.callback(self.queue.close)
        self.pipelines = Pipelines(
            self.functions,
            self.handle,
            subgroup_size=_asked_subgroup_size(physical),
            disk=DiskCache(cache_folder, _identity(physical)) if cache_folder else None,
        )
        parts.callback(self.pipelines.close)
        parts.callback(self._close_pools)
        cap = self.info.heap_bytes if heap_bytes is None else heap_bytes
        self.arrays = self._pool(layout.arrays, cap, None)
        self.tables = self._pool(
            layout.tables, layout.tables.heap_bytes, _SMALL_BLOCK_BYTES
        )
        self.readback = self._pool(
            layout.readback, layout.readback.heap_bytes, _SMALL_BLOCK_BYTES
        )
        self.transfers = Transfers(
            self.queue, self.handle, self._source(layout.readback)
        )
        parts.callback(self.transfers.close)
        parts.callback(self._close_resources)
        # On a lost device the wait fails at once, and what follows is allowed still.
        parts.callback(self.functions.vkDeviceWaitIdle, self.handle)

    def __repr__(self) -> str:
        info = self.info
        version = ".".join(map(str, info.api_version))
        subnormals = "kept" if info.keeps_subnormals32 else "flushed"
        return (
            f"Device({info.name}, {info.kind.value}, Vulkan {version}, "
            f"f32 subnormals {subnormals})"
        )

    # --- handles, for other bindings ----------------------------------------

    @property
    def instance_handle(self) -> int:
        return self.physical.instance.handle

    @property
    def physical_handle(self) -> int:
        return self.physical.handle

    @property
    def queue_handle(self) -> int:
        return self.queue.handle

    @property
    def queue_family(self) -> int:
        return self.queue.family

    # --- buffers ------------------------------------------------------------

    def allocate(self, size_bytes: int) -> DeviceBuffer:
        """A buffer of unknown content."""
        self._check_alive()
        return self.arrays.allocate(size_bytes)

    def upload(self, data: Any) -> DeviceBuffer:
        """A new buffer with the bytes of a C-contiguous array."""
        self._check_alive()
        raw = _as_bytes(data)
        buffer = self.arrays.allocate(raw.size)
        if raw.size:
            self.transfers.upload(buffer, raw)
        return buffer

    def download(self, buffer: DeviceBuffer, out: Any, *, checked: bool = True) -> None:
        """Fill the C-contiguous array `out` from `buffer`, once that is written.

        Raises CheckError if a check failed in a call that the bytes depend on, unless
        it is to be done not `checked`.
        """
        self._check_alive()
        raw = _as_bytes(out)
        if raw.size > buffer.size_bytes:
            raise LimitError(
                f"a download of {raw.size} bytes from a buffer of {buffer.size_bytes}"
            )
        if checked:
            self.wait(buffer)
        else:
            self.queue.wait(buffer.ready)
        if raw.size:
            self.transfers.download(buffer, raw)

    def fill(self, buffer: DeviceBuffer, word: int) -> None:
        """Write a 32-bit word all over a buffer."""
        self._check_alive()
        if buffer.size_bytes:
            self.transfers.fill(buffer, word)

    def duplicate(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """A new buffer with the same bytes."""
        self._check_alive()
        made = self.arrays.allocate(buffer.size_bytes)
        if buffer.size_bytes:
            self.transfers.copy(buffer, made)
        return made

    def is_ready(self, buffer: DeviceBuffer) -> bool:
        self._check_alive()
        return self.queue.is_done(buffer.ready)

    def wait(self, buffer: DeviceBuffer) -> None:
        """Return when a buffer is written; CheckError if its call failed a check."""
        self._check_alive()
        self.queue.wait(buffer.ready)
        if buffer.completion is not None:
            buffer.completion.check()

    def synchronize(self) -> None:
        """Return when everything submitted so far is done."""
        self._check_alive()
        self.queue.wait(self.queue.submitted)

    def memory_statistics(self) -> MemoryStatistics:
        """The state of the memory that arrays live in."""
        return self.arrays.statistics()

    # --- profiling ----------------------------------------------------------

    def start_profiling(self, profiler: Profiler) -> None:
        """Let calls that begin from now on run with timestamps, and wait for them."""
        self._check_alive()
        if not self.clock.bits:
            raise CapabilityError(
                f"{self.info.name} writes no timestamps on queue family "
                f"{self.queue_family}, so that nothing can be profiled on it"
            )
        with self._collecting:
            self.profilers = (*self.profilers, profiler)

    def stop_profiling(self, profiler: Profiler) -> None:
        with self._collecting:
            self.profilers = tuple(p for p in self.profilers if p is not profiler)

    def retune(self, winners: Mapping[str, str]) -> None:
        """Let what is planned from now on use these schedules, and later processes."""
        self._tuning.keep(winners)
        tuned = Tuned({**self.info.tuned.winners, **winners})
        self.info = self.info.masked(tuned=tuned)

    # --- lifetimes ----------------------------------------------------------

    def adopt(self, resources: Resources) -> None:
        self._adopted.add(resources)

    def retire(self, resources: Resources) -> None:
        """Have resources freed once their work is done; takes no lock."""
        self._retired.append(resources)

    def collect(self) -> None:
        """Free the retired resources whose work is done."""
        if not self._retired or self.queue.abandoned:
            return
        with self._collecting:
            for _ in range(len(self._retired)):
                resources = self._retired.popleft()
                if self.queue.is_done(resources.last_value):
                    self._adopted.discard(resources)
                    resources.close()
                else:
                    self._retired.append(resources)

    def close(self) -> None:
        """Wait for all work, then free everything; later calls raise."""
        if not self.handle:
            return
        _open_devices.discard(self)
        self.handle = 0
        if self.queue.abandoned:
            return
        if self.queue.failure is None:
            self.pipelines.save()
        self._parts.close()

    def _close_resources(self) -> None:
        """Free what executables hold, whoever still has them."""
        for resources in self._adopted:
            resources.close()
        self._adopted.clear()
        self._retired.clear()

    def _close_pools(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _check_alive(self) -> None:
        if self.queue.failure is not None:
            self.queue.raise_failure()

    def _source(self, memory_type: MemoryType) -> BlockSource:
        return BlockSource(self.functions, self.handle, memory_type)

    def _pool(
        self, memory_type: MemoryType, cap_bytes: int, block_bytes: int | None
    ) -> Pool:
        """The pool of a memory type; purposes with one type share it."""
        pool = self._pools.get(memory_type)
        if pool is None:
            pool = self._pools[memory_type] = Pool(
                self._source(memory_type),
                self.queue,
                cap_bytes=cap_bytes,
                block_bytes=block_bytes,
                max_allocation_bytes=self.info.max_allocation_bytes,
                reclaim=self.collect,
            )
        return pool


def open_device(
    override: str | None = None,
    *,
    cache_folder: Path | None = None,
) -> Device:
    """Open the device that `choose` picks; `override` stands for POOT_DEVICE."""
    devices = physical_devices(shared_instance())
    if override is None:
        override = os.environ.get(OVERRIDE)
    choice = choose([device.info for device in devices], override)
    return Device(
        devices[choice.number],
        cache_folder=default_folder() if cache_folder is None else cache_folder,
    )


@functools.cache
def shared_instance() -> Instance:
    """The process's usual instance."""
    return Instance()


def missing_features(physical: PhysicalDevice) -> list[str]:
    """What poot needs and the device lacks, by Vulkan's names."""
    missing = [name for name in REQUIRED_FEATURES if name not in physical.features]
    if physical.info.api_version < NEEDED_VERSION:
        missing.insert(0, "Vulkan " + ".".join(map(str, NEEDED_VERSION)))
    if physical.queue_family is None:
        missing.append("a queue family with VK_QUEUE_COMPUTE_BIT")
    return missing


def _check_usable(physical: PhysicalDevice) -> None:
    missing = missing_features(physical)
    if missing:
        info = physical.info
        version = ".".join(map(str, info.api_version))
        raise CapabilityError(
            f"{info.name} (Vulkan {version}, driver {info.driver_name} "
            f"{info.driver_version}) lacks {', '.join(missing)}, which poot needs. "
            f"Update the driver, or choose another device by {OVERRIDE}"
        )


def enabled_features(physical: PhysicalDevice, info: DeviceInfo) -> frozenset[str]:
    """The features that are offered and that `info` does not mask out."""
    return frozenset(
        name
        for name in physical.features
        if name not in _WANTED_BY or getattr(info, _WANTED_BY[name])
    )


def enabled_extensions(features: Collection[str]) -> list[str]:
    """The extensions that features need."""
    return [
        extension
        for extension, names in EXTENSION_FEATURES.items()
        if any(name in features for name in names)
    ]


def _make_device(physical: PhysicalDevice, info: DeviceInfo) -> int:
    enabled = enabled_features(physical, info)
    extensions = enabled_extensions(enabled)
    core = binding.struct("VkPhysicalDeviceFeatures2")
    parts = feature_structs(physical.info.api_version, extensions)
    link = core
    for part, _ in parts:
        link.pNext = part
        link = part
    for part, names in ((core.features, CORE_FEATURES), *parts):
        for name in names:
            setattr(part, name, name in enabled)
    queue = binding.struct(
        "VkDeviceQueueCreateInfo",
        queueFamilyIndex=physical.queue_family,
        queueCount=1,
        pQueuePriorities=ffi.new("float[1]", [1.0]),
    )
    create_info = binding.struct(
        "VkDeviceCreateInfo",
        pNext=core,
        queueCreateInfoCount=1,
        pQueueCreateInfos=queue,
        enabledExtensionCount=len(extensions),
        ppEnabledExtensionNames=binding.strings(extensions),
    )
    made = ffi.new("VkDevice *")
    create = physical.instance.functions.vkCreateDevice
    result = create(physical.handle, create_info, binding.NULL, made)
    binding.check(result, "vkCreateDevice")
    handle: int = made[0]
    return handle


def _asked_subgroup_size(physical: PhysicalDevice) -> int | None:
    """The size to ask of each pipeline where the driver would choose one itself."""
    if physical.varying_subgroups and "subgroupSizeControl" in physical.features:
        return physical.info.subgroup_size
    return None


def _identity(physical: PhysicalDevice) -> bytes:
    """What must be the same for a pipeline cache to be of use."""
    info = physical.info
    parts = (
        info.device_uuid.hex(),
        info.driver_uuid.hex(),
        physical.pipeline_cache_uuid.hex(),
        f"{info.vendor_id:x}:{info.device_id:x}",
        info.driver_name,
        info.driver_version,
        str(info.api_version),
    )
    return "\n".join(parts).encode()


def _as_bytes(data: Any) -> Bytes:
    """The bytes of a C-contiguous array or buffer, without a copy."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.c_contiguous:
        raise ValueError("arrays cross to the device C-contiguous; give a copy")
    return array.reshape(-1).view(np.uint8)


_open_devices: WeakSet[Device] = WeakSet()


@atexit.register
def _close_all() -> None:
    for device in list(_open_devices):
        device.close()
    if shared_instance.cache_info().currsize:
        shared_instance().close()
