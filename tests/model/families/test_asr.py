"""Models whose prompt has a recording compute what transformers computes: features, towers, prompts
and texts, in any batch and chunk, and after any hit of the prefix cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.config import EngineConfig, VisionQuantization
from aiomlc.errors import BadRequestError
from aiomlc.runtime.audio.recording import Recording
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.open_decoder import load_model
from aiomlc.runtime.speech.asr_text import LANGUAGES, find_language, prefill
from aiomlc.runtime.speech.audio_reader import AudioReader
from aiomlc.runtime.speech.parts import split_recording
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.sampling_params import SequenceOptions
from aiomlc.tools.convert import convert_weights
from tests.model.make_asr_reference import REFERENCE, REQUESTS, STEPS, AsrRequest
from tests.model.tiny_asr import ROWS, write_asr, write_original_asr
from tests.model.tiny_speech import SAMPLE_RATE, speech_audio

TOLERANCE = 2e-4
TEXT = "no recording"  # Of a request beside the others.


@dataclass
class Answer:
    tokens: list[int]
    logprobs: list[dict[int, float]]
    cached: int


@dataclass
class Session:
    """An open model and its engine."""

    model: LoadedModel
    client: EngineClient

    @property
    def audio(self) -> TowerModel[Recording]:
        assert isinstance(self.model.audio, TowerModel)
        return self.model.audio

    async def encode(self, text: str) -> list[int]:
        return self.model.tokenizer.encode(text)

    async def prompt(self, request: AsrRequest | None, seed: int = 1) -> Prompt:
        if request is None:
            return Prompt(await self.encode(TEXT))

        return await self.prompt_of(Recording(speech_audio(request.seconds, seed)), request)

    async def prompt_of(self, recording: Recording, request: AsrRequest) -> Prompt:
        code = None if request.language is None else find_language(request.language)
        text = (
            f"<|im_start|>system\n{request.prompt or ''}<|im_end|>\n<|im_start|>user\n"
            "<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n<|im_start|>assistant\n"
        )
        return await self.audio.prompt(text + prefill(code), [recording], self.encode)

    async def answer(self, prompt: Prompt, number: int = 0) -> Answer:
        options = SequenceOptions(max_tokens=STEPS, temperature=0.0, top_logprobs=10)
        answer = Answer([], [], 0)
        async with self.client.open_stream(prompt, options, f"request-{number}") as deltas:
            async for delta in deltas:
                answer.tokens += delta.token_ids
                answer.logprobs += [dict(entry.top) for entry in delta.logprobs]
                answer.cached = max(answer.cached, delta.cached_tokens or 0)
        return answer

    async def answers(self, requests: Sequence[AsrRequest | None]) -> list[Answer]:
        """Return the answers of requests that run at the same time."""
        results: dict[int, Answer] = {}

        async def run(index: int, request: AsrRequest | None) -> None:
            results[index] = await self.answer(await self.prompt(request), index)

        async with create_task_group() as tasks:
            for index, request in enumerate(requests):
                tasks.start_soon(run, index, request)
        return [results[index] for index in range(len(requests))]


@asynccontextmanager
async def open_session(directory: Path, **config: Any) -> AsyncIterator[Session]:  # noqa: ANN401
    model = await load_model(
        directory,
        device="cpu",
        mode="local",
        engine_config=settings(**config),
        on_progress=None,
    )
    async with EngineClient(model.core) as client:
        yield Session(model, client)


def settings(**config: Any) -> EngineConfig:  # noqa: ANN401
    defaults: dict[str, Any] = {
        "quantization": "q0f32",
        "num_threads": 2,
        "kv_cache_dtype": "float32",
    }
    return EngineConfig(**(defaults | config))


@pytest.fixture(scope="session")
def asr_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_asr(tmp_path_factory.mktemp("tiny_asr") / "asr")


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[Any]]:
    with np.load(REFERENCE) as file:
        return dict(file)


def check(reference: dict[str, NDArray[Any]], answers: Sequence[Answer]) -> None:
    for index, answer in enumerate(answers):
        assert answer.tokens == reference[f"tokens-{index}"].tolist()
        logits = reference[f"logits-{index}"].astype(np.float64)
        rows = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for row, top in zip(rows, answer.logprobs, strict=True):
            assert max(abs(row[token] - value) for token, value in top.items()) <= TOLERANCE


async def test_features_and_rows_equal_transformers(
    asr_directory: Path, reference: dict[str, NDArray[Any]]
) -> None:
    async with open_session(asr_directory) as session:
        recordings = [Recording(speech_audio(seconds)) for seconds in ROWS]
        together = await session.audio.batcher.run(recordings)
        assert session.audio.batcher.num_batches == 1
        reader = session.audio.reader
        assert isinstance(reader, AudioReader)
        for recording, item, (seconds, count) in zip(
            recordings, together, ROWS.items(), strict=True
        ):
            chunks = reader.process(recording).chunks
            features = reference[f"features-{seconds}"]
            # transformers computes quiet bands in float32, we in float64.
            error = np.abs(chunks.reshape(-1, chunks.shape[2]).T[:, ::5] - features)
            assert np.median(error) <= 1e-6
            assert error.max() <= 2e-3
            rows = reference[f"rows-{seconds}"]
            assert item.rows.shape == rows.shape == (count, 64)
            assert np.abs(item.rows - rows).max() <= 1e-5 * np.abs(rows).max()
            (alone,) = reader.embed([reader.process(recording)])
            np.testing.assert_array_equal(alone.rows, item.rows)


async def test_prompts_and_tokens_equal_transformers_beside_a_text(
    asr_directory: Path, reference: dict[str, NDArray[Any]]
) -> None:
    async with open_session(asr_directory) as session:
        for index, request in enumerate(REQUESTS):
            prompt = await session.prompt(request)
            assert prompt.token_ids.tolist() == reference[f"prompt-{index}"].tolist()
        alone = await session.answer(await session.prompt(None))
        *answers, text = await session.answers([*REQUESTS, None])

    check(reference, answers)
    assert (text.tokens, text.logprobs) == (alone.tokens, alone.logprobs)


@pytest.mark.parametrize("budget", [5, 33])
async def test_answers_are_those_of_any_chunk_and_prefix(
    asr_directory: Path, reference: dict[str, NDArray[Any]], budget: int
) -> None:
    async with open_session(asr_directory, step_token_budget=budget) as session:
        together = await session.answers(REQUESTS)
        again = [await session.answer(await session.prompt(each)) for each in REQUESTS]

    check(reference, together)
    for first, second in zip(together, again, strict=True):
        assert (second.tokens, second.logprobs) == (first.tokens, first.logprobs)
        assert second.cached > 0


async def test_another_recording_shares_the_text_before_it_only(asr_directory: Path) -> None:
    async with open_session(asr_directory) as session:
        first, other = [await session.prompt(REQUESTS[1], seed) for seed in (1, 2)]
        await session.answer(first)
        answer = await session.answer(other)
        same = await session.answer(first)
        assert session.audio.batcher.num_items == 2

    assert first.token_ids == other.token_ids
    assert answer.cached == other.pieces[0].begin
    assert same.cached == len(first) - 1


async def test_the_format_of_the_authors_opens_as_well(
    tmp_path: Path, model_cache: Path, reference: dict[str, NDArray[Any]]
) -> None:
    async with open_session(write_original_asr(tmp_path / "original")) as session:
        check(reference, await session.answers(REQUESTS))


@pytest.mark.parametrize(("quantization", "cosine"), [("q0bf16", 0.999), ("q8_0", 0.995)])
async def test_smaller_weights_of_the_tower_stay_close(
    asr_directory: Path,
    reference: dict[str, NDArray[Any]],
    quantization: VisionQuantization,
    cosine: float,
) -> None:
    async with open_session(asr_directory, vision_quantization=quantization) as session:
        (item,) = await session.audio.batcher.run([Recording(speech_audio(2.7))])

    rows = reference["rows-2.7"]
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(item.rows, axis=1)
    assert ((rows * item.rows).sum(axis=1) / norms).min() >= cosine


async def test_an_engine_streams_the_tokens_of_transformers(
    asr_directory: Path, reference: dict[str, NDArray[Any]]
) -> None:
    async with AsyncMLCEngine(asr_directory, engine_config=settings()) as engine:
        for index, request in enumerate(REQUESTS):
            audio, tokens = speech_audio(request.seconds), list[int]()
            language = None if request.language is None else find_language(request.language)
            async with engine.stream_transcription(
                audio, language=request.language, prompt=request.prompt or ""
            ) as stream:
                async for segment in stream:
                    tokens += segment.tokens
                    if len(tokens) >= STEPS:
                        break

            assert tokens[:STEPS] == reference[f"tokens-{index}"].tolist()
            assert stream.language == language
        # Nothing is left of the streams that were left.
        async with engine.stream_transcription(speech_audio(0.5), language="en") as stream:
            assert (await anext(stream)).start == 0
        assert await engine.drain(10)
        assert engine.statistics().num_running == 0


async def test_a_long_recording_is_heard_in_parts(asr_directory: Path) -> None:
    config = settings(max_single_sequence_length=256)
    audio = speech_audio(24)
    seconds = 2 / 3 * 256 / 13 - 5
    begins = split_recording(audio, seconds, SAMPLE_RATE)
    parts = [audio[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]
    async with open_session(asr_directory, max_single_sequence_length=256) as session:
        prompts = [await session.prompt_of(Recording(part), AsrRequest(0, "ja")) for part in parts]
        alone = [(await session.answer(prompt)).tokens for prompt in prompts]
    tokens: dict[int, list[int]] = defaultdict(list)
    starts: dict[int, float] = {}
    async with AsyncMLCEngine(asr_directory, engine_config=config) as engine:
        async for segment in engine.stream_transcription(audio, language="ja"):
            tokens[segment.id] += segment.tokens
            starts[segment.id] = segment.start
        whole = await engine.transcribe(audio, language="ja")

    assert len(parts) >= 3
    assert [tokens[index][:STEPS] for index in range(len(parts))] == alone
    assert list(starts.values()) == [begin / SAMPLE_RATE for begin in begins]
    assert (whole.language, whole.duration, whole.segments) == ("ja", 24, [])
    assert whole.text


async def test_the_memory_plan_counts_the_tower(asr_directory: Path) -> None:
    async with open_session(asr_directory) as session:
        plan = session.model.memory_plan

    assert plan is not None
    assert plan.tower_bytes > 64 << 20


async def test_mlcs_format_does_not_have_such_a_model(asr_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="'qwen3_asr' cannot be converted"):
        await convert_weights(asr_directory, tmp_path / "out", quantization="q4f16_1")


def test_languages_have_one_name_each() -> None:
    assert len(set(LANGUAGES.values())) == len(LANGUAGES) == 30
