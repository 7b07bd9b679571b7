"""The endpoints of speech models have OpenAI's shapes, as OpenAI's own client reads them."""

from __future__ import annotations

from typing import Any, Literal

import httpx2
import numpy as np
import pytest
from anyio import create_task_group, fail_after, to_thread
from openai import BadRequestError
from openai.types.audio import TranscriptionVerbose

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.embedding.encoder_engine import MAX_OPEN_REQUESTS
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeCore, FakeSpeech, fake_loader
from tests.audio_files import wav_bytes
from tests.unit.api.hearing import audio_model, open_audio_engine
from tests.unit.serve.asgi import ManualRequest, events_of, http_client

pytestmark = pytest.mark.timeout(30)

FILE = ("a.wav", wav_bytes(np.zeros(64_000, np.float32)))  # Four seconds.
TEXTS = (" one.", " two")


def open_engine(*texts: str, **options: Any) -> AsyncMLCEngine:  # noqa: ANN401
    return AsyncMLCEngine(loader=fake_loader(FakeSpeech(texts or TEXTS, **options)))


async def post(
    data: dict[str, Any],
    *,
    with_file: bool = True,
    **options: Any,  # noqa: ANN401
) -> httpx2.Response:
    files = {"file": FILE} if with_file else None
    async with (
        open_engine() as engine,
        http_client(create_app({"m": engine}, ServerOptions(**options))) as client,
    ):
        return await client.post("/v1/audio/transcriptions", data=data, files=files)


async def test_openais_client_reads_every_format() -> None:
    answers: dict[str, Any] = {}
    for name in ("json", "text", "srt", "vtt", "verbose_json"):
        async with open_engine() as engine:
            client = engine.openai_client()
            answers[name] = await client.audio.transcriptions.create(
                model="m",
                file=FILE,
                response_format=name,
            )

    assert answers["json"].text == "one. two"
    assert answers["json"].usage.seconds == 4
    assert answers["text"] == "one. two\n"
    assert answers["srt"] == (
        "1\n00:00:00,000 --> 00:00:02,000\none.\n\n2\n00:00:02,000 --> 00:00:04,000\ntwo\n\n"
    )
    assert answers["vtt"] == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\none.\n\n00:00:02.000 --> 00:00:04.000\ntwo\n\n"
    )
    verbose = answers["verbose_json"]
    assert isinstance(verbose, TranscriptionVerbose)
    assert (verbose.language, verbose.duration, verbose.text) == ("en", 4, "one. two")
    assert [segment.text for segment in verbose.segments or []] == list(TEXTS)
    assert verbose.model_extra == {"task": "transcribe"}


async def test_openais_client_reads_the_stream() -> None:
    async with open_engine() as engine:
        stream = await engine.openai_client().audio.transcriptions.create(
            model="m", file=FILE, response_format="json", stream=True
        )
        events = [event async for event in stream]

    assert [event.type for event in events] == [
        "transcript.text.delta",
        "transcript.text.delta",
        "transcript.text.done",
    ]
    assert [event.delta for event in events[:2]] == ["one.", " two"]  # type: ignore[union-attr]
    assert events[2].text == "one. two"  # type: ignore[union-attr]


async def test_openais_client_translates() -> None:
    async with open_engine() as engine:
        # OpenAI no longer offers it to new programs.
        with pytest.warns(DeprecationWarning, match="deprecated"):
            answer = await engine.openai_client().audio.translations.create(
                model="m", file=FILE, response_format="verbose_json", prompt="a", temperature=0.4
            )

    assert (answer.text, answer.language) == ("one. two", "en")
    assert [segment.temperature for segment in answer.segments or []] == [0.4, 0.4]


async def test_openais_client_gets_errors_that_name_the_field() -> None:
    async with open_engine() as engine:
        client = engine.openai_client()
        with pytest.raises(BadRequestError) as info:
            await client.audio.transcriptions.create(model="m", file=("a.wav", b"RIFF no audio"))

    assert info.value.param == "file"
    assert "cannot be decoded" in info.value.message


@pytest.mark.parametrize(
    ("data", "param", "message"),
    [
        ({"language": "xx"}, "language", "one of en, de"),
        ({"response_format": "xml"}, "response_format", "json, verbose_json"),
        ({"stream": "maybe"}, "stream", "true or false"),
        ({"stream": "true", "response_format": "srt"}, "response_format", "json with stream"),
        ({"temperature": "warm"}, "temperature", "a number"),
        ({"temperature": "3"}, "temperature", "from 0 to 1"),
        ({"temperature[]": ["0", "warm"]}, "temperature", "a number"),
        ({"seed": "nan"}, "seed", "an integer"),
        ({"seed": "1e400"}, "seed", "an integer"),
        ({"seed": "1.7"}, "seed", "an integer"),
        ({"timestamp_granularities": "word"}, "timestamp_granularities", "segment"),
        ({"timestamp_granularities[]": ["word"]}, "timestamp_granularities", "segment"),
        ({"chunking_strategy": "auto"}, "chunking_strategy", "unknown"),
        ({"language": ["en", "de"]}, "language", "must be given once"),
        ({"temperature": "0", "temperature[]": "1"}, "temperature", "must be given once"),
        ({"model[]": "m"}, "model", "must be a string"),
        ({"response_format[]": "text"}, "response_format", "json, verbose_json"),
        ({"task": "translate"}, "task", "/v1/audio/translations"),
        ({"timestamps": "true"}, "timestamps", "response_format=verbose_json"),
    ],
)
async def test_invalid_fields_are_named(data: dict[str, Any], param: str, message: str) -> None:
    response = await post(data)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        {"timestamp_granularities": "segment", "response_format": "verbose_json"},
        {"temperature[]": ["0", "0.4"], "seed": str(2**62 + 1)},
    ],
)
async def test_fields_may_be_repeated_or_alone(data: dict[str, Any]) -> None:
    assert (await post(data)).status_code == 200


async def test_a_request_needs_a_form_with_a_file_of_limited_size() -> None:
    missing = await post({"model": "m"}, with_file=False)
    large = await post({}, max_audio_size=1000)
    async with (
        open_engine() as engine,
        http_client(create_app({"m": engine})) as client,
    ):
        path = "/v1/audio/transcriptions"
        plain = await client.post(path, json={"file": "a"})
        broken = await client.post(
            path, content=b"--x", headers={"content-type": "multipart/form-data"}
        )

    assert (missing.status_code, plain.status_code) == (415, 415)
    assert (large.status_code, broken.status_code) == (413, 400)
    assert broken.json()["error"]["code"] == "invalid_form"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("file", FILE), ("file", FILE)], "file: must be given once"),
        ([("file", FILE), ("prompt", FILE)], "prompt: must not be a file"),
        ([("file", (None, "text"))], "file: must be a file, with a filename"),
        ([("prompt", (None, "text"))], "file: is required"),
    ],
)
async def test_exactly_one_file_is_sent(files: list[Any], message: str) -> None:
    async with open_engine() as engine, http_client(create_app({"m": engine})) as client:
        response = await client.post("/v1/audio/transcriptions", files=files)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_a_failure_after_the_first_segment_is_an_event() -> None:
    speech = FakeSpeech(TEXTS, hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(speech))
    async with engine, http_client(create_app({"m": engine})) as client:

        def fail_later() -> None:
            speech.allow(8)  # The language, two times, five letters and the end are nine.
            speech.wait_for_steps(9)
            speech.allow(1)
            speech.wait_for_steps(10)
            speech.failure = ValueError("broken")
            speech.allow(1)

        async with create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, fail_later)
            response = await client.post(
                "/v1/audio/transcriptions", data={"stream": "true"}, files={"file": FILE}
            )

    events = events_of(response.text)
    assert events[0]["delta"] == "one."
    assert "broken" in events[1]["error"]["message"]
    assert len(events) == 2


async def test_a_recording_beyond_the_limit_is_to_be_sent_later() -> None:
    async with open_engine() as engine, http_client(create_app({"m": engine})) as client:
        streams = [
            await engine.stream_transcription(np.zeros(160, np.float32))
            for _ in range(MAX_OPEN_REQUESTS)
        ]
        refused = await client.post("/v1/audio/transcriptions", files={"file": FILE})
        for stream in streams:
            stream.close()
        accepted = await client.post("/v1/audio/transcriptions", files={"file": FILE})

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert accepted.status_code == 200


async def test_a_decoder_does_not_transcribe() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["a"])))
    async with engine, http_client(create_app({"m": engine})) as client:
        response = await client.post("/v1/audio/transcriptions", files={"file": FILE})

    assert response.status_code == 400
    assert "does not support transcribe" in response.json()["error"]["message"]


async def test_a_client_that_goes_away_frees_the_slot() -> None:
    speech = FakeSpeech(["a", "b"], num_slots=1, hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(speech))
    async with engine:
        app = create_app({"m": engine})
        path = "/v1/audio/transcriptions"
        async with http_client(app) as client:
            form = client.build_request("POST", path, files={"file": FILE})
        request = ManualRequest(app, path, form.read(), form.headers["content-type"])
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            await to_thread.run_sync(speech.wait_for_steps, 1)
            request.disconnect()
            speech.allow(100)
        with fail_after(10):
            answer = await engine.transcribe(np.zeros(16_000, np.float32))

    assert answer.text == "b"


def open_prompted(reply: str = "language English<asr_text>Hi you") -> AsyncMLCEngine:
    return open_audio_engine(audio_model(FakeCore([reply])))


async def test_a_decoder_that_reads_audio_has_the_formats_without_times() -> None:
    async with open_prompted() as engine:
        client = engine.openai_client().audio.transcriptions
        answer = await client.create(model="m", file=FILE, language="en", temperature=0)
        text = await client.create(model="m", file=FILE, response_format="text")
        stream = await client.create(model="m", file=FILE, stream=True)
        events = [event async for event in stream]

    assert (answer.text, answer.usage.seconds) == ("language English<asr_text>Hi you", 4)  # type: ignore[union-attr]
    assert text == "Hi you\n"
    assert {event.type for event in events[:-1]} == {"transcript.text.delta"}
    assert "".join(event.delta for event in events[:-1]) == "Hi you"  # type: ignore[union-attr]
    assert events[-1].text == "Hi you"  # type: ignore[union-attr]


@pytest.mark.parametrize("response_format", ["srt", "vtt", "verbose_json"])
async def test_formats_with_times_are_refused_by_a_model_without(
    response_format: Literal["srt", "vtt", "verbose_json"],
) -> None:
    async with open_prompted() as engine:
        with pytest.raises(BadRequestError) as info:
            await engine.openai_client().audio.transcriptions.create(
                model="m", file=FILE, response_format=response_format
            )

    assert info.value.param == "response_format"
    assert "has no times" in info.value.message


async def test_a_model_that_only_transcribes_refuses_translations() -> None:
    async with open_prompted() as engine, http_client(create_app({"m": engine})) as client:
        response = await client.post("/v1/audio/translations", files={"file": FILE})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "task"
