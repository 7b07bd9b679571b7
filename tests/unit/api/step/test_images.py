"""`SyncMLCEngine` takes images between texts."""

from __future__ import annotations

import numpy as np
import pytest

from aiomlc import GenerationConfig, ImageData, SyncMLCEngine, TextData, TokenData
from aiomlc.api.step.data import PromptInput
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore
from tests.unit.api.chat.vision import PARTS_TEMPLATE, FakeVision, vision_model
from tests.unit.api.step.step_engine_helpers import make_engine
from tests.unit.runtime.images.pictures import encoded, gradient

Part = TextData | TokenData | ImageData


def parts(*items: Part) -> list[Part]:
    return list(items)


IMAGE = ImageData(np.zeros((2, 4, 3), np.uint8))
IMAGES: list[PromptInput] = [parts(TextData("a"), IMAGE)]
MIXED: list[PromptInput] = [parts(TokenData([1]), IMAGE)]
GREEDY = GenerationConfig(temperature=0.0)


def vision_engine(model: LoadedModel) -> SyncMLCEngine:
    async def load(*args: object, **options: object) -> LoadedModel:
        return model

    return SyncMLCEngine(loader=load)


def test_images_stand_where_the_inputs_have_them() -> None:
    core = FakeCore()
    model = vision_model(core, ChatTemplate(PARTS_TEMPLATE))
    with vision_engine(model) as engine:
        prompts: list[PromptInput] = [
            parts(TextData("a"), IMAGE, TextData("b"), IMAGE),
            IMAGE,
            "text",
        ]
        texts, _ = engine.generate(prompts, GREEDY)

    assert texts == [["Hello!"]] * 3
    assert [bytes(prompt).decode() for prompt in core.prompts] == ["a    b    ", "    ", "text"]
    assert isinstance(model.vision, FakeVision)
    assert model.vision.texts == ["a<image>b<image>", "<image>"]


def test_a_request_may_have_images() -> None:
    core = FakeCore()
    model = vision_model(core, ChatTemplate(PARTS_TEMPLATE))
    with vision_engine(model) as engine:
        request = engine.create_request("r", [IMAGE, TextData("What?")], GREEDY)
        engine.add_request(request)

    assert bytes(core.prompts[0]).decode() == "    What?"


def test_token_ids_beside_images_are_refused() -> None:
    model = vision_model(FakeCore(), ChatTemplate(PARTS_TEMPLATE))
    with (
        vision_engine(model) as engine,
        pytest.raises(BadRequestError, match="TokenData beside ImageData") as caught,
    ):
        engine.generate(MIXED)

    assert caught.value.param == "inputs"


def test_a_model_that_does_not_read_images_says_so() -> None:
    with (
        make_engine() as engine,
        pytest.raises(BadRequestError, match="does not read images") as caught,
    ):
        engine.generate(IMAGES)

    assert caught.value.param == "inputs"


def test_an_image_is_read_from_the_bytes_of_a_file() -> None:
    image = ImageData.from_bytes(encoded(gradient(5, 3), "PNG"))

    assert (image.width, image.height) == (5, 3)
    with pytest.raises(BadRequestError, match="no image") as caught:
        ImageData.from_bytes(b"no image")
    assert caught.value.param == "data"
