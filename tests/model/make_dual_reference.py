"""Compute pixels and embeddings of the models of `tiny_dual.py` with transformers in float32.

Run `python -m tests.model.make_dual_reference` after changing them; it rewrites
`tests/model/reference/dual.npz`. Requires torch, transformers and Pillow; the tests do not need
the first two.
"""

from __future__ import annotations

__all__ = ("reference_embeddings",)

import hashlib
import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiomlc.runtime.vision.pixels import to_patches
from tests.model.tiny_dual import CONFIGS, IMAGES, PROCESSORS, TEXTS, write_dual_model

_MODULES = {
    "CLIPImageProcessor": "clip.image_processing_pil_clip",
    "SiglipImageProcessor": "siglip.image_processing_pil_siglip",
}


def _pixels(name: str) -> Any:  # noqa: ANN401 - untyped.
    from PIL import Image

    settings = dict(PROCESSORS[name])
    kind = settings.pop("image_processor_type")
    module = importlib.import_module(f"transformers.models.{_MODULES[kind]}")
    processor = getattr(module, f"{kind}Pil")(**settings)
    images = [Image.fromarray(image) for image in IMAGES]
    return processor(images, return_tensors="pt")["pixel_values"]


def _digest(pixels: NDArray[np.float32], patch_size: int) -> NDArray[np.uint8]:
    """Return the SHA-256 of the pixels of all patches of an image, those of each together."""
    patches = to_patches(pixels.transpose(1, 2, 0), patch_size)
    return np.frombuffer(hashlib.sha256(patches.tobytes()).digest(), np.uint8)


def _ids(directory: str, name: str) -> list[list[int]]:
    """Return the tokens of each text as a processor gives them to a model."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    padding = "max_length" if CONFIGS[name]["model_type"] == "siglip" else False
    ids: list[list[int]] = tokenizer(TEXTS, padding=padding, truncation=True)["input_ids"]
    return ids


def reference_embeddings(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return pixels, and the embeddings of texts and images before they are normalized."""
    import torch
    import transformers

    with TemporaryDirectory() as directory:
        write_dual_model(Path(directory), name)
        ids = _ids(directory, name)
        model, info = transformers.AutoModel.from_pretrained(
            directory, dtype=torch.float32, output_loading_info=True
        )
    assert not info["missing_keys"], info["missing_keys"]
    assert not info["unexpected_keys"], info["unexpected_keys"]
    model, pixels = model.eval(), _pixels(name)
    with torch.inference_mode():
        texts = [model.get_text_features(input_ids=torch.tensor([each])) for each in ids]
        images = model.get_image_features(pixel_values=pixels)
    size = CONFIGS[name].get("vision_config_dict", CONFIGS[name]["vision_config"])["patch_size"]
    return {
        "pixels": np.stack([_digest(image, size) for image in pixels.numpy()]),
        "texts": torch.cat([each.pooler_output for each in texts]).numpy(),
        "images": images.pooler_output.numpy(),
    }


def main() -> None:
    """Rewrite the reference file."""
    arrays: dict[str, Any] = {}
    for name in CONFIGS:
        arrays |= {f"{name}_{key}": value for key, value in reference_embeddings(name).items()}
    np.savez_compressed(Path(__file__).parent / "reference" / "dual.npz", **arrays)


if __name__ == "__main__":
    main()
