"""Forced text has the tokens of the model's tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.native.grammar_compiler import NativeGrammarCompiler
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.e2e.conftest import BUNDLED
from tests.e2e.programs import run_program
from tests.e2e.random_schemas import random_schema
from tests.unit.runtime.tokenization import test_tokenizer


def bundled_tokenizer() -> Tokenizer:
    return Tokenizer(Path(BUNDLED) / "tokenizer.json")


def sentence_piece() -> Tokenizer:
    return Tokenizer(test_tokenizer.sentence_piece())


def test_text_without_a_prefix_has_the_tokens_of_encode() -> None:
    tokenizer = bundled_tokenizer()

    for seed in range(300):
        text = json.dumps(random_schema(seed), ensure_ascii=False)
        assert tokenizer.encode_within(text) == tokenizer.encode(text)


@settings(deadline=None)
@given(st.text())
@pytest.mark.parametrize("tokenizer", [bundled_tokenizer(), sentence_piece()])
def test_tokens_decode_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode_within(text)

    assert b"".join(tokenizer.vocab_bytes[token] for token in tokens) in {text.encode(), b""}
    if tokenizer.vocab_size > 1000:
        assert tokens or not text or "<|" in text


def test_no_space_is_put_before_a_text() -> None:
    pieces = [("<unk>", 0.0), ("▁a", -1.0), ("a", -1.5), ("b", -1.0), ("▁", -2.0), ("\x02", -5.0)]
    unigram = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(unigram)

    assert tokenizer.encode("ab") == [1, 3]
    assert tokenizer.encode_within("ab") == [2, 3]
    assert tokenizer.encode_within(" ab") == [1, 3]


def test_text_that_is_normalized_has_no_tokens() -> None:
    backend = tokenizers.Tokenizer.from_str((Path(BUNDLED) / "tokenizer.json").read_text())
    backend.normalizer = normalizers.Lowercase()
    tokenizer = Tokenizer(backend)

    assert tokenizer.encode_within("Name") == []
    assert tokenizer.encode_within("name") != []


def test_a_compiler_takes_a_tokenizer_that_cannot_encode_forced_text() -> None:
    backend = tokenizers.Tokenizer.from_str((Path(BUNDLED) / "tokenizer.json").read_text())
    backend.normalizer = normalizers.Lowercase()
    tokenizer = Tokenizer(backend)

    compiler = NativeGrammarCompiler(tokenizer, tokenizer.vocab_size, [0])

    assert compiler.compile(Grammar("regex", "Name: [a-z]+")) is not None


@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}])
async def test_text_that_the_tokenizer_cannot_write_is_forced_exactly(
    tmp_path: Path, normalizer: dict[str, str] | None
) -> None:
    """Names of special tokens are text in a schema, and so is what a normalizer would change."""
    model = tmp_path / "model"
    shutil.copytree(BUNDLED, model)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": normalizer}))
    texts = [
        "<|im_end|>",
        "a<|im_start|><|endoftext|>b",
        "cafe\u0301 <|im_end|> <tool_call>",
        "e\u0301",
    ]
    schemas: list[tuple[Any, object]] = [
        *(({"const": text}, text) for text in texts),
        ({"enum": [texts[0]]}, texts[0]),
        (
            {
                "type": "object",
                "properties": {text: {"const": 1} for text in texts},
                "required": texts,
                "additionalProperties": False,
            },
            dict.fromkeys(texts, 1),
        ),
    ]

    async with AsyncMLCEngine(str(model)) as engine:
        for schema, value in schemas:
            completion = await engine.chat.completions.create(
                messages=[{"role": "user", "content": "Hello"}],
                response_format={"type": "json_object", "schema": json.dumps(schema)},
            )
            assert json.loads(completion.choices[0].message.content or "") == value
            assert completion.usage is not None


@pytest.mark.parametrize("how", ["terminate", "leave", "drop", "exit"])
@pytest.mark.sampled(1)
def test_an_engine_ends_while_forced_text_is_tokenized(anyio_backend_name: str, how: str) -> None:
    result = run_program(["-m", "tests.e2e.slow_forced_text", anyio_backend_name, how])

    assert (result.returncode, result.stdout) == (0, f"ended {how}\n")
    # At the exit, the daemon thread may say that Python starts no more threads.
    assert how == "exit" or not result.stderr
