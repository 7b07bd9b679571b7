"""StarCoder 2: layer norms, a plain layer between the attentions, biases and a sliding window."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `starcoder2`."""
    bias = fields.boolean("use_bias", True)
    traits = Traits(
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer",
        norm_eps="norm_epsilon",
        gated=False,
        mlp_bias=bias,
        activation="gelu_tanh",
        # MLC stores the head also where it is the table.
        tied="context_window_size" not in fields,
        window="always",
    )
    return parse_decoder(fields, "starcoder2", traits)
