"""The interface of what turns an image into the inputs of a tower, and into text of a prompt."""

from __future__ import annotations

__all__ = ("ImageProcessor", "PixelProcessor", "ProcessedImage")

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiomlc.runtime.images.image_data import ImageData

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ProcessedImage(NamedTuple):
    """An image as a tower and a prompt take it.

    The inputs of several images are concatenated along the first axis, or the last one of int32
    arrays. The numbers of `order` are indices of the image's own tokens.
    """

    inputs: dict[str, NDArray[Any]]  #: Contiguous float32 and int32 arrays; see the tower's graph.
    replacement: str  #: The text in place of the placeholder.
    num_tokens: int  #: The image tokens in `replacement`.
    #: The output rows of the tower in the order of the image tokens, -1 for a newline; None if
    #: they are in this order.
    rows: NDArray[np.int32] | None = None
    grid: tuple[int, int, int] | None = None  #: Rows in time, height and width, for RoPE's axes.


class PixelProcessor(Protocol):
    """Resizes, crops and normalizes the images of one model."""

    def process(self, image: ImageData) -> ProcessedImage:
        """Process an image. Blocks.

        Raises:
            BadRequestError: If the model cannot read an image of this shape.
        """
        ...


class ImageProcessor(PixelProcessor, Protocol):
    """A processor of images that are parts of prompts."""

    @property
    def placeholder(self) -> str:
        """The text by which chat templates stand for an image."""
        ...

    @property
    def image_token(self) -> str:
        """The token whose embeddings are replaced; part of `ProcessedImage.replacement`."""
        ...
