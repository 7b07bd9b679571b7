"""The command line: `aiomlc`, or `python -m aiomlc`."""

from __future__ import annotations

__all__ = ("main",)

import sys


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        import typer  # noqa: F401 - an extra, and the one module whose absence we explain.
    except ModuleNotFoundError:
        sys.exit("aiomlc: the command line is an extra: pip install 'aiomlc[cli]'")

    from aiomlc.api.cli.app import app

    app()


if __name__ == "__main__":
    main()
