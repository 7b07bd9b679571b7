"""The text decoder of multimodal Qwen 3.5: nested fields, and tensors with another prefix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aiomlc.config import EngineConfig
from benchmarks.native_model import open_native_model
from tests.model.families.test_logits import check_float32, logits_of, reference
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, tiny_tokenizer, tiny_weights, write_safetensors


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_5_moe"])
def test_other_parts_of_a_multimodal_model_are_skipped(tmp_path: Path, kind: str) -> None:
    text = TINY_CONFIGS[f"{kind}_text"]
    config = {
        "model_type": kind,
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": text,
        "vision_config": {"model_type": f"{kind}_vision", "hidden_size": 32, "num_heads": 2},
        "image_token_id": 300,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    weights = {
        name.replace("model.", "model.language_model.", 1): value
        for name, value in tiny_weights(f"{kind}_text").items()
    }
    others = ("model.visual.patch_embed.proj.weight", "mtp.fc.weight")
    weights |= dict.fromkeys(others, np.ones((4, 4), np.float32))
    write_safetensors(tmp_path / "model.safetensors", weights)

    engine_config = EngineConfig(quantization="q0f32", num_threads=2)
    model = open_native_model(tmp_path, engine_config).native

    tokens, expected = reference(f"{kind}_text", "q0f32")
    check_float32(logits_of(model, tokens, [len(PROMPT)]), expected)
