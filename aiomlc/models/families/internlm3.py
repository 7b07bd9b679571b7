"""InternLM 3: Llama with other field names for its biases."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields, quote


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `internlm3`."""
    qkv_bias = fields.boolean("qkv_bias", fields.boolean("attention_bias", False))
    bias = fields.boolean("bias", fields.boolean("mlp_bias", False))
    if bias != qkv_bias:
        raise fields.error("bias", f"must equal qkv_bias ({quote(qkv_bias)}), got {quote(bias)}")

    traits = DecoderTraits(qkv_bias=bias, output_bias=bias, mlp_bias=bias)
    return parse_decoder(fields, "internlm3", traits, ConfigRules(head_dim=128))
