"""The configs of the tiny encoders of each family."""

from __future__ import annotations

__all__ = ("CLASSIFIERS", "EMBEDDERS", "RERANKING_DECODERS")

from typing import Any

from tests.model.tiny_encoder import ENCODER_CONFIG

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
_ELECTRA_SMALL = _ELECTRA | {"embedding_size": 24}
_ALBERT: dict[str, Any] = ENCODER_CONFIG | {
    "model_type": "albert",
    "architectures": ["AlbertModel"],
    "embedding_size": 24,
    "hidden_act": "gelu_new",
    "num_hidden_layers": 5,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
}
_DEBERTA: dict[str, Any] = ENCODER_CONFIG | {
    "model_type": "deberta-v2",
    "architectures": ["DebertaV2Model"],
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
# As in DeBERTa 2, also with a table of positions, and without ranges of distances.
_DEBERTA_2: dict[str, Any] = _DEBERTA | {
    "type_vocab_size": 2,
    "position_buckets": -1,
    "max_relative_positions": 12,
    "pos_att_type": ["c2p", "p2c"],
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
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
    "electra_small": _ELECTRA_SMALL,
    "albert": _ALBERT,
    "deberta_v3": _DEBERTA,
    "deberta_v2": _DEBERTA_2,
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
    "electra_small_classifier": _with_head(_ELECTRA_SMALL, "Electra", _LABELS),
    "albert_classifier": _with_head(_ALBERT | {"hidden_act": "gelu"}, "Albert", _LABELS),
    "deberta_v3_reranker": _with_head(_DEBERTA, "DebertaV2", _ONE_LABEL),
    "deberta_v3_classifier": _with_head(_DEBERTA, "DebertaV2", _LABELS),
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
