"""Answer questions about a folder of text files: embeddings find passages, a chat model reads them.

    .venv/bin/python examples/rag.py ENCODER FOLDER "How old is Mia?"

ENCODER is a model for embeddings (BERT), such as HF://sentence-transformers/all-MiniLM-L6-v2. With
--model MODEL another model than the bundled one reads the passages; with --passages NUMBER it gets
another number of them than one. The passages are the paragraphs of all *.txt and *.md files, each
with the heading above it and without blocks of code. The index is one NumPy array of vectors of
length 1, so that its product with the vector of the question gives the cosine similarities.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine

BATCH_SIZE = 64
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"\s*#+ +([^\n]*)(.*)", re.DOTALL)
PROMPT = "Answer from these passages:\n\n{passages}\n\nQuestion: {question}"


@dataclass(frozen=True)
class Passage:
    """A paragraph of a file."""

    path: Path
    text: str


@dataclass(frozen=True)
class Index:
    """Passages and their vectors, one row each."""

    passages: Sequence[Passage]
    vectors: NDArray[np.float32]

    def search(self, vector: NDArray[np.float32], number: int) -> list[tuple[float, Passage]]:
        """Return the passages that are the most similar to a vector, the best one first."""
        similarities = self.vectors @ vector
        best = np.argsort(-similarities, kind="stable")[:number]
        return [(float(similarities[i]), self.passages[i]) for i in best]


def read_passages(folder: Path) -> list[Passage]:
    """Return the paragraphs of the text files in a folder, in the order of their paths."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".txt", ".md"})
    return [
        Passage(path, text)
        for path in paths
        for text in split_paragraphs(path.read_text(encoding="utf-8", errors="replace"))
    ]


def split_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text of Markdown, each with its heading, but no blocks of code."""
    heading = ""
    for paragraph in CODE_BLOCK.sub("", text).split("\n\n"):
        if match := HEADING.match(paragraph):
            heading, paragraph = f"{match[1]}: ", match[2]
        if words := " ".join(paragraph.split()):
            yield heading + words


async def embed(encoder: AsyncMLCEngine, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of texts, one row each, with the length 1. Long texts are cut off."""
    batches = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
    rows = []
    for batch in batches:
        response = await encoder.embeddings.create(input=list(batch), truncate=True)
        rows += [item.embedding for item in response.data]
    vectors = np.asarray(rows, np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / norms, np.float32)


async def build_index(encoder: AsyncMLCEngine, folder: Path) -> Index:
    """Read and embed the files in a folder; raise SystemExit if there are none."""
    passages = await to_thread.run_sync(read_passages, folder)
    if not passages:
        raise SystemExit(f"no passages: {folder} has no *.txt or *.md file with text")
    return Index(passages, await embed(encoder, [passage.text for passage in passages]))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("encoder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("--model")
    parser.add_argument("--passages", type=int, default=1)
    arguments = parser.parse_args()

    async with AsyncMLCEngine(arguments.encoder) as encoder:
        index = await build_index(encoder, arguments.folder)
        (vector,) = await embed(encoder, [arguments.question])
    found = index.search(vector, arguments.passages)
    for similarity, passage in found:
        print(f"{similarity:.2f} {passage.path.name}: {passage.text}")

    context = "\n".join(passage.text for _, passage in found)
    content = PROMPT.format(passages=context, question=arguments.question)
    async with AsyncMLCEngine(arguments.model) as engine:
        stream = await engine.chat.completions.create(
            messages=[{"role": "user", "content": content}], temperature=0, stream=True
        )
        async for chunk in stream:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    anyio.run(main)
