"""Tiny random encoders of each family, as Hugging Face directories with a tokenizer of letters."""

from __future__ import annotations

__all__ = (
    "CLASSIFIERS",
    "CONFIGS",
    "DENSE",
    "EMBEDDERS",
    "RERANKING_DECODERS",
    "SCORE_TOKENS",
    "TEXTS",
    "TOKEN_HEADS",
    "encoded_texts",
    "encoder_config",
    "encoder_weights",
    "write_encoder",
    "write_token_heads",
)

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from aiomlc.models import (
    BlockEncoderConfig,
    ModelConfig,
    Parameter,
    model_parameters,
    read_description,
)
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer, TextPair
from aiomlc.runtime.native.encoder import EncoderInput
from tests.model.tiny_encoder import wordpiece_tokenizer
from tests.model.tiny_encoder_configs import CLASSIFIERS, EMBEDDERS, RERANKING_DECODERS
from tests.model.tiny_models import Weights, write_safetensors

SCORE_TOKENS = {"true_token_id": 7, "false_token_id": 9}
_LOGIT_SCORE = [("Transformer", ""), ("LogitScore", "1_LogitScore")]
_POOLINGS = {"qwen3_embedding": "lasttoken", "embeddinggemma": "mean"}
#: The modules of sentence-transformers and their directories.
MODULES: dict[str, list[tuple[str, str]]] = {
    "qwen3_embedding": [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2")],
    "embeddinggemma": [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Dense", "2_Dense"),
        ("Dense", "3_Dense"),
        ("Normalize", "4_Normalize"),
    ],
}
#: Of the dense layers, `[outputs, inputs]`.
DENSE = {
    "2_Dense": np.random.Generator(np.random.PCG64(1)).standard_normal((64, 48)) / 7,
    "3_Dense": np.random.Generator(np.random.PCG64(2)).standard_normal((48, 64)) / 8,
}
_HEADS_RANDOM = np.random.Generator(np.random.PCG64(3))
#: The layers of a tiny BGE M3 besides `xlm_roberta`, in float16 like the published ones.
TOKEN_HEADS: dict[str, dict[str, NDArray[np.float16]]] = {
    f"{name}_linear": {
        "weight": (_HEADS_RANDOM.standard_normal((rows, 48)) / 7).astype(np.float16),
        "bias": (_HEADS_RANDOM.standard_normal(rows) / 7).astype(np.float16),
    }
    for name, rows in (("sparse", 1), ("colbert", 20))
}
MODULES |= dict.fromkeys(RERANKING_DECODERS, _LOGIT_SCORE)
CONFIGS = EMBEDDERS | CLASSIFIERS | RERANKING_DECODERS
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
    with TemporaryDirectory() as path:
        directory = Path(path)
        _write_configs(directory, name)
        config = read_description(directory).config
    # Without tensors, nothing shows that those of a classifier have a prefix.
    if isinstance(config, BlockEncoderConfig) and config.classifier is not None:
        return replace(config, hf_prefix="model.")

    return config


def _write_configs(directory: Path, name: str) -> None:
    files: dict[str, object] = {"config": CONFIGS[name]}
    if name in MODULES:
        files["modules"] = [
            {"type": f"sentence_transformers.models.{kind}", "path": path}
            for kind, path in MODULES[name]
        ]
        if name in _POOLINGS:
            files["1_Pooling/config"] = {"pooling_mode": _POOLINGS[name]}
        else:
            files["1_LogitScore/config"] = SCORE_TOKENS
    for file, value in files.items():
        path = directory / f"{file}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))


def _rows(config: ModelConfig, source: str, parameter: Parameter) -> int:
    if isinstance(config, BlockEncoderConfig) and len(parameter.sources) == 3:
        plan = config.blocks.attention[0]
        heads = plan.num_heads if ".q_proj." in source else plan.num_kv_heads
        return heads * plan.head_dim

    return parameter.shape[0] // len(parameter.sources)


def encoder_weights(name: str) -> Weights:
    """Return the float32 weights, identical on every machine."""
    random = np.random.Generator(np.random.PCG64(11))
    weights: Weights = {}
    config = encoder_config(name)
    for parameter in model_parameters(config):
        for source in parameter.sources:
            rows = _rows(config, source, parameter)
            values = random.standard_normal((rows, *parameter.shape[1:]))
            if parameter.kind == "vector":
                is_bias = source.endswith("bias")
                offset = 1.0 - parameter.weight_offset
                values = 0.2 * values if is_bias else offset + 0.1 * values
            elif "embed" not in source:
                values = values * (1.5 / np.sqrt(parameter.shape[-1]))
            weights[source] = values.astype(np.float32)
    return weights


def _write_dense(directory: Path) -> None:
    weight = DENSE[directory.name]
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", {"linear.weight": weight.astype(np.float32)})


def write_token_heads(directory: Path) -> None:
    """Write `TOKEN_HEADS` beside an encoder, as safetensors of float32."""
    for name, tensors in TOKEN_HEADS.items():
        floats = {key: value.astype(np.float32) for key, value in tensors.items()}
        write_safetensors(directory / f"{name}.safetensors", floats)


def write_encoder(directory: Path, name: str, **files: object) -> Path:
    """Write an encoder and return the directory.

    Args:
        files: Further files of JSON, by name without `.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _write_configs(directory, name)
    for module, path in MODULES.get(name, ()):
        if module == "Dense":
            _write_dense(directory / path)
    wordpiece_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", encoder_weights(name))
    for file, value in files.items():
        (directory / f"{file}.json").write_text(json.dumps(value))
    return directory
