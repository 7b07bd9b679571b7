"""The text towers of models that embed texts and images in one space: CLIP and SigLIP."""

from __future__ import annotations

__all__ = ("TOWER_PREFIXES", "parse_text_tower")

from collections.abc import Mapping

from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.encoder import BlockEncoderConfig, TextHeadConfig
from aiomlc.models.config.fields import Fields, refuse_quantized

#: The names of a vision tower in the directories of such models.
TOWER_PREFIXES = (("vision_model.", "vision_tower."),)
_TRAITS = DecoderTraits(
    qkv_bias=True, output_bias=True, mlp_bias=True, norm_kind="layer", gated=False
)
_RULES = ConfigRules(norm_eps_field="layer_norm_eps", tie_word_embeddings=True)


def parse_text_tower(
    text: Fields,
    model_type: str,
    head: TextHeadConfig,
    *,
    is_causal: bool,
    defaults: Mapping[str, object],
) -> BlockEncoderConfig:
    """Read a `text_config`.

    Args:
        text: Its fields.
        model_type: The family.
        head: What follows the tower.
        is_causal: Whether a token sees no token after it.
        defaults: The values of absent fields, those of transformers.

    Raises:
        ModelLoadError: If a field has the wrong type or a value that is not supported.
    """
    refuse_quantized(text)
    blocks = parse_decoder(text.with_defaults(**defaults), model_type, _TRAITS, _RULES)
    return BlockEncoderConfig(
        blocks=blocks.with_attention(rope=None),
        is_causal=is_causal,
        position_table="text_model.embeddings.position_embedding",
        text_head=head,
    )
