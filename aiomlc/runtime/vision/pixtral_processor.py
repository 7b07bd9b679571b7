"""Images of any size, of Pixtral and Mistral 3: tokens end the rows of an image, and the image."""

from __future__ import annotations

__all__ = ("PixtralProcessor",)

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import PixelScale, resize, to_patches


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PixtralProcessor:
    """Keeps the shape of an image, and rounds its sides up to whole blocks of patches."""

    placeholder: str = "[IMG]"
    image_token: str = "[IMG]"
    break_token: str = "[IMG_BREAK]"
    end_token: str = "[IMG_END]"
    scale: PixelScale
    resample: int
    patch_size: int
    merge: int  #: The side of a block, in patches.
    longest_edge: int  #: The longest side of an image, in pixels.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        block = self.patch_size * self.merge
        ratio = max(1.0, image.height / self.longest_edge, image.width / self.longest_edge)
        sides = (image.height, image.width)
        down, across = ((math.floor(side / ratio) - 1) // block + 1 for side in sides)
        down, across = max(down, 1), max(across, 1)
        pixels = resize(image.pixels, down * block, across * block, self.resample)
        patches = to_patches(self.scale.apply(pixels), self.patch_size)
        rows, columns = patches.shape[:2]
        count = rows * columns
        y, x = np.mgrid[:rows, :columns].astype(np.int32).reshape(2, -1)
        grid = np.arange(count, dtype=np.int32).reshape(down, self.merge, across, self.merge)
        inputs = {
            "patches": np.ascontiguousarray(patches.reshape(count, -1)),
            "positions": np.stack([np.zeros_like(y), y, x]),
            "lengths": np.array([count], np.int32),
            "window_lengths": np.array([count], np.int32),
            "order": np.ascontiguousarray(
                grid.transpose(0, 2, 1, 3).reshape(down * across, self.merge**2)
            ),
            "table_ids": np.zeros(count, np.int32),
            "table_weights": np.zeros((count, 1), np.float32),
        }
        row = self.image_token * across
        text = self.break_token.join([row] * down) + self.end_token
        return ProcessedImage(inputs, text, down * across)
