"""`python -m mlc_llm convert_weight`, which is `aiomlc convert`."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_llm.cli.aiomlc_command import run


def main(argv: Sequence[str]) -> None:
    """Convert weights."""
    run("convert", argv)
