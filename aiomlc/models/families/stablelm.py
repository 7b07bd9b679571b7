"""StableLM: Llama with LayerNorm and partial rotation."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `stablelm`."""
    fields.require_false("qk_layernorm")
    is_parallel = fields.boolean("use_parallel_residual", False)
    traits = DecoderTraits(
        qkv_bias=fields.boolean("use_qkv_bias", False),
        norm_kind="layer",
        norm_placement="parallel_shared" if is_parallel else "pre",
    )
    rules = ConfigRules(norm_eps_field="layer_norm_eps", partial_rotary_factor=0.25)
    return parse_decoder(fields, "stablelm", traits, rules)
