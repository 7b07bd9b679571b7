from __future__ import annotations

import base64
import urllib.request
from typing import Any

import numpy as np

import aiomlc
from aiomlc import TextData as TextData
from aiomlc import TokenData as TokenData
from aiomlc.api.step.data import Data as Data
from aiomlc.api.step.data import RequestStreamOutput as RequestStreamOutput
from aiomlc.api.step.data import SingleRequestStreamOutput as SingleRequestStreamOutput

_FETCH_SECONDS = 5
_PHI3_TOKENS = 1921  # What MLC LLM declares for every image of phi3_v.


class ImageData(aiomlc.ImageData):
    """An image with its number of embeddings, as MLC LLM counts them.

    Args:
        image: A tensor of uint8, [1, height, width, 3].
        embed_size: The number; the model computes its own.
    """

    __slots__ = ("embed_size",)
    embed_size: int

    def __init__(self, image: Any, embed_size: int) -> None:
        pixels = np.asarray(image.numpy() if hasattr(image, "numpy") else image)
        if pixels.ndim == 4 and pixels.shape[0] == 1:
            pixels = pixels[0]

        super().__init__(pixels)
        object.__setattr__(self, "embed_size", embed_size)

    @property
    def image(self) -> Any:
        """The pixels, [1, height, width, 3]."""
        return self.pixels[None]

    def __len__(self) -> int:
        return self.embed_size

    @staticmethod
    def from_url(url: str, config: dict[str, Any]) -> ImageData:
        """Read an image at a `data:` URL, or fetch it by HTTP.

        Args:
            url: The URL; the caller trusts it.
            config: The model's `mlc-chat-config.json`.
        """
        if url.startswith("data:image"):
            data = base64.b64decode(url.partition(",")[2])
        elif url.startswith(("http://", "https://")):
            with urllib.request.urlopen(url, timeout=_FETCH_SECONDS) as answer:
                data = answer.read()
        else:
            raise ValueError(f"Unsupported image URL format: {url}")

        pixels = aiomlc.ImageData.from_bytes(data).pixels
        is_phi = config.get("model_type") == "phi3_v"
        return ImageData(pixels[None], _PHI3_TOKENS if is_phi else 576)

    @staticmethod
    def get_embed_size(config: dict[str, Any]) -> int:
        """Return the number of patches of the model's images."""
        vision = config["model_config"]["vision_config"]
        return int((vision["image_size"] // vision["patch_size"]) ** 2)

    @staticmethod
    def get_input_size(config: dict[str, Any]) -> int:
        """Return the side of the model's images in pixels."""
        return int(config["model_config"]["vision_config"]["image_size"])
