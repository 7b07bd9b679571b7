"""DistilBERT: BERT without types of tokens, under names of its own."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_EPS = 1e-12
_NAMES = EncoderNames(
    layer="transformer.layer.{}.",
    qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up=("ffn.lin1",),
    down="ffn.lin2",
    output_norm="output_layer_norm",
)


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `distilbert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    fields.choice("activation", ("gelu",), "gelu")
    fields.require_false("sinusoidal_pos_embds")
    refuse_quantized(fields)
    classifier = None
    if is_classifier(fields):
        classifier = ClassifierConfig(
            num_labels=num_labels(fields),
            dense="pre_classifier",
            activation="relu",
            output="classifier",
        )
    hidden, heads = check_heads(fields, "dim", "n_heads")
    return EncoderConfig(
        model_type="distilbert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("hidden_dim"),
        num_hidden_layers=fields.integer("n_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer("max_position_embeddings"),
        num_token_types=0,
        layer_norm_eps=_EPS,
        names=_NAMES,
        hf_prefix="distilbert.",
        classifier=classifier,
    )
