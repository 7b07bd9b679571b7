"""Embeddings of images: the shapes of requests, their order, limits, cancellation and errors."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group, fail_after, to_thread

from aiomlc import AsyncMLCEngine, EmbeddingResponse, ImageData
from aiomlc.api.protocol.embedding import parse_embedding_request
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.config import EngineConfig
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    EngineClosedError,
    InputTooLongError,
    UnsupportedFieldError,
)
from aiomlc.testing import FakeEncoder, fake_loader
from tests.mutations import mutated
from tests.unit.api.chat.vision import image_part, image_url, text_part
from tests.unit.api.image_embedder import NUM_TOKENS, SizeTower, embed_images
from tests.unit.runtime.images import pictures

pytestmark = pytest.mark.timeout(30)

WIDE = ImageData(np.zeros((3, 7, 3), np.uint8))
PNG = pictures.encoded(pictures.gradient(5, 3), "PNG")


def items(*inputs: Any) -> list[Any]:  # noqa: ANN401
    return list(inputs)


def vectors(response: EmbeddingResponse) -> list[Any]:
    return [item.embedding for item in response.data]


@pytest.mark.parametrize(
    "item",
    [
        {"image": image_url()},
        {"image": PNG},
        {"image": ImageData.from_bytes(PNG)},
        image_part(),
        image_part(detail="low"),
        {"type": "image_url", "image_url": image_url()},
        ImageData.from_bytes(PNG),
    ],
    ids=["jina", "bytes", "decoded", "part", "detail", "url", "data"],
)
@pytest.mark.parametrize("is_list", [False, True])
async def test_an_image_has_several_shapes(item: Any, is_list: bool) -> None:  # noqa: ANN401
    async with embed_images() as engine:
        response = await engine.embeddings.create(
            input=[item] if is_list else item, normalize=False
        )

    assert vectors(response) == [[5.0, 3.0, -1.0]]
    assert response.usage.prompt_tokens == NUM_TOKENS


async def test_texts_and_images_keep_their_order() -> None:
    inputs: list[Any] = [
        text_part("bd"),
        WIDE,
        "z",
        {"image": image_url()},
        [1, 3],
        {"text": "z"},
        WIDE,
    ]
    async with embed_images() as engine:
        response = await engine.embeddings.create(input=inputs, normalize=False)

    text, wide, other, small = [2, 0.5, 1], [7, 3, -1], [25, 0, 1], [5, 3, -1]
    assert vectors(response) == [text, wide, other, small, text, other, wide]
    assert [item.index for item in response.data] == list(range(7))
    assert response.usage.prompt_tokens == 6 + 3 * NUM_TOKENS


async def test_vectors_of_images_are_cut_normalized_and_encoded_as_those_of_texts() -> None:
    async with embed_images() as engine:
        plain = await engine.embeddings.create(input=[WIDE])
        cut = await engine.embeddings.create(input=[WIDE], dimensions=2)
        text = await engine.embeddings.create(input=[WIDE], encoding_format="base64")

    whole = np.array([7, 3, -1]) / np.sqrt(59)
    assert vectors(plain)[0] == pytest.approx(whole, abs=1e-6)
    assert vectors(cut)[0] == pytest.approx(np.array([7, 3]) / np.sqrt(58), abs=1e-6)
    decoded = np.frombuffer(base64.b64decode(vectors(text)[0]), "<f4")
    np.testing.assert_array_equal(decoded, np.array(vectors(plain)[0], np.float32))


@pytest.mark.parametrize("item", [WIDE, {"image": image_url()}, image_part()])
async def test_a_model_of_texts_refuses_an_image_by_its_place(item: Any) -> None:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        with pytest.raises(BadRequestError, match="fake embeds no images") as caught:
            await engine.embeddings.create(input=["a", item])

        response = await engine.embeddings.create(input=[{"text": "bd"}], normalize=False)

    assert caught.value.param == "input[1]"
    assert vectors(response) == [[2, 0.5, 1]]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({}, "item 1: an object must be"),
        ({"image": ""}, "item 1: an object must be"),
        ({"image": 5}, "item 1: an object must be"),
        ({"text": "a", "image": "b"}, "item 1: an object must be"),
        ({"type": "audio"}, "item 1: content part of type 'audio' is not supported"),
        ({"type": "image_url"}, "item 1: an image part must have"),
        ({"type": "text", "text": 5}, "item 1: a text part must have"),
        (
            {"type": "image_url", "image_url": {"url": "data:,", "detail": "x"}},
            "item 1: the 'detail' of an image",
        ),
        ({"text": "a" * 2_000_001}, "item 1 must have at most"),
        (None, "item 1 must be a string or"),
    ],
)
async def test_a_malformed_item_is_named(item: Any, message: str) -> None:  # noqa: ANN401
    async with embed_images() as engine:
        with pytest.raises(BadRequestError, match=message) as caught:
            await engine.embeddings.create(input=["a", item])

    assert caught.value.param == "input"


def test_an_unknown_field_of_a_part_is_refused_or_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fields = {"input": [{**image_part(), "extra": 1}]}
    with pytest.raises(UnsupportedFieldError, match="an image part must have"):
        parse_embedding_request(fields)

    request = parse_embedding_request(fields, IgnoredFields())

    assert len(request.images) == 1
    assert "input[].extra" in caplog.text


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("data:image/png;base64,AAAA", "no image of a known format"),
        ("https://images.example.com/a.png", "allowed_media_domains"),
        ("file:///etc/passwd", "allowed_local_media_path"),
        ("cat.png", "must be a data: URL"),
    ],
)
async def test_images_come_from_where_those_of_chats_may(image: str, reason: str) -> None:
    async with embed_images() as engine:
        with pytest.raises(BadRequestError, match=reason) as caught:
            await engine.embeddings.create(input=items("a", {"image": image}))

    assert caught.value.param == "input[1]"


async def test_an_allowed_file_is_read_within_the_limits(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    config = EngineConfig(allowed_local_media_path=str(tmp_path), max_images_per_prompt=2)
    item = {"image": f"file://{tmp_path}/a.png"}
    async with embed_images(config=config) as engine:
        response = await engine.embeddings.create(input=[item, item], normalize=False)
        with pytest.raises(BadRequestError, match="input: must have at most 2 images, got 3"):
            await engine.embeddings.create(input=[item] * 3)

    assert vectors(response) == [[5, 3, -1]] * 2


async def test_a_long_text_beside_images_is_named_by_its_place_in_the_request() -> None:
    async with embed_images() as engine:
        with pytest.raises(InputTooLongError, match=r"input\[2\]"):
            await engine.embeddings.create(input=items(WIDE, "a", "a" * 17))


async def test_another_pooling_is_refused_where_images_have_vectors() -> None:
    async with embed_images() as engine:
        await engine.embeddings.create(input=["a"], pooling="mean")
        with pytest.raises(BadRequestError, match="pooling: must be 'mean' for 'fake'"):
            await engine.embeddings.create(input=["a"], pooling="cls")


async def test_a_cancelled_request_leaves_and_the_next_one_is_answered() -> None:
    tower = SizeTower()
    tower.may_run.clear()
    async with embed_images(tower) as engine:

        async def embed() -> None:
            await engine.embeddings.create(input=items(WIDE, "a"))

        with fail_after(10):
            async with create_task_group() as tasks:
                tasks.start_soon(embed)
                await to_thread.run_sync(tower.has_begun.wait)
                tasks.cancel_scope.cancel()
        tower.may_run.set()
        response = await engine.embeddings.create(input=[WIDE], normalize=False)

    assert vectors(response) == [[7, 3, -1]]


async def test_images_that_wait_when_the_engine_is_closed_get_an_error() -> None:
    tower = SizeTower()
    tower.may_run.clear()
    errors: list[AiomlcError] = []
    async with embed_images(tower) as engine:

        async def embed(item: ImageData) -> None:
            try:
                await engine.embeddings.create(input=[item])
            except AiomlcError as error:
                errors.append(error)

        async with create_task_group() as tasks:
            tasks.start_soon(embed, WIDE)
            await to_thread.run_sync(tower.has_begun.wait)
            tasks.start_soon(embed, ImageData(np.zeros((2, 2, 3), np.uint8)))
            engine.terminate()
            tower.may_run.set()

    assert errors
    assert all(isinstance(error, EngineClosedError) for error in errors)


async def test_mutated_images_are_embedded_or_end_in_typed_errors() -> None:
    random_ = random.Random(4)
    files = list(pictures.intact_files().values())
    outcomes: set[str | None] = set()
    async with embed_images() as engine:
        for _ in range(100):
            data = mutated(random_.choice(files), random_)
            try:
                await engine.embeddings.create(input=items("a", {"image": data or b"\0"}))
            except BadRequestError as error:
                outcomes.add(error.param)
            else:
                outcomes.add("embedded")

    assert outcomes == {"input[1]", "embedded"}
