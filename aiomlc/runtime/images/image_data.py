"""A decoded image."""

from __future__ import annotations

__all__ = ("ImageData",)

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from aiomlc.errors import BadRequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Pixels: TypeAlias = NDArray[np.uint8]
else:
    _Pixels = Any  # Resolvable without NumPy, whose import takes long.


@dataclass(frozen=True, slots=True, eq=False)
class ImageData:
    """An image as pixels. Images are equal if their pixels are.

    Raises:
        BadRequestError: If `pixels` are not uint8 RGB of at least one pixel.
    """

    pixels: _Pixels = field(repr=False)  #: RGB, [height, width, 3]. Read-only.
    digest: bytes = field(init=False, repr=False)  #: SHA-256 of the size and the pixels.

    def __post_init__(self) -> None:
        import numpy as np

        pixels = self.pixels
        if not isinstance(pixels, np.ndarray) or not _is_rgb(pixels):
            got = (
                f"{pixels.dtype} {list(pixels.shape)}"
                if isinstance(pixels, np.ndarray)
                else (type(pixels).__name__)
            )
            raise BadRequestError(
                f"pixels: must be a uint8 array [height, width, 3] of RGB, got {got}",
                param="pixels",
            )

        # The caller may change another.
        if pixels.flags["W"] or not pixels.flags.c_contiguous:
            pixels = np.array(pixels, order="C")
            pixels.setflags(write=False)

        height, width, _ = pixels.shape
        digest = hashlib.sha256(height.to_bytes(4, "little") + width.to_bytes(4, "little"))
        digest.update(pixels.data)
        object.__setattr__(self, "pixels", pixels)
        object.__setattr__(self, "digest", digest.digest())

    @staticmethod
    def from_bytes(data: bytes) -> ImageData:
        """Decode a file: PNG, JPEG, WebP, GIF, BMP or TIFF. Blocks.

        Raises:
            BadRequestError: If it is no image, is damaged, or has more than 2**25 pixels or bytes.
            MissingPackageError: If Pillow is not installed.
        """
        from aiomlc.runtime.images.decode import decode_pixels
        from aiomlc.runtime.images.limits import ImageLimits

        return ImageData(decode_pixels(data, ImageLimits(), "data"))

    @property
    def height(self) -> int:
        """The number of rows."""
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.pixels.shape[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImageData) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _is_rgb(pixels: NDArray[np.generic]) -> bool:
    return pixels.dtype == "uint8" and pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size > 0
