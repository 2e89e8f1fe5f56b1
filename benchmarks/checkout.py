"""Which state of poot a result belongs to."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str:
    """The commit that is measured, if this is a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.stdout.strip() or "unknown"
