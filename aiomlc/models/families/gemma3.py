"""Gemma 3: Gemma 2 with QK-norm instead of softcapping, and separate RoPE settings for the layers
with a sliding window.

A multimodal model has SigLIP's tower, whose outputs are averaged in blocks. The positions of an
image see each other.
"""

from __future__ import annotations

__all__ = ("parse", "parse_text", "parse_vision")

import math
from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import parse_decoder
from aiomlc.models.config.encoder import BlockEncoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.config.tower import LinearStep, NormStep, PoolStep
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.gemma import GEMMA_RULES, gemma_traits, with_gemma_scale
from aiomlc.models.families.vision_towers import parse_tower

# The defaults of transformers, on which the configs of the larger models rely.
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
_PREFIXES = (
    ("model.language_model.", "language_model.model."),
    ("model.vision_tower.vision_model.", "vision_tower."),
    ("model.vision_tower.", "vision_tower."),
    ("vision_tower.vision_model.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
)
_FULL_ATTENTION_INTERVAL = 6
_GLOBAL_THETA = 1_000_000.0
_LOCAL_THETA = 10_000.0


def parse_text(fields: Fields) -> DecoderConfig | BlockEncoderConfig:
    """Read a config of model type `gemma3_text`; EmbeddingGemma's attention is bidirectional."""
    fields = _text_fields(fields)
    config = _parse(fields.without("use_bidirectional_attention"), "gemma3_text")
    if not fields.boolean("use_bidirectional_attention", False):
        return config

    # The window's size is that of both sides together.
    blocks = config.map_attention(lambda plan: replace(plan, window=_half(plan.window)))
    return BlockEncoderConfig(blocks=blocks, is_causal=False, hf_prefix="model.")


def _half(window: int) -> int:
    return window // 2 + 1 if window else 0


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma3`, which has the decoder's fields in `text_config`."""
    return _parse(_text_fields(fields), "gemma3").with_attention(sees_whole_pieces=True)


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `gemma3`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    tower = parse_tower(fields, "siglip_vision_model")
    hidden = _text_fields(fields).with_defaults(**_DEFAULTS).integer("hidden_size")
    tokens = fields.integer("mm_tokens_per_image", 256)
    block = tower.image_size // tower.patch_size // math.isqrt(tokens)
    if block < 1 or (tower.image_size // tower.patch_size // block) ** 2 != tokens:
        problem = f"must be the square of a part of an image's side in patches, got {tokens}"
        raise fields.error("mm_tokens_per_image", problem)

    name = "multi_modal_projector."
    norm = NormStep(
        source=f"{name}mm_soft_emb_norm",
        norm_kind="rms",
        eps=tower.settings["norm_eps"],
        size=tower.hidden_size,
        offset=1.0,
    )
    matrix = LinearStep(
        source=f"{name}mm_input_projection_weight",
        inputs=tower.hidden_size,
        outputs=hidden,
        bias=False,
        transposed=True,
    )
    return VisionConfig(
        model_type="gemma3",
        **tower.settings,
        num_hidden_layers=tower.num_layers,
        post_norm=True,
        projector=(PoolStep(count=block * block), norm, matrix),
        embedded_size=hidden,
        merge=block,
        prefixes=_PREFIXES,
    )


def _text_fields(fields: Fields) -> Fields:
    """Return the fields of the decoder, which MLC nests in `text_config` for both model types.

    Fields that MLC LLM does not know are in `text_config.kwargs`, and `rope_scaling` is 0 if there
    is none.
    """
    for name in ("text_config", "kwargs"):
        fields = fields.flattened(name) if name in fields else fields
    return fields.without("rope_scaling") if fields.is_zero("rope_scaling") else fields


def _parse(fields: Fields, model_type: str) -> DecoderConfig:
    fields = fields.with_defaults(**_DEFAULTS)
    is_per_type = _has_rope_per_layer_type(fields)
    full = fields.narrowed("rope_parameters", "full_attention") if is_per_type else fields
    traits = replace(gemma_traits(full), norm_placement="sandwich", qk_norm="per_head")
    rules = replace(
        GEMMA_RULES,
        hf_window="interleaved",
        full_attention_interval=_FULL_ATTENTION_INTERVAL,
        rope_theta=_GLOBAL_THETA,
    )
    config = parse_decoder(full, model_type, traits, rules)
    cap = "final_logit_softcapping"
    slides = sliding_layers(fields, config.num_hidden_layers, _FULL_ATTENTION_INTERVAL)
    config = replace(
        with_gemma_scale(config),
        # The layers have QK-norm instead of the attn_logit_softcapping that a config may contain.
        final_logit_softcapping=fields.number(cap) if cap in fields else 0.0,
    )
    scale = fields.number("query_pre_attn_scalar") ** -0.5
    return config.with_attention(scale=scale).with_rope(_local_rope(fields, config), slides)


def _has_rope_per_layer_type(fields: Fields) -> bool:
    settings = fields.nested("rope_parameters")
    return "full_attention" in settings or "sliding_attention" in settings


def _local_rope(fields: Fields, config: DecoderConfig) -> RopeConfig:
    theta = fields.number("rope_local_base_freq", _LOCAL_THETA)
    if not _has_rope_per_layer_type(fields):
        return RopeConfig(theta=theta)

    local = fields.narrowed("rope_parameters", "sliding_attention")
    local = local.without("rope_theta").without("rope_scaling")  # Of full-attention layers.
    head_dim, context = config.cache_shape.head_dim, config.context_window_size
    return parse_rope(local, head_dim=head_dim, context=context, theta=theta)
