"""GLM 4: partial rotation with interleaved pairs; `glm4` also has sandwich norms."""

from __future__ import annotations

__all__ = ("parse", "parse_glm4")

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import NormPlacement


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `glm`."""
    return _parse(fields, "glm", "pre")


def parse_glm4(fields: Fields) -> DecoderConfig:
    """Read a config of model type `glm4`."""
    return _parse(fields, "glm4", "sandwich")


def _parse(fields: Fields, model_type: str, norm_placement: NormPlacement) -> DecoderConfig:
    traits = DecoderTraits(
        hf_fused=("gate_up_proj",),
        hf_qkv_layout="interleaved_rope",
        qkv_bias=fields.boolean("attention_bias", True),
        norm_placement=norm_placement,
    )
    rules = ConfigRules(head_dim=128, partial_rotary_factor=0.5, rope_pads_to_head_dim=True)
    return parse_decoder(fields, model_type, traits, rules)
