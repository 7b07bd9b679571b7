"""InternLM 3: Llama by other names of its biases."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `internlm3`."""
    bias = fields.boolean("qkv_bias", fields.boolean("attention_bias", False))
    if fields.boolean("bias", fields.boolean("mlp_bias", False)) != bias:
        raise fields.error("bias", "differs from qkv_bias, which is not supported")

    traits = Traits(qkv_bias=bias, output_bias=bias, mlp_bias=bias, head_dim=128)
    return parse_decoder(fields, "internlm3", traits)
