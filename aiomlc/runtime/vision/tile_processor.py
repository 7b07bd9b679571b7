"""Images as tiles of one size and a small copy: of Idefics 3, SmolVLM and InternVL."""

from __future__ import annotations

__all__ = ("InternVLProcessor", "SplitProcessor")

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.pixels import PixelScale, resize, tile_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_SIDE: Final = 4096  # Of an image of Idefics 3.
_FAKE: Final = "<fake_token_around_image>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TileProcessor:
    """Tiles of one size, blocks of whose patches are joined to image tokens."""

    scale: PixelScale
    resample: int
    size: int  #: The side of a tile.
    patch_size: int
    merge: int  #: The side of the block of patches that an image token stands for.
    has_class_token: bool

    @property
    def tile_tokens(self) -> int:
        """The image tokens of a tile."""
        return (self.size // self.patch_size // self.merge) ** 2

    def inputs(self, tiles: Sequence[NDArray[np.uint8]]) -> dict[str, NDArray[Any]]:
        """Return the inputs of the tower."""
        inputs = tile_inputs(
            [self.scale.apply(tile) for tile in tiles],
            self.patch_size,
            has_class_token=self.has_class_token,
        )
        side, merge = self.size // self.patch_size, self.merge
        tokens = np.arange(len(inputs["patches"]), dtype=np.int32).reshape(len(tiles), -1)
        grid = tokens[:, int(self.has_class_token) :]
        blocks = grid.reshape(len(tiles), side // merge, merge, side // merge, merge)
        inputs["order"] = np.ascontiguousarray(
            blocks.transpose(0, 1, 3, 2, 4).reshape(-1, merge * merge)
        )
        return inputs

    def divided(self, pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Return the tiles of an image whose sides are multiples of theirs, row by row."""
        height, width = pixels.shape[:2]
        return [
            pixels[y : y + self.size, x : x + self.size]
            for y in range(0, height, self.size)
            for x in range(0, width, self.size)
        ]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProcessor(_TileProcessor):
    """Idefics 3 and SmolVLM: a large image is divided, and tokens name the rows and columns."""

    placeholder: str = "<image>"
    image_token: str = "<image>"
    global_token: str = "<global-img>"
    longest_edge: int  #: Of the image before it is divided; 0 keeps its size.
    splits: bool  #: Whether images are divided.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        pixels = image.pixels
        if self.longest_edge:
            pixels = resize(
                pixels,
                *_longest_edge_size(image.height, image.width, self.longest_edge),
                self.resample,
            )
        if not self.splits:
            pixels = resize(pixels, self.size, self.size, self.resample)
        else:
            height, width = pixels.shape[:2]
            pixels = resize(pixels, *self._multiple(height, width), self.resample)
        tiles = self.divided(pixels)
        rows, columns = pixels.shape[0] // self.size, pixels.shape[1] // self.size
        if len(tiles) > 1:
            tiles.append(resize(pixels, self.size, self.size, self.resample))
        inputs = self.inputs(tiles)
        inputs["positions"] = np.tile(_positions(self.size // self.patch_size), len(tiles))
        text = "".join(self._text(rows, columns))
        return ProcessedImage(inputs, text, len(inputs["order"]))

    def _multiple(self, height: int, width: int) -> tuple[int, int]:
        """Return multiples of the side of a tile, with nearly the aspect ratio of the image."""
        ratio = width / height
        if width >= height:
            width = math.ceil(width / self.size) * self.size
            return math.ceil(int(width / ratio) / self.size) * self.size, width

        height = math.ceil(height / self.size) * self.size
        return height, math.ceil(int(height * ratio) / self.size) * self.size

    def _text(self, rows: int, columns: int) -> Iterator[str]:
        tokens = self.image_token * self.tile_tokens
        if rows * columns > 1:
            for row in range(1, rows + 1):
                yield from (
                    f"{_FAKE}<row_{row}_col_{column}>{tokens}" for column in range(1, columns + 1)
                )
                yield "\n"
            yield "\n"
        yield f"{_FAKE}{self.global_token}{tokens}{_FAKE}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InternVLProcessor(_TileProcessor):
    """InternVL: the tiles have the aspect ratio of the image, and a small copy follows them."""

    placeholder: str = "<IMG_CONTEXT>"
    image_token: str = "<IMG_CONTEXT>"
    begin_token: str = "<img>"
    end_token: str = "</img>"
    min_tiles: int
    max_tiles: int  #: 1 if images are not divided.

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks."""
        columns, rows = 1, 1
        if self.max_tiles > 1:
            columns, rows = self._best_grid(image.height, image.width)
        pixels = resize(image.pixels, rows * self.size, columns * self.size, self.resample)
        tiles = self.divided(pixels)
        if len(tiles) > 1:
            tiles.append(resize(image.pixels, self.size, self.size, self.resample))
        inputs = self.inputs(tiles)
        count = len(inputs["order"])
        text = f"{self.begin_token}{self.image_token * count}{self.end_token}"
        return ProcessedImage(inputs, text, count)

    def _best_grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the columns and rows with the aspect ratio of an image.

        Of those that are equally near, it is the last one whose area is at most twice the image's.
        """
        ratio, area = width / height, width * height
        counts = range(1, self.max_tiles + 1)
        grids = [
            (columns, rows)
            for columns in counts
            for rows in counts
            if self.min_tiles <= columns * rows <= self.max_tiles
        ]
        best, least = (1, 1), math.inf
        for columns, rows in sorted(grids, key=math.prod):
            distance = abs(ratio - columns / rows)
            is_small = area > 0.5 * self.size**2 * columns * rows
            if distance < least or (distance == least and is_small):
                best, least = (columns, rows), distance
        return best


def _longest_edge_size(height: int, width: int, edge: int) -> tuple[int, int]:
    """Return the height and width, of which the shorter is even, with a longer side of `edge`."""
    ratio = width / height
    if width >= height:
        height, width = int(edge / ratio), edge
        height += height % 2
    else:
        height, width = edge, int(edge * ratio)
        width += width % 2
    height, width = max(height, 1), max(width, 1)
    ratio = width / height
    if width >= height and width > _MAX_SIDE:
        height, width = int(_MAX_SIDE / ratio), _MAX_SIDE
    elif height > width and height > _MAX_SIDE:
        height, width = _MAX_SIDE, int(_MAX_SIDE * ratio)
    return max(height, 1), max(width, 1)


def _positions(side: int) -> NDArray[np.int32]:
    """Return the rows of the table of positions for a square of patches.

    They are those of fractions of the side, in float32: rounding may move a patch to its neighbor.
    """
    step = 1 / side
    boundaries = (step + step * np.arange(math.ceil((1.0 - step) / step))).astype(np.float32)
    fractions = np.arange(side, dtype=np.float32) * np.float32(1.0 / side)
    fractions = np.minimum(fractions, np.float32(1.0 - 1e-6))
    index = np.searchsorted(boundaries, fractions, side="right").astype(np.int32)
    table: NDArray[np.int32] = index[:, np.newaxis] * np.int32(side) + index
    return table.reshape(-1)
