"""The LLaVA that MLC LLM's tests are given: a random tower of transformers, before a made decoder.

Its answers do not depend on its images, which MLC LLM's tests do not look at either.
"""

from __future__ import annotations

__all__ = ("write_image_reader",)

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from aiomlc import compile_model
from tests.mlc_llm_suite.known import IMAGE_READER
from tests.mlc_llm_suite.models import (
    convert,
    decoder_config,
    read_vocabulary,
    table_weights,
    words,
)
from tests.model.tiny_models import Weights, write_safetensors

_NUM_LAYERS = 2
_IMAGE = "<image>"


async def write_image_reader(directory: Path, vocabularies: Path) -> None:
    """Write the model, and the folder `dist` in which a test looks for it.

    Args:
        directory: Of the models.
        vocabularies: The folder `models` of llama.cpp.
    """
    tokenizer = read_vocabulary(vocabularies, "llama-spm")
    tokenizer.add_special_tokens([AddedToken(_IMAGE, special=True)])
    source, model = directory / "sources" / IMAGE_READER, directory / IMAGE_READER
    source.mkdir(parents=True, exist_ok=True)
    config = _config(tokenizer)
    (source / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(source / "tokenizer.json"))
    (source / "tokenizer_config.json").write_text("{}")
    weights = table_weights(words(tokenizer), tokenizer.get_vocab_size(), _NUM_LAYERS)
    text = {f"language_model.{name}": value for name, value in weights.items()}
    write_safetensors(source / "model.safetensors", text | _tower(config))
    await convert(directory, IMAGE_READER, "q4f16_1", "llava")
    await compile_model(model, model / "lib.so")
    place = directory / "dist" / IMAGE_READER
    place.mkdir(parents=True)
    (place / "params").symlink_to(model)
    (place / f"{IMAGE_READER}.so").symlink_to(model / "lib.so")


def _config(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": tokenizer.token_to_id(_IMAGE),
        "text_config": decoder_config(tokenizer.get_vocab_size(), _NUM_LAYERS),
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 336,
            "patch_size": 14,
            "projection_dim": 64,
        },
    }


def _tower(config: dict[str, Any]) -> Weights:
    """Return the weights of a random tower and its projector."""
    import torch
    import transformers

    torch.manual_seed(0)
    model: Any = transformers.LlavaForConditionalGeneration(
        transformers.AutoConfig.for_model(**config)
    )
    return {
        name: value.numpy()
        for name, value in model.state_dict().items()
        if not name.startswith(("model.language_model.", "lm_head."))
    }
