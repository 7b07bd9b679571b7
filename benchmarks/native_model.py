"""A model that is opened as an engine opens it, to be called directly."""

from __future__ import annotations

__all__ = ("logits_of", "open_native_model")

from collections.abc import Sequence
from pathlib import Path

import anyio
import numpy as np
from numpy.typing import NDArray

from aiomlc import EngineConfig
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import OpenedModel, open_native


def open_native_model(path: Path | None, config: EngineConfig, device: str = "auto") -> OpenedModel:
    """Return the model of a directory or file, by default the bundled one."""
    facts = ModelFacts(find_model(path), config.quantization)
    return anyio.run(open_native, facts, device, "local", config, lambda _: None)


def logits_of(path: Path, prompt: Sequence[int], config: EngineConfig) -> NDArray[np.float32]:
    """Return the logits after each token, `[len(prompt), vocabulary]`."""
    model = open_native_model(path, config).native
    model.add_sequence(0)
    return np.concatenate([model.forward([(0, [token])]) for token in prompt])
