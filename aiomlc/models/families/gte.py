"""GTE (model types `gte` and `new`): RoPE, and a feed-forward layer with a gate of GELU."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_PREFIX = "new."
_NAMES = EncoderNames(
    qkv=("attention.qkv_proj",),
    attention_output="attention.o_proj",
    attention_norm="attn_ln",
    up=("mlp.up_gate_proj",),
    down="mlp.down_proj",
    output_norm="mlp_ln",
)
_THETA = 160_000.0


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `gte`, or `new`, which it has in older files.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    _refuse_unsupported(fields)
    hidden, heads = check_heads(fields)
    positions = fields.integer("max_position_embeddings")
    classifier = None
    if is_classifier(fields):
        classifier = ClassifierConfig(
            num_labels=num_labels(fields), dense=f"{_PREFIX}pooler.dense", output="classifier"
        )
    return EncoderConfig(
        model_type="gte",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=positions,
        num_token_types=fields.integer("type_vocab_size", 1),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        rope=_parse_rope(fields, hidden // heads, positions),
        gate="gelu",
        has_gate_last=True,
        up_bias=False,
        names=_NAMES,
        hf_prefix=_PREFIX,
        classifier=classifier,
    )


def _parse_rope(fields: Fields, head_dim: int, positions: int) -> RopeConfig:
    """Read RoPE; `ntk` scales its base, and divides frequencies by a power of the factor."""
    scaling = fields.nested("rope_scaling")
    if "type" not in scaling or scaling.string("type") != "ntk":
        return parse_rope(fields, head_dim=head_dim, context=positions, theta=_THETA)

    if "mixed_b" in scaling:
        raise scaling.error("mixed_b", "is not supported")

    factor = scaling.number("factor")
    plain = fields.without("rope_scaling")
    rope = parse_rope(plain, head_dim=head_dim, context=positions, theta=_THETA)
    power = factor ** (2 / head_dim)
    return replace(rope, rope_type="linear", theta=rope.theta * factor, factor=power)


def _refuse_unsupported(fields: Fields) -> None:
    refuse_quantized(fields)
    fields.choice("hidden_act", ("gelu",), "gelu")
    fields.choice("position_embedding_type", ("rope",), "rope")
    fields.choice("layer_norm_type", ("layer_norm",), "layer_norm")
    fields.require_false("logn_attention_scale")
