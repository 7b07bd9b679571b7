"""GPT-NeoX and Pythia: parallel attention and ungated MLP, each with its own LayerNorm."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import DEFAULT_THETA


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gpt_neox`."""
    fields = fields.without("num_key_value_heads")  # The architecture has no grouped heads.
    bias = fields.boolean("attention_bias", True)
    is_parallel = fields.boolean("use_parallel_residual", True)
    traits = DecoderTraits(
        hf_fused=("qkv_proj",),
        hf_qkv_layout="per_head",
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        norm_kind="layer",
        norm_placement="parallel" if is_parallel else "pre",
        gated=False,
        activation="gelu",
    )
    rules = ConfigRules(
        norm_eps_field="layer_norm_eps",
        partial_rotary_factor=fields.number("rotary_pct", 0.25),
        rope_theta=fields.number("rotary_emb_base", DEFAULT_THETA),
    )
    config = parse_decoder(fields, "gpt_neox", traits, rules)
    hidden, shape = config.hidden_size, config.cache_shape
    if shape.head_dim * shape.num_heads != hidden:
        problem = f"must be hidden_size / num_attention_heads ({hidden} / {shape.num_heads})"
        raise fields.error("head_dim", f"{problem}, got {shape.head_dim}")

    return config
