"""The one import that examples switch: poot under JAX's name, or JAX itself (--jax)."""

from __future__ import annotations

import argparse
import sys

if "--jax" in sys.argv[1:]:
    import jax
else:
    import poot as jax

__all__ = ["jax", "parser"]


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of an example's options, with what all of them share."""
    first_line = (description or "").partition("\n")[0]
    made = argparse.ArgumentParser(description=first_line)
    made.add_argument("--jax", action="store_true", help="run under JAX instead")
    return made
