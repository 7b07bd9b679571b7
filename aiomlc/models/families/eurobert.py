"""EuroBERT: Llama's blocks, whose tokens see those before and after them."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.encoder import BlockEncoderConfig
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.sequence_classifier import is_classifier


def parse(fields: Fields) -> BlockEncoderConfig:
    """Read a config of model type `eurobert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    if is_classifier(fields):
        problem = "is a sequence classifier, which the family eurobert does not support"
        raise fields.error("architectures", problem)

    rules = ConfigRules(tie_word_embeddings=True)
    blocks = parse_decoder(fields, "eurobert", DecoderTraits(), rules)
    return BlockEncoderConfig(blocks=blocks, is_causal=False, hf_prefix="model.")
