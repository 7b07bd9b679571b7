"""Gemma 3 and Qwen read images as transformers: pixels, rows, positions, masks and answers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.open_decoder import load_model
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.sampling_params import SequenceOptions
from tests.model.make_tower_reference import STEPS
from tests.model.tiny_models import write_safetensors
from tests.model.tiny_towers import (
    IMAGES,
    PROMPTS,
    TOWERS,
    TowerPrompt,
    image_text,
    write_tower_model,
)

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
REFERENCE = Path(__file__).parents[1] / "reference"
TOLERANCE = 2e-4
LARGEST_IMAGE = 65  # Tokens of Gemma 4.
Answers = list[tuple[list[int], list[TokenLogprob], int]]


@cache
def stored(name: str) -> dict[str, NDArray[Any]]:
    with np.load(REFERENCE / f"tower_{name}.npz") as file:
        return dict(file)


async def open_model(directory: Path, **config: Any) -> LoadedModel:  # noqa: ANN401
    settings = EngineConfig(quantization="q0f32", num_threads=2, **config)
    return await load_model(
        directory, device="auto", mode="local", engine_config=settings, on_progress=None
    )


def tower_of(model: LoadedModel) -> TowerModel[ImageData]:
    assert isinstance(model.vision, TowerModel)
    return model.vision


async def encoded(model: LoadedModel, name: str, prompt: TowerPrompt) -> Prompt:
    async def encode(text: str) -> list[int]:
        return model.tokenizer.encode(text)

    text = prompt.text.format(*[image_text(TOWERS[name])] * len(prompt.images))
    images = [ImageData(IMAGES[image]) for image in prompt.images]
    return await tower_of(model).prompt(text, images, encode)


def answers(model: LoadedModel, prompts: Sequence[Prompt]) -> Answers:
    """Return the greedy tokens, log-probabilities and cached tokens of prompts in one batch."""
    options = SequenceOptions(max_tokens=STEPS, temperature=0.0, top_logprobs=20)
    core: Any = model.core
    ids = [core.submit(prompt, options) for prompt in prompts]
    tokens: dict[int, list[int]] = defaultdict(list)
    logprobs: dict[int, list[TokenLogprob]] = defaultdict(list)
    cached: dict[int, int] = {}
    is_working = True
    while is_working:
        is_working = core.step()
        for record in core.drain():
            assert record.error is None
            tokens[record.sequence_id].extend(record.token_ids)
            logprobs[record.sequence_id].extend(record.logprobs)
            cached[record.sequence_id] = record.cached_tokens
    return [(tokens[i], logprobs[i], cached[i]) for i in ids]


def check(name: str, actual: Answers) -> None:
    for index, (ids, entries, _) in enumerate(actual):
        assert ids == stored(name)[f"tokens{index}"].tolist()
        for entry, row in zip(entries, stored(name)[f"logprobs{index}"], strict=True):
            assert max(abs(row[token] - logprob) for token, logprob in entry.top) <= TOLERANCE


def close(model: LoadedModel) -> None:
    core: Any = model.core
    core.close()
    core.release()


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", TOWERS)
def test_pixels_rows_and_answers_equal_transformers(tmp_path: Path, name: str) -> None:
    anyio.run(_compare, write_tower_model(tmp_path, name), name)


async def _compare(directory: Path, name: str) -> None:
    model = await open_model(directory, prefill_chunk_size=128)
    expected = stored(name)
    for number, pixels in enumerate(IMAGES):
        inputs = tower_of(model).reader.process(ImageData(pixels)).inputs
        patches = inputs["patches"]
        if name == "qwen2_5_vl":  # Patches are in the order of windows.
            patches = patches[inputs["order"].reshape(-1)]
        digest = hashlib.sha256(np.ascontiguousarray(patches).tobytes()).digest()
        assert digest == expected[f"pixels{number}"].tobytes()

    prompts = [await encoded(model, name, prompt) for prompt in PROMPTS]
    for index, prompt in enumerate(prompts):
        assert prompt.token_ids.tolist() == expected[f"ids{index}"].tolist()
        if prompt.pieces:
            rows = np.concatenate([piece.rows for piece in prompt.pieces])
            scale = np.abs(expected[f"rows{index}"]).max()
            assert np.abs(rows - expected[f"rows{index}"]).max() <= 1e-5 * scale
    check(name, answers(model, prompts))  # Beside each other,
    again = answers(model, prompts)  # and after hits of the prefix cache.
    check(name, again)
    # A recurrent state has few checkpoints.
    assert name == "qwen3_5" or all(cached > 0 for _, _, cached in again)
    close(model)

    # The images of the large Gemma 4 are computed whole.
    size = LARGEST_IMAGE if name == "gemma4" else 16
    chunked = await open_model(directory, prefill_chunk_size=size)
    assert [answers(chunked, [prompt])[0][:2] for prompt in prompts] == [a[:2] for a in again]
    close(chunked)


@pytest.mark.usefixtures("model_cache")
def test_rows_of_an_image_do_not_depend_on_its_batch(tmp_path: Path) -> None:
    async def compare() -> None:
        model = await open_model(write_tower_model(tmp_path, "qwen2_5_vl"))
        together = await tower_of(model).batcher.run([ImageData(pixels) for pixels in IMAGES])
        close(model)
        other = await open_model(tmp_path)
        for pixels, image in zip(IMAGES, together, strict=True):
            (alone,) = await tower_of(other).batcher.run([ImageData(pixels)])
            assert np.array_equal(alone.rows, image.rows)
        close(other)

    anyio.run(compare)


@pytest.mark.usefixtures("model_cache")
def test_a_sliver_of_an_image_is_refused(tmp_path: Path) -> None:
    async def refuse() -> None:
        model = await open_model(write_tower_model(tmp_path, "qwen2_vl"))
        sliver = ImageData(np.zeros((2, 500, 3), np.uint8))
        with pytest.raises(BadRequestError, match=r"at most 200 times the other, got 500 x 2"):
            await tower_of(model).batcher.run([sliver])
        close(model)

    anyio.run(refuse)


@pytest.mark.usefixtures("model_cache")
def test_a_directory_without_the_tower_of_its_config_reads_text(tmp_path: Path) -> None:
    async def read() -> None:
        directory = write_tower_model(tmp_path, "gemma3")
        write_safetensors(directory / "model.safetensors", TOWERS["gemma3"].decoder.weights())
        model = await open_model(directory)
        assert model.vision is None
        check("gemma3", answers(model, [Prompt(stored("gemma3")["ids0"].tolist())]))
        close(model)

    anyio.run(read)
