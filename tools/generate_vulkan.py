"""Generate poot's Vulkan declarations from Khronos' registry (PyPI vulkan-object).

Writes two files of poot/vulkan: `_vk.py`, the cffi module (out-of-line ABI mode) with
the functions below and all that they need, and `declarations.py`, the constants that
the package names, structure types, result codes and typed function tables.
With --check it only says whether the committed files are up to date.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cffi
from vulkan_object import get_vulkan_object

PACKAGE = Path(__file__).parent.parent / "poot" / "vulkan"
DECLARATIONS = "poot.vulkan.declarations"


def _words(text: str) -> list[str]:
    return text.split()


GLOBAL_FUNCTIONS = _words("""
vkCreateInstance vkEnumerateInstanceVersion vkEnumerateInstanceLayerProperties
vkEnumerateInstanceExtensionProperties
""")

INSTANCE_FUNCTIONS = _words("""
vkDestroyInstance vkEnumeratePhysicalDevices vkGetPhysicalDeviceProperties
vkGetPhysicalDeviceProperties2 vkGetPhysicalDeviceFeatures2
vkGetPhysicalDeviceQueueFamilyProperties vkGetPhysicalDeviceMemoryProperties2
vkEnumerateDeviceExtensionProperties vkCreateDevice vkGetDeviceProcAddr
vkCreateDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT
""")

DEVICE_FUNCTIONS = _words("""
vkDestroyDevice vkGetDeviceQueue vkDeviceWaitIdle vkQueueSubmit
vkAllocateMemory vkFreeMemory vkMapMemory
vkFlushMappedMemoryRanges vkInvalidateMappedMemoryRanges
vkCreateBuffer vkDestroyBuffer vkGetBufferMemoryRequirements vkBindBufferMemory
vkGetBufferDeviceAddress
vkCreateShaderModule vkDestroyShaderModule
vkCreatePipelineLayout vkDestroyPipelineLayout
vkCreatePipelineCache vkDestroyPipelineCache vkGetPipelineCacheData
vkCreateComputePipelines vkDestroyPipeline
vkCreateCommandPool vkDestroyCommandPool vkAllocateCommandBuffers
vkBeginCommandBuffer vkEndCommandBuffer
vkCmdBindPipeline vkCmdPushConstants vkCmdDispatch vkCmdDispatchIndirect
vkCmdCopyBuffer vkCmdFillBuffer vkCmdPipelineBarrier
vkCreateSemaphore vkDestroySemaphore vkGetSemaphoreCounterValue vkWaitSemaphores
vkCreateQueryPool vkDestroyQueryPool vkGetQueryPoolResults
vkCmdResetQueryPool vkCmdWriteTimestamp
""")

# Structures that no function names, since they travel in pNext chains.
CHAINED_STRUCTS = _words("""
VkPhysicalDeviceVulkan11Features VkPhysicalDeviceVulkan12Features
VkPhysicalDeviceVulkan13Features VkPhysicalDeviceShaderBfloat16FeaturesKHR
VkPhysicalDeviceVulkan11Properties VkPhysicalDeviceVulkan12Properties
VkPhysicalDeviceVulkan13Properties
VkPhysicalDeviceShaderSMBuiltinsPropertiesNV VkPhysicalDeviceShaderCoreProperties2AMD
VkSemaphoreTypeCreateInfo VkTimelineSemaphoreSubmitInfo VkMemoryAllocateFlagsInfo
VkPipelineShaderStageRequiredSubgroupSizeCreateInfo VkValidationFeaturesEXT
""")

# Only ever passed as NULL.
OPAQUE_STRUCTS = {"VkAllocationCallbacks", "VkImageMemoryBarrier"}

C_INTEGERS = {
    "VkBool32": "uint32_t",
    "VkFlags": "uint32_t",
    "VkFlags64": "uint64_t",
    "VkDeviceSize": "uint64_t",
    "VkDeviceAddress": "uint64_t",
}


class Declarations:
    """C declarations in order of need, each once."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._seen: set[str] = set()
        self.lines: list[str] = []
        self.structs: list[str] = []

    def function(self, name: str) -> None:
        command = self._registry.commands[name]
        for param in command.params:
            self.type(param.type)
        self.type(command.returnType)
        pointer = command.cFunctionPointer.replace("VKAPI_PTR ", "")
        self.lines.append(self._with_numbers(pointer))

    def type(self, name: str) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        registry = self._registry
        if name in OPAQUE_STRUCTS:
            self.lines.append(f"typedef struct {name} {name};")
        elif name in C_INTEGERS:
            self.lines.append(f"typedef {C_INTEGERS[name]} {name};")
        elif name in registry.handles:
            # Handles are plain integers in Python; both kinds keep their C size.
            wide = registry.handles[name].dispatchable
            self.lines.append(f"typedef {'uintptr_t' if wide else 'uint64_t'} {name};")
        elif name in registry.enums:
            self.lines.append(f"typedef int32_t {name};")
        elif name in registry.bitmasks or name in registry.flags:
            flags = registry.bitmasks.get(name) or registry.flags[name]
            self.lines.append(f"typedef uint{flags.bitWidth}_t {name};")
        elif name in registry.structs:
            self._struct(registry.structs[name])
        elif name in registry.funcPointers:
            self._function_pointer(registry.funcPointers[name])

    def _struct(self, struct: Any) -> None:
        for member in struct.members:
            self.type(member.type)
        kind = "union" if struct.union else "struct"
        fields = " ".join(f"{m.cDeclaration.strip()};" for m in struct.members)
        fields = self._with_numbers(re.sub(r"\s+", " ", fields))
        self.lines.append(f"typedef {kind} {struct.name} {{ {fields} }} {struct.name};")
        self.structs.append(struct.name)

    def _function_pointer(self, pointer: Any) -> None:
        for param in pointer.params:
            self.type(param.type)
        self.type(pointer.returnType)
        text = pointer.cFunctionPointer.replace("VKAPI_PTR ", "")
        self.lines.append(self._with_numbers(text))

    def _with_numbers(self, text: str) -> str:
        constants = self._registry.constants
        return re.sub(r"\bVK_\w+", lambda match: str(constants[match[0]].value), text)


def _named_constants() -> set[str]:
    """The constants that the package's modules import from the declarations."""
    names: set[str] = set()
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == DECLARATIONS:
                names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("VK_")}


def _values(registry: Any) -> dict[str, int]:
    values: dict[str, int] = {}
    for enum in registry.enums.values():
        values |= {field.name: field.value for field in enum.fields}
    for bitmask in registry.bitmasks.values():
        values |= {flag.name: flag.value for flag in bitmask.flags}
    for constant in registry.constants.values():
        values[constant.name] = constant.value
    return values


def _dictionary(name: str, kind: str, items: Iterable[tuple[str, object]]) -> str:
    lines = [f"    {key}: {value}," for key, value in items]
    return "\n".join([f"{name}: {kind} = {{", *lines, "}"])


def _python_type(kind: str, full: str, registry: Any) -> str:
    if "*" in full or kind in registry.funcPointers:
        return "Any"
    return "None" if kind == "void" else "float" if kind == "float" else "int"


def _table(class_name: str, about: str, names: list[str], registry: Any) -> str:
    lines = [f"class {class_name}:", f'    """{about}"""', ""]
    for name in names:
        command = registry.commands[name]
        params = [
            "Any"
            if param.fixedSizeArray
            else _python_type(param.type, param.fullType, registry)
            for param in command.params
        ]
        result = _python_type(command.returnType, command.returnType, registry)
        line = f"    {name}: Callable[[{', '.join(params)}], {result}]"
        if len(line) > 88:
            inner = f"[{', '.join(params)}]"
            line = f"    {name}: Callable[\n        {inner},\n        {result},\n    ]"
        lines.append(line)
    return "\n".join(lines)


def _names(name: str, values: list[str]) -> str:
    lines = "\n".join(f'    "{value}",' for value in values)
    return f"{name} = (\n{lines}\n)"


def _python_module(registry: Any, declared: Declarations) -> Iterator[str]:
    yield (
        '"""Constants and function tables of Vulkan, generated by '
        'tools/generate_vulkan.py."""'
    )
    yield "\nfrom __future__ import annotations\n"
    yield "from collections.abc import Callable"
    yield "from typing import Any\n"
    yield f'HEADER_VERSION = "{registry.headerVersionComplete}"\n'
    values = _values(registry)
    for name in sorted(_named_constants()):
        yield f"{name} = {values[name]}"
    yield ""
    by_value: dict[int, str] = {}
    for field in registry.enums["VkResult"].fields:
        by_value.setdefault(field.value, field.name)
    results = [(str(code), f'"{by_value[code]}"') for code in sorted(by_value)]
    yield _dictionary("RESULT_NAMES", "dict[int, str]", results)
    yield ""
    types = [
        (f'"{name}"', str(values[registry.structs[name].sType]))
        for name in sorted(declared.structs)
        if registry.structs[name].sType
    ]
    yield _dictionary("STRUCTURE_TYPES", "dict[str, int]", types)
    for constant, class_name, names, about in _TABLES:
        yield ""
        yield _names(constant, names)
        yield "\n"
        yield _table(class_name, about, names, registry)
    yield ""


_TABLES = (
    (
        "GLOBAL_FUNCTIONS",
        "GlobalTable",
        GLOBAL_FUNCTIONS,
        "The functions that need no instance.",
    ),
    (
        "INSTANCE_FUNCTIONS",
        "InstanceTable",
        INSTANCE_FUNCTIONS,
        "The functions of an instance.",
    ),
    (
        "DEVICE_FUNCTIONS",
        "DeviceTable",
        DEVICE_FUNCTIONS,
        "The functions of a device.",
    ),
)

_CFFI_HEAD = '''\
"""Vulkan's types for cffi, generated by tools/generate_vulkan.py."""
# ruff: noqa
# mypy: ignore-errors
'''


def _cffi_module(declared: Declarations) -> str:
    ffi = cffi.FFI()
    ffi.cdef("\n".join(declared.lines))
    ffi.set_source("poot.vulkan._vk", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_vk.py"
        ffi.emit_python_code(str(path))
        return _CFFI_HEAD + path.read_text()


def generate() -> dict[Path, str]:
    """The text of both files."""
    registry = get_vulkan_object()
    declared = Declarations(registry)
    for name in (*GLOBAL_FUNCTIONS, *INSTANCE_FUNCTIONS, *DEVICE_FUNCTIONS):
        declared.function(name)
    declared.function("vkGetInstanceProcAddr")
    for name in CHAINED_STRUCTS:
        declared.type(name)
    # The one symbol that is looked up in the loader library itself.
    declared.lines.append(
        "PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, "
        "const char* name);"
    )
    return {
        PACKAGE / "_vk.py": _cffi_module(declared),
        PACKAGE / "declarations.py": "\n".join(_python_module(registry, declared)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__))
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = False
    for path, text in generate().items():
        if not path.exists() or path.read_text() != text:
            stale = True
            if check:
                print(f"{path} is out of date: run tools/generate_vulkan.py")
            else:
                path.write_text(text)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
