"""A program that prefills a prompt, and writes the pieces of it to files; the first one is named
by the first argument, the KV cache's dtype by the second."""

from __future__ import annotations

import sys
from pathlib import Path

from aiomlc import EngineConfig, MLCEngine


def main() -> None:
    directory, dtype, prompt = sys.argv[1:]
    config = EngineConfig(kv_cache_dtype=dtype)  # type: ignore[arg-type] # Checked there.
    with MLCEngine(engine_config=config) as engine, engine.export_prefix(prompt=prompt) as pieces:
        for number, piece in enumerate(pieces):
            (Path(directory) / f"{number:04}").write_bytes(piece)


if __name__ == "__main__":
    main()
