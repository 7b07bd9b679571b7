"""Tiny random models that embed texts and images in one space, as Hugging Face directories."""

from __future__ import annotations

__all__ = ("CONFIGS", "IMAGES", "PROCESSORS", "TEXTS", "dual_weights", "write_dual_model")

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from aiomlc.models import (
    BlockEncoderConfig,
    Parameter,
    VisionConfig,
    model_parameters,
    read_description,
)
from tests.model.tiny_models import Weights, write_safetensors
from tests.model.tiny_vision import IMAGES

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CLIP_VOCAB_SIZE = 2 * 256 + 8 + 2
_END_TOKEN = _CLIP_VOCAB_SIZE - 1
_TEXT: dict[str, Any] = {
    "vocab_size": _CLIP_VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 24,
    "bos_token_id": _END_TOKEN - 1,
    "eos_token_id": _END_TOKEN,
    "hidden_act": "quick_gelu",
}
_IMAGE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
    "num_channels": 3,
    "hidden_act": "quick_gelu",
}
_CLIP: dict[str, Any] = {
    "model_type": "clip",
    "architectures": ["CLIPModel"],
    "projection_dim": 40,
    "text_config": _TEXT,
    "vision_config": _IMAGE,
}
_GELU = {"hidden_act": "gelu"}
_SIGLIP_TEXT = _TEXT | {
    "vocab_size": 32,
    "hidden_size": 64,
    "max_position_embeddings": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "clip": _CLIP,
    # As the first directories have it: the end token is that with the highest id.
    "clip_legacy": _CLIP | {"text_config": _TEXT | {"eos_token_id": 2}},
    "clip_gelu": _CLIP
    | {
        "text_config": {},
        "vision_config": {"hidden_size": 32},
        "text_config_dict": _TEXT | _GELU,
        "vision_config_dict": _IMAGE | _GELU,
    },
    "siglip": {
        "model_type": "siglip",
        "architectures": ["SiglipModel"],
        "text_config": _SIGLIP_TEXT,
        "vision_config": _IMAGE | {"hidden_act": "gelu_pytorch_tanh", "patch_size": 8},
    },
    "siglip_left": {
        "model_type": "siglip",
        "architectures": ["SiglipModel"],
        "text_config": _SIGLIP_TEXT | {"pad_token_id": 3, "projection_size": 64},
        "vision_config": _IMAGE | {"hidden_act": "gelu_pytorch_tanh", "image_size": 60},
    },
}
_PAD = {"__type": "AddedToken", "content": "<pad>", "special": True}
_CROP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 56},
    "crop_size": {"height": 56, "width": 56},
}
_RESIZE = {"image_processor_type": "SiglipImageProcessor", "image_mean": [0.5] * 3}
PROCESSORS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("clip", "clip_legacy", "clip_gelu"), _CROP),
    "siglip": _RESIZE | {"size": {"height": 56, "width": 56}, "image_std": [0.5] * 3},
    "siglip_left": _RESIZE | {"size": {"height": 60, "width": 60}, "image_std": [0.25] * 3},
}
#: One has an end token of CLIP, and the last two are longer than the limits.
TEXTS = [
    "a cat",
    "",
    "Two  Dogs' photo!",
    "a<|endoftext|>b",
    "the quick brown fox jumps over",
    "x" * 70,
]


def _clip_tokenizer() -> Tokenizer:
    """Return a tokenizer like CLIP's, with a few merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "t</w>"), ("c", "at</w>"), ("t", "h"), ("th", "e</w>"), ("o", "g")]
    merges += [("d", "og"), ("q", "u"), ("b", "r")]
    words = [*alphabet, *(f"{each}</w>" for each in alphabet), *map("".join, merges)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in words[-2:]])
    begin, end = (vocabulary[word] for word in words[-2:])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", end), ("<|startoftext|>", begin), False, False
    )
    return tokenizer


def _siglip_tokenizer() -> Tokenizer:
    """Return a tokenizer of letters, which drops punctuation and ends texts, as SigLIP's does."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("<pad>", 0.0)]
    pieces += [(letter, -3.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[!-/:-@\[-`{-~]"), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True) for text in ("<unk>", "</s>", "<pad>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def dual_weights(directory: Path) -> Weights:
    """Return the weights of the config in a directory, identical on every machine."""
    description = read_description(directory)
    text, vision = description.config, description.tower
    assert isinstance(text, BlockEncoderConfig)
    assert isinstance(vision, VisionConfig)
    head = text.text_head
    assert head is not None
    matrix = Parameter("", "matrix", (head.size, text.hidden_size), (f"{head.source}.weight",))
    parameters = [*model_parameters(text), *model_parameters(vision), matrix]
    if head.bias:
        parameters.append(Parameter("", "vector", (head.size,), (f"{head.source}.bias",)))
    random = np.random.Generator(np.random.PCG64(11))
    shape = [1] * head.bias
    weights: Weights = {"logit_scale": np.full(shape, 2.5, np.float32)}
    if head.bias:
        weights["logit_bias"] = np.full(shape, -9.0, np.float32)
    for parameter in parameters:
        for name in parameter.sources:
            rows = parameter.shape[0] // len(parameter.sources)
            values = random.standard_normal((rows, *parameter.shape[1:]))
            if "norm" in name and name.endswith("weight"):
                values = 1.0 + 0.1 * values
            elif parameter.kind == "vector":
                values = 0.2 * values
            elif "embedding" not in name and "probe" not in name:
                values = values * (1.5 / np.sqrt(max(parameter.shape[-1], 16)))
            own = name.replace("vision_tower.", "vision_model.")
            weights[own] = _stored(name, values.astype(np.float32))
    return weights


def _stored(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor with the axes that checkpoints have."""
    if name.endswith("patch_embedding.weight"):
        side = round((values.shape[1] // 3) ** 0.5)
        return values.reshape(-1, 3, side, side)

    if name.endswith("class_embedding"):
        return values.reshape(-1)

    return values.reshape(1, 1, -1) if name.endswith("probe") else values


def write_dual_model(directory: Path, name: str) -> Path:
    """Write a model and return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    is_clip = CONFIGS[name]["model_type"] == "clip"
    end = "<|endoftext|>" if is_clip else "</s>"
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "pad_token": _PAD if name == "siglip_left" else end,
        "model_max_length": CONFIGS[name].get("text_config", {}).get("max_position_embeddings", 24),
    }
    if name == "siglip_left":
        settings["padding_side"] = "left"
    files = {
        "config.json": CONFIGS[name],
        "preprocessor_config.json": PROCESSORS[name],
        "tokenizer_config.json": settings,
    }
    for file, value in files.items():
        (directory / file).write_text(json.dumps(value))
    tokenizer = _clip_tokenizer() if is_clip else _siglip_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", dual_weights(directory))
    return directory
