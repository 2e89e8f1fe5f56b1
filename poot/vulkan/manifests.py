"""The driver manifests that the Vulkan loader goes by, found as it finds them."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Either makes the loader look at these files alone; the first is the newer name.
ONLY_THESE = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
THESE_TOO = "VK_ADD_DRIVER_FILES"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest: the driver library it names, and what is wrong with it."""

    path: Path
    library: str = ""
    fault: str = ""


def find_manifests(environment: Mapping[str, str]) -> list[Manifest]:
    """Every manifest that the loader would read, in its order."""
    only = forced_by(environment)
    if only:
        paths = list(_listed(environment[only]))
    else:
        paths = list(_listed(environment.get(THESE_TOO, "")))
        for folder in _search_folders(environment):
            paths += sorted(folder.glob("*.json"))
    return [_read(path) for path in paths]


def forced_by(environment: Mapping[str, str]) -> str | None:
    """The variable that overrides the search, if one is set."""
    return next((name for name in ONLY_THESE if environment.get(name)), None)


def _listed(value: str) -> Iterator[Path]:
    """Files of a path list, folders standing for the manifests in them."""
    for entry in filter(None, value.split(os.pathsep)):
        path = Path(entry)
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def _search_folders(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "/"))

    def paths(variable: str, otherwise: str) -> list[Path]:
        value = environment.get(variable) or otherwise
        return [Path(entry) for entry in value.split(os.pathsep) if entry]

    roots = [
        *paths("XDG_CONFIG_HOME", str(home / ".config")),
        *paths("XDG_CONFIG_DIRS", "/etc/xdg"),
        Path("/usr/local/etc"),
        Path("/etc"),
        *paths("XDG_DATA_HOME", str(home / ".local/share")),
        *paths("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
    ]
    folders = dict.fromkeys(root / "vulkan" / "icd.d" for root in roots)
    return [folder for folder in folders if folder.is_dir()]


def _read(path: Path) -> Manifest:
    try:
        library = json.loads(path.read_text())["ICD"]["library_path"]
    except FileNotFoundError:
        return Manifest(path, fault="the file does not exist")
    except OSError as error:
        return Manifest(path, fault=f"the file cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        return Manifest(path, fault="the file is no driver manifest")
    # A path is absolute or relative to the manifest; a bare name is searched for.
    target = str(path.parent / library) if "/" in library else library
    try:
        ctypes.CDLL(target)
    except OSError as error:
        return Manifest(path, library, f"the driver does not load: {error}")
    return Manifest(path, library)
