"""SmolLM 3: Llama, where the heads of some layers do not turn."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields

_STILL_EVERY = 4
_THETA = 2_000_000.0


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `smollm3`."""
    if fields.boolean("use_sliding_window", False):
        raise fields.error("use_sliding_window", "is true, which is not supported")

    bias = fields.boolean("attention_bias", False)
    traits = Traits(qkv_bias=bias, output_bias=bias, tied=True, theta=_THETA)
    config = parse_decoder(fields, "smollm3", traits)
    turns = _turning_layers(fields, config.num_hidden_layers)
    return replace(config, layer_ropes=tuple(config.rope if one else None for one in turns))


def _turning_layers(fields: Fields, layers: int) -> list[bool]:
    name = "no_rope_layers"
    if name not in fields:
        period = fields.integer("no_rope_layer_interval", _STILL_EVERY)
        return [(layer + 1) % period != 0 for layer in range(layers)]

    # What is 1 does turn, whatever the name says.
    turns = fields.integers(name)
    if len(turns) < layers:
        raise fields.error(name, f"has {len(turns)} layers, num_hidden_layers is {layers}")

    return [bool(one) for one in turns[:layers]]
