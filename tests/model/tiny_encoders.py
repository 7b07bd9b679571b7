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
from typing import Any

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
_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
_GEMMA: dict[str, Any] = _QWEN3 | {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3TextModel"],
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 16,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 12,
    "sliding_window_pattern": 3,
    "use_bidirectional_attention": True,
    "matryoshka_dimensions": [16, 32],
}
_DISTILBERT: dict[str, Any] = {
    "model_type": "distilbert",
    "architectures": ["DistilBertModel"],
    "vocab_size": 90,
    "dim": 48,
    "hidden_dim": 112,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_NOMIC: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "pad_token_id": 0,
}
_GTE: dict[str, Any] = _NOMIC | {
    "model_type": "gte",
    "architectures": ["GteModel"],
    "hidden_act": "gelu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
}
_EUROBERT: dict[str, Any] = {
    "model_type": "eurobert",
    "architectures": ["EuroBertModel"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0},
    "pad_token_id": 0,
}
_MPNET: dict[str, Any] = {
    "model_type": "mpnet",
    "architectures": ["MPNetModel"],
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "relative_attention_num_buckets": 32,
    "pad_token_id": 1,
}
_ELECTRA = ENCODER_CONFIG | {
    "model_type": "electra",
    "architectures": ["ElectraModel"],
    "embedding_size": 48,
}
_CAMEMBERT = _ROBERTA | {"model_type": "camembert", "architectures": ["CamembertModel"]}
_JINA_V3 = _ROBERTA | {
    "model_type": "jina_embeddings_v3",
    "architectures": ["JinaEmbeddingsV3Model"],
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
}
_JINA_BERT = ENCODER_CONFIG | {
    "architectures": ["JinaBertForMaskedLM"],
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "intermediate_size": 72,
    "num_attention_heads": 6,
}
_JINA_CODE = _JINA_BERT | {"has_more_norms": True}
_LABELS = {"id2label": {"0": "negative", "1": "neutral", "2": "positive"}}
_ONE_LABEL = {"id2label": {"0": "LABEL_0"}}


def _with_head(config: dict[str, Any], name: str, labels: dict[str, Any]) -> dict[str, Any]:
    return config | {"architectures": [f"{name}ForSequenceClassification"], **labels}


EMBEDDERS: dict[str, dict[str, Any]] = {
    "roberta": _ROBERTA,
    "xlm_roberta": _ROBERTA
    | {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "pad_token_id": 0},
    "modernbert": _MODERNBERT,
    "qwen3_embedding": _QWEN3,
    "embeddinggemma": _GEMMA,
    "distilbert": _DISTILBERT,
    "nomic_bert": _NOMIC,
    "gte": _GTE,
    "eurobert": _EUROBERT,
    "mpnet": _MPNET,
    "electra": _ELECTRA,
    "camembert": _CAMEMBERT,
    "jina_embeddings_v3": _JINA_V3,
    "jina_bert": _JINA_BERT,
    "jina_bert_code": _JINA_CODE,
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "bert_reranker": _with_head(ENCODER_CONFIG, "Bert", _ONE_LABEL),
    "bert_classifier": _with_head(ENCODER_CONFIG, "Bert", _LABELS),
    "roberta_classifier": _with_head(_ROBERTA, "Roberta", _LABELS),
    "xlm_roberta_reranker": _with_head(
        _ROBERTA | {"model_type": "xlm-roberta"}, "XLMRoberta", _ONE_LABEL
    ),
    "mpnet_classifier": _with_head(_MPNET, "MPNet", _LABELS),
    "electra_reranker": _with_head(_ELECTRA, "Electra", _ONE_LABEL),
    "camembert_classifier": _with_head(_CAMEMBERT, "Camembert", _LABELS),
    "distilbert_classifier": _with_head(_DISTILBERT, "DistilBert", _LABELS),
    "jina_embeddings_v3_classifier": _with_head(_JINA_V3, "JinaEmbeddingsV3", _LABELS),
    "gte_reranker": _with_head(_GTE | {"type_vocab_size": 1}, "Gte", _ONE_LABEL),
    "qwen3_classifier": _with_head(_QWEN3, "Qwen3", _LABELS),
    "modernbert_classifier": _with_head(_MODERNBERT, "ModernBert", _LABELS),
    "modernbert_reranker": _with_head(
        _MODERNBERT, "ModernBert", _ONE_LABEL | {"classifier_pooling": "mean"}
    ),
}
#: Rerankers that are causal language models; their outputs are the logits after the last token.
RERANKING_DECODERS: dict[str, dict[str, Any]] = {
    "qwen3_reranker": _QWEN3 | {"max_position_embeddings": 1024},
    "qwen3_untied_reranker": _QWEN3
    | {"max_position_embeddings": 1024, "tie_word_embeddings": False},
}
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
