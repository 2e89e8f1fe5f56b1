"""The schedules that tuning found, on disk beside the pipelines of the same driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from poot.vulkan.disk_cache import DiskCache


class TuningStore:
    """What has won on one device with one driver, in a folder; without one, nothing."""

    def __init__(self, folder: Path | None, identity: bytes) -> None:
        self._file = folder and DiskCache(folder.with_name("tuning"), identity)

    def load(self) -> dict[str, str]:
        """The names of the winners by what they are for."""
        content = self._file.load() if self._file else b""
        try:
            found = json.loads(content) if content else {}
        except ValueError:
            return {}
        if not isinstance(found, dict):
            return {}
        return {k: v for k, v in found.items() if isinstance(v, str)}

    def keep(self, winners: Mapping[str, str]) -> None:
        """Add winners to those on disk, or put them in their place."""
        if self._file:
            everything = {**self.load(), **winners}
            self._file.store(json.dumps(everything, sort_keys=True).encode())
