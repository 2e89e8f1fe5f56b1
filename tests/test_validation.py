"""Under --validation the layers are really there, and what they say is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS_PATH = "VK_LAYER_SETTINGS_PATH"
SETTINGS_FILE = "vk_layer_settings.txt"
# A buffer of no bytes, which the standard forbids.
WRONG_CALL = """
from poot.vulkan import binding
from poot.vulkan.device import open_device
device = open_device()
info = binding.struct("VkBufferCreateInfo", size=0, usage=1)
made = binding.ffi.new("VkBuffer *")
device.functions.vkCreateBuffer(device.handle, info, binding.NULL, made)
device.functions.vkDestroyBuffer(device.handle, made[0], binding.NULL)
"""


@pytest.mark.skipif(SETTINGS_PATH not in os.environ, reason="not under --validation")
def test_a_wrong_call_is_told(tmp_path: Path) -> None:
    """In a process of its own, whose layers write to another file than this one's."""
    settings = Path(os.environ[SETTINGS_PATH], SETTINGS_FILE).read_text()
    log = tmp_path / "messages.txt"
    other = [line for line in settings.splitlines() if "log_filename" not in line]
    other.append(f"khronos_validation.log_filename = {log}")
    (tmp_path / SETTINGS_FILE).write_text("\n".join(other) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", WRONG_CALL],
        env=os.environ | {SETTINGS_PATH: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert log.exists(), "the layers are not installed, or do not write to their log"
    assert "VkBufferCreateInfo" in log.read_text()
