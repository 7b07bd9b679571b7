"""Blocks of data are well-formed, and files are the same on every page."""

from __future__ import annotations

import json

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.pages import PAGES, Block, blocks

DATA = [block for page in PAGES for block in blocks(page) if block.language in ("json", "yaml")]


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.place)
def test_data_can_be_read(block: Block) -> None:
    if block.language == "json":
        assert [json.loads(line) for line in block.text.splitlines()]
    else:
        assert all(document for document in yaml.safe_load_all(block.text))


def test_a_file_that_several_pages_show_is_the_same() -> None:
    files = [block for page in PAGES for block in blocks(page) if block.title is not None]
    texts = {(block.title, block.text) for block in files}

    assert len(files) > len(texts)
    assert len(texts) == len({title for title, _ in texts})
