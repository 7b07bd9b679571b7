"""Speculative decoding with the bundled model: the same output in fewer steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, ChatCompletion, EngineConfig

COPY = "The fox and the crow. The fox and the crow. The fox and the crow. Say it again."
STORY = "Tell me a story about a fox called Rosa."
NUMBERS = {
    "type": "json_schema",
    "json_schema": {
        "name": "numbers",
        "schema": {
            "type": "array",
            "items": {"enum": ["one", "two", "three"]},
            "minItems": 12,
            "maxItems": 12,
        },
    },
}
REQUESTS: list[dict[str, Any]] = [
    {"content": STORY, "temperature": 0},
    {"content": COPY, "temperature": 0},
    {"content": STORY, "temperature": 0.9, "seed": 3},
    {"content": COPY, "temperature": 0.6, "top_p": 0.9, "seed": 4},
    {"content": COPY, "temperature": 0, "logprobs": True, "top_logprobs": 3},
    {"content": STORY, "temperature": 0.7, "seed": 5, "frequency_penalty": 0.4},
    {"content": COPY, "temperature": 0, "logit_bias": {300: 2}, "min_tokens": 30},
    {"content": STORY, "temperature": 0.3, "seed": 6, "stop": [" the"], "n": 3},
    {"content": STORY, "temperature": 0.5, "seed": 7, "response_format": NUMBERS},
    {"content": COPY, "temperature": 0, "response_format": NUMBERS, "logprobs": True},
]


@pytest.fixture(scope="module")
def weaker_model(bundled_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the bundled model without the feed-forward part of the last layer."""
    directory = tmp_path_factory.mktemp("weaker") / "pebble"
    shutil.copytree(bundled_model, directory)
    shard = json.loads((directory / "tensor-cache.json").read_text())["records"][0]
    scales = next(
        tensor
        for tensor in shard["records"]
        if tensor["name"] == "model.layers.4.mlp.down_proj.q_scale"
    )
    with (directory / shard["dataPath"]).open("r+b") as weights:
        weights.seek(scales["byteOffset"])
        weights.write(bytes(scales["nbytes"]))

    return directory


async def complete(engine: AsyncMLCEngine, content: str, **options: Any) -> Any:  # noqa: ANN401
    """Return the choices and the token counts of a completion."""
    completion = await engine.chat.completions.create(
        messages=[{"role": "user", "content": content}],
        **({"max_tokens": 80} | options),
    )
    assert isinstance(completion, ChatCompletion)
    assert completion.usage is not None
    counts = (completion.usage.prompt_tokens, completion.usage.completion_tokens)
    return [choice.model_dump() for choice in completion.choices], counts


async def complete_all(config: EngineConfig) -> tuple[Any, Any, Any]:
    """Return the results of sequential and of batched requests, and the statistics."""
    batched: list[Any] = [None] * (2 * len(REQUESTS))

    async def run(index: int) -> None:
        batched[index] = await complete(engine, **REQUESTS[index % len(REQUESTS)])

    async with AsyncMLCEngine(engine_config=config) as engine:
        sequential = [await complete(engine, **request) for request in REQUESTS]
        async with create_task_group() as tasks:
            for index in range(len(batched)):
                tasks.start_soon(run, index)
        return sequential, batched, engine.statistics()


@pytest.mark.parametrize("prefix_cache_mode", ["radix", "disable"])
async def test_output_is_the_same_with_and_without_prompt_lookup(prefix_cache_mode: Any) -> None:  # noqa: ANN401
    sequential, batched, plain = await complete_all(
        EngineConfig(prefix_cache_mode=prefix_cache_mode)
    )
    assert batched == sequential * 2
    assert plain.draft_tokens == 0
    for length in (0, 6):
        config = EngineConfig(
            prefix_cache_mode=prefix_cache_mode,
            speculative_mode="prompt_lookup",
            spec_draft_length=length,
        )
        speculative_sequential, speculative_batched, statistics = await complete_all(config)

        assert speculative_sequential == sequential
        assert speculative_batched == batched
        assert 0 < statistics.accepted_tokens < statistics.draft_tokens
        assert statistics.free_pages == statistics.total_pages


async def test_output_is_the_same_with_any_draft_model(
    bundled_model: Path, weaker_model: Path
) -> None:
    sequential, batched, _ = await complete_all(EngineConfig())
    for directory, length in ((weaker_model, 0), (weaker_model, 4), (bundled_model, 0)):
        config = EngineConfig(
            speculative_mode="small_draft",
            additional_models=(str(directory),),
            spec_draft_length=length,
        )
        speculative_sequential, speculative_batched, statistics = await complete_all(config)

        assert speculative_sequential == sequential
        assert speculative_batched == batched
        accepted = statistics.accepted_tokens / statistics.draft_tokens
        # Drafts ignore grammars, so even drafts of the model itself are not always accepted.
        assert accepted > (0.9 if directory == bundled_model else 0.3)
        assert statistics.free_pages == statistics.total_pages


async def test_bundled_draft_model_predicts_most_tokens_of_a_story() -> None:
    request: dict[str, Any] = {"content": "Tell me a story about a fox called Rosa.", "seed": 4}
    config = EngineConfig(speculative_mode="small_draft", spec_draft_length=1)
    async with AsyncMLCEngine() as engine:
        plain = await complete(engine, **request)
    async with AsyncMLCEngine(engine_config=config) as engine:
        speculative = await complete(engine, **request)
        statistics = engine.statistics()

    assert speculative == plain
    assert statistics.accepted_tokens > 0.7 * statistics.draft_tokens > 20


async def test_small_draft_without_a_draft_model_is_rejected(
    bundled_model: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(bundled_model, directory)

    with pytest.raises(
        BadRequestError, match="must name the draft model for small_draft, got none"
    ) as caught:
        async with AsyncMLCEngine(
            str(directory), engine_config=EngineConfig(speculative_mode="small_draft")
        ):
            pass

    assert caught.value.param == "additional_models"


async def test_draft_model_with_another_vocabulary_is_rejected(
    weaker_model: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "other"
    shutil.copytree(weaker_model, directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = EngineConfig(speculative_mode="small_draft", additional_models=(str(directory),))

    with pytest.raises(BadRequestError, match="tokens of") as caught:
        async with AsyncMLCEngine(engine_config=config):
            pass

    assert caught.value.param == "additional_models"


async def test_copied_text_takes_fewer_steps() -> None:
    request: dict[str, Any] = {"content": COPY, "temperature": 0, "min_tokens": 100}
    steps = []
    for config in (EngineConfig(), EngineConfig(speculative_mode="prompt_lookup")):
        async with AsyncMLCEngine(engine_config=config) as engine:
            await complete(engine, **request, max_tokens=100)
            steps.append(engine.statistics().steps)

    assert steps[1] < 0.7 * steps[0]
