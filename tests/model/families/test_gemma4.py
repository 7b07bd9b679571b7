"""Gemma 3n and 4: the decoder of a multimodal model, shared keys, and requests that share steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, convert_weights
from tests.model.conftest import OpenTiny
from tests.model.families.engine_features import (
    FEATURES,
    check_output_of_each_alone,
    mixed_requests,
)
from tests.model.families.test_logits import check_float32, logits_of
from tests.model.families.test_quantized_models import open_model
from tests.model.make_reference import PROMPT, live_model
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model, write_safetensors

NAMES = ("gemma4_text", "gemma4_small", "gemma4_moe", "gemma3n_text")
_TABLE = "model.embed_tokens_per_layer.weight"
TOKENS = [5, 90, 17]


@pytest.mark.parametrize(
    ("name", "model_type"),
    [(name, "gemma3n" if name == "gemma3n_text" else "gemma4") for name in NAMES]
    + [("gemma4_text", "gemma4_unified")],
)
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_a_multimodal_model_computes_the_same_as_its_text_decoder(
    open_tiny: OpenTiny, tmp_path: Path, name: str, model_type: str, quantization: str
) -> None:
    directory = write_model(tmp_path / "model", name)
    text = TINY_CONFIGS[name] | {"model_type": f"{model_type}_text"}
    config = {"model_type": model_type, "text_config": text, "vision_config": {}}
    (directory / "config.json").write_text(json.dumps(config))
    weights = {
        n.replace("model.", "model.language_model.", 1): v for n, v in tiny_weights(name).items()
    }
    vision = {"model.vision_tower.embeddings.weight": np.zeros((4, 4), np.float32)}
    write_safetensors(directory / "model.safetensors", weights | vision)

    actual = logits_of(open_model(directory, quantization), TOKENS, [len(PROMPT)])

    expected = logits_of(open_tiny(name, quantization), TOKENS, [len(PROMPT)])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("model_cache")
def test_unused_keys_of_layers_that_share_others_are_skipped(
    open_tiny: OpenTiny, tmp_path: Path
) -> None:
    directory = write_model(tmp_path / "model", "gemma4_small")
    weights = tiny_weights("gemma4_small")
    for layer in (3, 4, 5):
        unused = np.full((32, 64), 1e4, np.float32)
        weights |= {f"model.layers.{layer}.self_attn.{part}_proj.weight": unused for part in "kv"}
    write_safetensors(directory / "model.safetensors", weights)

    actual = logits_of(open_model(directory, "q0f32"), TOKENS, [len(PROMPT)])

    expected = logits_of(open_tiny("gemma4_small", "q0f32"), TOKENS, [len(PROMPT)])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("model_cache")
def test_a_token_without_an_embedding_for_layers_has_that_of_token_0(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model", "gemma3n_text")
    config = TINY_CONFIGS["gemma3n_text"] | {"vocab_size_per_layer_input": 300}
    (directory / "config.json").write_text(json.dumps(config))
    weights = tiny_weights("gemma3n_text")
    weights |= {_TABLE: weights[_TABLE][:300]}
    write_safetensors(directory / "model.safetensors", weights)
    tokens = [*PROMPT, 310, 5]
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        expected = live_model(config, weights)(torch.tensor([tokens])).logits[0, -1].numpy()
    model = open_model(directory, "q0f32")

    model.add_sequence(0)
    actual = model.forward([(0, tokens)])[0]
    model.remove_sequence(0)

    check_float32(actual, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_a_fork_in_the_middle_of_a_page_computes_the_same(
    open_tiny: OpenTiny, name: str, quantization: str
) -> None:
    model = open_tiny(name, quantization)
    expected = logits_of(model, TOKENS, [len(PROMPT)])

    model.add_sequence(0)
    model.forward([(0, [*PROMPT[:37], 1, 2, 3])])
    model.fork_sequence(0, 1, 37)
    model.forward([(0, [9])])
    rows = [model.forward([(1, PROMPT[37:])])[0]]
    rows += [model.forward([(1, [token])])[0] for token in TOKENS[:-1]]
    for sequence in (0, 1):
        model.remove_sequence(sequence)

    np.testing.assert_array_equal(np.stack(rows), expected)


async def test_the_conversion_to_mlc_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model", "gemma4_text")

    with pytest.raises(BadRequestError, match="'gemma4_text' cannot be converted"):
        await convert_weights(directory, tmp_path / "out", quantization="q4f16_1")


@pytest.mark.parametrize("name", NAMES)
@FEATURES
async def test_engine_features_do_not_change_the_output(
    model_cache: Path, tiny_directory: Callable[[str], Path], name: str, options: dict[str, Any]
) -> None:
    def open_engine(**more: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, **more)
        return AsyncMLCEngine(tiny_directory(name), engine_config=config)

    requests = mixed_requests(80, with_choices=True)
    statistics = await check_output_of_each_alone(open_engine, requests, options)

    assert (statistics.preemptions > 0) == ("max_total_sequence_length" in options)
