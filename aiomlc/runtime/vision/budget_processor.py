"""Images of any shape with a budget of tokens, of Gemma 4: patches that are averaged in blocks."""

from __future__ import annotations

__all__ = ("BudgetProcessor", "budget_size")

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import PixelScale, resize, to_patches


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetProcessor:
    """Keeps the shape of an image, and makes it as large as its budget of tokens allows."""

    placeholder: str = "<|image|>"
    image_token: str = "<|image|>"
    start_token: str = "<|image>"
    end_token: str = "<image|>"
    scale: PixelScale  #: To [-1, 1], which the tower itself does in transformers.
    resample: int
    patch_size: int
    block: int  #: The side of a block, in patches.
    max_tokens: int
    table_size: int  #: Rows of the table of columns, which those of the table of rows follow.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks.

        Raises:
            BadRequestError: If a side is too long for the budget.
        """
        side = self.patch_size * self.block
        height, width = budget_size(image.height, image.width, side, self.max_tokens)
        pixels = image.pixels
        if (height, width) != pixels.shape[:2]:
            pixels = resize(pixels, height, width, self.resample)
        patches = to_patches(self.scale.apply(pixels), self.patch_size).transpose(0, 1, 3, 4, 2)
        rows, columns = patches.shape[:2]
        y, x = (axis.reshape(-1).astype(np.int32) for axis in np.mgrid[:rows, :columns])
        tokens = np.arange(rows * columns, dtype=np.int32)
        blocks = tokens.reshape(rows // self.block, self.block, columns // self.block, self.block)
        order = blocks.transpose(0, 2, 1, 3).reshape(-1, self.block * self.block)
        inputs = {
            "patches": np.ascontiguousarray(patches).reshape(len(tokens), -1),
            "positions": np.stack([np.zeros_like(x), x, y]),
            "lengths": np.array([len(tokens)], np.int32),
            "window_lengths": np.array([len(tokens)], np.int32),
            "order": np.ascontiguousarray(order),
            "table_ids": np.stack([x, self.table_size + y], axis=1).reshape(-1),
            "table_weights": np.ones((len(tokens), 2), np.float32),
        }
        text = f"{self.start_token}{self.image_token * len(order)}{self.end_token}"
        return ProcessedImage(inputs, text, len(order))


def budget_size(height: int, width: int, side: int, max_tokens: int) -> tuple[int, int]:
    """Return the largest height and width of about this shape with `max_tokens` blocks.

    Args:
        height: Of the image, and so is `width`.
        width: In pixels.
        side: Pixels along a block.
        max_tokens: The most blocks.

    Raises:
        BadRequestError: If there is none.
    """
    factor = math.sqrt(max_tokens * side * side / (height * width))
    rows, columns = (math.floor(factor * size / side) for size in (height, width))
    if not rows and columns:
        rows, columns = 1, min(width // height, max_tokens)
    elif not columns and rows:
        rows, columns = min(height // width, max_tokens), 1
    if not 0 < rows * columns <= max_tokens:
        raise BadRequestError(
            f"image: {width} x {height} pixels do not fit in {max_tokens} blocks of {side} x "
            f"{side}: crop the image",
            param="messages",
        )

    return rows * side, columns * side
