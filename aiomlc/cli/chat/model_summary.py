"""A summary of a model from its files, for `aiomlc show` and the chat's `/show`."""

from __future__ import annotations

__all__ = ("format_summary", "summarize_model")

import math
import re
from typing import TYPE_CHECKING, Any

from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.shards import is_gguf
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig
from aiomlc.models.config.speech import SpeechConfig
from aiomlc.runtime.embedding.pooling import read_sentence_config
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.text_files import TextFiles
from aiomlc.runtime.speech.generation import read_speech_tokens
from aiomlc.sampling_params import MODEL_DEFAULTS

if TYPE_CHECKING:
    from aiomlc.runtime.loading.model_directory import ModelDirectory

_LICENSE = re.compile(r"^license:[ \t]*['\"]?([^'\"\n]+?)['\"]?[ \t]*$", re.MULTILINE)
_MAX_CARD_CHARACTERS = 1 << 16


def summarize_model(directory: ModelDirectory) -> dict[str, Any]:
    """Return the properties of a model as JSON values, from its small files.

    `tools` and `reasoning` are the names of the formats of calls, and whether the model reasons;
    `dimensions` and `pooling` are those of an encoder's embeddings, `labels` is the number of
    labels of a classifier, and `languages` that of a speech model. None of a property means that
    the model has none, or that its files do not say.

    Raises:
        ModelLoadError: If a file is missing or invalid.
    """
    facts = ModelFacts(directory)
    config = facts.description.config
    match config:
        case DecoderConfig():
            more = _text_properties(facts, config)
        case SpeechConfig():
            more = _speech_properties(directory, config)
        case _:
            more = _vector_properties(directory, config)
    sizes = [math.prod(each.shape) for each in facts.parameters if each.kind != "order"]
    return {
        "name": directory.name,
        "path": str(directory.path),
        "model_type": "encoder" if facts.is_encoder else config.model_type,
        "num_parameters": sum(sizes),
        "quantization": facts.quantization.name,
        "license": _license(directory),
        **more,
    }


def format_summary(summary: dict[str, Any]) -> str:
    """Return the properties as lines for people, without the text of the template."""
    lines = {
        "model": summary["name"],
        "path": summary["path"],
        "type": summary["model_type"],
        "parameters": f"{summary['num_parameters']:,}",
        "quantization": summary["quantization"],
        "license": summary["license"] or "not stated",
        "context": f"{summary['context_length']:,} tokens at most",
        "vocabulary": f"{summary['vocab_size']:,} tokens",
    }
    if "languages" in summary:
        lines["languages"] = f"{summary['languages']:,}"
    elif "labels" in summary:
        lines["labels"] = f"{summary['labels']:,}"
    elif "dimensions" in summary:
        lines |= {"dimensions": f"{summary['dimensions']:,}", "pooling": summary["pooling"]}
    else:
        defaults = [f"{name} {value:g}" for name, value in summary["sampling_defaults"].items()]
        lines |= {
            "template": "none" if summary["chat_template"] is None else "yes; --template prints it",
            "tools": summary["tools"] or "none",
            "reasoning": "yes" if summary["reasoning"] else "no",
            "defaults": ", ".join(defaults) or "none",
        }
    return "\n".join(f"{name:<13} {value}" for name, value in lines.items())


def _text_properties(facts: ModelFacts, config: DecoderConfig) -> dict[str, Any]:
    text = TextFiles.read(facts)
    defaults = {name: getattr(text.default_options, name) for name in MODEL_DEFAULTS}
    tools, reasoning, channels = text.formats
    return {
        "context_length": config.context_window_size,
        "vocab_size": config.vocab_size,
        "chat_template": None if text.template is None else text.template.source,
        "tools": "harmony" if channels else None if tools is None else tools.name,
        "reasoning": reasoning is not None or channels is not None,
        "sampling_defaults": {name: value for name, value in defaults.items() if value is not None},
    }


def _speech_properties(directory: ModelDirectory, config: SpeechConfig) -> dict[str, Any]:
    tokens = read_speech_tokens(directory.files, config)
    return {
        "context_length": config.max_tokens,
        "vocab_size": config.vocab_size,
        "languages": len(tokens.languages) or 1,
    }


def _vector_properties(
    directory: ModelDirectory, config: EncoderConfig | BlockEncoderConfig
) -> dict[str, Any]:
    sentence = read_sentence_config(directory.files)
    longest = config.max_tokens
    shared = {
        "context_length": min(sentence.max_tokens or longest, longest),
        "vocab_size": config.vocab_size,
    }
    if config.classifier is not None:
        return shared | {"labels": config.classifier.num_labels}

    dimensions = len(sentence.dense[-1].weight) if sentence.dense else config.hidden_size
    return shared | {"dimensions": dimensions, "pooling": sentence.pooling}


def _license(directory: ModelDirectory) -> str | None:
    """Return the license that the GGUF file, or the header of the model's card, states."""
    if is_gguf(directory.path):
        value = read_gguf(directory.path).metadata.value("general.license")
        return value if isinstance(value, str) else None

    try:
        with (directory.path / "README.md").open(encoding="utf-8", errors="replace") as card:
            header = card.read(_MAX_CARD_CHARACTERS).split("\n---", 1)[0]
    except OSError:  # Few directories have a card.
        return None

    match = _LICENSE.search(header) if header.startswith("---") else None
    return None if match is None else match[1]
