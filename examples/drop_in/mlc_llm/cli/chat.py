"""`python -m mlc_llm chat`, which is `aiomlc chat`."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_llm.cli.aiomlc_command import run


def main(argv: Sequence[str]) -> None:
    """Chat in the terminal."""
    run("chat", argv)
