"""Compute pixels, rows and log-probabilities of the models of `tiny_towers.py` with transformers.

Run `python -m tests.model.make_tower_reference` after changing them; it rewrites
`tests/model/reference/tower_*.npz`. Requires torch, transformers and Pillow; the tests do not need
the first two.
"""

from __future__ import annotations

__all__ = ("STEPS",)

import hashlib
import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from aiomlc.runtime.vision.pixels import to_patches
from tests.model.tiny_pieces import IMAGE_TOKEN
from tests.model.tiny_towers import (
    IMAGES,
    PROMPTS,
    TOWERS,
    TinyTower,
    TowerPrompt,
    tower_tokenizer,
    write_tower_model,
)

STEPS = 5
_PROCESSORS = {
    "Gemma4ImageProcessor": "gemma4.image_processing_pil_gemma4",
    "Gemma3ImageProcessor": "gemma3.image_processing_pil_gemma3",
    "Qwen2VLImageProcessor": "qwen2_vl.image_processing_pil_qwen2_vl",
}


def _process(tower: TinyTower, image: int) -> tuple[dict[str, Any], str]:
    """Return the inputs of the tower for an image, and the text that stands for it."""
    from PIL import Image

    settings = dict(tower.processor)
    kind = settings.pop("image_processor_type")
    module = importlib.import_module(f"transformers.models.{_PROCESSORS[kind]}")
    inputs = dict(
        getattr(module, f"{kind}Pil")(**settings)(
            images=[Image.fromarray(IMAGES[image])], return_tensors="pt"
        )
    )
    token, start, end = tower.tokens
    if "image_grid_thw" in inputs:
        return inputs, start + token * (int(inputs["image_grid_thw"].prod()) // 4) + end

    if "num_soft_tokens_per_image" in inputs:
        count = int(inputs.pop("num_soft_tokens_per_image")[0])
        return inputs, start + token * count + end

    crops = int(inputs.pop("num_crops")[0])
    tile = f"\n\n{start}{token * 9}{end}\n\n"
    if not crops:
        return inputs, tile

    many = " ".join([tile] * crops)
    return inputs, (
        f"Here is the original image {tile} and here are some crops to help you see better {many}"
    )


def _digest(tower: TinyTower, inputs: dict[str, Any]) -> bytes:
    """Return the SHA-256 of the pixels of all patches, those of each patch together."""
    pixels = inputs["pixel_values"].numpy()
    if "image_position_ids" in inputs:  # Without padding, and as the tower scales them.
        is_patch = inputs["image_position_ids"].numpy()[..., 0] >= 0
        pixels = 2 * (pixels[is_patch] - np.float32(0.5))
    elif pixels.ndim == 4:
        tiles = pixels.transpose(0, 2, 3, 1)
        pixels = np.stack([to_patches(tile, tower.vision["patch_size"]) for tile in tiles])
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).digest()


def _answer(model: Any, tower: TinyTower, prompt: TowerPrompt) -> dict[str, Any]:  # noqa: ANN401
    import torch

    processed = [_process(tower, image) for image in prompt.images]
    texts = [text for _, text in processed]
    ids = tower_tokenizer(tower).encode(prompt.text.format(*texts), add_special_tokens=False).ids
    images = {
        name: torch.cat([inputs[name] for inputs, _ in processed])
        for name in (processed[0][0] if processed else ())
    }
    results: dict[str, Any] = {"ids": np.array(ids, np.int32)}
    if images:
        found = model.model.get_image_features(**images)
        rows = found.pooler_output
        rows = torch.cat([row.reshape(-1, row.shape[-1]) for row in rows])
        added = getattr(found, "deepstack_features", None) or []
        parts = [torch.cat(list(part)) if isinstance(part, tuple) else part for part in added]
        results["rows"] = torch.cat([rows, *parts], dim=-1).numpy()
    logprobs = []
    for _ in range(STEPS):
        tokens = torch.tensor([ids])
        types = (tokens == IMAGE_TOKEN).int()
        field = tower.decoder.types_field or "mm_token_type_ids"
        if tower.decoder.has_grids:
            field = "mm_token_type_ids"
        if hasattr(model.model, "rope_deltas"):
            model.model.rope_deltas = None
        output = model(input_ids=tokens, use_cache=False, **images, **{field: types})
        logprobs.append(torch.log_softmax(output.logits[0, -1].double(), -1).float().numpy())
        ids.append(int(logprobs[-1].argmax()))
        assert ids[-1] != IMAGE_TOKEN
    return results | {"tokens": np.array(ids[-STEPS:]), "logprobs": np.stack(logprobs)}


def _reference(name: str) -> dict[str, Any]:
    import torch
    import transformers

    tower = TOWERS[name]
    with TemporaryDirectory() as directory:
        write_tower_model(Path(directory), name)
        model, info = transformers.AutoModelForImageTextToText.from_pretrained(
            directory, dtype=torch.float32, output_loading_info=True
        )
    missing = [key for key in info["missing_keys"] if ".head." not in key]
    assert not missing, missing
    results: dict[str, Any] = {}
    with torch.inference_mode():
        for index, prompt in enumerate(PROMPTS):
            answer = _answer(model.eval(), tower, prompt)
            results |= {f"{key}{index}": value for key, value in answer.items()}
    for image in range(len(IMAGES)):
        inputs = _process(tower, image)[0]
        results[f"pixels{image}"] = np.frombuffer(_digest(tower, inputs), np.uint8)
    return results


def main() -> None:
    """Rewrite the reference files of the named models, or of all."""
    directory = Path(__file__).parent / "reference"
    for name in sys.argv[1:] or TOWERS:
        np.savez_compressed(directory / f"tower_{name}.npz", **_reference(name))


if __name__ == "__main__":
    main()
