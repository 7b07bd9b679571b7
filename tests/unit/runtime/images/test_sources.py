"""Images come from requests, and from files and hosts as the operator allows."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.images.limits import ImageLimits
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.runtime.images.sources import ImageSources
from tests.unit.runtime.images.file_server import answer, file_server
from tests.unit.runtime.images.pictures import encoded, gradient

PARAM = "messages[0].content[1]"
PNG = encoded(gradient(5, 3), "PNG")


def data_url(data: bytes = PNG) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


async def load(source: str | bytes | ImageData, sources: ImageSources | None = None) -> ImageData:
    (image,) = await (sources or ImageSources()).load([(PARAM, ImageReference(source))])
    return image


async def refusal(source: str | bytes, sources: ImageSources | None = None) -> str:
    with pytest.raises(BadRequestError) as caught:
        await load(source, sources)

    assert caught.value.param == PARAM
    assert str(caught.value).startswith(f"{PARAM}: ")
    return str(caught.value)


@pytest.mark.parametrize(
    "source", [PNG, data_url(), data_url().replace("data:image", "DATA:image")]
)
async def test_an_image_in_the_request_is_always_read(source: str | bytes) -> None:
    image = await load(source)

    assert (image.width, image.height) == (5, 3)


async def test_a_decoded_image_is_used_as_it_is() -> None:
    image = await load(PNG)

    assert await load(image) is image


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("data:image/png,abc", "must be like data:image/png;base64"),
        ("data:image/png;base64", "must be like"),
        ("data:image/png;base64,%%%", "not valid base64"),
        ("data:image/png;base64,é", "not valid base64"),
        (data_url(b"text"), "no image of a known format"),
        ("data:image/png;base64,", "no image of a known format"),
        (data_url(bytes(2000)), "at most 1000 bytes"),
        (bytes(2000), "at most 1000 bytes"),
        ("ftp://example.com/a.png", "must be a data: URL"),
        ("a.png", "must be a data: URL"),
        ("/etc/passwd", "must be a data: URL"),
        ("http://example.com/a.png", "allowed_media_domains"),
        ("https://127.0.0.1/a.png", "allowed_media_domains"),
        ("file:///etc/passwd", "allowed_local_media_path"),
    ],
)
async def test_other_sources_are_refused(source: str | bytes, reason: str) -> None:
    assert reason in await refusal(source, ImageSources(ImageLimits(max_bytes=1000)))


async def test_too_many_images_are_refused_before_one_is_read() -> None:
    images = [(PARAM, ImageReference(b"no image"))] * 3

    with pytest.raises(BadRequestError, match="at most 2 images, got 3") as caught:
        await ImageSources(ImageLimits(max_images=2)).load(images)

    assert caught.value.param == "messages"


async def test_images_keep_their_order_and_a_failure_ends_the_others() -> None:
    files = [encoded(gradient(width, 3), "PNG") for width in range(1, 9)]
    images = [(f"{PARAM}[{n}]", ImageReference(file)) for n, file in enumerate(files)]
    assert [image.width for image in await ImageSources().load(images)] == list(range(1, 9))

    async with file_server(a=answer(200, b"", content_length="9")) as server:
        server.hangs = True
        slow = ImageReference(f"http://127.0.0.1:{server.port}/a")
        sources = ImageSources(ImageLimits(fetch_seconds=1000), allowed_domains=["127.0.0.1"])
        with pytest.raises(BadRequestError, match="no image") as caught:
            await sources.load([("slow", slow), ("damaged", ImageReference(b"text"))])

    assert caught.value.param == "damaged"


async def test_files_of_the_allowed_directory_are_read(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    sources = ImageSources(local_path=tmp_path)

    assert (await load(f"file://{tmp_path}/a%20b.png", sources)).width == 5
    assert (await load(f"file://localhost{tmp_path}/a b.png", sources)).width == 5


async def test_no_path_leads_out_of_the_allowed_directory(tmp_path: Path) -> None:
    root = tmp_path / "allowed"
    root.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "allowed2").mkdir()
    (tmp_path / "allowed2" / "a.png").write_bytes(PNG)
    sources = ImageSources(local_path=root)

    for path in ("../secret.png", "%2e%2e/secret.png", "link.png", "../allowed2/a.png", "../none"):
        assert "not within" in await refusal(f"file://{root}/{path}", sources)


async def test_only_regular_files_within_the_limit_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(bytes(1001))
    sources = ImageSources(ImageLimits(max_bytes=1000), local_path=tmp_path)

    for name, reason in {
        "fifo": "must be a regular file, got a FIFO",
        "": "must be a regular file, got a directory",
        "large": "at most 1000 bytes",
        "none": "No such file",
        "a%00b": "no path",
    }.items():
        assert reason in await refusal(f"file://{tmp_path}/{name}", sources)
    assert "no host" in await refusal("file://example.com/a", sources)


async def test_images_at_allowed_hosts_are_fetched() -> None:
    async with file_server(a=answer(200, PNG)) as server:
        sources = ImageSources(allowed_domains=["127.0.0.1"])
        assert (await load(f"http://127.0.0.1:{server.port}/a", sources)).width == 5


async def test_the_settings_of_an_engine_are_the_limits(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    sources = ImageSources.from_config(
        EngineConfig(
            max_images_per_prompt=2,
            max_image_pixels=14,
            allowed_local_media_path=str(tmp_path),
            allowed_media_domains=("127.0.0.1",),
        )
    )

    assert sources.limits.max_images == 2
    assert "at most 14" in await refusal(f"file://{tmp_path}/a.png", sources)
    assert "is not allowed" in await refusal("http://example.com/", sources)


@pytest.mark.parametrize(
    ("field", "value"),
    [("allowed_local_media_path", "/no/such/place"), ("allowed_media_domains", ("http://a/",))],
)
def test_a_setting_that_is_no_place_is_rejected(field: str, value: object) -> None:
    with pytest.raises(BadRequestError, match=field) as caught:
        ImageSources.from_config(EngineConfig(**{field: value}))  # type: ignore[arg-type]

    assert caught.value.param == field
