"""Jina Embeddings 3 in transformers' format: XLM-RoBERTa with RoPE, without adapters of tasks."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_THETA = 20_000.0
_NAMES = EncoderNames(
    layer="layers.{}.",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_output="self_attn.o_proj",
    attention_norm="post_attention_layernorm",
    up=("mlp.fc1",),
    down="mlp.fc2",
    output_norm="post_mlp_layernorm",
)


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `jina_embeddings_v3`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    fields.choice("hidden_act", ("gelu",), "gelu")
    hidden, heads = check_heads(fields)
    positions = fields.integer("max_position_embeddings")
    classifier = None
    if is_classifier(fields):
        dense, output = "classifier.dense", "classifier.out_proj"
        classifier = ClassifierConfig(num_labels=num_labels(fields), dense=dense, output=output)
    return EncoderConfig(
        model_type="jina_embeddings_v3",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=positions,
        num_token_types=fields.integer("type_vocab_size", 1, minimum=1),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-5),
        rope=parse_rope(fields, head_dim=hidden // heads, context=positions, theta=_THETA),
        names=_NAMES,
        hf_prefix="roberta.",
        classifier=classifier,
    )
