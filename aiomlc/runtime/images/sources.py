"""The sources of images that requests name, and their loading."""

from __future__ import annotations

__all__ = ("ImageSources", "decode_image")

import base64
import binascii
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self, final
from urllib.parse import unquote, urlsplit

from anyio import create_task_group

from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError, BadRequestError
from aiomlc.runtime.concurrency.worker_thread import LoopLimiter, run_in_worker
from aiomlc.runtime.images.addresses import Resolve, resolve_host
from aiomlc.runtime.images.decode import decode_pixels
from aiomlc.runtime.images.fetch import ImageFetcher
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.limits import ImageLimits
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.regular_files import open_regular_file

_SCHEMES = "a data: URL with base64, or a file: or http(s): URL that the operator allows"


# They take up to 14 bytes for each pixel.
_decodings = LoopLimiter(2)


async def decode_image(data: bytes, limits: ImageLimits, param: str) -> ImageData:
    """Decode an image in a worker thread; see `decode_pixels`.

    Raises:
        BadRequestError: If the data are no image, are damaged, or exceed a limit.
        MissingPackageError: If Pillow is not installed.
    """
    async with _decodings.get():
        return await run_in_worker(
            lambda is_cancelled: ImageData(decode_pixels(data, limits, param, is_cancelled))
        )


@final
class ImageSources:
    """Loads images from where the operator of the engine allows it.

    Args:
        limits: The limits on each image and on their number.
        allowed_domains: Host names, addresses and networks that may be asked for images; `*` is
            every name that has public addresses only. Empty allows none.
        local_path: The directory whose files may be read; None allows none.
        resolve: Returns the addresses of a host name.

    Raises:
        BadRequestError: If `local_path` is no directory, or a domain is invalid.
    """

    def __init__(
        self,
        limits: ImageLimits | None = None,
        *,
        allowed_domains: Sequence[str] = (),
        local_path: str | os.PathLike[str] | None = None,
        resolve: Resolve = resolve_host,
    ) -> None:
        self.limits: ImageLimits = limits or ImageLimits()
        self._fetcher = ImageFetcher(self.limits, allowed_domains, resolve)
        self._local_path = None if local_path is None else _directory(local_path)

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        """Return the sources that the settings of an engine allow.

        Raises:
            BadRequestError: If a setting is invalid.
        """
        limits = ImageLimits(
            max_images=config.max_images_per_prompt, max_pixels=config.max_image_pixels
        )
        return cls(
            limits,
            allowed_domains=config.allowed_media_domains,
            local_path=config.allowed_local_media_path,
        )

    async def load(
        self, images: Sequence[tuple[str, ImageReference]], field: str = "messages"
    ) -> list[ImageData]:
        """Load images at the same time; the first failure ends the loading of the others.

        Args:
            images: Each with the path of its field in the request, for errors.
            field: The field of the request that has all of them.

        Raises:
            BadRequestError: If there are too many, or one may not be loaded, cannot be loaded, is
                damaged or exceeds a limit; `param` is the path of its field.
            MissingPackageError: If a package of the extra `vision` is not installed.
        """
        if len(images) > self.limits.max_images:
            raise BadRequestError(
                f"{field}: must have at most {self.limits.max_images} images, got {len(images)}",
                param=field,
            )

        loaded: dict[int, ImageData] = {}
        failures: list[AiomlcError] = []

        async def load(index: int, param: str, image: ImageReference) -> None:
            try:
                loaded[index] = await self._load(image.source, param)
            except AiomlcError as error:
                failures.append(error)
                group.cancel_scope.cancel()

        async with create_task_group() as group:
            for index, (param, image) in enumerate(images):
                group.start_soon(load, index, param, image)

        if failures:
            raise failures[0]

        return [loaded[index] for index in range(len(images))]

    async def _load(self, source: str | bytes | ImageData, param: str) -> ImageData:
        if isinstance(source, ImageData):
            return source

        data = source if isinstance(source, bytes) else await self._read(source, param)
        return await decode_image(data, self.limits, param)

    async def _read(self, url: str, param: str) -> bytes:
        match url.partition(":")[0].lower():
            case "data":
                return await run_in_worker(lambda _: self._decode_data_url(url, param))
            case "http" | "https":
                return await self._fetcher.fetch(url, param)
            case "file":
                return await run_in_worker(lambda _: self._read_file(url, param))
            case _:
                raise BadRequestError(
                    f"{param}: must be {_SCHEMES}, got {safe_repr(url)}", param=param
                )

    def _decode_data_url(self, url: str, param: str) -> bytes:
        head, comma, text = url.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise BadRequestError(
                f"{param}: a data: URL must be like data:image/png;base64,..., got "
                f"{safe_repr(url[:64])}",
                param=param,
            )

        limit = self.limits.max_bytes
        if len(text) > (limit + 2) // 3 * 4:
            raise BadRequestError(
                f"{param}: an image must have at most {limit} bytes, got {len(text)} characters of "
                "base64",
                param=param,
            )

        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRequestError(
                f"{param}: the data: URL is not valid base64: {error}", param=param
            ) from None

    def _read_file(self, url: str, param: str) -> bytes:
        refuse = partial(_file_error, url, param)
        root = self._local_path
        if root is None:
            raise refuse(
                "files are not allowed; the operator can allow those of a directory by "
                "allowed_local_media_path"
            )

        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise refuse("a file: URL must have no host, as file:///path")

        try:
            path = Path(unquote(parts.path)).resolve()
        except (ValueError, OSError):
            raise refuse("it is no path") from None

        # Before the file is looked for: nobody learns which files exist elsewhere.
        if not path.is_relative_to(root):
            raise refuse("it is not within allowed_local_media_path")

        try:
            return _read_regular(path, self.limits.max_bytes)
        except (OSError, ValueError) as error:
            raise refuse(getattr(error, "strerror", None) or str(error)) from None


def _read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file; others could block.

    Raises:
        ValueError: If it is another kind of file, or has more bytes than `limit`.
        OSError: If it cannot be read.
    """
    with open_regular_file(path, os.O_NOFOLLOW) as file:
        data = file.read(limit + 1)

    if len(data) > limit:
        raise ValueError(f"an image must have at most {limit} bytes")

    return data


def _directory(path: str | os.PathLike[str]) -> Path:
    directory = Path(path).expanduser().resolve()
    if not directory.is_dir():
        raise BadRequestError(
            f"allowed_local_media_path: must be a directory, got {os.fspath(path)!r}",
            param="allowed_local_media_path",
        )

    return directory


def _file_error(url: str, param: str, reason: str) -> BadRequestError:
    return BadRequestError(f"{param}: cannot read {safe_repr(url)}: {reason}", param=param)
