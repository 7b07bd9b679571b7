"""A vision tower, with the processor that makes its inputs."""

from __future__ import annotations

__all__ = ("ImageReader", "PromptImageReader", "VisionTower")

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.towers.tower_reader import EmbeddedItem
from aiomlc.runtime.vision.image_processor import ImageProcessor, PixelProcessor, ProcessedImage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class VisionTower(Protocol):
    """A compiled tower."""

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return embedded rows of the inputs of several images. Blocks; thread-safe."""
        ...


class ImageReader:
    """A `TowerReader` of images.

    Args:
        tower: The tower.
        processor: What makes its inputs.
        newline: The row for -1 in `ProcessedImage.rows`; None if there is none.
    """

    tower_name: str = "vision tower"

    def __init__(
        self,
        tower: VisionTower,
        processor: PixelProcessor,
        newline: NDArray[np.float32] | None = None,
    ) -> None:
        self._tower = tower
        self._processor = processor
        self._newline = newline

    def process(self, item: ImageData) -> ProcessedImage:
        """Process an image. Blocks.

        Raises:
            BadRequestError: If the model cannot read an image of this shape.
        """
        return self._processor.process(item)

    def num_tokens(self, inputs: ProcessedImage) -> int:
        """Return the patches of an image."""
        return _num_tokens(inputs)

    def embed(self, batch: Sequence[ProcessedImage]) -> list[EmbeddedItem]:
        """Return the images of a batch. Blocks."""
        import numpy as np  # Imported late: servers start without it.

        rows = self._tower.forward(_concatenated(batch))
        ends = np.cumsum([len(image.inputs["order"]) for image in batch])[:-1]
        return [
            EmbeddedItem(image.replacement, self._arranged(part, image), image.grid)
            for image, part in zip(batch, np.split(rows, ends), strict=True)
        ]

    def _arranged(self, rows: NDArray[np.float32], image: ProcessedImage) -> NDArray[np.float32]:
        """Return a copy of an image's rows in the order of its image tokens."""
        if image.rows is None:
            return rows.copy()

        if self._newline is not None:
            import numpy as np

            rows = np.concatenate([rows, self._newline[np.newaxis]])
        return rows[image.rows]


@final
class PromptImageReader(ImageReader):
    """A `PromptReader` of images."""

    item_name: str = "image"

    def __init__(
        self,
        tower: VisionTower,
        processor: ImageProcessor,
        newline: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(tower, processor, newline)
        self.placeholder: str = processor.placeholder
        self.token: str = processor.image_token


def _num_tokens(image: ProcessedImage) -> int:
    return int(image.inputs["patches"].shape[0])


def _concatenated(images: Sequence[ProcessedImage]) -> dict[str, NDArray[Any]]:
    """Return the inputs of all images, whose tokens `order` counts from the first image on."""
    first = images[0].inputs
    if len(images) == 1:
        return first

    import numpy as np

    starts = np.cumsum([0, *map(_num_tokens, images)])
    joined = {}
    for name, value in first.items():
        parts = [image.inputs[name] for image in images]
        if name == "order":
            pairs = zip(parts, starts[:-1], strict=True)
            parts = [part + np.int32(start) for part, start in pairs]
        is_axes = name == "positions" and value.ndim > 1
        joined[name] = np.ascontiguousarray(np.concatenate(parts, axis=-1 if is_axes else 0))
    return joined
