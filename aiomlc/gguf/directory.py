"""The configuration files of a model: those of a directory, or what a GGUF file has for them.

All that reads a config, a chat template or sampling defaults gets the `ConfigFiles` of the model.
So there is one way to read them, whatever they come from, and each file is read once.
"""

from __future__ import annotations

__all__ = ("ConfigFiles",)

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from aiomlc.gguf.config import config_fields
from aiomlc.gguf.mmproj import find_mmproj, image_settings
from aiomlc.gguf.model import GGUFModel, read_gguf
from aiomlc.gguf.shards import is_gguf
from aiomlc.gguf.text_files import read_special_tokens
from aiomlc.validation.model_files import load_errors, read_optional

_TEMPLATE = "tokenizer.chat_template"
_SUPPRESSED = "tokenizer.ggml.suppress_tokens"
_IMAGES = "preprocessor_config.json"
_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


@final
class ConfigFiles:
    """The configuration files of one model, as they were when they were first read.

    Args:
        model: The directory of a model, or a GGUF file.
    """

    def __init__(self, model: Path) -> None:
        self.model = model
        self.is_gguf: bool = is_gguf(model)
        self._objects: dict[str, dict[str, Any] | None] = {}

    def object(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file, or None if the model has no such file.

        Args:
            name: The name of the file in a directory, such as `generation_config.json`.

        Raises:
            ModelLoadError: If the file cannot be read or is not a JSON object, or if the GGUF file
                is invalid.
        """
        if name not in self._objects:
            self._objects[name] = self._read(name)

        return self._objects[name]

    def path(self, name: str) -> Path:
        """Return the path of a file, for messages: a GGUF file contains all of them."""
        return self.model if self.is_gguf else self.model / name

    def _read(self, name: str) -> dict[str, Any] | None:
        if not self.is_gguf:
            return read_optional(self.model / name)

        if name == _IMAGES:
            with load_errors(self.model):
                tower = find_mmproj(self.model)
                return None if tower is None else image_settings(tower)

        if name not in _OBJECTS:
            return None

        with load_errors(self.model):
            return _OBJECTS[name](read_gguf(self.model))


def _config(model: GGUFModel) -> dict[str, Any]:
    return dict(config_fields(model).values)


def _tokenizer_config(model: GGUFModel) -> dict[str, Any]:
    return {**read_special_tokens(model).texts, "chat_template": _chat_template(model)}


def _generation_config(model: GGUFModel) -> dict[str, Any]:
    fields: dict[str, Any] = {"eos_token_id": read_special_tokens(model).end_ids}
    if _SUPPRESSED in model.metadata:
        fields["suppress_tokens"] = model.metadata.integers(_SUPPRESSED)
    for field, suffix in _SAMPLING.items():
        if (key := f"general.sampling.{suffix}") in model.metadata:
            fields[field] = model.metadata.value(key)
    return fields


def _chat_template(model: GGUFModel) -> list[dict[str, str]]:
    """Return the named templates; that of the key without a name is the default."""
    named = ((key, key.removeprefix(_TEMPLATE)) for key in sorted(model.metadata.keys()))
    return [
        {"name": suffix[1:] or "default", "template": model.metadata.string(key)}
        for key, suffix in named
        if suffix == "" or (suffix != key and suffix.startswith("."))
    ]


_OBJECTS: Mapping[str, Callable[[GGUFModel], dict[str, Any]]] = MappingProxyType(
    {
        "config.json": _config,
        "generation_config.json": _generation_config,
        "tokenizer_config.json": _tokenizer_config,
    }
)
