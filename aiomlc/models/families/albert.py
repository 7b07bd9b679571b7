"""ALBERT: BERT whose layers share their weights, with small embeddings that are projected."""

from __future__ import annotations

__all__ = ("parse",)

from collections.abc import Mapping
from typing import Literal

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_PREFIX = "albert."
_ACTIVATIONS: Mapping[str, Literal["gelu", "gelu_tanh"]] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `albert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    hidden, heads = check_heads(fields)
    size = fields.integer("inner_group_num", 1)
    order = _parse_order(fields, size)
    classifier = None
    if is_classifier(fields):
        classifier = ClassifierConfig(
            num_labels=num_labels(fields), dense=f"{_PREFIX}pooler", output="classifier"
        )
    return EncoderConfig(
        model_type="albert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=max(order) + 1,
        layer_order=order,
        num_attention_heads=heads,
        embedding_size=fields.integer("embedding_size", 128),
        num_positions=fields.integer("max_position_embeddings", 512),
        num_token_types=fields.integer("type_vocab_size", 2, minimum=1),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=_ACTIVATIONS[fields.choice("hidden_act", tuple(_ACTIVATIONS), "gelu_new")],
        names=_names(size),
        hf_prefix=_PREFIX,
        classifier=classifier,
    )


def _parse_order(fields: Fields, size: int) -> tuple[int, ...]:
    """Return the layers in the order in which they are computed: consecutive groups are alike."""
    count = fields.integer("num_hidden_layers", 12)
    name = "num_hidden_groups"
    groups = fields.integer(name, 1)
    if groups > count:
        raise fields.error(name, f"must be <= num_hidden_layers ({count}), got {groups}")

    # With this division of floats, as in transformers.
    used = [int(i / (count / groups)) for i in range(count)]
    return tuple(group * size + layer for group in used for layer in range(size))


def _names(group_size: int) -> EncoderNames:
    return EncoderNames(
        embedding_projection="encoder.embedding_hidden_mapping_in",
        layer="encoder.albert_layer_groups.{}.albert_layers.{}.",
        group_size=group_size,
        qkv=("attention.query", "attention.key", "attention.value"),
        attention_output="attention.dense",
        attention_norm="attention.LayerNorm",
        up=("ffn",),
        down="ffn_output",
        output_norm="full_layer_layer_norm",
    )
