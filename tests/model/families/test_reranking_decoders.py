"""Rerankers that are causal language models score a pair by the logits after its prompt."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import numpy as np
import pytest
from anyio import to_thread

from aiomlc import AsyncMLCEngine
from aiomlc.errors import BadRequestError, InputTooLongError, ModelLoadError
from aiomlc.models import read_description
from aiomlc.runtime.embedding.encoder_tokenizer import TextPair
from aiomlc.runtime.embedding.pair_prompt import PairPromptTokenizer
from aiomlc.runtime.native.encoder import EncoderInput
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from tests.model.families.test_encoder_families import open_encoder
from tests.model.tiny_encoder import wordpiece_tokenizer
from tests.model.tiny_encoders import SCORE_TOKENS, write_encoder

QUERY, DOCUMENT = "how do cats sleep", "a cat sleeps in the sun"
PROMPT = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {}\n<Query>: how do cats sleep\n<Document>: "
    "a cat sleeps in the sun<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
WEB = "Given a web search query, retrieve relevant passages that answer the query"
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'query' %}q {{ message.content }} "
    "{% elif message.role == 'document' %}d {{ message.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("rerankers") / "qwen3", "qwen3_reranker")


def tokens_of(text: str) -> list[int]:
    tokenizer = wordpiece_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def logit_difference(directory: Path, prompt: str) -> float:
    (logits,) = open_encoder(directory).forward([EncoderInput(tokens_of(prompt))])
    return float(logits[SCORE_TOKENS["true_token_id"]] - logits[SCORE_TOKENS["false_token_id"]])


async def test_the_score_is_the_sigmoid_of_yes_against_no(directory: Path) -> None:
    expected = await to_thread.run_sync(logit_difference, directory, PROMPT.format(WEB))
    async with AsyncMLCEngine(directory) as engine:
        raw = await engine.score([(QUERY, DOCUMENT)], use_activation=False)
        scores = await engine.score([(QUERY, DOCUMENT)])
        ranked = await engine.rerank(QUERY, ["stocks fell", DOCUMENT])
        with pytest.raises(BadRequestError, match="does not support embed"):
            await engine.embeddings.create(input="a")

    assert raw.data[0].score == pytest.approx(expected, abs=1e-5)
    assert scores.data[0].score == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-6)
    by_index = {result.index: result.relevance_score for result in ranked.results}
    assert by_index[1] == scores.data[0].score


async def test_the_instruction_is_the_default_prompt_of_the_files(
    directory: Path, tmp_path: Path
) -> None:
    prompts = {"prompts": {"law": "Find the law."}, "default_prompt_name": "law"}
    other = write_encoder(tmp_path / "law", "qwen3_reranker", config_sentence_transformers=prompts)
    expected = await to_thread.run_sync(logit_difference, directory, PROMPT.format("Find the law."))
    async with AsyncMLCEngine(other) as engine:
        raw = await engine.score([(QUERY, DOCUMENT)], use_activation=False)

    assert raw.data[0].score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("'", '"')])
async def test_a_chat_template_with_the_roles_of_a_pair_is_used(
    directory: Path, tmp_path: Path, template: str
) -> None:
    settings = {"chat_template": template}
    other = write_encoder(tmp_path / "own", "qwen3_reranker", tokenizer_config=settings)
    expected = await to_thread.run_sync(logit_difference, directory, f"q {QUERY} d {DOCUMENT}")
    async with AsyncMLCEngine(other) as engine:
        raw = await engine.score([(QUERY, DOCUMENT)], use_activation=False)

    assert raw.data[0].score == pytest.approx(expected, abs=1e-5)


async def test_only_the_document_is_truncated(directory: Path) -> None:
    async with AsyncMLCEngine(directory) as engine:
        with pytest.raises(InputTooLongError, match="at most 1024 tokens"):
            await engine.score([(QUERY, "a " * 2000)])

        cut = await engine.score([(QUERY, "a " * 2000)], truncate=True)

    assert cut.usage.total_tokens == 1024


@pytest.mark.parametrize("limit", [1, 20, 30, 34])
def test_a_truncated_prompt_keeps_the_query_and_the_start_of_the_document(limit: int) -> None:
    tokenizer = PairPromptTokenizer(
        wordpiece_tokenizer().to_str(), limit, ChatTemplate(TEMPLATE), None
    )
    pair = TextPair("abc", "defgh " * 9)
    ids = list(tokenizer.encode_pair(pair, truncate=True).ids)
    texts = [("defgh " * 9)[:size] for size in range(55)]
    prompts = [tokens_of(f"q abc d {text}") for text in texts]
    assert ids == max((p for p in prompts if len(p) <= max(limit, len(prompts[0]))), key=len)


def test_tokens_outside_of_the_vocabulary_are_refused(model_cache: Path, tmp_path: Path) -> None:
    other = write_encoder(tmp_path / "wrong", "qwen3_reranker")
    (other / "1_LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 90}))

    async def open_it() -> None:
        async with AsyncMLCEngine(other) as engine:
            await engine.score([(QUERY, DOCUMENT)])

    with pytest.raises(ModelLoadError, match=r"must be in \[0, 90\), got 90") as caught:
        anyio.run(open_it)

    assert caught.value.field == "true_token_id"


def test_without_the_modules_it_is_a_language_model(tmp_path: Path) -> None:
    directory = write_encoder(tmp_path / "model", "qwen3_reranker")
    (directory / "modules.json").unlink()

    assert read_description(directory).config.kind == "decoder"
