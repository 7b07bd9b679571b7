"""Phi 1.5 and 2: parallel attention and ungated MLP with one shared LayerNorm, and biases."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `phi`."""
    fields.require_false("qk_layernorm")
    fields.require_false("tie_word_embeddings")  # The embedding has no bias, but the head does.
    traits = DecoderTraits(
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        norm_kind="layer",
        norm_placement="parallel_shared",
        gated=False,
        activation="gelu_tanh",
    )
    rules = ConfigRules(norm_eps_field="layer_norm_eps", partial_rotary_factor=0.5)
    return parse_decoder(fields, "phi", traits, rules)
