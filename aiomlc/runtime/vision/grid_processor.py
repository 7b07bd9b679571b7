"""Images of any size, of Qwen's models: patches in blocks that the tower merges to one row each."""

from __future__ import annotations

__all__ = ("GridProcessor", "interpolated_rows", "smart_size")

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import PixelScale, resize, to_patches

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_RATIO: Final = 200.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GridProcessor:
    """Keeps the shape of an image, and rounds its sides to whole blocks."""

    placeholder: str = "<|image_pad|>"
    image_token: str = "<|image_pad|>"
    scale: PixelScale
    resample: int
    patch_size: int
    merge: int  #: The side of a block, in patches.
    num_frames: int  #: Equal frames that a patch has of an image.
    min_pixels: int
    max_pixels: int
    window: int = 0  #: The side of a window, in blocks; 0 if the tower has none.
    table_side: int = 0  #: The side of the table of positions; 0 if the tower has none.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks.

        Raises:
            BadRequestError: If a side is more than 200 times the other.
        """
        block = self.patch_size * self.merge
        height, width = smart_size(
            image.height, image.width, block, self.min_pixels, self.max_pixels
        )
        pixels = self.scale.apply(resize(image.pixels, height, width, self.resample))
        rows, columns = height // self.patch_size, width // self.patch_size
        tokens = self._in_blocks(np.arange(rows * columns, dtype=np.int32).reshape(rows, columns))
        order, windows = self._windows(rows // self.merge, columns // self.merge)
        tokens = tokens[order].reshape(-1)
        count = self.merge * self.merge
        inverse = np.argsort(order).astype(np.int32)
        ids, weights = self._table(tokens // columns, tokens % columns, rows, columns)
        inputs: dict[str, NDArray[Any]] = {
            "patches": self._patches(pixels)[tokens],
            "positions": np.stack([np.zeros_like(tokens), tokens // columns, tokens % columns]),
            "lengths": np.array([len(tokens)], np.int32),
            "window_lengths": (windows * count).astype(np.int32),
            "order": inverse[:, np.newaxis] * count + np.arange(count, dtype=np.int32),
            "table_ids": ids,
            "table_weights": weights,
        }
        grid = (1, rows // self.merge, columns // self.merge)
        return ProcessedImage(inputs, self.image_token * len(order), len(order), grid=grid)

    def _in_blocks(self, grid: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the tokens `[blocks, tokens of a block]`."""
        rows, columns = (side // self.merge for side in grid.shape)
        blocks = grid.reshape(rows, self.merge, columns, self.merge).transpose(0, 2, 1, 3)
        return blocks.reshape(rows * columns, self.merge * self.merge)

    def _windows(self, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the order of the blocks, window by window, and the blocks of each window."""
        blocks = np.arange(rows * columns).reshape(rows, columns)
        if not self.window:
            return blocks.reshape(-1), np.array([blocks.size])

        parts = [
            blocks[top : top + self.window, left : left + self.window].reshape(-1)
            for top in range(0, rows, self.window)
            for left in range(0, columns, self.window)
        ]
        return np.concatenate(parts), np.array([part.size for part in parts])

    def _patches(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return `[rows * columns, channels * frames * size * size]`."""
        patches = to_patches(pixels, self.patch_size)
        frames = np.repeat(patches[:, :, :, np.newaxis], self.num_frames, axis=3)
        return frames.reshape(patches.shape[0] * patches.shape[1], -1)

    def _table(
        self, y: NDArray[np.int32], x: NDArray[np.int32], rows: int, columns: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        if not self.table_side:
            return np.zeros(len(y), np.int32), np.zeros((len(y), 1), np.float32)

        return interpolated_rows(y, x, (rows, columns), self.table_side)


def smart_size(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Return the height and width that are nearest, multiples of `factor`, and within the bounds.

    Raises:
        BadRequestError: If a side is more than 200 times the other.
    """
    ratio = max(height, width) / min(height, width)
    if ratio > _MAX_RATIO:
        raise BadRequestError(
            f"image: a side must be at most {_MAX_RATIO:.0f} times the other, got "
            f"{width} x {height}: crop the image",
            param="messages",
        )

    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        rows, columns = (
            max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)
        )
    elif rows * columns < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def interpolated_rows(
    y: NDArray[np.int32], x: NDArray[np.int32], shape: tuple[int, int], side: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the four neighbors of each token in a square table, int32 `[n * 4]`, and their
    weights, float32 `[n, 4]`; corners of the image are those of the table."""
    rows, row_weights = _neighbors(y, shape[0], side)
    columns, column_weights = _neighbors(x, shape[1], side)
    ids = rows[:, :, np.newaxis] * side + columns[:, np.newaxis, :]
    weights = row_weights[:, :, np.newaxis] * column_weights[:, np.newaxis, :]
    return ids.reshape(-1).astype(np.int32), weights.reshape(len(y), -1)


def _neighbors(
    index: NDArray[np.int32], size: int, side: int
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    place = index.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    floor = np.floor(place)
    distance = (place - floor)[:, np.newaxis]
    neighbors = floor.astype(np.int64)[:, np.newaxis] + np.arange(2)
    weights = np.concatenate([1 - distance, distance], axis=1)
    return np.clip(neighbors, 0, side - 1), weights.astype(np.float32)
