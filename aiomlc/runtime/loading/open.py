"""Open a decoder, an encoder or a speech model, depending on the model's configuration."""

from __future__ import annotations

__all__ = ("load_any",)

from os import PathLike

from anyio import to_thread

from aiomlc.config import EngineConfig, Mode
from aiomlc.runtime.loading.auto_device import device_of_kind
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel
from aiomlc.runtime.loading.model_directory import fetch_model
from aiomlc.runtime.loading.open_decoder import load_decoder
from aiomlc.runtime.loading.open_encoder import load_encoder
from aiomlc.runtime.loading.open_speech import load_speech
from aiomlc.runtime.loading.progress import OnProgress, ignore_progress


async def load_any(
    model: str | PathLike[str] | None,
    *,
    device: str,
    mode: Mode,
    engine_config: EngineConfig,
    on_progress: OnProgress | None,
) -> LoadedModel | LoadedEncoder:
    """Open a model directory for serving; None is the bundled model.

    Raises:
        ModelDownloadError: If the model cannot be downloaded.
        ModelLoadError: If a file, tensor or field is missing or invalid.
        InsufficientMemoryError: If the memory does not hold the model.
        CompileError: If the library cannot be compiled.
    """
    report = on_progress or ignore_progress
    facts = ModelFacts(
        await fetch_model(model, report),
        engine_config.quantization,
        vision_quantization=engine_config.vision_quantization,
    )
    kind = await to_thread.run_sync(lambda: facts.config.kind)
    device = device_of_kind(device, kind)
    match kind:
        case "encoder":
            load = load_encoder
        case "speech":
            load = load_speech
        case _:
            return await load_decoder(
                facts, device=device, mode=mode, config=engine_config, report=report
            )
    return await load(facts, device=device, engine_config=engine_config, report=report)
