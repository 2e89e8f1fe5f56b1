"""Compute pipelines by kernel content, kept while used and a little longer."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poot.lowering.program import Kernel
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT,
    VK_SHADER_STAGE_COMPUTE_BIT,
    DeviceTable,
)
from poot.vulkan.disk_cache import DiskCache

# Pipelines that no executable uses any more but that may come again.
_KEPT_UNUSED = 32
# The disk cache is written at the end, and whenever so many new ones are in it.
_SAVE_EVERY = 32

_Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class Pipeline:
    """A pipeline and its layout; `users` counts the executables that hold it."""

    key: _Key
    handle: int
    layout: int
    users: int = 0


class Pipelines:
    """The pipelines of one device.

    `subgroup_size` is asked for where the driver would otherwise choose one a kernel.
    """

    def __init__(
        self,
        functions: DeviceTable,
        device: int,
        *,
        subgroup_size: int | None,
        disk: DiskCache | None,
    ) -> None:
        self._functions = functions
        self._device = device
        self._subgroup_size = subgroup_size
        self._disk = disk
        self._lock = threading.Lock()
        self._made: OrderedDict[_Key, Pipeline] = OrderedDict()
        self._layouts: dict[int, int] = {}
        self._unsaved = 0
        self._cache = self._make_cache(disk.load() if disk else b"")

    def acquire(self, kernels: Sequence[Kernel]) -> list[Pipeline]:
        """One pipeline a kernel, compiled now if need be; `release` them later."""
        keys = [(kernel.digest, kernel.push_bytes) for kernel in kernels]
        with self._lock:
            missing = {
                key: kernel
                for key, kernel in zip(keys, kernels, strict=True)
                if key not in self._made
            }
            for pipeline in self._compile_all(missing):
                self._made[pipeline.key] = pipeline
            acquired = [self._made[key] for key in keys]
            for pipeline in acquired:
                pipeline.users += 1
                self._made.move_to_end(pipeline.key)
            self._drop_unused()
            self._unsaved += len(missing)
            save = self._unsaved >= _SAVE_EVERY
        if save:
            self.save()
        return acquired

    def release(self, pipelines: Sequence[Pipeline]) -> None:
        """Give pipelines back once no submitted work uses them."""
        with self._lock:
            for pipeline in pipelines:
                pipeline.users -= 1
            self._drop_unused()

    def save(self) -> None:
        """Write the driver's cache to disk, if there is anything new in it."""
        with self._lock:
            if not self._unsaved or self._disk is None:
                return
            self._unsaved = 0
            payload = self._cache_data()
        if payload:
            self._disk.store(payload)

    def close(self) -> None:
        with self._lock:
            for pipeline in self._made.values():
                self._destroy(pipeline)
            self._made.clear()
            for layout in self._layouts.values():
                destroy = self._functions.vkDestroyPipelineLayout
                destroy(self._device, layout, binding.NULL)
            self._layouts.clear()
            if self._cache:
                destroy = self._functions.vkDestroyPipelineCache
                destroy(self._device, self._cache, binding.NULL)
                self._cache = 0

    def _compile_all(self, missing: dict[_Key, Kernel]) -> list[Pipeline]:
        layouts = {key: self._layout(key[1]) for key in missing}
        # An interpreter that is shutting down (in an atexit handler) starts no threads.
        if len(missing) < 2 or not threading.main_thread().is_alive():
            return self._compile_in_turn(missing, layouts)
        # The driver compiles outside Python's lock, so threads do run side by side.
        workers = min(len(missing), os.cpu_count() or 1)
        with concurrent.futures.ThreadPoolExecutor(workers) as threads:
            jobs = [
                threads.submit(self._compile, key, kernel, layouts[key])
                for key, kernel in missing.items()
            ]
        failed = next((job for job in jobs if job.exception()), None)
        if failed is not None:
            for job in jobs:
                if not job.exception():
                    self._destroy(job.result())
        return [job.result() for job in (failed, *jobs) if job is not None]

    def _compile_in_turn(
        self, missing: dict[_Key, Kernel], layouts: dict[_Key, int]
    ) -> list[Pipeline]:
        made: list[Pipeline] = []
        try:
            for key, kernel in missing.items():
                made.append(self._compile(key, kernel, layouts[key]))
        except BaseException:
            for pipeline in made:
                self._destroy(pipeline)
            raise
        return made

    def _compile(self, key: _Key, kernel: Kernel, layout: int) -> Pipeline:
        module = self._make_module(kernel)
        try:
            info = binding.struct("VkComputePipelineCreateInfo", layout=layout)
            stage = self._stage(kernel, module)
            info.stage = stage[0]
            made = ffi.new("VkPipeline *")
            result = self._functions.vkCreateComputePipelines(
                self._device, self._cache, 1, info, binding.NULL, made
            )
            call = f"vkCreateComputePipelines of kernel {kernel.name}"
            binding.check(result, call)
        finally:
            self._functions.vkDestroyShaderModule(self._device, module, binding.NULL)
        return Pipeline(key, made[0], layout)

    def _make_module(self, kernel: Kernel) -> int:
        words = ffi.new("uint32_t[]", len(kernel.words) // 4)
        ffi.memmove(words, kernel.words, len(kernel.words))
        info = binding.struct(
            "VkShaderModuleCreateInfo", codeSize=len(kernel.words), pCode=words
        )
        made = ffi.new("VkShaderModule *")
        create = self._functions.vkCreateShaderModule
        result = create(self._device, info, binding.NULL, made)
        binding.check(result, f"vkCreateShaderModule of kernel {kernel.name}")
        module: int = made[0]
        return module

    def _stage(self, kernel: Kernel, module: int) -> Any:
        fields: dict[str, Any] = {}
        size = self._subgroup_size
        if size is not None:
            fields["pNext"] = binding.struct(
                "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo",
                requiredSubgroupSize=size,
            )
            if kernel.workgroup[0] % size == 0:
                fields["flags"] = (
                    VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
                )
        return binding.struct(
            "VkPipelineShaderStageCreateInfo",
            stage=VK_SHADER_STAGE_COMPUTE_BIT,
            module=module,
            pName=_ENTRY_POINT,
            **fields,
        )

    def _layout(self, push_bytes: int) -> int:
        layout = self._layouts.get(push_bytes)
        if layout is None:
            layout = self._layouts[push_bytes] = self._make_layout(push_bytes)
        return layout

    def _make_layout(self, push_bytes: int) -> int:
        push = binding.struct(
            "VkPushConstantRange",
            stageFlags=VK_SHADER_STAGE_COMPUTE_BIT,
            size=push_bytes,
        )
        info = binding.struct(
            "VkPipelineLayoutCreateInfo",
            pushConstantRangeCount=1 if push_bytes else 0,
            pPushConstantRanges=push,
        )
        made = ffi.new("VkPipelineLayout *")
        create = self._functions.vkCreatePipelineLayout
        result = create(self._device, info, binding.NULL, made)
        binding.check(result, "vkCreatePipelineLayout")
        layout: int = made[0]
        return layout

    def _make_cache(self, payload: bytes) -> int:
        info = binding.struct(
            "VkPipelineCacheCreateInfo",
            initialDataSize=len(payload),
            pInitialData=ffi.from_buffer(payload),
        )
        made = ffi.new("VkPipelineCache *")
        create = self._functions.vkCreatePipelineCache
        result = create(self._device, info, binding.NULL, made)
        binding.check(result, "vkCreatePipelineCache")
        cache: int = made[0]
        return cache

    def _cache_data(self) -> bytes:
        size = ffi.new("size_t *")
        get = self._functions.vkGetPipelineCacheData
        result = get(self._device, self._cache, size, binding.NULL)
        binding.check(result, "vkGetPipelineCacheData")
        data = ffi.new("char[]", size[0])
        result = get(self._device, self._cache, size, data)
        # Another thread may have compiled in between; a part of a cache is one too.
        if result != binding.INCOMPLETE:
            binding.check(result, "vkGetPipelineCacheData")
        return bytes(ffi.buffer(data, size[0]))

    def _drop_unused(self) -> None:
        unused = [p for p in self._made.values() if not p.users]
        for pipeline in unused[: max(0, len(unused) - _KEPT_UNUSED)]:
            del self._made[pipeline.key]
            self._destroy(pipeline)

    def _destroy(self, pipeline: Pipeline) -> None:
        destroy = self._functions.vkDestroyPipeline
        destroy(self._device, pipeline.handle, binding.NULL)


_ENTRY_POINT = ffi.new("char[]", b"main")
