"""StarCoder 2: LayerNorm, ungated MLP, biases, and a sliding window in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `starcoder2`."""
    bias = fields.boolean("use_bias", True)
    traits = DecoderTraits(
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        norm_kind="layer",
        gated=False,
        activation="gelu_tanh",
    )
    rules = ConfigRules(
        norm_eps_field="norm_epsilon",
        # MLC stores the head even where it equals the embedding.
        tie_word_embeddings="context_window_size" not in fields,
        hf_window="always",
    )
    return parse_decoder(fields, "starcoder2", traits, rules)
