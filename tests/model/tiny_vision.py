"""Tiny random models that read images, as Hugging Face directories with their image processors."""

from __future__ import annotations

__all__ = (
    "CONFIGS",
    "IMAGES",
    "PLACEHOLDERS",
    "PROCESSORS",
    "PROMPTS",
    "vision_tokenizer",
    "vision_weights",
    "write_vision_model",
)

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from aiomlc.models import model_parameters, read_description
from aiomlc.models.parameters.parameter import Parameter
from tests.model.tiny_models import VOCAB_SIZE, Weights, tiny_tokenizer, write_safetensors

_TEXT: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE + 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
_TOWER: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 56,
    "patch_size": 14,
    "num_channels": 3,
}
_CLIP = _TOWER | {"model_type": "clip_vision_model", "hidden_act": "quick_gelu"}
_PIXTRAL = _TOWER | {
    "model_type": "pixtral",
    "patch_size": 7,
    "image_size": 84,
    "hidden_act": "gelu",
    "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
}
_TILES = _TOWER | {"image_size": 28, "patch_size": 7}
_SPECIALS = (
    "<image>",
    "<IMG_CONTEXT>",
    "<img>",
    "</img>",
    "<video>",
    "<fake_token_around_image>",
    "<global-img>",
    "<end_of_utterance>",
    "[IMG]",
    "[IMG_BREAK]",
    "[IMG_END]",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
_FIRST_SPECIAL = VOCAB_SIZE
# Beginnings of our names of tensors, and how directories of the hub have them.
_HUB_NAMES = {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
_IDEFICS3_NAMES = {
    "model.": "model.text_model.",
    "vision_tower.": "model.vision_model.",
    "multi_modal_projector.": "model.connector.modality_projection.",
}


def _token(name: str) -> int:
    return _FIRST_SPECIAL + _SPECIALS.index(name)


CONFIGS: dict[str, dict[str, Any]] = {
    "llava": {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": _token("<image>"),
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "text_config": _TEXT,
        "vision_config": _CLIP,
    },
    "llava_siglip": {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": _token("<image>"),
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "projector_hidden_act": "gelu",
        "text_config": _TEXT | {"model_type": "mistral", "sliding_window": None},
        "vision_config": _TOWER | {"model_type": "siglip_vision_model", "vision_use_head": False},
    },
    "llava_next": {
        "model_type": "llava_next",
        "architectures": ["LlavaNextForConditionalGeneration"],
        "image_token_index": _token("<image>"),
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112], [168, 56]],
        "text_config": _TEXT,
        "vision_config": _CLIP,
    },
    "idefics3": {
        "model_type": "idefics3",
        "architectures": ["Idefics3ForConditionalGeneration"],
        "image_token_id": _token("<image>"),
        "scale_factor": 2,
        "text_config": _TEXT,
        "vision_config": _TILES | {"model_type": "idefics3_vision"},
    },
    "smolvlm": {
        "model_type": "smolvlm",
        "architectures": ["SmolVLMForConditionalGeneration"],
        "image_token_id": _token("<image>"),
        "scale_factor": 2,
        "text_config": _TEXT,
        "vision_config": _TILES | {"model_type": "smolvlm_vision"},
    },
    "pixtral": {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": _token("[IMG]"),
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "projector_hidden_act": "gelu",
        "text_config": _TEXT | {"model_type": "mistral", "sliding_window": None},
        "vision_config": _PIXTRAL | {"hidden_act": "silu"},
    },
    "mistral3": {
        "model_type": "mistral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "image_token_index": _token("[IMG]"),
        "vision_feature_layer": -1,
        "spatial_merge_size": 2,
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": False,
        "text_config": _TEXT | {"model_type": "mistral", "sliding_window": None},
        "vision_config": _PIXTRAL,
    },
    "internvl": {
        "model_type": "internvl",
        "architectures": ["InternVLForConditionalGeneration"],
        "image_token_id": _token("<IMG_CONTEXT>"),
        "downsample_ratio": 0.5,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": False,
        "text_config": _TEXT | {"model_type": "qwen3"},
        "vision_config": _TILES
        | {
            "model_type": "internvl_vision",
            "image_size": [28, 28],
            "patch_size": [7, 7],
            "hidden_act": "gelu",
            "use_qk_norm": True,
        },
    },
}
PROCESSORS: dict[str, dict[str, Any]] = {
    "llava": {
        "image_processor_type": "LlavaImageProcessor",
        "size": {"shortest_edge": 56},
        "crop_size": {"height": 56, "width": 56},
    },
    "llava_siglip": {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": 56, "width": 56},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 3,
    },
    "llava_next": {
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 56},
        "crop_size": {"height": 56, "width": 56},
        "image_grid_pinpoints": CONFIGS["llava_next"]["image_grid_pinpoints"],
    },
    "idefics3": {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"longest_edge": 84},
        "max_image_size": {"longest_edge": 28},
    },
    "smolvlm": {
        "image_processor_type": "SmolVLMImageProcessor",
        "size": {"longest_edge": 56},
        "max_image_size": {"longest_edge": 28},
    },
    "pixtral": {
        "image_processor_type": "PixtralImageProcessor",
        "size": {"longest_edge": 70},
        "patch_size": {"height": 7, "width": 7},
    },
    "mistral3": {
        "image_processor_type": "PixtralImageProcessor",
        "size": {"longest_edge": 84},
        "patch_size": {"height": 14, "width": 14},
    },
    "internvl": {
        "image_processor_type": "GotOcr2ImageProcessor",
        "size": {"height": 28, "width": 28},
        "min_patches": 1,
        "max_patches": 4,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
}
PLACEHOLDERS = dict.fromkeys(CONFIGS, "<image>") | {
    "internvl": "<IMG_CONTEXT>",
    "mistral3": "[IMG]",
    "pixtral": "[IMG]",
}


def _image(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return a smooth image with some noise."""
    random = np.random.Generator(np.random.PCG64(seed))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x * a + y * b) for a, b in random.uniform(0.02, 0.3, (3, 2))]
    noise = random.integers(-20, 20, (height, width, 3))
    return np.clip(127 + 90 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


IMAGES = [_image(0, 61, 90), _image(1, 100, 40), _image(2, 56, 56), _image(3, 5, 33)]


class VisionPrompt(NamedTuple):
    """A text with `{}` for each of its images."""

    text: str
    images: tuple[int, ...] = ()  #: Indices in `IMAGES`.


PROMPTS = [
    VisionPrompt("User: {}\nWhat is this? Assistant:", (0,)),
    VisionPrompt("User: no image. Assistant:"),
    VisionPrompt("{}{} compare", (1, 2)),
    VisionPrompt("a {} b {} c {}", (3, 0, 3)),
]


def vision_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer with the special tokens of all families."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIALS])
    return tokenizer


def vision_weights(directory: Path) -> Weights:
    """Return the weights of the config in a directory, identical on every machine."""
    description = read_description(directory)
    assert description.tower is not None
    kind = description.tower.model_type
    names = _IDEFICS3_NAMES if kind in ("idefics3", "smolvlm") else _HUB_NAMES
    if kind in ("llava", "llava_next") and not description.tower.rope_theta:
        names = names | {"vision_tower.": "vision_tower.vision_model."}
    random = np.random.Generator(np.random.PCG64(7))
    weights: Weights = {}
    for config in (description.config, description.tower):
        for parameter in model_parameters(config):
            for name, values in _values(random, parameter):
                begin = next((begin for begin in names if name.startswith(begin)), "")
                weights[names.get(begin, "") + name.removeprefix(begin)] = values
    return weights


def _values(random: np.random.Generator, parameter: Parameter) -> Any:  # noqa: ANN401
    count = len(parameter.sources)
    rows = [parameter.shape[0] // count] * count
    if parameter.name.startswith("model.") and count == 3:
        heads = [_TEXT["num_attention_heads"], *[_TEXT["num_key_value_heads"]] * 2]
        rows = [each * _TEXT["head_dim"] for each in heads]
    for name, size in zip(parameter.sources, rows, strict=True):
        values = random.standard_normal((size, *parameter.shape[1:]))
        if "norm" in name and name.endswith("weight"):
            values = 1.0 + 0.1 * values
        elif parameter.kind == "vector" or name.endswith("embeddings"):
            values = 0.2 * values
        elif "embed_tokens" not in name and "position" not in name:
            values = values * (1.5 / np.sqrt(max(parameter.shape[-1], 16)))
        yield name, _stored(name, values.astype(np.float32))


def _stored(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor with the axes that checkpoints have."""
    if name.endswith(("patch_embedding.weight", "projection.weight", "patch_conv.weight")):
        side = round((values.shape[1] // 3) ** 0.5)
        return values.reshape(-1, 3, side, side)

    if name.endswith(("class_embedding", "projection.bias")):
        return values.reshape(-1)

    if name.endswith("cls_token"):
        return values.reshape(1, 1, -1)

    return values[np.newaxis] if name.endswith("position_embeddings") else values


def write_vision_model(directory: Path, name: str) -> Path:
    """Write a model and return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIGS[name]))
    (directory / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[name]))
    vision_tokenizer().save(str(directory / "tokenizer.json"))
    template = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        f"{{% for part in m.content %}}{{% if part.type == 'image' %}}{PLACEHOLDERS[name]}"
        "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    )
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "</s>"})
    )
    write_safetensors(directory / "model.safetensors", vision_weights(directory))
    return directory
