"""Driver manifests are found where the loader finds them, with their faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poot.vulkan.manifests import find_manifests

# Loads anywhere, so that it can stand for a driver.
LIBRARY = "libc.so.6"


def write(path: Path, library: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"ICD": {"library_path": library}}))
    return path


def test_search_folders_in_order(tmp_path: Path) -> None:
    last = write(tmp_path / "share/vulkan/icd.d/a.json", LIBRARY)
    first = write(tmp_path / "conf/vulkan/icd.d/b.json", LIBRARY)
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path / "conf"),
        "XDG_CONFIG_DIRS": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_DATA_DIRS": f"{tmp_path / 'none'}:{tmp_path / 'share'}",
    }
    found = [m for m in find_manifests(environment) if tmp_path in m.path.parents]
    assert [m.path for m in found] == [first, last]
    assert [m.fault for m in found] == ["", ""]


@pytest.mark.parametrize("variable", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_an_override_is_all_there_is(tmp_path: Path, variable: str) -> None:
    listed = write(tmp_path / "one.json", LIBRARY)
    inside = write(tmp_path / "folder/two.json", LIBRARY)
    environment = {
        variable: f"{listed}:{inside.parent}",
        "XDG_DATA_DIRS": str(tmp_path),
    }
    assert [m.path for m in find_manifests(environment)] == [listed, inside]


def test_faults_are_told_apart(tmp_path: Path) -> None:
    gone = write(tmp_path / "gone.json", "/nowhere/libdriver.so")
    garbage = tmp_path / "garbage.json"
    garbage.write_text("{")
    missing = tmp_path / "missing.json"
    environment = {"VK_DRIVER_FILES": f"{gone}:{garbage}:{missing}"}
    faults = [m.fault for m in find_manifests(environment)]
    assert "does not load" in faults[0] and "libdriver.so" in faults[0]
    assert faults[1] == "the file is no driver manifest"
    assert faults[2] == "the file does not exist"
