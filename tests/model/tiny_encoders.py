"""Tiny random encoders of each family, as Hugging Face directories with a tokenizer of letters."""

from __future__ import annotations

__all__ = (
    "CLASSIFIERS",
    "CONFIGS",
    "EMBEDDERS",
    "TEXTS",
    "encoded_texts",
    "encoder_weights",
    "write_encoder",
)

import json
from pathlib import Path
from typing import Any

import numpy as np

from aiomlc.models import ModelConfig, model_parameters
from aiomlc.models.config.fields import Fields
from aiomlc.models.registry import MODEL_TYPES
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer, TextPair
from aiomlc.runtime.native.encoder import EncoderInput
from tests.model.tiny_encoder import ENCODER_CONFIG, wordpiece_tokenizer
from tests.model.tiny_models import Weights, write_safetensors

_ROBERTA = ENCODER_CONFIG | {
    "model_type": "roberta",
    "architectures": ["RobertaModel"],
    "type_vocab_size": 1,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
}
_MODERNBERT: dict[str, Any] = {
    "model_type": "modernbert",
    "architectures": ["ModernBertModel"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "hidden_activation": "gelu",
    "norm_eps": 1e-5,
    "local_attention": 10,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "pad_token_id": 0,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 3),
}
_LABELS = {"id2label": {"0": "negative", "1": "neutral", "2": "positive"}}
_ONE_LABEL = {"id2label": {"0": "LABEL_0"}}


def _with_head(config: dict[str, Any], name: str, labels: dict[str, Any]) -> dict[str, Any]:
    return config | {"architectures": [f"{name}ForSequenceClassification"], **labels}


EMBEDDERS: dict[str, dict[str, Any]] = {
    "roberta": _ROBERTA,
    "xlm_roberta": _ROBERTA
    | {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "pad_token_id": 0},
    "modernbert": _MODERNBERT,
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "bert_reranker": _with_head(ENCODER_CONFIG, "Bert", _ONE_LABEL),
    "bert_classifier": _with_head(ENCODER_CONFIG, "Bert", _LABELS),
    "roberta_classifier": _with_head(_ROBERTA, "Roberta", _LABELS),
    "xlm_roberta_reranker": _with_head(
        _ROBERTA | {"model_type": "xlm-roberta"}, "XLMRoberta", _ONE_LABEL
    ),
    "modernbert_classifier": _with_head(_MODERNBERT, "ModernBert", _LABELS),
    "modernbert_reranker": _with_head(
        _MODERNBERT, "ModernBert", _ONE_LABEL | {"classifier_pooling": "mean"}
    ),
}
CONFIGS = EMBEDDERS | CLASSIFIERS
#: Texts and pairs of texts of the tokenizer's letters.
TEXTS: list[str | tuple[str, str]] = [
    "a",
    "the cat sleeps",
    ("how", "it is a long story of many words to tell"),
    ("is it", "it is"),
    "abcdefghijklmnopqrstuvwxyz",
]


def encoded_texts() -> list[EncoderInput]:
    """Return the tokens of `TEXTS`."""
    tokenizer = EncoderTokenizer(wordpiece_tokenizer().to_str(), 64)
    return [
        EncoderInput(tokenizer.encode(text))
        if isinstance(text, str)
        else tokenizer.encode_pair(TextPair(*text))
        for text in TEXTS
    ]


def encoder_config(name: str) -> ModelConfig:
    """Return the configuration of an encoder."""
    fields = Fields(CONFIGS[name], Path("config.json"))
    return MODEL_TYPES[CONFIGS[name]["model_type"]](fields)


def encoder_weights(name: str) -> Weights:
    """Return the float32 weights, identical on every machine."""
    random = np.random.Generator(np.random.PCG64(11))
    weights: Weights = {}
    for parameter in model_parameters(encoder_config(name)):
        rows = parameter.shape[0] // len(parameter.sources)
        for source in parameter.sources:
            values = random.standard_normal((rows, *parameter.shape[1:]))
            if parameter.kind == "vector":
                is_bias = source.endswith("bias")
                values = 0.2 * values if is_bias else 1.0 + 0.1 * values
            elif "embed" not in source:
                values = values * (1.5 / np.sqrt(parameter.shape[-1]))
            weights[source] = values.astype(np.float32)
    return weights


def write_encoder(directory: Path, name: str, **files: object) -> Path:
    """Write an encoder and return the directory.

    Args:
        files: Further files of JSON, by name without `.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIGS[name]))
    wordpiece_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", encoder_weights(name))
    for file, value in files.items():
        (directory / f"{file}.json").write_text(json.dumps(value))
    return directory
