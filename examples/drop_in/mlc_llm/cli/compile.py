"""`python -m mlc_llm compile`, which is `aiomlc compile`."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_llm.cli.aiomlc_command import run


def main(argv: Sequence[str]) -> None:
    """Compile a library."""
    run("compile", argv)
