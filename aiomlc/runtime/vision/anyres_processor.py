"""Images of any shape as tiles and a small copy, of LLaVA-NeXT."""

from __future__ import annotations

__all__ = ("AnyResProcessor", "best_resolution")

import math
from collections.abc import Sequence
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
class AnyResProcessor:
    """Resizes an image into the best of several resolutions, and pads and divides it.

    The tower reads each tile, and before them the whole image. The rows of the tiles that show the
    image, and not its padding, follow each other as in the image, each with a newline at its end.
    """

    placeholder: str = "<image>"
    image_token: str = "<image>"
    scale: PixelScale
    resample: int
    size: int  #: The side of a tile.
    patch_size: int
    resolutions: tuple[tuple[int, int], ...]  #: Height and width, multiples of `size`.
    has_class_token: bool

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        shape = image.height, image.width
        target = best_resolution(*shape, self.resolutions)
        tiles = [resize(image.pixels, self.size, self.size, self.resample)]
        tiles += self._tiles(image.pixels, target)
        inputs = tile_inputs(
            [self.scale.apply(tile) for tile in tiles],
            self.patch_size,
            has_class_token=self.has_class_token,
        )
        tokens = np.arange(len(inputs["patches"]), dtype=np.int32).reshape(len(tiles), -1)
        inputs["order"] = tokens[:, int(self.has_class_token) :].reshape(-1, 1)
        rows = self._rows(shape, target)
        return ProcessedImage(inputs, self.image_token * len(rows), len(rows), rows)

    def _tiles(self, pixels: NDArray[np.uint8], target: tuple[int, int]) -> list[NDArray[np.uint8]]:
        height, width = pixels.shape[:2]
        height, width = _fitted(height, width, target)
        pixels = resize(pixels, height, width, self.resample)
        padded = np.zeros((*target, 3), np.uint8)
        top, left = (target[0] - height) // 2, (target[1] - width) // 2
        padded[top : top + height, left : left + width] = pixels
        steps = [range(0, side, self.size) for side in target]
        return [padded[y : y + self.size, x : x + self.size] for y in steps[0] for x in steps[1]]

    def _rows(self, shape: tuple[int, int], target: tuple[int, int]) -> NDArray[np.int32]:
        """Return the outputs in the order of the image tokens; -1 is a newline."""
        side = self.size // self.patch_size
        down, across = target[0] // self.size, target[1] // self.size
        base = np.arange(side * side, dtype=np.int32)
        tiles = np.arange(down * across * side * side, dtype=np.int32) + np.int32(side * side)
        grid = tiles.reshape(down, across, side, side).transpose(0, 2, 1, 3)
        shown = _unpadded(grid.reshape(down * side, across * side), *shape)
        newlines = np.full((len(shown), 1), -1, np.int32)
        return np.concatenate([base, np.concatenate([shown, newlines], axis=1).reshape(-1)])


def best_resolution(
    height: int, width: int, resolutions: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Return the resolution that keeps most of an image's pixels, and of these the smallest."""

    def score(resolution: tuple[int, int]) -> tuple[int, int]:
        rows, columns = resolution
        scale = min(columns / width, rows / height)
        effective = min(int(width * scale) * int(height * scale), width * height)
        return effective, effective - rows * columns

    return max(resolutions, key=score)


def _fitted(height: int, width: int, target: tuple[int, int]) -> tuple[int, int]:
    """Return the largest size of an image in `target`."""
    scale_height, scale_width = target[0] / height, target[1] / width
    if scale_width < scale_height:
        return min(math.ceil(height * scale_width), target[0]), target[1]

    return target[0], min(math.ceil(width * scale_height), target[1])


def _unpadded(grid: NDArray[np.int32], height: int, width: int) -> NDArray[np.int32]:
    """Return the rows and columns of the grid that show an image of this shape."""
    rows, columns = grid.shape
    if width / height > columns / rows:
        padding = (rows - int(round(height * (columns / width), 7))) // 2
        return grid[padding : rows - padding]

    padding = (columns - int(round(width * (rows / height), 7))) // 2
    return grid[:, padding : columns - padding]
