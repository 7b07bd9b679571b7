"""What a model directory says beside its weights: how to sample, and where an answer ends."""

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
_ENCODER_QUANTIZATION = "q0f32"  # Small models, whose vectors are compared with others'.
_CONFIG_FILES = ("mlc-chat-config.json", "config.json")
_GENERATION_FILES = ("mlc-chat-config.json", "generation_config.json")
_URLS = ("HF://", "http://", "https://")
_EOS_FILES = ("mlc-chat-config.json", "generation_config.json", "config.json")


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A directory in Hugging Face's or MLC's form."""

    path: Path

    def config(self) -> dict[str, Any]:
        """The model's own configuration: of MLC's form, else of Hugging Face's.

        Raises:
            ModelLoadError: there is none, or it is not a JSON object.
        """
        for name in _CONFIG_FILES:
            if config := self._read(name):
                return config

        raise ModelNotFoundError(
            f"cannot find {' or '.join(_CONFIG_FILES)} in {self.path}", path=self.path
        )

    def sampling_defaults(self) -> SamplingParams:
        """Return the model's own sampling parameters; the first file that has one decides.

        Raises:
            ModelLoadError: If a file is not JSON, or a value is out of range.
        """
        values: dict[str, Any] = {}
        for name in _GENERATION_FILES:
            config = self._read(name)
            if config.get("top_k") == -1:
                config["top_k"] = 0  # vLLM's convention for all tokens.

            found = {field: config.get(field) for field in MODEL_DEFAULTS}
            values = {**self._valid(name, found), **values}
            if config.get("do_sample") is False:
                values["temperature"] = 0.0
        return SamplingParams(**values)

    def eos_token_ids(self) -> Iterator[int]:
        """The ids that end an answer, from every file that names some.

        Raises:
            ModelLoadError: a file is not JSON, or an id is not an integer.
        """
        for name in _EOS_FILES:
            value = self._read(name).get("eos_token_id")
            ids = [] if value is None else value if isinstance(value, list) else [value]
            for token_id in ids:
                if not isinstance(token_id, int):
                    raise ModelLoadError(
                        f"{self.path / name}: eos_token_id is {value!r}",
                        path=self.path / name,
                        field="eos_token_id",
                    )
                yield token_id

    def eos_token(self) -> str | None:
        """The token that the tokenizer's configuration calls the end.

        Raises:
            ModelLoadError: the file is not JSON.
        """
        token = self._read("tokenizer_config.json").get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        return text if isinstance(text, str) else None

    def response_template(self) -> object:
        """What the tokenizer's configuration says of the form of answers; None if nothing.

        Raises:
            ModelLoadError: the file is not JSON.
        """
        return self._read("tokenizer_config.json").get("response_template")

    def _read(self, name: str) -> dict[str, Any]:
        """A JSON object; empty when there is no such file."""
        path = self.path / name
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ModelLoadError(f"{path} cannot be read: {error}", path=path) from error

        if not isinstance(content, dict):
            raise ModelLoadError(f"{path} is not a JSON object", path=path)

        return content

    def _valid(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
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
    """The directory of a model; None is the bundled one.

    Raises:
        BadRequestError: it is a URL.
        ModelNotFoundError: there is no such directory.
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
    """The directory of the model that guesses for another; the bundled one has its own.

    Raises:
        ModelLoadError: there is no such directory.
        BadRequestError: `small_draft` is wanted, and no model is named.
    """
    if config.speculative_mode != "small_draft":
        return None

    for model in config.additional_models:
        assert isinstance(model, str), "checked by the configuration"
        return find_model(model)

    if directory.path == BUNDLED.resolve():
        return find_model(BUNDLED_DRAFT)

    raise BadRequestError(
        "engine_config.additional_models has no model, small_draft needs one",
        param="additional_models",
    )


def choose_quantization(
    directory: ModelDirectory, description: ModelDescription, wanted: str | None
) -> str:
    """The name of the quantization to open a model in: its own, the wanted one or a default.

    Raises:
        BadRequestError: the weights are quantized already, and otherwise.
    """
    packed = description.quantization
    if packed is not None and wanted not in (None, packed):
        raise BadRequestError(
            f"{directory.path} is quantized as {packed} and cannot be opened as {wanted}",
            param="quantization",
        )

    is_encoder = isinstance(description.config, EncoderConfig)
    return packed or wanted or (_ENCODER_QUANTIZATION if is_encoder else _DEFAULT_QUANTIZATION)
