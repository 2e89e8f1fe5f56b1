"""Vulkan's entry points: the loader, function tables, result codes and structures.

Handles are plain integers everywhere; structures are cffi objects made by `struct` and
`array`, which keep alive what they point to.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from poot.core.errors import (
    CapabilityError,
    DeviceError,
    DeviceLost,
    DeviceTimeout,
    NoDeviceError,
    OutOfMemory,
    PootError,
)
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    DEVICE_FUNCTIONS,
    GLOBAL_FUNCTIONS,
    INSTANCE_FUNCTIONS,
    RESULT_NAMES,
    STRUCTURE_TYPES,
    DeviceTable,
    GlobalTable,
    InstanceTable,
)

NULL = ffi.NULL
SUCCESS = 0
NOT_READY = 1
TIMEOUT = 2
INCOMPLETE = 5

_LOADER_NAMES = {
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"),
}
_LINUX_LOADER = ("libvulkan.so.1", "libvulkan.so")

_ERRORS: dict[str, type[PootError]] = {
    "VK_ERROR_DEVICE_LOST": DeviceLost,
    "VK_ERROR_OUT_OF_HOST_MEMORY": OutOfMemory,
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": OutOfMemory,
    "VK_ERROR_OUT_OF_POOL_MEMORY": OutOfMemory,
    "VK_ERROR_FEATURE_NOT_PRESENT": CapabilityError,
    "VK_ERROR_EXTENSION_NOT_PRESENT": CapabilityError,
    "VK_ERROR_INCOMPATIBLE_DRIVER": NoDeviceError,
    "VK_TIMEOUT": DeviceTimeout,
}

# What a structure points to must live as long as the structure.
_pointed_to: WeakKeyDictionary[Any, tuple[object, ...]] = WeakKeyDictionary()
_pointed_to_lock = threading.Lock()


def check(result: int, call: str) -> None:
    """Raise the error that `result` of the Vulkan function `call` stands for."""
    if result != SUCCESS:
        raise error_of(result, call)


def error_of(result: int, call: str, detail: str = "") -> PootError:
    """The typed error for a result code; codes that nobody knows are errors too."""
    name = RESULT_NAMES.get(result, "a code unknown to poot")
    kind = _ERRORS.get(name, DeviceError)
    return kind(f"{call} returned {name} ({result}){detail}")


def struct(name: str, **fields: Any) -> Any:
    """A pointer to a new structure with its sType set; keeps its pointees alive."""
    made = ffi.new(f"{name} *")
    if name in STRUCTURE_TYPES:
        made.sType = STRUCTURE_TYPES[name]
    for field, value in fields.items():
        setattr(made, field, value)
    _keep_alive(made, tuple(fields.values()))
    return made


def array(name: str, structs: Sequence[Any]) -> Any:
    """A C array with copies of the structures that `structs` point to."""
    made = ffi.new(f"{name}[]", [pointer[0] for pointer in structs])
    _keep_alive(made, tuple(structs))
    return made


def _keep_alive(owner: Any, pointees: tuple[object, ...]) -> None:
    with _pointed_to_lock:
        _pointed_to[owner] = pointees


def strings(values: Sequence[str]) -> Any:
    """A C array of C strings."""
    held = [ffi.new("char[]", value.encode()) for value in values]
    made = ffi.new("char *[]", held)
    _keep_alive(made, tuple(held))
    return made


def enumerate_all(
    call: str, kind: str, function: Callable[..., int | None], *leading: Any
) -> Any:
    """Ask for a count, then for that many items; again if the count grew between."""
    count = ffi.new("uint32_t *")
    while True:
        check(function(*leading, count, NULL) or SUCCESS, call)
        items = ffi.new(f"{kind}[]", count[0])
        result = function(*leading, count, items) or SUCCESS
        if result != INCOMPLETE:
            check(result, call)
            return items[0 : count[0]]


def text(characters: Any) -> str:
    """The Python string of a C string."""
    raw: bytes = ffi.string(characters)
    return raw.decode("utf-8", "replace")


class Loader:
    """The system's Vulkan loader, opened when first asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        self._library = _open_library(names)
        self.functions = GlobalTable()
        _fill(self.functions, GLOBAL_FUNCTIONS, lambda name: self._address(0, name))

    def instance_table(self, instance: int) -> InstanceTable:
        table = InstanceTable()
        _fill(table, INSTANCE_FUNCTIONS, lambda name: self._address(instance, name))
        return table

    def _address(self, instance: int, name: bytes) -> Any:
        return self._library.vkGetInstanceProcAddr(instance, name)


def device_table(instance_table: InstanceTable, device: int) -> DeviceTable:
    """The functions of a device, past the loader's own dispatch."""
    table = DeviceTable()
    resolve = instance_table.vkGetDeviceProcAddr
    _fill(table, DEVICE_FUNCTIONS, lambda name: resolve(device, name))
    return table


def _fill(table: object, names: Sequence[str], resolve: Callable[[bytes], Any]) -> None:
    for name in names:
        pointer = resolve(name.encode())
        # Extension functions are missing where their extension is not enabled.
        if pointer != NULL:
            setattr(table, name, ffi.cast(f"PFN_{name}", pointer))


def _open_library(names: Sequence[str]) -> Any:
    problems = []
    for name in names:
        try:
            return ffi.dlopen(name)
        except OSError as error:
            problems.append(str(error))
    raise NoDeviceError(
        f"no Vulkan loader: {'; '.join(problems)}. Install one (Debian, Ubuntu: apt "
        "install libvulkan1 and a driver such as mesa-vulkan-drivers)"
    )


@functools.cache
def loader() -> Loader:
    """The process's one loader."""
    return Loader(_LOADER_NAMES.get(sys.platform, _LINUX_LOADER))


_MAKES = re.compile(r"vk(?:Create|Allocate)(\w+)")
_DESTROYS = re.compile(r"vk(?:Destroy|Free)(\w+)")


class CallCounter:
    """Count the driver calls of function tables within a `with` block.

    `calls` counts by function; `live` counts handles made less handles destroyed.
    """

    def __init__(self, *tables: object) -> None:
        self._tables = tables
        self._saved: list[tuple[object, str, Any]] = []
        # Appending is atomic, so threads may call at once.
        self.log: list[str] = []
        self._handles: list[tuple[str, int]] = []

    @property
    def calls(self) -> Counter[str]:
        return Counter(self.log)

    @property
    def live(self) -> Counter[str]:
        """Handles by kind that were made and not destroyed within the block."""
        live: Counter[str] = Counter()
        for kind, change in self._handles:
            live[kind] += change
        return Counter({kind: count for kind, count in live.items() if count})

    def __enter__(self) -> CallCounter:
        for table in self._tables:
            for name, function in list(vars(table).items()):
                self._saved.append((table, name, function))
                setattr(table, name, self._counting(name, function))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for table, name, function in self._saved:
            setattr(table, name, function)
        self._saved.clear()

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        makes, destroys = _MAKES.fullmatch(name), _DESTROYS.fullmatch(name)

        def counted(*arguments: Any) -> Any:
            self.log.append(name)
            result = function(*arguments)
            # Command buffers go with their pool.
            if makes and result == SUCCESS and name != "vkAllocateCommandBuffers":
                kind = "Pipeline" if "Pipelines" in name else makes[1]
                self._handles.append((kind, 1))
            elif destroys and arguments[-2]:
                self._handles.append((destroys[1], -1))
            return result

        return counted
