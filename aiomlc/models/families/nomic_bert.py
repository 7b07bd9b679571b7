"""Nomic's BERT: RoPE in place of a table of positions, and a gated feed-forward layer."""

from __future__ import annotations

__all__ = ("parse",)

from collections.abc import Mapping
from typing import Literal

from aiomlc.models.config.encoder import EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier

_NAMES = EncoderNames(
    norm="emb_ln",
    layer="encoder.layers.{}.",
    qkv=("attn.Wqkv",),
    attention_output="attn.out_proj",
    attention_norm="norm1",
    up=("mlp.fc12", "mlp.fc11"),
    down="mlp.fc2",
    output_norm="norm2",
)
#: The names of the first published files, in place of which transformers has others.
_FIELDS = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
    "activation_function": "hidden_act",
}
_GATES: Mapping[str, Literal["silu", "gelu"]] = {
    **dict.fromkeys(("silu", "swiglu"), "silu"),
    **dict.fromkeys(("gelu", "geglu"), "gelu"),
}
_THETA = 1000.0


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `nomic_bert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    _refuse_unsupported(fields)
    fields = fields.renamed(_FIELDS)
    hidden, heads = check_heads(fields)
    positions = fields.integer("max_position_embeddings")
    if "rotary_scaling_factor" in fields:
        # The base grows with inputs that are longer than those of the training.
        positions = min(positions, fields.integer("max_trained_positions", 2048))
    rope = parse_rope(fields, head_dim=hidden // heads, context=positions, theta=_THETA)
    return EncoderConfig(
        model_type="nomic_bert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", 4 * hidden),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=positions,
        num_token_types=fields.integer("type_vocab_size", 2),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        rope=rope,
        gate=_GATES[fields.choice("hidden_act", tuple(_GATES), "silu")],
        qkv_bias=fields.boolean("qkv_proj_bias", False),
        output_bias=fields.boolean("qkv_proj_bias", False),
        up_bias=fields.boolean("mlp_fc1_bias", False),
        down_bias=fields.boolean("mlp_fc2_bias", False),
        names=_NAMES,
        hf_prefix="bert.",
    )


def _refuse_unsupported(fields: Fields) -> None:
    refuse_quantized(fields)
    if is_classifier(fields):
        problem = "is a sequence classifier, which the family nomic_bert does not support"
        raise fields.error("architectures", problem)

    for name in ("prenorm", "parallel_block", "rotary_emb_interleaved", "use_rms_norm", "causal"):
        fields.require_false(name)
    if (fraction := fields.number("rotary_emb_fraction", 1.0)) != 1.0:
        raise fields.error("rotary_emb_fraction", f"must be 1, got {fraction:g}")

    name = "moe_every_n_layers"
    if name in fields and not fields.is_zero(name):
        raise fields.error(name, "must be 0: mixtures of experts are not supported")
