"""Model directories: their sampling defaults, stop tokens and quantization."""

from __future__ import annotations

__all__ = (
    "BUNDLED_DRAFT",
    "ModelDirectory",
    "as_directory",
    "fetch_draft",
    "fetch_model",
    "find_draft",
    "find_model",
)

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from aiomlc.config import BUNDLED_FOLDER, BUNDLED_MODEL, EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError, ModelNotFoundError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.shards import find_gguf, model_name
from aiomlc.runtime.loading.progress import OnProgress, download_progress
from aiomlc.sampling_params import MODEL_DEFAULTS, SamplingParams
from aiomlc.sources.resolve import LocalModel, fetch, find_local
from aiomlc.validation.error_messages import describe_error
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import load_errors
from aiomlc.validation.model_formats import describe_missing
from aiomlc.validation.records import validate_fields

BUNDLED_DRAFT = BUNDLED_FOLDER / "pebble-draft"

_MLC_CONFIG = "mlc-chat-config.json"
_CONFIG_FILES = (_MLC_CONFIG, "config.json")
_GENERATION = "generation_config.json"
_GENERATION_FILES = (_MLC_CONFIG, _GENERATION)
_EOS_FILES = (_MLC_CONFIG, _GENERATION, "config.json")


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A directory in Hugging Face's or MLC's format, or a GGUF file in the place of one."""

    path: Path
    repository: str | None = None  #: The repository of the hub that it was downloaded from.
    files: ConfigFiles = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", ConfigFiles(self.path))

    @property
    def name(self) -> str:
        """The name of the model: that of its repository, of the directory or of the file."""
        name = model_name(self.path) if self.files.is_gguf else self.path.name
        return self.repository or name

    @property
    def is_mlc(self) -> bool:
        """Whether this is a directory in MLC's format."""
        return not self.files.is_gguf and (self.path / _MLC_CONFIG).exists()

    def config(self) -> dict[str, Any]:
        """Return the model's configuration: MLC's file if it exists, else Hugging Face's.

        Raises:
            ModelNotFoundError: If neither file exists.
            ModelLoadError: If a file is not a JSON object.
        """
        for name in _CONFIG_FILES:
            if config := self._read(name):
                return config

        raise ModelNotFoundError(
            f"cannot find {' or '.join(_CONFIG_FILES)} in {self.path}", path=self.path
        )

    def sampling_defaults(self) -> SamplingParams:
        """Return the model's sampling parameters; each comes from the first file that has it.

        Raises:
            ModelLoadError: If a file is not JSON, or a value is out of range.
        """
        values: dict[str, Any] = {}
        for name in _GENERATION_FILES:
            config = self._read(name)
            defaults = {field: config.get(field) for field in MODEL_DEFAULTS}
            values = {**self._validate(name, defaults), **values}
            if config.get("do_sample") is False:
                values["temperature"] = 0.0
        return SamplingParams(**values)

    def eos_token_ids(self, vocab_size: int) -> Iterator[int]:
        """Yield the end-of-sequence ids of all configuration files.

        Raises:
            ModelLoadError: If a file is not a JSON object, or an id is not an integer within the
                vocabulary.
        """
        for name in _EOS_FILES:
            value = self._read(name).get("eos_token_id")
            ids = [] if value is None else value if isinstance(value, list) else [value]
            for token_id in ids:
                if type(token_id) is not int or not 0 <= token_id < vocab_size:
                    raise self._error(
                        name,
                        "eos_token_id",
                        f"must be one or several token ids in [0, {vocab_size}), "
                        f"got {safe_repr(token_id)}",
                    )
                yield token_id

    def suppress_tokens(self, vocab_size: int) -> tuple[int, ...]:
        """Return the token ids that transformers never generates; unknown ones are left out.

        Raises:
            ModelLoadError: If the file is not a JSON object, or has no list of integers.
        """
        name = "suppress_tokens"
        values = self._read(_GENERATION).get(name)
        if values is None:
            return ()

        if not isinstance(values, list) or any(type(value) is not int for value in values):
            problem = f"must be a list of token ids, got {safe_repr(values)}"
            raise self._error(_GENERATION, name, problem)

        return tuple(sorted({value for value in values if 0 <= value < vocab_size}))

    def eos_token(self) -> str | None:
        """Return the `eos_token` of the tokenizer's configuration, or None.

        Raises:
            ModelLoadError: If the file is not a JSON object.
        """
        token = self._read("tokenizer_config.json").get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        return text if isinstance(text, str) else None

    def response_template(self) -> object:
        """Return the `response_template` of the tokenizer's configuration, or None.

        Raises:
            ModelLoadError: If the file is not a JSON object.
        """
        return self._read("tokenizer_config.json").get("response_template")

    def _read(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file; empty if the file does not exist."""
        return self.files.object(name) or {}

    def _error(self, name: str, field: str, problem: str) -> ModelLoadError:
        path = self.files.path(name)
        return ModelLoadError(f"{path}: {field} {problem}", path=path, field=field)

    def _validate(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values that are not None, validated."""
        params = SamplingParams(**values)
        try:
            validate_fields(params, lambda field, error: f"{field} {describe_error(error)}")
        except BadRequestError as error:
            path = self.files.path(name)
            raise ModelLoadError(f"{path}: {error}", path=path, field=error.param) from None

        valid = {field: getattr(params, field) for field in values}
        return {field: value for field, value in valid.items() if value is not None}


def find_model(model: str | PathLike[str] | None) -> ModelDirectory:
    """Return the directory of a model that is on this computer; None is the bundled model.

    Raises:
        BadRequestError: If the name of a repository is malformed.
        ModelNotFoundError: If the directory does not exist, or the model was not downloaded.
    """
    return as_directory(find_local(BUNDLED_MODEL if model is None else model))


async def fetch_model(model: str | PathLike[str] | None, on_progress: OnProgress) -> ModelDirectory:
    """Return the directory of a model, which is downloaded if it is a repository of the hub.

    Raises:
        BadRequestError: If the name of a repository is malformed.
        ModelNotFoundError: If neither a directory nor a repository has this name.
        ModelDownloadError: If the model cannot be downloaded.
    """
    source = BUNDLED_MODEL if model is None else model
    return as_directory(await fetch(source, lambda done: on_progress(download_progress(done))))


def as_directory(local: LocalModel) -> ModelDirectory:
    """Return the directory, or the GGUF file, at a path.

    Raises:
        ModelNotFoundError: If there is none.
        ModelLoadError: If it cannot be read, or has several GGUF models.
    """
    path = local.path
    with load_errors(path):
        if (file := find_gguf(path)) is not None:
            # The hub's cache has links, whose targets are not called `.gguf`.
            return ModelDirectory(file.parent.resolve() / file.name, local.repository)

        if path.is_dir():
            return ModelDirectory(path.resolve(), local.repository)

    raise ModelNotFoundError(
        f"cannot find model {path}: {describe_missing(path)}",
        path=path,
        field="model",
    )


async def fetch_draft(config: EngineConfig, on_progress: OnProgress) -> None:
    """Download the draft model, if one is configured and is a repository of the hub.

    Raises:
        ModelLoadError: As `fetch_model`.
    """
    if config.speculative_mode == "small_draft" and config.draft_model is not None:
        await fetch_model(config.draft_model[0], on_progress)


def find_draft(directory: ModelDirectory, config: EngineConfig) -> ModelDirectory | None:
    """Return the directory of the draft model, if one is configured.

    The bundled model has a default draft model.

    Raises:
        ModelNotFoundError: If the directory does not exist.
        BadRequestError: If `small_draft` is configured without a draft model.
    """
    if config.speculative_mode != "small_draft":
        return None

    if config.draft_model is not None:
        return find_model(config.draft_model[0])

    if directory.path == BUNDLED_MODEL.resolve():
        return find_model(BUNDLED_DRAFT)

    raise BadRequestError(
        "engine_config.additional_models must name the draft model for small_draft, got none",
        param="additional_models",
    )
