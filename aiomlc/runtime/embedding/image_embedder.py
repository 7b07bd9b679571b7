"""The part of a model that embeds images, in the space of its vectors of texts."""

from __future__ import annotations

__all__ = ("ImageEmbedder",)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from aiomlc.runtime.embedding.similarity import TextEmbedding
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.towers.tower_batcher import TowerBatcher
from aiomlc.runtime.vision.image_processor import ProcessedImage


@final
@dataclass(frozen=True, slots=True)
class ImageEmbedder:
    """A tower whose only row of an image is its vector."""

    batcher: TowerBatcher[ImageData, ProcessedImage]
    num_tokens: int  #: Tokens that the tower computes for an image: its patches and class token.

    async def embed(self, images: Sequence[ImageData]) -> list[TextEmbedding]:
        """Return the embedding of each image. Concurrent calls share forward passes.

        Raises:
            EngineClosedError: If the tower was closed before all images were embedded.
            RequestFailedError: If the tower failed, or a number is not finite.
        """
        return [TextEmbedding(image.rows[0]) for image in await self.batcher.run(images)]

    def close(self) -> None:
        """Release the tower; waiting callers get `EngineClosedError`. Thread-safe."""
        self.batcher.close()
