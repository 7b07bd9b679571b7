"""Compute pixels, rows and logits of the models of `tiny_vision.py` with transformers in float32.

Run `python -m tests.model.make_vision_reference` after changing them; it rewrites
`tests/model/reference/vision_*.npz`. Requires torch, transformers and Pillow; the tests do not need
the first two.
"""

from __future__ import annotations

__all__ = ("STEPS", "reference_prompts")

import hashlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from aiomlc.runtime.vision.pixels import to_patches
from tests.model.tiny_vision import (
    CONFIGS,
    IMAGES,
    PLACEHOLDERS,
    PROCESSORS,
    PROMPTS,
    vision_tokenizer,
    write_vision_model,
)

STEPS = 6
# The settings of transformers' processors of whole models.
_OUTER: dict[str, dict[str, Any]] = {
    "llava": {
        "class": "llava.processing_llava.LlavaProcessor",
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    },
    "llava_siglip": {
        "class": "llava.processing_llava.LlavaProcessor",
        "patch_size": 14,
        "vision_feature_select_strategy": "full",
        "num_additional_image_tokens": 0,
    },
    "llava_next": {
        "class": "llava_next.processing_llava_next.LlavaNextProcessor",
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    },
    "idefics3": {
        "class": "idefics3.processing_idefics3.Idefics3Processor",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_tag": "<global-img>",
        "image_seq_len": 4,
    },
    "smolvlm": {
        "class": "smolvlm.processing_smolvlm.SmolVLMProcessor",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "image_seq_len": 4,
    },
    "pixtral": {"class": "", "block": 7},
    "mistral3": {"class": "", "block": 14},
    "internvl": {
        "class": "internvl.processing_internvl.InternVLProcessor",
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "image_seq_length": 4,
    },
}
_IMAGE_MODULES = {
    "LlavaImageProcessor": "llava.image_processing_pil_llava",
    "LlavaNextImageProcessor": "llava_next.image_processing_pil_llava_next",
    "PixtralImageProcessor": "pixtral.image_processing_pil_pixtral",
    "SiglipImageProcessor": "siglip.image_processing_pil_siglip",
    "Idefics3ImageProcessor": "idefics3.image_processing_pil_idefics3",
    "SmolVLMImageProcessor": "smolvlm.image_processing_pil_smolvlm",
    "GotOcr2ImageProcessor": "got_ocr2.image_processing_pil_got_ocr2",
}


def _load(path: str) -> Any:  # noqa: ANN401 - untyped.
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"transformers.models.{module}"), name)


def _process(name: str, image: int) -> tuple[dict[str, Any], str]:
    """Return the inputs of the tower for an image, and the text that stands for it."""
    from PIL import Image

    settings = dict(PROCESSORS[name])
    kind = settings.pop("image_processor_type")
    processor = _load(f"{_IMAGE_MODULES[kind]}.{kind}Pil")(**settings)
    more: dict[str, Any] = {}
    if name in ("idefics3", "smolvlm"):
        more["return_row_col_info"] = True
    if name == "internvl":
        more["crop_to_patches"] = True
    inputs = dict(processor(Image.fromarray(IMAGES[image]), return_tensors="pt", **more))
    outer = dict(_OUTER[name])
    if "block" in outer:
        return inputs, _pixtral_text(inputs, outer["block"])

    whole = _load(outer.pop("class"))
    fields = SimpleNamespace(**outer, image_token=PLACEHOLDERS[name], image_processor=processor)
    for method in ("_get_number_of_features", "_get_unpadded_features"):
        if hasattr(whole, method):
            setattr(fields, method, getattr(whole, method).__get__(fields))
    text = whole.replace_image_token(fields, inputs, 0)
    for field in ("rows", "cols", "num_patches"):
        inputs.pop(field, None)
    return inputs, text


def _pixel_digest(name: str, inputs: dict[str, Any]) -> bytes:
    """Return the SHA-256 of the pixels of all patches, those of each patch together."""
    size = CONFIGS[name]["vision_config"]["patch_size"]
    side = size[0] if isinstance(size, list) else size
    pixels = inputs["pixel_values"].numpy()
    tiles = pixels.reshape(-1, *pixels.shape[-3:]).transpose(0, 2, 3, 1)
    patches = [to_patches(tile, side).reshape(-1, 3 * side * side) for tile in tiles]
    return hashlib.sha256(np.concatenate(patches).tobytes()).digest()


def _is_unused(name: str, key: str) -> bool:
    """Return whether a tensor of a tower comes after the layer whose outputs are read."""
    if ".vision_tower." not in key or "vision_feature_layer" not in CONFIGS[name]:
        return False

    last = CONFIGS[name]["vision_config"]["num_hidden_layers"] - 1
    is_skipped = CONFIGS[name]["vision_feature_layer"] == -2
    return "post_layernorm" in key or (is_skipped and f"layers.{last}." in key)


def _pixtral_text(inputs: dict[str, Any], block: int) -> str:
    """Return the text of `PixtralProcessor`, which cannot be imported without torchvision."""
    height, width = (int(side) // block for side in inputs["image_sizes"][0])
    return "[IMG_BREAK]".join(["[IMG]" * width] * height) + "[IMG_END]"


def reference_prompts(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return token ids, pixels of tiles, embedded rows, greedy tokens and logits by prompt."""
    import torch
    import transformers

    tokenizer = vision_tokenizer()
    token = tokenizer.token_to_id(PLACEHOLDERS[name])
    with TemporaryDirectory() as directory:
        write_vision_model(Path(directory), name)
        model, info = transformers.AutoModelForImageTextToText.from_pretrained(
            directory, dtype=torch.float32, output_loading_info=True
        )
    missing = [key for key in info["missing_keys"] if not _is_unused(name, key)]
    assert not missing, missing
    results: dict[str, np.ndarray[Any, Any]] = {}
    model = model.eval()
    parts = dict(model.model.named_children())
    decoder = parts.get("language_model") or parts["text_model"]
    with torch.inference_mode():
        for index, prompt in enumerate(PROMPTS):
            processed = [_process(name, image) for image in prompt.images]
            texts = [text for _, text in processed]
            ids = tokenizer.encode(prompt.text.format(*texts), add_special_tokens=False).ids
            results[f"ids{index}"] = np.array(ids, np.int32)
            rows = [_features(model, inputs) for inputs, _ in processed]
            embedded = model.get_input_embeddings()(torch.tensor([ids]))
            if rows:
                joined = torch.cat(rows)
                results[f"rows{index}"] = joined.numpy()
                mask = (torch.tensor([ids]) == token).unsqueeze(-1)
                assert int(mask.sum()) == len(joined), (name, index)
                embedded = embedded.masked_scatter(mask, joined)
            tokens, logits = [], []
            for _ in range(STEPS):
                state = decoder(inputs_embeds=embedded, use_cache=False)[0]
                row = model.lm_head(state[0, -1])
                logits.append(torch.log_softmax(row.double(), -1).float().numpy())
                tokens.append(int(row.argmax()))
                more = model.get_input_embeddings()(torch.tensor([[tokens[-1]]]))
                embedded = torch.cat([embedded, more], dim=1)
            results[f"tokens{index}"] = np.array(tokens, np.int32)
            results[f"logprobs{index}"] = np.stack(logits)
    for image in range(len(IMAGES)):
        inputs, _ = _process(name, image)
        results[f"pixels{image}"] = np.frombuffer(_pixel_digest(name, inputs), np.uint8)
    return results


def _features(model: Any, inputs: dict[str, Any]) -> Any:  # noqa: ANN401 - untyped.
    config = model.config
    options = {
        option: getattr(config, option)
        for option in ("vision_feature_layer", "vision_feature_select_strategy")
        if hasattr(config, option)
    }
    features = model.get_image_features(**inputs, **options).pooler_output
    import torch

    return torch.cat([each.reshape(-1, each.shape[-1]) for each in features])


def main(names: Sequence[str]) -> None:
    """Rewrite the reference files of the named models, or of all."""
    directory = Path(__file__).parent / "reference"
    for name in names or CONFIGS:
        arrays: dict[str, Any] = reference_prompts(name)
        np.savez_compressed(directory / f"vision_{name}.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
