"""Mixtral: Mistral with a mixture of experts in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import ConfigRules, DecoderConfig, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.moe_fields import parse_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `mixtral`."""
    experts = parse_experts(fields, size_field="intermediate_size", normalize=True)
    rules = ConfigRules(hf_window="always", rope_theta=1e6)
    return replace(parse_decoder(fields, "mixtral", rules=rules), experts=experts)
