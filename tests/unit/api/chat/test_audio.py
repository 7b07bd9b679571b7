"""Audio in chats: parts become pieces of the prompt, and what is wrong names the part."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.errors import BadRequestError, PromptTooLongError
from aiomlc.testing import FakeCore, fake_loader
from tests.audio_files import wav_bytes
from tests.unit.api.hearing import FakeAudio, audio_model, open_audio_engine

pytestmark = pytest.mark.timeout(20)

WAV = wav_bytes(np.zeros(32_000, np.float32))  # Two seconds.


def audio_part(data: object = WAV, **fields: object) -> dict[str, Any]:
    text = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return {"type": "input_audio", "input_audio": {"data": text, "format": "wav", **fields}}


def chat(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


async def test_audio_is_a_part_of_the_prompt() -> None:
    core = FakeCore(["heard"])
    model = audio_model(core)
    text = {"type": "text", "text": " What is said?"}
    async with open_audio_engine(model) as engine:
        answer = await engine.chat.completions.create(messages=chat(audio_part(), text))
        plain = await engine.chat.completions.create(messages=chat(text))

    assert isinstance(model.audio, FakeAudio)
    assert model.audio.texts == ["[user]<audio> What is said?[assistant]"]
    assert model.audio.seconds == [2]
    assert answer.choices[0].message.content == "heard"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details.audio_tokens == 8
    assert "image_tokens" not in answer.usage.to_json()
    assert "audio_tokens" not in plain.usage.to_json()  # type: ignore[union-attr]


async def test_the_bytes_of_a_file_need_no_base64() -> None:
    model = audio_model(FakeCore(["heard"]))
    part = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
    async with open_audio_engine(model) as engine:
        await engine.chat.completions.create(messages=chat(part, part))

    assert isinstance(model.audio, FakeAudio)
    assert model.audio.seconds == [2, 2]


@pytest.mark.parametrize(
    ("part", "param", "message"),
    [
        (audio_part("no base64!"), "messages[0].content[0]", "data must be base64"),
        (audio_part(b"RIFF no audio"), "messages[0].content[0]", "cannot be decoded"),
        (audio_part(format="midi"), "messages[0].content", "must be one of wav, mp3"),
        (audio_part(7), "messages[0].content", "an audio part must have"),
        ({"type": "input_audio", "input_audio": "x"}, "messages[0].content", "an audio part"),
        ({**audio_part(), "more": 1}, "messages[0].content", "an audio part must have"),
    ],
)
async def test_wrong_audio_names_its_part(part: dict[str, Any], param: str, message: str) -> None:
    async with open_audio_engine(audio_model(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match=message) as caught:
            await engine.chat.completions.create(messages=chat(part))

    assert str(caught.value.param).startswith(param)


async def test_audio_has_limits() -> None:
    async with open_audio_engine(audio_model(FakeCore()), max_audio_seconds=1) as engine:
        with pytest.raises(BadRequestError, match="longer than 1 s"):
            await engine.chat.completions.create(messages=chat(audio_part()))
        with pytest.raises(BadRequestError, match="at most 16 parts of audio, got 17"):
            await engine.chat.completions.create(messages=chat(*[audio_part()] * 17))


async def test_audio_that_fills_the_context_is_refused_before_it_is_computed() -> None:
    model = audio_model(FakeCore(), context_window=15)
    async with open_audio_engine(model) as engine:
        with pytest.raises(PromptTooLongError, match="16"):
            await engine.chat.completions.create(messages=chat(audio_part(), audio_part()))
        # The third part is not loaded any more.
        with pytest.raises(PromptTooLongError, match="16"):
            await engine.chat.completions.create(
                messages=chat(audio_part(), audio_part(), audio_part("no base64!"))
            )

    assert isinstance(model.audio, FakeAudio)
    assert model.audio.texts == []


async def test_a_model_that_does_not_hear_names_the_part() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="does not read audio") as caught:
            await engine.chat.completions.create(messages=chat(audio_part()))

    assert caught.value.param == "messages[0].content[0]"


async def test_a_text_must_not_have_the_placeholder_beside_audio() -> None:
    text = {"type": "text", "text": "a <audio> b"}
    async with open_audio_engine(audio_model(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="contains '<audio>'"):
            await engine.chat.completions.create(messages=chat(audio_part(), text))
