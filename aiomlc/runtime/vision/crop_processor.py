"""Images of one fixed size, of LLaVA: the shorter side is resized, and the center is cropped."""

from __future__ import annotations

__all__ = ("CropProcessor", "PooledProcessor")

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import (
    PixelScale,
    center_crop,
    pad_to_square,
    resize,
    shortest_edge_size,
    tile_inputs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CropProcessor:
    """Makes one image of a fixed size, whose patches are the image tokens."""

    placeholder: str = "<image>"
    image_token: str = "<image>"
    scale: PixelScale
    resample: int
    shortest_edge: int  #: 0 to resize to the size itself.
    size: int  #: The side of the square that the tower reads.
    patch_size: int
    has_class_token: bool
    drops_class_token: bool  #: Whether its output is no image token.
    pads_to_square: bool = False  #: Whether the mean color makes images square before.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        inputs = self.inputs(image)
        first = int(self.has_class_token and self.drops_class_token)
        order = np.arange(first, len(inputs["patches"]), dtype=np.int32)
        inputs["order"] = order[:, np.newaxis]
        return ProcessedImage(inputs, self.image_token * len(order), len(order))

    def inputs(self, image: ImageData) -> dict[str, NDArray[Any]]:
        """Return the inputs of the tower without `order`. Blocks."""
        pixels = image.pixels
        if self.pads_to_square:
            pixels = pad_to_square(pixels, tuple(int(255 * mean) for mean in self.scale.mean))
        if self.shortest_edge:
            height, width = pixels.shape[:2]
            height, width = shortest_edge_size(height, width, self.shortest_edge)
            pixels = center_crop(resize(pixels, height, width, self.resample), self.size, self.size)
        else:
            pixels = resize(pixels, self.size, self.size, self.resample)
        return tile_inputs(
            [self.scale.apply(pixels)], self.patch_size, has_class_token=self.has_class_token
        )


@final
@dataclass(frozen=True, slots=True)
class PooledProcessor:
    """Makes the same image for a tower that embeds it as one row, that of its first token."""

    crop: CropProcessor

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        inputs = self.crop.inputs(image)
        inputs["order"] = np.zeros((1, 1), np.int32)
        return ProcessedImage(inputs, "", 1)
