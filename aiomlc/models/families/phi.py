"""Phi 1.5 and 2: plain layers beside attention, behind the same layer norm, biases everywhere."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `phi`."""
    # A shared table has no place for the head's bias.
    for name in ("qk_layernorm", "tie_word_embeddings"):
        if fields.boolean(name, False):
            raise fields.error(name, "is true, which is not supported")

    traits = Traits(
        qkv_bias=True,
        output_bias=True,
        norm_kind="layer",
        norm_eps="layer_norm_eps",
        norms="shared",
        gated=False,
        mlp_bias=True,
        activation="gelu_tanh",
        head_bias=True,
        partial_rotary_factor=0.5,
    )
    return parse_decoder(fields, "phi", traits)
