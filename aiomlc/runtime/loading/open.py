"""Open a decoder or an encoder, depending on the model's configuration."""

from __future__ import annotations

__all__ = ("load_any",)

from os import PathLike

from anyio import to_thread

from aiomlc.config import EngineConfig, Mode
from aiomlc.models import EncoderConfig, read_description
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel, LoadProgress
from aiomlc.runtime.loading.model_directory import fetch_model
from aiomlc.runtime.loading.open_decoder import OnProgress, load_decoder
from aiomlc.runtime.loading.open_encoder import load_encoder


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
    directory = await fetch_model(model, on_progress or _ignore)
    description = await to_thread.run_sync(read_description, directory.path)
    if not isinstance(description.config, EncoderConfig):
        return await load_decoder(
            directory, device=device, mode=mode, config=engine_config, report=on_progress or _ignore
        )

    return await load_encoder(
        directory, device=device, engine_config=engine_config, report=on_progress or _ignore
    )


def _ignore(progress: LoadProgress) -> None:
    pass
