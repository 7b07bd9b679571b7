"""Tiny models that read images of the kinds of Gemma 3 and Qwen, as Hugging Face directories."""

from __future__ import annotations

__all__ = (
    "IMAGES",
    "PROMPTS",
    "TOWERS",
    "TowerPrompt",
    "image_text",
    "tower_tokenizer",
    "tower_weights",
    "write_tower_model",
)

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from aiomlc.models import VisionConfig, read_description, vision_parameters
from aiomlc.models.parameters.parameter import Parameter
from tests.model.tiny_models import Weights, tiny_tokenizer, write_safetensors
from tests.model.tiny_pieces import IMAGE_TOKEN, MODELS, PieceModel

_HALF = [0.5, 0.5, 0.5]


@dataclass(frozen=True)
class TinyTower:
    """A tower, its image processor, and the decoder that reads its rows."""

    vision: Mapping[str, Any]  #: Fields of `vision_config`.
    processor: Mapping[str, Any]  #: Fields of `preprocessor_config.json`.
    decoder: PieceModel
    tokens: tuple[str, str, str]  #: Of an image, before it and after it.
    names: Mapping[str, str]  #: Beginnings of our names, and those of the directory.
    placeholder: int = 0  #: Which of the tokens stands for an image in a text.
    surrounds: bool = True  #: Whether a chat template writes the tokens around an image.
    others: Mapping[str, Any] | None = None  #: Further fields of the config.


_QWEN_TOKENS = ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>")
_QWEN_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "size": {"shortest_edge": 1024, "longest_edge": 32768},
    "merge_size": 2,
}
_QWEN3_PROCESSOR = _QWEN_PROCESSOR | {"patch_size": 16, "image_mean": _HALF, "image_std": _HALF}
_QWEN_TOWER = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "spatial_merge_size": 2,
}
_QWEN3_TOWER = _QWEN_TOWER | {"patch_size": 16, "num_position_embeddings": 36}
_GEMMA4 = TinyTower(
    vision={
        "model_type": "gemma4_vision",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": 8,
        "pooling_kernel_size": 2,
        "position_embedding_size": 96,
        "standardize": True,
    },
    processor={
        "image_processor_type": "Gemma4ImageProcessor",
        "patch_size": 8,
        "max_soft_tokens": 70,
        "pooling_kernel_size": 2,
    },
    decoder=MODELS["gemma4"],
    tokens=("<|image|>", "<|image>", "<image|>"),
    names={"vision_tower.": "model.vision_tower.", "embed_vision.": "model.embed_vision."},
    surrounds=False,
)
_QWEN3_VL = TinyTower(
    vision=_QWEN3_TOWER | {"deepstack_visual_indexes": [0, 1]},
    processor=_QWEN3_PROCESSOR,
    decoder=MODELS["qwen3_vl"],
    tokens=_QWEN_TOKENS,
    names={"visual.": "model.visual."},
)
TOWERS: Mapping[str, TinyTower] = {
    "gemma3": TinyTower(
        vision={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 48,
            "patch_size": 8,
        },
        processor={
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": 48, "width": 48},
            "image_mean": _HALF,
            "image_std": _HALF,
            "do_pan_and_scan": True,
            "pan_and_scan_min_crop_size": 30,
            "pan_and_scan_max_num_crops": 2,
            "pan_and_scan_min_ratio_to_activate": 2.0,
        },
        decoder=MODELS["gemma3"],
        tokens=("<image_soft_token>", "<start_of_image>", "<end_of_image>"),
        names={"vision_tower.": "vision_tower.vision_model."},
        placeholder=1,
        others={"mm_tokens_per_image": 9},
    ),
    "gemma4": _GEMMA4,
    "gemma4_small": replace(_GEMMA4, decoder=MODELS["gemma4_small"]),
    "qwen2_vl": TinyTower(
        vision={"depth": 3, "embed_dim": 32, "mlp_ratio": 2, "num_heads": 2, "hidden_size": 64},
        processor=_QWEN_PROCESSOR,
        decoder=MODELS["qwen2_5_vl"],
        tokens=_QWEN_TOKENS,
        names={},
    ),
    "qwen2_5_vl": TinyTower(
        vision=_QWEN_TOWER | {"window_size": 56, "fullatt_block_indexes": [1]},
        processor=_QWEN_PROCESSOR,
        decoder=MODELS["qwen2_5_vl"],
        tokens=_QWEN_TOKENS,
        names={},
    ),
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": replace(_QWEN3_VL, decoder=MODELS["qwen3_vl_moe"]),
    "qwen3_5": TinyTower(
        vision=_QWEN3_TOWER,
        processor=_QWEN3_PROCESSOR,
        decoder=PieceModel("qwen3_5_text", {}, "model.language_model."),
        tokens=_QWEN_TOKENS,
        names={"visual.": "model.visual."},
    ),
}


def _image(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    random = np.random.Generator(np.random.PCG64(seed))
    return random.integers(0, 256, (height, width, 3), np.uint8)


IMAGES = [_image(0, 60, 90), _image(1, 100, 40), _image(2, 57, 56)]


class TowerPrompt(NamedTuple):
    """A text with `{}` for each of its images."""

    text: str
    images: tuple[int, ...] = ()  #: Indices in `IMAGES`.


#: The last two have a beginning in common.
PROMPTS = (
    TowerPrompt("What is this? Say it"),
    TowerPrompt("{}Look: ", (0,)),
    TowerPrompt("Compare {} and {}, please.", (1, 2)),
    TowerPrompt("See {} and", (2,)),
    TowerPrompt("See {} and then {}!", (2, 0)),
)


def image_text(tower: TinyTower) -> str:
    """Return what a chat template writes for an image."""
    token, start, end = tower.tokens
    if tower.placeholder:
        return start

    return start + token + end if tower.surrounds else token


def tower_tokenizer(tower: TinyTower) -> Tokenizer:
    """Return the tokenizer of the tiny models, three of whose last tokens have other names."""
    names = dict(zip((IMAGE_TOKEN, IMAGE_TOKEN - 3, IMAGE_TOKEN - 4), tower.tokens, strict=True))
    settings = json.loads(tiny_tokenizer().to_str())
    vocabulary = settings["model"]["vocab"]
    for token in settings["added_tokens"]:
        if token["id"] in names:
            vocabulary.pop(token["content"], None)
            token["content"] = names[token["id"]]
    return Tokenizer.from_str(json.dumps(settings))


def write_tower_model(directory: Path, name: str) -> Path:
    """Write a model and return its directory."""
    tower = TOWERS[name]
    directory.mkdir(parents=True, exist_ok=True)
    config = tower.decoder.config(name) | {"vision_config": dict(tower.vision)}
    config |= {"boi_token_index": IMAGE_TOKEN - 3, "eoi_token_index": IMAGE_TOKEN - 4}
    config |= {"vision_start_token_id": IMAGE_TOKEN - 3, "vision_end_token_id": IMAGE_TOKEN - 4}
    (directory / "config.json").write_text(json.dumps(config | dict(tower.others or {})))
    (directory / "preprocessor_config.json").write_text(json.dumps(tower.processor))
    tower_tokenizer(tower).save(str(directory / "tokenizer.json"))
    weights = tower.decoder.weights() | tower_weights(directory, name)
    write_safetensors(directory / "model.safetensors", weights)
    return directory


def tower_weights(directory: Path, name: str) -> Weights:
    """Return the tensors of the tower whose config is in a directory."""
    vision = read_description(directory).tower
    assert isinstance(vision, VisionConfig)
    return dict(_weights(TOWERS[name], vision))


def _weights(tower: TinyTower, vision: VisionConfig) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a tower, identical on every machine."""
    random = np.random.Generator(np.random.PCG64(7))
    for parameter in vision_parameters(vision):
        rows = parameter.shape[0] // len(parameter.sources)
        for source in parameter.sources:
            begin = next((begin for begin in tower.names if source.startswith(begin)), "")
            values = _values(random, parameter, (rows, *parameter.shape[1:]))
            yield (
                tower.names.get(begin, "") + source.removeprefix(begin),
                _stored(vision, parameter, values),
            )


def _values(
    random: np.random.Generator, parameter: Parameter, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    values = random.standard_normal(shape, np.float32)
    if "norm" in parameter.name and parameter.name.endswith("weight"):
        return np.float32(1.0 - parameter.weight_offset) + np.float32(0.1) * values

    if parameter.kind == "vector":
        return np.float32(0.2) * values

    return values * np.float32(1.5 / np.sqrt(max(shape[-1], 16)))


def _stored(
    vision: VisionConfig, parameter: Parameter, values: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return a tensor with the axes that checkpoints have."""
    if parameter.fused_layout == "inputs":
        return np.ascontiguousarray(values.T)

    if parameter.name == "position_embed" and vision.model_type == "gemma4":
        return values.reshape(2, -1, values.shape[1])

    if parameter.name != "patch_embed" or vision.model_type == "gemma4":
        return values

    side = vision.patch_size
    frames = vision.patch_inputs // (3 * side * side)
    return values.reshape(-1, 3, *(frames,) * (frames > 1), side, side)
