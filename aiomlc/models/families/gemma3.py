"""Gemma 3: Gemma 2 with normalised heads in place of soft caps, and two rotations.

Layers with a window turn by a base of their own. Of a model that also sees, only the decoder is
here: its images are nothing that a request could bring.
"""

from __future__ import annotations

__all__ = ("parse", "parse_text")

from aiomlc.models.config.decoder import DecoderConfig, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.families.gemma import as_gemma, gemma_traits

# What transformers takes where a config does not say, as those of the larger models.
_DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_FULL_EVERY = 6
_GLOBAL_THETA = 1_000_000.0
_LOCAL_THETA = 10_000.0
_KINDS = "rope_parameters"


def parse_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma3_text`."""
    return _parse(fields, "gemma3_text")


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma3`, whose decoder's is `text_config`."""
    return _parse(fields.flattened("text_config"), "gemma3")


def _parse(fields: Fields, model_type: str) -> DecoderConfig:
    fields = fields.filled(**_DEFAULTS)
    full = fields.chosen(_KINDS, "full_attention") if _has_kinds(fields) else fields
    traits = gemma_traits(
        full,
        window="interleaved",
        full_every=_FULL_EVERY,
        norms="around",
        qk_norm=True,
        theta=_GLOBAL_THETA,
    )
    config = parse_decoder(full, model_type, traits)
    local = _local_rope(fields, config)
    slides = sliding_layers(fields, config.num_hidden_layers, _FULL_EVERY)
    return as_gemma(
        config,
        attention_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        attn_logit_softcapping=_cap(fields, "attn_logit_softcapping"),
        final_logit_softcapping=_cap(fields, "final_logit_softcapping"),
        layer_ropes=tuple(local if one else config.rope for one in slides),
    )


def _has_kinds(fields: Fields) -> bool:
    kinds = fields.nested(_KINDS)
    return "full_attention" in kinds or "sliding_attention" in kinds


def _local_rope(fields: Fields, config: DecoderConfig) -> RopeConfig:
    theta = fields.number("rope_local_base_freq", _LOCAL_THETA)
    if not _has_kinds(fields):
        return RopeConfig(theta=theta)

    local = fields.chosen(_KINDS, "sliding_attention").without("rope_theta")
    context = config.context_window_size
    return parse_rope(local, head_dim=config.head_dim, context=context, theta=theta)


def _cap(fields: Fields, name: str) -> float:
    return fields.number(name) if name in fields else 0.0
