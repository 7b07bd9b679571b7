"""The entry point of the `aiomlc` program, which imports the rest."""

from __future__ import annotations

__all__ = ("main",)

import sys


def main() -> None:
    """Run the command line and exit the process with its exit code."""
    try:
        from aiomlc.cli.app import main as run

        run()
    except KeyboardInterrupt:  # Before a command has begun, which reports it itself.
        sys.exit(130)
