"""BERT: a bidirectional encoder."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import EncoderConfig
from aiomlc.models.config.fields import Fields, refuse_quantized


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `bert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    _refuse_unsupported(fields)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if hidden % heads:
        raise fields.error(
            "num_attention_heads", f"must divide hidden_size ({hidden}), got {heads}"
        )

    positions = "max_position_embeddings"
    return EncoderConfig(
        model_type="bert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer(
            positions if positions in fields else "context_window_size", minimum=1
        ),
        num_token_types=fields.integer("type_vocab_size", 2),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
    )


def _refuse_unsupported(fields: Fields) -> None:
    fields.choice("hidden_act", ("gelu",), "gelu")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    fields.require_false("is_decoder")
    refuse_quantized(fields)
