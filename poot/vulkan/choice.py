"""Which physical device poot uses, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.errors import NoDeviceError
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.vulkan.instance import NEEDED_VERSION

_ORDER = (
    DeviceKind.DISCRETE,
    DeviceKind.INTEGRATED,
    DeviceKind.VIRTUAL,
    DeviceKind.CPU,
    DeviceKind.OTHER,
)
OVERRIDE = "POOT_DEVICE"


@dataclass(frozen=True, slots=True)
class Choice:
    """The number of the chosen device in the list, and the reason."""

    number: int
    reason: str


def choose(devices: Sequence[DeviceInfo], override: str | None = None) -> Choice:
    """Choose by kind (discrete first), or as `override` says.

    `override` is a number in the list or a part of a device's name, in any case.
    """
    if not devices:
        raise NoDeviceError(
            "no Vulkan device: the loader runs but no driver offers a device. Install "
            "one (Debian, Ubuntu: apt install mesa-vulkan-drivers)"
        )
    if override is not None and override.strip():
        return _overridden(devices, override.strip())
    usable = [n for n, info in enumerate(devices) if info.api_version >= NEEDED_VERSION]
    if not usable:
        raise NoDeviceError(
            f"no device offers Vulkan {_dotted(NEEDED_VERSION)}: {_listing(devices)}; "
            "update the driver"
        )
    number = min(usable, key=lambda n: (_ORDER.index(devices[n].kind), n))
    kind = devices[number].kind.value
    others = len(devices) - 1
    reason = f"the first {kind} device" if others else f"the only device ({kind})"
    return Choice(number, reason)


def _overridden(devices: Sequence[DeviceInfo], override: str) -> Choice:
    if override.isdecimal():
        if int(override) < len(devices):
            return Choice(int(override), f"{OVERRIDE}={override}, by number")
    else:
        for number, info in enumerate(devices):
            if override.lower() in info.name.lower():
                return Choice(number, f"{OVERRIDE}={override}, by name")
    raise NoDeviceError(
        f"{OVERRIDE}={override} fits none of the devices {_listing(devices)}; give "
        "one's number or a part of its name"
    )


def _listing(devices: Sequence[DeviceInfo]) -> str:
    return ", ".join(
        f"{number}: {info.name} ({info.kind.value}, Vulkan {_dotted(info.api_version)})"
        for number, info in enumerate(devices)
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
