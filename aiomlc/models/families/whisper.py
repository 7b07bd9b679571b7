"""Whisper: an encoder of log-mel frames, and a decoder with cross attention."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.fields import Fields, quote, refuse_quantized
from aiomlc.models.config.speech import SpeechConfig, SpeechStackConfig


def parse(fields: Fields) -> SpeechConfig:
    """Read a config of model type `whisper`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    fields.choice("activation_function", ("gelu",), "gelu")
    fields.require_false("scale_embedding")
    if not fields.boolean("tie_word_embeddings", True):
        raise fields.error("tie_word_embeddings", "must be true, got false")

    hidden = fields.integer("d_model")
    return SpeechConfig(
        model_type="whisper",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        num_mels=fields.integer("num_mel_bins", 80),
        encoder=_parse_stack(fields, "encoder", "max_source_positions", hidden),
        decoder=_parse_stack(fields, "decoder", "max_target_positions", hidden),
    )


def _parse_stack(fields: Fields, part: str, positions: str, hidden: int) -> SpeechStackConfig:
    name = f"{part}_attention_heads"
    heads = fields.integer(name)
    if hidden % heads:
        raise fields.error(name, f"must divide d_model ({hidden}), got {quote(heads)}")

    return SpeechStackConfig(
        num_layers=fields.integer(f"{part}_layers"),
        num_heads=heads,
        intermediate_size=fields.integer(f"{part}_ffn_dim"),
        num_positions=fields.integer(positions),
    )
