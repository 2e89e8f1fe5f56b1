"""What child processes print, without what the validation layers add to it."""

from __future__ import annotations

# Newer layers tell on the standard output where they log to, whenever they start.
_NOTICE = "Validation Layer Info"


def own_lines(stdout: str) -> list[str]:
    """The lines of a process that may run under the validation layers."""
    return [line for line in stdout.splitlines() if not line.startswith(_NOTICE)]
