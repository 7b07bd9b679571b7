"""The limits on the images of a request."""

from __future__ import annotations

__all__ = ("ImageLimits",)

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """The limits on images that clients send."""

    max_images: int = 16  #: Images of a request.
    max_pixels: int = 2**25  #: Pixels of an image: those that its header declares.
    max_bytes: int = 2**25  #: Bytes of an encoded image.
    decode_seconds: float = 10.0  #: For an image.
    fetch_seconds: float = 10.0  #: For an image, with all redirects.
    max_redirects: int = 3  #: For an image.
