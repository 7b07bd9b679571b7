"""Square images, of Gemma 3: the whole image, and crops of a long one if the model asks for it."""

from __future__ import annotations

__all__ = ("PanAndScan", "PanAndScanProcessor")

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import PixelScale, resize, tile_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PanAndScan:
    """When a long image is also read in crops."""

    min_crop_size: int
    max_crops: int
    min_ratio: float  #: Of the longer side to the shorter one.

    def crops(self, pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Return the crops along the longer side; none of an image that is not long."""
        height, width = pixels.shape[:2]
        longer, shorter = max(height, width), min(height, width)
        if longer / shorter < self.min_ratio:
            return []

        count = min(longer // self.min_crop_size, math.floor(longer / shorter + 0.5))
        count = min(self.max_crops, max(2, count))
        size = math.ceil(longer / count)
        if min(size, shorter) < self.min_crop_size:
            return []

        starts = range(0, size * count, size)
        if width >= height:
            return [pixels[:, start : start + size] for start in starts]

        return [pixels[start : start + size] for start in starts]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PanAndScanProcessor:
    """Makes squares of a fixed size, whose patches are averaged in blocks."""

    placeholder: str = "<start_of_image>"
    image_token: str = "<image_soft_token>"
    end_token: str = "<end_of_image>"
    scale: PixelScale
    resample: int
    size: int  #: The side of the square that the tower reads.
    patch_size: int
    block: int  #: The side of a block, in patches.
    pan_and_scan: PanAndScan | None = None

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        crops = [] if self.pan_and_scan is None else self.pan_and_scan.crops(image.pixels)
        tiles = [
            self.scale.apply(resize(pixels, self.size, self.size, self.resample))
            for pixels in (image.pixels, *crops)
        ]
        inputs = tile_inputs(tiles, self.patch_size, has_class_token=False)
        inputs["order"] = self._order(len(tiles))
        num_tokens = len(inputs["order"])
        return ProcessedImage(inputs, self._replacement(num_tokens, len(crops)), num_tokens)

    def _order(self, num_tiles: int) -> NDArray[np.int32]:
        """Return the tokens of each block, `[blocks of all tiles, tokens of a block]`."""
        side = self.size // self.patch_size
        blocks = side // self.block
        tokens = np.arange(side * side, dtype=np.int32).reshape(side, side)
        tokens = tokens[: blocks * self.block, : blocks * self.block]
        grouped = tokens.reshape(blocks, self.block, blocks, self.block).transpose(0, 2, 1, 3)
        order = grouped.reshape(blocks * blocks, self.block * self.block)
        starts = np.arange(num_tiles, dtype=np.int32)[:, np.newaxis, np.newaxis] * (side * side)
        return np.ascontiguousarray((order + starts).reshape(-1, order.shape[1]))

    def _replacement(self, num_tokens: int, num_crops: int) -> str:
        tokens = self.image_token * (num_tokens // (1 + num_crops))
        tile = f"\n\n{self.placeholder}{tokens}{self.end_token}\n\n"
        if not num_crops:
            return tile

        crops = " ".join([tile] * num_crops)
        return (
            f"Here is the original image {tile} and here are some crops to help you see better "
            f"{crops}"
        )
