"""StableLM: Llama with layer norms, and heads of which only a part turns."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `stablelm`."""
    if fields.boolean("qk_layernorm", False):
        raise fields.error("qk_layernorm", "is true, which is not supported")

    traits = Traits(
        qkv_bias=fields.boolean("use_qkv_bias", False),
        norm_kind="layer",
        norm_eps="layer_norm_eps",
        norms="shared" if fields.boolean("use_parallel_residual", False) else "before",
        partial_rotary_factor=0.25,
    )
    return parse_decoder(fields, "stablelm", traits)
