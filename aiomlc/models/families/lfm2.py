"""LFM 2: short convolutions in most layers, and Llama's attention with QK-norm in the others."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import ConfigRules, DecoderConfig, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import ShortConvConfig
from aiomlc.models.families.layer_types import recurrent_layers

_THETA = 1_000_000.0
_WIDTH = 3
_EPS = 1e-5


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `lfm2`."""
    fields = _with_sizes(fields.with_defaults(norm_eps=_EPS))
    traits = DecoderTraits(qk_norm="per_head")
    rules = ConfigRules(norm_eps_field="norm_eps", tie_word_embeddings=True, rope_theta=_THETA)
    config = parse_decoder(fields, "lfm2", traits, rules)
    conv = ShortConvConfig(
        channels=config.hidden_size,
        width=fields.integer("conv_L_cache", _WIDTH),
        bias=fields.boolean("conv_bias", False),
    )
    return config.with_recurrent(conv, _convolutions(fields, config.num_hidden_layers))


def _convolutions(fields: Fields, layers: int) -> list[bool]:
    name = "full_attn_idxs"
    if "layer_types" not in fields and name in fields:
        attention = set(fields.integers(name))
        return [layer not in attention for layer in range(layers)]

    return recurrent_layers(fields, layers, "conv", default=["full_attention"] * layers)


def _with_sizes(fields: Fields) -> Fields:
    """Return the fields with the size of the MLP and the tie under their usual names."""
    if "tie_embedding" in fields:
        fields = fields.replaced(tie_word_embeddings=fields.boolean("tie_embedding", True))
    size = fields.integer("block_ff_dim" if "block_ff_dim" in fields else "intermediate_size")
    if fields.boolean("block_auto_adjust_ff_dim", True):
        multiple = fields.integer("block_multiple_of", 256)
        size = int(2 * size / 3)
        size = int(fields.number("block_ffn_dim_multiplier", 1.0) * size)
        size = -(-size // multiple) * multiple
    return fields.replaced(intermediate_size=size)
