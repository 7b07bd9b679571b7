"""Model directories: their sampling defaults, stop tokens and quantization."""

from __future__ import annotations

__all__ = (
    "BUNDLED",
    "BUNDLED_DRAFT",
    "ModelDirectory",
    "choose_quantization",
    "find_draft",
    "find_model",
)

import json
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError, ModelNotFoundError
from aiomlc.models import EncoderConfig, ModelDescription
from aiomlc.sampling_params import MODEL_DEFAULTS, SamplingParams
from aiomlc.validation.error_messages import describe_error
from aiomlc.validation.records import validate_fields

BUNDLED = Path(__file__).parents[2] / "bundled" / "pebble"
BUNDLED_DRAFT = BUNDLED.with_name("pebble-draft")

_DEFAULT_QUANTIZATION = "q4f16_1"
_ENCODER_QUANTIZATION = "q0f32"  # Encoders are small, and embeddings are compared numerically.
_CONFIG_FILES = ("mlc-chat-config.json", "config.json")
_GENERATION_FILES = ("mlc-chat-config.json", "generation_config.json")
_URLS = ("HF://", "http://", "https://")
_EOS_FILES = ("mlc-chat-config.json", "generation_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A directory in Hugging Face's or MLC's format."""

    path: Path

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
            if config.get("top_k") == -1:
                config["top_k"] = 0  # vLLM's convention for all tokens.

            defaults = {field: config.get(field) for field in MODEL_DEFAULTS}
            values = {**self._validate(name, defaults), **values}
            if config.get("do_sample") is False:
                values["temperature"] = 0.0
        return SamplingParams(**values)

    def eos_token_ids(self) -> Iterator[int]:
        """Yield the end-of-sequence ids of all configuration files.

        Raises:
            ModelLoadError: If a file is not a JSON object, or an id is not an integer.
        """
        for name in _EOS_FILES:
            value = self._read(name).get("eos_token_id")
            ids = [] if value is None else value if isinstance(value, list) else [value]
            for token_id in ids:
                if not isinstance(token_id, int):
                    path = self.path / name
                    raise ModelLoadError(
                        f"{path}: eos_token_id must be one or several integers, got {value!r}",
                        path=path,
                        field="eos_token_id",
                    )
                yield token_id

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
        path = self.path / name
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ModelLoadError(f"{path} cannot be read: {error}", path=path) from error

        if not isinstance(content, dict):
            raise ModelLoadError(f"{path} must be a JSON object", path=path)

        return content

    def _validate(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values that are not None, validated."""
        params = SamplingParams(**values)
        try:
            validate_fields(params, lambda field, error: f"{field} {describe_error(error)}")
        except BadRequestError as error:
            path = self.path / name
            raise ModelLoadError(f"{path}: {error}", path=path, field=error.param) from None

        valid = {field: getattr(params, field) for field in values}
        return {field: value for field, value in valid.items() if value is not None}


def find_model(model: str | PathLike[str] | None) -> ModelDirectory:
    """Return the directory of a model; None is the bundled model.

    Raises:
        BadRequestError: If `model` is a URL.
        ModelNotFoundError: If the directory does not exist.
    """
    path = BUNDLED if model is None else Path(model).expanduser()
    if str(model).startswith(_URLS):
        raise BadRequestError(
            f"model {str(model)!r} is a URL: downloads are not supported yet; pass a directory",
            param="model",
        )

    if not path.is_dir():
        raise ModelNotFoundError(
            f"cannot find model {path}: no such directory", path=path, field="model"
        )

    return ModelDirectory(path.resolve())


def find_draft(directory: ModelDirectory, config: EngineConfig) -> ModelDirectory | None:
    """Return the directory of the draft model, if one is configured.

    The bundled model has a default draft model.

    Raises:
        ModelNotFoundError: If the directory does not exist.
        BadRequestError: If `small_draft` is configured without a draft model.
    """
    if config.speculative_mode != "small_draft":
        return None

    for model in config.additional_models:
        assert isinstance(model, str), "checked by the configuration"
        return find_model(model)

    if directory.path == BUNDLED.resolve():
        return find_model(BUNDLED_DRAFT)

    raise BadRequestError(
        "engine_config.additional_models must name the draft model for small_draft, got none",
        param="additional_models",
    )


def choose_quantization(
    directory: ModelDirectory, description: ModelDescription, requested: str | None
) -> str:
    """Return the quantization of the weight files, else the requested or the default one.

    Raises:
        BadRequestError: If the weight files have another quantization than the requested one.
    """
    stored = description.quantization
    if stored is not None and requested not in (None, stored):
        raise BadRequestError(
            f"{directory.path} is quantized as {stored} and cannot be opened as {requested}",
            param="quantization",
        )

    is_encoder = isinstance(description.config, EncoderConfig)
    return stored or requested or (_ENCODER_QUANTIZATION if is_encoder else _DEFAULT_QUANTIZATION)
