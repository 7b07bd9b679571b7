"""The commands of aiomlc that take MLC LLM's options."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aiomlc.cli.entry import main


def run(command: str, argv: Sequence[str]) -> None:
    """Run a command of aiomlc in this process."""
    sys.argv = ["aiomlc", command, *argv]
    main()
