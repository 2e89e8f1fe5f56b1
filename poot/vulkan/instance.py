"""The Vulkan instance, and the validation layer's messages where it is asked for."""

from __future__ import annotations

import os
from typing import Any

from poot.core.errors import ForkError, NoDeviceError
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
    VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
    VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT,
    VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
    VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
    VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR,
    VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT,
)

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
_PORTABILITY = "VK_KHR_portability_enumeration"
_DEBUG_UTILS = "VK_EXT_debug_utils"

# Device addresses and timeline semaphores are in Vulkan since 1.2.
NEEDED_VERSION = (1, 2)


def version_tuple(version: int) -> tuple[int, int, int]:
    """Major, minor and patch of a packed Vulkan version."""
    return (version >> 22) & 0x7F, (version >> 12) & 0x3FF, version & 0xFFF


def _packed_version(major: int, minor: int) -> int:
    return major << 22 | minor << 12


class Instance:
    """A Vulkan instance; close it after the devices made from it.

    With `validate` the Khronos validation layer checks every call and writes its
    warnings and errors to `messages`; `synchronization` adds its hazard checks.
    """

    def __init__(
        self, *, validate: bool = False, synchronization: bool = False
    ) -> None:
        _refuse_fork()
        self.messages: list[str] = []
        self._process = os.getpid()
        loader = binding.loader()
        extensions = self._extensions(validate)
        layers = [VALIDATION_LAYER] if validate else []
        if validate:
            _need_validation_layer()
        info = binding.struct(
            "VkInstanceCreateInfo",
            pApplicationInfo=_application(),
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=binding.strings(layers),
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=binding.strings(extensions),
        )
        if _PORTABILITY in extensions:
            info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
        features = _synchronization_checks() if synchronization else None
        if features is not None:
            info.pNext = features
        handle = ffi.new("VkInstance *")
        result = loader.functions.vkCreateInstance(info, binding.NULL, handle)
        if result != binding.SUCCESS:
            raise _no_instance(result)
        self.handle: int = handle[0]
        self.functions = loader.instance_table(self.handle)
        self._messenger = 0
        self._callback: Any = None
        if validate:
            self._listen()

    @staticmethod
    def _extensions(validate: bool) -> list[str]:
        offered = {
            binding.text(extension.extensionName)
            for extension in binding.enumerate_all(
                "vkEnumerateInstanceExtensionProperties",
                "VkExtensionProperties",
                binding.loader().functions.vkEnumerateInstanceExtensionProperties,
                binding.NULL,
            )
        }
        wanted = [_PORTABILITY] if _PORTABILITY in offered else []
        return wanted + ([_DEBUG_UTILS] if validate else [])

    def _listen(self) -> None:
        def collect(severity: int, kinds: int, data: Any, user: Any) -> int:
            self.messages.append(binding.text(data.pMessage))
            return 0

        # Must live as long as the messenger.
        self._callback = ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", collect)
        info = binding.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
            | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
            messageType=VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
            | VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
            | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
            pfnUserCallback=self._callback,
        )
        messenger = ffi.new("VkDebugUtilsMessengerEXT *")
        create = self.functions.vkCreateDebugUtilsMessengerEXT
        binding.check(
            create(self.handle, info, binding.NULL, messenger),
            "vkCreateDebugUtilsMessengerEXT",
        )
        self._messenger = messenger[0]

    def check_process(self) -> None:
        """Raise ForkError in a process forked from the one that made the instance."""
        if self._process != os.getpid():
            _refuse_fork()

    def close(self) -> None:
        """Destroy the instance; a second time, or in a forked child, do nothing."""
        if not self.handle or self._process != os.getpid():
            return
        if self._messenger:
            self.functions.vkDestroyDebugUtilsMessengerEXT(
                self.handle, self._messenger, binding.NULL
            )
        self.functions.vkDestroyInstance(self.handle, binding.NULL)
        self.handle = self._messenger = 0


def _application() -> Any:
    return binding.struct(
        "VkApplicationInfo",
        pApplicationName=ffi.new("char[]", b"poot"),
        pEngineName=ffi.new("char[]", b"poot"),
        # The highest version whose structures poot fills and reads.
        apiVersion=_packed_version(1, 3),
    )


def _synchronization_checks() -> Any:
    enabled = ffi.new(
        "VkValidationFeatureEnableEXT[]",
        [VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT],
    )
    return binding.struct(
        "VkValidationFeaturesEXT",
        enabledValidationFeatureCount=1,
        pEnabledValidationFeatures=enabled,
    )


def _need_validation_layer() -> None:
    layers = binding.enumerate_all(
        "vkEnumerateInstanceLayerProperties",
        "VkLayerProperties",
        binding.loader().functions.vkEnumerateInstanceLayerProperties,
    )
    if VALIDATION_LAYER not in {binding.text(layer.layerName) for layer in layers}:
        raise NoDeviceError(
            f"the layer {VALIDATION_LAYER} is not installed (Debian, Ubuntu: apt "
            "install vulkan-validationlayers)"
        )


def _no_instance(result: int) -> NoDeviceError:
    error = binding.error_of(result, "vkCreateInstance")
    return NoDeviceError(
        f"{error}: the loader found no usable Vulkan driver. Install one (Debian, "
        "Ubuntu: apt install mesa-vulkan-drivers, or the GPU maker's driver)"
    )


_first_process: int | None = None


def _refuse_fork() -> None:
    """Vulkan drivers do not survive a fork: their threads stay in the parent."""
    global _first_process
    if _first_process is None:
        _first_process = os.getpid()
    elif _first_process != os.getpid():
        raise ForkError(
            f"process {os.getpid()} was forked from {_first_process}, which had opened "
            "Vulkan already; start workers with multiprocessing's 'spawn' instead"
        )
