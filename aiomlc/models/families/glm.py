"""GLM 4: half of a head turns, in pairs of neighbours; later ones have norms on both sides."""

from __future__ import annotations

__all__ = ("parse", "parse_glm4")

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, NormPlace, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `glm`."""
    return _parse(fields, "glm", "before")


def parse_glm4(fields: Fields) -> DecoderConfig:
    """Read a config of model type `glm4`."""
    return _parse(fields, "glm4", "around")


def _parse(fields: Fields, model_type: str, norms: NormPlace) -> DecoderConfig:
    traits = Traits(
        hf_fused=("gate_up_proj",),
        hf_qkv_layout="pairs",
        qkv_bias=fields.boolean("attention_bias", True),
        norms=norms,
        head_dim=128,
        partial_rotary_factor=0.5,
    )
    config = parse_decoder(fields, model_type, traits)
    if config.rope.amplitude != 1.0:  # It would reach what does not turn.
        raise fields.error("rope_parameters", "scales a part of each head, which is not supported")

    return replace(config, rope=replace(config.rope, fills_head=True))
