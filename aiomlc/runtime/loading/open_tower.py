"""Open the tower of a decoder that reads images or audio, or of a model that embeds images."""

from __future__ import annotations

__all__ = ("OpenedTower", "open_image_embedder", "open_tower")

import dataclasses
import hashlib
from typing import Any, Final, NamedTuple

from anyio import to_thread

from aiomlc.config import EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.models import AudioConfig, VisionConfig
from aiomlc.runtime.audio.recording import Recording
from aiomlc.runtime.embedding.image_embedder import ImageEmbedder
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import OnProgress
from aiomlc.runtime.native.tower import NativeTower
from aiomlc.runtime.speech.audio_reader import AudioReader
from aiomlc.runtime.speech.generation import read_chunk_features
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.runtime.towers.tower_batcher import TowerBatcher
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.runtime.vision.image_reader import ImageReader, PromptImageReader
from aiomlc.runtime.vision.processors import (
    read_pooled_processor,
    read_processor,
    with_known_token,
)
from aiomlc.weights import map_weights

_AUDIO_TOKEN: Final = "<|audio_pad|>"


class OpenedTower(NamedTuple):
    """The tower of a decoder, by what it reads; both are None if it has none."""

    vision: TowerModel[ImageData] | None = None
    audio: TowerModel[Recording] | None = None
    audio_rows_per_second: float = 0.0


async def open_tower(
    facts: ModelFacts, tokenizer: Tokenizer, config: EngineConfig, report: OnProgress
) -> OpenedTower:
    """Compile and convert the tower unless cached, and open it.

    Towers run on the processor, whatever the device of the decoder is.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    if (tower := facts.tower) is None:
        return OpenedTower()

    prepared = await _prepare(tower, config, report)
    return await to_thread.run_sync(_assemble, tower, tokenizer, prepared)


async def open_image_embedder(
    facts: ModelFacts, config: EngineConfig, report: OnProgress
) -> ImageEmbedder | None:
    """Open the tower of a model that embeds texts and images; None if its files have none.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    if (tower := facts.tower) is None:
        return None

    prepared = await _prepare(tower, config, report)
    return await to_thread.run_sync(_assemble_embedder, tower, prepared)


async def _prepare(tower: ModelFacts, config: EngineConfig, report: OnProgress) -> PreparedModel:
    await to_thread.run_sync(tower.check_tensors)
    own = dataclasses.replace(config, quantization=None, model_lib=None)
    return await prepare_model(tower, "cpu", own, report)


def _assemble_embedder(facts: ModelFacts, prepared: PreparedModel) -> ImageEmbedder:
    config = facts.config
    assert isinstance(config, VisionConfig)
    processor = read_pooled_processor(facts.directory.files, config)
    reader = ImageReader(_native(prepared), processor)
    return ImageEmbedder(TowerBatcher(reader), num_tokens=config.num_positions)


def _native(prepared: PreparedModel) -> NativeTower:
    weights = prepared.weights
    params = map_weights(weights.path, weights.nbytes, weights.params)
    return NativeTower(prepared.library, params, prepared.num_threads)


def _assemble(facts: ModelFacts, tokenizer: Tokenizer, prepared: PreparedModel) -> OpenedTower:
    files, config, native = facts.directory.files, facts.config, _native(prepared)
    if isinstance(config, AudioConfig):
        features = read_chunk_features(files, config)
        audio = AudioReader(native, config, features.log_mel, _AUDIO_TOKEN, features.min_samples)
        model = _model(audio, repr(features), facts, tokenizer, prepared)
        return OpenedTower(audio=model, audio_rows_per_second=audio.rows_per_second)

    assert isinstance(config, VisionConfig)
    processor = with_known_token(read_processor(files, config), tokenizer.token_id)
    vision = PromptImageReader(native, processor, native.vector("newline"))
    return OpenedTower(vision=_model(vision, repr(processor), facts, tokenizer, prepared))


def _model(
    reader: Any,  # noqa: ANN401 - a reader of either kind.
    settings: str,
    facts: ModelFacts,
    tokenizer: Tokenizer,
    prepared: PreparedModel,
) -> TowerModel[Any]:
    """Return the model of a reader, whose inputs have `settings`."""
    path = facts.directory.path
    token_id = tokenizer.token_id(reader.token)
    if token_id is None:
        raise ModelLoadError(
            f"{path}: the tokenizer has no token {reader.token!r}, which stands for "
            f"{reader.item_name}s",
            path=path,
            field=f"{reader.item_name}_token",
        )

    # The packed file is in a directory that is named by the key of the weights.
    key = f"{prepared.weights.path.parent.name} {prepared.library.key} {settings}"
    return TowerModel(
        reader=reader,
        batcher=TowerBatcher(reader),
        token_id=token_id,
        key=hashlib.sha256(key.encode()).digest(),
    )
