"""Images of concurrent callers share forward passes, and each is computed once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import create_task_group, fail_after, move_on_after, to_thread
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError, RequestFailedError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.towers.tower_batcher import TowerBatcher
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.runtime.towers.tower_reader import EmbeddedItem
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.image_reader import PromptImageReader

TOKEN = 9


def image(value: int, height: int = 1) -> ImageData:
    return ImageData(np.full((height, 1, 3), value, np.uint8))


class FakeProcessor:
    """As many image tokens as an image has rows; each pixel is a patch."""

    placeholder = "<image>"
    image_token = "*"

    def process(self, image: ImageData) -> ProcessedImage:
        if image.pixels[0, 0, 0] == 13:
            raise BadRequestError("image: too wide", param="messages")

        patches = image.pixels[:, 0, :1].astype(np.float32)
        order = np.arange(len(patches), dtype=np.int32)[::-1, np.newaxis]
        inputs = {"patches": patches, "order": np.ascontiguousarray(order)}
        return ProcessedImage(inputs, "[" + "*" * len(order) + "]", len(order))


class FakeTower:
    """Rows are the patches in the order of the images; waits until it may run."""

    def __init__(self) -> None:
        self.may_run = threading.Event()
        self.may_run.set()
        self.has_begun = threading.Event()
        self.batches: list[int] = []

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        self.has_begun.set()
        assert self.may_run.wait(10)
        self.batches.append(len(inputs["order"]))
        if (inputs["patches"] == 66).any():
            raise RuntimeError("broken")

        rows = inputs["patches"][inputs["order"][:, 0]]
        return np.where(rows == 77, np.float32("nan"), rows)


def batcher_of(
    tower: FakeTower, cache_bytes: int = 1 << 20
) -> TowerBatcher[ImageData, ProcessedImage]:
    return TowerBatcher(PromptImageReader(tower, FakeProcessor()), cache_bytes)


async def test_rows_are_those_of_the_images_in_their_order() -> None:
    tower = FakeTower()
    first, second, third = await batcher_of(tower).run([image(1, 2), image(2), image(1, 2)])

    assert first.rows.tolist() == third.rows.tolist() == [[1], [1]]
    assert second.rows.tolist() == [[2]]
    assert tower.batches == [3]


async def test_callers_that_wait_share_a_pass_and_the_same_image() -> None:
    tower = FakeTower()
    tower.may_run.clear()
    batcher = batcher_of(tower)
    results: dict[int, list[EmbeddedItem]] = {}

    async def run(key: int, *values: int) -> None:
        results[key] = await batcher.run([image(value) for value in values])

    async with create_task_group() as tasks:
        tasks.start_soon(run, 0, 1)
        await to_thread.run_sync(tower.has_begun.wait)
        tasks.start_soon(run, 1, 2, 3)
        tasks.start_soon(run, 2, 3, 1)
        while len(batcher._jobs) < 3:
            await checkpoint()
        tower.may_run.set()

    assert tower.batches == [1, 2]
    assert [one.rows[0, 0] for one in results[2]] == [3, 1]
    assert not batcher._jobs


async def test_a_cancelled_caller_leaves_at_once_and_the_others_get_their_rows() -> None:
    tower = FakeTower()
    tower.may_run.clear()
    batcher = batcher_of(tower)
    results: list[EmbeddedItem] = []

    async def run() -> None:
        results.extend(await batcher.run([image(2)]))

    async with create_task_group() as tasks:
        with fail_after(5), move_on_after(0.05) as scope:
            await batcher.run([image(1)])
        assert scope.cancelled_caught
        assert tower.has_begun.is_set()
        tasks.start_soon(run)
        for _ in range(10):
            await checkpoint()
        assert not results
        tower.may_run.set()

    assert results[0].rows.tolist() == [[2]]


def test_a_batch_may_outlive_the_event_loop_of_its_caller() -> None:
    tower = FakeTower()
    tower.may_run.clear()
    batcher = batcher_of(tower)

    async def leave() -> None:
        with move_on_after(0.05):
            await batcher.run([image(1)])

    async def stay() -> list[EmbeddedItem]:
        tower.may_run.set()
        with fail_after(5):
            return await batcher.run([image(2)])

    anyio.run(leave)
    for backend in ("trio", "asyncio"):
        assert anyio.run(stay, backend=backend)[0].rows.tolist() == [[2]]


async def test_images_that_were_used_last_stay_in_the_cache() -> None:
    tower = FakeTower()
    batcher = batcher_of(tower, cache_bytes=8)  # Two rows of one number.
    for value in (1, 2, 1, 3, 1, 2):
        await batcher.run([image(value)])
    await batcher.run([image(4, 3)])  # More than the cache.
    await batcher.run([image(2)])

    assert tower.batches == [1, 1, 1, 1, 3]
    assert batcher.num_items == 5


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (13, BadRequestError, "image: too wide"),
        (66, RequestFailedError, "the vision tower failed: broken"),
        (77, RequestFailedError, "outputs are not finite"),
    ],
)
async def test_an_image_that_fails_fails_its_callers_only(
    value: int, error: type[Exception], message: str
) -> None:
    batcher = batcher_of(FakeTower())
    with pytest.raises(error, match=message):
        await batcher.run([image(value)])

    assert (await batcher.run([image(5)]))[0].rows.tolist() == [[5]]


def model_of(tower: FakeTower) -> TowerModel[ImageData]:
    reader = PromptImageReader(tower, FakeProcessor())
    return TowerModel(reader=reader, batcher=TowerBatcher(reader), token_id=TOKEN, key=b"key")


async def encode(text: str) -> list[int]:
    return [TOKEN if character == "*" else 1 for character in text]


async def test_image_tokens_become_pieces_with_digests_of_their_images() -> None:
    model = model_of(FakeTower())
    prompt = await model.prompt(
        "a <image><image> b <image>", [image(1, 2), image(2), image(1, 2)], encode
    )

    assert [(piece.begin, len(piece.rows)) for piece in prompt.pieces] == [(3, 2), (7, 1), (13, 2)]
    digests = [piece.digest for piece in prompt.pieces]
    assert digests[0] == digests[2] != digests[1]
    assert len(prompt) == len("a [**][*] b [**]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no image", "0 placeholders '<image>' for 1 images"),
        ("<image> and <image>", "2 placeholders '<image>' for 1 images"),
        ("<image> *", "has 2 tokens '\\*', but its images have 1"),
    ],
)
async def test_a_text_cannot_move_images(text: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        await model_of(FakeTower()).prompt(text, [image(1)], encode)

    assert caught.value.param == "messages"
