"""The default loader, and the constructor arguments that all engines share."""

from __future__ import annotations

__all__ = (
    "Loader",
    "ModelPath",
    "complete_config",
    "model_configs",
    "open_model",
    "require_model",
)

import dataclasses
import logging
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol, get_args

from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc.config import ECHO, EngineConfig, Mode
from aiomlc.errors import AiomlcError, BadRequestError, ModelNotFoundError
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.mock.model import echo_model
from aiomlc.sources.reference import HubReference, parse_source
from aiomlc.validation.arguments import check_choice, check_flag, check_path, check_type
from aiomlc.validation.shortages import names_shortages
from aiomlc.validation.tracebacks import keep_origin

ModelPath = str | PathLike[str]
_logger = logging.getLogger("aiomlc")


class Loader(Protocol):
    """A function that opens a model for an engine."""

    async def __call__(
        self,
        model: ModelPath | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel | LoadedEncoder:
        """Open a model.

        Cancelling the call frees everything that it has opened.

        Args:
            model: A directory, or a repository of the hub: `user/name`; None is the bundled model.
            device: The device to run on.
            mode: The preset of default sizes.
            engine_config: The configuration of the engine.
            on_progress: Called with the progress.

        Raises:
            ModelLoadError: If the model cannot be opened.
            BadRequestError: If the configuration is not supported for this model.
        """
        ...


def complete_config(
    config: EngineConfig | None,
    *,
    model: ModelPath | None,
    model_lib: ModelPath | None,
    mode: Mode,
    enable_tracing: bool = False,
) -> EngineConfig:
    """Return the configuration completed with the arguments of a constructor.

    If `model_lib` is `mock://echo`, so is the `model` of the result.

    Raises:
        BadRequestError: If an argument is not supported or contradicts the configuration.
        ModelNotFoundError: If `model_lib` is not a file.
    """
    config = EngineConfig() if config is None else config
    check_type("engine_config", config, EngineConfig, "an EngineConfig")
    check_path("model", model)
    check_path("model_lib", model_lib)
    check_choice("mode", mode, get_args(Mode))
    check_flag("enable_tracing", enable_tracing)
    path = None if model is None else fspath(model)
    _check_consistent("model", path, config.model)
    _check_consistent(
        "model_lib", None if model_lib is None else fspath(model_lib), config.model_lib
    )
    _check_consistent("mode", mode, config.mode)
    library = _find_library(model_lib, config.model_lib)
    if config.draft_model is not None and config.draft_model[1] is not None:
        _logger.warning(
            "the library %r in additional_models is ignored: the engine compiles the library of "
            "the draft model",
            config.draft_model[1],
        )

    if ECHO in (model_lib, config.model_lib):
        path = ECHO

    return dataclasses.replace(
        config,
        model=config.model if path is None else path,
        model_lib=library,
        mode=mode,
        enable_tracing=config.enable_tracing or enable_tracing,
    )


@names_shortages
async def open_model(
    model: ModelPath | None,
    *,
    device: str,
    mode: Mode,
    engine_config: EngineConfig,
    on_progress: Callable[[LoadProgress], None] | None,
) -> LoadedModel | LoadedEncoder:
    """Open a model directory, the bundled model or `mock://echo`: the default `Loader`."""
    if model == ECHO:
        await checkpoint()
        return echo_model()

    load = await to_thread.run_sync(_import_loader)
    try:
        return await load(
            model, device=device, mode=mode, engine_config=engine_config, on_progress=on_progress
        )
    except AiomlcError as error:
        raise keep_origin(error) from error.__cause__


def require_model(model: str | None) -> None:
    """Require that the directory of a model exists; its files are read when it is opened.

    A repository of the hub is not looked for: that needs the network.

    Raises:
        ModelNotFoundError: If it does not exist.
        BadRequestError: If `model` is a URL, or the name of a repository is malformed.
    """
    if model is None or model == ECHO or isinstance(parse_source(model), HubReference):
        return

    from aiomlc.runtime.loading.model_directory import find_model  # Imported late.

    find_model(model)


def require_config(model: str | None) -> None:
    """Require that the directory of a model exists and has a configuration file.

    Raises:
        ModelLoadError: If it has none, or one that is not JSON.
        BadRequestError: As `require_model`.
    """
    require_model(model)
    if model == ECHO or (model is not None and isinstance(parse_source(model), HubReference)):
        return

    from aiomlc.runtime.loading.model_directory import find_model  # Imported late.

    find_model(model).config()


def model_configs(config: EngineConfig) -> list[dict[str, Any]]:
    """Return the parsed configuration files of the model, then its draft model's, if it has one.

    Raises:
        ModelLoadError: If a file is missing or is not JSON.
        BadRequestError: If `small_draft` is configured without a draft model.
    """
    if config.model == ECHO:
        return []

    from aiomlc.runtime.loading.model_directory import find_draft, find_model  # Imported late.

    directory = find_model(config.model)
    draft = find_draft(directory, config)
    directories = [directory] if draft is None else [directory, draft]
    return [each.config() for each in directories]


def _import_loader() -> Loader:
    # Imported late, since the module's imports take half a second.
    from aiomlc.runtime.loading.open import load_any

    return load_any


def _check_consistent(name: str, argument: str | None, configured: str | None) -> None:
    if argument is not None and configured is not None and argument != configured:
        raise BadRequestError(
            f'The argument "{name}" of engine constructor is "{argument}", while the "{name}" '
            f'field in argument "engine_config" is "{configured}". Please set the '
            f'"engine_config.{name}" to None or set it to the same as the argument "{name}".',
            param=name,
        )


def _is_file(path: ModelPath) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # The name is too long, or a directory is not readable.
        return False


def _find_library(model_lib: ModelPath | None, configured: str | None) -> str | None:
    """Return the path of a library that `aiomlc compile` has written, or None.

    A library of MLC LLM is ignored with a warning, so that its programs run.

    Raises:
        ModelNotFoundError: If a library passed as an argument does not exist.
        ModelLoadError: If the file cannot be read.
    """
    if model_lib is not None and model_lib != ECHO and not _is_file(model_lib):
        raise ModelNotFoundError(
            f"the model_lib you passed in is not a file: {fspath(model_lib)}",
            path=model_lib,
            field="model_lib",
        )

    library = model_lib or configured
    if library in (None, ECHO):
        return None

    from aiomlc.compiler import is_foreign_library  # Imported late.

    assert library is not None
    path = fspath(library)
    if not is_foreign_library(Path(path)):
        return path

    _logger.warning(
        "model_lib %r was not written by `aiomlc compile` and is ignored: the engine compiles the "
        "library of the model",
        path,
    )
    return None
