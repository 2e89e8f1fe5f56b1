"""`poot doctor` tells a ready machine from a broken one and names what mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from poot import doctor
from poot.core.errors import DeviceLost, NoDeviceError
from poot.vulkan import binding
from poot.vulkan.instance import Instance
from poot.vulkan.physical import physical_devices
from tests.child_output import own_lines


def run_doctor(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "poot", "doctor"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_ready_machine() -> None:
    done = run_doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    sections = [line.split()[0] for line in own_lines(done.stdout) if line[0] != " "]
    expected = ["drivers", "devices", "chosen", "limits", "features", "self-test"]
    assert sections[:6] == expected
    assert sections[-1] == "verdict"
    assert "passed: 2048 values" in done.stdout
    assert "poot is ready" in done.stdout


def test_manifests_overridden_away() -> None:
    done = run_doctor(VK_DRIVER_FILES="/nowhere/driver.json")
    assert done.returncode == 1
    assert "/nowhere/driver.json: the file does not exist" in done.stdout
    assert "mend it unset VK_DRIVER_FILES" in done.stdout


def test_no_driver_installed(tmp_path: Path) -> None:
    folder = str(tmp_path)
    done = run_doctor(
        HOME=folder,
        XDG_CONFIG_HOME=folder,
        XDG_CONFIG_DIRS=folder,
        XDG_DATA_HOME=folder,
        XDG_DATA_DIRS=folder,
    )
    assert done.returncode == 1
    assert "none found" in done.stdout
    assert "apt-get install mesa-vulkan-drivers" in done.stdout


def test_a_device_that_is_not_there() -> None:
    done = run_doctor(POOT_DEVICE="no such device")
    assert done.returncode == 1
    assert "POOT_DEVICE=no such device fits none of the devices" in done.stdout
    assert "mend it unset POOT_DEVICE" in done.stdout


def test_no_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> binding.Loader:
        raise NoDeviceError("no Vulkan loader")

    monkeypatch.setattr(binding, "loader", missing)
    diagnosis = doctor.diagnose()
    assert not diagnosis.healthy
    (problem,) = (p for p in diagnosis.problems if p.fatal)
    assert problem.what == "no Vulkan loader"
    assert problem.remedy.endswith("apt-get install libvulkan1 mesa-vulkan-drivers")


def test_a_failing_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise DeviceLost("the device is gone")

    monkeypatch.setattr(doctor, "_self_test", fail)
    diagnosis = doctor.diagnose()
    assert not diagnosis.healthy
    assert "DeviceLost: the device is gone" in str(diagnosis)


def test_features_that_poot_needs() -> None:
    instance = Instance()
    device = physical_devices(instance)[0]
    instance.close()
    assert doctor._device_problems(device) == []
    poor = replace(device, features=frozenset(), queue_family=None)
    told = "\n".join(problem.what for problem in doctor._device_problems(poor))
    assert "bufferDeviceAddress" in told
    assert "timelineSemaphore" in told
    assert "a queue family with VK_QUEUE_COMPUTE_BIT" in told
    old = replace(device, info=replace(device.info, api_version=(1, 1, 0)))
    assert "lacks Vulkan 1.2" in doctor._device_problems(old)[0].what


@pytest.mark.parametrize(
    ("vendor", "name", "package"),
    [("0x10de", "NVIDIA", "nvidia-vulkan-icd"), ("0x1002", "AMD", "mesa-vulkan")],
)
def test_a_gpu_without_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    name: str,
    package: str,
) -> None:
    for slot, kind in (("0", "0x030000"), ("1", "0x020000")):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "class").write_text(f"{kind}\n")
        (tmp_path / slot / "vendor").write_text(f"{vendor}\n")
    monkeypatch.setattr(doctor, "_closed_nodes", list)
    (problem,) = doctor._unused_gpu_problems(tmp_path)
    assert not problem.fatal
    assert name in problem.what
    assert package in problem.remedy
    monkeypatch.setattr(doctor, "_closed_nodes", lambda: [Path("/dev/dri/renderD128")])
    (problem,) = doctor._unused_gpu_problems(tmp_path)
    assert "usermod -aG render,video" in problem.remedy
    assert "/dev/dri/renderD128" in problem.remedy
