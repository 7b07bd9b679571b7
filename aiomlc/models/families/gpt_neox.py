"""GPT-NeoX and Pythia: plain layers beside attention, each behind a layer norm of its own."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import DEFAULT_THETA


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gpt_neox`."""
    share = fields.number("rotary_pct", 0.25)
    if share > 1.0:
        raise fields.error("rotary_pct", f"is {share}, above 1")

    bias = fields.boolean("attention_bias", True)
    traits = Traits(
        hf_fused=("qkv_proj",),
        hf_qkv_layout="heads",
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer",
        norm_eps="layer_norm_eps",
        norms="parallel" if fields.boolean("use_parallel_residual", True) else "before",
        gated=False,
        mlp_bias=True,
        activation="gelu",
        partial_rotary_factor=share,
        theta=fields.number("rotary_emb_base", DEFAULT_THETA),
    )
    return parse_decoder(fields, "gpt_neox", traits)
