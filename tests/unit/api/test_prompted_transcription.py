"""Transcriptions by a decoder whose prompt has the recording, with a scripted model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from aiomlc import MLCEngine
from aiomlc.api import prompted_transcription
from aiomlc.api.transcription import TranscriptionStream
from aiomlc.errors import BadRequestError, EngineOverloadedError, RequestAbortedError
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.testing import FakeCore
from tests.unit.api.hearing import FakeAudio, audio_model, open_audio_engine

pytestmark = pytest.mark.timeout(20)


def audio(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(16_000 * seconds), np.float32)


def heard(model_audio: object) -> FakeAudio:
    assert isinstance(model_audio, FakeAudio)
    return model_audio


async def test_the_text_follows_the_mark_and_the_language_precedes_it() -> None:
    core = FakeCore(["language German<asr_text>Guten Tag. "])
    model = audio_model(core)
    async with open_audio_engine(model) as engine:
        answer = await engine.transcribe(audio(1.5))

    assert (answer.text, answer.language, answer.duration) == ("Guten Tag.", "de", 1.5)
    assert (answer.task, answer.segments, answer.usage.seconds) == ("transcribe", [], 1.5)
    assert heard(model.audio).texts == ["[user]<audio>[assistant]"]
    assert (core.options[0].temperature, core.options[0].max_tokens) == (0.0, 512)


async def test_a_given_language_ends_the_prompt_and_a_context_begins_it() -> None:
    model = audio_model(FakeCore(["Hi"]))
    async with open_audio_engine(model) as engine:
        answer = await engine.transcribe(
            audio(1), language="English", prompt="Ada", temperature=0.5, seed=3
        )

    assert (answer.text, answer.language) == ("Hi", "en")
    (text,) = heard(model.audio).texts
    assert text == "[system]Ada[user]<audio>[assistant]language English<asr_text>"


async def test_no_speech_is_an_empty_text_without_a_language() -> None:
    async with open_audio_engine(audio_model(FakeCore(["language None<asr_text>"]))) as engine:
        answer = await engine.transcribe(audio(1))

    assert (answer.text, answer.language) == ("", None)


async def test_what_is_repeated_without_end_is_in_the_whole_text_once() -> None:
    core = FakeCore(["language English<asr_text>go " + "ha" * 60])
    async with open_audio_engine(audio_model(core)) as engine:
        async with engine.stream_transcription(audio(1)) as stream:
            texts = [segment.text async for segment in stream]
        assert stream.text == (await engine.transcribe(audio(1))).text == "go ha"

    assert "".join(texts) == "go " + "ha" * 60


async def test_text_is_streamed_token_by_token() -> None:
    core = FakeCore(["language English<asr_text>abc"], hand_stepped=True)
    async with open_audio_engine(audio_model(core)) as engine:
        core.allow(len("language English<asr_text>a"))
        async with engine.stream_transcription(audio(2)) as stream:
            first = await anext(stream)
            assert (first.text, first.start, first.end, stream.language) == ("a", 0, 2, "en")
            assert first.avg_logprob is None
            core.allow(10)
            assert "".join([segment.text async for segment in stream]) == "bc"
        assert stream.text == "abc"


async def test_a_long_recording_is_heard_in_parts_that_fit_the_context() -> None:
    core = FakeCore(["language English<asr_text>one", "language English<asr_text>two"])
    model = audio_model(core, context_window=120)  # 2/3 of it are 20 s, less 5.
    async with open_audio_engine(model) as engine:
        answer = await engine.transcribe(audio(30))
        segments = [segment async for segment in engine.stream_transcription(audio(30))]

    assert answer.text == "one two one"
    assert "".join(segment.text for segment in segments) == "two one two"
    assert heard(model.audio).seconds == [10, 10, 10] * 2  # Silence ends 5 s early.
    assert sorted({(segment.id, segment.start, segment.end) for segment in segments}) == [
        (0, 0, 10),
        (1, 10, 20),
        (2, 20, 30),
    ]


async def test_parts_of_languages_without_spaces_are_joined_without() -> None:
    model = audio_model(FakeCore(["one"]), context_window=120)
    async with open_audio_engine(model) as engine:
        assert (await engine.transcribe(audio(20), language="ja")).text == "oneone"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"language": "xx"}, "language", "one of ar"),
        ({"task": "translate"}, "task", "only transcribes"),
        ({"timestamps": True}, "timestamps", "has no times"),
        ({"no_speech_threshold": 0.5}, "no_speech_threshold", "does not hear windows"),
        ({"condition_on_previous_text": False}, "condition_on_previous_text", "leave it out"),
    ],
)
async def test_what_such_a_model_does_not_have_is_refused(
    fields: dict[str, object], param: str, message: str
) -> None:
    async with open_audio_engine(audio_model(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match=message) as caught:
            await engine.transcribe(audio(1), **fields)  # type: ignore[arg-type]

    assert caught.value.param == param


async def test_audio_is_limited_like_that_of_other_models() -> None:
    async with open_audio_engine(audio_model(FakeCore()), max_audio_seconds=2) as engine:
        with pytest.raises(BadRequestError, match="at most 2 s"):
            await engine.transcribe(audio(3))
        with pytest.raises(BadRequestError, match="must be samples"):
            await engine.transcribe(3)  # type: ignore[arg-type]


async def test_a_stream_that_is_left_frees_its_sequence() -> None:
    core = FakeCore(["language English<asr_text>" + "a" * 50], hand_stepped=True)
    core.allow(30)
    async with open_audio_engine(audio_model(core)) as engine:
        async with engine.stream_transcription(audio(1)) as stream:
            await anext(stream)
        assert core.cancelled == [1]
        assert await engine.drain(10)


async def test_a_cancelled_call_frees_its_sequence() -> None:
    core = FakeCore(["language English<asr_text>a"], hand_stepped=True)
    async with open_audio_engine(audio_model(core)) as engine:
        async with create_task_group() as tasks:
            tasks.start_soon(engine.transcribe, audio(1))
            while not core.prompts:
                await checkpoint()
            tasks.cancel_scope.cancel()
        assert core.cancelled == [1]


async def test_an_aborted_stream_says_so() -> None:
    core = FakeCore(["language English<asr_text>" + "a" * 50], hand_stepped=True)
    core.allow(30)
    async with (
        open_audio_engine(audio_model(core)) as engine,
        engine.stream_transcription(audio(1)) as stream,
    ):
        await anext(stream)
        await engine.abort(stream.request_id)
        with pytest.raises(RequestAbortedError):
            await _read(stream)


async def _read(stream: TranscriptionStream) -> list[str]:
    return [segment.text async for segment in stream]


async def test_only_so_many_recordings_are_open() -> None:
    async with open_audio_engine(audio_model(FakeCore(["Hi"]))) as engine:
        streams = [await engine.stream_transcription(audio(0.1)) for _ in range(32)]
        with pytest.raises(EngineOverloadedError, match="32 recordings are open"):
            await engine.transcribe(audio(1))
        streams[0].close()
        assert (await engine.transcribe(audio(1), language="en")).text == "Hi"
        for stream in streams:
            stream.close()


async def test_a_prompt_that_contains_the_placeholder_names_its_field() -> None:
    async with open_audio_engine(audio_model(FakeCore(["Hi"]))) as engine:
        with pytest.raises(BadRequestError) as caught:
            await engine.transcribe(audio(1), prompt="a <audio> b")

    assert caught.value.param == "prompt"


async def test_a_cancelled_read_loses_nothing() -> None:
    core = FakeCore(["language English<asr_text>abc"], hand_stepped=True)
    async with (
        open_audio_engine(audio_model(core)) as engine,
        engine.stream_transcription(audio(1)) as stream,
    ):
        async with create_task_group() as tasks:
            tasks.start_soon(stream.__anext__)
            while not core.prompts:
                await checkpoint()
            tasks.cancel_scope.cancel()
        core.allow(40)
        assert "".join(await _read(stream)) == "abc"


async def test_reads_that_are_cancelled_at_the_end_of_a_part_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_cancelled = 0

    async def cancel_once(function: Callable[[Callable[[], bool]], object]) -> object:
        nonlocal num_cancelled
        if "_end_part" in function.__qualname__ and num_cancelled < 2:
            num_cancelled += 1
            scope.cancel()
            await checkpoint()
        return await run_in_worker(function)

    core = FakeCore(["language English<asr_text>abc "])
    async with (
        open_audio_engine(audio_model(core)) as engine,
        engine.stream_transcription(audio(1)) as stream,
    ):
        monkeypatch.setattr(prompted_transcription, "run_in_worker", cancel_once)
        texts: list[str] = []
        is_read = False
        while not is_read:
            with CancelScope() as scope:
                async for segment in stream:
                    texts.append(segment.text)  # noqa: PERF401 - it stays if the next is cancelled.
                is_read = True

    assert num_cancelled == 2
    assert "".join(texts) == "abc" == stream.text


def test_blocking_code_transcribes() -> None:
    model = audio_model(FakeCore(["language English<asr_text>Hi"]))

    async def load(*args: object, **options: object) -> object:
        return model

    with MLCEngine(loader=load) as engine:  # type: ignore[arg-type]
        assert engine.transcribe(audio(1)).text == "Hi"
        assert "".join(each.text for each in engine.stream_transcription(audio(1))) == "Hi"
