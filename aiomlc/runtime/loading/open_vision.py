"""Open the vision tower of a decoder that reads images."""

from __future__ import annotations

__all__ = ("open_vision",)

import dataclasses
import hashlib

from anyio import to_thread

from aiomlc.config import EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.models import VisionConfig
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import OnProgress
from aiomlc.runtime.native.tower import NativeTower
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.runtime.vision.processors import read_processor, with_known_token
from aiomlc.runtime.vision.tower_batcher import TowerBatcher
from aiomlc.runtime.vision.tower_model import TowerModel
from aiomlc.weights import map_weights


async def open_vision(
    facts: ModelFacts, tokenizer: Tokenizer, config: EngineConfig, report: OnProgress
) -> TowerModel | None:
    """Compile and convert the tower unless cached, and open it; None if the model has none.

    Towers run on the processor, whatever the device of the decoder is.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    tower = facts.tower
    if tower is None:
        return None

    await to_thread.run_sync(tower.check_tensors)
    own = dataclasses.replace(config, quantization=None, model_lib=None)
    prepared = await prepare_model(tower, "cpu", own, report)
    return await to_thread.run_sync(_assemble, tower, tokenizer, prepared)


def _assemble(facts: ModelFacts, tokenizer: Tokenizer, prepared: PreparedModel) -> TowerModel:
    directory, config = facts.directory, facts.config
    assert isinstance(config, VisionConfig)
    processor = with_known_token(read_processor(directory.files, config), tokenizer.token_id)
    token_id = tokenizer.token_id(processor.image_token)
    if token_id is None:
        raise ModelLoadError(
            f"{directory.path}: the tokenizer has no token {processor.image_token!r}, which stands "
            "for images",
            path=directory.path,
            field="image_token",
        )

    weights = prepared.weights
    params = map_weights(weights.path, weights.nbytes, weights.params)
    native = NativeTower(prepared.library, params, prepared.num_threads)
    # The packed file is in a directory that is named by the key of the weights.
    key = f"{weights.path.parent.name} {prepared.library.key} {processor!r}"
    return TowerModel(
        processor=processor,
        batcher=TowerBatcher(native, processor, native.vector("newline")),
        image_token_id=token_id,
        key=hashlib.sha256(key.encode()).digest(),
    )
