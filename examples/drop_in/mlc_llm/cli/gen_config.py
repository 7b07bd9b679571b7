"""`python -m mlc_llm gen_config`, which is `aiomlc gen-config`."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_llm.cli.aiomlc_command import run


def main(argv: Sequence[str]) -> None:
    """Write mlc-chat-config.json."""
    run("gen-config", argv)
