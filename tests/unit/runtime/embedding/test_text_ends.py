"""Texts end for a text tower as transformers' processors and models have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.encoder import TextHeadConfig
from aiomlc.runtime.embedding.text_ends import CutText, PaddedText, TextEnd, read_text_end

VOCABULARY = {"</s>": 1, "<pad>": 5}


def end_of(directory: Path, settings: dict[str, Any] | None, **head: int) -> TextEnd:
    if settings is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    config = TextHeadConfig(source="head", size=4, bias=False, **head)
    return read_text_end(ConfigFiles(directory), config, 6, VOCABULARY.get)


@pytest.mark.parametrize(
    ("end_token", "ids", "expected"),
    [
        (9, [8, 1, 9], [8, 1, 9]),
        (9, [8, 9, 3, 9, 4], [8, 9]),
        (9, [8, 1, 3], [8, 1, 3]),
        (-1, [8, 1, 9], [8, 1, 9]),
        (-1, [8, 10, 3, 10, 9], [8, 10]),
    ],
)
def test_a_text_is_cut_after_its_first_end_token(
    end_token: int, ids: list[int], expected: list[int]
) -> None:
    assert CutText(end_token).apply(ids) == expected


def test_a_text_is_padded_to_one_length_on_a_side() -> None:
    assert PaddedText(7, 4).apply([1, 2]) == [1, 2, 7, 7]
    assert PaddedText(7, 4, is_left=True).apply([1, 2]) == [7, 7, 1, 2]
    assert PaddedText(7, 2).apply([1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, PaddedText(3, 6)),
        ({}, PaddedText(3, 6)),
        ({"pad_token": "<pad>"}, PaddedText(5, 6)),
        ({"pad_token": {"content": "</s>"}}, PaddedText(1, 6)),
        ({"pad_token": "<unknown>"}, PaddedText(3, 6)),
        ({"padding_side": "left"}, PaddedText(3, 6, is_left=True)),
        ({"tokenizer_class": "Siglip2Tokenizer"}, PaddedText(3, 6, is_left=True)),
        ({"tokenizer_class": "Siglip2Tokenizer", "padding_side": "right"}, PaddedText(3, 6)),
        ({"tokenizer_class": "GemmaTokenizerFast"}, PaddedText(3, 6)),
    ],
)
def test_padding_is_that_of_the_tokenizers_files(
    tmp_path: Path, settings: dict[str, Any] | None, expected: TextEnd
) -> None:
    assert end_of(tmp_path, settings, pad_token=3) == expected


def test_a_model_with_an_end_token_needs_no_files(tmp_path: Path) -> None:
    assert end_of(tmp_path, None, end_token=4) == CutText(4)


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"padding_side": "top"}, "padding_side"), ({"pad_token": 3}, "pad_token")],
)
def test_a_setting_that_is_invalid_is_named(
    tmp_path: Path, settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(ModelLoadError, match=field):
        end_of(tmp_path, settings, pad_token=3)
