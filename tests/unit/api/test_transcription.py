"""Transcriptions: windows, streams, cancellation and errors, with a scripted model."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group, fail_after, to_thread, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, EngineConfig, MLCEngine
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineDrainingError,
    EngineOverloadedError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.audio import sources
from aiomlc.runtime.embedding.encoder_engine import MAX_OPEN_REQUESTS
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.mock.speech import fake_speech
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.speech.transcriber import Transcriber
from aiomlc.testing import FakeCore, FakeEncoder, FakeSpeech, fake_loader

pytestmark = pytest.mark.timeout(20)


def audio(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(16_000 * seconds), np.float32)


def open_engine(speech: FakeSpeech, **config: object) -> AsyncMLCEngine:
    return AsyncMLCEngine(loader=fake_loader(speech), engine_config=EngineConfig(**config))  # type: ignore[arg-type]


async def test_a_short_recording_is_one_window_without_times() -> None:
    speech = FakeSpeech(["hello there."])
    async with open_engine(speech) as engine:
        answer = await engine.transcribe(audio(1.5))

    assert (answer.text, answer.language, answer.duration) == ("hello there.", "en", 1.5)
    (segment,) = answer.segments
    assert (segment.start, segment.end, segment.temperature) == (0.0, 1.5, 0.0)
    assert segment.tokens == [("abcdefghijklmnopqrstuvwxyz .,").index(c) for c in "hello there."]


async def test_a_long_recording_is_heard_window_by_window() -> None:
    speech = FakeSpeech([" one", " two", " three"])
    async with open_engine(speech) as engine:
        answer = await engine.transcribe(audio(5), language="de")

    assert answer.text == "one two three"
    assert answer.language == "de"
    assert [(each.start, each.end) for each in answer.segments] == [(0, 2), (2, 4), (4, 5)]
    assert [each.id for each in answer.segments] == [0, 1, 2]
    assert [each.seek for each in answer.segments] == [0, 200, 400]


async def test_a_window_knows_the_text_before_it_unless_told_otherwise() -> None:
    prompts = []
    for condition in (True, False):
        speech = FakeSpeech([" one", " two"])
        async with open_engine(speech) as engine:
            await engine.transcribe(
                audio(4), language="en", condition_on_previous_text=condition, prompt="and"
            )
        first_steps = [step[0].ids for step in speech.batches if step[0].start == 0]
        prompts.append([len(ids) for ids in first_steps])

    # Before the three tokens of the task: the mark, " and", and then two times and " one".
    assert prompts == [[8, 14], [8, 8]]


async def test_segments_are_streamed_as_they_are_heard() -> None:
    speech = FakeSpeech([" one", " two"])
    async with open_engine(speech) as engine, engine.stream_transcription(audio(4)) as stream:
        first = await anext(stream)
        assert (first.text, stream.language) == (" one", "en")
        assert not any("two" in str(batch) for batch in speech.batches)
        rest = [segment.text async for segment in stream]

    assert rest == [" two"]


@pytest.mark.parametrize(
    ("threshold", "temperature", "attempts"), [(2.4, 0.9, 3), (None, 0.5, 1), (100.0, 0.5, 1)]
)
async def test_a_text_that_repeats_itself_is_decoded_again(
    threshold: float | None, temperature: float, attempts: int
) -> None:
    speech = FakeSpeech(["a" * 50])
    async with open_engine(speech) as engine:
        answer = await engine.transcribe(
            audio(1),
            language="en",
            temperature=0.5,
            compression_ratio_threshold=threshold,
        )

    (segment,) = answer.segments
    assert (segment.text, segment.temperature) == ("a" * 50, temperature)
    assert segment.compression_ratio is not None
    assert segment.compression_ratio > 4
    assert sum(step[0].start == 0 for step in speech.batches) == attempts


async def test_concurrent_recordings_share_steps_and_hear_what_each_hears_alone() -> None:
    speech = FakeSpeech(["aaaaaaaa", "aaaaaaaa"], hand_stepped=True)
    opened = fake_speech(speech)
    texts = []

    async def load(*_: object, **_settings: object) -> LoadedEncoder:
        await checkpoint()
        return opened

    async with AsyncMLCEngine(loader=load) as engine, create_task_group() as tasks:

        async def run() -> None:
            texts.append((await engine.transcribe(audio(1), language="en")).text)

        tasks.start_soon(run)
        tasks.start_soon(run)
        assert isinstance(opened.model, Transcriber)
        with fail_after(10):
            while opened.model.batcher.num_free_slots:  # Until both windows are to be encoded.
                await checkpoint()
        speech.allow(100)

    assert texts == ["aaaaaaaa", "aaaaaaaa"]
    assert any(len(batch) == 2 for batch in speech.batches)
    assert len(speech.batches) < 18


async def test_a_cancelled_recording_gives_its_slot_back() -> None:
    speech = FakeSpeech(["aaaa", "bb"], num_slots=1, hand_stepped=True)
    async with open_engine(speech) as engine:
        async with create_task_group() as tasks:
            tasks.start_soon(lambda: engine.transcribe(audio(1), language="en"))
            await to_thread.run_sync(speech.wait_for_steps, 1)
            tasks.cancel_scope.cancel()
            speech.allow(100)

        assert engine.statistics().num_running == 0
        with fail_after(10):
            answer = await engine.transcribe(audio(1), language="en")

    assert answer.text == "bb"


async def test_a_window_waits_for_a_slot() -> None:
    speech = FakeSpeech(["aa", "bb"], num_slots=1, hand_stepped=True)
    texts: list[str] = []
    async with open_engine(speech) as engine, create_task_group() as tasks:

        async def run() -> None:
            texts.append((await engine.transcribe(audio(1), language="en")).text)

        tasks.start_soon(run)
        await to_thread.run_sync(speech.wait_for_steps, 1)
        tasks.start_soon(run)
        with fail_after(10):
            while engine.statistics().num_waiting == 0:
                await checkpoint()
        speech.allow(100)

    assert texts == ["aa", "bb"]
    assert all(len(batch) == 1 for batch in speech.batches)


async def test_drain_waits_for_an_open_stream_and_abort_ends_one() -> None:
    speech = FakeSpeech([" one", " two", " three"])
    async with open_engine(speech) as engine:
        stream = await engine.stream_transcription(audio(6))
        await anext(stream)
        async with create_task_group() as tasks:
            tasks.start_soon(engine.drain)
            await wait_all_tasks_blocked()
            with pytest.raises(EngineDrainingError):
                await engine.transcribe(audio(1))

            assert [segment.text async for segment in stream] == [" two", " three"]
        engine.resume()

        aborted = await engine.stream_transcription(audio(6))
        await engine.abort(aborted.request_id)
        with pytest.raises(RequestAbortedError):
            await anext(aborted)


async def test_an_aborted_stream_that_nobody_reads_keeps_no_engine_from_draining() -> None:
    async with open_engine(FakeSpeech([" one"])) as engine:
        stream = await engine.stream_transcription(audio(6))
        with fail_after(10):
            async with create_task_group() as tasks:
                tasks.start_soon(engine.drain)
                await wait_all_tasks_blocked()
                await engine.abort(stream.request_id)


async def test_the_recordings_that_are_open_are_limited() -> None:
    async with open_engine(FakeSpeech([" one"])) as engine:
        streams = [await engine.stream_transcription(audio(6)) for _ in range(MAX_OPEN_REQUESTS)]
        with pytest.raises(EngineOverloadedError, match="32 requests are open"):
            await engine.transcribe(audio(1))

        for stream in streams:
            await stream.aclose()

        assert (await engine.transcribe(audio(1))).text == "one"


async def test_a_dropped_stream_keeps_no_engine_from_draining() -> None:
    async with open_engine(FakeSpeech([" one"])) as engine:
        stream = await engine.stream_transcription(audio(6))
        await anext(stream)
        del stream
        with fail_after(10):
            assert await engine.drain()


async def test_two_recordings_at_a_time_have_their_samples_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, gate = LogMel.features, threading.Semaphore(0)
    held: list[int] = []
    most: list[int] = []

    def counted(self: LogMel, samples: NDArray[np.float32], *rest: Any) -> NDArray[np.float32]:  # noqa: ANN401
        gate.acquire()
        most.append(len(held))
        held.pop()
        return features(self, samples, *rest)

    def checked(*arguments: Any) -> NDArray[np.float32]:  # noqa: ANN401
        held.append(1)
        return check(*arguments)

    check = sources._checked
    monkeypatch.setattr(sources, "_checked", checked)
    monkeypatch.setattr(LogMel, "features", counted)
    async with open_engine(FakeSpeech([])) as engine, create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(engine.transcribe, audio(1))
        with fail_after(10):
            while len(held) < 2:
                await checkpoint()
        await wait_all_tasks_blocked()
        gate.release(8)

    assert max(most) == 2


async def test_a_closed_stream_ends() -> None:
    async with open_engine(FakeSpeech([" one", " two"])) as engine:
        stream = await engine.stream_transcription(audio(4))
        await anext(stream)
        stream.close()
        assert [segment async for segment in stream] == []


async def test_a_failure_of_the_model_ends_one_request() -> None:
    speech = FakeSpeech(["aa", "bb"], failure=ValueError("broken"))
    async with open_engine(speech) as engine:
        with pytest.raises(RequestFailedError, match="broken"):
            await engine.transcribe(audio(1))

        assert (await engine.transcribe(audio(1))).text == "bb"


async def test_a_terminated_engine_ends_a_recording() -> None:
    async with open_engine(FakeSpeech([" one", " two"])) as engine:
        stream = await engine.stream_transcription(audio(4))
        await anext(stream)
        engine.terminate()
        with pytest.raises(EngineClosedError):
            await anext(stream)
        await checkpoint()


async def test_a_task_and_languages_are_those_of_the_model() -> None:
    speech = FakeSpeech(["yes"])
    async with open_engine(speech) as engine:
        with pytest.raises(BadRequestError, match="must be one of en, de, got 'xx'") as info:
            await engine.transcribe(audio(1), language="xx")
        assert info.value.param == "language"
        answer = await engine.transcribe(audio(1), task="translate")

    assert answer.task == "translate"
    assert speech.batches[1][0].ids[1:3] == [31, 33]  # English, translate.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2}, "temperature"),
        ({"temperature": []}, "temperature"),
        ({"temperature": [0, -1]}, "temperature"),
        ({"task": "sing"}, "task"),
        ({"language": 3}, "language"),
        ({"timestamps": "yes"}, "timestamps"),
        ({"words": True}, "words"),
    ],
)
async def test_invalid_fields_are_named(fields: dict[str, object], param: str) -> None:
    async with open_engine(FakeSpeech([])) as engine:
        with pytest.raises(BadRequestError) as info:
            await engine.transcribe(audio(1), **fields)  # type: ignore[arg-type]

    assert (info.value.param or "").startswith(param)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(0, np.float32), "samples must be float32"),
        (np.zeros((2, 8), np.float32), r"got float32 \[2, 8\]"),
        (np.zeros(8, np.int16), "got int16"),
        (np.full(8, np.nan, np.float32), "must be finite"),
        (audio(61), "at most 60 s, got 61"),
        (3, "got int"),
    ],
)
async def test_invalid_samples_are_described(samples: object, message: str) -> None:
    async with open_engine(FakeSpeech([])) as engine:
        with pytest.raises(BadRequestError, match=message) as info:
            await engine.transcribe(samples)  # type: ignore[arg-type]

    assert info.value.param == "audio"


async def test_other_models_do_not_transcribe_and_speech_models_do_not_chat() -> None:
    for double, kind in ((FakeCore(["a"]), "a decoder"), (FakeEncoder(), "an encoder")):
        async with AsyncMLCEngine(loader=fake_loader(double)) as engine:
            with pytest.raises(BadRequestError, match=f"is {kind}, which does not support trans"):
                await engine.transcribe(audio(1))

    async with open_engine(FakeSpeech([])) as engine:
        with pytest.raises(BadRequestError, match="is a speech model, which supports only trans"):
            await engine.chat.completions.create(messages=[{"role": "user", "content": "a"}])


def test_blocking_code_transcribes_and_streams() -> None:
    speech = FakeSpeech(["hello", " one", " two"])
    with MLCEngine(loader=fake_loader(speech)) as engine:
        assert engine.transcribe(audio(1)).text == "hello"
        texts = [segment.text for segment in engine.stream_transcription(audio(4))]

    assert texts == [" one", " two"]
