"""Mixtral: Mistral with experts in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config import DecoderConfig, Traits, parse_decoder
from aiomlc.models.experts import parse_experts
from aiomlc.models.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `mixtral`."""
    traits = Traits(window="always", theta=1e6)
    experts = parse_experts(fields, size="intermediate_size", normalize=True)
    return replace(parse_decoder(fields, "mixtral", traits), experts=experts)
