"""Mixtral: Mistral with experts in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import parse_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `mixtral`."""
    traits = Traits(window="always", theta=1e6)
    experts = parse_experts(fields, size="intermediate_size", normalize=True)
    return replace(parse_decoder(fields, "mixtral", traits), experts=experts)
