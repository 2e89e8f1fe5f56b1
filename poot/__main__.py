"""The command `poot`, also `python -m poot`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from poot.doctor import diagnose


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit status is 0 where all is well."""
    parser = argparse.ArgumentParser(prog="poot")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "doctor", help="say whether this machine can run poot, and what to mend"
    )
    parser.parse_args(arguments)
    diagnosis = diagnose()
    print(diagnosis)
    return 0 if diagnosis.healthy else 1


if __name__ == "__main__":
    sys.exit(main())
