"""Images decode as in transformers, and hostile ones end in errors within the limits."""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.lowlevel
import numpy as np
import pytest
from anyio import create_task_group
from PIL import Image, ImageOps

from aiomlc.errors import BadRequestError, MissingPackageError
from aiomlc.runtime.images import decode
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.limits import ImageLimits
from aiomlc.runtime.images.sources import decode_image
from tests.mutations import mutated
from tests.unit.runtime.images import pictures

LIMITS = ImageLimits()
SMALL = ImageLimits(max_pixels=2**20, max_bytes=2**20, decode_seconds=5.0)
PARAM = "messages[0].content[1]"

# What Pillow itself says of damaged metadata that it can do without.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "default::Warning:PIL.Image")


async def decoded(data: bytes, limits: ImageLimits = LIMITS) -> ImageData:
    return await decode_image(data, limits, PARAM)


def reference(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the pixels as transformers' `load_image` does."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", pictures.intact_files())
async def test_an_image_has_the_pixels_of_transformers(name: str) -> None:
    data = pictures.intact_files()[name]

    image = await decoded(data)

    assert np.array_equal(image.pixels, reference(data))


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_an_image_is_turned_as_its_exif_data_says(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = pictures.encoded(pictures.gradient(8, 4), "PNG", exif=exif)

    image = await decoded(data)

    assert np.array_equal(image.pixels, reference(data))
    assert (image.height > image.width) == (orientation >= 5)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
async def test_of_an_animation_the_first_frame_is_read(form: str) -> None:
    image = await decoded(pictures.animation(form))

    red, green, _ = image.pixels[8, 8]
    assert red > 200
    assert green < 50


async def test_transparent_pixels_keep_their_color() -> None:
    data = pictures.encoded(Image.new("RGBA", (2, 2), (10, 20, 30, 0)), "PNG")

    assert (await decoded(data)).pixels.tolist() == [[[10, 20, 30]] * 2] * 2


async def test_a_palette_with_transparency_is_read_without_a_warning() -> None:
    image = pictures.gradient(8, 8, "P")
    data = pictures.encoded(image, "PNG", transparency=bytes(range(256)))

    assert (await decoded(data)).pixels.shape == (8, 8, 3)


@pytest.mark.parametrize("name", pictures.bombs())
async def test_a_bomb_is_refused_before_it_is_decoded(name: str) -> None:
    data = pictures.bombs()[name]

    with memory_limit(150 << 20):
        await ends_well(data)


@pytest.mark.parametrize("name", pictures.wrong_types())
async def test_a_file_of_another_type_is_refused_by_its_first_bytes(name: str) -> None:
    with pytest.raises(BadRequestError, match="no image of a known format") as caught:
        await decoded(pictures.wrong_types()[name])

    assert caught.value.param == PARAM


async def test_the_limit_on_pixels_counts_what_the_header_declares() -> None:
    fits = pictures.encoded(Image.new("L", (1024, 1024)), "PNG")
    exceeds = pictures.encoded(Image.new("L", (1024, 1025)), "PNG")

    assert (await decoded(fits, SMALL)).height == 1024
    with pytest.raises(BadRequestError, match=r"has 1024 x 1025 pixels; at most 1048576"):
        await decoded(exceeds, SMALL)


async def test_a_file_with_too_many_bytes_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"at most 1048576 bytes, got 1048577"):
        await decoded(bytes(2**20 + 1), SMALL)


async def test_a_file_of_many_scans_ends_at_the_limit_of_time() -> None:
    limits = ImageLimits(decode_seconds=0.2)

    with pytest.raises(BadRequestError, match=r"takes more than 0\.2 s to decode"):
        await decoded(pictures.scan_bomb(), limits)


async def test_a_damaged_tiff_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    image = pictures.gradient(64, 64)
    file = bytearray(pictures.encoded(image, "TIFF", compression="tiff_lzw"))
    file[20:300] = bytes(byte ^ 0x5A for byte in file[20:300])

    with pytest.raises(BadRequestError, match="is damaged"):
        await decoded(bytes(file))

    assert capfd.readouterr().err == ""


async def test_a_cancelled_decoding_ends() -> None:
    data = pictures.scan_bomb()
    async with create_task_group() as group:
        group.start_soon(decoded, data)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert (await decoded(pictures.encoded(pictures.gradient(2, 2), "PNG"))).width == 2


async def test_a_missing_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    decode._pillow.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(MissingPackageError, match=r"pip install 'aiomlc\[vision\]'"):
        await decoded(b"")


async def test_five_hundred_mutated_images_decode_or_end_in_typed_errors() -> None:
    random_ = random.Random(39)
    files = list(pictures.intact_files().values())
    outcomes = {True: 0, False: 0}
    with memory_limit(100 << 20):
        for _ in range(500):
            data = mutated(random_.choice(files), random_)
            outcomes[await ends_well(data)] += 1

    assert outcomes[True] > 50
    assert outcomes[False] > 50


async def ends_well(data: bytes) -> bool:
    """Return whether an image was decoded; else the error must name the field."""
    error: BadRequestError | None = None
    image: ImageData | None = None
    try:
        image = await decoded(data, SMALL)
    except BadRequestError as caught:
        error = caught

    if image is not None:
        assert image.width * image.height <= SMALL.max_pixels
        return True

    assert error is not None
    assert error.param == PARAM
    assert str(error).startswith(f"{PARAM}: the image ")
    return False


@contextmanager
def memory_limit(limit: int) -> Iterator[None]:
    """Require that the process grows by at most `limit` bytes meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # Forget the peak so far.
    before = peak_memory()
    yield
    assert peak_memory() - before < limit


def peak_memory() -> int:
    """Return the largest size of the process, in bytes."""
    status = Path("/proc/self/status").read_text()
    (size,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(size) * 1024
