"""The example of retrieval: passages, vectors and their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeEncoder, fake_loader
from examples.rag import BATCH_SIZE, Index, Passage, build_index, embed, read_passages

pytestmark = pytest.mark.timeout(30)


def test_passages_are_the_paragraphs_of_text_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("One\nline.\n\n\n\n  Two. \n", encoding="utf-8")
    text = b"## Three\n\n```sh\nls\n\nls\n```\n\nFour\xff\n\n# Five\n\n# Six\n7\n8\n"
    (tmp_path / "sub" / "c.md").write_bytes(text)
    (tmp_path / "a.py").write_text("print()", encoding="utf-8")

    passages = read_passages(tmp_path)

    assert [(passage.path.name, passage.text) for passage in passages] == [
        ("b.txt", "One line."),
        ("b.txt", "Two."),
        ("c.md", "Three: Four\ufffd"),
        ("c.md", "Six: 7 8"),
    ]


async def test_every_text_gets_a_vector_of_length_1_in_its_order() -> None:
    texts = ["a b", "c"] * BATCH_SIZE
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as encoder:
        vectors = await embed(encoder, texts)

    assert vectors.shape == (2 * BATCH_SIZE, 3)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.array_equal(vectors, np.tile(vectors[:2], (BATCH_SIZE, 1)))
    assert not np.allclose(vectors[0], vectors[1])


def test_the_most_similar_passages_come_first() -> None:
    passages = [Passage(Path("f"), text) for text in ("east", "north", "north-east")]
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)

    found = Index(passages, vectors).search(np.array([0, 1], np.float32), 2)

    assert [passage.text for _, passage in found] == ["north", "north-east"]
    assert [similarity for similarity, _ in found] == pytest.approx([1, 0.8])


async def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as encoder:
        with pytest.raises(SystemExit, match="no passages"):
            await build_index(encoder, tmp_path)
