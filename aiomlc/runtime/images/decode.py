"""Decoding of images by Pillow, within limits of memory and time.

The result is that of transformers' `load_image`: turned upright as the EXIF data says, then
converted to RGB as Pillow does, which drops an alpha channel. Of animations it is the first frame.
"""

from __future__ import annotations

__all__ = ("FORMATS", "decode_pixels")

import ctypes
import io
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aiomlc.errors import BadRequestError, MissingPackageError
from aiomlc.runtime.images.limits import ImageLimits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The accepted formats. Pillow knows more, some of which call other programs.
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_READ_BYTES = 4096  # Between two looks at the time.
_MAX_REASON = 200  # Characters.


class _Abandoned(Exception):  # noqa: N818 - not an error: nothing waits for the image any more.
    """The decoding takes too long, or was cancelled."""


class _Pillow(NamedTuple):
    """The modules of Pillow."""

    image: ModuleType
    operations: ModuleType


@cache
def _pillow() -> _Pillow:
    try:
        from PIL import Image, ImageOps, TiffImagePlugin, WebPImagePlugin
    except ImportError:
        raise MissingPackageError("pillow", "pip install 'aiomlc[vision]'") from None

    del TiffImagePlugin, WebPImagePlugin  # Imported to be known to `Image.open`.
    _silence_libtiff()
    return _Pillow(Image, ImageOps)


def _silence_libtiff() -> None:
    """Keep libtiff from writing to stderr about damaged files, for which Pillow raises."""
    from PIL import _imaging

    # A build without libtiff lacks the function, and needs none.
    with suppress(OSError, AttributeError):
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
        set_handler.argtypes, set_handler.restype = (ctypes.c_void_p,), ctypes.c_void_p
        set_handler(None)


def decode_pixels(
    data: bytes, limits: ImageLimits, param: str, is_cancelled: Callable[[], bool] = lambda: False
) -> NDArray[np.uint8]:
    """Return the pixels of an image: RGB, [height, width, 3], read-only. Blocks.

    Args:
        data: A file in one of `FORMATS`.
        limits: The limits on pixels, bytes and seconds.
        param: The field of the request, for errors.
        is_cancelled: Whether nothing waits for the image any more.

    Raises:
        BadRequestError: If the data are no image, are damaged, or exceed a limit.
        MissingPackageError: If Pillow is not installed.
    """
    pillow = _pillow()
    if len(data) > limits.max_bytes:
        raise BadRequestError(
            f"{param}: an image must have at most {limits.max_bytes} bytes, got {len(data)}",
            param=param,
        )

    file = _LimitedFile(data, time.monotonic() + limits.decode_seconds, is_cancelled)
    try:
        return _read(file, limits)
    except _Abandoned:
        reason = f"takes more than {limits.decode_seconds} s to decode"
    except _PixelLimitError as error:
        reason = str(error)
    except MemoryError:
        reason = "needs more memory to decode than there is"
    except pillow.image.UnidentifiedImageError:
        names = ", ".join(FORMATS)
        reason = f"is no image of a known format ({names}); it begins with {data[:8]!r}"
    except Exception as error:  # noqa: BLE001 - Pillow raises anything for damaged files.
        reason = f"is damaged: {str(error)[:_MAX_REASON] or type(error).__name__}"

    raise BadRequestError(f"{param}: the image {reason}", param=param)


class _PixelLimitError(ValueError):
    """An image has too many pixels."""


@final
class _LimitedFile(io.BytesIO):
    """A file that cannot be read any more when the time is over, which ends its decoding.

    A file of a few MB can have so many scans that it takes minutes to decode.
    """

    def __init__(self, data: bytes, deadline: float, is_cancelled: Callable[[], bool]) -> None:
        super().__init__(data)
        self._deadline = deadline
        self._is_cancelled = is_cancelled

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            _Abandoned: If the time is over, or nothing waits for the image.
        """
        if self._is_cancelled() or time.monotonic() > self._deadline:
            raise _Abandoned

        return super().read(size)


def _read(file: _LimitedFile, limits: ImageLimits) -> NDArray[np.uint8]:
    import numpy as np

    pillow = _pillow()
    with pillow.image.open(file, formats=FORMATS) as opened:
        _check_pixels(opened.size, limits)
        opened.decodermaxblock = _READ_BYTES
        opened.load()
        _check_pixels(opened.size, limits)
        pillow.operations.exif_transpose(opened, in_place=True)
        opened.info.pop("transparency", None)  # The conversion drops it too, but may warn.
        is_rgb = opened.mode == "RGB"
        return np.asarray(opened if is_rgb else opened.convert("RGB"))


def _check_pixels(size: tuple[int, int], limits: ImageLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise _PixelLimitError(
            f"has {width} x {height} pixels; at most {limits.max_pixels} are accepted: send a "
            "smaller one"
        )
