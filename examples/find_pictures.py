"""Find the pictures of a folder that a text describes best.

    .venv/bin/python examples/find_pictures.py MODEL FOLDER "a dog on a beach"

MODEL is one that embeds texts and pictures in one space, such as
HF://openai/clip-vit-large-patch14 or HF://google/siglip-base-patch16-224. What is searched are all
*.jpg, *.jpeg, *.png and *.webp files. The best --results NUMBER (5) are printed with the cosine of
their vectors and that of the text. This needs the extra `vision`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import anyio
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine

BATCH_SIZE = 16  # The images of a request, by default at most.
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def find_files(folder: Path) -> list[Path]:
    """Return the pictures in a folder, in the order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


async def embed_pictures(engine: AsyncMLCEngine, paths: Sequence[Path]) -> NDArray[np.float32]:
    """Return the unit vectors of pictures, one row each."""
    rows: list[object] = []
    for start in range(0, len(paths), BATCH_SIZE):
        batch = paths[start : start + BATCH_SIZE]
        # Bytes need no permission. A server gets pictures as `data:` URLs.
        items = [{"image": await anyio.Path(path).read_bytes()} for path in batch]
        response = await engine.embeddings.create(input=items, normalize=True)
        rows += [item.embedding for item in response.data]
    return np.asarray(rows, np.float32)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("query")
    parser.add_argument("--results", type=int, default=5)
    arguments = parser.parse_args()

    paths = await to_thread.run_sync(find_files, arguments.folder)
    if not paths:
        raise SystemExit(f"no pictures: {arguments.folder} has no *.jpg, *.png or *.webp file")

    async with AsyncMLCEngine(arguments.model) as engine:
        vectors = await embed_pictures(engine, paths)
        response = await engine.embeddings.create(input=arguments.query, normalize=True)
    cosines = vectors @ np.asarray(response.data[0].embedding, np.float32)
    for index in np.argsort(-cosines, kind="stable")[: arguments.results]:
        print(f"{cosines[index]:.3f} {paths[index].relative_to(arguments.folder)}")


if __name__ == "__main__":
    anyio.run(main)
