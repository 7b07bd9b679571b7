"""Search a folder of text files: embeddings choose the candidates, and a reranker orders them.

    .venv/bin/python examples/search.py ENCODER RERANKER FOLDER "How do I serve a model?"

ENCODER is a model for embeddings, such as HF://BAAI/bge-small-en-v1.5, and RERANKER one for scores
of pairs, such as HF://BAAI/bge-reranker-base or HF://Qwen/Qwen3-Reranker-0.6B. What is searched are
the paragraphs of all *.txt and *.md files. --candidates NUMBER of them (50) are read by the
reranker, and the best --results NUMBER (5) are printed with their scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine

BATCH_SIZE = 64


@dataclass(frozen=True)
class Passage:
    """A paragraph of a file."""

    path: Path
    text: str


@dataclass(frozen=True)
class Result:
    """A passage, and how well it answers the query."""

    score: float
    passage: Passage


def read_passages(folder: Path) -> list[Passage]:
    """Return the paragraphs of the text files in a folder, in the order of their paths."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".txt", ".md"})
    return [
        Passage(path, " ".join(paragraph.split()))
        for path in paths
        for paragraph in path.read_text(encoding="utf-8", errors="replace").split("\n\n")
        if paragraph.strip()
    ]


async def embed(encoder: AsyncMLCEngine, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the unit vectors of texts, one row each. Long texts are cut off."""
    rows = []
    for start in range(0, len(texts), BATCH_SIZE):
        batch = list(texts[start : start + BATCH_SIZE])
        response = await encoder.embeddings.create(input=batch, truncate=True, normalize=True)
        rows += [item.embedding for item in response.data]
    return np.asarray(rows, np.float32)


async def find_candidates(
    encoder: AsyncMLCEngine, passages: Sequence[Passage], query: str, number: int
) -> list[Passage]:
    """Return the passages whose vectors are the most similar to that of the query."""
    vectors = await embed(encoder, [passage.text for passage in passages])
    (vector,) = await embed(encoder, [query])
    best = np.argsort(-(vectors @ vector), kind="stable")[:number]
    return [passages[index] for index in best]


async def rank(
    reranker: AsyncMLCEngine, candidates: Sequence[Passage], query: str, number: int
) -> list[Result]:
    """Return the candidates that answer the query best, the best one first."""
    texts = [candidate.text for candidate in candidates]
    response = await reranker.rerank(query, texts, top_n=number, truncate=True)
    return [Result(item.relevance_score, candidates[item.index]) for item in response.results]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("encoder")
    parser.add_argument("reranker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("query")
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--results", type=int, default=5)
    arguments = parser.parse_args()

    passages = await to_thread.run_sync(read_passages, arguments.folder)
    if not passages:
        raise SystemExit(f"no passages: {arguments.folder} has no *.txt or *.md file with text")

    async with AsyncMLCEngine(arguments.encoder) as encoder:
        candidates = await find_candidates(encoder, passages, arguments.query, arguments.candidates)
    async with AsyncMLCEngine(arguments.reranker) as reranker:
        results = await rank(reranker, candidates, arguments.query, arguments.results)
    for result in results:
        print(f"{result.score:.3f} {result.passage.path.name}: {result.passage.text}")


if __name__ == "__main__":
    anyio.run(main)
