"""Tiny decoders of models that read images, and prompts whose images are rows of random numbers."""

from __future__ import annotations

__all__ = (
    "IMAGE_TOKEN",
    "MODELS",
    "PROMPTS",
    "PieceModel",
    "PiecePrompt",
    "rows_of",
    "write_model",
)

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.tiny_experts import fused_experts
from tests.model.tiny_models import (
    TINY_CONFIGS,
    Weights,
    tiny_tokenizer,
    tiny_weights,
    write_safetensors,
)

IMAGE_TOKEN = 319
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class PieceModel:
    """A model whose decoder has the weights of a tiny one of text."""

    text: str  #: The name of the tiny model of text.
    changes: Mapping[str, Any]  #: Of the text's fields.
    prefix: str  #: Replaces `model.` in the names of tensors.
    num_parts: int = 1  #: Embeddings, and rows that layers add.
    vision: Mapping[str, Any] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)  #: Further fields of the config.
    has_grids: bool = True
    #: Transformers' name of the argument that marks images; empty for a causal mask.
    types_field: str = "token_type_ids"
    model_type: str = ""  #: Empty if it is the name.

    def config(self, name: str) -> dict[str, Any]:
        """Return the config in Hugging Face's format."""
        model_type = self.model_type or name
        text: dict[str, Any] = {**TINY_CONFIGS[self.text], **self.changes}
        text["model_type"] = f"{model_type}_text"
        tied = text["tie_word_embeddings"]
        ids = {"image_token_id": IMAGE_TOKEN, "tie_word_embeddings": tied}
        others = {} if self.vision is None else {"vision_config": dict(self.vision)}
        return {"model_type": model_type, "text_config": text, **ids, **others, **self.others}

    def weights(self) -> Weights:
        """Return the decoder's tensors under the names of a directory."""
        weights = tiny_weights(self.text)
        if self.text == "qwen3_moe":  # The inputs of experts are rows, those of all in one tensor.
            weights = {
                name: np.ascontiguousarray(w.transpose(0, 2, 1)) if ".experts." in name else w
                for name, w in fused_experts(weights).items()
            }
        return {name.replace("model.", self.prefix, 1): w for name, w in weights.items()}


_QWEN3_VL = PieceModel(
    "qwen3",
    {
        "rope_theta": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    },
    "model.language_model.",
    num_parts=3,
    vision={"deepstack_visual_indexes": [0, 1], "depth": 2, "out_hidden_size": 64},
)
MODELS: Mapping[str, PieceModel] = {
    "qwen2_5_vl": PieceModel(
        "qwen2",
        {
            "rope_theta": None,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3], "rope_theta": 1e4},
        },
        "model.",
    ),
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": replace(_QWEN3_VL, text="qwen3_moe"),
    "gemma4": PieceModel(
        "gemma4_text",
        {"use_bidirectional_attention": "vision"},
        "model.language_model.",
        has_grids=False,
        types_field="mm_token_type_ids",
        others={"video_token_id": 318, "audio_token_id": 317},
    ),
    "gemma4_small": PieceModel(
        "gemma4_small",
        {"pad_token_id": 0},
        "model.language_model.",
        model_type="gemma4",
        has_grids=False,
        types_field="",
        others={"video_token_id": 318, "audio_token_id": 317},
    ),
    "gemma3": PieceModel("gemma3_text", {}, "language_model.model.", has_grids=False),
}


@dataclass(frozen=True)
class PiecePrompt:
    """Token ids with images: the index, the number and the grid of each."""

    token_ids: tuple[int, ...]
    images: tuple[tuple[int, int, Grid], ...]


_IMAGES: tuple[Grid, ...] = ((1, 2, 3), (1, 4, 2), (1, 2, 3))


def _prompt(seed: int, *parts: int) -> PiecePrompt:
    """Return a prompt of text of some lengths, and of the images -1, -2, ... between."""
    random = np.random.Generator(np.random.PCG64(seed))
    ids: list[int] = []
    images: list[tuple[int, int, Grid]] = []
    for part in parts:
        if part >= 0:
            ids += [int(i) for i in random.integers(0, 256, part)]
            continue

        grid = _IMAGES[-part - 1]
        images.append((len(ids), -part - 1, grid))
        ids += [IMAGE_TOKEN] * (grid[1] * grid[2])
    return PiecePrompt(tuple(ids), tuple(images))


#: The last two have a beginning in common: text, an image, and text after it.
PROMPTS: tuple[PiecePrompt, ...] = (
    _prompt(1, 30),
    _prompt(2, 5, -1, 7),
    _prompt(3, -3, 1),
    _prompt(4, 20, -2, 2, -1, 9),
    _prompt(5, 6, -2, 8),
    _prompt(5, 6, -2, 8, -3, 4),
)


def rows_of(model: PieceModel, image: int) -> NDArray[np.float32]:
    """Return the rows of image `image`, `[positions, parts * hidden]`."""
    random = np.random.Generator(np.random.PCG64(100 + image))
    _, height, width = _IMAGES[image]
    size = model.num_parts * int(TINY_CONFIGS[model.text]["hidden_size"])
    rows: NDArray[np.float32] = random.standard_normal((height * width, size), np.float32)
    return rows


def write_model(directory: Path, name: str) -> Path:
    """Write a model as a Hugging Face directory and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(MODELS[name].config(name)))
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", MODELS[name].weights())
    return directory
