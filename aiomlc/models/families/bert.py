"""BERT: an encoder, whose tokens all see each other."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import EncoderConfig
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `bert`.

    Raises:
        ModelLoadError: a field is missing, of a wrong type, or asks for what is not supported.
    """
    _refuse_unsupported(fields)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if hidden % heads:
        raise fields.error("num_attention_heads", f"is {heads}, no divisor of {hidden}")

    window = "max_position_embeddings"
    return EncoderConfig(
        model_type="bert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer(window if window in fields else "context_window_size"),
        num_token_types=fields.integer("type_vocab_size", 2),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
    )


def _refuse_unsupported(fields: Fields) -> None:
    activation = fields.text("hidden_act", "gelu")
    if activation != "gelu":
        raise fields.error("hidden_act", f"is {activation!r}; supported: gelu")

    positions = fields.text("position_embedding_type", "absolute")
    if positions != "absolute":
        raise fields.error("position_embedding_type", f"is {positions!r}; supported: absolute")

    if fields.boolean("is_decoder", False):
        raise fields.error("is_decoder", "is true: only encoders are supported")

    if "quantization_config" in fields:
        raise fields.error("quantization_config", "is set: weights that are quantised already")
