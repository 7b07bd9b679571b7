"""Operations on pixels, whose results are those of transformers' processors on PIL and NumPy."""

from __future__ import annotations

__all__ = (
    "PixelScale",
    "center_crop",
    "pad_to_square",
    "resize",
    "shortest_edge_size",
    "tile_inputs",
    "to_patches",
)

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aiomlc.errors import MissingPackageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PixelScale:
    """The scale and the normalization from bytes to the numbers that a tower reads."""

    factor: float = 1 / 255  #: Of bytes.
    mean: tuple[float, ...] = ()  #: Of each channel; empty if it is not normalized.
    std: tuple[float, ...] = ()

    def apply(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return `[height, width, 3]` as float32."""
        scaled = (pixels.astype(np.float64) * self.factor).astype(np.float32)
        if not self.mean:
            return scaled

        mean, std = (np.array(values, np.float32) for values in (self.mean, self.std))
        normal: NDArray[np.float32] = (scaled - mean) / std
        return normal


def resize(pixels: NDArray[np.uint8], height: int, width: int, resample: int) -> NDArray[np.uint8]:
    """Return an image in another size; `resample` is Pillow's number of a filter."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", "pip install 'aiomlc[vision]'") from None

    image = Image.fromarray(pixels)
    return np.array(image.resize((width, height), resample=Image.Resampling(resample)))


def shortest_edge_size(height: int, width: int, edge: int) -> tuple[int, int]:
    """Return the height and width of an image whose shorter side becomes `edge`."""
    if width <= height:
        return int(edge * height / width), edge

    return edge, int(edge * width / height)


def center_crop(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return the center of an image, on black where the image is smaller."""
    rows, columns = pixels.shape[:2]
    padded = np.zeros((max(height, rows), max(width, columns), 3), np.uint8)
    top, left = math.ceil((padded.shape[0] - rows) / 2), math.ceil((padded.shape[1] - columns) / 2)
    padded[top : top + rows, left : left + columns] = pixels
    top, left = (rows - height) // 2 + top, (columns - width) // 2 + left
    return padded[top : top + height, left : left + width]


def pad_to_square(pixels: NDArray[np.uint8], color: Sequence[int]) -> NDArray[np.uint8]:
    """Return an image in the middle of a square of one color."""
    height, width = pixels.shape[:2]
    side = max(height, width)
    square = np.full((side, side, 3), np.array(color or (0,) * 3, np.uint8))
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = pixels
    return square


def to_patches(pixels: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return `[rows, columns, channels, size, size]` for an image `[height, width, channels]`.

    As in a convolution, a rest at the end that is smaller than a patch is left out.
    """
    rows, columns = (side // size for side in pixels.shape[:2])
    grid = pixels[: rows * size, : columns * size].reshape(rows, size, columns, size, -1)
    return grid.transpose(0, 2, 4, 1, 3)


def tile_inputs(
    tiles: Sequence[NDArray[np.float32]], patch_size: int, *, has_class_token: bool
) -> dict[str, NDArray[Any]]:
    """Return the inputs of a tower with a table of positions, without `order`.

    Each tile attends to itself only.

    Args:
        tiles: Images `[height, width, channels]` of the same size.
        patch_size: The side of a patch.
        has_class_token: Whether the tokens of each tile begin with one that has no pixels.
    """
    first = int(has_class_token)
    rows = [to_patches(tile, patch_size) for tile in tiles]
    count = first + rows[0].shape[0] * rows[0].shape[1]
    patches = np.zeros((len(tiles), count, math.prod(rows[0].shape[2:])), np.float32)
    flags = np.zeros((len(tiles), count, 2), np.float32)
    for tile, patch_rows in enumerate(rows):
        patches[tile, first:] = patch_rows.reshape(count - first, -1)
    flags[:, :first, 0] = 1
    flags[:, first:, 1] = 1
    return {
        "patches": patches.reshape(len(tiles) * count, -1),
        "flags": flags.reshape(-1, 2),
        "positions": np.tile(np.arange(count, dtype=np.int32), len(tiles)),
        "lengths": np.full(len(tiles), count, np.int32),
    }
