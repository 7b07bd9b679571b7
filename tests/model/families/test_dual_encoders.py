"""CLIP and SigLIP embed texts and images as transformers does, in one space."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError, BadRequestError, InputTooLongError, ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import VisionConfig, read_description
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.processors import read_pooled_processor
from aiomlc.tools.convert import convert_weights
from tests.model.make_dual_reference import reference_embeddings
from tests.model.tiny_dual import CONFIGS, IMAGES, TEXTS, dual_weights, write_dual_model
from tests.model.tiny_models import write_safetensors

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")

REFERENCE = Path(__file__).parents[1] / "reference" / "dual.npz"
PICTURES = [ImageData(image) for image in IMAGES]
Directory = Callable[[str], Path]
Rows = NDArray[np.float32]


@pytest.fixture(scope="session")
def dual_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Return a function that writes a model, and returns its directory."""
    root = tmp_path_factory.mktemp("tiny_dual")
    return cache(lambda name: write_dual_model(root / name, name))


def stored(name: str, kind: str) -> Rows:
    with np.load(REFERENCE) as file:
        rows: Rows = file[f"{name}_{kind}"]
        return rows


def units(rows: Rows) -> Rows:
    result: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return result


async def embed(engine: AsyncMLCEngine, inputs: list[object], **options: object) -> Rows:
    response = await engine.embeddings.create(
        input=inputs,  # type: ignore[arg-type]
        truncate=True,
        **options,  # type: ignore[arg-type]
    )
    assert [item.index for item in response.data] == list(range(len(inputs)))
    return np.array([item.embedding for item in response.data], np.float32)


@pytest.mark.parametrize("name", CONFIGS)
async def test_embeddings_equal_transformers_in_any_batch(
    dual_directory: Directory, name: str
) -> None:
    config = EngineConfig(num_threads=2)
    texts, images = stored(name, "texts"), stored(name, "images")
    mixed: list[object] = [*TEXTS[:3], *PICTURES[:2], *TEXTS[3:], *PICTURES[2:]]
    order = [0, 1, 2, 6, 7, 3, 4, 5, 8, 9]
    async with AsyncMLCEngine(dual_directory(name), engine_config=config) as engine:
        together = await embed(engine, mixed)
        raw = await embed(engine, mixed, normalize=False)
    alone: dict[int, Rows] = {}
    async with AsyncMLCEngine(dual_directory(name), engine_config=config) as engine:

        async def run(index: int, item: object) -> None:
            alone[index] = await embed(engine, [item])

        for index, item in list(enumerate(mixed))[::2]:
            await run(index, item)
        async with create_task_group() as tasks:
            for index, item in list(enumerate(mixed))[1::2]:
                tasks.start_soon(run, index, item)

    expected = np.concatenate([texts, images])[order]
    assert np.abs(together - units(expected)).max() <= 1e-5
    assert np.abs(raw - expected).max() <= 2e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(np.concatenate([alone[i] for i in range(10)]), together)


@pytest.mark.parametrize("name", CONFIGS)
def test_pixels_equal_transformers_bit_for_bit(dual_directory: Directory, name: str) -> None:
    directory = dual_directory(name)
    config = read_description(directory).tower
    assert isinstance(config, VisionConfig)
    processor = read_pooled_processor(ConfigFiles(directory), config)

    for picture, digest in zip(PICTURES, stored(name, "pixels"), strict=True):
        patches = processor.process(picture).inputs["patches"][int(config.has_class_token) :]
        assert hashlib.sha256(patches.tobytes()).digest() == digest.tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_embeddings_are_those_of_transformers(name: str) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")

    for kind, rows in reference_embeddings(name).items():
        np.testing.assert_allclose(rows, stored(name, kind), atol=1e-5)


@pytest.mark.parametrize("name", ["clip", "siglip"])
@pytest.mark.parametrize(
    ("settings", "cosine"),
    [
        ({"quantization": "q0bf16"}, 0.999),
        ({"quantization": "q8_0"}, 0.995),
        ({"quantization": "w8a8"}, 0.99),
        ({"vision_quantization": "q8_0"}, 0.995),
    ],
    ids=["q0bf16", "q8_0", "w8a8", "tower"],
)
async def test_other_precisions_keep_the_directions(
    dual_directory: Directory, name: str, settings: dict[str, Any], cosine: float
) -> None:
    config = EngineConfig(num_threads=2, **settings)
    async with AsyncMLCEngine(dual_directory(name), engine_config=config) as engine:
        rows = await embed(engine, [*TEXTS, *PICTURES])

    exact = units(np.concatenate([stored(name, "texts"), stored(name, "images")]))
    cosines = (rows * exact).sum(axis=1)
    assert cosines.min() >= cosine
    is_exact = np.abs(rows - exact).max(axis=1) <= 1e-5
    rounded = {
        "texts": "quantization" in settings,
        "images": settings.get("quantization") != "w8a8",
    }
    assert not is_exact[: len(TEXTS)].any() if rounded["texts"] else is_exact[: len(TEXTS)].all()
    assert not is_exact[len(TEXTS) :].any() if rounded["images"] else is_exact[len(TEXTS) :].all()


@pytest.mark.parametrize(("name", "limit"), [("clip", 24), ("siglip", 16)])
async def test_a_longer_text_is_refused_unless_it_is_truncated(
    dual_directory: Directory, name: str, limit: int
) -> None:
    async with AsyncMLCEngine(dual_directory(name)) as engine:
        with pytest.raises(InputTooLongError, match=rf"input\[1\].* {limit}"):
            await engine.embeddings.create(input=["a", "x" * 70])

        whole = await engine.embeddings.create(input=["x" * 70], truncate=True)
        short = await engine.embeddings.create(input=["a cat"])

    assert whole.usage.prompt_tokens == limit
    # Padding is no text.
    assert 1 < short.usage.prompt_tokens < 8


async def test_tokens_of_images_are_those_of_the_tower(dual_directory: Directory) -> None:
    counts = {}
    for name in ("clip", "siglip"):
        async with AsyncMLCEngine(dual_directory(name)) as engine:
            response = await engine.embeddings.create(input=PICTURES[0])
        counts[name] = response.usage.total_tokens

    assert counts == {"clip": 1 + 4 * 4, "siglip": 7 * 7}


async def test_a_text_ranks_texts_by_the_same_vectors(dual_directory: Directory) -> None:
    vectors = units(stored("siglip", "texts"))
    async with AsyncMLCEngine(dual_directory("siglip")) as engine:
        response = await engine.score([(TEXTS[0], TEXTS[2]), (TEXTS[0], TEXTS[1])])

    expected = [float(vectors[0] @ vectors[2]), float(vectors[0] @ vectors[1])]
    assert [item.score for item in response.data] == pytest.approx(expected, abs=1e-5)


def rewrite(directory: Path, name: str, **changes: Any) -> Path:  # noqa: ANN401
    write_dual_model(directory, name)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    for part, values in changes.items():
        config[part] = config[part] | values if isinstance(values, dict) else values
    path.write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("siglip", {"vision_config": {"vision_use_head": False}}, "vision_use_head"),
        ("siglip", {"text_config": {"projection_size": 48}}, "projection_size"),
        ("siglip", {"text_config": {"pad_token_id": 32}}, "pad_token_id"),
        ("clip", {"text_config": {"hidden_act": "tanh"}}, "hidden_act"),
        ("clip", {"text_config": {"max_position_embeddings": 25}}, "position_embedding.weight"),
        ("clip", {"projection_dim": 41}, "visual_projection.weight"),
        ("clip", {"vision_config": {"image_size": 57}}, "crop_size"),
        ("clip", {"text_config": {"vocab_size": 521}}, "token_embedding.weight"),
    ],
)
async def test_a_config_that_does_not_fit_is_refused_by_name(
    model_cache: Path, tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    directory = rewrite(tmp_path / name, name, **changes)

    with pytest.raises(ModelLoadError, match=message):
        async with AsyncMLCEngine(directory):
            pass


async def test_a_directory_without_a_vision_tower_embeds_texts(
    model_cache: Path, tmp_path: Path
) -> None:
    directory = write_dual_model(tmp_path / "text", "clip")
    weights = dual_weights(directory)
    text = {name: value for name, value in weights.items() if not name.startswith("vis")}
    write_safetensors(directory / "model.safetensors", text)

    async with AsyncMLCEngine(directory) as engine:
        rows = await embed(engine, [*TEXTS])
        with pytest.raises(BadRequestError, match="embeds no images"):
            await engine.embeddings.create(input=PICTURES[0])

    assert np.abs(rows - units(stored("clip", "texts"))).max() <= 1e-5


async def test_a_converter_to_mlcs_format_refuses_the_model(
    dual_directory: Directory, tmp_path: Path
) -> None:
    with pytest.raises(AiomlcError, match="clip"):
        await convert_weights(dual_directory("clip"), tmp_path / "out", quantization="q0f32")
