"""ERNIE 4.5: Llama with interleaved rotary pairs."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `ernie4_5`."""
    bias = fields.boolean("use_bias", False)
    traits = DecoderTraits(
        hf_qkv_layout="interleaved_rope", qkv_bias=bias, output_bias=bias, mlp_bias=bias
    )
    rules = ConfigRules(tie_word_embeddings=True, head_dim=128, rope_theta=500000.0)
    return parse_decoder(fields, "ernie4_5", traits, rules)
