"""MPNet: RoBERTa without types of tokens, and with biases of attention by distance."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import (
    ClassifierConfig,
    EncoderConfig,
    EncoderNames,
    PositionBuckets,
)
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

# Whatever the padding is, as in transformers.
_OFFSET = 2
_BUCKETS, _MAX_DISTANCE = 32, 128
_NAMES = EncoderNames(
    qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    attention_output="attention.attn.o",
    attention_norm="attention.LayerNorm",
)


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `mpnet`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    fields.choice("hidden_act", ("gelu",), "gelu")
    name = "relative_attention_num_buckets"
    if (buckets := fields.integer(name, _BUCKETS)) != _BUCKETS:
        raise fields.error(name, f"must be {_BUCKETS}, got {buckets}")

    hidden, heads = check_heads(fields)
    classifier = None
    if is_classifier(fields):
        dense, output = "classifier.dense", "classifier.out_proj"
        classifier = ClassifierConfig(num_labels=num_labels(fields), dense=dense, output=output)
    return EncoderConfig(
        model_type="mpnet",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer("max_position_embeddings", minimum=_OFFSET + 1),
        position_offset=_OFFSET,
        num_token_types=0,
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        position_bias=PositionBuckets(num_buckets=_BUCKETS, max_distance=_MAX_DISTANCE),
        names=_NAMES,
        hf_prefix="mpnet.",
        classifier=classifier,
    )
