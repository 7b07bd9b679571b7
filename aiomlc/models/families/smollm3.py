"""SmolLM 3: Llama without RoPE in every fourth layer."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields

_NO_ROPE_INTERVAL = 4
_THETA = 2_000_000.0


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `smollm3`."""
    fields.require_false("use_sliding_window")
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(qkv_bias=bias, output_bias=bias)
    rules = ConfigRules(tie_word_embeddings=True, rope_theta=_THETA)
    config = parse_decoder(fields, "smollm3", traits, rules)
    rotates = _rotary_layers(fields, config.num_hidden_layers)
    return config.with_rope(None, [not is_rotary for is_rotary in rotates])


def _rotary_layers(fields: Fields, layers: int) -> list[bool]:
    name = "no_rope_layers"
    if name not in fields:
        interval = fields.integer("no_rope_layer_interval", _NO_ROPE_INTERVAL)
        return [(layer + 1) % interval != 0 for layer in range(layers)]

    # Despite the field's name, 1 means that the layer has RoPE.
    rotates = fields.integers(name)
    if len(rotates) < layers:
        problem = f"must have at least num_hidden_layers ({layers}) entries, got {len(rotates)}"
        raise fields.error(name, problem)

    return [bool(value) for value in rotates[:layers]]
