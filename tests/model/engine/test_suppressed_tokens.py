"""The tokens that a model's files suppress are never generated, as in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from aiomlc import AsyncMLCEngine, EngineConfig, gen_config
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.loading.model_directory import find_model
from tests.model.families.test_logits import reference
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model

pytestmark = pytest.mark.usefixtures("model_cache")


def best_tokens() -> list[int]:
    """Return the tokens after the prompt, by the logits of transformers, likely ones first."""
    _, logits = reference("llama", "q0f32")
    order: list[int] = np.argsort(-logits[0], kind="stable").tolist()
    return order


@pytest.mark.parametrize("speculative_mode", ["disable", "prompt_lookup"])
async def test_suppressed_tokens_have_no_probability(tmp_path: Path, speculative_mode: str) -> None:
    first, second, third, *_ = best_tokens()
    model = write_model(tmp_path / "model", "llama")
    fields = {"suppress_tokens": [first, second, 10**6]}
    (model / "generation_config.json").write_text(json.dumps(fields))
    config = EngineConfig(
        quantization="q0f32",
        kv_cache_dtype="float32",
        speculative_mode=speculative_mode,  # type: ignore[arg-type]
    )

    async with AsyncMLCEngine(model, engine_config=config) as engine:

        async def tokens(**options: Any) -> list[int]:  # noqa: ANN401 - of a request.
            deltas = engine.generate(PROMPT, ignore_eos=True, **options)
            return [token async for delta in deltas for token in delta.token_ids]

        greedy = await tokens(temperature=0, max_tokens=1)
        biased = await tokens(temperature=2, max_tokens=60, logit_bias={first: 100}, seed=1)

    assert greedy == [third]
    assert len(biased) == 60
    assert not {first, second} & set(biased)


async def test_a_converted_directory_has_them_too(tmp_path: Path) -> None:
    model, output = write_model(tmp_path / "model", "llama"), tmp_path / "output"
    (model / "generation_config.json").write_text('{"suppress_tokens": [5]}')

    await gen_config(model, output, quantization="q4f16_1", conv_template="LM")

    assert find_model(output).suppress_tokens(256) == (5,)


def test_a_gguf_file_has_them_too(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        add_tiny_text(writer)
        writer.add_array("tokenizer.ggml.suppress_tokens", [3, 5])

    config, weights = TINY_CONFIGS["llama"], tiny_weights("llama")
    path = write_gguf(tmp_path / "model.gguf", config, weights, add)

    fields = ConfigFiles(path).object("generation_config.json")
    assert fields is not None
    assert fields["suppress_tokens"] == [3, 5]
