"""Files of bytes that poot keeps, behind a header that it verifies first.

Drivers trust the pipelines that they are given, so these must be what this very driver
wrote: the header names what the bytes are of, and holds length and digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
from pathlib import Path

import platformdirs

_MAGIC = b"poot kept file 2"
# Magic, identity digest, payload length, payload digest.
_HEADER = struct.Struct("<16s32sQ32s")


def default_folder() -> Path:
    return Path(platformdirs.user_cache_dir("poot")) / "pipelines"


class DiskCache:
    """One file of bytes, of what `identity` names: a driver and device, say."""

    def __init__(self, folder: Path, identity: bytes) -> None:
        self._identity = hashlib.sha256(identity).digest()
        self.path = folder / f"{self._identity.hex()[:32]}.bin"

    def load(self) -> bytes:
        """The payload; empty where there is none that can be trusted."""
        try:
            raw = self._read_own()
        except OSError:
            return b""
        if len(raw) < _HEADER.size:
            return b""
        magic, identity, length, digest = _HEADER.unpack_from(raw)
        payload = raw[_HEADER.size :]
        trusted = (
            magic == _MAGIC
            and identity == self._identity
            and length == len(payload)
            and digest == hashlib.sha256(payload).digest()
        )
        return payload if trusted else b""

    def store(self, payload: bytes) -> bool:
        """Replace the file in one step; False where the disk does not let us."""
        digest = hashlib.sha256(payload).digest()
        header = _HEADER.pack(_MAGIC, self._identity, len(payload), digest)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._replace(header + payload)
        except OSError:
            return False
        return True

    def _replace(self, content: bytes) -> None:
        # mkstemp makes files that only their owner may read.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _read_own(self) -> bytes:
        """The file's bytes, if it is a plain one of ours that nobody else can write."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(self.path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PermissionError(f"{self.path} is no plain file")
            if hasattr(os, "getuid") and (
                status.st_uid != os.getuid() or status.st_mode & 0o022
            ):
                raise PermissionError(f"{self.path} may be another user's")
            return file.read()
