"""The interface of the part of a model that reads images."""

from __future__ import annotations

__all__ = ("Encode", "VisionModel")

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.images.image_data import ImageData

#: Returns the token ids of a text, in which special tokens are recognized.
Encode: TypeAlias = Callable[[str], Awaitable[list[int]]]


class VisionModel(Protocol):
    """The tower of a model, with its image processor. Used in one event loop after the other."""

    @property
    def placeholder(self) -> str:
        """The text that stands for an image in a prompt, as the model's chat template writes it."""
        ...

    async def prompt(self, text: str, images: Sequence[ImageData], encode: Encode) -> Prompt:
        """Return a prompt whose placeholders became the embeddings of images.

        Args:
            text: A rendered chat, with a placeholder for each image.
            images: In the order of their placeholders.
            encode: Encodes the text after the placeholders were expanded.

        Raises:
            BadRequestError: If the number of placeholders is not that of the images.
        """
        ...
