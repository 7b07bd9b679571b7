"""Nemotron and Minitron: LayerNorm with weights stored minus one, ungated MLP with squared ReLU."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `nemotron`."""
    if "context_window_size" in fields:
        problem = (
            "is not supported in MLC format, which has other norm weights: "
            "use the Hugging Face directory"
        )
        raise fields.error("model_type", f'"nemotron" {problem}')

    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(
        hf_norm_offset=1.0,
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer",
        gated=False,
        activation="squared_relu",
    )
    rules = ConfigRules(norm_eps_field="norm_eps", partial_rotary_factor=0.5)
    return parse_decoder(fields, "nemotron", traits, rules)
