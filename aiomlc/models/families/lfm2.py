"""LFM 2: short convolutions in most layers, and Llama's attention with QK-norm in the others.

Its mixtures choose experts by biased sigmoids, and weigh them by the sigmoids alone.
"""

from __future__ import annotations

__all__ = ("parse", "parse_moe")

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import ShortConvConfig
from aiomlc.models.families.layer_types import recurrent_layers
from aiomlc.models.families.moe_fields import with_experts

_THETA = 1_000_000.0
_WIDTH = 3
_EPS = 1e-5
_DENSE_LAYERS = 2


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `lfm2`."""
    return _parse(_with_mlp_size(fields), "lfm2")


def parse_moe(fields: Fields) -> DecoderConfig:
    """Read a config of model type `lfm2_moe`."""
    dense = fields.integer("num_dense_layers", _DENSE_LAYERS)
    return with_experts(
        _parse(fields, "lfm2_moe"),
        fields.with_defaults(mlp_only_layers=list(range(dense))),
        size_field="moe_intermediate_size",
        normalize=fields.boolean("norm_topk_prob", True),
        scores="sigmoid",
        selection_bias=fields.boolean("use_expert_bias", True),
        scale=fields.number("routed_scaling_factor", 1.0),
    )


def _parse(fields: Fields, model_type: str) -> DecoderConfig:
    fields = fields.with_defaults(norm_eps=_EPS)
    if "tie_embedding" in fields:
        fields = fields.replaced(tie_word_embeddings=fields.boolean("tie_embedding", True))
    traits = DecoderTraits(qk_norm="per_head")
    rules = ConfigRules(norm_eps_field="norm_eps", tie_word_embeddings=True, rope_theta=_THETA)
    config = parse_decoder(fields, model_type, traits, rules)
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


def _with_mlp_size(fields: Fields) -> Fields:
    """Return the fields with the adjusted size of the MLP."""
    size = fields.integer("block_ff_dim" if "block_ff_dim" in fields else "intermediate_size")
    if fields.boolean("block_auto_adjust_ff_dim", True):
        multiple = fields.integer("block_multiple_of", 256)
        size = int(2 * size / 3)
        size = int(fields.number("block_ffn_dim_multiplier", 1.0) * size)
        size = -(-size // multiple) * multiple
    return fields.replaced(intermediate_size=size)
