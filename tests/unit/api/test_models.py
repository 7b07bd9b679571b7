"""`engine.models`, and OpenAI's conversions of answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from openai import NOT_GIVEN, omit

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineClosedError,
    MLCEngine,
    ModelNotFoundError,
)
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader

MESSAGES = [{"role": "user", "content": "Hi"}]


async def test_the_list_has_the_served_model() -> None:
    engine = AsyncMLCEngine()

    models = await engine.models.list()

    assert [model.id for model in models] == ["pebble"]
    assert models.data[0] == await engine.models.retrieve("pebble")
    assert abs(models.data[0].created - time.time()) < 60


@pytest.mark.parametrize("core", [FakeCore(), FakeEncoder()])
def test_the_list_names_an_open_model(core: FakeCore | FakeEncoder) -> None:
    with MLCEngine(loader=fake_loader(core)) as engine:
        models = engine.models.list()

        [model] = models.data
        assert model.id == "fake"
        # What an encoder has none of.
        is_decoder = isinstance(core, FakeCore)
        assert [model.max_model_len is not None, model.sampling_defaults is not None] == [
            is_decoder
        ] * 2
        assert engine.models.retrieve("fake") in models


async def test_another_model_is_not_found() -> None:
    engine = AsyncMLCEngine()

    with pytest.raises(ModelNotFoundError, match="model 'gpt-4o' is not served; served: 'pebble'"):
        await engine.models.retrieve("gpt-4o")

    with pytest.raises(BadRequestError, match="model must be a string, got int"):
        await engine.models.retrieve(1)  # type: ignore[arg-type]


async def test_a_custom_loader_names_no_model_before_it_is_open() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore()))

    with pytest.raises(EngineClosedError, match="not open"):
        await engine.models.list()


def test_an_answer_converts_as_openai_s() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        answer = engine.chat.completions.create(messages=MESSAGES)

    assert json.loads(answer.to_json()) == answer.to_dict(mode="json")
    assert answer.to_dict(exclude_unset=False) == answer.model_dump()
    assert "\n" not in answer.to_json(indent=None)


@pytest.mark.parametrize("absent", [omit, NOT_GIVEN])
def test_the_sentinels_of_openai_are_absent_values(absent: object) -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        options: Any = {"temperature": absent, "tools": absent}
        answer = engine.chat.completions.create(messages=MESSAGES, **options)

    assert answer.choices[0].message.content == "Hi!"
