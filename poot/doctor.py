"""`poot doctor`: what Vulkan offers here, what poot makes of it, and what to mend."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import poot.numpy as jnp
from poot.core.errors import NoDeviceError, PootError
from poot.interpreters.backend import backend
from poot.interpreters.jit import jit
from poot.lowering.device_info import DeviceInfo
from poot.vulkan import binding
from poot.vulkan.choice import OVERRIDE, choose
from poot.vulkan.device import missing_features
from poot.vulkan.instance import Instance
from poot.vulkan.manifests import Manifest, find_manifests, forced_by
from poot.vulkan.physical import PhysicalDevice, physical_devices

# Field of DeviceInfo, what poot uses it for, what happens where it is missing.
_FEATURES = (
    ("float64", "float64 arrays", "float64 is refused"),
    ("int64", "64-bit integer arrays", "64-bit integers are refused"),
    ("bfloat16", "bfloat16 in kernels", "bfloat16 is rounded by integer arithmetic"),
    ("int8", "8-bit values in kernels", "8-bit values are taken from 32-bit words"),
    ("int16", "16-bit values in kernels", "16-bit values are taken from 32-bit words"),
    ("storage8", "8-bit loads and stores", "8-bit arrays are moved by 32-bit words"),
    ("storage16", "16-bit loads and stores", "16-bit arrays are moved by 32-bit words"),
    ("subgroup_arithmetic", "fast reductions", "reductions use shared memory"),
)

_VENDORS = {
    "0x10de": ("NVIDIA", "nvidia-driver nvidia-vulkan-icd"),
    "0x1002": ("AMD", "mesa-vulkan-drivers"),
    "0x8086": ("Intel", "mesa-vulkan-drivers"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, the command that mends it, and whether poot works anyway."""

    what: str
    remedy: str
    fatal: bool = True


@dataclass(slots=True)
class Diagnosis:
    """What was found, by section, and the problems."""

    sections: list[tuple[str, list[str]]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not any(problem.fatal for problem in self.problems)

    def __str__(self) -> str:
        lines = []
        for title, rows in self.sections:
            for number, row in enumerate(rows):
                lines.append(f"{'' if number else title:10} {row}")
        for problem in self.problems:
            grade = "PROBLEM" if problem.fatal else "warning"
            lines.append(f"{grade:10} {problem.what}")
            lines.append(f"{'mend it':>10} {problem.remedy}")
        if self.healthy:
            lines.append(f"{'verdict':10} poot is ready")
        else:
            lines.append(f"{'verdict':10} poot cannot use a Vulkan device here")
        return "\n".join(lines)


def diagnose(environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """Look at drivers and devices, run a kernel, and collect what is wrong."""
    diagnosis = Diagnosis()
    manifests = find_manifests(environment)
    diagnosis.sections.append(("drivers", _driver_rows(manifests, environment)))
    diagnosis.problems += _manifest_problems(manifests)
    instance = _open_instance(diagnosis, manifests, environment)
    if instance is None:
        return diagnosis
    try:
        devices = physical_devices(instance)
        _look_at_devices(diagnosis, devices, manifests, environment)
    finally:
        instance.close()
    if diagnosis.healthy:
        _run_self_test(diagnosis)
    return diagnosis


# --- drivers ----------------------------------------------------------------


def _driver_rows(
    manifests: Sequence[Manifest], environment: Mapping[str, str]
) -> list[str]:
    rows = [
        f"{manifest.path}: {manifest.fault or manifest.library}"
        for manifest in manifests
    ]
    forced = forced_by(environment)
    if forced:
        rows.insert(0, f"only those of {forced}={environment[forced]}")
    return rows or ["none found"]


def _manifest_problems(manifests: Sequence[Manifest]) -> list[Problem]:
    return [
        Problem(
            f"{manifest.path}: {manifest.fault}",
            _as_root(f"apt-get install --reinstall {_package_of(manifest)}"),
            fatal=False,
        )
        for manifest in manifests
        if manifest.fault and manifest.library
    ]


def _package_of(manifest: Manifest) -> str:
    nvidia = "nvidia" in manifest.library
    return "nvidia-vulkan-icd" if nvidia else "mesa-vulkan-drivers"


def _as_root(command: str) -> str:
    return command if os.geteuid() == 0 else f"sudo {command}"


def _open_instance(
    diagnosis: Diagnosis,
    manifests: Sequence[Manifest],
    environment: Mapping[str, str],
) -> Instance | None:
    try:
        binding.loader()
    except NoDeviceError as error:
        remedy = _as_root("apt-get install libvulkan1 mesa-vulkan-drivers")
        diagnosis.problems.append(Problem(str(error), remedy))
        return None
    try:
        return Instance()
    except PootError as error:
        remedy = _driver_remedy(manifests, environment)
        diagnosis.problems.append(Problem(str(error), remedy))
        return None


def _driver_remedy(
    manifests: Sequence[Manifest], environment: Mapping[str, str]
) -> str:
    """What to do where no driver offers a device."""
    forced = forced_by(environment)
    if forced:
        return f"unset {forced}"
    if any(not manifest.fault for manifest in manifests) and _closed_nodes():
        return _node_remedy()
    return _as_root("apt-get install mesa-vulkan-drivers")


# --- devices ----------------------------------------------------------------


def _look_at_devices(
    diagnosis: Diagnosis,
    devices: Sequence[PhysicalDevice],
    manifests: Sequence[Manifest],
    environment: Mapping[str, str],
) -> None:
    infos = [device.info for device in devices]
    rows = [f"{n}: {_identity(info)}" for n, info in enumerate(infos)]
    diagnosis.sections.append(("devices", rows or ["none"]))
    override = environment.get(OVERRIDE)
    try:
        choice = choose(infos, override)
    except NoDeviceError as error:
        remedy = _driver_remedy(manifests, environment)
        if override and infos:
            remedy = f"unset {OVERRIDE}"
        diagnosis.problems.append(Problem(str(error), remedy))
        return
    chosen = devices[choice.number]
    diagnosis.sections += [
        ("chosen", [f"{choice.number}: {chosen.info.name}, {choice.reason}"]),
        ("limits", _limit_rows(chosen.info)),
        ("features", _feature_rows(chosen.info)),
    ]
    diagnosis.problems += _device_problems(chosen)
    if chosen.info.is_cpu and not override:
        diagnosis.problems += _unused_gpu_problems()


def _identity(info: DeviceInfo) -> str:
    version = ".".join(map(str, info.api_version))
    driver = f"{info.driver_name} {info.driver_version}".strip()
    return f"{info.name}, {info.kind.value}, Vulkan {version}, driver {driver}"


def _limit_rows(info: DeviceInfo) -> list[str]:
    x, y, z = info.max_workgroup_count
    rows = [
        f"memory {_mebibytes(info.heap_bytes)}, one allocation at most "
        f"{_mebibytes(info.max_allocation_bytes)}",
        f"workgroup {info.max_workgroup_invocations} invocations, "
        f"{info.max_shared_bytes} B shared, subgroup {info.subgroup_size}",
        f"grid {x} x {y} x {z}, push constants {info.max_push_bytes} B",
    ]
    if info.max_loop_trips is not None:
        rows.append(f"loop iterations an invocation {info.max_loop_trips}")
    return rows


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"


def _feature_rows(info: DeviceInfo) -> list[str]:
    used = [purpose for name, purpose, _ in _FEATURES if getattr(info, name)]
    missed = [
        f"missing: {purpose} ({otherwise})"
        for name, purpose, otherwise in _FEATURES
        if not getattr(info, name)
    ]
    return [f"used: {', '.join(used)}", *missed]


def _device_problems(device: PhysicalDevice) -> list[Problem]:
    info = device.info
    update = _as_root("apt-get install --only-upgrade mesa-vulkan-drivers")
    if info.vendor_id == 0x10DE:
        update = _as_root("apt-get install --only-upgrade nvidia-driver")
    return [
        Problem(f"{info.name} lacks {name}, which poot needs", update)
        for name in missing_features(device)
    ]


# --- hardware that no driver offers -----------------------------------------


def _unused_gpu_problems(pci: Path = Path("/sys/bus/pci/devices")) -> list[Problem]:
    """GPUs on the bus while only a CPU driver could be chosen."""
    problems = []
    for vendor in sorted(_display_vendors(pci) & _VENDORS.keys()):
        name, packages = _VENDORS[vendor]
        remedy = _as_root(f"apt-get install {packages}")
        if _closed_nodes():
            remedy = _node_remedy()
        what = f"there is a GPU by {name}, but no driver offers it; the CPU computes"
        problems.append(Problem(what, remedy, fatal=False))
    return problems


def _display_vendors(pci: Path) -> set[str]:
    # PCI classes 03: display controllers, 12: processing accelerators.
    return {
        (device / "vendor").read_text().strip()
        for device in pci.glob("*")
        if (device / "class").read_text().startswith(("0x03", "0x12"))
    }


def _closed_nodes() -> list[Path]:
    """Render nodes that this user may not open."""
    nodes = [*Path("/dev/dri").glob("renderD*"), *Path("/dev").glob("nvidia[0-9]*")]
    return [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]


def _node_remedy() -> str:
    nodes = ", ".join(str(node) for node in _closed_nodes())
    join = _as_root('usermod -aG render,video "$USER"')
    return f"{join}, then log in again ({nodes} may not be opened)"


# --- self-test --------------------------------------------------------------


def _run_self_test(diagnosis: Diagnosis) -> None:
    try:
        rows = [_self_test(), *_probed_rows(backend().info)]
    except PootError as error:
        update = _as_root("apt-get install --only-upgrade mesa-vulkan-drivers")
        what = f"the self-test failed: {type(error).__name__}: {error}"
        diagnosis.problems.append(Problem(what, update))
    else:
        diagnosis.sections.append(("self-test", rows))


def _probed_rows(info: DeviceInfo) -> list[str]:
    """What kernels found out about the device."""
    kept = "keeps" if info.keeps_subnormals32 else "flushes"
    ways = {True: "an instruction", False: "integer arithmetic"}
    return [
        f"f32 arithmetic {kept} subnormals",
        f"float16 is read by {ways[info.exact_half_unpacking]} and rounded by "
        f"{ways[info.packs_halves]}, bfloat16 by {ways[info.packs_bfloats]}",
    ]


@jit
def _normalised_product(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
    e = jnp.exp(jnp.tanh(x))
    return (e / jnp.sum(e, axis=-1, keepdims=True)) @ y


def _self_test() -> str:
    """Run elementwise work, a row reduction and a matmul; compare with NumPy."""
    random = np.random.default_rng(0)
    x = random.uniform(-4, 4, (64, 300)).astype(np.float32)
    y = random.uniform(-1, 1, (300, 32)).astype(np.float32)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        result = np.asarray(_normalised_product(x, y))
        seconds.append(time.perf_counter() - began)
    e = np.exp(np.tanh(x.astype(np.float64)))
    expected = (e / e.sum(axis=-1, keepdims=True)) @ y.astype(np.float64)
    error = float(np.abs(result - expected).max())
    if not error < 1e-6:
        raise PootError(
            f"{result.size} values, the largest error is {error:.1e}; at most 1e-6 is "
            "right, so the driver computes wrongly"
        )
    return (
        f"passed: {result.size} values, largest error {error:.1e}, first call "
        f"{seconds[0] * 1e3:.0f} ms, second {seconds[1] * 1e3:.1f} ms"
    )
