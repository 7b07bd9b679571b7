"""A tiny random encoder as a Hugging Face directory with sentence-transformers' files."""

from __future__ import annotations

__all__ = ("ENCODER_CONFIG", "INPUTS", "encoder_weights", "write_encoder")

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from aiomlc.models.config.fields import Fields
from aiomlc.models.families.bert import parse
from aiomlc.models.parameters.encoder import encoder_parameters
from tests.model.tiny_models import Weights, write_safetensors

ENCODER_CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
INPUTS = [
    [int(i) for i in np.random.Generator(np.random.PCG64(seed)).integers(0, 90, length)]
    for seed, length in enumerate((1, 7, 16, 17, 64, 40))
]


def encoder_weights() -> Weights:
    """Return the float32 weights, identical on every machine."""
    random = np.random.Generator(np.random.PCG64(4))
    weights: Weights = {}
    config = replace(parse(Fields(ENCODER_CONFIG, Path("config.json"))), hf_prefix="")
    for parameter in encoder_parameters(config):
        rows = parameter.shape[0] // len(parameter.sources)
        for name in parameter.sources:
            values = random.standard_normal((rows, *parameter.shape[1:]))
            if name.endswith("LayerNorm.weight"):
                values = 1.0 + 0.1 * values
            elif name.endswith("bias"):
                values = 0.2 * values
            elif "embeddings" not in name:
                values = values * (1.5 / np.sqrt(parameter.shape[-1]))
            weights[name] = values.astype(np.float32)
    return weights


def write_encoder(directory: Path) -> Path:
    """Write the encoder and return the directory."""
    (directory / "1_Pooling").mkdir(parents=True, exist_ok=True)
    modules = ["Transformer", "Pooling", "Normalize"]
    files = {
        "config.json": ENCODER_CONFIG,
        "modules.json": [
            {"path": "1_Pooling" if kind == "Pooling" else "", "type": f"sentence.{kind}"}
            for kind in modules
        ],
        "1_Pooling/config.json": {
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
        },
        "sentence_bert_config.json": {"max_seq_length": 32},
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value))
    wordpiece_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", encoder_weights())
    return directory


def wordpiece_tokenizer() -> Tokenizer:
    """Return a tokenizer with one token per letter (initial or not) and BERT's special tokens."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(16)
    return tokenizer
