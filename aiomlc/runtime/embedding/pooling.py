"""One vector for a text: how the vectors of its tokens become it."""

from __future__ import annotations

__all__ = ("Pooling", "SentenceConfig", "pool", "read_sentence_config", "unit_length")

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from aiomlc.errors import ModelLoadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pooling = Literal["mean", "cls", "last"]

_MODES: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """What sentence-transformers' files in a model directory say."""

    pooling: Pooling = "mean"
    max_tokens: int | None = None  #: Of one text; None is as many as the model has positions.


def pool(states: NDArray[np.float32], pooling: Pooling) -> NDArray[np.float32]:
    """`[tokens, hidden]` -> `[hidden]`."""
    match pooling:
        case "mean":
            pooled = states.mean(axis=0, dtype=np.float64)
        case "cls":
            pooled = states[0]
        case "last":
            pooled = states[-1]

    vector: NDArray[np.float32] = pooled.astype(np.float32)  # A copy, so the states can go.
    return vector


def unit_length(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector divided by its Euclidean length; one of zeros stays."""
    wide = vector.astype(np.float64)
    length = np.sqrt(np.dot(wide, wide))
    unit: NDArray[np.float32] = (wide / (length or 1.0)).astype(np.float32)
    return unit


def read_sentence_config(directory: Path) -> SentenceConfig:
    """Read `modules.json`, the pooling it names and `sentence_bert_config.json`.

    A directory without them is pooled by the mean, as sentence-transformers does.

    Raises:
        ModelLoadError: a file is not what it should be, or asks for what is not supported.
    """
    limits = _read(directory / "sentence_bert_config.json", dict) or {}
    max_tokens = limits.get("max_seq_length")
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        path = directory / "sentence_bert_config.json"
        raise ModelLoadError(
            f"{path}: max_seq_length is {max_tokens!r}", path=path, field="max_seq_length"
        )

    return SentenceConfig(_pooling(directory), max_tokens)


def _pooling(directory: Path) -> Pooling:
    path = directory / "modules.json"
    pooling: Pooling = "mean"
    for module in _read(path, list) or ():
        kind = str(module.get("type")).rpartition(".")[2] if isinstance(module, dict) else "?"
        if kind == "Pooling":
            pooling = _pooling_mode(directory / str(module.get("path")) / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise ModelLoadError(
                f"{path}: module {kind!r} is not supported; known: Transformer, Pooling, Normalize",
                path=path,
            )

    return pooling


def _pooling_mode(path: Path) -> Pooling:
    config = _read(path, dict)
    if config is None:
        raise ModelLoadError(f"{path} is missing", path=path)

    named = config.get("pooling_mode")  # As newer releases write it.
    modes = (
        [named] if isinstance(named, str) else [_mode(name) for name in config if _on(config, name)]
    )
    known: tuple[Pooling, ...] = get_args(Pooling)
    if len(modes) != 1 or modes[0] not in known:
        raise ModelLoadError(
            f"{path}: pooling is {'+'.join(modes) or 'none'}; supported: one of {', '.join(known)}",
            path=path,
        )

    return known[known.index(modes[0])]


def _on(config: dict[str, Any], name: str) -> bool:
    return name.startswith("pooling_mode_") and config[name] is True


def _mode(name: str) -> str:
    return _MODES.get(name, name.removeprefix("pooling_mode_"))


def _read(path: Path, kind: type[Any]) -> Any:  # noqa: ANN401 - JSON.
    """The JSON value of that type in a file; None when there is no such file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}", path=path) from error

    if not isinstance(value, kind):
        raise ModelLoadError(f"{path} holds no JSON {kind.__name__}", path=path)

    return value
