"""Prompts with images, by a vision tower."""

from __future__ import annotations

__all__ = ("TowerModel",)

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ImageProcessor
from aiomlc.runtime.vision.tower_batcher import EmbeddedImage, TowerBatcher
from aiomlc.runtime.vision.vision_model import Encode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TowerModel:
    """A `VisionModel` with a tower. Used in one event loop after the other."""

    processor: ImageProcessor
    batcher: TowerBatcher
    image_token_id: int
    key: bytes  #: Identifies the weights of the tower and the settings of the processor.

    @property
    def placeholder(self) -> str:
        """The text that stands for an image in a prompt, as the model's chat template writes it."""
        return self.processor.placeholder

    async def prompt(self, text: str, images: Sequence[ImageData], encode: Encode) -> Prompt:
        """Return a prompt whose placeholders became the embeddings of images.

        Raises:
            BadRequestError: If the number of placeholders is not that of the images, the text
                contains image tokens of its own, or the model cannot read an image.
            RequestFailedError: If the tower failed.
        """
        parts = text.split(self.placeholder)
        if len(parts) - 1 != len(images):
            raise BadRequestError(
                f"messages: the prompt has {len(parts) - 1} placeholders {self.placeholder!r} for "
                f"{len(images)} images: a text must not contain the placeholder, and the chat "
                "template must write one for each image",
                param="messages",
            )

        embedded = await self.batcher.run(images)
        filled = "".join(
            part + image.replacement for part, image in zip(parts, embedded, strict=False)
        )
        token_ids = await encode(filled + parts[-1])
        return Prompt(token_ids, self._pieces(token_ids, images, embedded))

    def _pieces(
        self, token_ids: Sequence[int], images: Sequence[ImageData], embedded: list[EmbeddedImage]
    ) -> Iterator[PromptPiece]:
        places = [i for i, token in enumerate(token_ids) if token == self.image_token_id]
        expected = sum(len(image.rows) for image in embedded)
        if len(places) != expected:
            raise BadRequestError(
                f"messages: the prompt has {len(places)} tokens {self.processor.image_token!r}, "
                f"but its images have {expected}: a text must not contain this token",
                param="messages",
            )

        start = 0
        for image, one in zip(images, embedded, strict=True):
            count = len(one.rows)
            numbered = enumerate(places[start : start + count])
            # Tokens at consecutive places have the same difference.
            for _, run in groupby(numbered, key=lambda item: item[1] - item[0]):
                (first, begin), *others = run
                rows = one.rows[first : first + 1 + len(others)]
                yield PromptPiece(begin, self._digest(image, first), rows, one.grid)
            start += count

    def _digest(self, image: ImageData, first: int) -> bytes:
        """Identify the rows of an image from `first` on, up to the next token of the text."""
        return hashlib.sha256(self.key + image.digest + first.to_bytes(8, "little")).digest()
