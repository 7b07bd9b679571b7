"""Mixtral: Mistral with a mixture of experts in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.moe_fields import with_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `mixtral`."""
    rules = ConfigRules(hf_window="always", rope_theta=1e6)
    config = parse_decoder(fields, "mixtral", rules=rules)
    return with_experts(config, fields, size_field="intermediate_size", normalize=True)
