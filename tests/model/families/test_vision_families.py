"""Models that read images compute the same as transformers: pixels, towers, prompts and answers."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.config import EngineConfig, VisionQuantization
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import load_model
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.sampling_params import SequenceOptions
from tests.model.make_vision_reference import STEPS, reference_prompts
from tests.model.tiny_vision import (
    CONFIGS,
    IMAGES,
    PLACEHOLDERS,
    PROMPTS,
    VisionPrompt,
    write_vision_model,
)

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")

REFERENCE = Path(__file__).parents[1] / "reference"
TOLERANCE = 2e-4
Directory = Callable[[str], Path]
Arrays = dict[str, NDArray[np.float32]]


@pytest.fixture(scope="session")
def vision_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Return a function that writes a model that reads images, and returns its directory."""
    root = tmp_path_factory.mktemp("tiny_vision")
    return cache(lambda name: write_vision_model(root / name, name))


@cache
def stored(name: str) -> Arrays:
    with np.load(REFERENCE / f"vision_{name}.npz") as file:
        return dict(file)


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
    def vision(self) -> TowerModel[ImageData]:
        assert isinstance(self.model.vision, TowerModel)
        return self.model.vision

    async def prompt(self, name: str, prompt: VisionPrompt) -> Prompt:
        async def encode(text: str) -> list[int]:
            return self.model.tokenizer.encode(text)

        text = prompt.text.format(*[PLACEHOLDERS[name]] * len(prompt.images))
        images = [ImageData(IMAGES[image]) for image in prompt.images]
        return await self.vision.prompt(text, images, encode)

    async def answer(self, prompt: Prompt, number: int) -> Answer:
        options = SequenceOptions(max_tokens=STEPS, temperature=0.0, top_logprobs=10)
        answer = Answer([], [], 0)
        async with self.client.open_stream(prompt, options, f"request-{number}") as deltas:
            async for delta in deltas:
                answer.tokens += delta.token_ids
                answer.logprobs += [dict(entry.top) for entry in delta.logprobs]
                answer.cached = max(answer.cached, delta.cached_tokens or 0)
        return answer

    async def answers(self, name: str, prompts: Sequence[VisionPrompt]) -> list[Answer]:
        """Return the answers of requests that run at the same time."""
        results: dict[int, Answer] = {}

        async def run(index: int, prompt: VisionPrompt) -> None:
            results[index] = await self.answer(await self.prompt(name, prompt), index)

        async with create_task_group() as tasks:
            for index, prompt in enumerate(prompts):
                tasks.start_soon(run, index, prompt)
        return [results[index] for index in range(len(prompts))]


@asynccontextmanager
async def open_session(directory: Path, **config: object) -> AsyncIterator[Session]:
    settings = EngineConfig(
        quantization="q0f32",
        num_threads=2,
        kv_cache_dtype="float32",
        **config,  # type: ignore[arg-type]
    )
    model = await load_model(
        directory, device="auto", mode="local", engine_config=settings, on_progress=None
    )
    async with EngineClient(model.core) as client:
        yield Session(model, client)


def check(name: str, answers: Sequence[Answer]) -> None:
    for index, answer in enumerate(answers):
        assert answer.tokens == stored(name)[f"tokens{index}"].tolist()
        rows = stored(name)[f"logprobs{index}"]
        for row, top in zip(rows, answer.logprobs, strict=True):
            assert max(abs(row[token] - value) for token, value in top.items()) <= TOLERANCE


@pytest.mark.parametrize("name", CONFIGS)
async def test_pixels_rows_and_answers_equal_transformers(
    vision_directory: Directory, name: str
) -> None:
    expected = stored(name)
    async with open_session(vision_directory(name)) as session:
        for number, pixels in enumerate(IMAGES):
            processed = session.vision.reader.process(ImageData(pixels))
            patches = processed.inputs["patches"]
            if "flags" in processed.inputs:  # The tokens without pixels have others.
                patches = patches[processed.inputs["flags"][:, 1] == 1]
            digest = hashlib.sha256(np.ascontiguousarray(patches).tobytes()).digest()
            assert digest == expected[f"pixels{number}"].tobytes()
        for index, prompt in enumerate(PROMPTS):
            actual = await session.prompt(name, prompt)
            assert actual.token_ids.tolist() == expected[f"ids{index}"].tolist()
            if prompt.images:
                rows = np.concatenate([piece.rows for piece in actual.pieces])
                scale = np.abs(expected[f"rows{index}"]).max()
                assert np.abs(rows - expected[f"rows{index}"]).max() <= 1e-5 * scale
        check(name, await session.answers(name, PROMPTS))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("budget", [5, 33])
async def test_answers_are_those_of_any_batch_chunk_and_prefix(
    vision_directory: Directory, name: str, budget: int
) -> None:
    async with open_session(vision_directory(name), step_token_budget=budget) as session:
        together = await session.answers(name, PROMPTS)
        again = [await session.answer(await session.prompt(name, each), 0) for each in PROMPTS]

    check(name, together)
    for first, second, prompt in zip(together, again, PROMPTS, strict=True):
        assert (second.tokens, second.logprobs) == (first.tokens, first.logprobs)
        assert second.cached > 0 or not prompt.images


async def test_another_image_shares_the_text_before_it_only(vision_directory: Directory) -> None:
    text = PROMPTS[0].text
    async with open_session(vision_directory("llava")) as session:
        first, other = [
            await session.prompt("llava", VisionPrompt(text, (image,))) for image in (0, 1)
        ]
        await session.answer(first, 0)
        answer = await session.answer(other, 1)
        same = await session.answer(first, 2)
        assert session.vision.batcher.num_items == 2

    assert first.token_ids == other.token_ids
    assert answer.cached == other.pieces[0].begin
    assert same.cached == len(first) - 1


async def test_choices_share_an_image(vision_directory: Directory) -> None:
    options = SequenceOptions(max_tokens=STEPS, temperature=0.0)
    choices: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async with open_session(vision_directory("llava")) as session:
        prompt = await session.prompt("llava", PROMPTS[0])
        async with session.client.open_stream(prompt, options, "request", 3) as deltas:
            async for delta in deltas:
                choices[delta.choice] += delta.token_ids

    expected = stored("llava")["tokens0"].tolist()
    assert choices == {0: expected, 1: expected, 2: expected}


async def test_a_request_that_leaves_while_the_tower_runs_disturbs_no_other(
    vision_directory: Directory,
) -> None:
    async with open_session(vision_directory("llava")) as session:
        async with create_task_group() as tasks:
            tasks.start_soon(session.prompt, "llava", PROMPTS[3])
            await checkpoint()
            await checkpoint()
            tasks.cancel_scope.cancel()
        check("llava", await session.answers("llava", PROMPTS))


async def test_a_text_with_image_tokens_is_refused(vision_directory: Directory) -> None:
    async with open_session(vision_directory("internvl")) as session:
        with pytest.raises(BadRequestError, match="2 placeholders '<IMG_CONTEXT>' for 1 images"):
            await session.prompt("internvl", VisionPrompt("{} <IMG_CONTEXT>", (0,)))


async def test_the_memory_plan_counts_the_tower(vision_directory: Directory) -> None:
    async with open_session(vision_directory("llava")) as session:
        plan = session.model.memory_plan
    assert plan is not None
    assert plan.tower_bytes > 64 << 20
    assert "tower" in str(plan)


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_references_are_those_of_transformers(name: str) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")

    for key, values in reference_prompts(name).items():
        np.testing.assert_allclose(values, stored(name)[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
async def test_a_chat_with_images_answers_as_transformers(
    vision_directory: Directory, name: str
) -> None:
    directory = vision_directory(name)
    config = EngineConfig(quantization="q0f32", num_threads=2, kv_cache_dtype="float32")
    texts = PROMPTS[3].text.split("{}")
    content: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for image, text in zip(PROMPTS[3].images, texts[1:], strict=True):
        content.append({"type": "image_url", "image_url": ImageData(IMAGES[image])})
        content.append({"type": "text", "text": text})
    async with AsyncMLCEngine(directory, engine_config=config) as engine:
        response = await engine.chat.completions.create(
            messages=[{"role": "user", "content": content}],
            temperature=0,
            max_tokens=STEPS,
            logprobs=True,
            top_logprobs=0,
        )

    expected = stored(name)
    assert response.usage is not None
    assert response.usage.prompt_tokens == len(expected["ids3"])
    logprobs = response.choices[0].logprobs
    assert logprobs is not None
    rows = [row.max() for row in expected["logprobs3"]]
    assert [entry.logprob for entry in logprobs.content] == pytest.approx(rows, abs=TOLERANCE)


async def embedded(
    directory: Path, quantization: str, vision: VisionQuantization | None = None
) -> tuple[NDArray[np.float32], int]:
    """Return the rows of an image, and the bytes of the packed tower."""
    facts = ModelFacts(find_model(directory), quantization, vision_quantization=vision)
    assert facts.tower is not None
    config = EngineConfig(quantization=quantization, vision_quantization=vision, num_threads=2)
    model = await load_model(
        directory, device="auto", mode="local", engine_config=config, on_progress=None
    )
    assert isinstance(model.vision, TowerModel)
    (image,) = await model.vision.batcher.run([ImageData(IMAGES[0])])
    return image.rows, sum(parameter.nbytes for parameter in facts.tower.packed)


@pytest.mark.parametrize("name", CONFIGS)
async def test_a_tower_in_bf16_stays_close(vision_directory: Directory, name: str) -> None:
    exact, large = await embedded(vision_directory(name), "q0f32")
    rounded, small = await embedded(vision_directory(name), "q0bf16")
    same, _ = await embedded(vision_directory(name), "q4f16_1")

    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    assert ((exact * rounded).sum(1) / norms).min() > 0.999
    assert np.abs(exact - rounded).max() < 0.04 * np.abs(exact).max()
    assert small < 0.65 * large
    assert (same == exact).all()  # A decoder of fewer bits leaves its tower as it is.


@pytest.mark.parametrize("name", CONFIGS)
async def test_a_tower_in_8_bits_stays_close(vision_directory: Directory, name: str) -> None:
    exact, large = await embedded(vision_directory(name), "q0f32")
    rounded, small = await embedded(vision_directory(name), "q4f16_1", "q8_0")
    same, _ = await embedded(vision_directory(name), "q8_0")

    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    assert ((exact * rounded).sum(1) / norms).min() > 0.995
    assert np.abs(exact - rounded).max() < 0.08 * np.abs(exact).max()
    assert small < 0.5 * large
    assert (same == rounded).all()


async def test_a_tower_may_have_more_bits_than_its_decoder(vision_directory: Directory) -> None:
    exact, _ = await embedded(vision_directory("llava"), "q0f32")
    own, _ = await embedded(vision_directory("llava"), "q0bf16", "q0f32")

    assert (own == exact).all()
