"""Pooling of an encoder's hidden states to one vector, and its configuration."""

from __future__ import annotations

__all__ = ("Pooling", "SentenceConfig", "l2_normalize", "pool", "read_sentence_config")

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.fields import Fields
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import read_json

_logger = logging.getLogger("aiomlc")

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pooling = Literal["mean", "cls", "last"]

_POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
_MODES: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_JSON_TYPES: dict[type[Any], str] = {dict: "object", list: "array"}


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """The embedding settings of a model directory."""

    pooling: Pooling = "mean"
    max_tokens: int | None = None  #: The maximum input length; None means that of the model.
    normalize: bool = True  #: Whether embeddings are L2-normalized by default.


def pool(states: NDArray[np.float32], pooling: Pooling) -> NDArray[np.float32]:
    """Return the pooled vector (`[hidden]`) of hidden states (`[tokens, hidden]`)."""
    match pooling:
        case "mean":
            pooled = states.mean(axis=0, dtype=np.float64)
        case "cls":
            pooled = states[0]
        case "last":
            pooled = states[-1]

    # `astype` copies, so that the vector does not keep `states` alive.
    vector: NDArray[np.float32] = pooled.astype(np.float32)
    return vector


def l2_normalize(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vector divided by its L2 norm; a zero vector is returned unchanged."""
    wide = vector.astype(np.float64)
    norm = np.sqrt(np.dot(wide, wide))
    unit: NDArray[np.float32] = (wide / (norm or 1.0)).astype(np.float32)
    return unit


def read_sentence_config(files: ConfigFiles, default: Pooling = "mean") -> SentenceConfig:
    """Read the embedding settings of a model directory.

    The files of sentence-transformers take precedence: `modules.json`, the pooling configuration
    that this file names, and `sentence_bert_config.json`. Next is the `embedding_metadata` of
    `mlc-chat-config.json`. Without either, the pooling is that of the program which reads such a
    directory: "cls" for MLC's (MLC LLM), "mean" for Hugging Face's (sentence-transformers).

    Args:
        default: The pooling of a Hugging Face directory that has neither.

    Raises:
        ModelLoadError: If a file is invalid or requires an unsupported module or pooling.
    """
    settings = _mlc_settings(files) or SentenceConfig(default)
    pooling = _module_pooling(files.path("modules.json"))
    if pooling is None:
        _logger.info("%s: embeddings are pooled by %r", files.model, settings.pooling)
    max_tokens = _max_tokens(files.path("sentence_bert_config.json"))
    return replace(settings, pooling=pooling or settings.pooling, max_tokens=max_tokens)


def _mlc_settings(files: ConfigFiles) -> SentenceConfig | None:
    """Return the settings of MLC's configuration file; None if it does not exist."""
    path = files.path("mlc-chat-config.json")
    config = files.object(path.name)
    if config is None:
        return None

    fields = Fields(config, path).nested("embedding_metadata")
    fields.choice("model_type", ("encoder",), "encoder")
    pooling = fields.choice("pooling_strategy", _POOLINGS, "cls")
    return SentenceConfig(
        _POOLINGS[_POOLINGS.index(pooling)], normalize=fields.boolean("normalize", True)
    )


def _max_tokens(path: Path) -> int | None:
    max_tokens = (_read_json(path, dict) or {}).get("max_seq_length")
    if max_tokens is None or (type(max_tokens) is int and max_tokens > 0):
        return max_tokens

    raise ModelLoadError(
        f"{path}: max_seq_length must be a positive integer, got {safe_repr(max_tokens)}",
        path=path,
        field="max_seq_length",
    )


def _module_pooling(path: Path) -> Pooling | None:
    pooling: Pooling | None = None
    for module in _read_json(path, list) or ():
        kind = str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else "?"
        if kind == "Pooling":
            pooling = _pooling_mode(_module_directory(path, module) / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise ModelLoadError(
                f"{path}: module {kind!r} is not supported; supported: Transformer, Pooling, "
                "Normalize",
                path=path,
            )

    return pooling


def _module_directory(path: Path, module: dict[str, Any]) -> Path:
    name = module.get("path")
    if not isinstance(name, str) or Path(name).name != name or name == "..":
        raise ModelLoadError(
            f"{path}: path of the module Pooling must be the name of a directory, "
            f"got {safe_repr(name)}",
            path=path,
            field="path",
        )

    return path.parent / name


def _pooling_mode(path: Path) -> Pooling:
    config = _read_json(path, dict)
    if config is None:
        raise ModelLoadError(f"{path} is missing", path=path)

    fields = Fields(config, path)
    # Newer releases write one string in place of flags.
    name = "pooling_mode"
    modes = [fields.string(name)] if name in fields else _enabled_modes(fields, list(config))
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ModelLoadError(
            f"{path}: pooling {'+'.join(modes) or 'none'} is not supported; supported: one of "
            f"{', '.join(_POOLINGS)}",
            path=path,
        )

    return _POOLINGS[_POOLINGS.index(modes[0])]


def _enabled_modes(fields: Fields, names: list[str]) -> list[str]:
    return [
        _MODES.get(name, name.removeprefix("pooling_mode_"))
        for name in names
        if name.startswith("pooling_mode_") and fields.boolean(name, False)
    ]


def _read_json(path: Path, kind: type[Any]) -> Any:  # noqa: ANN401 - JSON.
    """Return the JSON value of a file, which must have this type; None if there is no file."""
    try:
        value = read_json(path)
    except ModelNotFoundError:
        return None

    if not isinstance(value, kind):
        raise ModelLoadError(f"{path}: expected a JSON {_JSON_TYPES[kind]}", path=path)

    return value
