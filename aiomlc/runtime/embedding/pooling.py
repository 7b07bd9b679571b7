"""Pooling of an encoder's hidden states to one vector, and its configuration."""

from __future__ import annotations

__all__ = (
    "Pooling",
    "ScoreTokens",
    "SentenceConfig",
    "l2_normalize",
    "pool",
    "read_sentence_config",
)

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.model import read_gguf
from aiomlc.models.config.fields import Fields
from aiomlc.runtime.embedding.dense import DenseLayer, read_dense
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import read_json, read_object

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
_GGUF_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
_GGUF_RANK = 4  # The type of rerankers.
_JSON_TYPES: dict[type[Any], str] = {dict: "object", list: "array"}


class ScoreTokens(NamedTuple):
    """The tokens whose logits are the score of a pair."""

    true: int  #: Of an answer that the document is relevant.
    false: int | None  #: Of one that it is not, whose logit is subtracted; None for neither.


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """The embedding settings of a model directory."""

    pooling: Pooling = "mean"
    max_tokens: int | None = None  #: The maximum input length; None means that of the model.
    normalize: bool = True  #: Whether embeddings are L2-normalized by default.
    dense: tuple[DenseLayer, ...] = ()  #: Applied to pooled vectors, in this order.
    prompts: Mapping[str, str] = field(default_factory=dict)  #: The beginnings of texts, by name.
    default_prompt: str | None = None  #: The name of the prompt of texts without another.
    score_tokens: ScoreTokens | None = None  #: Of a reranker that is a causal language model.


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


def l2_normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a vector, or each row, divided by its L2 norm; zero vectors are not changed."""
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    units: NDArray[np.float32] = (wide / np.where(norms == 0, 1, norms)).astype(np.float32)
    return units


def read_sentence_config(files: ConfigFiles, default: Pooling = "mean") -> SentenceConfig:
    """Read the embedding settings of a model directory.

    The files of sentence-transformers take precedence: `modules.json`, the pooling configuration
    and dense layers that this file names, `sentence_bert_config.json` and the prompts of
    `config_sentence_transformers.json`. Next is the `embedding_metadata` of
    `mlc-chat-config.json`. Without either, the pooling is that of the program which reads such a
    directory: "cls" for MLC's (MLC LLM), "mean" for Hugging Face's (sentence-transformers).

    Args:
        default: The pooling of a Hugging Face directory that has neither.

    Raises:
        ModelLoadError: If a file is invalid or requires an unsupported module or pooling.
    """
    settings = _mlc_settings(files) or SentenceConfig(default)
    if files.is_gguf:
        return SentenceConfig(_gguf_pooling(files.model, default))

    pooling, dense, score_tokens = _read_modules(files.path("modules.json"))
    if pooling is None:
        _logger.info("%s: embeddings are pooled by %r", files.model, settings.pooling)
    prompts, default_prompt = _read_prompts(files)
    return replace(
        settings,
        pooling=pooling or settings.pooling,
        max_tokens=_max_tokens(files.path("sentence_bert_config.json")),
        dense=dense,
        prompts=prompts,
        default_prompt=default_prompt,
        score_tokens=score_tokens,
    )


def _gguf_pooling(path: Path, default: Pooling) -> Pooling:
    """Return the pooling of a file; the default if it has none, or is that of a reranker."""
    model = read_gguf(path)
    key = model.key("pooling_type")
    kind = model.metadata.integer(key, _GGUF_RANK)
    if kind == _GGUF_RANK:
        return default

    if kind not in _GGUF_POOLINGS:
        problem = f"must be one of {', '.join(map(str, _GGUF_POOLINGS))}, got {kind}"
        raise model.metadata.error(key, problem)

    return _GGUF_POOLINGS[kind]


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


def _read_modules(
    path: Path,
) -> tuple[Pooling | None, tuple[DenseLayer, ...], ScoreTokens | None]:
    """Return the pooling, dense layers and tokens that `modules.json` names; None without one."""
    pooling: Pooling | None = None
    score_tokens: ScoreTokens | None = None
    dense: list[DenseLayer] = []
    for module in _read_json(path, list) or ():
        kind = str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else "?"
        match kind:
            case "Pooling":
                pooling = _pooling_mode(_module_directory(path, module, kind) / "config.json")
            case "Dense":
                dense.append(read_dense(_module_directory(path, module, kind)))
            case "LogitScore":
                score_tokens = _read_score_tokens(_module_directory(path, module, kind))
            case "Transformer" | "Normalize":
                pass
            case _:
                raise ModelLoadError(
                    f"{path}: module {kind!r} is not supported; supported: Transformer, Pooling, "
                    "Dense, Normalize, LogitScore",
                    path=path,
                )

    return pooling, tuple(dense), score_tokens


def _read_score_tokens(directory: Path) -> ScoreTokens:
    path = directory / "config.json"
    fields = Fields(read_object(path), path)
    false = "false_token_id"
    return ScoreTokens(
        fields.integer("true_token_id"), fields.integer(false) if false in fields else None
    )


def _read_prompts(files: ConfigFiles) -> tuple[dict[str, str], str | None]:
    """Return the prompts by name, and the name of the one that texts get by default."""
    path = files.path("config_sentence_transformers.json")
    fields = Fields(files.object(path.name) or {}, path)
    nested = fields.nested("prompts")
    prompts = {name: nested.string(name) for name in nested.names()}
    if "default_prompt_name" not in fields:
        return prompts, None

    return prompts, fields.choice("default_prompt_name", tuple(prompts))


def _module_directory(path: Path, module: dict[str, Any], kind: str) -> Path:
    name = module.get("path")
    if not isinstance(name, str) or Path(name).name != name or name == "..":
        raise ModelLoadError(
            f"{path}: path of the module {kind} must be the name of a directory, "
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
    if not fields.boolean("include_prompt", True):
        raise fields.error("include_prompt", "must be true, got false")

    modes = [_mode(fields.string(name))] if name in fields else _enabled_modes(fields, list(config))
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ModelLoadError(
            f"{path}: pooling {'+'.join(modes) or 'none'} is not supported; supported: one of "
            f"{', '.join(_POOLINGS)}",
            path=path,
        )

    return _POOLINGS[_POOLINGS.index(modes[0])]


def _mode(name: str) -> str:
    return "last" if name == "lasttoken" else name


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
