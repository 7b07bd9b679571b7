"""Selects the files of a repository that are needed to open a model."""

from __future__ import annotations

__all__ = ("description_files", "gguf_names", "gguf_parts", "weight_files", "weights_index")

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from aiomlc.errors import ModelLoadError
from aiomlc.sources.job import Failure
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import read_json
from aiomlc.validation.model_formats import describe_names

_HEADS: Final = ("sparse", "colbert")
_DESCRIPTIONS: Final = frozenset(
    {
        "mlc-chat-config.json",
        "config.json",
        "generation_config.json",
        "quantize_config.json",
        "quant_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "additional_chat_templates/tool_use.jinja",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "preprocessor_config.json",
        "processor_config.json",
        # The layers of BGE M3 beside its weights.
        *(f"{name}_linear{suffix}" for name in _HEADS for suffix in (".pt", ".safetensors")),
    }
)
# The modules of sentence-transformers, of which dense layers have weights of their own.
_MODULE = re.compile(r"\d+_[A-Za-z]+/(config\.json|model\.safetensors)")
_MLC_INDEXES: Final = ("tensor-cache.json", "ndarray-cache.json")
_SAFETENSORS: Final = "model.safetensors"
_SAFETENSORS_INDEX: Final = "model.safetensors.index.json"
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.I)
_MAX_LISTED = 12


def description_files(names: Collection[str], file: str | None) -> list[str]:
    """Return the files that are needed first: all but the weights, and the index of the weights.

    Args:
        file: A GGUF file, or None for the files of a model directory.

    Raises:
        Failure: If the repository cannot be opened.
    """
    if file is not None:
        return []

    index = weights_index(names)
    if index is None:
        raise Failure("format", _unsupported(names))

    return sorted({*filter(_is_description, names), *({index} - {_SAFETENSORS})})


def weight_files(names: Collection[str], file: str | None, directory: Path) -> list[str]:
    """Return the files with the weights.

    Args:
        file: A GGUF file, or None for the files of a model directory.
        directory: The directory with the files that `description_files` returned.

    Raises:
        Failure: If one of them does not exist.
    """
    if file is not None:
        weights = gguf_parts(file)
    else:
        index = weights_index(names)
        assert index is not None, "checked by description_files"
        weights = [index] if index == _SAFETENSORS else _indexed(directory / index)

    for name in weights:
        if name not in names:
            raise Failure("file", _missing(name, names))

    return weights


def weights_index(names: Collection[str]) -> str | None:
    """Return the file that lists the tensors; the first one that the loader looks for."""
    if "mlc-chat-config.json" not in names and "config.json" not in names:
        return None

    candidates = (*_MLC_INDEXES, _SAFETENSORS, _SAFETENSORS_INDEX)
    return next((name for name in candidates if name in names), None)


def _is_description(name: str) -> bool:
    return name in _DESCRIPTIONS or _MODULE.fullmatch(name) is not None


def gguf_parts(file: str) -> list[str]:
    """Return all parts of a split GGUF file."""
    match = _SPLIT.fullmatch(file)
    if match is None:
        return [file]

    if int(match["part"]) != 1:
        first = f"{match['stem']}-00001-of-{match['count']}{match['suffix']}"
        raise Failure("format", f"{file} is not the first part of its set: name {first}")

    return [
        f"{match['stem']}-{part:05}-of-{match['count']}{match['suffix']}"
        for part in range(1, int(match["count"]) + 1)
    ]


def _indexed(index: Path) -> list[str]:
    """Return the files that an index names, at least one."""
    try:
        content = read_json(index)
        if index.name == _SAFETENSORS_INDEX:
            named = set(content["weight_map"].values())
        else:
            named = {record["dataPath"] for record in content["records"]}
    except ModelLoadError as error:
        raise Failure("format", str(error)) from None
    except (KeyError, TypeError, AttributeError):
        raise Failure("format", f"{index.name} is not an index of weights") from None

    for name in named:
        if not _is_plain(name):
            problem = f"it names {safe_repr(name)}, which must be the plain name of a file"
            raise Failure("format", f"{index.name}: {problem}")

    if not named:
        raise Failure("format", f"{index.name} names no files")

    return sorted(named)


def _is_plain(name: object) -> bool:
    if not isinstance(name, str) or name in {"", ".."} or "\0" in name:
        return False

    return Path(name).name == name


def _missing(name: str, names: Collection[str]) -> str:
    ggufs = gguf_names(names)
    others = f"; its GGUF files are {_list(ggufs)}" if name.lower().endswith(".gguf") else ""
    return f"the repository has no file {name!r}" + (others if ggufs else "")


def _unsupported(names: Collection[str]) -> str:
    if ggufs := gguf_names(names):
        return f"it has GGUF files only: name one of them after a colon: {_list(ggufs)}"

    problem = describe_names(names)
    reason = f"it contains {problem}" if problem else "it contains no weights in a known format"
    return f"{reason}; a model needs a config and safetensors, MLC's shards, or a GGUF file"


def gguf_names(names: Collection[str]) -> list[str]:
    """Return the GGUF files, of split ones the first parts."""
    found = [name for name in sorted(names) if name.lower().endswith(".gguf")]
    splits = ((name, _SPLIT.fullmatch(name)) for name in found)
    return [name for name, split in splits if split is None or int(split["part"]) == 1]


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
